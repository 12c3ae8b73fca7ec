"""Frames, however they are cut: RFC 6455 section 5."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from itertools import cycle

import pytest
from tracing import cuttings, pieces
from websocket_subjects import chosen, decoder_class
from wire_frames import BINARY, CLOSE, CONTINUATION, MASK, PING, PONG, TEXT, Frame, frame, frames_of

from servery.errors import LimitExceeded
from servery.websocket.frames import frame_head, unmask


@pytest.fixture(autouse=True)
def each_engine(engine_name: str) -> Iterator[None]:
    """All of this holds for the reference and for the compiled twin."""
    with chosen(engine_name):
        yield


Whole = tuple[int, bytes, bool]
"""Opcode, content, whether compressed."""


def decoded(
    data: bytes, cuts: list[int], max_size: int | None, deflates: bool
) -> tuple[list[Whole], int, str]:
    """The whole messages in `data`, then the close code and the reason of its fault (0 and nothing
    without)."""
    decoder = decoder_class()(max_size, deflates)
    found: list[Whole] = []
    content = b""
    for piece in pieces(data, cuts):
        for opcode, octets, compressed, last in decoder.feed(piece):
            assert type(octets) is bytes
            if opcode >= 8:
                assert last
                found.append((opcode, octets, compressed))
                continue
            content += octets
            if last:
                found.append((opcode, content, compressed))
                content = b""
        if decoder.error is not None:
            return found, decoder.error.status, decoder.error.reason
    return found, 0, ""


def decode(
    data: bytes, *, max_size: int | None = 1 << 20, deflates: bool = False
) -> tuple[list[Whole], int, str]:
    """The same, which must not depend on how `data` is cut."""
    whole = decoded(data, [], max_size, deflates)
    for way, cuts in cuttings(data, "frames").items():
        assert decoded(data, cuts, max_size, deflates) == whole, way
    return whole


def fault(data: bytes, **options: object) -> tuple[int, str]:
    """The fault of a frame behind a good message, which must be delivered."""
    messages, code, reason = decode(frame(TEXT, b"good") + data, **options)  # type: ignore[arg-type]
    assert messages[0] == (TEXT, b"good", False)
    return code, reason


SIZES = [0, 1, 2, 3, 4, 5, 124, 125, 126, 127, 128, 65534, 65535, 65536, 65537, 100_000]


@pytest.mark.parametrize("size", SIZES)
def test_content_of_every_length_comes_through(size: int) -> None:
    content = random.Random(size).randbytes(size)
    data = frame(BINARY, content) + frame(TEXT, content)
    assert decode(data) == ([(BINARY, content, False), (TEXT, content, False)], 0, "")


@pytest.mark.parametrize("mask", [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\1", b"\x80\0\0\0", MASK])
def test_every_mask_is_taken_off(mask: bytes) -> None:
    content = bytes(range(256))
    assert decode(frame(BINARY, content, mask=mask)) == ([(BINARY, content, False)], 0, "")


@pytest.mark.parametrize("size", range(40))
def test_unmask_is_an_exclusive_or_octet_by_octet(size: int) -> None:
    octets = random.Random(size).randbytes(size)
    plain = bytes(a ^ b for a, b in zip(octets, cycle(MASK), strict=False))
    assert unmask(octets, MASK) == plain
    assert decode(frame(BINARY, plain)) == ([(BINARY, plain, False)], 0, "")


def test_fragments_are_one_message_and_control_frames_go_between() -> None:
    data = b"".join(
        (
            frame(TEXT, b"a", final=False),
            frame(PING, b"p"),
            frame(CONTINUATION, b"", final=False),
            frame(PONG),
            frame(CONTINUATION, b"bc", final=False),
            frame(CONTINUATION, b""),
            frame(BINARY, b"", final=False),
            frame(CONTINUATION, b"d"),
            frame(CLOSE),
        )
    )
    wanted = [(PING, b"p"), (PONG, b""), (TEXT, b"abc"), (BINARY, b"d"), (CLOSE, b"")]
    assert decode(data) == ([(opcode, content, False) for opcode, content in wanted], 0, "")


@pytest.mark.parametrize("opcode", [TEXT, BINARY, CONTINUATION, PING, PONG, CLOSE])
def test_frames_without_a_mask_are_refused(opcode: int) -> None:
    started = frame(TEXT, final=False) if opcode == CONTINUATION else b""
    data = started + frame(opcode, b"x", mask=None)
    assert fault(data) == (1002, "frames of a client must be masked")


@pytest.mark.parametrize("opcode", [3, 4, 5, 6, 7, 11, 12, 13, 14, 15])
@pytest.mark.parametrize("payload", [b"", b"x"])
def test_reserved_opcodes_are_refused(opcode: int, payload: bytes) -> None:
    assert fault(frame(opcode, payload)) == (1002, "reserved opcode")


@pytest.mark.parametrize("rsv", range(1, 8))
@pytest.mark.parametrize("opcode", [TEXT, BINARY, CONTINUATION, PING, PONG, CLOSE])
def test_reserved_bits_are_refused_where_nothing_gave_them_a_meaning(opcode: int, rsv: int) -> None:
    started = frame(TEXT, final=False) if opcode == CONTINUATION else b""
    assert fault(started + frame(opcode, b"x", rsv=rsv)) == (1002, "reserved bit set")


@pytest.mark.parametrize("rsv", range(1, 8))
@pytest.mark.parametrize("opcode", [TEXT, BINARY, CONTINUATION, PING, PONG, CLOSE])
def test_compression_gives_a_meaning_to_one_bit_of_the_first_frame_of_a_message(
    opcode: int, rsv: int
) -> None:
    started = frame(TEXT, final=False, rsv=4) if opcode == CONTINUATION else b""
    data = started + frame(opcode, b"x", rsv=rsv)
    if rsv == 4 and opcode in (TEXT, BINARY):
        assert decode(data, deflates=True) == ([(opcode, b"x", True)], 0, "")
    else:
        assert fault(data, deflates=True) == (1002, "reserved bit set")


def test_compression_is_said_once_for_all_frames_of_a_message() -> None:
    data = frame(BINARY, b"a", final=False, rsv=4) + frame(CONTINUATION, b"b") + frame(BINARY, b"c")
    assert decode(data, deflates=True) == ([(BINARY, b"ab", True), (BINARY, b"c", False)], 0, "")


@pytest.mark.parametrize("opcode", [PING, PONG, CLOSE])
def test_control_frames_are_small_and_whole(opcode: int) -> None:
    assert decode(frame(opcode, b"x" * 125)) == ([(opcode, b"x" * 125, False)], 0, "")
    assert fault(frame(opcode, b"x" * 126)) == (1002, "control frame too long")
    assert fault(frame(opcode, b"", size=1 << 40)) == (1002, "control frame too long")
    assert fault(frame(opcode, b"x", final=False)) == (1002, "fragmented control frame")


@pytest.mark.parametrize(("size", "width"), [(0, 2), (125, 2), (0, 8), (125, 8), (126, 8), (65535, 8)])
def test_lengths_have_one_form(size: int, width: int) -> None:
    data = frame(BINARY, b"x" * size, width=width)
    assert fault(data) == (1002, "frame length not in its shortest form")


@pytest.mark.parametrize("size", [1 << 63, (1 << 64) - 1])
def test_highest_bit_of_a_length_is_reserved(size: int) -> None:
    assert fault(frame(BINARY, size=size), max_size=None) == (1002, "frame length with its highest bit set")


@pytest.mark.parametrize("opcode", [TEXT, BINARY])
@pytest.mark.parametrize("final", [True, False])
def test_a_message_begins_when_the_one_before_has_ended(opcode: int, final: bool) -> None:
    data = frame(TEXT, b"a", final=False) + frame(opcode, b"b", final=final)
    assert fault(data) == (1002, "new message inside of a fragmented one")


@pytest.mark.parametrize("final", [True, False])
def test_a_continuation_continues_something(final: bool) -> None:
    assert fault(frame(CONTINUATION, b"x", final=final)) == (1002, "continuation of no message")
    ended = frame(TEXT, b"a", final=False) + frame(CONTINUATION, b"b")
    assert fault(ended + frame(CONTINUATION, b"x", final=final)) == (1002, "continuation of no message")


def test_nothing_is_read_behind_a_fault() -> None:
    decoder = decoder_class()(None, False)
    assert decoder.feed(frame(3) + frame(TEXT, b"x")) == []
    assert decoder.error is not None
    assert decoder.error.__traceback__ is None


# --- the size of a message -------------------------------------------------------------------------------


def test_a_message_may_have_its_limit_and_no_octet_more() -> None:
    assert decode(frame(BINARY, b"x" * 300), max_size=300)[0] == [(BINARY, b"x" * 300, False)]
    assert fault(frame(BINARY, b"x" * 301), max_size=300) == (1009, "message too big")


def test_the_limit_is_for_all_fragments_together() -> None:
    start, rest = frame(BINARY, b"x" * 200, final=False), frame(CONTINUATION, b"x" * 100)
    assert decode(start + rest, max_size=300)[0] == [(BINARY, b"x" * 300, False)]
    assert fault(start + frame(CONTINUATION, b"x" * 101), max_size=300) == (1009, "message too big")


def test_the_limit_begins_anew_with_each_message() -> None:
    one = frame(BINARY, b"x" * 200, final=False) + frame(CONTINUATION, b"x" * 100)
    assert len(decode(one * 3, max_size=300)[0]) == 3


@pytest.mark.parametrize("size", [301, 65536, 1 << 62])
def test_a_length_that_is_too_big_is_refused_before_any_content_comes(size: int) -> None:
    decoder = decoder_class()(300, False)
    assert decoder.feed(frame(BINARY, size=size)[:-4]) == []  # not even the mask has come
    assert isinstance(decoder.error, LimitExceeded)


def test_what_is_compressed_has_no_limit_here() -> None:
    data = frame(BINARY, b"x" * 301, rsv=4, final=False) + frame(CONTINUATION, b"x" * 301)
    assert decode(data, max_size=300, deflates=True)[0] == [(BINARY, b"x" * 602, True)]


def test_no_limit() -> None:
    decoder = decoder_class()(None, False)
    decoder.feed(frame(BINARY, size=1 << 62))
    assert decoder.error is None


def test_content_is_handed_on_as_it_comes_and_not_kept() -> None:
    decoder = decoder_class()(None, False)
    decoder.feed(frame(BINARY, size=64 << 20))
    block = b"\0" * 65536
    tracemalloc.start()
    for _ in range(100):
        assert [len(octets) for _, octets, _, _ in decoder.feed(block)] == [65536]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


# --- frames of a server ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_a_server_does_not_mask_and_uses_the_shortest_length(size: int) -> None:
    content = b"x" * size
    parts = [frame_head(BINARY, size), content, frame_head(TEXT, size, final=False, compressed=True), content]
    assert frames_of(parts) == [Frame(BINARY, content), Frame(TEXT, content, final=False, rsv=4)]
