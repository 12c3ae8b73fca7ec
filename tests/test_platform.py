"""What an operating system, a service manager and a log reader expect: of one process, and of a master."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from harness import WAIT, eventually, read_response
from process import ServerProcess
from scraping import metrics_of

from servery.config import SETTINGS

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked"),
    pytest.mark.any_way,
]

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"

WHO = """
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return await lifespan(receive, send)
    if scope["path"] == "/wait":
        print("entered", flush=True)
        await asyncio.sleep(0.5)
    open("made", "w").close()
    mode = os.stat("made").st_mode & 0o777
    await respond(send, repr((os.getpid(), os.getuid(), os.getgid(), os.getgroups(), mode)).encode())
"""

MODES = pytest.mark.parametrize("mode", ((), ("--workers", "2")), ids=("one process", "master"))


@pytest.fixture
def start(way, tmp_path):
    """``with start(*flags) as server``."""

    def start(*flags, source=WHO, **options):
        return ServerProcess(tmp_path, source, "--timeout-linger", "0.2", *flags, **options)

    return start


def ask(sock):
    """What the application says of its process, asked over `sock`."""
    with sock:
        sock.sendall(GET)
        return eval(read_response(sock)[1])


# --- pidfile, umask, user and group, name ---------------------------------------------------------------


@MODES
def test_the_pidfile_is_there_while_the_server_is(start, tmp_path, mode):
    path = tmp_path / "pid"
    path.write_text("999999999\n")  # of a server that was killed
    with start("--pidfile", "pid", *mode) as server:
        ask(server.connect())
        assert path.read_text() == f"{server.process.pid}\n"
        assert server.stop() == 0
    assert not path.exists()


def test_a_pidfile_of_a_living_process_is_not_taken(start, tmp_path):
    (tmp_path / "pid").write_text(f"{os.getpid()}\n")
    with start("--pidfile", "pid") as server:
        assert server.end() == 2
    assert f"names process {os.getpid()}, which is alive" in server.said
    assert (tmp_path / "pid").exists()


def test_a_pidfile_that_cannot_be_written(start):
    with start("--pidfile", "missing/pid") as server:
        assert server.end() == 2
    assert "pidfile: cannot write" in server.said


@MODES
def test_the_umask_holds_for_files_and_sockets(start, tmp_path, mode):
    path = str(tmp_path / "s")
    with start("--umask", "027", *mode, where=("--uds", path)) as server:
        server.wait_for("unix:")
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(path)
        assert ask(sock)[4] == 0o640
        assert os.stat(path).st_mode & 0o777 == 0o750
        assert server.stop() == 0


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can become somebody else")
@MODES
def test_the_group_is_given_up_after_the_sockets_are_bound(start, tmp_path, mode):
    path = str(tmp_path / "s")
    with start("--user", "0", "--group", "65534", *mode, where=("--uds", path)) as server:
        server.wait_for("unix:")
        assert os.stat(path).st_gid == 65534
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(path)
        _, uid, gid, groups, _ = ask(sock)
        assert (uid, gid) == (0, 65534)
        assert 65534 in groups
        assert server.stop() == 0
    assert not os.path.exists(path)


@pytest.mark.parametrize(
    ("flags", "said"),
    (
        (("--user", "nobody-of-that-name"), "user: there is no 'nobody-of-that-name'"),
        (("--group", "none-of-that-name"), "group: there is no 'none-of-that-name'"),
    ),
)
@MODES
def test_users_and_groups_that_do_not_exist(start, mode, flags, said):
    with start(*flags, *mode) as server:
        assert server.end() == 2
    assert said in server.said


@MODES
def test_processes_have_the_name_that_was_asked_for(start, mode):
    with start("--process-name", "shop", *mode) as server:
        pid = ask(server.connect())[0]
        command = " ".join(psutil.Process(server.process.pid).cmdline())
        assert command.strip() == ("shop: master" if mode else "shop")
        assert " ".join(psutil.Process(pid).cmdline()).strip() == ("shop: worker" if mode else "shop")
        assert server.stop() == 0


# --- systemd --------------------------------------------------------------------------------------------


class Service:
    """A service manager's end of the notify socket."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(path)
        self.sock.settimeout(WAIT)

    def expect(self, word):
        """The fields of the next message that begins with `word`."""
        while True:
            fields = dict(line.partition("=")[::2] for line in self.sock.recv(4096).decode().splitlines())
            if next(iter(fields)) == word:
                return fields


