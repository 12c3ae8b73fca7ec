"""Compression of messages: offers, what is agreed on, and how much an inflated message may have. RFC 7692."""

from __future__ import annotations

import random
import tracemalloc
import zlib
from typing import Any

import pytest

from servery.errors import LimitExceeded, RemoteProtocolError
from servery.websocket.deflate import Agreement, Deflater, DeflateSettings, Inflater, negotiate
from servery.websocket.handshake import read_extensions

TAIL = b"\x00\x00\xff\xff"
TEXTS = [b"", b"a", b"hello " * 50, random.Random(1).randbytes(5000), b"\0" * 100_000, b"hello " * 50]


def agree(*lines: bytes, **settings: Any) -> Agreement | None:
    return negotiate(read_extensions(list(lines)), DeflateSettings(**settings))


def answer(*lines: bytes, **settings: Any) -> bytes | None:
    agreement = agree(*lines, **settings)
    return None if agreement is None else agreement.answer


def agreement(**changes: Any) -> Agreement:
    values = {"server_bits": 15, "client_bits": 15, "server_takeover": True, "client_takeover": True}
    return Agreement(**{**values, "answer": b"", **changes})


class Peer:
    """The other side, with zlib as it is."""

    def __init__(self, bits: int = 15, takeover: bool = True) -> None:
        self.bits = bits
        self.takeover = takeover
        self.out: Any = None
        self.into: Any = None

    def deflate(self, content: bytes) -> bytes:
        if self.out is None or not self.takeover:
            self.out = zlib.compressobj(wbits=-self.bits)
        return (self.out.compress(content) + self.out.flush(zlib.Z_SYNC_FLUSH))[:-4]

    def inflate(self, content: bytes) -> bytes:
        if self.into is None or not self.takeover:
            self.into = zlib.decompressobj(wbits=-self.bits)
        return self.into.decompress(content + TAIL)


# --- what is agreed on -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offer", "wanted"),
    [
        (b"permessage-deflate", b"permessage-deflate"),
        (b"permessage-deflate; client_max_window_bits", b"permessage-deflate; client_max_window_bits=12"),
        (b"permessage-deflate;client_max_window_bits=15", b"permessage-deflate; client_max_window_bits=12"),
        (b"permessage-deflate;client_max_window_bits=9", b"permessage-deflate; client_max_window_bits=9"),
        (b"permessage-deflate;client_max_window_bits=8", b"permessage-deflate; client_max_window_bits=8"),
        (b"permessage-deflate;server_max_window_bits=15", b"permessage-deflate; server_max_window_bits=12"),
        (b"permessage-deflate;server_max_window_bits=9", b"permessage-deflate; server_max_window_bits=9"),
        (
            b'permessage-deflate; server_max_window_bits="10"',
            b"permessage-deflate; server_max_window_bits=10",
        ),
        (
            b"permessage-deflate; client_no_context_takeover; server_no_context_takeover",
            b"permessage-deflate; server_no_context_takeover; client_no_context_takeover",
        ),
        (
            b"permessage-deflate ; server_max_window_bits = 11 ; client_max_window_bits",
            b"permessage-deflate; server_max_window_bits=11; client_max_window_bits=12",
        ),
    ],
)
def test_an_offer_is_answered_with_what_both_will_do(offer: bytes, wanted: bytes) -> None:
    assert answer(offer) == wanted


@pytest.mark.parametrize(
    "offer",
    [
        b"x-webkit-deflate-frame",
        b"permessage-bzip2",
        b"permessage-deflate; unknown",
        b"permessage-deflate; unknown=1",
        b"permessage-deflate; server_no_context_takeover=true",
        b"permessage-deflate; client_no_context_takeover=1",
        b"permessage-deflate; server_no_context_takeover; server_no_context_takeover",
        b"permessage-deflate; client_max_window_bits=10; client_max_window_bits=10",
        b"permessage-deflate; server_max_window_bits",
        *(
            b"permessage-deflate; server_max_window_bits=" + bits
            for bits in (b"7", b"16", b"08", b"+9", b"9a", b"8")
        ),
        *(b"permessage-deflate; client_max_window_bits=" + bits for bits in (b"7", b"16", b"0", b"012")),
    ],
)
def test_an_offer_that_cannot_be_taken_is_declined(offer: bytes) -> None:
    assert answer(offer) is None


def test_the_first_offer_that_can_be_taken_is() -> None:
    lines = (
        b"foo, permessage-deflate; server_max_window_bits=8",
        b"permessage-deflate; server_max_window_bits=10",
    )
    assert answer(*lines, b"permessage-deflate") == b"permessage-deflate; server_max_window_bits=10"


def test_nothing_offered_nothing_agreed() -> None:
    assert answer() is None


def test_the_server_may_forbid_what_the_peer_would_allow() -> None:
    assert answer(b"permessage-deflate", context_takeover=False) == (
        b"permessage-deflate; server_no_context_takeover; client_no_context_takeover"
    )
    both = b"permessage-deflate; server_max_window_bits=12; client_max_window_bits=12"
    assert answer(both, window_bits=9) == (
        b"permessage-deflate; server_max_window_bits=9; client_max_window_bits=9"
    )


@pytest.mark.parametrize(
    "value",
    [b"a b", b"a;", b";", b"a;=1", b"a; b=", b'a; b="c', b'a; b="c d"', b"a; b=c=d", b'a; b=""', b"a/b"],
)
def test_what_is_no_list_of_extensions_is_refused(value: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="400: malformed Sec-WebSocket-Extensions"):
        read_extensions([value])


