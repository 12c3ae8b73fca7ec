"""The HTTP/2 engine by itself: time is an argument, octets go in and out. Each limit at it and beyond."""

from __future__ import annotations

import gc
from collections import deque
from typing import Any

import hpack
import pytest
from h2_peer import GET, POST, PREFACE, make_engine, raw
from hyperframe.frame import Frame, PingFrame, SettingsFrame

from servery.engine import NEVER
from servery.errors import LocalProtocolError
from servery.events import BodyReceived, ConnectionFailed, RequestReceived, StreamFailed
from servery.limits import Limits

CALM = 11


class Wire:
    """An engine, and a client that may do anything. `sent` are the frames that the engine made."""

    def __init__(self, name: str, settings: dict[int, int] | None = None, **limits: Any) -> None:
        self.engine = make_engine(name, Limits(**limits), lambda has: b"date: now\r\n", 0.0)
        self.encoder, self.decoder = hpack.Encoder(), hpack.Decoder()
        self.now = 0.0
        self.sent: list[Any] = []
        self.events: list[Any] = []
        self.give(PREFACE + SettingsFrame(settings=settings or {}).serialize())

    def give(self, *octets: bytes) -> list[Any]:
        """Octets from the client; the events."""
        events = [event for part in octets for event in self.engine.receive(part, self.now)]
        self.events += events
        self.take()
        return events

    def take(self) -> None:
        while True:
            more = self.engine.pump(self.now)
            octets = b"".join(self.engine.take_output())
            while octets:
                frame, length = Frame.parse_frame_header(memoryview(octets[:9]))
                frame.parse_body(memoryview(octets[9 : 9 + length]))
                if type(frame).__name__ == "HeadersFrame":
                    frame.fields = self.decoder.decode(frame.data, raw=True)
                octets = octets[9 + length :]
                self.sent.append(frame)
            if not more:
                return

    def request(self, stream: int = 1, fields: Any = GET, *, end: bool = True, more: Any = ()) -> list[Any]:
        block = self.encoder.encode([*fields, *more])
        return self.give(raw(1, 4 | end, stream, block))

    def answer(self, stream: int = 1, content: bytes = b"ok", *, release: bool = True) -> None:
        self.engine.start_response(stream, 200, [], False)
        self.engine.send_body(stream, content, False)
        self.take()
        if release:
            self.engine.released(stream, self.now)
            self.take()

    def at(self, now: float) -> list[Any]:
        """Time passes, as a clock would tell it."""
        events: list[Any] = []
        while self.engine.deadline <= now:
            self.now = self.engine.deadline
            events += self.engine.expire(self.now)
            self.take()
        self.now = now
        return events

    def of(self, kind: str) -> list[Any]:
        """Frames of a kind that the engine made."""
        return [frame for frame in self.sent if type(frame).__name__ == kind]

    @property
    def goaway(self) -> int | None:
        """The code of the last GOAWAY."""
        frames = self.of("GoAwayFrame")
        return frames[-1].error_code if frames else None


def test_a_request_in_any_pieces(engine_name: str) -> None:
    whole = PREFACE + SettingsFrame().serialize() + raw(1, 5, 1, hpack.Encoder().encode(GET)) + b"\0\0"
    for size in (1, 2, 7, len(whole)):
        engine = make_engine(engine_name, Limits(), lambda has: b"", 0.0)
        events = [
            event for at in range(0, len(whole), size) for event in engine.receive(whole[at : at + size], 0.0)
        ]
        assert [type(event) for event in events] == [RequestReceived]
        assert (events[0].headers, events[0].authority, events[0].complete) == ([], b"a", True)