@pytest.fixture
def manager(tmp_path, monkeypatch):
    """A service manager, for the servers that the test starts."""
    path = str(tmp_path / "notify")
    service = Service(path)
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    with service.sock:
        yield service


@MODES
def test_the_service_manager_is_told_of_each_phase(start, manager, monkeypatch, mode):
    monkeypatch.setenv("WATCHDOG_USEC", "400000")
    with start(*mode) as server:
        assert manager.expect("READY")["MAINPID"] == str(server.process.pid)
        manager.expect("WATCHDOG")
        manager.expect("WATCHDOG")
        if mode:
            server.signal(signal.SIGHUP)
            assert int(manager.expect("RELOADING")["MONOTONIC_USEC"])
            manager.expect("READY")
            server.signal(signal.SIGUSR2)
            manager.expect("READY")  # the new program in the old process
        with server.connect() as sock:
            sock.sendall(GET.replace(b"/ ", b"/wait "))
            server.wait_for("entered")
            server.signal()
            manager.expect("STOPPING")
            assert read_response(sock)[0].startswith(b"HTTP/1.1 200")
        assert server.end() == 0


ACTIVATE = """
import os, sys
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.executable, [sys.executable, "-m", "servery", *sys.argv[1:]])
"""


class Activated(ServerProcess):
    """A server to which two sockets are passed as systemd does it, named ``web`` and ``admin``."""

    def __init__(self, folder, web, admin, *flags, monkeypatch):
        monkeypatch.setenv("LISTEN_FDS", "2")
        monkeypatch.setenv("LISTEN_FDNAMES", "web:admin")
        launcher = folder / "activate.py"
        launcher.write_text(
            ACTIVATE.replace(
                "import os, sys\n",
                f"import os, sys\nos.dup2({web.fileno()}, 40); os.dup2({admin.fileno()}, 41)\n"
                "os.dup2(40, 3); os.dup2(41, 4); os.close(40); os.close(41)\n",
            )
        )
        fds = (web.fileno(), admin.fileno())
        super().__init__(folder, WHO, *flags, where=(), launcher=launcher, pass_fds=fds)


@pytest.fixture
def passed(tmp_path):
    """Two listening sockets."""
    with socket.create_server(("127.0.0.1", 0)) as web, socket.socket(socket.AF_UNIX) as admin:
        admin.bind(str(tmp_path / "admin"))
        admin.listen()
        yield web, admin


@MODES
def test_sockets_that_systemd_passes_are_served(way, tmp_path, passed, monkeypatch, mode):
    web, admin = passed
    own = f"unix:{tmp_path}/own"  # the admin listener is the server's, with sockets of systemd's or without
    with Activated(tmp_path, web, admin, *mode, "--admin", own, monkeypatch=monkeypatch) as server:
        server.wait_for(rf"http://127\.0\.0\.1:{web.getsockname()[1]} unix:{tmp_path}/admin")
        assert ask(socket.create_connection(web.getsockname()))
        if mode:
            server.signal(signal.SIGUSR2)
            server.wait_for("reloaded")
        other = socket.socket(socket.AF_UNIX)
        other.connect(admin.getsockname())
        assert ask(other)
        assert metrics_of(own)["servery_requests_total GET 200"] == 2
        assert server.stop() == 0
    assert (tmp_path / "admin").exists()  # systemd's
    assert not (tmp_path / "own").exists()


def test_sockets_are_chosen_by_their_names(way, tmp_path, passed, monkeypatch):
    web, admin = passed
    with Activated(tmp_path, web, admin, "--bind", "systemd:admin", monkeypatch=monkeypatch) as server:
        assert "127.0.0.1" not in server.wait_for(r"servery .*unix:.*")[0]
        assert server.stop() == 0


