"""What the application sees of the target: octets as received, and text decoded once."""

from __future__ import annotations

import pytest
from harness import read_response
from sample_apps import Echo, seen

PATHS = {
    b"/%80%81%f5": "/\ufffd\ufffd\ufffd",
    b"/%C3%B6/": "/ö/",
    b"/%c3%b6": "/ö",
    b"/%zz%": "/%zz%",
    b"/a%2Fb": "/a/b",
    b"/%2525": "/%25",
    b"/%E2%82": "/\ufffd",
    b"/%00": "/\0",
    b"//x": "//x",
    b"/a;b=1": "/a;b=1",
    b"/a/../b/./c": "/a/../b/./c",
    b"/a+b": "/a+b",
    b'/a|b{c}^`"<>\\': '/a|b{c}^`"<>\\',
    b"/": "/",
}


def ask(server, target, headers=b""):
    with server.connect() as sock:
        sock.sendall(b"GET %b HTTP/1.1\r\nHost: a\r\n%b\r\n" % (target, headers))
        head, content, _ = read_response(sock)
        assert head.startswith(b"HTTP/1.1 200")
        return seen(content)


def test_the_raw_path_is_what_was_received_and_the_path_is_decoded_once(serve):
    with serve(Echo()) as server:
        for raw, path in PATHS.items():
            facts = ask(server, raw + b"?q=%20&r=%C3%B6?/+")
            assert facts["raw_path"] == raw
            assert facts["path"] == path
            assert facts["query_string"] == b"q=%20&r=%C3%B6?/+"
            assert facts["root_path"] == ""


@pytest.mark.parametrize(
    ("target", "query"), ((b"/x", b""), (b"/x?", b""), (b"/x??a", b"?a"), (b"/x?a=/?b", b"a=/?b"))
)
def test_the_query_begins_at_the_first_question_mark(serve, target, query):
    with serve(Echo()) as server:
        facts = ask(server, target)
    assert (facts["raw_path"], facts["query_string"]) == (b"/x", query)


def test_a_prefix_is_part_of_the_path_and_not_of_the_log(serve):
    with serve(Echo(), root_path="/api") as server:
        facts = ask(server, b"/x%20y?q")
        (line,) = server.access.wait(1)
    assert facts["root_path"] == "/api"
    assert facts["path"] == "/api/x y"
    assert facts["raw_path"] == b"/api/x%20y"
    assert '"GET /x%20y?q HTTP/1.1"' in line


def test_no_field_of_the_client_moves_the_prefix(serve):
    fields = b"SCRIPT_NAME: /x\r\nScript-Name: /x\r\nX-Script-Name: /x\r\nX-Forwarded-Prefix: /x\r\n"
    with serve(Echo()) as server:
        facts = ask(server, b"/x/admin", fields)
    assert (facts["root_path"], facts["path"], facts["raw_path"]) == ("", "/x/admin", b"/x/admin")


def test_the_whole_server_can_be_asked(serve):
    with serve(Echo()) as server, server.connect() as sock:
        sock.sendall(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
        facts = seen(read_response(sock)[1])
    assert (facts["path"], facts["raw_path"]) == ("*", b"*")


def test_an_absolute_target_without_path_is_the_root(serve):
    with serve(Echo()) as server:
        facts = ask(server, b"http://b?q")
    assert (facts["path"], facts["query_string"]) == ("/", b"q")
    assert (b"host", b"b") in facts["headers"]


@pytest.mark.parametrize(
    "target", (b"/a#f", b"/p?#f", b"/\xc3\xb6", b"/a b", b"x", b"*", b"ftp://a/", b"http://u@a/")
)
def test_targets_that_are_none(serve, target):
    with serve(Echo()) as server:
        received = server.raw(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % target)
    assert received.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("method", (b"GET", b"QUERY", b"get", b"M-SEARCH", b"X" * 100))
def test_any_method_arrives_as_it_is(serve, method):
    with serve(Echo()) as server, server.connect() as sock:
        sock.sendall(b"%b / HTTP/1.1\r\nHost: a\r\n\r\n" % method)
        assert seen(read_response(sock)[1])["method"] == method.decode()


def test_field_names_are_lower_case_and_values_are_stripped_of_blanks_only(serve):
    fields = b"X-A: \t a\xa0 \t\r\nx-a:\r\nX-B: \xc3\xb6\r\n"
    with serve(Echo()) as server:
        headers = ask(server, b"/", fields)["headers"]
    assert headers == [(b"host", b"a"), (b"x-a", b"a\xa0"), (b"x-a", b""), (b"x-b", b"\xc3\xb6")]
