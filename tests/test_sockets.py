"""Listening sockets against the kernel: real ports, real socket files, real child processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from servery.addresses import FdAddress, TcpAddress, UnixAddress
from servery.errors import BindError, ConfigError
from servery.sockets import addresses, bind_all, parse_bind, peer_name, server_name

LINUX = sys.platform == "linux"
CRASHED_SERVER = """
import os, socket, sys
sock = socket.socket(socket.AF_UNIX)
sock.bind(sys.argv[1])
sock.listen()
os._exit(9)
"""
ADOPTING_SERVER = """
import socket, sys
from servery.sockets import bind_all, parse_bind
[listener] = bind_all([parse_bind(sys.argv[1])], uds_mode=None, backlog=5)
listener.sock.setblocking(True)
connection, _ = listener.sock.accept()
connection.sendall(f"{listener.url} {listener.sock.get_inheritable()}".encode())
connection.close()
listener.close()
"""
RIVAL_SERVER = """
import sys
from servery.errors import BindError
from servery.sockets import bind_all, parse_bind
sys.stdin.readline()
try:
    listeners = bind_all([parse_bind(sys.argv[1])], uds_mode=None, backlog=5)
except BindError as error:
    print("lost", error, flush=True)
else:
    print("won", flush=True)
sys.stdin.readline()
"""


@contextlib.contextmanager
def listening(*where, uds_mode=None, backlog=16):
    listeners = bind_all(where, uds_mode=uds_mode, backlog=backlog)
    try:
        yield listeners
    finally:
        for listener in listeners:
            listener.close()


def refused(*where, uds_mode=None):
    with pytest.raises(BindError) as caught, listening(*where, uds_mode=uds_mode):
        pass
    text = str(caught.value)
    assert "\n" not in text
    return text


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def privileged_ports():
    try:
        return int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) > 1
    except FileNotFoundError:
        return sys.platform != "win32"


def exchange(listener):
    """Connect to a listener and carry one octet, to prove that it is the socket it claims to be."""
    with socket.socket(listener.sock.family) as client:
        client.connect(listener.sock.getsockname())
        listener.sock.setblocking(True)
        served, peer = listener.sock.accept()
        with served:
            client.sendall(b"x")
            assert served.recv(1) == b"x"
        return peer


# --- the text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8000", TcpAddress("127.0.0.1", 8000)),
        ("localhost:0", TcpAddress("localhost", 0)),
        ("[::1]:65535", TcpAddress("::1", 65535)),
        ("[fe80::1%eth0]:80", TcpAddress("fe80::1%eth0", 80)),
        (":8000", TcpAddress("", 8000)),
        ("unix:/run/app.sock", UnixAddress("/run/app.sock")),
        ("unix:a b:1.sock", UnixAddress("a b:1.sock")),
        ("unix:@app", UnixAddress("@app")),
        ("fd://0", FdAddress(0)),
        ("fd://12", FdAddress(12)),
    ],
)
def test_a_bind_text_is_read_and_written_back(text, address):
    assert parse_bind(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("", "HOST:PORT"),
        ("8000", "127.0.0.1:8000"),
        ("localhost", "localhost:8000"),
        ("::1:8000", "[::1]:8000"),
        ("[::1]", "[::1]:8000"),
        ("[localhost]:80", "IPv6"),
        ("[]:80", "IPv6"),
        ("http://127.0.0.1:8000", "not a URL"),
        ("127.0.0.1:", "0 to 65535"),
        ("127.0.0.1:65536", "0 to 65535"),
        ("127.0.0.1:-1", "0 to 65535"),
        ("127.0.0.1:+1", "0 to 65535"),
        ("127.0.0.1:８０", "0 to 65535"),
        ("127.0.0.1:" + "9" * 5000, "0 to 65535"),
        ("127.0.0.1/x:80", "host name"),
        ("a b:80", "host name"),
        ("unix:", "unix:/run"),
        ("unix:@", "unix:/run"),
        ("unix:/a\0b", "unix:/run"),
        ("fd://", "fd://3"),
        ("fd://x", "fd://3"),
        ("fd://-1", "fd://3"),
        ("fd:3", "fd://3"),
    ],
)
def test_any_other_text_is_refused_with_the_fix(text, fix):
    with pytest.raises(ConfigError) as caught:
        parse_bind(text)
    assert fix in str(caught.value)
    assert "bind" in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, [TcpAddress("127.0.0.1", 8000)]),
        ({"host": "[::1]", "port": 1}, [TcpAddress("::1", 1)]),
        ({"host": ""}, [TcpAddress("", 8000)]),
        ({"fd": 0}, [FdAddress(0)]),
        ({"fd": 3, "uds": "a.sock"}, [UnixAddress("a.sock")]),
        ({"bind": (":1", "fd://4"), "uds": "a.sock", "fd": 3}, [TcpAddress("", 1), FdAddress(4)]),
    ],
)
def test_bind_wins_over_uds_over_fd_over_host_and_port(fields, expected):
    defaults = {"host": "127.0.0.1", "port": 8000, "uds": None, "fd": None, "bind": ()}
    assert addresses(SimpleNamespace(**(defaults | fields))) == expected


# --- TCP ----------------------------------------------------------------------------------------------


def test_port_zero_gets_a_port_and_the_url_tells_it():
    with listening(TcpAddress("127.0.0.1", 0)) as [listener]:
        port = listener.sock.getsockname()[1]
        assert port
        assert listener.url == f"http://127.0.0.1:{port}"
        assert not listener.sock.getblocking()
        assert not listener.sock.get_inheritable()
        exchange(listener)


def test_ipv6_has_its_brackets_in_the_url():
    with listening(TcpAddress("::1", 0)) as [listener]:
        assert listener.url == f"http://[::1]:{listener.sock.getsockname()[1]}"
        exchange(listener)


def test_ipv4_and_ipv6_wildcards_can_share_a_port():
    port = free_port()
    with listening(TcpAddress("0.0.0.0", port), TcpAddress("::", port)) as listeners:
        assert [one.url for one in listeners] == [f"http://0.0.0.0:{port}", f"http://[::]:{port}"]
        assert listeners[1].sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)


def test_an_empty_host_is_every_interface_with_one_port():
    with listening(TcpAddress("", 0)) as listeners:
        assert {one.sock.getsockname()[0] for one in listeners} == {"0.0.0.0", "::"}
        assert len({one.sock.getsockname()[1] for one in listeners}) == 1


def test_a_name_gives_a_listener_for_each_of_its_addresses():
    found = {info[4][0] for info in socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)}
    with listening(TcpAddress("localhost", 0)) as listeners:
        assert {one.sock.getsockname()[0] for one in listeners} == found


def test_a_second_server_never_shares_the_port():
    with listening(TcpAddress("127.0.0.1", 0)) as [listener]:
        port = listener.sock.getsockname()[1]
        text = refused(TcpAddress("127.0.0.1", port))
        assert not listener.sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)
    assert f"another server is listening on 127.0.0.1:{port}; choose another --port or stop it" in text


def test_a_restart_does_not_wait_for_old_connections():
    with listening(TcpAddress("127.0.0.1", 0)) as [listener]:
        port = listener.sock.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            listener.sock.setblocking(True)
            served, _ = listener.sock.accept()
            served.close()  # we close first, so TIME_WAIT is on our side
            assert client.recv(1) == b""
    with listening(TcpAddress("127.0.0.1", port)) as [listener]:
        exchange(listener)


def test_an_address_of_another_machine():
    assert "no interface of this machine" in refused(TcpAddress("192.0.2.1", 0))


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 64, "a..b", "\udcff"])
def test_a_name_that_does_not_resolve(host):
    assert "does not resolve" in refused(TcpAddress(host, 0))


@pytest.mark.skipif(not privileged_ports(), reason="this system lets every user bind every port")
def test_a_privileged_port_is_explained():
    code = """