def test_a_name_that_was_not_passed(way, tmp_path, passed, monkeypatch):
    web, admin = passed
    with Activated(tmp_path, web, admin, "--bind", "systemd:wbe", monkeypatch=monkeypatch) as server:
        assert server.end() == 3
    assert "systemd has passed sockets named web, admin" in server.said


def test_no_sockets_were_passed(start):
    with start(where=("--bind", "systemd")) as server:
        assert server.end() == 3
    assert "systemd has passed no socket to this process" in server.said


# --- process 1, and log readers ---------------------------------------------------------------------------


NAMESPACES = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="needs a namespace for processes"
)


def start_as_process_1(start, *mode, **options):
    """A server that is the first process of its namespace."""
    return start(*mode, prefix=("unshare", "--pid", "--fork", "--mount-proc"), **options)


def process_1(server):
    """What ``unshare`` runs."""
    return psutil.Process(server.process.pid).children()[0]


@NAMESPACES
@pytest.mark.parametrize(
    "mode", ((), ("--workers", "2"), ("--reload",)), ids=("one process", "master", "reload")
)
def test_as_process_1_it_stops_in_order(start, mode):
    with start_as_process_1(start, *mode) as server, server.connect() as sock:
        sock.sendall(GET.replace(b"/ ", b"/wait "))
        server.wait_for("entered")
        process_1(server).send_signal(signal.SIGTERM)
        assert read_response(sock)[1].startswith(b"(")
        assert server.end() == 0


@NAMESPACES
@MODES
def test_as_process_1_it_ends_at_the_deadline(start, mode):
    source = """
async def app(scope, receive, send):
    assert scope["type"] == "http"
    print("entered", flush=True)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
"""
    flags = ("--timeout-graceful-shutdown", "0.2", "--timeout-cancel", "0.2")
    with start_as_process_1(start, *mode, *flags, source=source) as server, server.connect() as sock:
        sock.sendall(GET)
        server.wait_for("entered")
        process_1(server).send_signal(signal.SIGTERM)
        assert server.end() == 1


@NAMESPACES
@pytest.mark.parametrize("mode", (("--workers", "2"), ("--reload",)), ids=("master", "reload"))
def test_as_process_1_it_waits_for_those_who_have_lost_their_parents(start, mode):
    source = """
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return await lifespan(receive, send)
    shell = await asyncio.create_subprocess_exec("sh", "-c", "sleep 0.4 & exit 5")
    await respond(send, b"%d" % await shell.wait())
"""
    with start_as_process_1(start, *mode, source=source) as server:

        def sleeping():
            return [each for each in process_1(server).children() if each.name() == "sleep"]

        for _ in range(3):
            with server.connect() as sock:
                sock.sendall(GET)
                assert read_response(sock)[1] == b"5"
        assert len(sleeping()) == 3
        eventually(lambda: not sleeping(), "orphans are waited for")
        process_1(server).send_signal(signal.SIGTERM)
        assert server.end() == 0


@MODES
def test_a_log_reader_that_stops_reading_does_not_stop_the_server(way, tmp_path, mode):
    reading, writing = os.pipe()
    with ServerProcess(tmp_path, WHO, *mode, output=writing) as server:
        os.close(writing)
        said = b""
        while b"http://" not in said:
            said += os.read(reading, 1000)
        port = int(said.rpartition(b":")[2])
        target = b"/" + b"x" * 1000
        with socket.create_connection(("127.0.0.1", port), WAIT) as sock:
            for _ in range(150):  # more than a pipe holds
                sock.sendall(GET.replace(b"/ ", target + b" "))
                assert read_response(sock)[0].startswith(b"HTTP/1.1 200")
        os.set_blocking(reading, False)
        kept = b"".join(iter(lambda: os.read(reading, 1 << 20) if readable(reading) else b"", b""))
        assert b"GET /xxxx" in kept
        server.signal()
        assert eventually(lambda: server.process.poll() is not None)
        assert server.process.returncode == 0
    os.close(reading)


