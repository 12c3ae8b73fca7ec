"""OpenTelemetry's own ASGI middleware around an application, as docs/operations.md shows it."""

from __future__ import annotations

import pytest
from harness import eventually, read_response, read_to_end
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from sample_apps import respond

TRACE = "0af7651916cd43dd8448eb211c80319c"
GET = b"GET /%b HTTP/1.1\r\nHost: a.example\r\n%b\r\n"


async def application(scope, receive, send):
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": "hello"})
        await send({"type": "websocket.close"})
    elif scope["path"] == "/fails":
        raise RuntimeError("no")
    else:
        await respond(send)


def name_request(span, scope):
    servery = scope.get("extensions", {}).get("servery")
    if servery:
        span.set_attribute("servery.request_id", servery["request_id"])


class Traced:
    """The application, and the spans of its requests."""

    def __init__(self):
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.app = OpenTelemetryMiddleware(
            application, tracer_provider=provider, server_request_hook=name_request
        )

    def servers(self, count: int):
        """The spans of `count` requests, once they have ended."""
        eventually(lambda: len(self._servers()) >= count)
        return self._servers()

    def _servers(self):
        return [span for span in self.exporter.get_finished_spans() if span.kind is SpanKind.SERVER]


@pytest.fixture
def traced():
    return Traced()


def test_a_request_is_a_span_with_the_request_id_and_goes_on_a_trace(serve, traced):
    field = b"traceparent: 00-%b-b7ad6b7169203331-01\r\n" % TRACE.encode()
    with serve(traced.app) as server, server.connect() as sock:
        sock.sendall(GET % (b"x?y", field))
        assert read_response(sock)[1] == b"ok"
        server.access.wait(1)
        (span,) = traced.servers(1)
        (record,) = server.access.records
    assert f"{span.context.trace_id:032x}" == TRACE
    assert span.attributes["servery.request_id"] == record.access.request_id
    values = set(map(str, span.attributes.values()))
    assert {"GET", "200", "127.0.0.1"} <= values


def test_a_failure_is_a_failed_span_and_still_the_servers_to_log(serve, traced):
    with serve(traced.app) as server, server.connect() as sock:
        sock.sendall(GET % (b"fails", b""))
        assert read_response(sock)[0].startswith(b"HTTP/1.1 500")
        (span,) = traced.servers(1)
        assert len(server.errors.lines(40)) == 1
    assert span.status.status_code is StatusCode.ERROR


def test_the_client_is_the_one_that_a_trusted_proxy_names(serve, traced):
    settings = {"trusted_proxy": ("127.0.0.1",), "forwarded_field": ("x-forwarded-for",)}
    with serve(traced.app, **settings) as server, server.connect() as sock:
        sock.sendall(GET % (b"", b"X-Forwarded-For: 1.2.3.4\r\n"))
        read_response(sock)
        (span,) = traced.servers(1)
    assert "1.2.3.4" in map(str, span.attributes.values())


def test_a_websocket(serve, traced):
    fields = (
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    )
    with serve(traced.app) as server, server.connect() as sock:
        sock.sendall(GET % (b"", fields))
        received = sock.recv(65536)
        sock.sendall(b"\x88\x82\0\0\0\0\x03\xe8")
        received += read_to_end(sock)
        assert b"hello" in received
        traced.servers(1)
