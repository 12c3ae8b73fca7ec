"""Certificates that are replaced while they serve: seen soon, never for worse, and no connection is lost."""

from __future__ import annotations

import threading
import time

import pytest
from harness import eventually, read_response
from sample_apps import ok
from tls_material import Material, secured, shown

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def material(tmp_path):
    return Material(tmp_path)


def served(server, material, name="localhost"):
    """The names in the certificate that a new client gets."""
    client = material.client(check_hostname=False)
    with secured(server, client, name) as sock:
        sock.sendall(GET)
        assert read_response(sock)[1] == b"ok"
        return shown(sock)


def test_a_new_certificate_is_served_within_two_seconds_and_drops_nobody(serve, material):
    path = material.issue("localhost", "one.example")
    done = threading.Event()
    with serve(ok, tls_cert=(path,)) as server:
        failures, count = [], [0]

        def load():
            while not done.is_set():
                try:
                    served(server, material)
                    count[0] += 1
                except OSError as error:
                    failures.append(error)

        thread = threading.Thread(target=load)
        thread.start()
        try:
            with secured(server, material.client()) as kept:
                material.issue("localhost", "two.example")
                begun = time.monotonic()
                eventually(lambda: "two.example" in served(server, material))
                assert time.monotonic() - begun < 2
                kept.sendall(GET)
                assert read_response(kept)[1] == b"ok"
                assert "one.example" in shown(kept)
        finally:
            done.set()
            thread.join()
        assert failures == []
        assert count[0] > 3
        assert server.errors.lines(20)[-1] == ("TLS: read again: 1 certificate(s) for localhost, two.example")


def test_what_cannot_be_used_is_said_once_and_what_is_in_use_stays(serve, material, tmp_path):
    issued = [material.authority.issue_cert("localhost", f"{name}.example") for name in ("one", "two")]
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"

    def write(chain_of, key_of):
        chain.write_bytes(b"".join(part.bytes() for part in chain_of.cert_chain_pems))
        key.write_bytes(key_of.private_key_pem.bytes())

    write(issued[0], issued[0])
    with serve(ok, tls_cert=(str(chain),), tls_key=str(key), tls_watch=0.05) as server:
        write(issued[1], issued[0])  # the key is still to come
        said = server.errors.wait(1)
        time.sleep(0.3)
        assert server.errors.lines() == said
        assert said[0].startswith("TLS: the certificates in use stay, the new ones cannot be used: tls_key")
        assert "one.example" in served(server, material)
        key.unlink()
        assert "cannot be read" in server.errors.wait(2)[1]
        assert "one.example" in served(server, material)
        write(issued[1], issued[1])
        eventually(lambda: "two.example" in served(server, material))


def test_certificates_that_come_and_go(serve, material, tmp_path):
    directory = tmp_path / "certs"
    directory.mkdir()
    issue = material.authority.issue_cert
    Material.write(issue("localhost"), directory / "0.pem")
    with serve(ok, tls_cert=(str(directory),), tls_watch=0.05) as server:
        assert served(server, material, "new.example") == {"localhost"}
        Material.write(issue("new.example"), directory / "1.pem")
        eventually(lambda: served(server, material, "new.example") == {"new.example"})
        (directory / "1.pem").unlink()
        eventually(lambda: served(server, material, "new.example") == {"localhost"})


def test_only_when_told_to(serve, material):
    path = material.issue("localhost", "one.example")
    with serve(ok, tls_cert=(path,), tls_watch=None) as server:
        material.issue("localhost", "two.example")
        time.sleep(0.2)
        assert "one.example" in served(server, material)
        server.server.reload_certificates()
        eventually(lambda: "two.example" in served(server, material))


def test_who_may_issue_certificates_of_clients_is_renewed_too(serve, material, tmp_path):
    (tmp_path / "other").mkdir()
    other = Material(tmp_path / "other")
    own = other.issue("bob", to="bob")
    path, ca = material.issue("localhost"), tmp_path / "clients.pem"
    material.authority.cert_pem.write_to_path(ca)
    settings = {"tls_cert": (path,), "tls_ca": str(ca), "tls_client_cert": "required", "tls_watch": 0.05}

    def accepted():
        with secured(server, material.client(own)) as sock:
            sock.sendall(GET)
            return read_response(sock)[1] == b"ok"

    with serve(ok, **settings) as server:
        with pytest.raises(OSError, match="UNKNOWN_CA|unknown ca"):
            accepted()
        other.authority.cert_pem.write_to_path(ca)
        eventually(lambda: "read again" in " ".join(server.errors.lines()))
        assert accepted()


def test_nothing_looks_any_more_after_the_stop(serve, material):
    def watching():
        return [thread for thread in threading.enumerate() if thread.name == "servery-tls"]

    before = len(watching())
    with serve(ok, tls_cert=(material.issue("localhost"),)):
        assert len(watching()) == before + 1
    eventually(lambda: len(watching()) == before)
    with serve(ok):
        assert len(watching()) == before