@pytest.mark.parametrize(
    "mode", ((), ("--workers", "2"), ("--reload",)), ids=("one process", "master", "reload")
)
def test_addresses_of_ipv6_are_alike_in_every_mode(start, mode):
    source = """
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return await lifespan(receive, send)
    await respond(send, repr((scope["client"], scope["server"])).encode())
"""
    with start(*mode, where=("--host", "::1", "--port", "0"), source=source) as server:
        port = int(server.wait_for(r"http://\[::1\]:(\d+)")[1])
        with socket.create_connection(("::1", port), WAIT) as sock:
            own = sock.getsockname()[1]
            assert ask(sock) == (("::1", own), ("::1", port))
        server.wait_for(rf"\[::1\]:{own} - - ")
        assert server.stop() == 0


@MODES
def test_a_log_reader_that_is_gone_does_not_stop_the_server(start, mode):
    with start(*mode) as server, server.connect() as sock:
        sock.sendall(GET)
        read_response(sock)
        server.break_output()
        for _ in range(20):
            sock.sendall(GET)
            assert read_response(sock)[0].startswith(b"HTTP/1.1 200")
        if mode:
            os.kill(ask(server.connect())[0], signal.SIGKILL)  # which the master has to tell
            eventually(lambda: len(psutil.Process(server.process.pid).children()) == 2)
            assert ask(server.connect())
        assert server.stop() == 0


def connected(path):
    """A client of the Unix socket `path`; None while nobody listens there."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(path)
    except OSError:
        sock.close()
        return None
    return sock


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="has no device that is always full")
@MODES
def test_a_disk_that_is_full_does_not_stop_the_server(start, tmp_path, mode):
    """Neither under the standard streams nor under a log file of the operator's own."""
    (tmp_path / "logs.toml").write_text(
        """
[handlers.file]
class = "logging.FileHandler"
filename = "/dev/full"
[loggers."servery.access"]
handlers = ["file"]
[loggers."servery.error"]
handlers = ["file"]
"""
    )
    path = str(tmp_path / "s")
    for flags in ((), ("--log-config", "logs.toml")):
        with open("/dev/full", "wb") as full:
            with start(*flags, *mode, where=("--uds", path), output=full.fileno()) as server:
                for _ in range(20):
                    assert ask(eventually(lambda: connected(path)))
                assert server.stop() == 0


def test_workers_that_have_run_out_of_descriptors_serve_those_who_are_connected(start):
    def few():
        import resource  # not everywhere

        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    with start("--workers", "2", source="app = ok", preexec_fn=few) as server, server.connect() as good:
        good.sendall(GET)
        read_response(good)
        socks = [server.connect() for _ in range(256)]
        server.wait_for("cannot accept connections")
        for _ in range(20):
            good.sendall(GET)
            head, _, _ = read_response(good)
            assert head.startswith(b"HTTP/1.1 200")
        for sock in socks:
            sock.close()
        with server.connect() as sock:
            sock.sendall(GET)
            assert read_response(sock)[1] == b"ok"
        assert server.stop() == 0
    assert "Traceback" not in server.said


def test_a_master_without_descriptors_goes_on_and_tries_again(start):
    """What is lacking is lacking for the next worker; the limit is lifted again while the server runs."""
    with start("--workers", "2") as server:
        pid = ask(server.connect())[0]
        psutil.Process(server.process.pid).rlimit(psutil.RLIMIT_NOFILE, (5, 4096))
        os.kill(pid, signal.SIGKILL)
        server.wait_for("cannot start a worker: .*; trying again in 0.5 s")
        assert ask(server.connect())[0] != pid
        psutil.Process(server.process.pid).rlimit(psutil.RLIMIT_NOFILE, (1024, 4096))
        eventually(lambda: len(psutil.Process(server.process.pid).children()) == 2)
        assert server.stop() == 0


