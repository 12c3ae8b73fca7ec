"""The fused connection of HTTP/2: frames, scopes, applications and writing, in one compiled piece on the reactor.

The twin of `servery.drivers.http2_driver`, and of `servery.drivers.http2_stream` for requests; read those first. WebSockets on a stream
are left to the reference's port and cycle.

What is made while octets are being dispatched leaves behind the last one, in one system call: a client that asks for ten things
at once gets ten responses at once.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from libc.stdint cimport uint8_t

from .calls cimport Call, Port
from .engine cimport Request
from .http2 cimport Http2Engine
from .http_cycle cimport HttpCycle, http_twin
from .reactor cimport Reactor
from .shared cimport Shared

from ..asgi.messages import send_other
from ..asgi.scope import ConnectionInfo
from ..asgi.websocket_cycle import WebSocketCycle
from ..drivers.http2_driver import NEWER_VERSION
from ..drivers.http2_stream import CREDIT as _CREDIT, FILE_BLOCK, begin
from ..drivers.sendfile import FileToSend, read_block
from ..drivers.service import error_log
from ..drivers.writing import CORK_SIZE as _CORK_SIZE
from ..engine import NEVER as _NEVER
from ..errors import ClientDisconnected, LocalProtocolError
from ..events import BodyReceived, ConnectionFailed, RequestReceived, StreamFailed

cdef double NEVER = _NEVER
cdef Py_ssize_t CORK_SIZE = _CORK_SIZE
cdef Py_ssize_t CREDIT = _CREDIT
cdef object _TWIN = http_twin()


@cython.final
cdef class StreamCycle(HttpCycle):
    """See `servery.asgi.http_cycle.HttpCycle`."""

    @property
    def port(self):
        """The way out, for what is rare."""
        return StreamFace(self)

    cdef object put_path(self, object message):
        return send_other(self, "http.response.pathsend", message)


cdef class StreamFace:
    """The port of one stream, as functions of the reference see it."""

    cdef StreamCycle _cycle

    def __init__(self, StreamCycle cycle):
        self._cycle = cycle

    @property
    def writable(self):
        """False while more than the high-water mark waits for the peer."""
        return not self._cycle._port.is_full(self._cycle)

    def flush(self):
        """Write what the engine has queued."""
        self._cycle._port.write_out()

    def debug(self, info):
        """The application sent ``http.response.debug``."""
        error_log.debug("http.response.debug: %r", info)

    def open_file(self, file, offset, count):
        """Open a path, or take an open file or descriptor."""
        return FileToSend(file, offset, count)

    async def send_file(self, sending):
        """Queue an open file, no faster than the peer takes it. Raises `ClientDisconnected`."""
        cdef StreamCycle cycle = self._cycle
        cdef Http2Connection connection = cycle._port
        at, end = sending.offset, sending.offset + sending.size
        while at < end:
            block = await connection._shared.loop.run_in_executor(None, read_block, sending.fd, min(FILE_BLOCK, end - at), at)
            self._check()
            if not block:
                raise LocalProtocolError("the file became shorter while it was sent")
            at += len(block)
            connection._engine.send_reserved(cycle.stream, block)
            connection.write_out()
            while not cycle._over and connection.is_full(cycle):
                await cycle.waiter()
            self._check()

    def _check(self):
        if self._cycle._over:
            raise ClientDisconnected("the client has closed the connection")


@cython.final
cdef class Http2Connection(Port):
    """See `servery.drivers.http2_driver.Http2Connection`; here it is its own transport."""

    def __init__(self, Reactor reactor, int fd, Shared shared, peername, sockname):
        Port.__init__(self, reactor, fd, shared, peername, sockname)
        self._engine = shared.service.make_http2(reactor.clock())
        self._cycles, self._ports = {}, {}
        self._waiting, self.waiting = set(), set()

    def start(self, bytes ahead=b"", bint secure=False):
        """The connection was accepted. `ahead` is what has come already, `secure` says that the client has used TLS."""
        shared = self._shared
        service = shared.service
        self._secure = secure
        self._info = ConnectionInfo(
            self._client, self._server, "https" if secure else "http", service.root_path, service.state, service.runs
        )
        self.set_marks(shared.write_buffer, shared.write_buffer // 4)
        service.connected(self)
        self.begin()
        if service.stopping:
            self.stop(self.reactor.clock(), True)  # its client could not know: a request may be on its way
        else:
            self.settle()
        if ahead:
            try:
                self.received(PyBytes_AS_STRING(ahead), PyBytes_GET_SIZE(ahead))
            except Exception as error:
                self.failed(error)

    # --- from the reactor

    cdef int received(self, const char *data, Py_ssize_t size) except -1:
        cdef double now = self.reactor.clock()
        cdef bint outer = self._batch
        self._batch = True
        try:
            self.dispatch(self._engine.take(<const uint8_t *>data, size, now), now)
        finally:
            self._batch = outer
        return self.settle()

    cdef int ended(self) except -1:
        cdef double now = self.reactor.clock()
        self.dispatch(self._engine.take_end(now), now)
        return self.settle()

    cdef int lost(self, object error) except -1:
        self._full = False
        self._shared.clock.disarm(self)
        self._shared.service.disconnected(self)
        self.lose_cycles()
        self._engine.forget()
        return 0

    cdef int drained(self) except -1:
        if not self._ending:
            self._write_deadline = NEVER
        return self.settle()

    # --- from the clock and the server

    def on_deadline(self, double now):
        """The time has come that the clock was armed for; it may have moved on since."""
        if self.watch_deadline(now):
            return
        if self._engine.deadline <= now:
            self.dispatch(self._engine.expire(now), now)
        self.settle()

    def stop(self, double now, bint patient=False):
        """Finish what is in progress, then close; close at once if nothing is, unless `patient`."""
        for port in list(self._ports.values()):
            port.stop(now)
        self._engine.stop(now, patient)
        self.settle()

    def told_to_end(self):
        """The stream grace is over: ``receive()`` of all requests in progress says ``http.disconnect``."""
        for cycle in list(self._cycles.values()):
            (<StreamCycle>cycle).disconnected(False)
        for port in list(self._ports.values()):
            port.cycle.disconnected(lost=False)

    # --- from cycles

    cdef bint is_full(self, Call cycle) except -1:
        cdef StreamCycle own = <StreamCycle>cycle
        if not own._waits and (self._full or self._engine.waiting(own.stream) > self._shared.write_buffer):
            own._waits = True
            self._waiting.add(own)
        return own._waits

    cdef int consumed(self, Call cycle) except -1:
        cdef StreamCycle own = <StreamCycle>cycle
        if own._unread:
            size, own._unread = own._unread, 0
            self._engine.consumed(own.stream, size, self.reactor.clock())
            return self.part_queued(own, CREDIT)
        return 0

    cdef int part_queued(self, Call cycle, Py_ssize_t size) except -1:
        self._corked += size + 1
        if self._batch:
            return 0
        if self._corked > CORK_SIZE:
            return self.write_out()
        if not (self._flush_due or cycle.stepping):
            self._flush_due = True
            self._shared.service.flush_later(self)
        return 0

    cdef int end_queued(self, Call cycle, Py_ssize_t size) except -1:
        return self.write_out()

    cdef int response_complete(self, Call cycle) except -1:
        return self.log_cycle(<StreamCycle>cycle, False)

    cdef int finished(self, Call cycle) except -1:
        Port.finished(self, cycle)
        return self.release_cycle(<StreamCycle>cycle)

    cdef int write_out(self) except -1:
        """Make frames and write them, until the peer, its windows or the kernel take no more."""
        cdef Http2Engine engine = self._engine
        cdef bint more = not self._batch
        cdef list out
        if self._batch:
            return 0
        self._corked = 0
        while more and not self._lost:
            engine.held = self._full
            more = engine.pump_some(self.reactor.clock())
            out = engine.output()
            if not out:
                continue
            if self.closing:
                self.lose_cycles()  # now: an application that only sends would never let `lost` run
            elif len(out) == 1:
                self.put(<bytes>out[0])
            else:
                self.put_all(out)
        if not self._full and (self._waiting or self.waiting):
            self.look_again()
        if engine.deadline < self.armed and not self._lost:
            self._shared.clock.arm(self, engine.deadline)
        return 0

    cdef int look_again(self) except -1:
        """Something was sent: applications go on if enough of it was."""
        cdef StreamCycle cycle
        for found in list(self._waiting):
            cycle = <StreamCycle>found
            if self._engine.waiting(cycle.stream) <= self._shared.write_buffer // 4:
                cycle._waits = False
                self._waiting.discard(cycle)
                cycle.wake()
        for port in list(self.waiting):
            if not port.look_again():
                self.waiting.discard(port)
        return 0

    # --- from ports of the reference

    @property
    def service(self):
        """What all connections share."""
        return self._shared.service

    @property
    def client(self):
        """Who is at the other end, for the logs."""
        return self._client

    @property
    def writable(self):
        """False while more than the high-water mark waits for the peer."""
        return not self._full

    def flush(self):
        """Make frames and write them."""
        self.write_out()

    def flush_soon(self, Py_ssize_t size):
        """Do so at the end of the turn, or when it is much."""
        self._corked += size
        if self._corked > CORK_SIZE:
            self.write_out()
        elif not self._flush_due:
            self._flush_due = True
            self._shared.service.flush_later(self)

    def release(self, port):
        """The application call is over, and nothing else speaks on the stream."""
        if self._ports.pop(port.number, None) is None:
            return
        self.waiting.discard(port)
        del port.cycle  # they hold each other
        self._engine.released(port.number, self.reactor.clock())
        if not self._lost:
            self.settle()

    def log(self, port, bint aborted):
        """One access line for a request, whatever became of it; only the first call writes it."""
        if port.logged:
            return
        port.logged = True
        cycle = port.cycle
        if isinstance(cycle, WebSocketCycle) and cycle.websocket is not None:
            self._shared.service.log_websocket(cycle, self._client)
        else:
            self._shared.service.log_request(cycle, self._client, self._engine.content_sent(port.number), aborted)

    # --- inside

    cdef int dispatch(self, list events, double now) except -1:
        cdef list begun = []
        for event in events:
            if type(event) is Request:
                if (<Request>event).upgrade is None:
                    begun.append(self.begin_request(<Request>event, now))
                else:
                    begun.append(self.begin_tunnel(<Request>event, now))
            elif type(event) is BodyReceived:
                self.body_received(event)
            elif type(event) is StreamFailed:
                self.stream_failed(event)
            elif type(event) is ConnectionFailed:
                error_log.debug("%s: %s", self._client, event.error)
                self.lose_cycles()
            else:  # the peer sends no more: `PeerClosed`
                self.told_to_end()
        for each in begun:  # they begin at once: they shall know what the engine knows
            if type(each) is StreamCycle:
                self.start_cycle(<StreamCycle>each)
            else:
                self.start_port(each)
        return 0

    cdef StreamCycle begin_request(self, Request request, double now):
        cdef Shared shared = self._shared
        cdef StreamCycle cycle = <StreamCycle>StreamCycle.__new__(StreamCycle)
        cycle._twin = _TWIN
        cycle._port, cycle._engine, cycle.request, cycle.stream = self, self._engine, request, request.stream
        cycle.started, cycle.request_id = now, shared.next_id()
        cycle._scope = shared.http_scope(
            request, cycle.request_id, self._engine.takes_trailers(request.stream), self._client, self._server
        )
        cycle.begin_body(request)
        if self._secure:
            cycle._scope["scheme"] = "https"
        self._cycles[request.stream] = cycle
        if shared.front is not None:
            shared.front(cycle, cycle._scope)
            self._engine.adopt_stamp(request.stream)
        return cycle

    cdef object begin_tunnel(self, Request request, double now):
        event = RequestReceived(
            request.stream, request.method, request.target, request.raw_path, request.query, request.authority,
            request.version, request.headers, request.complete, request.expects_continue, request.upgrade,
        )
        port = self._ports[request.stream] = begin(self, self._engine, self._info, event, now)
        return port

    cdef int body_received(self, object event) except -1:
        cdef StreamCycle cycle
        found = PyDict_GetItem(self._cycles, event.stream)
        if found != NULL:
            cycle = <StreamCycle>found
            if not cycle._over:
                cycle._unread += PyBytes_GET_SIZE(<bytes>event.data)
                cycle.body_received(event.data, event.more, event.trailers)
            return 0
        port = self._ports.get(event.stream)
        if port is not None and not port.ended:
            port.body_received(event)
        return 0

    cdef int stream_failed(self, object event) except -1:
        """One request is over; the others go on."""
        if event.error is not None:
            error_log.debug("%s: %s", self._client, event.error)
        found = self._cycles.get(event.stream)
        if found is not None:
            (<StreamCycle>found).status = event.replied or (<StreamCycle>found).status
            return self.fail_cycle(<StreamCycle>found)
        port = self._ports.get(event.stream)
        if port is not None:
            port.cycle.status = event.replied or port.cycle.status
            return self.fail_port(port)
        if event.error is not None:
            self._shared.service.log_refusal(self._client, event.request_line, event.replied)
        return 0

    cdef int start_cycle(self, StreamCycle cycle) except -1:
        """Run the application: now, up to where it waits, if nothing of any application is running.

        What was read behind the head may have failed the request already.
        """
        cdef Shared shared = self._shared
        if cycle._over:
            return self.release_cycle(cycle)
        if shared.bounded and shared.service.full:
            return self.refuse(cycle)
        return self.start_task(cycle)

    cdef int refuse(self, StreamCycle cycle) except -1:
        """One request too many: the application is not asked for it."""
        cycle.status = 503
        self._engine.answer(cycle.stream, 503, "Service Unavailable", b"retry-after: 1\r\n")
        self.log_cycle(cycle, False)
        cycle._over = True
        return self.release_cycle(cycle)

    cdef int start_port(self, object port) except -1:
        service = self._shared.service
        fault, port.fault = port.fault, None
        if port.ended:
            self.release(port)
            return 0
        if fault is None and not (self._shared.bounded and service.full):
            service.start(port.cycle)
            return 0
        status, text, extra = 503, "Service Unavailable", b"retry-after: 1\r\n"
        if fault is not None:
            status, text, extra = fault.status, fault.reason, NEWER_VERSION if fault.status == 426 else b""
        port.cycle.status = status
        self._engine.answer(port.number, status, text, extra)
        self.log(port, False)
        port.ended = True
        self.release(port)
        return 0

    cdef int fail_cycle(self, StreamCycle cycle) except -1:
        cycle._over = True
        if cycle._waits:
            cycle._waits = False
            self._waiting.discard(cycle)
        cycle.disconnected(True)
        return self.log_cycle(cycle, True)

    cdef int fail_port(self, object port) except -1:
        was_open = port.websocket is not None
        port.fail()
        self.log(port, True)
        if was_open and port.cycle.task is None:
            self.release(port)
        return 0

    cdef int release_cycle(self, StreamCycle cycle) except -1:
        if self._cycles.pop(cycle.stream, None) is None:
            return 0
        if cycle._waits:
            self._waiting.discard(cycle)
        self._engine.released(cycle.stream, self.reactor.clock())
        return 0 if self._lost else self.settle()

    cdef int lose_cycles(self) except -1:
        """Nothing that is sent can reach the peer any more."""
        for cycle in list(self._cycles.values()):
            if not (<StreamCycle>cycle)._over:
                self.fail_cycle(<StreamCycle>cycle)
        for port in list(self._ports.values()):
            if not port.ended:
                self.fail_port(port)
        return 0

    cdef int log_cycle(self, StreamCycle cycle, bint aborted) except -1:
        cdef Shared shared = self._shared
        if cycle._logged or not (shared.logs or shared.tally is not None):
            return 0
        cycle._logged = True
        sent = self._engine.content_sent(cycle.stream)
        if shared.logs:  # which counts, too
            shared.service.log_request(cycle, self._client, sent, aborted)
            return 0
        return shared.tally.ended(
            (<Request>cycle.request).method, cycle.status, self.reactor.clock() - cycle.started, sent
        )

    cdef int settle(self) except -1:
        """Write what there is; make the socket what the engine says."""
        if self._batch:
            return 0
        self.write_out()
        if self._engine.half_closed or self._engine.closing:
            return self.wind_up(self._engine.closing, False)
        return 0