def test_empty_members_are_no_extensions() -> None:
    assert read_extensions([b"", b" , a ;b=1, ,", b"c"]) == [(b"a", [(b"b", b"1")]), (b"c", [])]


# --- there and back --------------------------------------------------------------------------------------


@pytest.mark.parametrize("takeover", [True, False])
@pytest.mark.parametrize("bits", range(9, 16))
def test_what_is_deflated_inflates(bits: int, takeover: bool) -> None:
    agreed = agreement(server_bits=bits, server_takeover=takeover)
    deflater = Deflater(agreed, DeflateSettings())
    peer = Peer(bits, takeover)
    for content in TEXTS:
        deflated = deflater.deflate(content)
        assert deflated
        assert peer.inflate(deflated) == content


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("takeover", [True, False])
@pytest.mark.parametrize("bits", range(8, 16))
def test_what_the_peer_deflates_inflates_in_any_pieces(bits: int, takeover: bool, size: int) -> None:
    inflater = Inflater(agreement(client_bits=bits, client_takeover=takeover))
    peer = Peer(max(bits, 9), takeover)  # zlib takes 9 for 8
    for content in TEXTS[:4]:
        octets = peer.deflate(content)
        cut = [octets[at : at + size] for at in range(0, len(octets), size)]
        found = b"".join(inflater.inflate(piece, False, None) for piece in cut)
        assert found + inflater.inflate(b"", True, 0) == content


def test_context_is_kept_between_messages_or_not() -> None:
    content = random.Random(2).randbytes(500)
    kept, new = (Deflater(agreement(server_takeover=way), DeflateSettings()) for way in (True, False))
    first = len(kept.deflate(content))
    assert len(kept.deflate(content)) < first / 10
    assert len(new.deflate(content)) == len(new.deflate(content)) == first


def test_the_window_that_was_agreed_on_is_kept() -> None:
    content = random.Random(3).randbytes(600)
    deflated = Deflater(agreement(server_bits=9), DeflateSettings()).deflate(content * 4)
    assert zlib.decompressobj(wbits=-9).decompress(deflated + TAIL) == content * 4


# --- how much --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("over", [-2, -1, 0, 1, 2, 3])
@pytest.mark.parametrize("size", [1, 100, 1 << 20])
@pytest.mark.parametrize(
    "content", [b"\0" * 40_003, random.Random(4).randbytes(40_003)], ids=["zeros", "noise"]
)
def test_the_room_is_used_to_the_last_octet_and_not_beyond(content: bytes, size: int, over: int) -> None:
    content = content[: 40_000 + over]
    inflater = Inflater(agreement())
    octets = Peer().deflate(content)
    found = b""

    def feed() -> None:
        nonlocal found
        for at in range(0, len(octets), size):
            last = at + size >= len(octets)
            found += inflater.inflate(octets[at : at + size], last, 40_000 - len(found))

    if over <= 0:
        feed()
        assert found == content
    else:
        with pytest.raises(LimitExceeded, match="1009: message too big"):
            feed()


def test_a_bomb_costs_its_room_and_no_more() -> None:
    bomb = zlib.compressobj(wbits=-15, level=9)
    octets = b"".join(bomb.compress(b"\0" * (1 << 20)) for _ in range(64)) + bomb.flush(zlib.Z_SYNC_FLUSH)
    inflater = Inflater(agreement())
    tracemalloc.start()
    with pytest.raises(LimitExceeded):
        inflater.inflate(octets, True, 1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


# --- faults and final blocks -----------------------------------------------------------------------------


@pytest.mark.parametrize("octets", [b"\xff\xff", b"\x06", b"\x01\x00\x00\x00\x00"])
def test_what_is_no_deflate_is_refused(octets: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="1007: message is not compressed as agreed"):
        Inflater(agreement()).inflate(octets, True, None)


def final(content: bytes) -> bytes:
    """A message that ends with a final block (RFC 7692 section 7.2.3.5)."""
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(content) + compressor.flush(zlib.Z_FINISH)


@pytest.mark.parametrize("size", [1, 3, 1 << 20])
@pytest.mark.parametrize("padding", [b"", b"\x00"])
def test_a_final_block_may_end_a_message_and_the_next_begins_anew(padding: bytes, size: int) -> None:
    inflater = Inflater(agreement())
    for content in (b"hello", b"hello", b""):
        octets = final(content) + padding
        cut = [octets[at : at + size] for at in range(0, len(octets), size)]
        found = b"".join(inflater.inflate(piece, False, None) for piece in cut)
        assert found + inflater.inflate(b"", True, None) == content
    assert inflater.inflate(Peer().deflate(b"x"), True, None) == b"x"


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("behind", [b"\x01", b"\x00\x00", final(b"x"), b"\x03\x00" * 1000])
def test_nothing_follows_a_final_block(behind: bytes, last: bool) -> None:
    with pytest.raises(RemoteProtocolError, match="1007"):
        Inflater(agreement()).inflate(final(b"hello") + behind, last, None)
    inflater = Inflater(agreement())
    inflater.inflate(final(b"hello"), False, None)
    with pytest.raises(RemoteProtocolError, match="1007"):
        inflater.inflate(behind, last, None)
