"""Where servers listen and who their clients are, as the application and the log tell it."""

from __future__ import annotations

import os
import socket
import stat

from harness import WAIT, read_response
from process import ServerProcess
from sample_apps import Echo, seen

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


def ask(sock):
    """What the application sees of a request on `sock`."""
    sock.sendall(GET)
    return seen(read_response(sock)[1])


def test_ipv4(serve):
    with serve(Echo()) as server, server.connect() as sock:
        facts = ask(sock)
        assert facts["client"] == sock.getsockname()
        assert facts["server"] == ("127.0.0.1", server.port)


def test_ipv6_has_two_members_too(serve):
    with serve(Echo(), host="::1") as server, server.connect() as sock:
        facts = ask(sock)
        assert facts["client"] == ("::1", sock.getsockname()[1])
        assert facts["server"] == ("::1", server.port)
        assert server.server.urls == [f"http://[::1]:{server.port}"]
        (line,) = server.access.wait(1)
    assert line.startswith(f"[::1]:{facts['client'][1]} ")


def test_a_unix_socket_has_no_client(serve, tmp_path):
    path = str(tmp_path / "s")
    with serve(Echo(), uds=path) as server, server.connect() as sock:
        facts = ask(sock)
        (line,) = server.access.wait(1)
    assert facts["client"] is None
    assert facts["server"] == (path, None)
    assert line.startswith("- - - [")
    assert not os.path.exists(path)


def test_forwarded_field_are_only_fields(serve):
    fields = b"X-Forwarded-For: 6.6.6.6\r\nX_Forwarded_For: 7.7.7.7\r\nForwarded: for=8.8.8.8\r\n"
    with serve(Echo()) as server, server.connect() as sock:
        sock.sendall(GET[:-2] + fields + b"\r\n")
        facts = seen(read_response(sock)[1])
        assert facts["client"] == sock.getsockname()


def test_several_listeners_of_one_server(serve, tmp_path):
    path = str(tmp_path / "s")
    with serve(Echo(), bind=("127.0.0.1:0", "[::1]:0", f"unix:{path}")) as server:
        servers = []
        for listener in server.server.sockets:
            with socket.socket(listener.family) as sock:
                sock.settimeout(WAIT)
                sock.connect(listener.getsockname())
                servers.append(ask(sock)["server"])
    assert servers[0][0] == "127.0.0.1"
    assert servers[1][0] == "::1"
    assert servers[2] == (path, None)


def test_a_unix_socket_of_a_process(tmp_path, way):
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(path)  # what a crash leaves behind
    flags = ("--uds-mode", "660")
    with ServerProcess(tmp_path, "app = Echo()", *flags, where=("--uds", path)) as server:
        server.wait_for(r"· unix:\S+")
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o660
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(path)
            assert ask(sock)["server"] == (path, None)
        other = tmp_path / "other"
        other.mkdir()
        with ServerProcess(other, "app = ok", where=("--uds", path)) as second:
            assert second.end() == 3
            assert "in use" in second.said
            assert "Traceback" not in second.said
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(path)
            assert ask(sock)["server"] == (path, None)
        assert server.stop() == 0
    assert not os.path.exists(path)


def test_what_is_no_socket_stays(tmp_path, way):
    path = tmp_path / "file"
    path.write_text("hi\n")
    with ServerProcess(tmp_path, "app = ok", where=("--uds", str(path))) as server:
        assert server.end() == 3
    assert path.read_text() == "hi\n"


def test_a_descriptor_of_the_parent(tmp_path, way):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        fd = listener.fileno()
        where = ("--fd", str(fd))
        with ServerProcess(tmp_path, "app = Echo()", where=where, pass_fds=(fd,)) as server:
            with socket.create_connection(listener.getsockname(), WAIT) as sock:
                assert ask(sock)["server"] == listener.getsockname()
            assert server.stop() == 0


def test_a_second_server_on_the_same_port_does_not_start(tmp_path, way):
    other = tmp_path / "other"
    other.mkdir()
    with ServerProcess(tmp_path, "app = ok") as first:
        where = ("--port", str(first.port))
        with ServerProcess(other, "app = ok", where=where) as second:
            assert second.end() == 3
            assert "Traceback" not in second.said
            assert str(first.port) in second.said
        assert first.stop() == 0