import encodings.idna, os  # all imports come first: afterwards the interpreter may be out of reach
from servery.errors import BindError
from servery.sockets import bind_all, parse_bind
os.geteuid() or os.setresuid(65534, 65534, 65534)
try:
    bind_all([parse_bind("127.0.0.1:1")], uds_mode=None, backlog=1)
except BindError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "127.0.0.1:1: permission denied" in done.stdout, done.stderr
    assert "--port from 1024" in done.stdout


def test_all_or_none(tmp_path):
    port, path = free_port(), tmp_path / "s.sock"
    with listening(TcpAddress("127.0.0.1", 0)) as [other]:
        taken = TcpAddress("127.0.0.1", other.sock.getsockname()[1])
        text = refused(TcpAddress("127.0.0.1", port), UnixAddress(str(path)), taken)
    assert f"cannot listen on {taken}" in text
    assert not path.exists()
    with listening(TcpAddress("127.0.0.1", port)) as [listener]:
        exchange(listener)


# --- Unix sockets -------------------------------------------------------------------------------------


def test_a_unix_socket_lives_as_long_as_its_listener(tmp_path):
    path = tmp_path / "s.sock"
    with listening(UnixAddress(str(path))) as [listener]:
        assert listener.url == f"unix:{path}"
        assert server_name(listener.sock.getsockname()) == (str(path), None)
        assert peer_name(exchange(listener)) is None
        assert not listener.sock.get_inheritable()
    assert not path.exists()
    listener.close()  # once more does no harm