def readable(fd):
    """Whether something can be read from a pipe."""
    import select

    return bool(select.select([fd], [], [], 0)[0])


# --- examples ---------------------------------------------------------------------------------------------

EXAMPLES = Path(__file__).parents[1] / "examples" / "deploy"


def needs(program):
    """For a test that runs `program`: left out where that is missing, but never in CI, which installs it."""
    missing = shutil.which(program) is None and not (
        os.environ.get("NOTHING_MISSING") and sys.platform == "linux"
    )
    return pytest.mark.skipif(missing, reason=f"{program} is not installed")


@needs("systemd-analyze")
def test_the_units_for_systemd_are_sound(tmp_path):
    for unit in ("servery.service", "servery.socket"):
        text = (EXAMPLES / unit).read_text()
        (tmp_path / unit).write_text(text.replace("/srv/app/.venv/bin/servery", sys.executable))
    run = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(path) for path in tmp_path.glob("servery.*"))],
        capture_output=True,
        text=True,
        timeout=WAIT * 2,
    )
    assert [line for line in run.stderr.splitlines() if "servery" in line] == []


def nginx(folder, port):
    """The command, and what has to be replaced in its file to run it here."""
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    main = f"daemon off; pid {folder}/pid; error_log stderr; user {getpass.getuser()};"
    command = ["nginx", "-e", "stderr", "-c", f"{folder}/nginx.conf", "-g", main]
    return command, {
        "http {": f"http {{ access_log off; {temporary}",
        "listen 8080": f"listen 127.0.0.1:{port}",
    }


PROXIES = {
    "nginx.conf": nginx,
    "haproxy.cfg": lambda folder, port: (["haproxy", "-db", "-f", f"{folder}/haproxy.cfg"], {}),
    "Caddyfile": lambda folder, port: (
        ["caddy", "run", "--adapter", "caddyfile", "--config", f"{folder}/Caddyfile"],
        {"auto_https off": "auto_https off\nadmin off", ":8080": f":{port}"},
    ),
}


@pytest.mark.parametrize(
    "file",
    [pytest.param(file, marks=needs(make("", 0)[0][0])) for file, make in PROXIES.items()],
)
def test_requests_come_through_the_proxies(start, tmp_path, file):
    """Each proxy runs with its example, in which only addresses and paths are others."""
    path = tmp_path / "servery.sock"
    where = ("--bind", f"unix:{path}", "--bind", "127.0.0.1:0")
    with start("--workers", "2", where=where) as server, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        command, replaced = PROXIES[file](tmp_path, port)
        text = (EXAMPLES / file).read_text()
        replaced |= {"/run/app/servery.sock": str(path), "127.0.0.1:8080": f"127.0.0.1:{port}"}
        for old, new in {**replaced, "127.0.0.1:8000": f"127.0.0.1:{server.port}"}.items():
            text = text.replace(old, new)
        (tmp_path / file).write_text(text)
        with subprocess.Popen(
            command, stderr=subprocess.DEVNULL, env={**os.environ, "HOME": str(tmp_path)}
        ) as proxy:
            try:
                pid = eventually(lambda: answer_through(port), f"an answer through {command[0]}")
            finally:
                proxy.terminate()
        assert pid in {child.pid for child in psutil.Process(server.process.pid).children()}
        assert server.stop() == 0


def answer_through(port):
    """The process id of the worker that answers behind a proxy; None if the proxy does not serve yet."""
    try:
        with socket.create_connection(("127.0.0.1", port), WAIT) as sock:
            sock.sendall(GET)
            head, content, _ = read_response(sock)
            return eval(content)[0] if head.startswith(b"HTTP/1.1 200") else None
    except OSError:
        return None


def test_the_examples_use_flags_that_exist():
    for file in EXAMPLES.iterdir():
        if file.name == "README.md":
            continue
        text = file.read_text()
        for line in text.splitlines():
            if "app:app" in line:
                flags = re.findall(r"--([a-z][a-z-]+)", line)
                assert {flag.replace("-", "_") for flag in flags} <= SETTINGS.keys(), line
