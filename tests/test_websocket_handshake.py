"""The opening handshake: which requests it is, what is wrong with it, how it is answered. RFC 6455 section
4.2."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tracing import cuttings, make_engine, pieces
from wire_frames import ACCEPT, KEY, handshake

from servery.errors import LocalProtocolError, RemoteProtocolError
from servery.events import RequestReceived
from servery.http1.writer import switching_head
from servery.limits import DEFAULTS, Limits
from servery.websocket.deflate import DeflateSettings
from servery.websocket.handshake import Handshakes

OWN = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n"


def request_of(data: bytes, engine: str = "python") -> RequestReceived:
    event = make_engine(engine).receive(data, 0.0)[0]
    assert event.method
    return event  # type: ignore[no-any-return]


def reader(deflate: DeflateSettings | None = None, limits: Limits = DEFAULTS) -> Handshakes:
    return Handshakes(
        limits, deflate, partial(switching_head, stamp=lambda has: b"date: x\r\n" if has < 1 else b"")
    )


def read(data: bytes, **options: Any) -> Any:
    return reader(**options)(request_of(data))


def answer(
    data: bytes, subprotocol: str | None = None, headers: Any = (), deflate: DeflateSettings | None = None
) -> bytes:
    return b"".join(read(data, deflate=deflate).accept(subprotocol, headers, 0.0).take_output())


def refusal(data: bytes) -> tuple[int, str]:
    with pytest.raises(RemoteProtocolError) as caught:
        read(data)
    return caught.value.status, caught.value.reason


def test_a_handshake_is_answered(engine_name: str) -> None:
    data = handshake()
    for cuts in cuttings(data, "handshake").values():
        engine = make_engine(engine_name)
        events = [event for piece in pieces(data, cuts) for event in engine.receive(piece, 0.0)]
        shake = reader()(events[0])
        assert shake is not None
        assert shake.subprotocols == []
        out = b"".join(shake.accept(None, [], 0.0).take_output())
        assert out == OWN + b"sec-websocket-accept: %b\r\ndate: x\r\n\r\n" % ACCEPT


@pytest.mark.parametrize("upgrade", [b"WebSocket", b"h2c, websocket", b"foo/1,WEBSOCKET"])
@pytest.mark.parametrize("connection", [b"Upgrade", b"keep-alive, Upgrade", b"UPGRADE", b"a,upgrade,b"])
def test_fields_are_lists_of_tokens_in_any_case(upgrade: bytes, connection: bytes) -> None:
    data = handshake().replace(b"Upgrade: websocket", b"Upgrade: " + upgrade)
    assert read(data.replace(b"Connection: Upgrade", b"Connection: " + connection)) is not None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"Upgrade: websocket", b"Upgrade: h2c"),
        (b"Upgrade: websocket", b"Upgrade: notwebsocket"),
        (b"Upgrade: websocket", b"Upgrade: websocket/13"),
        (b"Upgrade: websocket\r\n", b""),
        (b"Connection: Upgrade", b"Connection: notupgrade"),
        (b"Connection: Upgrade", b"Connection: keep-alive"),
        (b"GET", b"POST"),
        (b"GET", b"HEAD"),
        (b"HTTP/1.1", b"HTTP/1.0"),
    ],
)
def test_what_asks_for_no_websocket_is_plain_http(old: bytes, new: bytes) -> None:
    assert read(handshake().replace(old, new, 1)) is None


@pytest.mark.parametrize("version", [None, b"12", b"14", b"8", b"013", b"13, 8", b"13;", b"x"])
def test_another_version_is_told_ours(version: bytes | None) -> None:
    assert refusal(handshake(version=version)) == (
        426,
        "this server speaks version 13 of the WebSocket protocol",
    )


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"",
        b"x",
        KEY[:-1],
        KEY[:-2],
        KEY + b"=",
        KEY[4:],
        KEY + KEY,
        b"!" * 22 + b"==",
        KEY[:-2] + b"AA",
        b"A" * 24,
    ],
)
def test_a_key_is_sixteen_octets_in_base64(key: bytes | None) -> None:
    assert refusal(handshake(key=key)) == (400, "Sec-WebSocket-Key must be 16 octets in base64")


@pytest.mark.parametrize(
    "key", [KEY + b" ", b"\t" + KEY, b"AAAAAAAAAAAAAAAAAAAAAA==", b"/////////////////////w=="]
)
def test_keys_that_are(key: bytes) -> None:
    assert read(handshake(key=key)) is not None


@pytest.mark.parametrize("field", [b"Sec-WebSocket-Key: " + KEY, b"Sec-WebSocket-Version: 13"])
def test_a_field_that_is_there_twice_is_refused(field: bytes) -> None:
    assert refusal(handshake(field)) == (400, "a field of the WebSocket handshake is there twice")


@pytest.mark.parametrize("body", [b"Content-Length: 1", b"Transfer-Encoding: chunked"])
def test_a_body_is_refused(body: bytes) -> None:
    assert refusal(handshake(body)) == (400, "a WebSocket handshake has no body")


# --- subprotocols ----------------------------------------------------------------------------------------


def test_subprotocols_come_from_all_lines_in_order() -> None:
    lines = (b"Sec-WebSocket-Protocol: a, B", b"Sec-WebSocket-Protocol: c,,graphql-ws")
    assert read(handshake(*lines)).subprotocols == ["a", "B", "c", "graphql-ws"]


@pytest.mark.parametrize("value", [b"a b", b"a;b", b'"a"', b"a/b", b"\xe9"])
def test_a_subprotocol_is_a_token(value: bytes) -> None:
    assert refusal(handshake(b"Sec-WebSocket-Protocol: " + value)) == (
        400,
        "malformed Sec-WebSocket-Protocol",
    )


def test_the_chosen_subprotocol_is_told_and_none_is_not() -> None:
    data = handshake(b"Sec-WebSocket-Protocol: a, b")
    assert answer(data, "b").count(b"\r\nsec-websocket-protocol: b\r\n") == 1
    assert b"protocol: " not in answer(data)


@pytest.mark.parametrize("choice", ["zzz", "A", "", "a, b", b"a", 1])
def test_only_what_was_offered_can_be_chosen(choice: Any) -> None:
    shake = read(handshake(b"Sec-WebSocket-Protocol: a, b"))
    with pytest.raises(LocalProtocolError, match="was not offered"):
        shake.accept(choice, [], 0.0)
    assert shake.accept("a", [], 0.0) is not None  # nothing is lost by the mistake


# --- headers of the application --------------------------------------------------------------------------


def test_headers_of_the_application_are_sent() -> None:
    out = answer(handshake(), headers=[(b"set-cookie", b"a=b"), (b"X-A", b"1"), (b"date", b"now")])
    assert b"\r\nset-cookie: a=b\r\nX-A: 1\r\ndate: now\r\n\r\n" in out
    assert b"date: x" not in out


def test_framing_fields_of_the_application_are_left_out() -> None:
    fields = [(b"connection", b"close"), (b"content-length", b"5"), (b"transfer-encoding", b"chunked")]
    assert answer(handshake(), headers=fields) == answer(handshake())


@pytest.mark.parametrize(
    "name",
    [
        b"sec-websocket-accept",
        b"Sec-WebSocket-Protocol",
        b"sec-websocket-extensions",
        b"Upgrade",
        b"sec-websocket-x",
    ],
)
def test_fields_of_the_handshake_are_not_the_applications(name: bytes) -> None:
    with pytest.raises(LocalProtocolError, match="is the server's to write"):
        answer(handshake(), headers=[(name, b"x")])


@pytest.mark.parametrize(
    "headers", [[(b"a", b"b\r\nc: d")], [(b"a b", b"c")], [("a", b"b")], [(b"a",)], 5, [(b"a", "b")]]
)
def test_headers_that_must_not_go_out_are_an_error(headers: Any) -> None:
    with pytest.raises(LocalProtocolError):
        answer(handshake(), headers=headers)


# --- extensions ------------------------------------------------------------------------------------------


def test_compression_is_agreed_on_where_both_want_it() -> None:
    offered = handshake(b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits")
    line = b"\r\nsec-websocket-extensions: permessage-deflate; client_max_window_bits=12\r\n"
    assert line in answer(offered, deflate=DeflateSettings())
    assert b"extensions" not in answer(offered)
    assert b"extensions" not in answer(handshake(), deflate=DeflateSettings())


def test_a_malformed_offer_is_refused() -> None:
    data = handshake(b"Sec-WebSocket-Extensions: a;;")
    assert refusal(data) == (400, "malformed Sec-WebSocket-Extensions")


def test_peers_that_came_together_are_not_pinged_together() -> None:
    deadlines = set()
    for number in range(50):
        key = b"%022d==" % number
        deadlines.add(read(handshake(key=key)).accept(None, [], 0.0).deadline)
    assert len(deadlines) > 30
    assert min(deadlines) >= 18
    assert max(deadlines) <= 20