def test_a_stale_socket_of_a_crashed_server_is_replaced(tmp_path):
    path = tmp_path / "s.sock"
    assert subprocess.run([sys.executable, "-c", CRASHED_SERVER, path]).returncode == 9
    assert stat.S_ISSOCK(path.lstat().st_mode)
    with listening(UnixAddress(str(path))) as [listener]:
        exchange(listener)


def test_the_live_socket_of_another_server_is_left_alone(tmp_path):
    path = tmp_path / "s.sock"
    with listening(UnixAddress(str(path))) as [listener]:
        before = path.lstat()
        assert "in use" in refused(UnixAddress(str(path)))
        assert os.path.samestat(path.lstat(), before)
        listener.sock.setblocking(True)
        listener.sock.accept()[0].close()  # the probe
        exchange(listener)


def test_a_server_whose_backlog_is_full_is_alive(tmp_path):
    path = tmp_path / "s.sock"
    with listening(UnixAddress(str(path)), backlog=0), contextlib.ExitStack() as clients:
        while True:
            client = clients.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            if client.connect_ex(str(path)):
                break
        assert "in use" in refused(UnixAddress(str(path)))


@pytest.mark.parametrize("kind", ["file", "directory", "symlink", "fifo"])
def test_what_is_not_a_socket_is_never_removed(tmp_path, kind):
    path, target = tmp_path / "s.sock", tmp_path / "data"
    target.write_text("precious")
    {
        "file": lambda: path.write_text("precious"),
        "directory": path.mkdir,
        "symlink": lambda: path.symlink_to(target),
        "fifo": lambda: os.mkfifo(path),
    }[kind]()
    before = path.lstat()
    assert "not a socket" in refused(UnixAddress(str(path)))
    assert os.path.samestat(path.lstat(), before)
    assert target.read_text() == "precious"


def test_a_socket_of_another_type_is_left_alone(tmp_path):
    path = tmp_path / "log"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(path))
        assert "cannot tell" in refused(UnixAddress(str(path)))
        assert path.exists()