# --- floods ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "frame"),
    [
        ("PING", PingFrame(0, b"12345678").serialize()),
        ("SETTINGS", SettingsFrame().serialize()),
        ("acknowledgements", raw(4, 1)),
        ("PRIORITY", raw(2, 0, 1, bytes(5))),
        ("WINDOW_UPDATE", raw(8, 0, 0, b"\0\0\0\1")),
        ("PRIORITY_UPDATE", raw(0x10, 0, 0, b"\0\0\0\1u=1")),
        ("unknown frames", raw(0xEE)),
    ],
)
def test_flood_of_frames_without_content(engine_name: str, name: str, frame: bytes) -> None:
    wire = Wire(engine_name, h2_control_frames=50)
    wire.give(*[frame] * 49)  # and the SETTINGS of the beginning
    assert wire.goaway is None
    events = wire.give(frame)
    assert wire.goaway == CALM
    assert type(events[-1]) is ConnectionFailed
    assert wire.engine.half_closed


def test_flood_of_empty_data(engine_name: str) -> None:
    wire = Wire(engine_name, h2_control_frames=50)
    wire.request(1, POST, end=False)
    wire.give(*[raw(0, 0, 1)] * 50)
    assert wire.goaway is None
    wire.give(raw(0, 0, 1))
    assert wire.goaway == CALM


def test_what_was_spent_comes_back_with_time_and_with_content(engine_name: str) -> None:
    wire = Wire(engine_name, h2_control_frames=50, h2_interval=10.0)
    ping = PingFrame(0, b"12345678").serialize()
    wire.give(*[ping] * 49)
    wire.at(1.0)
    wire.give(*[ping] * 5)
    assert wire.goaway is None
    wire.request(1, POST, end=False)  # eight more
    wire.give(raw(0, 0, 1, b"x"))  # and again
    wire.give(*[ping] * 16)
    assert wire.goaway is None
    wire.give(*[ping] * 2)
    assert wire.goaway == CALM


def test_rapid_reset(engine_name: str) -> None:
    wire = Wire(engine_name, h2_resets=20)
    for number in range(20):
        wire.request(2 * number + 1)
        events = wire.give(raw(3, 0, 2 * number + 1, b"\0\0\0\x08"))
        assert events == [StreamFailed(None, 2 * number + 1, None, 0)]
        wire.engine.released(2 * number + 1, wire.now)
    assert wire.goaway is None
    wire.request(41)
    wire.give(raw(3, 0, 41, b"\0\0\0\x08"))
    assert wire.goaway == CALM


def test_reset_streams_count_until_their_applications_have_ended(engine_name: str) -> None:
    wire = Wire(engine_name, h2_streams=3)
    for stream in (1, 3, 5):
        wire.request(stream)
        wire.give(raw(3, 0, stream, b"\0\0\0\x08"))
    assert wire.request(7) == []
    assert [(frame.stream_id, frame.error_code) for frame in wire.of("RstStreamFrame")] == [(7, 7)]
    wire.engine.released(3, wire.now)
    assert type(wire.request(9)[0]) is RequestReceived


@pytest.mark.parametrize(
    "fault",
    [
        lambda wire, stream: wire.request(stream, [*GET, ("X", "y")]),
        lambda wire, stream: wire.request(stream, POST, more=[("content-length", "3")]),
        lambda wire, stream: (wire.request(stream), wire.give(raw(8, 0, stream, bytes(4)))),
        lambda wire, stream: (wire.request(stream), wire.give(raw(0, 1, stream, b"x"))),
        lambda wire, stream: (wire.request(stream), wire.give(raw(8, 0, stream, b"\x7f\xff\xff\xff"))),
    ],
)
def test_made_you_reset(engine_name: str, fault: Any) -> None:
    """Faults that make us reset count as resets do."""
    wire = Wire(engine_name, h2_resets=10, h2_control_frames=1000)
    for number in range(10):
        fault(wire, 2 * number + 1)
        wire.engine.released(2 * number + 1, wire.now)
    assert len(wire.of("RstStreamFrame")) >= 10 or wire.goaway == CALM
    fault(wire, 21)
    assert wire.goaway == CALM


