"""One request and its response as ASGI sees them: the twin of `servery.asgi.http_cycle`; read that one first.

Rare messages (files, trailers, early hints) are handed to the reference's own functions.
"""

from cpython.bytes cimport PyBytes_GET_SIZE

from .calls cimport Call, Port, Twin
from .engine cimport Request

from ..asgi.http_cycle import HttpCycle as _Reference
from ..asgi.messages import as_bytes, is_disconnect, required, send_other
from ..drivers.sendfile import FileToSend
from ..errors import ClientDisconnected, LocalProtocolError

cdef str _START = "http.response.start"
cdef str _BODY = "http.response.body"
cdef str _PATH = "http.response.pathsend"

cdef Twin _TWIN = Twin(_Reference)


cdef HttpCycle new_http_cycle():
    cycle = <HttpCycle>HttpCycle.__new__(HttpCycle)
    cycle._twin = _TWIN
    return cycle


cdef Twin http_twin():
    return _TWIN


cdef class HttpCycle(Call):
    """See `servery.asgi.http_cycle.HttpCycle`."""

    # --- from the connection

    cdef int begin_body(self, Request request) except -1:
        """What has come of the body with the head."""
        if request.complete:
            self._body = b""
        elif request.body is not None:
            self._body = request.body
            self.buffered = PyBytes_GET_SIZE(request.body)
            request.body = None
        else:
            self._more_body = True
        return 0

    cdef int body_received(self, bytes data, bint more, list trailers) except -1:
        if self._answered:
            return 0
        if self._body is None:
            self._body = data
        elif self._parts is None:
            self._parts = [self._body, data]
        else:
            self._parts.append(data)
        self.buffered += PyBytes_GET_SIZE(data)
        if not more:
            self._more_body = False
            self._trailers = trailers
        return self.wake()

    cdef bint is_answered(self) noexcept:
        return self._answered

    cdef int disconnected(self, bint lost) except -1:
        self._gone = True
        self._lost = self._lost or lost
        return self.wake()

    # --- from the application

    cdef object take(self):
        if not self._answered:
            if self._body is not None:
                return self.take_body()
            if not self._gone:
                if self._more_body:
                    self._engine.continue_body(self.stream)
                    self._port.write_out()
                return None
            self._told = True
        return {"type": "http.disconnect"}

    cdef dict take_body(self):
        cdef dict message = {"type": "http.request", "body": self._body, "more_body": self._more_body}
        if self._parts is not None:
            message["body"] = b"".join(self._parts)
            self._parts = None
        self._body = None
        if self._trailers:
            message["trailers"] = self._trailers
            self._trailers = None
        if self.buffered:
            self.buffered = 0
            self._port.consumed(self)
        return message

    cdef object put(self, object message):
        cdef dict fields
        if self._lost:
            raise ClientDisconnected("the client has closed the connection")
        try:
            kind = (<dict>message)["type"] if type(message) is dict else message["type"]
        except (TypeError, KeyError):
            raise LocalProtocolError(f"an ASGI message is a dict with a 'type', not {message!r:.100}") from None
        if self._answered:
            raise LocalProtocolError(f"{kind!r} was sent after the response was complete")
        if kind == _BODY:
            if type(message) is dict:
                fields = message
                more, body = fields.get("more_body", False), fields.get("body", b"")
            else:
                more, body = message.get("more_body", False), message.get("body", b"")
            self.put_body(body if type(body) is bytes else as_bytes(body), more)
            return self.undrained() if self._port.is_full(self) else None
        if kind == _START:
            self.put_start(message if type(message) is dict else dict(message))
            return None
        if kind == _PATH:
            return self.put_path(message)
        return send_other(self, kind, message)

    cdef object put_path(self, object message):
        """`servery.asgi.messages.send_other`, for a file that the kernel may take at once."""
        cdef bint complete = True
        sending = FileToSend(required(message, "path"), 0, None)
        try:
            if self._engine.reserve_body(self.stream, sending.size, False):
                complete = self._port.write_file(sending)
            if complete:
                self.end_file()
        except BaseException:
            sending.close()
            raise
        if not complete:
            return self.wait_for_file(sending)
        sending.close()
        return None

    async def wait_for_file(self, sending):
        """The rest of `put_path`."""
        try:
            await self._port.rest_of_file()
        finally:
            sending.close()
        self.end_file()

    cdef int end_file(self) except -1:
        if self._engine.end_reserved(self.stream):
            self._port.end_queued(self, 0)
            return self.complete()
        return self._port.write_out()

    cdef int put_start(self, dict message) except -1:
        try:
            status = message["status"]
        except KeyError:
            raise LocalProtocolError("'http.response.start' lacks 'status'") from None
        self._engine.start_response(self.stream, status, message.get("headers", ()), message.get("trailers", False))
        self.status = status
        return 0

    cdef int put_body(self, object body, bint more) except -1:
        cdef Port port = self._port
        if self._engine.send_body(self.stream, <bytes>body, more):
            port.end_queued(self, PyBytes_GET_SIZE(<bytes>body))
            return self.complete()
        return port.part_queued(self, PyBytes_GET_SIZE(<bytes>body))

    cpdef int complete(self) except -1:
        """The response is queued to its end: let go of the connection."""
        self._answered = True
        self.wake()
        return self._port.response_complete(self)

    # --- the end

    cdef int returned(self) except -1:
        if self._answered:
            return 0
        if not self._told and not self._lost:
            error = LocalProtocolError("the application returned before its response was complete")
            self._port._shared.service.app_failed(self, error)
        return self.abandon()

    cdef int failed(self, object error) except -1:
        if not (self._gone and is_disconnect(error)):
            self._port._shared.service.app_failed(self, error)
        return self.abandon()

    cdef int abandon(self) except -1:
        if self._answered:
            return 0
        self._answered = True
        self.wake()
        if self._lost:
            return 0
        if self._told:
            self._engine.abandon(self.stream)
        else:
            self.status = self._engine.fail_response(self.stream)
        self._port.write_out()
        return self._port.response_complete(self)
