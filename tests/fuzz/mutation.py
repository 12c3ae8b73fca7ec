"""Requests broken at random: what fuzzers feed. Chance comes in, so that a run can be repeated."""

from __future__ import annotations

import random

from corpus.http1_cases import CASES

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


def broken(chance: random.Random) -> bytes:
    """One case, or a few in a row, or two spliced; often with octets changed, put in, left out or repeated.

    Most of them begin well, so that there is something to answer.
    """
    data = bytearray(b"".join(chance.choices(KEPT, k=chance.choice((0, 0, 1, 1, 2)))))
    data += chance.choice(GOOD if chance.random() < 0.6 else SEEDS)
    if chance.random() < 0.2:
        other = chance.choice(SEEDS)
        data[chance.randint(0, len(data)) :] = other[chance.randint(0, len(other)) :]
    for _ in range(chance.choice((0, 0, 0, 1, 1, 2, 3))):
        _break(data, chance)
    return bytes(data) or b"\r"


def upload(chance: random.Random) -> bytes:
    """A good request with a small body, and another request behind it."""
    content = bytes(range(97, 97 + chance.randint(1, 20)))
    expect, trailers, close = b"Expect: 100-continue\r\n", b"TE: trailers\r\n", b"Connection: close\r\n"
    fields = chance.choice((b"", b"", expect, expect, trailers, close))
    method, minor = chance.choice((b"POST", b"HEAD")), chance.choice((b"1", b"1", b"0"))
    head = b"%b / HTTP/1.%b\r\nHost: a\r\n" % (method, minor)
    if chance.random() < 0.4 or minor == b"0":
        return head + fields + b"Content-Length: %d\r\n\r\n" % len(content) + content + chance.choice(KEPT)
    cut = chance.randint(1, len(content))
    parts = [part for part in (content[:cut], content[cut:]) if part]
    body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return head + fields + b"Transfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n" + chance.choice(KEPT)


def _break(data: bytearray, chance: random.Random) -> None:
    at = chance.randint(0, len(data))
    way = chance.randrange(4)
    if way == 0:
        data[at : at + 1] = bytes((chance.randrange(256),))
    elif way == 1:
        lines = [place + 1 for place, octet in enumerate(data) if octet == 10]
        if lines and chance.random() < 0.5:
            at = chance.choice(lines)
        data[at:at] = chance.choice(ODD)
    elif way == 2:
        del data[at : at + chance.randint(1, 20)]
    else:
        data[at:at] = data[at : at + chance.randint(1, 40)] * chance.randint(1, 3)
