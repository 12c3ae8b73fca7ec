"""The order of things on a WebSocket: messages, pings, closing, faults, times. Time is an argument."""

from __future__ import annotations

import gc
import random
import sys
import tracemalloc
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from tracing import cuttings, pieces
from websocket_subjects import chosen, engine_class
from wire_frames import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, Frame, close, frame, frames_of, text

from servery.engine import NEVER
from servery.errors import LocalProtocolError
from servery.events import MessageReceived, PongReceived, WebSocketClosed, WebSocketFailed
from servery.limits import Limits
from servery.websocket.deflate import Agreement, Deflater, DeflateSettings, Inflater
from servery.websocket.engine import PINGS_KEPT, PONGS_KEPT, WebSocketEngine

AGREED = Agreement(15, 15, True, True, b"")


@pytest.fixture(autouse=True)
def each_engine(engine_name: str) -> Iterator[None]:
    """All of this holds for the reference and for the compiled twin."""
    with chosen(engine_name):
        yield


def make(*, deflates: bool = False, spread: float = 0.0, **limits: Any) -> WebSocketEngine:
    pair = (Deflater(AGREED, DeflateSettings(min_size=10)), Inflater(AGREED)) if deflates else (None, None)
    engine: WebSocketEngine = engine_class()(Limits(**limits), 0.0, b"", *pair, spread)
    return engine