def test_streams_beyond_the_number_are_refused_and_counted(engine_name: str) -> None:
    wire = Wire(engine_name, h2_streams=2, h2_resets=5)
    for stream in range(1, 15, 2):
        wire.request(stream)
    assert [frame.error_code for frame in wire.of("RstStreamFrame")] == [7] * 5
    assert wire.goaway is None
    wire.request(15)
    assert wire.goaway == CALM


@pytest.mark.parametrize(("count", "code"), [(4, None), (5, CALM)])
def test_continuations(engine_name: str, count: int, code: int | None) -> None:
    wire = Wire(engine_name, h2_continuations=4)
    block = wire.encoder.encode(GET)
    wire.give(raw(1, 1, 1, block), *[raw(9, 0, 1)] * (count - 1), raw(9, 4, 1))
    assert wire.goaway == code
    assert len(wire.events) == 1


@pytest.mark.parametrize(("size", "code"), [(1000, None), (1001, CALM)])
def test_a_header_section_is_bounded_before_it_is_decoded(
    engine_name: str, size: int, code: int | None
) -> None:
    wire = Wire(engine_name, head_size=1000)
    wire.give(raw(1, 1, 1, bytes(500)), raw(9, 0, 1, bytes(size - 500)))
    assert wire.goaway == code


def test_table_of_the_encoder_stays_small(engine_name: str) -> None:
    wire = Wire(engine_name, settings={1: 2**32 - 1})
    for number in range(100):
        wire.request(2 * number + 1)
        wire.engine.start_response(2 * number + 1, 200, [(b"x-%d" % number, bytes(b"y" * 200))], False)
        wire.engine.send_body(2 * number + 1, b"", False)
        wire.engine.released(2 * number + 1, 0.0)
        wire.take()
    table = wire.decoder.header_table  # the encoder's, as the client has it
    assert (table.maxsize, table._current_size <= 4096) == (4096, True)
    assert len(table.dynamic_entries) > 10


def test_a_long_connection_keeps_nothing_of_its_streams(engine_name: str) -> None:
    wire = Wire(engine_name)
    for number in range(3000):
        wire.request(2 * number + 1)
        wire.answer(2 * number + 1)
        wire.sent.clear()
        wire.events.clear()
    held = gc.get_referents(wire.engine)
    sizes = [len(it) for it in held if isinstance(it, (dict, list, set, deque))]
    assert len(sizes) >= 4
    assert max(sizes) <= 1  # the one section that all of them had
    for h2 in [it for it in held if hasattr(it, "streams")]:  # the reference's library
        assert (len(h2.streams) <= 1, len(h2._closed_streams) <= 1000) == (True, True)


# --- time --------------------------------------------------------------------------------------------


def test_a_client_that_says_nothing(engine_name: str) -> None:
    engine = make_engine(engine_name, Limits(first_byte_timeout=3.0), lambda has: b"", 10.0)
    assert engine.deadline == 13.0
    engine.receive(PREFACE, 12.0)
    engine.expire(13.0)
    assert engine.closing


def test_idle_ends_with_goaway_whatever_comes_without_a_stream(engine_name: str) -> None:
    wire = Wire(engine_name, keep_alive_timeout=5.0)
    wire.at(3.0)
    wire.give(PingFrame(0, b"12345678").serialize())
    wire.at(4.9)
    assert not wire.engine.closing
    wire.at(5.0)
    assert wire.engine.closing
    assert wire.goaway == 0


def test_a_stream_that_is_served_is_not_idle(engine_name: str) -> None:
    wire = Wire(engine_name, keep_alive_timeout=5.0)
    wire.request(1)
    assert wire.at(100.0) == []
    wire.answer(1)
    wire.at(104.9)
    assert not wire.engine.closing
    wire.at(105.0)
    assert wire.engine.closing


def test_a_header_section_must_come_in_time(engine_name: str) -> None:
    wire = Wire(engine_name, head_timeout=20.0)
    wire.give(raw(1, 1, 1, b"\x82"))
    for second in range(1, 20):
        wire.at(float(second))
        wire.give(raw(9, 0, 1, b"")) if second < 15 else None
    assert wire.goaway is None
    wire.at(20.0)
    assert wire.goaway == 1