def test_a_socket_that_is_bound_but_does_not_listen_yet_is_not_taken_for_stale(tmp_path):
    """It refuses connections as a stale one does; who binds holds a lock until it listens."""

    path, outcome = tmp_path / "s.sock", []
    rival = threading.Thread(target=lambda: outcome.append(refused(UnixAddress(str(path)))))
    directory = os.open(tmp_path, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as sock:
        fcntl.flock(directory, fcntl.LOCK_EX)
        sock.bind(str(path))
        before = path.lstat()
        rival.start()
        rival.join(0.2)
        assert rival.is_alive()
        sock.listen()
        os.close(directory)
        rival.join(10)
        assert "in use" in outcome[0]
        assert os.path.samestat(path.lstat(), before)


def test_a_lock_that_is_never_released_does_not_stop_the_start(tmp_path, monkeypatch):

    monkeypatch.setattr("servery.sockets.LOCK_PATIENCE", 0.05)
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        with listening(UnixAddress(str(tmp_path / "s.sock"))) as [listener]:
            exchange(listener)
    finally:
        os.close(directory)


def test_of_servers_that_race_for_a_stale_socket_one_wins(tmp_path):
    path = tmp_path / "s.sock"
    subprocess.run([sys.executable, "-c", CRASHED_SERVER, path])
    command = [sys.executable, "-c", RIVAL_SERVER, f"unix:{path}"]
    with contextlib.ExitStack() as stack:
        rivals = [
            stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(4)
        ]
        for rival in rivals:
            rival.stdin.write("go\n")
            rival.stdin.flush()
        results = sorted(rival.stdout.readline().split()[0] for rival in rivals)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
        for rival in rivals:
            rival.communicate("stop\n")
    assert results == ["lost", "lost", "lost", "won"]


def test_close_does_not_remove_the_socket_of_a_successor(tmp_path):
    path = tmp_path / "s.sock"
    [old] = bind_all([UnixAddress(str(path))], uds_mode=None, backlog=5)
    path.unlink()
    with listening(UnixAddress(str(path))) as [successor]:
        old.close()
        exchange(successor)
    assert not path.exists()


def test_close_finds_a_relative_path_again_after_chdir(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    [listener] = bind_all([UnixAddress("s.sock")], uds_mode=None, backlog=5)
    assert listener.url == "unix:s.sock"
    monkeypatch.chdir("/")
    listener.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o600, 0o660, 0o666, 0o777])
def test_the_mode_is_the_one_asked_for_whatever_the_umask(tmp_path, mode):
    path = tmp_path / "s.sock"
    umask = os.umask(0o077)
    try:
        with listening(UnixAddress(str(path)), uds_mode=mode):
            assert stat.S_IMODE(path.stat().st_mode) == mode
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(umask)


def test_without_a_mode_the_umask_decides(tmp_path):
    path = tmp_path / "s.sock"
    umask = os.umask(0o027)
    try:
        with listening(UnixAddress(str(path))):
            assert stat.S_IMODE(path.stat().st_mode) == 0o750
    finally:
        os.umask(umask)


def test_nobody_can_connect_before_the_mode_is_set(tmp_path):
    """A client that tries all the time gets its first connection from a socket that has its mode."""
    path = tmp_path / "s.sock"
    modes, connected, stop = [], threading.Event(), threading.Event()

    def client():
        while not stop.is_set():
            with socket.socket(socket.AF_UNIX) as sock:
                try:
                    sock.connect(str(path))
                except OSError:
                    continue
                modes.append(stat.S_IMODE(path.stat().st_mode))
                connected.set()
                return

    thread = threading.Thread(target=client)
    thread.start()
    try:
        with listening(UnixAddress(str(path)), uds_mode=0o640):
            assert connected.wait(10)
    finally:
        stop.set()
        thread.join()
    assert modes == [0o640]


@pytest.mark.skipif(not LINUX, reason="traces system calls of the Linux interpreter")
def test_the_mode_is_set_before_listen(tmp_path):
    """The order of the steps themselves, which a racing client can only sample."""
    steps = []

    def hook(frame, event, argument):
        if event == "c_call" and argument.__name__ in ("bind", "chmod", "listen"):
            steps.append(argument.__name__)

    sys.setprofile(hook)
    try:
        listeners = bind_all([UnixAddress(str(tmp_path / "s.sock"))], uds_mode=0o600, backlog=5)
    finally:
        sys.setprofile(None)
    listeners[0].close()
    assert steps == ["bind", "chmod", "listen"]


def test_a_failure_after_bind_leaves_no_file(tmp_path):
    with pytest.raises(OverflowError):
        bind_all([UnixAddress(str(tmp_path / "s.sock"))], uds_mode=0o600, backlog=1 << 40)
    assert list(tmp_path.iterdir()) == []


def test_unix_paths_that_cannot_be_bound(tmp_path):
    assert "directory does not exist" in refused(UnixAddress(str(tmp_path / "none" / "s.sock")))
    (tmp_path / "file").touch()
    assert "directory does not exist" in refused(UnixAddress(str(tmp_path / "file" / "s.sock")))
    assert "at most about 100 bytes" in refused(UnixAddress(str(tmp_path / ("x" * 120))))