def deflated(content: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return (compressor.compress(content) + compressor.flush(zlib.Z_SYNC_FLUSH))[:-4]


def written(engine: WebSocketEngine) -> list[Frame]:
    return frames_of(engine.take_output())


def state(engine: WebSocketEngine) -> tuple[Any, ...]:
    return engine.wants_read, engine.half_closed, engine.closing, engine.reset, engine.deadline


def played(data: bytes, cuts: Iterable[int], **options: Any) -> tuple[Any, ...]:
    engine = make(**options)
    events = [event for piece in pieces(data, cuts) for event in engine.receive(piece, 1.0)]
    told = [repr(event.error) if isinstance(event, WebSocketFailed) else event for event in events]
    return told, b"".join(engine.take_output()), state(engine)


def play(data: bytes, **options: Any) -> tuple[list[Any], list[Frame], WebSocketEngine]:
    """(events, frames written, engine) after `data`, which must not depend on how it is cut."""
    whole = played(data, [], **options)
    for way, cuts in cuttings(data, "engine").items():
        assert played(data, cuts, **options) == whole, way
    engine = make(**options)
    events = engine.receive(data, 1.0)
    return events, written(engine), engine


def messages(data: bytes, **options: Any) -> list[str | bytes]:
    """The messages in `data`, which has nothing else to tell of."""
    events, out, engine = play(data, **options)
    assert out == []
    assert not engine.closing
    assert all(isinstance(event, MessageReceived) for event in events)
    return [event.data for event in events]


def failed(data: bytes, **options: Any) -> tuple[int, str]:
    """(code, reason) with which `data` is answered, behind a good message that must be delivered."""
    events, out, engine = play(text("good") + data, **options)
    assert events[0] == MessageReceived("good")
    assert isinstance(events[-1], WebSocketFailed)
    error = events[-1].error
    assert out == [Frame(CLOSE, error.status.to_bytes(2, "big") + error.reason.encode())]
    assert state(engine) == (True, True, False, False, 1.0 + Limits().linger_timeout)
    return error.status, error.reason


# --- messages --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, 200_000])
def test_text_is_str_and_binary_is_bytes(size: int) -> None:
    content = random.Random(size).randbytes(size)
    data = text("é" * size) + frame(BINARY, content)
    assert messages(data, body_buffer=1 << 20) == ["é" * size, content]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_fragments_become_one_message_whatever_octets_they_cut(size: int) -> None:
    content = "κόσμε 𝄞 \U0010ffff \0 é".encode() * 5
    parts = [content[at : at + size] for at in range(0, len(content), size)]
    for opcode in (TEXT, BINARY):
        data = frame(opcode, b"", final=False)
        data += b"".join(frame(CONTINUATION, part, final=False) for part in parts) + frame(CONTINUATION)
        assert messages(data) == [content.decode() if opcode == TEXT else content]


def test_control_frames_between_fragments_are_answered_at_once() -> None:
    data = frame(TEXT, b"a", final=False) + frame(PING, b"1") + frame(PONG, b"x") + frame(PING)
    events, out, _ = play(data)
    assert (events, out) == ([], [Frame(PONG, b"1"), Frame(PONG, b"")])
    events, out, _ = play(data + frame(CONTINUATION, b"b"))
    assert (events, out) == ([MessageReceived("ab")], [Frame(PONG, b"1"), Frame(PONG, b"")])


@pytest.mark.parametrize(
    "octets",
    [
        *(
            b"\xc0\xaf",
            b"\xc1\xbf",
            b"\xe0\x80\x80",
            b"\xf0\x80\x80\x80",
            b"\xf8\x88\x80\x80\x80",
            b"\xfc",
            b"\xfe",
            b"\xff",
        ),
        *(
            b"\xed\xa0\x80",
            b"\xed\xbf\xbf",
            b"\xed\xa0\x80\xed\xb0\x80",
            b"\xf4\x90\x80\x80",
            b"\xf5\x80\x80\x80",
        ),
        *(b"\x80", b"\xbf", b"\xc3", b"\xe2\x82", b"\xf0\x9d\x84", b"\xc3\x28", b"\xce\xba\xe1", b"a\xffb"),
    ],
)
def test_text_that_is_no_utf8_is_refused(octets: bytes) -> None:
    for content in (octets, b"ok " + octets, "κόσμε".encode() + octets):
        assert failed(frame(TEXT, content)) == (1007, "text is not UTF-8")
        cut = frame(TEXT, content[:1], final=False) + frame(CONTINUATION, content[1:])
        assert failed(cut) == (1007, "text is not UTF-8")
    assert messages(frame(BINARY, octets)) == [octets]


@pytest.mark.parametrize("octets", [b"\xf4\x90", b"\xed\xa0\x80", b"\xc0", b"\xff", b"\xe0\x80", b"\xf0\x80"])
def test_text_is_refused_as_soon_as_it_cannot_become_utf8(octets: bytes) -> None:
    assert failed(frame(TEXT, octets, final=False)) == (1007, "text is not UTF-8")
    started = frame(TEXT, "κόσμε".encode() + octets, size=1000)
    assert failed(started) == (1007, "text is not UTF-8")


@pytest.mark.parametrize("octets", [b"\xf4\x8f", b"\xed\x9f", b"\xe2\x82", b"\xc3"])
def test_text_that_can_still_become_utf8_is_waited_for(octets: bytes) -> None:
    assert messages(frame(TEXT, octets, final=False)) == []


def test_a_message_that_drips_costs_its_size() -> None:
    engine = make()
    size = 1 << 16
    engine.receive(frame(BINARY, size=size), 0.0)
    octets = [bytes([octet]) for octet in range(256)]
    tracemalloc.start()
    for number in range(size - 1):
        engine.receive(octets[number & 255], 0.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * size  # an object per octet would be ten times that
    [event] = engine.receive(b"x", 0.0)
    assert isinstance(event, MessageReceived)
    assert len(event.data) == size


# --- the size of a message -------------------------------------------------------------------------------


@pytest.mark.parametrize("over", [-2, -1, 0, 1, 2, 3])
@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("parts", [1, 40])
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_a_message_may_have_its_limit_and_no_octet_more(
    over: int, compressed: bool, parts: int, opcode: int
) -> None:
    content = b"x" * (4000 + over)
    octets = deflated(content) if compressed else content
    step = -(-len(octets) // parts)
    cut = [octets[at : at + step] for at in range(0, len(octets), step)]
    data = frame(opcode, cut[0], final=len(cut) == 1, rsv=4 * compressed)
    for number, part in enumerate(cut[1:], 2):
        data += frame(CONTINUATION, part, final=number == len(cut))
    if over <= 0:
        assert [len(found) for found in messages(data, ws_max_size=4000, deflates=True)] == [len(content)]
    else:
        assert failed(data, ws_max_size=4000, deflates=True) == (1009, "message too big")


def test_a_declared_size_is_enough_to_refuse_it() -> None:
    engine = make(ws_max_size=1 << 20)
    [event] = engine.receive(frame(BINARY, size=1 << 62)[:10], 0.0)
    assert isinstance(event, WebSocketFailed)
    assert event.error.status == 1009


def test_the_fragment_that_goes_over_the_limit_is_the_last_that_is_read() -> None:
    engine = make(ws_max_size=1 << 20)
    engine.receive(frame(BINARY, b"x" * 30_000, final=False), 0.0)
    for _ in range(33):
        assert engine.receive(frame(CONTINUATION, b"x" * 30_000, final=False), 0.0) == []
    assert len(engine.receive(frame(CONTINUATION, b"x" * 30_000, final=False), 0.0)) == 1
    assert written(engine)[0].code == 1009


def test_no_limit_is_none() -> None:
    assert messages(frame(BINARY, b"x" * 99), ws_max_size=None) == [b"x" * 99]
    data = frame(BINARY, deflated(b"x" * 99), rsv=4)
    assert messages(data, ws_max_size=None, deflates=True) == [b"x" * 99]


@pytest.mark.parametrize("size", [sys.maxsize - 1, sys.maxsize, sys.maxsize + 1, 1 << 64, 1 << 80])
def test_a_limit_may_be_any_number(size: int) -> None:
    data = frame(BINARY, b"x" * 99) + frame(BINARY, deflated(b"x" * 99), rsv=4)
    assert messages(data, ws_max_size=size, deflates=True) == [b"x" * 99] * 2


# --- compression -----------------------------------------------------------------------------------------


def test_compressed_messages_come_and_go() -> None:
    engine = make(deflates=True)
    compressor = zlib.compressobj(wbits=-15)
    for number in range(3):
        content = f"hello {number} ".encode() * 20
        octets = (compressor.compress(content) + compressor.flush(zlib.Z_SYNC_FLUSH))[:-4]
        assert engine.receive(frame(TEXT, octets, rsv=4), 0.0) == [MessageReceived(content.decode())]
    engine.send_text("hello " * 20)
    engine.send_bytes(b"short")
    first, second = written(engine)
    assert (first.rsv, second) == (4, Frame(BINARY, b"short"))
    assert zlib.decompressobj(wbits=-15).decompress(first.payload + b"\0\0\xff\xff") == b"hello " * 20
    assert (engine.octets_sent, engine.octets_received) == (125, 480)


@pytest.mark.parametrize("octets", [b"\xff\xff", b"\x06\x06"])
def test_what_cannot_be_inflated_is_refused(octets: bytes) -> None:
    data = frame(BINARY, octets, rsv=4)
    assert failed(data, deflates=True) == (1007, "message is not compressed as agreed")


def test_inflated_text_is_checked_as_it_comes() -> None:
    data = frame(TEXT, deflated(b"a" * 100 + b"\xff"), rsv=4, final=False)
    assert failed(data, deflates=True) == (1007, "text is not UTF-8")


# --- pings from the peer ---------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [b"", b"hello", b"\x00\xff\xfe\xfd", b"x" * 125])
def test_a_ping_is_answered_with_its_own_content(payload: bytes) -> None:
    events, out, _ = play(frame(PING, payload))
    assert (events, out) == ([], [Frame(PONG, payload)])


def test_every_ping_is_answered_in_order() -> None:
    data = b"".join(frame(PING, b"%d" % number) for number in range(10))
    assert play(data)[1] == [Frame(PONG, b"%d" % number) for number in range(10)]


def test_of_pings_that_nobody_takes_the_answers_of_only_the_last_are_kept() -> None:
    engine = make()
    for number in range(1000):
        engine.receive(frame(PING, b"%d" % number), 0.0)
    assert written(engine) == [Frame(PONG, b"%d" % number) for number in range(1000 - PONGS_KEPT, 1000)]
    assert written(engine) == []


def test_a_pong_that_nobody_asked_for_is_ignored() -> None:
    assert play(frame(PONG) + frame(PONG, b"x" * 125))[:2] == ([], [])


# --- pings of ours ---------------------------------------------------------------------------------------


def test_a_silent_peer_is_pinged_and_then_closed() -> None:
    engine = make(ws_ping_interval=20, ws_ping_timeout=10)
    assert engine.deadline == 20.0
    assert engine.expire(20.0) == []
    [ping] = written(engine)
    assert ping.opcode == PING
    assert engine.deadline == 30.0
    [event] = engine.expire(30.0)
    assert isinstance(event, WebSocketFailed)
    assert str(event.error) == "1011: no answer to a ping in time"
    assert [frame.code for frame in written(engine)] == [1011]
    assert state(engine) == (True, True, False, False, 32.0)


@pytest.mark.parametrize("data", [frame(PONG), text("x"), b"\x81", frame(PING)])
def test_any_octet_is_life(data: bytes) -> None:
    engine = make(ws_ping_interval=20, ws_ping_timeout=10)
    engine.receive(data, 15.0)
    assert engine.deadline == 35.0
    engine.expire(35.0)
    engine.receive(data if data != b"\x81" else b"\x80", 44.0)
    assert engine.deadline == 64.0
    assert engine.expire(64.0) == []
    assert [frame.opcode for frame in written(engine)].count(PING) == 2


def test_no_interval_no_pings() -> None:
    engine = make(ws_ping_interval=None)
    assert engine.deadline == NEVER
    engine.receive(text("x"), 1e6)
    assert engine.deadline == NEVER


def test_no_timeout_only_pings() -> None:
    engine = make(ws_ping_interval=20, ws_ping_timeout=None)
    for now in (20.0, 40.0, 60.0):
        assert engine.deadline == now
        assert engine.expire(now) == []
    assert [frame.opcode for frame in written(engine)] == [PING] * 3


def test_spread_takes_up_to_a_tenth_from_the_interval() -> None:
    assert make(spread=1.0, ws_ping_interval=20).deadline == 18.0


def test_a_round_trip_is_measured_by_the_content_of_the_ping() -> None:
    engine = make()
    engine.ping(1.0)
    engine.expire(20.0)
    first, second = written(engine)
    assert first.payload != second.payload
    assert engine.receive(frame(PONG, b"x" + first.payload), 20.5) == []
    assert engine.receive(frame(PONG, first.payload), 21.0) == [PongReceived(20.0, True)]
    assert engine.receive(frame(PONG, first.payload), 21.5) == []
    assert engine.receive(frame(PONG, second.payload), 22.0) == [PongReceived(2.0, False)]


def test_a_pong_answers_the_pings_before_it_too() -> None:
    engine = make()
    for now in (1.0, 2.0, 3.0):
        engine.ping(now)
    first, second, third = written(engine)
    assert engine.receive(frame(PONG, second.payload), 4.0) == [PongReceived(2.0, True)]
    assert engine.receive(frame(PONG, first.payload), 5.0) == []
    assert engine.receive(frame(PONG, third.payload), 5.0) == [PongReceived(2.0, True)]


def test_pings_that_are_not_answered_are_forgotten_at_last() -> None:
    engine = make()
    for number in range(PINGS_KEPT + 1):
        engine.ping(float(number))
    pings = written(engine)
    assert engine.receive(frame(PONG, pings[0].payload), 100.0) == []
    assert engine.receive(frame(PONG, pings[1].payload), 100.0) == [PongReceived(99.0, True)]


def test_a_peer_that_is_slow_to_take_what_is_queued_is_not_at_fault() -> None:
    engine = make(ws_ping_interval=20, ws_ping_timeout=10)
    engine.expire(20.0)
    engine.unsent(30.0)
    assert engine.deadline == 50.0
    engine.close(1000, "", 31.0)
    engine.unsent(33.0)
    assert engine.deadline == 33.0 + Limits().ws_close_timeout
    engine.receive(frame(3), 34.0)
    engine.unsent(35.0)
    assert engine.deadline == 34.0 + Limits().linger_timeout


# --- what the application does not take ------------------------------------------------------------------


def test_reading_pauses_when_too_many_messages_wait_and_goes_on_when_they_are_taken() -> None:
    engine = make(ws_max_queue=2, ws_ping_interval=20)
    engine.receive(text("a") + text("b"), 1.0)
    assert (engine.wants_read, engine.deadline) == (True, 21.0)
    engine.receive(text("c") + text("d"), 2.0)
    assert (engine.wants_read, engine.deadline) == (False, NEVER)
    engine.unsent(3.0)
    assert engine.deadline == NEVER
    engine.taken(1, 5.0)
    assert (engine.wants_read, engine.deadline) == (False, NEVER)
    engine.taken(1, 6.0)
    assert (engine.wants_read, engine.deadline) == (True, 26.0)
    engine.taken(1, 7.0)
    assert engine.deadline == 26.0


def test_reading_pauses_when_too_many_octets_wait() -> None:
    engine = make(body_buffer=1000)
    engine.receive(frame(BINARY, b"x" * 1000), 0.0)
    assert engine.wants_read
    engine.receive(text("y"), 0.0)
    assert not engine.wants_read
    engine.taken(1000, 0.0)
    assert engine.wants_read


def test_pings_are_answered_before_reading_pauses() -> None:
    engine = make(ws_max_queue=1)
    engine.receive(text("a") + text("b") + frame(PING), 0.0)
    assert not engine.wants_read
    assert written(engine) == [Frame(PONG, b"")]


# --- messages to the peer --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536])
def test_messages_are_sent_in_one_frame(size: int) -> None:
    engine = make()
    content = b"x" * size
    assert engine.send_text(content.decode()) == engine.send_bytes(content)
    assert written(engine) == [Frame(TEXT, content), Frame(BINARY, content)]
    assert (engine.messages_sent, engine.octets_sent) == (2, 2 * size)


def test_text_that_utf8_cannot_encode_is_an_error() -> None:
    with pytest.raises(LocalProtocolError, match="cannot be UTF-8"):
        make().send_text("\ud800")


def test_the_answer_to_the_handshake_goes_first() -> None:
    engine = engine_class()(Limits(), 0.0, b"HEAD")
    engine.send_text("x")
    assert engine.take_output() == [b"HEAD", b"\x81\x01x"]


# --- closing ---------------------------------------------------------------------------------------------

VALID = [1000, 1001, 1002, 1003, *range(1007, 1015), 3000, 3999, 4000, 4999]
INVALID = [0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535]


def ended(engine: WebSocketEngine) -> bool:
    """Whether the socket is to be closed, and nothing is awaited."""
    return engine.closing and not engine.half_closed and engine.deadline == NEVER


@pytest.mark.parametrize("code", VALID)
def test_a_close_is_answered_with_its_code_and_the_server_closes(code: int) -> None:
    events, out, engine = play(close(code, "grüße".encode()))
    assert events == [WebSocketClosed(code, "grüße")]
    assert out == [Frame(CLOSE, code.to_bytes(2, "big"))]
    assert ended(engine)


def test_a_close_without_a_code_is_answered_without_one() -> None:
    events, out, engine = play(close(None))
    assert (events, out) == ([WebSocketClosed(1005, "")], [Frame(CLOSE, b"")])
    assert ended(engine)


@pytest.mark.parametrize("code", INVALID)
def test_codes_that_must_not_be_on_the_wire_are_refused(code: int) -> None:
    assert failed(close(code)) == (1002, "invalid close code")


@pytest.mark.parametrize("octet", range(0, 256, 51))
def test_a_code_has_two_octets(octet: int) -> None:
    assert failed(frame(CLOSE, bytes([octet]))) == (1002, "close frame of one octet")


@pytest.mark.parametrize("reason", [b"\xff", b"\xed\xa0\x80", b"ok\xc3"])
def test_a_reason_is_utf8(reason: bytes) -> None:
    assert failed(close(1000, reason)) == (1007, "reason of a close is not UTF-8")


def test_a_reason_has_a_hundred_and_twenty_three_octets() -> None:
    assert play(close(1000, b"x" * 123))[0] == [WebSocketClosed(1000, "x" * 123)]
    assert failed(close(1000, b"x" * 124)) == (1002, "control frame too long")


@pytest.mark.parametrize("behind", [text("x"), frame(PING), close(1001), b"\xff" * 100, frame(3)])
def test_nothing_is_read_behind_a_close(behind: bytes) -> None:
    events, out, engine = play(close(1000) + behind)
    assert (events, out) == ([WebSocketClosed(1000, "")], [Frame(CLOSE, b"\x03\xe8")])
    assert engine.receive(behind, 1.0) == []
    assert engine.receive(b"", 1.0) == []


def test_messages_and_pings_before_a_close_count() -> None:
    events, out, _ = play(text("last words") + frame(PING, b"p") + close(1001))
    assert events == [MessageReceived("last words"), WebSocketClosed(1001, "")]
    assert out == [Frame(CLOSE, b"\x03\xe9")]


def test_we_close_and_the_peer_answers() -> None:
    engine = make(ws_close_timeout=5)
    engine.close(4001, "é" * 41, 10.0)
    assert written(engine) == [Frame(CLOSE, b"\x0f\xa1" + "é".encode() * 41)]
    assert state(engine) == (True, False, False, False, 15.0)
    engine.close(1000, "again", 11.0)
    assert engine.receive(text("late") + frame(PING) + frame(BINARY, b"x", final=False), 12.0) == []
    assert engine.deadline == 15.0
    assert engine.receive(close(4001), 12.0) == [WebSocketClosed(4001, "")]
    assert written(engine) == []
    assert ended(engine)


def test_messages_that_come_too_late_are_not_looked_at() -> None:
    engine = make(deflates=True, ws_max_queue=1)
    engine.close(1000, "", 0.0)
    data = frame(TEXT, b"\xff", rsv=4) + frame(TEXT, b"\xff") * 10
    assert engine.receive(data, 0.0) == []
    assert engine.wants_read
    assert not engine.half_closed


def test_the_peer_does_not_answer_our_close() -> None:
    engine = make(ws_close_timeout=5)
    engine.close(1000, "", 0.0)
    assert engine.expire(5.0) == [WebSocketClosed(1006, "no answer to our close frame in time")]
    assert ended(engine)


def test_a_fault_behind_our_close_ends_without_another_one() -> None:
    engine = make()
    engine.close(1000, "", 0.0)
    written(engine)
    [event] = engine.receive(frame(3), 1.0)
    assert isinstance(event, WebSocketFailed)
    assert written(engine) == []
    assert state(engine) == (True, True, False, False, 3.0)


@pytest.mark.parametrize("code", [*INVALID, -1, 70000, "1000", 1000.0])
def test_we_send_no_code_that_must_not_be_on_the_wire(code: Any) -> None:
    engine = make()
    with pytest.raises(LocalProtocolError, match="close code"):
        engine.close(code, "", 0.0)
    assert written(engine) == []
    assert engine.receive(text("x"), 0.0) == [MessageReceived("x")]


@pytest.mark.parametrize("reason", ["x" * 124, "é" * 62, "\ud800", b"bytes", 5])
def test_we_send_no_reason_that_must_not_be_on_the_wire(reason: Any) -> None:
    with pytest.raises(LocalProtocolError, match="reason of a close"):
        make().close(1000, reason, 0.0)


@pytest.mark.parametrize("code", VALID)
def test_we_may_send_every_other_code(code: int) -> None:
    engine = make()
    engine.close(code, "x" * 123, 0.0)
    assert written(engine)[0].code == code


def test_stop_closes_with_1012_and_tells_the_application() -> None:
    engine = make(ws_close_timeout=5)
    assert engine.stop(1.0) == [WebSocketClosed(1012, "")]
    assert written(engine) == [Frame(CLOSE, b"\x03\xf4")]
    assert engine.deadline == 6.0
    assert engine.stop(2.0) == []
    assert engine.receive(close(1012), 2.0) == [WebSocketClosed(1012, "")]


# --- ends ------------------------------------------------------------------------------------------------


def test_a_peer_that_leaves_is_1006() -> None:
    engine = make()
    engine.receive(frame(TEXT, b"a", final=False), 0.0)
    assert engine.receive(b"", 1.0) == [WebSocketClosed(1006, "")]
    assert ended(engine)
    assert written(engine) == []


def test_a_peer_that_leaves_without_answering_our_close_is_1006() -> None:
    engine = make()
    engine.close(1000, "", 0.0)
    assert engine.receive(b"", 1.0) == [WebSocketClosed(1006, "")]
    assert ended(engine)


def test_last_words_are_given_time() -> None:
    engine = make(linger_timeout=2)
    engine.receive(frame(3), 1.0)
    assert engine.receive(text("x") * 1000 + frame(3), 1.5) == []
    assert engine.deadline == 3.0
    assert engine.expire(3.0) == []
    assert engine.closing


def test_lingering_ends_with_the_peer() -> None:
    engine = make()
    engine.receive(frame(3), 1.0)
    assert engine.receive(b"", 1.5) == []
    assert engine.closing


def test_a_failed_connection_is_freed_without_the_collector(no_collector: None) -> None:
    class Watched(engine_class()):  # type: ignore[misc]
        """Without slots: it can be watched."""

    engine = Watched(Limits(), 0.0)
    events = engine.receive(frame(3), 0.0)
    assert isinstance(events[0], WebSocketFailed)
    before = len([thing for thing in gc.get_objects() if type(thing) is Watched])
    del engine, events
    assert (before, len([thing for thing in gc.get_objects() if type(thing) is Watched])) == (1, 0)


def test_counts_are_of_whole_messages_and_their_content() -> None:
    engine = make()
    engine.receive(text("é") + frame(BINARY, b"abc", final=False) + frame(CONTINUATION, b"d") + b"\x81", 0.0)
    assert (engine.messages_received, engine.octets_received) == (2, 6)


# --- anything --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_no_octets_make_it_raise_and_no_cut_makes_a_difference(seed: int) -> None:
    chance = random.Random(seed)
    data = b""
    for _ in range(chance.randint(1, 12)):
        opcode = chance.choice([TEXT, BINARY, CONTINUATION, PING, PONG, TEXT, BINARY, CLOSE, 3])
        content = chance.choice([b"", b"hello", "é𝄞".encode(), deflated(b"hello" * 9), chance.randbytes(9)])
        content *= chance.choice([1, 1, 1, 30])
        rsv = chance.choice([0, 0, 0, 4, 4, 2])
        data += frame(opcode, content, final=chance.random() < 0.6, rsv=rsv)
    if chance.random() < 0.5:
        at = chance.randrange(len(data))
        data = data[:at] + chance.randbytes(chance.randint(1, 3)) + data[at:]
    play(data, deflates=seed % 2 == 0, ws_max_size=500)