def test_a_body_that_stalls_costs_its_stream(engine_name: str) -> None:
    wire = Wire(engine_name, body_timeout=20.0)
    wire.request(1, POST, end=False)
    wire.request(3)
    wire.at(10.0)
    wire.give(raw(0, 0, 1, bytes(10_000)))
    wire.engine.consumed(1, 10_000, wire.now)
    assert wire.at(29.9) == []
    events = wire.at(30.0)
    assert [(event.stream, event.replied) for event in events] == [(1, 408)]
    assert wire.goaway is None
    wire.answer(3)


def test_a_body_must_reach_its_rate(engine_name: str) -> None:
    wire = Wire(engine_name, body_timeout=20.0, body_min_rate=240)
    wire.request(1, POST, end=False)
    failed: list[Any] = []
    second = 0
    while not failed:
        second += 1
        failed = wire.at(float(second))
        if not failed:
            wire.give(raw(0, 0, 1, b"x" * 10))
            wire.engine.consumed(1, 10, wire.now)
    assert second == 21
    assert failed[0].replied == 408


def test_time_stands_still_for_a_slow_application(engine_name: str) -> None:
    wire = Wire(engine_name, body_timeout=20.0, body_buffer=1000)
    wire.give(SettingsFrame(flags=["ACK"]).serialize())
    wire.request(1, POST, end=False)
    wire.give(raw(0, 0, 1, bytes(1000)))
    assert wire.at(500.0) == []
    assert wire.of("WindowUpdateFrame")[1:] == []
    wire.engine.consumed(1, 1000, 500.0)
    wire.take()
    assert [(frame.stream_id, frame.window_increment) for frame in wire.of("WindowUpdateFrame")[1:]] == [
        (1, 1000)
    ]
    assert wire.at(519.9) == []
    assert wire.at(520.0)[0].replied == 408


def test_a_window_that_stays_shut_costs_its_stream(engine_name: str) -> None:
    wire = Wire(engine_name, settings={4: 10}, write_timeout=30.0)
    wire.request(1)
    wire.request(3)
    wire.engine.start_response(1, 200, [], False)
    wire.engine.send_body(1, bytes(100), True)
    wire.answer(3, bytes(100))
    wire.at(20.0)
    wire.give(raw(8, 0, 1, b"\0\0\0\1"))
    events = wire.at(49.9)
    assert events == []  # the response of stream 3 was complete: nobody is to be told
    assert [(frame.stream_id, frame.error_code) for frame in wire.of("RstStreamFrame")] == [(3, 8)]
    events = wire.at(50.0)
    assert [event.stream for event in events] == [1]
    assert wire.engine.waiting(1) == 0


def test_a_connection_window_that_stays_shut_costs_all_that_wait(engine_name: str) -> None:
    wire = Wire(engine_name, settings={4: 2**20}, write_timeout=30.0)
    for stream in (1, 3):
        wire.request(stream)
        wire.engine.start_response(stream, 200, [], False)
        wire.engine.send_body(stream, bytes(60_000), True)
    wire.take()
    assert sorted(event.stream for event in wire.at(30.0)) in ([1], [3], [1, 3])
    assert wire.goaway is None


# --- order of writing --------------------------------------------------------------------------------


def test_urgent_responses_go_first_and_equals_in_turn(engine_name: str) -> None:
    wire = Wire(engine_name, settings={4: 2**20})
    wire.give(raw(8, 0, 0, (2**20).to_bytes(4, "big")))
    for stream, priority in ((1, "u=5"), (3, "u=1, i"), (5, ""), (7, "")):
        wire.request(stream, more=[("priority", priority)] if priority else [])
    wire.give(raw(0x10, 0, 0, b"\0\0\0\1u=7"))
    for stream in (1, 3, 5, 7):
        wire.engine.start_response(stream, 200, [], False)
        wire.engine.send_body(stream, bytes(20_000), False)
    wire.take()
    order = [frame.stream_id for frame in wire.of("DataFrame")]
    assert order == [3, 3, 5, 7, 5, 7, 1, 1]