@pytest.mark.skipif(not LINUX, reason="abstract names exist on Linux only")
def test_abstract_names():
    name = f"@servery-test-{os.getpid()}"
    with listening(UnixAddress(name)) as [listener]:
        assert listener.url == f"unix:{name}"
        assert server_name(listener.sock.getsockname()) == (name, None)
        exchange(listener)
        assert "in use" in refused(UnixAddress(name))
    with listening(UnixAddress(name)) as [listener]:
        exchange(listener)


# --- inherited descriptors ----------------------------------------------------------------------------


@pytest.mark.parametrize("prepared", ["bound", "listening"])
def test_a_descriptor_of_the_parent(prepared):
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        if prepared == "listening":
            sock.listen(5)
        fd = sock.fileno()
        command = [sys.executable, "-c", ADOPTING_SERVER, f"fd://{fd}"]
        with subprocess.Popen(command, pass_fds=[fd]):
            assert first_answer(sock) == f"http://127.0.0.1:{sock.getsockname()[1]} False"


def test_descriptor_zero():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        command = [sys.executable, "-c", ADOPTING_SERVER, "fd://0"]
        with subprocess.Popen(command, stdin=sock):
            assert first_answer(sock) == f"http://127.0.0.1:{sock.getsockname()[1]} False"


def first_answer(sock):
    """Connect until somebody listens, then read to the end."""
    while True:
        with socket.socket(sock.family) as client:
            if client.connect_ex(sock.getsockname()) == 0:
                return b"".join(iter(lambda: client.recv(4096), b"")).decode()


def test_the_original_descriptor_stays_open_and_its_file_too(tmp_path):
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        with listening(FdAddress(sock.fileno())) as [listener]:
            assert listener.url == f"unix:{path}"
            assert listener.sock.fileno() != sock.fileno()
            exchange(listener)
        os.fstat(sock.fileno())
        assert path.exists()


def test_an_inherited_ipv6_socket():
    with contextlib.closing(socket.create_server(("::1", 0), family=socket.AF_INET6)) as sock:
        [listener] = bind_all([FdAddress(sock.fileno())], uds_mode=None, backlog=5)
        assert listener.url == f"http://[::1]:{sock.getsockname()[1]}"
        exchange(listener)
        listener.close()


def test_descriptors_that_cannot_be_listened_on(tmp_path):
    with socket.socket() as sock:
        assert "not bound" in refused(FdAddress(sock.fileno()))
        number = sock.fileno()
    assert "not open" in refused(FdAddress(number))
    assert "not open" in refused(FdAddress(1 << 80))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        assert "stream socket" in refused(FdAddress(sock.fileno()))
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.connect(server.getsockname())
        assert "cannot be listened on" in refused(FdAddress(client.fileno()))
    with socket.socket(socket.AF_UNIX) as sock:
        assert "not bound" in refused(FdAddress(sock.fileno()))
    with open(tmp_path / "file", "w") as file:
        assert "not a socket" in refused(FdAddress(file.fileno()))
        os.fstat(file.fileno())


# --- names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "peer", "server"),
    [
        (("127.0.0.1", 80), ("127.0.0.1", 80), ("127.0.0.1", 80)),
        (("::1", 80, 0, 0), ("::1", 80), ("::1", 80)),
        (("fe80::1%eth0", 80, 0, 2), ("fe80::1", 80), ("fe80::1", 80)),
        ("/run/s.sock", None, ("/run/s.sock", None)),
        ("", None, None),
        (b"", None, None),
        (b"\0name", None, ("@name", None)),
        (b"\0\xff\0x", None, ("@\\xff\0x", None)),
        (b"/path", None, ("/path", None)),
        (None, None, None),
        ((), None, None),
        (("127.0.0.1",), None, None),
        ((1, 2), None, None),
        (("eth0", "x"), None, None),
        (7, None, None),
    ],
)
def test_names_for_the_scope(name, peer, server):
    assert peer_name(name) == peer
    assert server_name(name) == server
