"""The byte grammar on its own: what each pattern takes whole, and what it does not."""

from __future__ import annotations

import re

import pytest

from servery import grammar

EVERY = bytes(range(256))


def taken(pattern: re.Pattern[bytes], before: bytes = b"", after: bytes = b"") -> bytes:
    """The octets that may stand between `before` and `after`."""
    return bytes(octet for octet in EVERY if pattern.fullmatch(before + bytes([octet]) + after))


def test_token_octets() -> None:
    letters = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    assert taken(grammar.TOKEN) == bytes(sorted(letters + b"!#$%&'*+-.^_`|~"))
    assert not grammar.TOKEN.fullmatch(b"")


def test_octets_of_a_target() -> None:
    visible = bytes(range(0x21, 0x7F)).replace(b"#", b"")
    assert taken(grammar.REQUEST_LINE, b"GET /", b" HTTP/1.1") == visible
    assert taken(grammar.ORIGIN_LINE, b"GET /", b" HTTP/1.1\r\n") == visible


def test_octets_of_a_value() -> None:
    assert taken(grammar.FIELD_LINE, b"a:x", b"y") == b"\t" + bytes(range(0x20, 0x7F)) + bytes(
        range(0x80, 0x100)
    )


def test_controls_are_what_no_value_holds() -> None:
    taken_by_value = taken(grammar.FIELD_LINE, b"a:x", b"y")
    assert set(grammar.CONTROLS) == set(EVERY) - set(taken_by_value)
    for octet in EVERY:
        assert grammar.has_control(b"ab" + bytes([octet])) is (octet in grammar.CONTROLS)
        assert grammar.has_control(b"\xe9" + bytes([octet])) is (octet in grammar.CONTROLS)
    assert not grammar.has_control(b"")


@pytest.mark.parametrize(
    ("line", "groups"),
    [
        (b"GET / HTTP/1.1\r\n", (b"GET", b"/", b"/", None, b"1")),
        (b"PUT /a?b HTTP/1.0\r\n", (b"PUT", b"/a?b", b"/a", b"b", b"0")),
        (b"GET /a?b?c HTTP/1.1\r\n", (b"GET", b"/a?b?c", b"/a", b"b?c", b"1")),
        (b"GET /? HTTP/1.1\r\n", (b"GET", b"/?", b"/", b"", b"1")),
    ],
)
def test_ordinary_request_line(line: bytes, groups: tuple[bytes | None, ...]) -> None:
    match = grammar.ORIGIN_LINE.match(line + b"Host: a\r\n")
    assert match is not None
    assert match.groups() == groups
    assert match.end() == len(line)


@pytest.mark.parametrize(
    "line",
    [
        b"GET / HTTP/1.2\r\n",
        b"GET a HTTP/1.1\r\n",
        b"GET / HTTP/1.1\n",
        b" GET / HTTP/1.1\r\n",
        b"GET / HTTP/1.1",
    ],
)
def test_line_that_is_not_ordinary(line: bytes) -> None:
    assert grammar.ORIGIN_LINE.match(line) is None


def test_octets_of_a_host() -> None:
    letters = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    assert taken(grammar.HOST, b"a", b"b") == bytes(sorted(letters + b"-._~!$&'()*+;="))


@pytest.mark.parametrize("text", [b"a", b"a:", b"a:12345", b"[::1]:1", b"[v1.x]", b"%41", b"a" * 100_000])
def test_host(text: bytes) -> None:
    assert grammar.HOST.fullmatch(text)


@pytest.mark.parametrize(
    "text", [b"", b":1", b"a:123456", b"[]", b"[::1", b"[v.x]", b"%4", b"a,b", b"[::1]a", b"a:b"]
)
def test_no_host(text: bytes) -> None:
    assert not grammar.HOST.fullmatch(text)


@pytest.mark.parametrize(
    ("line", "size", "extensions"),
    [
        (b"0", b"0", b""),
        (b"fF09", b"fF09", b""),
        (b"1" * 16, b"1" * 16, b""),
        (b"1;a", b"1", b";a"),
        (b"1 ; a = b", b"1", b" ; a = b"),
        (b'1;a="";b="\\"\\\\";c', b"1", b';a="";b="\\"\\\\";c'),
    ],
)
def test_chunk_line(line: bytes, size: bytes, extensions: bytes) -> None:
    match = grammar.CHUNK_LINE.fullmatch(line)
    assert match is not None
    assert match.groups() == (size, extensions)


@pytest.mark.parametrize(
    "line", [b"", b"g", b"1" * 17, b"1;", b"1 ", b"1;a=", b'1;a="', b'1;a="\x7f"', b'1;a="\\\x00"']
)
def test_no_chunk_line(line: bytes) -> None:
    assert not grammar.CHUNK_LINE.fullmatch(line)


@pytest.mark.parametrize(
    ("values", "members"),
    [
        ([], []),
        ([b""], []),
        ([b" , ,\t"], []),
        ([b"A , b\t,c"], [b"a", b"b", b"c"]),
        ([b"a", b"", b"B,c"], [b"a", b"b", b"c"]),
        ([b"\xa0a"], [b"\xa0a"]),
    ],
)
def test_list_members(values: list[bytes], members: list[bytes]) -> None:
    assert grammar.list_members(values) == members


def test_no_group_is_repeated_possessively() -> None:
    """The `re` of Python 3.11.0 to 3.11.4 gets that wrong."""
    patterns = [thing.pattern for thing in vars(grammar).values() if isinstance(thing, re.Pattern)]
    without_classes = [re.sub(rb"\[(?:\\.|[^\]\\])*\]", b"x", pattern) for pattern in patterns]
    assert len(patterns) > 5
    assert [each for each in without_classes if re.search(rb"\)(?:[*+?]|\{[^}]*\})\+", each)] == []


def test_matching_is_linear() -> None:
    """What a backtracking matcher would need ages for."""
    for line in (
        b"1" + b";a=b" * 4000 + b"\0",
        b"1" + b";a" * 8000 + b"=",
        b'1;a="' + b"\\\\" * 8000,
        b"1; " + b"a" * 16000 + b" \0",
    ):
        assert not grammar.CHUNK_LINE.fullmatch(line)
    assert not grammar.HOST.fullmatch(b"a" * 16000 + b"%4")
    assert not grammar.ORIGIN_LINE.match(b"GET /" + b"a" * 8000 + b"?" + b"b" * 8000 + b" HTTP/1.2\r\n")