def test_nothing_is_made_while_the_transport_takes_nothing(engine_name: str) -> None:
    wire = Wire(engine_name)
    wire.engine.held = True
    wire.request(1)
    wire.answer(1, b"content", release=False)
    assert wire.of("DataFrame") == []
    assert wire.engine.waiting(1) == 7
    wire.engine.held = False
    wire.take()
    assert [bytes(frame.data) for frame in wire.of("DataFrame")] == [b"content"]


# --- wrong use by applications -----------------------------------------------------------------------


def test_order_of_messages(engine_name: str) -> None:
    wire = Wire(engine_name)
    wire.request(1)
    engine = wire.engine
    with pytest.raises(LocalProtocolError, match="not allowed now"):
        engine.send_body(1, b"", False)
    with pytest.raises(LocalProtocolError, match="from 200 to 999"):
        engine.start_response(1, 101, [], False)
    with pytest.raises(LocalProtocolError, match="interim"):
        engine.send_informational(1, 200, [])
    engine.start_response(1, 200, [], False)
    with pytest.raises(LocalProtocolError, match="not allowed now"):
        engine.start_response(1, 200, [], False)
    engine.send_body(1, b"", False)
    with pytest.raises(LocalProtocolError, match="answered before"):
        engine.send_body(1, b"", False)


@pytest.mark.parametrize(
    "field",
    [
        (b"a b", b""),
        (b"a", b"b\r\nc"),
        (b"a", b" b"),
        (b"content-length", b"x"),
        ("a", b"b"),
        (b"a", "b"),
        b"ab",
        7,
    ],
)
def test_fields_that_must_not_go_on_the_wire(engine_name: str, field: Any) -> None:
    wire = Wire(engine_name)
    wire.request(1)
    with pytest.raises(LocalProtocolError):
        wire.engine.start_response(1, 200, [field], False)
    assert wire.engine.fail_response(1) == 500


def test_cookies_set_are_never_kept_in_the_table(engine_name: str) -> None:
    wire = Wire(engine_name)
    wire.request(1)
    wire.engine.start_response(1, 200, [(b"set-cookie", b"secret")], False)
    wire.engine.send_body(1, b"", False)
    wire.take()
    cookie = next(field for field in wire.of("HeadersFrame")[0].fields if field[0] == b"set-cookie")
    assert isinstance(cookie, hpack.NeverIndexedHeaderTuple)
    assert b"secret" not in b"".join(value for _, value in wire.decoder.header_table.dynamic_entries)


# --- the end -----------------------------------------------------------------------------------------


def test_stop_in_two_steps(engine_name: str) -> None:
    wire = Wire(engine_name, linger_timeout=2.0)
    wire.request(1)
    wire.engine.stop(1.0)
    wire.take()
    assert [(frame.last_stream_id, frame.error_code) for frame in wire.of("GoAwayFrame")] == [(2**31 - 1, 0)]
    assert type(wire.request(3)[0]) is RequestReceived  # it was on its way
    wire.at(3.0)
    assert [frame.last_stream_id for frame in wire.of("GoAwayFrame")] == [2**31 - 1, 3]
    assert wire.request(5) == []
    wire.answer(1)
    assert not wire.engine.half_closed
    wire.answer(3)
    assert wire.engine.half_closed
    wire.at(5.0)
    assert wire.engine.closing
    assert wire.engine.deadline == NEVER


def test_eof_ends_what_is_not_whole_and_answers_the_rest(engine_name: str) -> None:
    wire = Wire(engine_name)
    wire.request(1)
    wire.request(3, POST, end=False)
    wire.give(raw(0, 0, 3, b"part"))
    events = wire.engine.receive(b"", 0.0)
    assert StreamFailed(None, 3, None, 0) in events
    wire.engine.released(3, 0.0)
    wire.answer(1)
    assert wire.engine.closing
    assert BodyReceived(3, b"part", True, []) in wire.events
