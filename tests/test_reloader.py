"""Reload with real processes: a parent that keeps the port, children that come and go."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from wire_frames import CLOSE, Client, Frame, close

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="hands descriptors to the child")

PARENT = """
import sys
if sys.argv.pop(1) == "stat":
    sys.modules["watchfiles"] = None
from servery.cli import main
sys.exit(main())
"""
APP = """
import os
ANSWER = {answer!r}
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    await send({{"type": "http.response.start", "status": 200, "headers": []}})
    inheritable = [fd for fd in range(3, 64) if os.path.exists(f"/dev/fd/{{fd}}") and os.get_inheritable(fd)]
    text = f"{{ANSWER}} {{os.getpid()}} {{inheritable}}"
    await send({{"type": "http.response.body", "body": text.encode()}})
"""
STREAM = """
import asyncio
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": b"tick", "more_body": True})
        await asyncio.sleep(0.02)
"""
SLOW = """
import asyncio, os
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"begun ", "more_body": True})
    while not os.path.exists("finish"):
        await asyncio.sleep(0.02)
    await send({"type": "http.response.body", "body": b"done"})
"""
DEAF_TO_CANCELLATION = """
import asyncio
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"begun ", "more_body": True})
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
"""
TALK = """
async def app(scope, receive, send):
    if scope["type"] != "websocket":
        return
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        pass
"""
DEAF = """
import signal, sys, threading
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("deaf", file=sys.stderr, flush=True)
threading.Event().wait()
"""


class Reloader:
    """A parent process in its own session, with its log, and a client's view of its address."""

    def __init__(self, directory, watcher="stat", **settings):
        self.directory = directory
        self.address = ("127.0.0.1", free_port())
        settings = {"bind": "{}:{}".format(*self.address), "reload_delay": 0.05} | settings
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
        self.process = subprocess.Popen(
            [sys.executable, "-c", PARENT, watcher, "main:app", "--reload", *flags],
            cwd=directory,
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.lines = []
        self._read_up_to = 0
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            with self._news:
                self.lines.append(line.rstrip())
                self._news.notify_all()

    def log(self):
        return "\n".join(self.lines)

    def wait_for(self, text, *, anywhere=False):
        """Wait for a line of the log, `anywhere` or after those waited for before; give it."""
        start = 0 if anywhere else self._read_up_to

        def found():
            return next((i for i in range(start, len(self.lines)) if text in self.lines[i]), None)

        with self._news:
            assert self._news.wait_for(lambda: found() is not None, 15), f"no {text!r} in:\n{self.log()}"
            self._read_up_to = found() + 1
            return self.lines[self._read_up_to - 1]

    def write(self, source):
        """Replace the application in one step, as editors do."""
        draft = self.directory / "draft.txt"
        draft.write_text(textwrap.dedent(source))
        draft.replace(self.directory / "main.py")

    def request(self):
        """Send a request; the connection must be taken, now or as soon as there is a child."""
        client = socket.socket(socket.AF_UNIX if isinstance(self.address, str) else socket.AF_INET)
        client.settimeout(15)
        try:
            client.connect(self.address)
            client.sendall(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
        except OSError:
            client.close()
            raise
        return client

    def answer(self):
        """One whole answer: the text of the application, the child's pid, its inheritable descriptors."""
        with self.request() as client:
            body = read_all(client).partition(b"\r\n\r\n")[2]
        text, pid, inheritable = unchunked(body).decode().split(" ", 2)
        return text, int(pid), inheritable

    def until_answer(self, text):
        """Ask, and never be refused, until the new application answers; its pid."""
        while True:
            try:
                found, pid, _ = self.answer()
            except (ConnectionResetError, BrokenPipeError, ValueError):
                continue  # caught by the end of the old child, which is the client's to repeat
            if found == text:
                return pid

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(15)

    def close(self):
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._reader.join(5)
        self.process.stderr.close()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def read_until(client, mark):
    data = b""
    while mark not in data:
        more = client.recv(4096)
        assert more, data
        data += more
    return data


def read_all(client):
    return b"".join(iter(lambda: client.recv(4096), b""))


def unchunked(body):
    """The content of a chunked body; any other body as it is."""
    content, rest = b"", body
    while b"\r\n" in rest:
        size, _, rest = rest.partition(b"\r\n")
        content += rest[: int(size, 16)]
        rest = rest[int(size, 16) + 2 :]
    return content or rest


def listening_inodes(port):
    """The kernel's numbers of the sockets that listen on a port."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [row[9] for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")]


@pytest.fixture
def start(tmp_path):
    with contextlib.ExitStack() as stack:

        def start_it(source, watcher="stat", **settings):
            (tmp_path / "main.py").write_text(textwrap.dedent(source))
            reloader = Reloader(tmp_path, watcher, **settings)
            stack.callback(reloader.close)
            reloader.wait_for("reloading with")
            return reloader

        yield start_it


@pytest.mark.parametrize("watcher", ["watchfiles", "stat"])
def test_a_change_brings_the_new_answer_on_the_same_socket(start, tmp_path, watcher):
    reloader = start(APP.format(answer="one"), watcher)
    assert f"INFO     reloading with {watcher}; watching {tmp_path}" in reloader.log()
    first = reloader.until_answer("one")
    inodes = listening_inodes(reloader.address[1])
    reloader.write(APP.format(answer="two"))
    second = reloader.until_answer("two")
    assert second != first
    assert f"{tmp_path / 'main.py'} changed; reloading" in reloader.wait_for("changed")
    assert listening_inodes(reloader.address[1]) == inodes
    assert len(inodes) == 1
    assert reloader.stop() == 0
    assert "killing" not in reloader.log()


def test_what_the_application_starts_does_not_get_the_sockets(start):
    reloader = start(APP.format(answer="one"))
    assert reloader.answer()[2] == "[]"


def test_a_unix_socket_stays_the_same_file_and_is_removed_at_the_end(start, tmp_path):
    path = tmp_path / "s.sock"
    reloader = start(APP.format(answer="one"), bind=f"unix:{path}", uds_mode="600")
    reloader.address = str(path)
    reloader.until_answer("one")
    before = path.lstat()
    reloader.write(APP.format(answer="two"))
    reloader.until_answer("two")
    assert os.path.samestat(path.lstat(), before)
    assert reloader.stop() == 0
    assert not path.exists()


@pytest.mark.parametrize("watcher", ["watchfiles", "stat"])
def test_a_syntax_error_is_told_and_its_repair_brings_the_answer_back(start, watcher):
    reloader = start(APP.format(answer="one"), watcher)
    reloader.until_answer("one")
    reloader.write("def app(:\n")
    line = reloader.wait_for("waiting for a file to change")
    assert "ERROR    the server process exited with code 3" in line
    assert "SyntaxError" in reloader.log()
    with reloader.request() as waiting:  # it is not refused, but waits for the repair
        reloader.write(APP.format(answer="repaired"))
        assert b"repaired" in read_all(waiting)


def test_an_application_that_never_started_can_be_repaired(start):
    reloader = start("raise SystemExit(7)\n")
    reloader.wait_for("waiting for a file to change")
    reloader.write(APP.format(answer="repaired"))
    reloader.until_answer("repaired")


def test_a_killed_child_is_told_with_its_signal(start):
    reloader = start(APP.format(answer="one"))
    os.kill(reloader.until_answer("one"), signal.SIGKILL)
    assert "was killed by SIGKILL" in reloader.wait_for("waiting for a file to change")
    assert reloader.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_parent_and_child(start, number):
    reloader = start(APP.format(answer="one"))
    child = reloader.until_answer("one")
    assert reloader.stop(number) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    with pytest.raises(ConnectionRefusedError):
        reloader.request()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_a_request_in_flight_finish(start, tmp_path, number):
    """The terminal sends SIGINT to the whole process group; the child must take it for one signal."""
    reloader = start(SLOW)
    with reloader.request() as client:
        read_until(client, b"begun")
        if number == signal.SIGINT:
            os.killpg(reloader.process.pid, number)
        else:
            reloader.process.send_signal(number)
        reloader.wait_for("a second signal kills it")
        reloader.wait_for("stopping: 1 requests in progress", anywhere=True)
        (tmp_path / "finish").touch()
        assert b"done" in read_all(client)
    assert reloader.process.wait(15) == 0
    assert "killing" not in reloader.log()
    assert "cancelling" not in reloader.log()


def test_a_second_signal_kills(start):
    reloader = start(SLOW, timeout_graceful_shutdown=3600.0)
    with reloader.request() as client:
        read_until(client, b"begun")
        reloader.process.send_signal(signal.SIGTERM)
        reloader.wait_for("a second signal kills it")
        assert reloader.stop() == 128 + signal.SIGTERM
        reloader.wait_for("was stopping; killing it")


def test_a_request_that_ignores_its_cancellation_makes_the_exit_code_1(start):
    reloader = start(DEAF_TO_CANCELLATION, timeout_graceful_shutdown=0.2, timeout_cancel=0.2)
    with reloader.request() as client:
        read_until(client, b"begun")
        assert reloader.stop() == 1
        reloader.wait_for("left behind", anywhere=True)


def test_an_open_stream_does_not_hold_up_a_reload(start):
    reloader = start(STREAM, timeout_stream_grace=0.1, timeout_graceful_shutdown=0.2)
    with reloader.request() as client:
        read_until(client, b"tick")
        reloader.write(APP.format(answer="two"))
        reloader.until_answer("two")
        with contextlib.suppress(ConnectionResetError):
            read_all(client)
    assert "killing" not in reloader.log()


def test_an_open_websocket_does_not_hold_up_a_reload(start):
    reloader = start(TALK)
    with socket.create_connection(reloader.address, 15) as sock:
        client = Client(sock)
        assert client.open().startswith(b"HTTP/1.1 101 ")
        reloader.write(APP.format(answer="two"))
        assert client.read() == Frame(CLOSE, b"\x03\xf4")
        client.send(close(1012))
        assert client.read_to_close() == []
        reloader.until_answer("two")
    assert "killing" not in reloader.log()


def test_a_thread_of_the_application_does_not_hold_up_a_reload(start):
    reloader = start(
        APP.format(answer="one")
        + "import threading\nthreading.Thread(target=threading.Event().wait).start()\n"
    )
    reloader.until_answer("one")
    reloader.write(APP.format(answer="two"))
    reloader.until_answer("two")
    assert "killing" not in reloader.log()


def test_a_child_that_does_not_stop_is_killed(start):
    seconds = dict.fromkeys(("timeout_graceful_shutdown", "timeout_cancel", "timeout_lifespan_shutdown"), 0.1)
    reloader = start(DEAF, **seconds)
    reloader.wait_for("deaf")
    reloader.write(APP.format(answer="two"))
    reloader.wait_for("did not stop within 1.3 seconds; killing it")
    reloader.until_answer("two")


def test_the_child_goes_when_the_parent_is_killed(start):
    reloader = start(APP.format(answer="one"))
    reloader.until_answer("one")
    assert reloader.stop(signal.SIGKILL) == -signal.SIGKILL
    while True:  # the child holds the port until it is gone
        try:
            reloader.request().close()
        except ConnectionRefusedError:
            break
        except OSError:
            continue
