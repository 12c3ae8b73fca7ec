"""Requests broken by chance: what fuzzers feed. See `fuzz.chance` for where chance comes from."""

from __future__ import annotations

from corpus.http1_cases import CASES

from fuzz.chance import Chance

LONGEST = 1000
SEEDS = [case.data for case in CASES if len(case.data) <= LONGEST]
"""The cases of the corpus that are short enough to be broken thousands of times a second."""

GOOD = [case.data for case in CASES if case.accept and not case.reject and len(case.data) <= LONGEST]
KEPT = [case.data for case in CASES if case.data in GOOD and case.accept and case.accept.keep_alive]
"""Those that are served, and those of them after which the connection lives on."""

ODD = (
    *(
        b"\r",
        b"\n",
        b"\r\n",
        b"\r\n\r\n",
        b"\x00",
        b" ",
        b"\t",
        b":",
        b",",
        b";",
        b"0",
        b"\xff",
        b"\x7f",
        b'"',
    ),
    *(
        b"GET / HTTP/1.1\r\n",
        b"HEAD /x?y=%20 HTTP/1.1\r\nHost: b\r\n\r\n",
        b"Host: a\r\n",
        b"TE: trailers\r\n",
    ),
    *(b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n"),
    *(b"Connection: close\r\n", b"Connection: keep-alive\r\n", b"Connection: upgrade\r\nUpgrade: x\r\n"),
    *(b"0\r\n\r\n", b"5\r\nhello\r\n", b"Accept: */*\r\n", b"x: " + b"v" * 60 + b"\r\n"),
)
"""Octets and lines that decide something."""


# --- cases of the corpus ------------------------------------------------------------------------------


def broken(chance: Chance) -> bytes:
    """One case, or a few in a row, or two spliced; often with octets changed, put in, left out or repeated.

    Most of them begin well, so that there is something to answer.
    """
    data = bytearray()
    for _ in range(chance.pick((0, 0, 1, 1, 2))):
        data += _one(KEPT, chance)
    data += _one(GOOD if chance.flag(0.6) else SEEDS, chance)
    if chance.flag(0.2):
        other = _one(SEEDS, chance)
        data[_place(data, chance) :] = other[_place(other, chance) :]
    for _ in range(chance.pick((0, 0, 0, 1, 1, 2, 3))):
        _break(data, chance)
    return bytes(data) or b"\r"


def _one(cases: list[bytes], chance: Chance) -> bytes:
    return cases[chance.below(len(cases))]


def _place(data: bytes | bytearray, chance: Chance) -> int:
    return chance.below(len(data) + 1)


def _break(data: bytearray, chance: Chance) -> None:
    at = _place(data, chance)
    way = chance.below(4)
    if way == 0:
        data[at : at + 1] = bytes((chance.octet(),))
    elif way == 1:
        if chance.flag():
            at = data.find(b"\n", at) + 1  # of the line behind, or of the first one
        data[at:at] = chance.pick(ODD)
    elif way == 2:
        del data[at : at + 1 + chance.below(20)]
    else:
        data[at:at] = data[at : at + 1 + chance.below(40)] * (1 + chance.below(3))


# --- requests made of parts ---------------------------------------------------------------------------

_METHODS = (b"GET", b"GET", b"POST", b"POST", b"HEAD", b"OPTIONS", b"PUT", b"get", b"X" * 20, b"CONNECT")
_TARGETS = (
    *(b"/", b"/", b"/a/b?c=d", b"/%20%2F?q=%3F", b"/?", b"/a?b?c", b"//a", b"/\xc3\xa9", b"/a#b", b"*"),
    *(b"http://a.test/x?y", b"http://a.test", b"HTTPS://b:80?z", b"http://a b/", b"a.test:80", b"", b"/ x"),
    b"/" + b"t" * 70,
)
_VERSIONS = (b"1.1", b"1.1", b"1.1", b"1.1", b"1.0", b"1.2", b"2.0", b"0.9", b"1.10")
_FRAMING = (
    *((b"Content-Length", value) for value in (b"0", b"5", b"5", b"7", b"05", b"+5", b"5,5", b"")),
    *((b"Content-Length", value) for value in (b"9" * 18, b"9" * 19, b"9223372036854775808", b"0" * 25)),
    *((b"Transfer-Encoding", value) for value in (b"chunked", b"chunked", b"Chunked", b"gzip, chunked")),
    *(
        (b"Transfer-Encoding", value)
        for value in (b"identity", b"chunked, chunked", b",chunked,", b"xchunked")
    ),
    *((b"Connection", value) for value in (b"close", b"Keep-Alive", b"keep-alive, close", b"upgrade", b"te")),
    *((b"Expect", value) for value in (b"100-continue", b"100-Continue", b"200-ok")),
    *((b"TE", value) for value in (b"trailers", b"trailers, deflate;q=0.5", b"gzip")),
    *((b"Upgrade", value) for value in (b"h2c", b"websocket")),
    *((b"Host", value) for value in (b"b.test", b"", b"[::1]:80", b"a b", b"a:99999", b"a,b")),
)
_PLAIN = (
    *(
        (b"Accept", b"*/*"),
        (b"User-Agent", b"x/1.0"),
        (b"Cookie", b"a=b; c=d"),
        (b"X", b""),
        (b"x-a", b"v" * 62),
    ),
    *(
        (b"User-Agent", b"w" * 255),
        (b"N" * 65, b"v"),
        (b"X-Odd", b"\x80\xff\t\xfe"),
        (b"Accept-Encoding", b"br"),
    ),
)
_BAD = (
    (b"X Y", b"v"),
    (b"", b"v"),
    (b"X-Nul", b"a\0b"),
    (b"X-Cr", b"a\rb"),
    (b" X", b"fold"),
    (b"X\xe9", b"v"),
)
FIELDS = (*_FRAMING, *_FRAMING, *_PLAIN, *_PLAIN, *_BAD)
"""Field lines, those that matter twice; a few of them are none."""
_SPACES = ((b" ", b""), (b" ", b""), (b" ", b""), (b"", b""), (b"\t ", b" "), (b" ", b"\t"), (b"  ", b"  "))
_BODIES = (
    *(b"", b"", b"hello", b"hello", b"5\r\nhello\r\n0\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n", b"0\r\n\r\n"),
    *(b"2;a=b\r\nhe\r\n3;c\r\nllo\r\n0\r\n\r\n", b"5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n", b"5\r\nhelloX"),
    *(
        b"0\r\nTrailer: x\r\n\r\n",
        b"00000000000000005\r\nhello\r\n0\r\n\r\n",
        b"g\r\n",
        b"8000000000000000\r\n",
    ),
    *(b"5 \r\nhello\r\n0\r\n\r\n", b"A\r\n0123456789\r\n0\r\n\r\n", b"5\nhello\n0\n\n"),
)


def composed(chance: Chance) -> bytes:
    """Requests put together from lines that matter, of which every combination may come."""
    return b"".join(_compose(chance) for _ in range(chance.pick((1, 1, 2, 3)))) + chance.pick(
        (*KEPT[:3], b"")
    )


def _compose(chance: Chance) -> bytes:
    usual = chance.flag(0.7)
    version = b"1.1" if usual else chance.pick(_VERSIONS)
    parts = [
        chance.pick(_METHODS),
        b" ",
        chance.pick(_TARGETS[:4] if usual else _TARGETS),
        b" HTTP/",
        version,
        b"\r\n",
    ]
    if chance.flag(0.9):
        parts.append(b"Host: a%d.test\r\n" % chance.below(2000) if chance.flag(0.2) else b"Host: a.test\r\n")
    for _ in range(chance.pick((0, 1, 1, 2, 2, 3, 5))):
        name, value = chance.pick(FIELDS)
        if chance.flag(0.2):
            name = name.lower() if chance.flag() else name.upper()
        before, after = chance.pick(_SPACES)
        parts += (name, b":", before, value, after, b"\r\n")
    parts += (b"\r\n", chance.pick(_BODIES))
    return b"".join(parts)


def upload(chance: Chance) -> bytes:
    """A good request with a small body, and another request behind it."""
    content = bytes(range(97, 98 + chance.below(20)))
    expect, trailers, close = b"Expect: 100-continue\r\n", b"TE: trailers\r\n", b"Connection: close\r\n"
    fields = chance.pick((b"", b"", expect, expect, trailers, close))
    method, minor = chance.pick((b"POST", b"HEAD")), chance.pick((b"1", b"1", b"0"))
    head = b"%b / HTTP/1.%b\r\nHost: a\r\n" % (method, minor)
    if chance.flag(0.4) or minor == b"0":
        return head + fields + b"Content-Length: %d\r\n\r\n" % len(content) + content + _one(KEPT, chance)
    cut = 1 + chance.below(len(content))
    parts = [part for part in (content[:cut], content[cut:]) if part]
    body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return head + fields + b"Transfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n" + _one(KEPT, chance)
