"""The fused connection: parses, builds the scope, runs the application and writes, in one compiled piece on the reactor.

The twin of `servery.drivers.asyncio_driver`; read that one first: what is done here, and why, is said there; here stands why it is done in
another way.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from .calls cimport Call, Port
from .engine cimport Http1Engine, Request
from .http_cycle cimport HttpCycle, new_http_cycle
from .reactor cimport Reactor, Transport
from .shared cimport Shared, own_facts
from .websocket cimport WebSocketEngine
from .websocket_cycle cimport WebSocketCycle, new_websocket_cycle

from ..drivers.asyncio_driver import NEWER_VERSION
from ..drivers.sendfile import FileToSend
from ..drivers.service import error_log
from ..drivers.writing import CORK_SIZE as _CORK_SIZE
from ..engine import NEVER as _NEVER
from ..errors import ClientDisconnected, RemoteProtocolError
from ..events import BodyReceived, ConnectionFailed, PeerClosed, RequestReceived, WebSocketFailed

cdef double NEVER = _NEVER
cdef Py_ssize_t CORK_SIZE = _CORK_SIZE

cdef enum:
    HELD = 16  # responses to pipelined requests that may wait to leave together


cdef Request _request_of(object event):
    """A request that did not come by the short way."""
    request = <Request>Request.__new__(Request)
    request.stream, request.method, request.target = event.stream, event.method, event.target
    request.raw_path, request.query, request.authority = event.raw_path, event.query, event.authority
    request.version, request.headers, request.complete = event.version, event.headers, event.complete
    request.expects_continue, request.upgrade = event.expects_continue, event.upgrade
    request.percent = b"%" in event.raw_path
    return request


def take_over(Transport transport not None, Shared shared, peername, sockname):
    """A connection on the descriptor that `transport` has had, with what that has still to send. It is to be started."""
    cdef object queue = transport._queue
    cdef Py_ssize_t unsent = transport.unsent, skip = transport._skip
    cdef Connection made
    transport._queue, transport.unsent = None, 0
    made = Connection(transport.reactor, transport.detach(), shared, peername, sockname)
    made._queue, made.unsent, made._skip = queue, unsent, skip
    return made


@cython.final
cdef class Connection(Port):
    """See `servery.drivers.asyncio_driver.AsyncioConnection`; here it is its own transport."""

    def __init__(self, Reactor reactor, int fd, Shared shared, peername, sockname):
        Port.__init__(self, reactor, fd, shared, peername, sockname)
        self._engine = shared.make_engine(reactor.clock())

    def start(self, bytes ahead=b"", bint secure=False, session=None):
        """The connection was accepted.

        `ahead` is what has come already, `secure` says that the client has used TLS; `session` is a
        `servery.drivers.contracts.TlsSession` in which it does so with us, and whose handshake is over.
        """
        self._secure = secure or session is not None
        shared = self._shared
        service = shared.service
        if session is not None:
            self._tls = session.describe()
            self.secure(session)
        self.set_marks(shared.write_buffer, shared.write_buffer // 4)
        service.connected(self)
        self.begin()
        if service.stopping:
            self.stop(self.reactor.clock(), True)  # its client could not know: a request may be on its way
        else:
            shared.clock.arm(self, self._engine.deadline)
        try:
            if session is not None:
                self.proceed_secure()
            elif ahead:
                self.received(PyBytes_AS_STRING(ahead), PyBytes_GET_SIZE(ahead))
        except Exception as error:
            self.failed(error)

    # --- from the reactor

    cdef int received(self, const char *data, Py_ssize_t size) except -1:
        cdef double now = self.reactor.now
        cdef Request request
        if self._websocket is not None:
            return self.received_frames(data, size, now)
        request = self._engine.take(data, size, now)
        if request is not None:
            self.take_request(request, now)
        else:
            self.dispatch(self._engine.receive(PyBytes_FromStringAndSize(data, size), now), now)
        return self.settle()

    cdef int received_frames(self, const char *data, Py_ssize_t size, double now) except -1:
        message = self._websocket.take(data, size, now)
        if message is None:
            self.dispatch(self._websocket.receive_octets(data, size, now), now)
        elif self._cycle is not None:
            (<WebSocketCycle>self._cycle).message(message)
        return self.settle()

    cdef int ended(self) except -1:
        cdef double now = self.reactor.clock()
        if self._websocket is not None:
            self.dispatch(self._websocket.receive(b"", now), now)
        else:
            self.dispatch(self._engine.receive(b"", now), now)
        return self.settle()

    cdef int lost(self, object error) except -1:
        self._full = False
        self._shared.clock.disarm(self)
        self._shared.service.disconnected(self)
        return self.lose_cycle()

    cdef int drained(self) except -1:
        if not self._ending:
            self._write_deadline = NEVER
        if self._cycle is not None:
            self._cycle.wake()
        return self.settle()

    cdef int file_sent(self, object error) except -1:
        self._file_waits = False
        self._file_error = error
        if self._cycle is not None:
            self._cycle.wake()
        return 0

    # --- from the clock and the server

    def on_deadline(self, double now):
        """The time has come that the clock was armed for; it may have moved on since."""
        if self.watch_deadline(now):
            return
        if self._websocket is None:
            if self._engine.deadline <= now:
                self.dispatch(self._engine.expire(now), now)
        else:
            if self._full:
                self._websocket.unsent(now)
            if self._websocket.deadline <= now:
                self.dispatch(self._websocket.expire(now), now)
        self.settle()

    def stop(self, double now, bint patient=False):
        """Finish what is in progress, then close; close at once if nothing is, unless `patient`."""
        if self._websocket is not None:
            self.dispatch(self._websocket.stop(now), now)
        else:
            self._engine.stop(now, patient)
        self.settle()

    def told_to_end(self):
        """The stream grace is over: ``receive()`` of the request in progress says ``http.disconnect``."""
        if self._cycle is not None:
            self._cycle.disconnected(False)

    # --- from the cycle

    @property
    def writable(self):
        """False while more than the high-water mark waits for the peer."""
        return not self._full

    def flush(self):
        """Write what the engine has queued."""
        self.write_out()

    def debug(self, info):
        """The application sent ``http.response.debug``."""
        error_log.debug("http.response.debug: %r", info)

    def open_file(self, file, offset, count):
        """Open a path, or take an open file or descriptor."""
        return FileToSend(file, offset, count)

    async def send_file(self, sending):
        """Write an open file after what was flushed."""
        if not self.write_file(sending):
            await self.rest_of_file()

    cdef bint write_file(self, object sending) except -1:
        """Write what is queued, and an open file behind it; whether the kernel has taken all of it."""
        cdef list out = self._engine._out
        if self._cycle is not None and not self.closing:
            self._corked = self._held = 0
            self._engine._out = []
            self._file_error = None
            self.put_before_file(out)
            if self.put_file(sending.fd, sending.offset, sending.size):
                return True
        if self._cycle is None or self.closing:
            self.lose_cycle()  # now: the loop's word on it comes later than the application's next message
            raise ClientDisconnected("the client has closed the connection")
        self._file_waits = True
        self.watch_writing(self.reactor.clock())
        return False

    async def rest_of_file(self):
        """Wait until the kernel has all of the file that was written last."""
        cdef Call cycle = self._cycle
        try:
            while self._file_waits and self._cycle is cycle:
                await cycle.waiter()
        finally:
            self._write_deadline = NEVER
            if self._file_waits:  # its descriptor is about to be closed
                self._file_waits = False
                self.withdraw_file()
        if self._file_error is not None:
            raise self._file_error
        if self._cycle is not cycle or self.closing:
            raise ClientDisconnected("the client has closed the connection")

    cdef bint is_full(self, Call cycle) except -1:
        return self._full

    cdef int consumed(self, Call cycle) except -1:
        return self.settle() if self._stopped_reading else 0

    cdef int part_queued(self, Call cycle, Py_ssize_t size) except -1:
        """Content was queued, and more may follow."""
        self._corked += size + 1
        if self._corked > CORK_SIZE:
            return self.write_out()
        if not self._flush_due and not (self._cycle is not None and self._cycle.stepping):
            self._flush_due = True
            self._shared.service.flush_later(self)
        return 0

    cdef int end_queued(self, Call cycle, Py_ssize_t size) except -1:
        """A response was queued to its end: it leaves at once, or with the next one if that was asked for already."""
        self._corked += size + 1
        self._held += 1
        if self._corked > CORK_SIZE or self._held >= HELD or not PyBytes_GET_SIZE(self._engine._pending):
            return self.write_out()
        return 0

    cdef int write_out(self) except -1:
        cdef list out = self._engine._out if self._websocket is None else self._websocket.output()
        self._corked = self._held = 0
        if not out or self._lost:
            return 0
        if self.closing:
            self.forget_output()
            return self.lose_cycle()
        if len(out) == 1:
            self.put(<bytes>out[0])
            out.clear()
        else:
            self.forget_output()
            self.put_all(out)
        return 0

    cdef int forget_output(self) except -1:
        if self._websocket is None:
            self._engine._out = []
        else:
            self._websocket._out = []
        return 0

    cdef int open_websocket(self, object handshake, object subprotocol, object headers) except -1:
        cdef double now = self.reactor.clock()
        if self._shared.front is not None:
            headers = self._shared.front.switching_fields(self._cycle, headers)
        cdef WebSocketEngine websocket = handshake.accept(subprotocol, headers, now)
        ahead = self._engine.hand_over()
        self.write_out()  # responses to what was asked for before
        self._websocket = websocket
        (<WebSocketCycle>self._cycle).opened(websocket)
        if ahead:
            self.dispatch(websocket.receive(ahead, now), now)
        if self._shared.service.stopping:
            self.dispatch(websocket.stop(now), now)
        return self.settle()

    cdef int response_complete(self, Call cycle) except -1:
        if self._cycle is cycle:
            self._cycle = None
            self.log(cycle, self._engine.closing)
            self._advance_due = True
            if not self._settling:
                self.settle()
        return 0

    # --- inside

    cdef int dispatch(self, list events, double now) except -1:
        cdef Call begun = None
        for event in events:
            if type(event) is RequestReceived:
                begun = self.begin_event(event, now)
            elif type(event) is BodyReceived:
                if type(self._cycle) is HttpCycle:
                    (<HttpCycle>self._cycle).body_received(event.data, event.more, event.trailers)
            elif type(event) is ConnectionFailed:
                self.peer_failed(event)
            elif type(event) is not PeerClosed:
                self.hear(event)
            elif self._cycle is not None:
                self._cycle.disconnected(False)
        return self.start_cycle(begun) if begun is not None else 0

    cdef int hear(self, object event) except -1:
        """An event of the WebSocket."""
        if type(event) is WebSocketFailed:
            error_log.debug("%s: %s", self._client, event.error)
        if type(self._cycle) is WebSocketCycle:
            (<WebSocketCycle>self._cycle).heard(event)
        return 0

    cdef Call begin_event(self, object event, double now):
        """The cycle of a request that did not come by the short way."""
        if event.upgrade is not None:
            try:
                handshake = self._shared.service.handshakes(event)
            except RemoteProtocolError as error:
                self._fault = error.with_traceback(None)
            else:
                if handshake is not None:
                    return self.begin_websocket(event, handshake, now)
        return self.begin_request(_request_of(event), now)

    cdef Call begin_websocket(self, object event, object handshake, double now):
        cdef Shared shared = self._shared
        cdef WebSocketCycle cycle = new_websocket_cycle(handshake)
        self.describe(cycle, event, event.stream, now)
        cycle._scope = shared.websocket_scope(event, cycle.request_id, handshake, self._client, self._server)
        self.adjust(cycle, "wss")
        self._cycle = cycle
        return cycle

    cdef int take_request(self, Request request, double now) except -1:
        """A request that came the short way."""
        cdef HttpCycle cycle = self.begin_request(request, now)
        if request.rest is not None:
            rest, request.rest = request.rest, None
            self.dispatch(self._engine.receive(rest, now), now)
        return self.start_cycle(cycle)

    cdef HttpCycle begin_request(self, Request request, double now):
        """The cycle of a request. What was read behind its head is for it, too."""
        cdef HttpCycle cycle = new_http_cycle()
        self.describe(cycle, request, request.stream, now)
        cycle._scope = self._shared.http_scope(request, cycle.request_id, self._engine.takes_trailers, self._client, self._server)
        cycle.begin_body(request)
        self.adjust(cycle, "https")
        self._cycle = cycle
        return cycle

    cdef int adjust(self, Call cycle, str secure) except -1:
        """Its scope is what the connection itself says: not all of it may be true."""
        if self._secure:
            cycle._scope["scheme"] = secure
        if self._tls is not None:
            own_facts(cycle._scope, self._tls)
        if self._shared.front is not None:
            self._shared.front(cycle, cycle._scope)
        return 0

    cdef int describe(self, Call cycle, object request, long stream, double now) except -1:
        cycle._port, cycle._engine, cycle.request, cycle.stream = self, self._engine, request, stream
        cycle.started, cycle.request_id = now, self._shared.next_id()
        return 0

    cdef int start_cycle(self, Call cycle) except -1:
        """Run the application: now, up to where it waits, if nothing of any application is running.

        What was read behind the head may have failed the request already.
        """
        cdef Shared shared = self._shared
        if self._fault is not None:
            return self.refuse_handshake(cycle)
        if shared.bounded and shared.service.full:
            return self.refuse(cycle, 503, "Service Unavailable", b"retry-after: 1\r\n")
        return self.start_task(cycle)

    cdef int refuse_handshake(self, Call cycle) except -1:
        fault, self._fault = self._fault, None
        error_log.debug("%s: %s", self._client, fault)
        return self.refuse(cycle, fault.status, fault.reason, NEWER_VERSION if fault.status == 426 else b"")

    cdef int refuse(self, Call cycle, int status, str text, bytes extra) except -1:
        """A request that the application is not asked for: a faulty handshake, or one too many."""
        if self._cycle is not cycle:
            return 0  # it has failed already, and that was answered
        self._cycle = None
        cycle.status = status
        self._engine.answer(cycle.stream, status, text, extra)
        self.write_out()
        self.log(cycle, False)
        self._advance_due = True
        return 0

    cdef int peer_failed(self, object event) except -1:
        cdef Call cycle = self._cycle
        error_log.debug("%s: %s", self._client, event.error)
        if cycle is None:
            self._shared.service.log_refusal(self._client, event.request_line, event.replied)
            return 0
        self._cycle = None
        cycle.status = event.replied or cycle.status
        self.log(cycle, True)
        return cycle.disconnected(True)

    cdef int lose_cycle(self) except -1:
        cdef Call cycle = self._cycle
        if cycle is not None:
            self._cycle = None
            cycle.disconnected(True)
            self.log(cycle, True)
        return 0

    cdef int log(self, Call cycle, bint aborted) except -1:
        cdef Shared shared = self._shared
        if not shared.logs and shared.tally is None:
            return 0
        if type(cycle) is WebSocketCycle and (<WebSocketCycle>cycle).websocket is not None:
            shared.service.log_websocket(cycle, self._client)
        elif shared.logs:  # which counts, too
            shared.service.log_request(cycle, self._client, self._engine.content_sent, aborted)
        else:
            method = (<Request>cycle.request).method if type(cycle.request) is Request else cycle.request.method
            shared.tally.ended(
                method, cycle.status, self.reactor.clock() - cycle.started, self._engine.content_sent
            )
        return 0

    cdef int settle(self) except -1:
        """See the reference: go on as far as possible, and make the socket what engine and cycle say."""
        cdef Http1Engine engine = self._engine
        cdef bint wanted
        if self._advance_due:
            self.advance()
        if self._websocket is not None:  # now: it may have been opened just above
            return self.settle_websocket()
        wanted = engine.wants_read and not (
            self._cycle is not None and self._cycle.buffered > self._shared.body_buffer
        )
        if self._stopped_reading == wanted:
            self.switch_reading()
            engine.body_paused(self._stopped_reading, self.reactor.clock())
        if engine.half_closed or engine.closing:
            self.write_out()
            self.wind_up(engine.closing, engine.reset)
        if engine.deadline < self.armed and not self._lost:
            self._shared.clock.arm(self, engine.deadline)
        return 0

    cdef int settle_websocket(self) except -1:
        cdef WebSocketEngine engine = self._websocket
        if self._stopped_reading == engine.wants_read:
            self.switch_reading()
        if not self._full:
            self.write_out()  # pings are answered, unless the peer takes nothing
        if engine.half_closed or engine.closing:
            self.write_out()
            self.wind_up(engine.closing, engine.reset)
        if engine.deadline < self.armed and not self._lost:
            self._shared.clock.arm(self, engine.deadline)
        return 0

    cdef int advance(self) except -1:
        cdef Http1Engine engine = self._engine
        cdef Request request
        cdef list events
        cdef double now
        self._settling = True
        while self._advance_due and (not self._full or engine.closing):
            self._advance_due = False
            now = self.reactor.clock()
            request = engine.take_next(now)
            if request is not None:
                self.take_request(request, now)
                continue
            events = engine.advance(now)
            if events:
                self.dispatch(events, now)
        self._settling = False
        if self._corked and self._cycle is None:
            self.write_out()  # nobody else would
        return 0

    cdef int switch_reading(self) except -1:
        self._stopped_reading = not self._stopped_reading
        return self.read_on(not self._stopped_reading)
