"""The byte grammar of HTTP: RFC 9110 section 5, RFC 9112, RFC 3986, as compiled patterns over bytes.

Knows octets and nothing else: no limits, no state, no connection. Repetitions of octets are possessive, and
what is left to backtrack over fails at once: matching is linear. Repetitions of groups are not possessive:
Python before 3.11.5 then matches what it must not (``1;`` as a chunk line). Patterns are for ``fullmatch``.
"""

from __future__ import annotations

import re

TCHAR = rb"!#$%&'*+\-.^_`|~0-9A-Za-z"
"""Inside of a character class: what a token is made of (RFC 9110 section 5.6.2)."""

VALUE_CHAR = rb"\t\x20-\x7e\x80-\xff"
"""Inside of a character class: field-vchar, SP and HTAB (RFC 9110 section 5.5). No other control octet."""

TOKEN = re.compile(rb"[%b]++" % TCHAR)

CONTROLS = bytes(range(32)).replace(b"\t", b"") + b"\x7f"
"""Octets that stand nowhere in a head, CR and LF as its line ends apart."""

HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client of HTTP/2 begins with (RFC 9113 section 3.4), and no request of HTTP/1 does."""

REQUEST_LINE = re.compile(rb"([%b]++) ([\x21\x22\x24-\x7e]++) HTTP/([0-9])\.([0-9])" % TCHAR)
"""RFC 9112 section 3, one SP each: method, target, major, minor. A target is visible ASCII without
``#``: browsers send characters outside RFC 3986 such as ``|`` and ``{``, never a fragment."""

ORIGIN_LINE = re.compile(
    rb"([%b]++) ((/[\x21\x22\x24-\x3e\x40-\x7e]*+)(?:\?([\x21\x22\x24-\x7e]*+))?) HTTP/1\.([01])\r\n" % TCHAR
)
"""The request line of nearly every request, with its CRLF: method, target, path, query, minor. For ``match``;
what does not match may still be right and is looked at with `REQUEST_LINE`."""

FIELD_LINE = re.compile(rb"([%b]++):[ \t]*+([%b]*+)" % (TCHAR, VALUE_CHAR))
"""RFC 9112 section 5: name and value; whitespace at the value's end is still on it."""

HOST = re.compile(
    rb"(?:\[[0-9A-Fa-f:.]++\]|\[v[0-9A-Fa-f]++\.[A-Za-z0-9\-._~!$&'()*+,;=:]++\]"
    rb"|(?:[A-Za-z0-9\-._~!$&'()*+;=]|%[0-9A-Fa-f]{2})+)(?::[0-9]{0,5}+)?"
)
"""uri-host [":" port] (RFC 9110 section 7.2), not empty. The comma of RFC 3986's sub-delims is left out:
in a Host field it means two joined lines."""

AUTHORITY_FORM = re.compile(rb"(?:\[[0-9A-Fa-f:.]++\]|[^\[\]:/?@]++):[0-9]{1,5}+")
"""The target of CONNECT (RFC 9112 section 3.2.3)."""

ABSOLUTE_FORM = re.compile(rb"([A-Za-z][A-Za-z0-9+.\-]*+)://([^/?]*+)([^?]*+)(?:\?(.*+))?", re.DOTALL)
"""scheme, authority, path, query (RFC 9112 section 3.2.2)."""

_QUOTED = rb'"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t \x21-\x7e\x80-\xff])*"'
_BWS = rb"[ \t]*+"
CHUNK_LINE = re.compile(
    rb"([0-9A-Fa-f]{1,16}+)((?:%(bws)b;%(bws)b[%(t)b]++(?:%(bws)b=%(bws)b(?:[%(t)b]++|%(q)b))?)*)"
    % {b"bws": _BWS, b"t": TCHAR, b"q": _QUOTED}
)
"""chunk-size [chunk-ext] (RFC 9112 section 7.1): the size in hex, 16 digits at most, and the extensions."""


WEBSOCKET_KEY = re.compile(rb"[A-Za-z0-9+/]{22}==")
"""Sec-WebSocket-Key: sixteen octets in base64 (RFC 6455 section 4.1)."""

EXTENSION = re.compile(
    rb"[%(t)b]++(?:%(bws)b;%(bws)b[%(t)b]++(?:%(bws)b=%(bws)b(?:[%(t)b]++|\"[%(t)b]++\"))?)*"
    % {b"bws": _BWS, b"t": TCHAR}
)
"""One member of Sec-WebSocket-Extensions (RFC 6455 section 9.1). A quoted value has to be a token as well, so
that no comma or semicolon hides in it."""


def has_control(octets: bytes) -> bool:
    """Whether a control octet other than HTAB is in `octets`."""
    if octets.isascii() and octets.decode("ascii").isprintable():  # nearly always, and quicker to see
        return False
    return len(octets.translate(None, CONTROLS)) != len(octets)


def list_members(values: list[bytes]) -> list[bytes]:
    """The members of a comma-separated list over several field lines, lower-cased.

    Empty members are dropped (RFC 9110 section 5.6.1.2). Quoted strings are not understood: for
    Connection, Transfer-Encoding, Expect and TE, whose members are tokens.
    """
    members = [member.strip(b" \t").lower() for value in values for member in value.split(b",")]
    return [member for member in members if member]
