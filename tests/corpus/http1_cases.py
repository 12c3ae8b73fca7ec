"""Requests as a client may write them, good, bad and doubtful, and what a strict server makes of each.

Written from RFC 9110, RFC 9112 and RFC 3986, and from public bug reports. Data only: `test_corpus_engine.py`
feeds the cases to engines, `test_corpus_wire.py` sends them to a server. A difference between two ways of
cutting a request, or between two engines, becomes a new case here.

After every refusal the connection is closed, and no later octet on it is parsed as a request (RFC 9112
sections 6.3 and 9.3).
"""

from __future__ import annotations

from dataclasses import dataclass, field

HOST = (b"host", b"a.test")
"""The field that nearly every case has."""

Fields = list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Accepted:
    """What the application sees of the first request, and what becomes of the connection.

    `method`, `target` and `version` are verbatim; `headers` have lower-cased names and values without
    surrounding whitespace, in order; `headers_alt` is another list that is just as good. `requests` is the
    number of requests that the application must see, `all` the (method, target, body) of each where there are
    several. `keep_alive` says whether the connection may persist after the last of them, `then_reject` how
    what follows them is refused. `authority` is the effective host where it is worth a check. `trailers` are
    like `headers`, and never among them; ``None`` is no statement about them.
    """

    method: bytes = b"GET"
    target: bytes = b"/"
    version: bytes = b"1.1"
    headers: Fields = field(default_factory=lambda: [HOST])
    headers_alt: Fields | None = None
    body: bytes = b""
    requests: int = 1
    all: list[tuple[bytes, bytes, bytes]] | None = None
    keep_alive: bool = True
    then_reject: set[int] | None = None
    authority: bytes | None = None
    trailers: Fields | None = None


@dataclass(frozen=True)
class Case:
    """`data` is what the client writes: the outcome must not depend on how it is cut.

    `level` is "must" where the RFC requires the outcome, "policy" where it leaves room and this is the choice
    of a server that wants to be safe behind any proxy, "interop" where real clients need it. With `accept`
    alone the requests must be served, with `reject` alone refused with one of these status codes, with both
    either is right.

    `stage` of a refusal is "head" where the application must never be called, or "body" where it may already
    run, but must never get a complete body. `never` are targets that must not reach the application whatever
    happens. `eof` says that the client must half-close after `data` to see the outcome,
    `may_close_silently` that closing without a response is right as well.
    """

    id: str
    category: str
    level: str
    why: str
    data: bytes
    accept: Accepted | None = None
    reject: set[int] | None = None
    stage: str | None = None
    never: list[bytes] = field(default_factory=list)
    eof: bool = False
    may_close_silently: bool = False


CASES: list[Case] = [
    # --- request-line ------------------------------------------------------------------------------------
    Case(
        "rl-minimal",
        "request-line",
        "must",
        "smallest valid HTTP/1.1 request, RFC 9112 2.1",
        b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
        accept=Accepted(),
    ),
    Case(
        "rl-http10-no-host",
        "request-line",
        "must",
        "Host is required only from 1.1 on, RFC 9112 3.2",
        b"GET / HTTP/1.0\r\n\r\n",
        accept=Accepted(version=b"1.0", headers=[], keep_alive=False),
    ),
    Case(
        "rl-ext-method",
        "request-line",
        "interop",
        "method = token; the server cannot know what the application implements, RFC 9110 9.1",
        b"M-SEARCH /x HTTP/1.1\r\nHost: a.test\r\n\r\n",
        accept=Accepted(method=b"M-SEARCH", target=b"/x"),
    ),
    Case(
        "rl-all-tchar-method",
        "request-line",
        "policy",
        "every tchar is legal in a method; 501 is fine for an unknown one, RFC 9110 9.1",
        b"!#$%&'*+-.^_`|~09AZ / HTTP/1.1\r\nHost: a.test\r\n\r\n",
        accept=Accepted(method=b"!#$%&'*+-.^_`|~09AZ"),
        reject={400, 405, 501},
        stage="head",
    ),
    Case(
        "rl-lowercase-method",
        "request-line",
        "policy",
        "methods are case-sensitive: pass on verbatim or refuse, never turn into GET, RFC 9110 9.1",
        b"get / HTTP/1.1\r\nHost: a.test\r\n\r\n",
        accept=Accepted(method=b"get"),
        reject={400, 405, 501},
        stage="head",
    ),
    Case(
        "rl-leading-crlf",
        "request-line",
        "interop",
        "SHOULD ignore at least one empty line before the request line, RFC 9112 2.2",
        b"\r\nGET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
        accept=Accepted(),
    ),
    Case(
        "rl-leading-space",
        "request-line",
        "must",
        "request-line starts with a token, RFC 9112 3",
        b" GET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "rl-double-sp-1",
        "request-line",
        "policy",
        "exactly one SP; splitting on runs of whitespace is the lenient option, RFC 9112 3",
        b"GET  / HTTP/1.1\r\nHost: a.test\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "rl-double-sp-2",
        "request-line",
        "policy",
        "exactly one SP between target and version, RFC 9112 3",
        b"GET /  HTTP/1.1\r\nHost: a.test\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "rl-vt-ff-sep",
        "request-line",
        "policy",
        "VT and FF are not SP (bytes.split() would agree with the client), RFC 9112 3",
        b"GET\x0b/\x0cHTTP/1.1\r\nHost: a.test\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "rl-trailing-sp",
        "request-line",
        "policy",
        "nothing may follow the version, RFC 9112 3",
        b"GET / HTTP/1.1 \r\nHost: a.test\r\n\r\n",
        reject={400, 505},
        stage="head",
    ),
    Case(
        "rl-four-words",
        "request-line",
        "must",
        "a fourth word is not in the grammar, RFC 9112 3",
        b"GET / HTTP/1.1 HTTP/1.1\r\nHost: a.test\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "rl-no-target",
        "request-line",
        "must",
        "two words are a HTTP/0.9 request at best, RFC 9112 3",
        b"GET HTTP/1.1\r\nHost: a.test\r\n\r\n",
        reject={400, 505},
        stage="head",
    ),
    Case(
        "rl-http09",
        "request-line",
        "must",
        "HTTP/0.9 simple request; must not be answered with a bare body, RFC 9112 app. B",
        b"GET /\r\n",
        reject={400, 505},
        stage="head",
        eof=True,
        may_close_silently=True,
    ),
    Case(
        "rl-paren-method",
        "request-line",
        "must",
        "( is a delimiter, not tchar, RFC 9110 5.6.2",
        b"GE(T / HTTP/1.1\r\nHost: a.test\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "rl-slash-method",
        "request-line",
        "must",
        "/ is not tchar; methods are not their longest valid prefix, RFC 9110 9.1",
        b"GET/ / HTTP/1.1\r\nHost: a.test\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "rl-quoted-method",
        "request-line",
        "must",
        "; = and DQUOTE are not tchar, RFC 9110 5.6.2",
        b'P;T="x" / HTTP/1.1\r\nHost: a.test\r\n\r\n',
        reject={400},
        stage="head",
    ),
    Case(
        "rl-nul-method",
        "request-line",
        "must",
        "NUL in the method, RFC 9110 5.6.2",
        b"GE\x00T / HTTP/1.1\r\nHost: a.test\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "rl-bom",
        "request-line",
        "must",
        "a byte order mark is not tchar, RFC 9112 3",
        b"\xef\xbb\xbfGET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "rl-lf-in-line",
        "request-line",
        "must",
        "LF is not a word separator in the request line, RFC 9112 3",
        b"GET /\nHTTP/1.1\r\nHost: a.test\r\n\r\n",
        reject={400, 505},
        stage="head",
    ),
    Case(
        "rl-cr-in-line",
        "request-line",
        "policy",
        "bare CR is invalid outside content, RFC 9112 2.2",
        b"GET /\rHTTP/1.1\r\nHost: a.test\r\n\r\n",
        reject={400, 505},
        stage="head",
    ),
    # --- version -----------------------------------------------------------------------------------------
    Case(
        "ver-2-0",
        "version",
        "must",
        "major 2 in 1.x framing, RFC 9110 15.6.6",
        b"GET / HTTP/2.0\r\nHost: a.test\r\n\r\n",
        reject={400, 505},
        stage="head",
    ),
    Case(
        "ver-3-0",
        "version",
        "must",
        "unknown major, RFC 9110 15.6.6",
        b"GET / HTTP/3.0\r\nHost: a.test\r\n\r\n",
        reject={400, 505},
        stage="head",
    ),
    Case(
        "ver-0-9-fields",
        "version",
        "policy",
        "0.9 has no version token nor fields, RFC 9110 15.6.6",
        b"GET / HTTP/0.9\r\nHost: a.test\r\n\r\n",
        reject={400, 505},
        stage="head",
    ),
    Case(
        "ver-1-01",
        "version",
        "must",
        "two minor digits, RFC 9112 2.3",
        b"GET / HTTP/1.01\r\nHost: a.test\r\n\r\n",
        reject={400, 505},
        stage="head",
    ),
    Case(
        "ver-01-1",
        "version",
        "must",
        "two major digits, RFC 9112 2.3",
        b"GET / HTTP/01.1\r\nHost: a.test\r\n\r\n",
        reject={400, 505},
        stage="head",
    ),
    Case(
        "ver-lower",
        "version",
        "must",
        "HTTP-name is case-sensitive, RFC 9112 2.3",
        b"GET / http/1.1\r\nHost: a.test\r\n\r\n",
        reject={400, 505},
        stage="head",
    ),
    Case(
        "ver-no-minor",
        "version",
        "must",
        "minor missing, RFC 9112 2.3",
        b"GET / HTTP/1\r\nHost: a.test\r\n\r\n",
        reject={400, 505},
        stage="head",
    ),
    Case(
        "ver-dot-only",
        "version",
        "must",
        "minor missing, RFC 9112 2.3",
        b"GET / HTTP/1.\r\nHost: a.test\r\n\r\n",
        reject={400, 505},
        stage="head",
    ),
    Case(
        "ver-comma",
        "version",
        "must",
        "dot, not comma, RFC 9112 2.3",
        b"GET / HTTP/1,1\r\nHost: a.test\r\n\r\n",
        reject={400, 505},
        stage="head",
    ),
    Case(
        "ver-https",
        "version",
        "must",
        "no such protocol name, RFC 9112 2.3",
        b"GET / HTTPS/1.1\r\nHost: a.test\r\n\r\n",
        reject={400, 505},
        stage="head",
    ),
    Case(
        "ver-superscript",
        "version",
        "must",
        "0xB9 is a digit to str.isdigit(), not to HTTP, RFC 5234 DIGIT",
        b"GET / HTTP/\xb9.1\r\nHost: a.test\r\n\r\n",
        reject={400, 505},
        stage="head",
    ),
    Case(
        "ver-overflow",
        "version",
        "must",
        "must not wrap to 1.1, RFC 9112 2.3",
        b"GET / HTTP/4294967297.1\r\nHost: a.test\r\n\r\n",
        reject={400, 505},
        stage="head",
    ),
    # --- target ------------------------------------------------------------------------------------------
    Case(
        "tg-utf8-pct",
        "target",
        "must",
        "raw_path keeps the bytes and the hex case; path is decoded, ASGI www raw_path",
        b"GET /caf%C3%A9/%e2%82%ac?q=%C3%A9 HTTP/1.1\r\nHost: a.test\r\n\r\n",
        accept=Accepted(target=b"/caf%C3%A9/%e2%82%ac?q=%C3%A9"),
    ),
    Case(
        "tg-enc-slash",
        "target",
        "must",
        "%2F must stay visible in raw_path and be decoded only once, RFC 3986 2.4",
        b"GET /a%2Fb/c%252Fd HTTP/1.1\r\nHost: a.test\r\n\r\n",
        accept=Accepted(target=b"/a%2Fb/c%252Fd"),
    ),
    Case(
        "tg-bad-utf8-pct",
        "target",
        "must",
        "valid percent-encoding of non-UTF-8: raw_path verbatim, no U+FFFD in it, ASGI www raw_path",
        b"GET /%80%81%ff HTTP/1.1\r\nHost: a.test\r\n\r\n",
        accept=Accepted(target=b"/%80%81%ff"),
    ),
    Case(
        "tg-empty-query",
        "target",
        "must",
        "empty query, RFC 3986 3.4",
        b"GET /p? HTTP/1.1\r\nHost: a.test\r\n\r\n",
        accept=Accepted(target=b"/p?"),
    ),
    Case(
        "tg-double-slash",
        "target",
        "must",
        "origin-form with an empty first segment: not an authority, RFC 9112 3.2.1",
        b"GET //other.test/p HTTP/1.1\r\nHost: a.test\r\n\r\n",
        accept=Accepted(target=b"//other.test/p", authority=b"a.test"),
    ),
    Case(
        "tg-dot-segments",
        "target",
        "must",
        "the server hands the path on as received, ASGI www raw_path",
        b"GET /a/../b/./c HTTP/1.1\r\nHost: a.test\r\n\r\n",
        accept=Accepted(target=b"/a/../b/./c"),
    ),
    Case(
        "tg-absolute",
        "target",
        "must",
        "a server MUST accept absolute-form, RFC 9112 3.2.2",
        b"GET http://a.test/p?q HTTP/1.1\r\nHost: a.test\r\n\r\n",
        accept=Accepted(target=b"http://a.test/p?q", authority=b"a.test"),
    ),
    Case(
        "tg-absolute-no-path",
        "target",
        "must",
        "empty path means /, RFC 9110 4.2.3",
        b"GET http://a.test HTTP/1.1\r\nHost: a.test\r\n\r\n",
        accept=Accepted(target=b"http://a.test", authority=b"a.test"),
    ),
    Case(
        "tg-absolute-query-only",
        "target",
        "must",
        "path-abempty may be empty before ?, RFC 3986 3.3",
        b"GET http://a.test?x=1 HTTP/1.1\r\nHost: a.test\r\n\r\n",
        accept=Accepted(target=b"http://a.test?x=1", authority=b"a.test"),
    ),
    Case(
        "tg-absolute-upper-scheme",
        "target",
        "must",
        "scheme is case-insensitive, RFC 3986 3.1",
        b"GET HTTP://a.test/p HTTP/1.1\r\nHost: a.test\r\n\r\n",
        accept=Accepted(target=b"HTTP://a.test/p", authority=b"a.test"),
    ),
    Case(
        "tg-absolute-host-mismatch",
        "target",
        "must",
        "an origin server MUST ignore Host and use the target, RFC 9112 3.2.2",
        b"GET http://real.test/p HTTP/1.1\r\nHost: other.test\r\n\r\n",
        accept=Accepted(
            target=b"http://real.test/p", headers=[(b"host", b"other.test")], authority=b"real.test"
        ),
    ),
    Case(
        "tg-absolute-userinfo",
        "target",
        "policy",
        "userinfo in http URIs is deprecated and an error by preference, RFC 9110 4.2.4",
        b"GET http://u:p@a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
        accept=Accepted(target=b"http://u:p@a.test/", authority=b"a.test"),
        reject={400},
        stage="head",
    ),
    Case(
        "tg-absolute-ftp",
        "target",
        "policy",
        "an origin server is no FTP gateway, RFC 9110 7.4",
        b"GET ftp://a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n",
        accept=Accepted(target=b"ftp://a.test/x", authority=b"a.test"),
        reject={400, 404, 421, 501},
        stage="head",
    ),
    Case(
        "tg-options-star",
        "target",
        "must",
        "asterisk-form, RFC 9112 3.2.4",
        b"OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n",
        accept=Accepted(method=b"OPTIONS", target=b"*"),
    ),
    Case(
        "tg-options-star-10",
        "target",
        "must",
        "asterisk-form, RFC 9112 3.2.4",
        b"OPTIONS * HTTP/1.0\r\n\r\n",
        accept=Accepted(method=b"OPTIONS", target=b"*", version=b"1.0", headers=[], keep_alive=False),
    ),
    Case(
        "tg-connect-path",
        "target",
        "must",
        "CONNECT takes only authority-form, RFC 9112 3.2.3",
        b"CONNECT /p HTTP/1.1\r\nHost: a.test\r\n\r\n",
        reject={400, 405, 501},
        stage="head",
    ),
    Case(
        "tg-connect-no-port",
        "target",
        "must",
        "authority-form has a port, RFC 9112 3.2.3, 9110 9.3.6",
        b"CONNECT b.test HTTP/1.1\r\nHost: a.test\r\n\r\n",
        reject={400, 405, 501},
        stage="head",
    ),
    Case(
        "tg-get-star",
        "target",
        "must",
        "asterisk-form only for OPTIONS, RFC 9112 3.2.4",
        b"GET * HTTP/1.1\r\nHost: a.test\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "tg-relative",
        "target",
        "must",
        "neither absolute-path nor absolute-URI, RFC 9112 3.2",
        b"GET index.html HTTP/1.1\r\nHost: a.test\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "tg-query-no-slash",
        "target",
        "must",
        "origin-form starts with /, RFC 9112 3.2.1",
        b"GET ?q=1 HTTP/1.1\r\nHost: a.test\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "tg-absolute-one-slash",
        "target",
        "policy",
        "http URI without authority, RFC 9110 4.2.1",
        b"GET http:/a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "tg-fragment",
        "target",
        "policy",
        "no fragment in a request-target; engines disagree on where it goes, RFC 9112 3.2",
        b"GET /a#frag HTTP/1.1\r\nHost: a.test\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "tg-fragment-empty-query",
        "target",
        "policy",
        "# is not a query character, RFC 3986 3.4",
        b"GET /p?#f HTTP/1.1\r\nHost: a.test\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "tg-ctl",
        "target",
        "must",
        "control character, RFC 3986 2",
        b"GET /a\x01b HTTP/1.1\r\nHost: a.test\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "tg-nul",
        "target",
        "must",
        "NUL truncates C strings, RFC 3986 2",
        b"GET /a\x00.html HTTP/1.1\r\nHost: a.test\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "tg-tab",
        "target",
        "must",
        "HTAB in the target, RFC 9112 3.2",
        b"GET /a\tb HTTP/1.1\r\nHost: a.test\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "tg-bad-pct",
        "target",
        "policy",
        "malformed percent-encoding: verbatim in raw_path, undecoded in path, or 400, RFC 3986 2.1",
        b"GET /%zz/%1 HTTP/1.1\r\nHost: a.test\r\n\r\n",
        accept=Accepted(target=b"/%zz/%1"),
        reject={400},
        stage="head",
    ),
    Case(
        "tg-raw-utf8",
        "target",
        "policy",
        "raw non-ASCII is not in RFC 3986; if taken, raw_path keeps the bytes and nothing raises",
        b"GET /caf\xc3\xa9 HTTP/1.1\r\nHost: a.test\r\n\r\n",
        accept=Accepted(target=b"/caf\xc3\xa9"),
        reject={400},
        stage="head",
    ),
    Case(
        "tg-browser-chars",
        "target",
        "policy",
        "characters outside RFC 3986 that clients do send; backslash must not become /",
        b'GET /a\\b{c}|d^"<> HTTP/1.1\r\nHost: a.test\r\n\r\n',
        accept=Accepted(target=b'/a\\b{c}|d^"<>'),
        reject={400},
        stage="head",
    ),
    # --- fields ------------------------------------------------------------------------------------------
    Case(
        "f-ows",
        "fields",
        "must",
        "OWS around a field value is SP / HTAB and is stripped, RFC 9112 5",
        b"GET / HTTP/1.1\r\nHost: a.test\r\nX-A:v\r\nX-B: \t v w \t \r\nX-C:\tv\r\n\r\n",
        accept=Accepted(headers=[HOST, (b"x-a", b"v"), (b"x-b", b"v w"), (b"x-c", b"v")]),
    ),
    Case(
        "f-htab-inside",
        "fields",
        "must",
        "HTAB inside a value, RFC 9110 5.5",
        b"GET / HTTP/1.1\r\nHost: a.test\r\nX-A: a\tb\r\n\r\n",
        accept=Accepted(headers=[HOST, (b"x-a", b"a\tb")]),
    ),
    Case(
        "f-obs-text",
        "fields",
        "must",
        "obs-text is opaque data and stays byte-exact, RFC 9110 5.5",
        b"GET / HTTP/1.1\r\nHost: a.test\r\nX-A: caf\xc3\xa9 \xff\r\n\r\n",
        accept=Accepted(headers=[HOST, (b"x-a", b"caf\xc3\xa9 \xff")]),
    ),
    Case(
        "f-nel-nbsp-edges",
        "fields",
        "must",
        "0x85 and 0xA0 are whitespace to str.strip(), not to HTTP, RFC 9110 5.6.3",
        b"GET / HTTP/1.1\r\nHost: a.test\r\nX-User: \x85admin\xa0\r\n\r\n",
        accept=Accepted(headers=[HOST, (b"x-user", b"\x85admin\xa0")]),
    ),
    Case(
        "f-repeat-order",
        "fields",
        "must",
        "repeats are kept in order and not joined, ASGI www headers",
        b"GET / HTTP/1.1\r\nHost: a.test\r\nX-A: 1\r\nx-b: 2\r\nX-a: 3\r\n\r\n",
        accept=Accepted(headers=[HOST, (b"x-a", b"1"), (b"x-b", b"2"), (b"x-a", b"3")]),
    ),
    Case(
        "f-all-tchar-name",
        "fields",
        "must",
        "token, RFC 9110 5.6.2",
        b"GET / HTTP/1.1\r\nHost: a.test\r\n!#$%&'*+-.^_`|~09aZ: v\r\n\r\n",
        accept=Accepted(headers=[HOST, (b"!#$%&'*+-.^_`|~09az", b"v")]),
    ),
    Case(
        "f-underscore-name",
        "fields",
        "must",
        "_ is tchar; under WSGI both map to HTTP_X_REAL_USER: drop or refuse the _ one there",
        b"GET / HTTP/1.1\r\nHost: a.test\r\nX-Real-User: good\r\nX_Real_User: bad\r\n\r\n",
        accept=Accepted(headers=[HOST, (b"x-real-user", b"good"), (b"x_real_user", b"bad")]),
    ),
    Case(
        "f-digit-name",
        "fields",
        "must",
        "token may start with a digit, RFC 9110 5.6.2",
        b"GET / HTTP/1.1\r\nHost: a.test\r\n1: one\r\n\r\n",
        accept=Accepted(headers=[HOST, (b"1", b"one")]),
    ),
    Case(
        "f-cookie-4k",
        "fields",
        "interop",
        "ordinary cookie size; default limits must not refuse it, RFC 9110 5.4",
        b"GET / HTTP/1.1\r\nHost: a.test\r\nCookie: s=" + b"x" * 4094 + b"\r\n\r\n",
        accept=Accepted(headers=[HOST, (b"cookie", b"s=" + b"x" * 4094)]),
    ),
    Case(
        "f-space-colon",
        "fields",
        "must",
        "a server MUST reject whitespace before the colon, RFC 9112 5.1",
        b"GET / HTTP/1.1\r\nHost: a.test\r\nX-A : v\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "f-obs-fold-sp",
        "fields",
        "policy",
        "obs-fold: reject (or replace by SP); rejecting is the choice here, RFC 9112 5.2",
        b"GET / HTTP/1.1\r\nHost: a.test\r\nX-A: v\r\n w\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "f-obs-fold-tab",
        "fields",
        "policy",
        "obs-fold with HTAB, RFC 9112 5.2",
        b"GET / HTTP/1.1\r\nHost: a.test\r\nX-A: v\r\n\tw\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "f-obs-fold-blank",
        "fields",
        "policy",
        "a line of one SP is a fold, not the end of the head, RFC 9112 5.2",
        b"GET / HTTP/1.1\r\nHost: a.test\r\nX-A: v\r\n \r\nX-B: w\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "f-no-colon",
        "fields",
        "must",
        "field-line needs a colon, RFC 9112 5",
        b"GET / HTTP/1.1\r\nHost: a.test\r\nX-A v\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "f-cl-no-colon",
        "fields",
        "must",
        "a space does not separate name and value, RFC 9112 5",
        b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length 5\r\n\r\nhello",
        reject={400},
        stage="head",
    ),
    Case(
        "f-empty-name",
        "fields",
        "must",
        "field-name is 1*tchar, RFC 9110 5.1",
        b"GET / HTTP/1.1\r\nHost: a.test\r\n: v\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "f-space-in-name",
        "fields",
        "must",
        "SP is not tchar, RFC 9110 5.1",
        b"GET / HTTP/1.1\r\nHost: a.test\r\nX A: v\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "f-nonascii-name",
        "fields",
        "must",
        "field-name is ASCII, RFC 9110 5.1",
        b"GET / HTTP/1.1\r\nHost: a.test\r\nX-\xc3\xa9: v\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "f-nel-after-name",
        "fields",
        "must",
        "0x85 must not be stripped from a name, RFC 9110 5.1",
        b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length\x85: 5\r\n\r\nhello",
        reject={400},
        stage="head",
    ),
    Case(
        "f-quoted-name",
        "fields",
        "must",
        "DQUOTE is not tchar, RFC 9110 5.6.2",
        b'GET / HTTP/1.1\r\nHost: a.test\r\n"X-A": v\r\n\r\n',
        reject={400},
        stage="head",
    ),
    Case(
        "f-split-name",
        "fields",
        "must",
        "a name cannot continue on the next line, RFC 9112 5",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-\r\nEncoding: chunked\r\n\r\n0\r\n\r\n"),
        reject={400},
        stage="head",
    ),
    Case(
        "f-nul-value",
        "fields",
        "policy",
        "NUL: reject or replace; rejecting is the choice here, RFC 9110 5.5",
        b"GET / HTTP/1.1\r\nHost: a.test\r\nX-A: a\x00b\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "f-cr-value",
        "fields",
        "policy",
        "bare CR: reject or replace; rejecting is the choice here, RFC 9110 5.5",
        b"GET / HTTP/1.1\r\nHost: a.test\r\nX-A: a\rb\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "f-cr-smuggle-te",
        "fields",
        "policy",
        "bare CR must not begin a new field, RFC 9112 2.2 (compare CVE-2023-30589)",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nX-A: \rTransfer-Encoding: chunked\r\n\r\n1\r\nA\r\n0\r\n\r\n"),
        reject={400},
        stage="head",
    ),
    Case(
        "f-crx-ends-head",
        "fields",
        "must",
        "CR + any byte must not end the head, RFC 9112 2.2",
        b"GET / HTTP/1.1\r\nHost: a.test\r\n\rZGET /evil: HTTP/1.1\r\nHost: a.test\r\n\r\n",
        reject={400},
        stage="head",
        never=[b"/evil:", b"/evil"],
    ),
    Case(
        "f-esc-value",
        "fields",
        "policy",
        "ESC reaches terminals through access logs, RFC 9110 5.5",
        b"GET / HTTP/1.1\r\nHost: a.test\r\nUser-Agent: \x1b[31mred\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "f-vt-ff-value",
        "fields",
        "policy",
        "VT and FF are line breaks to str.splitlines(), RFC 9110 5.5 (compare CVE-2026-44546)",
        b"GET / HTTP/1.1\r\nHost: a.test\r\nX-A: a\x0bX-Admin: 1\x0cb\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "f-fs-gs-rs-value",
        "fields",
        "policy",
        "FS, GS and RS are line breaks to str.splitlines(), RFC 9110 5.5",
        b"GET / HTTP/1.1\r\nHost: a.test\r\nX-A: a\x1cX-B: 1\x1dX-C: 2\x1eX-D: 3\r\n\r\n",
        reject={400},
        stage="head",
    ),
    # --- host --------------------------------------------------------------------------------------------
    Case(
        "h-missing",
        "host",
        "must",
        "MUST answer 400 to 1.1 without Host, RFC 9112 3.2",
        b"GET / HTTP/1.1\r\nX-A: v\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "h-missing-absolute",
        "host",
        "must",
        "Host is required with absolute-form too, RFC 9112 3.2.2",
        b"GET http://a.test/ HTTP/1.1\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "h-dup-same",
        "host",
        "must",
        "more than one Host line, even equal, RFC 9112 3.2",
        b"GET / HTTP/1.1\r\nHost: a.test\r\nHost: a.test\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "h-dup-10",
        "host",
        "must",
        "the duplicate rule is not limited to 1.1, RFC 9112 3.2",
        b"GET / HTTP/1.0\r\nHost: a.test\r\nHost: b.test\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "h-ipv6-port",
        "host",
        "must",
        "IP-literal, RFC 3986 3.2.2",
        b"GET / HTTP/1.1\r\nHost: [2001:db8::1]:8080\r\n\r\n",
        accept=Accepted(headers=[(b"host", b"[2001:db8::1]:8080")]),
    ),
    Case(
        "h-empty-port",
        "host",
        "must",
        "port = *DIGIT, RFC 3986 3.2.3",
        b"GET / HTTP/1.1\r\nHost: a.test:\r\n\r\n",
        accept=Accepted(headers=[(b"host", b"a.test:")]),
    ),
    Case(
        "h-empty",
        "host",
        "policy",
        "an empty Host is grammatical but names no http authority, RFC 9110 7.2, 4.2.1",
        b"GET / HTTP/1.1\r\nHost:\r\n\r\n",
        accept=Accepted(headers=[(b"host", b"")]),
        reject={400},
        stage="head",
    ),
    Case(
        "h-comma",
        "host",
        "policy",
        "comma is a sub-delim of reg-name but smells of joined lines, RFC 3986 3.2.2",
        b"GET / HTTP/1.1\r\nHost: a.test,b.test\r\n\r\n",
        accept=Accepted(headers=[(b"host", b"a.test,b.test")]),
        reject={400},
        stage="head",
    ),
    Case(
        "h-port-range",
        "host",
        "policy",
        "grammatical, out of range, RFC 3986 3.2.3",
        b"GET / HTTP/1.1\r\nHost: a.test:99999\r\n\r\n",
        accept=Accepted(headers=[(b"host", b"a.test:99999")]),
        reject={400},
        stage="head",
    ),
    Case(
        "h-path",
        "host",
        "must",
        "/ is not in uri-host, RFC 9112 3.2",
        b"GET / HTTP/1.1\r\nHost: a.test/evil\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "h-userinfo",
        "host",
        "must",
        "no userinfo in Host, RFC 9110 7.2",
        b"GET / HTTP/1.1\r\nHost: good.test@evil.test\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "h-scheme",
        "host",
        "must",
        "a URI is not a host, RFC 9110 7.2",
        b"GET / HTTP/1.1\r\nHost: http://a.test\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "h-open-bracket",
        "host",
        "must",
        "unclosed IP-literal, RFC 3986 3.2.2",
        b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "h-nonascii",
        "host",
        "must",
        "reg-name is ASCII (IDNs travel as A-labels), RFC 3986 3.2.2",
        b"GET / HTTP/1.1\r\nHost: caf\xc3\xa9.test\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "h-nul",
        "host",
        "must",
        "cut at NUL by C code behind us, RFC 9112 3.2",
        b"GET / HTTP/1.1\r\nHost: a.test\x00.evil.test\r\n\r\n",
        reject={400},
        stage="head",
    ),
    # --- content-length ----------------------------------------------------------------------------------
    Case(
        "cl-0",
        "content-length",
        "must",
        "empty body, RFC 9112 6.3",
        b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n",
        accept=Accepted(method=b"POST", headers=[HOST, (b"content-length", b"0")]),
    ),
    Case(
        "cl-none-post",
        "content-length",
        "interop",
        "no framing field: zero length (411 is allowed, but breaks clients), RFC 9112 6.3",
        b"POST / HTTP/1.1\r\nHost: a.test\r\n\r\n",
        accept=Accepted(method=b"POST"),
    ),
    Case(
        "cl-leading-zeros",
        "content-length",
        "must",
        "1*DIGIT is decimal: ten, not octal eight, RFC 9110 8.6",
        b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0010\r\n\r\n0123456789",
        accept=Accepted(method=b"POST", headers=[HOST, (b"content-length", b"0010")], body=b"0123456789"),
    ),
    Case(
        "cl-get-body",
        "content-length",
        "must",
        "framing does not depend on the method, RFC 9110 9.3.1",
        b"GET / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello",
        accept=Accepted(headers=[HOST, (b"content-length", b"5")], body=b"hello"),
    ),
    Case(
        "cl-head-body",
        "content-length",
        "must",
        "a HEAD request may carry content; the bytes must leave the stream, RFC 9110 9.3.2",
        b"HEAD / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello",
        accept=Accepted(method=b"HEAD", headers=[HOST, (b"content-length", b"5")], body=b"hello"),
    ),
    Case(
        "cl-10-body",
        "content-length",
        "must",
        "HTTP/1.0 body, RFC 9112 6.3",
        b"POST / HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello",
        accept=Accepted(
            method=b"POST",
            version=b"1.0",
            headers=[(b"content-length", b"5")],
            body=b"hello",
            keep_alive=False,
        ),
    ),
    Case(
        "cl-list-same",
        "content-length",
        "policy",
        "equal list: reject or use the one value, RFC 9112 6.3",
        b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5, 5\r\n\r\nhello",
        accept=Accepted(
            method=b"POST",
            headers=[HOST, (b"content-length", b"5, 5")],
            headers_alt=[HOST, (b"content-length", b"5")],
            body=b"hello",
        ),
        reject={400},
        stage="head",
    ),
    Case(
        "cl-trailing-comma",
        "content-length",
        "policy",
        "empty list element; rejecting is safest, RFC 9110 5.6.1, 9112 6.3",
        b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5,\r\n\r\nhello",
        accept=Accepted(
            method=b"POST",
            headers=[HOST, (b"content-length", b"5,")],
            headers_alt=[HOST, (b"content-length", b"5")],
            body=b"hello",
        ),
        reject={400},
        stage="head",
    ),
    Case(
        "cl-dup-diff",
        "content-length",
        "must",
        "differing values: MUST 400 and close, RFC 9112 6.3",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"),
        reject={400},
        stage="head",
    ),
    Case(
        "cl-list-diff",
        "content-length",
        "must",
        "differing list, RFC 9112 6.3",
        b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5, 6\r\n\r\nhello",
        reject={400},
        stage="head",
    ),
    Case(
        "cl-empty-then-valid",
        "content-length",
        "must",
        "an empty line is an invalid member, RFC 9110 8.6",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length:\r\nContent-Length: 5\r\n\r\nhello"),
        reject={400},
        stage="head",
    ),
    Case(
        "cl-plus",
        "content-length",
        "must",
        "sign is not DIGIT: int() is the wrong parser, RFC 9110 8.6",
        b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: +5\r\n\r\nhello",
        reject={400},
        stage="head",
    ),
    Case(
        "cl-minus-zero",
        "content-length",
        "must",
        "sign is not DIGIT, RFC 9110 8.6",
        b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: -0\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "cl-hex",
        "content-length",
        "must",
        "0x prefix, RFC 9110 8.6",
        b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0x5\r\n\r\nhello",
        reject={400},
        stage="head",
    ),
    Case(
        "cl-underscore",
        "content-length",
        "must",
        "PEP 515 underscores are Python, not HTTP, RFC 9110 8.6",
        b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1_0\r\n\r\n0123456789",
        reject={400},
        stage="head",
    ),
    Case(
        "cl-inner-space",
        "content-length",
        "must",
        "two numbers, RFC 9110 8.6",
        b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5 5\r\n\r\nhello",
        reject={400},
        stage="head",
    ),
    Case(
        "cl-decimal",
        "content-length",
        "must",
        "not 1*DIGIT, RFC 9110 8.6",
        b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5.0\r\n\r\nhello",
        reject={400},
        stage="head",
    ),
    Case(
        "cl-exponent",
        "content-length",
        "must",
        "not 1*DIGIT, RFC 9110 8.6",
        b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5e0\r\n\r\nhello",
        reject={400},
        stage="head",
    ),
    Case(
        "cl-quoted",
        "content-length",
        "must",
        "quoted-string, RFC 9110 8.6",
        b'POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: "5"\r\n\r\nhello',
        reject={400},
        stage="head",
    ),
    Case(
        "cl-superscript",
        "content-length",
        "must",
        "0xB2 is a digit to str.isdigit(), RFC 9110 8.6",
        b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: \xb2\r\n\r\nhi",
        reject={400},
        stage="head",
    ),
    Case(
        "cl-fullwidth",
        "content-length",
        "must",
        "FULLWIDTH DIGIT FIVE matches \\d and int() on str, RFC 9110 8.6",
        b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: \xef\xbc\x95\r\n\r\nhello",
        reject={400},
        stage="head",
    ),
    Case(
        "cl-nbsp",
        "content-length",
        "must",
        "0xA0 is not OWS, RFC 9110 5.6.3",
        b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: \xa05\r\n\r\nhello",
        reject={400},
        stage="head",
    ),
    Case(
        "cl-nul",
        "content-length",
        "must",
        "NUL, RFC 9110 5.5",
        b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\x00\r\n\r\nhello",
        reject={400},
        stage="head",
    ),
    Case(
        "cl-overflow-64",
        "content-length",
        "must",
        "2**64 + 5 must not wrap to 5, RFC 9110 8.6",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 18446744073709551621\r\n\r\nhello"),
        reject={400, 413},
        stage="body",
        eof=True,
    ),
    Case(
        "cl-truncated",
        "content-length",
        "must",
        "EOF before the declared length: incomplete, never a finished body, RFC 9112 8",
        b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 50\r\n\r\nhello",
        reject={400, 408},
        stage="body",
        eof=True,
        may_close_silently=True,
    ),
    Case(
        "cl-2-63-eof",
        "content-length",
        "must",
        "legal number, no such body: no pre-allocation, then incomplete, RFC 9112 8",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 9223372036854775807\r\n\r\nhello"),
        reject={400, 408, 413},
        stage="body",
        eof=True,
        may_close_silently=True,
    ),
    # --- transfer-encoding -------------------------------------------------------------------------------
    Case(
        "te-chunked",
        "transfer-encoding",
        "must",
        "RFC 9112 7.1",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        accept=Accepted(method=b"POST", headers=[HOST, (b"transfer-encoding", b"chunked")], body=b"hello"),
    ),
    Case(
        "te-ows",
        "transfer-encoding",
        "must",
        "OWS, RFC 9112 5",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: \t chunked \t\r\n\r\n"
            b"5\r\n"
            b"hello\r\n"
            b"0\r\n\r\n"
        ),
        accept=Accepted(method=b"POST", headers=[HOST, (b"transfer-encoding", b"chunked")], body=b"hello"),
    ),
    Case(
        "te-get",
        "transfer-encoding",
        "must",
        "framing does not depend on the method, RFC 9112 6.3",
        (b"GET / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        accept=Accepted(headers=[HOST, (b"transfer-encoding", b"chunked")], body=b"hello"),
    ),
    Case(
        "te-te-trailers",
        "transfer-encoding",
        "must",
        "TE is not Transfer-Encoding, RFC 9110 10.1.4",
        b"GET / HTTP/1.1\r\nHost: a.test\r\nTE: trailers\r\nConnection: TE\r\n\r\n",
        accept=Accepted(headers=[HOST, (b"te", b"trailers"), (b"connection", b"TE")]),
    ),
    Case(
        "te-leading-comma",
        "transfer-encoding",
        "policy",
        "empty list elements are to be ignored: chunked or refused, never no-body, RFC 9110 5.6.1.2",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: ,chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        accept=Accepted(method=b"POST", headers=[HOST, (b"transfer-encoding", b",chunked")], body=b"hello"),
        reject={400, 501},
        stage="head",
    ),
    Case(
        "te-chunked-twice",
        "transfer-encoding",
        "must",
        "chunked only once, RFC 9112 6.1",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chunked, chunked\r\n\r\n"
            b"5\r\n"
            b"hello\r\n"
            b"0\r\n\r\n"
        ),
        reject={400, 501},
        stage="head",
    ),
    Case(
        "te-two-lines-chunked",
        "transfer-encoding",
        "must",
        "the lines combine to chunked, chunked, RFC 9112 6.1",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chunked\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"5\r\n"
            b"hello\r\n"
            b"0\r\n\r\n"
        ),
        reject={400, 501},
        stage="head",
    ),
    Case(
        "te-identity-chunked",
        "transfer-encoding",
        "policy",
        "unknown coding, RFC 9112 6.1",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: identity, chunked\r\n\r\n"
            b"5\r\n"
            b"hello\r\n"
            b"0\r\n\r\n"
        ),
        reject={400, 501},
        stage="head",
    ),
    Case(
        "te-chunked-identity",
        "transfer-encoding",
        "must",
        "chunked is not final: MUST 400 and close, RFC 9112 6.3",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chunked, identity\r\n\r\n"
            b"5\r\n"
            b"hello\r\n"
            b"0\r\n\r\n"
        ),
        reject={400, 501},
        stage="head",
    ),
    Case(
        "te-lines-chunked-identity",
        "transfer-encoding",
        "must",
        "the last line counts, chunked is not final, RFC 9112 6.3",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chunked\r\n"
            b"Transfer-Encoding: identity\r\n\r\n"
            b"5\r\n"
            b"hello\r\n"
            b"0\r\n\r\n"
        ),
        reject={400, 501},
        stage="head",
    ),
    Case(
        "te-gzip-chunked",
        "transfer-encoding",
        "policy",
        "a coding we do not decode: 501; never hand on compressed bytes as the body, RFC 9112 6.1",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: gzip, chunked\r\n\r\n"
            b"5\r\n"
            b"hello\r\n"
            b"0\r\n\r\n"
        ),
        reject={400, 501},
        stage="head",
    ),
    Case(
        "te-lines-gzip-chunked",
        "transfer-encoding",
        "policy",
        "list over two lines, RFC 9112 6.1",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: gzip\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"5\r\n"
            b"hello\r\n"
            b"0\r\n\r\n"
        ),
        reject={400, 501},
        stage="head",
    ),
    Case(
        "te-xchunked",
        "transfer-encoding",
        "must",
        "substring matching, RFC 9112 6.3",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: xchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        reject={400, 501},
        stage="head",
    ),
    Case(
        "te-param",
        "transfer-encoding",
        "policy",
        "chunked has no parameters, RFC 9112 7.1",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked;q=1\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        reject={400, 501},
        stage="head",
    ),
    Case(
        "te-quoted",
        "transfer-encoding",
        "must",
        "not a token, RFC 9112 7",
        (b'POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: "chunked"\r\n\r\n5\r\nhello\r\n0\r\n\r\n'),
        reject={400, 501},
        stage="head",
    ),
    Case(
        "te-empty",
        "transfer-encoding",
        "must",
        "present but no chunked, RFC 9112 6.3",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: \r\n\r\n"
            b"GET /evil HTTP/1.1\r\n"
            b"Host: a.test\r\n\r\n"
        ),
        reject={400, 501},
        stage="head",
        never=[b"/evil"],
    ),
    Case(
        "te-nbsp",
        "transfer-encoding",
        "must",
        "0xA0 / 0x85 stripped by str.strip() turn this into chunked, RFC 9110 5.6.3",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: \xa0chunked\x85\r\n\r\n"
            b"5\r\n"
            b"hello\r\n"
            b"0\r\n\r\n"
        ),
        reject={400, 501},
        stage="head",
    ),
    Case(
        "te-nul",
        "transfer-encoding",
        "must",
        "NUL, RFC 9110 5.5",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\x00\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        reject={400, 501},
        stage="head",
    ),
    Case(
        "te-kelvin",
        "transfer-encoding",
        "must",
        "KELVIN SIGN lower-cases to k on str: compare bytes, RFC 9112 7",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chun\xe2\x84\xaaed\r\n\r\n"
            b"5\r\n"
            b"hello\r\n"
            b"0\r\n\r\n"
        ),
        reject={400, 501},
        stage="head",
    ),
    Case(
        "te-obs-fold",
        "transfer-encoding",
        "policy",
        "folded framing field, RFC 9112 5.2",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding:\r\n chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        reject={400},
        stage="head",
    ),
    Case(
        "te-on-10",
        "transfer-encoding",
        "policy",
        "TE in 1.0 MUST be treated as faulty framing, RFC 9112 6.1",
        (b"POST / HTTP/1.0\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        reject={400},
        stage="head",
    ),
    # --- cl-te -------------------------------------------------------------------------------------------
    Case(
        "ct-cl-first",
        "cl-te",
        "policy",
        "both present: reject (or TE wins and close); never reuse the connection, RFC 9112 6.1",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Content-Length: 41\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"0\r\n\r\n"
            b"GET /evil HTTP/1.1\r\n"
            b"Host: a.test\r\n\r\n"
        ),
        reject={400},
        stage="head",
        never=[b"/evil"],
    ),
    Case(
        "ct-cl-zero",
        "cl-te",
        "policy",
        "a zero is a Content-Length too (falsy test trap), RFC 9112 6.1",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Content-Length: 0\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"5\r\n"
            b"hello\r\n"
            b"0\r\n\r\n"
        ),
        reject={400},
        stage="head",
    ),
    Case(
        "ct-te-unknown",
        "cl-te",
        "must",
        "do not fall back to Content-Length, RFC 9112 6.3",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nTransfer-Encoding: cow\r\n\r\nhello"),
        reject={400, 501},
        stage="head",
    ),
    Case(
        "ct-te-comma",
        "cl-te",
        "policy",
        "empty element hides chunked from the front, RFC 9112 6.3",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Content-Length: 5\r\n"
            b"Transfer-Encoding: ,chunked\r\n\r\n"
            b"0\r\n\r\n"
            b"GET /evil HTTP/1.1\r\n"
            b"Host: a.test\r\n\r\n"
        ),
        reject={400, 501},
        stage="head",
        never=[b"/evil"],
    ),
    Case(
        "ct-http10",
        "cl-te",
        "policy",
        "TE in 1.0, even with Content-Length, is faulty framing, RFC 9112 6.1",
        (
            b"POST / HTTP/1.0\r\n"
            b"Content-Length: 5\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"0\r\n\r\n"
            b"GET /evil HTTP/1.1\r\n"
            b"Host: a.test\r\n\r\n"
        ),
        reject={400},
        stage="head",
        never=[b"/evil"],
    ),
    Case(
        "ct-te0",
        "cl-te",
        "must",
        "TE.0: the hidden request is body and is consumed though the app ignores it, RFC 9112 6.3",
        (
            b"OPTIONS / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"24\r\n"
            b"GET /evil HTTP/1.1\r\n"
            b"Host: a.test\r\n\r\n\r\n"
            b"0\r\n\r\n"
        ),
        accept=Accepted(
            method=b"OPTIONS",
            headers=[HOST, (b"transfer-encoding", b"chunked")],
            body=b"GET /evil HTTP/1.1\r\nHost: a.test\r\n\r\n",
        ),
        never=[b"/evil"],
    ),
    Case(
        "ct-cl0",
        "cl-te",
        "must",
        "CL.0: an unread body is drained or the connection closed, never parsed, RFC 9112 9.3",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Content-Length: 36\r\n\r\n"
            b"GET /evil HTTP/1.1\r\n"
            b"Host: a.test\r\n\r\n"
        ),
        accept=Accepted(
            method=b"POST",
            headers=[HOST, (b"content-length", b"36")],
            body=b"GET /evil HTTP/1.1\r\nHost: a.test\r\n\r\n",
        ),
        never=[b"/evil"],
    ),
    # --- chunked -----------------------------------------------------------------------------------------
    Case(
        "ck-hex-case",
        "chunked",
        "must",
        "HEXDIG in either case, RFC 9112 7.1",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"a\r\n"
            b"0123456789\r\n"
            b"B\r\n"
            b"0123456789A\r\n"
            b"0\r\n\r\n"
        ),
        accept=Accepted(
            method=b"POST", headers=[HOST, (b"transfer-encoding", b"chunked")], body=b"01234567890123456789A"
        ),
    ),
    Case(
        "ck-leading-zeros",
        "chunked",
        "must",
        '1*HEXDIG and last-chunk = 1*"0", RFC 9112 7.1',
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"0005\r\n"
            b"hello\r\n"
            b"000\r\n\r\n"
        ),
        accept=Accepted(method=b"POST", headers=[HOST, (b"transfer-encoding", b"chunked")], body=b"hello"),
    ),
    Case(
        "ck-crlf-data",
        "chunked",
        "must",
        "data is opaque: it may look like a terminator, RFC 9112 7.1",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"9\r\n\r\n"
            b"0\r\n\r\n\r\n\r\n"
            b"0\r\n\r\n"
        ),
        accept=Accepted(
            method=b"POST", headers=[HOST, (b"transfer-encoding", b"chunked")], body=b"\r\n0\r\n\r\n\r\n"
        ),
    ),
    Case(
        "ck-then-get",
        "chunked",
        "must",
        "the next request starts right after the empty trailer section, RFC 9112 9.3.2",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"5\r\n"
            b"hello\r\n"
            b"0\r\n\r\n"
            b"GET /2 HTTP/1.1\r\n"
            b"Host: a.test\r\n\r\n"
        ),
        accept=Accepted(
            method=b"POST",
            headers=[HOST, (b"transfer-encoding", b"chunked")],
            body=b"hello",
            requests=2,
            all=[(b"POST", b"/", b"hello"), (b"GET", b"/2", b"")],
        ),
    ),
    Case(
        "ck-size-trailing-sp",
        "chunked",
        "policy",
        "not in the grammar; some old senders pad, strict is fine, RFC 9112 7.1",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0 \r\n\r\n"),
        accept=Accepted(method=b"POST", headers=[HOST, (b"transfer-encoding", b"chunked")], body=b"hello"),
        reject={400},
        stage="body",
    ),
    Case(
        "ck-200-zeros",
        "chunked",
        "policy",
        "grammatical; a limit on the size line is wise, RFC 9112 7.1.1",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"000000000000000000000000000000000000000000000000000000000000"
            b"000000000000000000000000000000000000000000000000000000000000"
            b"000000000000000000000000000000000000000000000000000000000000000000000000000000005\r\n"
            b"hello\r\n"
            b"0\r\n\r\n"
        ),
        accept=Accepted(method=b"POST", headers=[HOST, (b"transfer-encoding", b"chunked")], body=b"hello"),
        reject={400, 413, 431},
        stage="body",
    ),
    Case(
        "ck-size-minus",
        "chunked",
        "must",
        "negative size, RFC 9112 7.1",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n"),
        reject={400},
        stage="body",
    ),
    Case(
        "ck-size-minus-zero",
        "chunked",
        "must",
        "sign, RFC 9112 7.1",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n-0\r\nhello\r\n0\r\n\r\n"),
        reject={400},
        stage="body",
    ),
    Case(
        "ck-size-0x",
        "chunked",
        "must",
        "0x prefix (int(x, 16) takes it), RFC 9112 7.1",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n"),
        reject={400},
        stage="body",
    ),
    Case(
        "ck-size-leading-sp",
        "chunked",
        "must",
        "leading SP, RFC 9112 7.1",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n 5\r\nhello\r\n0\r\n\r\n"),
        reject={400},
        stage="body",
    ),
    Case(
        "ck-size-leading-tab",
        "chunked",
        "must",
        "leading HTAB, RFC 9112 7.1",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n\t5\r\nhello\r\n0\r\n\r\n"),
        reject={400},
        stage="body",
    ),
    Case(
        "ck-size-empty",
        "chunked",
        "must",
        "empty size is not zero, RFC 9112 7.1",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n\r\nhello\r\n0\r\n\r\n"),
        reject={400},
        stage="body",
    ),
    Case(
        "ck-size-suffix",
        "chunked",
        "must",
        "longest valid prefix is not the value, RFC 9112 7.1",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5x\r\nhello\r\n0\r\n\r\n"),
        reject={400},
        stage="body",
    ),
    Case(
        "ck-size-superscript",
        "chunked",
        "must",
        "not HEXDIG, RFC 9112 7.1",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n\xb2\r\nhello\r\n0\r\n\r\n"),
        reject={400},
        stage="body",
    ),
    Case(
        "ck-size-nul",
        "chunked",
        "must",
        "NUL after the size, RFC 9112 7.1",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\x00\r\nhello\r\n0\r\n\r\n"),
        reject={400},
        stage="body",
    ),
    Case(
        "ck-overflow-17f",
        "chunked",
        "must",
        "MUST anticipate overflow, RFC 9112 7.1",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"FFFFFFFFFFFFFFFFF\r\n"
            b"hello\r\n"
            b"0\r\n\r\n"
        ),
        reject={400, 413},
        stage="body",
        eof=True,
    ),
    Case(
        "ck-overflow-wrap",
        "chunked",
        "must",
        "2**64 + 5 must not wrap to 5, RFC 9112 7.1",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"10000000000000005\r\n"
            b"hello\r\n"
            b"0\r\n\r\n"
        ),
        reject={400, 413},
        stage="body",
        eof=True,
    ),
    Case(
        "ck-junk-after-data",
        "chunked",
        "must",
        "any two bytes are not CRLF, RFC 9112 7.1 (compare CVE-2025-43859)",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n"),
        reject={400},
        stage="body",
    ),
    Case(
        "ck-size-lf",
        "chunked",
        "must",
        (
            "the bare-LF licence covers start-line and fields only, RFC 9112 2.2 + 7.1 (compare "
            "CVE-2025-22871)"
        ),
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n"),
        reject={400},
        stage="body",
    ),
    Case(
        "ck-data-lf",
        "chunked",
        "must",
        "CRLF after chunk-data, RFC 9112 7.1",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\n0\r\n\r\n"),
        reject={400},
        stage="body",
    ),
    Case(
        "ck-last-lf",
        "chunked",
        "must",
        "CRLF after last-chunk, RFC 9112 7.1",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\n\r\n"),
        reject={400},
        stage="body",
        eof=True,
    ),
    Case(
        "ck-size-crcrlf",
        "chunked",
        "policy",
        "bare CR, RFC 9112 2.2",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\r\nhello\r\n0\r\n\r\n"),
        reject={400},
        stage="body",
    ),
    Case(
        "ck-extra-crlf",
        "chunked",
        "must",
        "an empty line between chunks is an empty size, RFC 9112 7.1",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n\r\n0\r\n\r\n"),
        reject={400},
        stage="body",
    ),
    Case(
        "ck-bad-then-request",
        "chunked",
        "must",
        "after a broken chunk the connection is dead, RFC 9112 6.3",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"INVALID\r\n"
            b"GET /evil HTTP/1.1\r\n"
            b"Host: a.test\r\n\r\n"
        ),
        reject={400},
        stage="body",
        never=[b"/evil"],
    ),
    Case(
        "ck-eof-no-last",
        "chunked",
        "must",
        "EOF before last-chunk is incomplete, not the end, RFC 9112 8",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
        reject={400, 408},
        stage="body",
        eof=True,
        may_close_silently=True,
    ),
    Case(
        "ck-eof-no-final-crlf",
        "chunked",
        "must",
        "the trailer section's CRLF is required, RFC 9112 7.1",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"),
        reject={400, 408},
        stage="body",
        eof=True,
        may_close_silently=True,
    ),
    # --- chunk-ext ---------------------------------------------------------------------------------------
    Case(
        "ce-token",
        "chunk-ext",
        "must",
        "unrecognised extensions MUST be ignored, RFC 9112 7.1.1",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n"),
        accept=Accepted(method=b"POST", headers=[HOST, (b"transfer-encoding", b"chunked")], body=b"hello"),
    ),
    Case(
        "ce-flag",
        "chunk-ext",
        "must",
        "value is optional, also on last-chunk, RFC 9112 7.1.1",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"5;flag\r\n"
            b"hello\r\n"
            b"0;end\r\n\r\n"
        ),
        accept=Accepted(method=b"POST", headers=[HOST, (b"transfer-encoding", b"chunked")], body=b"hello"),
    ),
    Case(
        "ce-bws",
        "chunk-ext",
        "policy",
        "BWS is in the grammar; refusing it is common and safe, RFC 9112 7.1.1",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"5 ; a = b\r\n"
            b"hello\r\n"
            b"0\r\n\r\n"
        ),
        accept=Accepted(method=b"POST", headers=[HOST, (b"transfer-encoding", b"chunked")], body=b"hello"),
        reject={400},
        stage="body",
    ),
    Case(
        "ce-empty-name",
        "chunk-ext",
        "policy",
        "chunk-ext-name is a token; nobody means anything by it, RFC 9112 7.1.1",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5;\r\nhello\r\n0\r\n\r\n"),
        accept=Accepted(method=b"POST", headers=[HOST, (b"transfer-encoding", b"chunked")], body=b"hello"),
        reject={400},
        stage="body",
    ),
    Case(
        "ce-lf-smuggle",
        "chunk-ext",
        "must",
        "ends at LF: one body; ends at CRLF: the size is data and /evil a request, RFC 9112 7.1.1",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"2;\nxx\r\n"
            b"29\r\n"
            b"0\r\n\r\n"
            b"GET /evil HTTP/1.1\r\n"
            b"Host: a.test\r\n\r\n\r\n"
            b"0\r\n\r\n"
        ),
        reject={400},
        stage="body",
        never=[b"/evil"],
    ),
    Case(
        "ce-cr",
        "chunk-ext",
        "policy",
        "bare CR in an extension, RFC 9112 2.2",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"5;a\rb\r\n"
            b"hello\r\n"
            b"0\r\n\r\n"
        ),
        reject={400},
        stage="body",
    ),
    Case(
        "ce-cr-before-semicolon",
        "chunk-ext",
        "policy",
        "CR is not BWS, RFC 9112 7.1.1",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r;a\r\nhello\r\n0\r\n\r\n"),
        reject={400},
        stage="body",
    ),
    Case(
        "ce-lf-in-quotes",
        "chunk-ext",
        "must",
        "qdtext has no LF, RFC 9110 5.6.4",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b'5;a="\n"\r\n'
            b"hello\r\n"
            b"0\r\n\r\n"
        ),
        reject={400},
        stage="body",
    ),
    Case(
        "ce-huge",
        "chunk-ext",
        "policy",
        "limit the extensions' total, RFC 9112 7.1.1",
        b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5;a="
        + b"x" * 1_048_576
        + b"\r\nhello\r\n0\r\n\r\n",
        reject={400, 413, 431},
        stage="body",
    ),
    # --- trailers ----------------------------------------------------------------------------------------
    Case(
        "tr-one",
        "trailers",
        "must",
        "trailer section; fields are not merged into headers, RFC 9110 6.5.1",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"5\r\n"
            b"hello\r\n"
            b"0\r\n"
            b"X-Sum: 9\r\n\r\n"
        ),
        accept=Accepted(
            method=b"POST",
            headers=[HOST, (b"transfer-encoding", b"chunked")],
            body=b"hello",
            trailers=[(b"x-sum", b"9")],
        ),
    ),
    Case(
        "tr-two-pipelined",
        "trailers",
        "must",
        "RFC 9112 7.1.2",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"5\r\n"
            b"hello\r\n"
            b"0\r\n"
            b"X-A: 1\r\n"
            b"X-B:\r\n\r\n"
            b"GET /2 HTTP/1.1\r\n"
            b"Host: a.test\r\n\r\n"
        ),
        accept=Accepted(
            method=b"POST",
            headers=[HOST, (b"transfer-encoding", b"chunked")],
            body=b"hello",
            requests=2,
            all=[(b"POST", b"/", b"hello"), (b"GET", b"/2", b"")],
            trailers=[(b"x-a", b"1"), (b"x-b", b"")],
        ),
    ),
    Case(
        "tr-forbidden-content-length",
        "trailers",
        "policy",
        "not allowed in trailers: drop or reject, never act on it, RFC 9110 6.5.1",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"5\r\n"
            b"hello\r\n"
            b"0\r\n"
            b"Content-Length: 999\r\n\r\n"
        ),
        accept=Accepted(method=b"POST", headers=[HOST, (b"transfer-encoding", b"chunked")], body=b"hello"),
        reject={400},
        stage="body",
    ),
    Case(
        "tr-forbidden-transfer-encoding",
        "trailers",
        "policy",
        "not allowed in trailers: drop or reject, never act on it, RFC 9110 6.5.1",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"5\r\n"
            b"hello\r\n"
            b"0\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        ),
        accept=Accepted(method=b"POST", headers=[HOST, (b"transfer-encoding", b"chunked")], body=b"hello"),
        reject={400},
        stage="body",
    ),
    Case(
        "tr-forbidden-authorization",
        "trailers",
        "policy",
        "not allowed in trailers: drop or reject, never act on it, RFC 9110 6.5.1",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"5\r\n"
            b"hello\r\n"
            b"0\r\n"
            b"Authorization: Basic eA==\r\n\r\n"
        ),
        accept=Accepted(method=b"POST", headers=[HOST, (b"transfer-encoding", b"chunked")], body=b"hello"),
        reject={400},
        stage="body",
    ),
    Case(
        "tr-no-colon",
        "trailers",
        "must",
        "field-line needs a colon, RFC 9112 7.1.2",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"5\r\n"
            b"hello\r\n"
            b"0\r\n"
            b"X-Sum\r\n\r\n"
        ),
        reject={400},
        stage="body",
    ),
    Case(
        "tr-space-colon",
        "trailers",
        "must",
        "RFC 9112 5.1",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"5\r\n"
            b"hello\r\n"
            b"0\r\n"
            b"X-Sum : 9\r\n\r\n"
        ),
        reject={400},
        stage="body",
    ),
    Case(
        "tr-obs-fold",
        "trailers",
        "policy",
        "RFC 9112 5.2",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"5\r\n"
            b"hello\r\n"
            b"0\r\n"
            b"X-Sum: 9\r\n"
            b" 9\r\n\r\n"
        ),
        reject={400},
        stage="body",
    ),
    Case(
        "tr-lf",
        "trailers",
        "policy",
        "bare LF, RFC 9112 2.2",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"5\r\n"
            b"hello\r\n"
            b"0\r\n"
            b"X-Sum: 9\n\r\n"
        ),
        reject={400},
        stage="body",
    ),
    Case(
        "tr-nul",
        "trailers",
        "must",
        "NUL, RFC 9110 5.5",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"5\r\n"
            b"hello\r\n"
            b"0\r\n"
            b"X-Sum: \x00\r\n\r\n"
        ),
        reject={400},
        stage="body",
    ),
    Case(
        "tr-flood",
        "trailers",
        "policy",
        "trailers count against the field limits, RFC 9110 5.4 (compare CVE-2026-22815)",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0")
        + b"\r\nX-A: 1" * 100_000
        + b"\r\n\r\n",
        reject={400, 413, 431},
        stage="body",
    ),
    # --- connection --------------------------------------------------------------------------------------
    Case(
        "cn-pipeline-2",
        "connection",
        "must",
        "answers in order, RFC 9112 9.3.2",
        b"GET /1 HTTP/1.1\r\nHost: a.test\r\n\r\nGET /2 HTTP/1.1\r\nHost: a.test\r\n\r\n",
        accept=Accepted(target=b"/1", requests=2, all=[(b"GET", b"/1", b""), (b"GET", b"/2", b"")]),
    ),
    Case(
        "cn-pipeline-post-get",
        "connection",
        "must",
        "bodies do not leak into the next head, RFC 9112 9.3.2",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Content-Length: 5\r\n\r\n"
            b"helloGET /2 HTTP/1.1\r\n"
            b"Host: a.test\r\n\r\n"
            b"GET /1 HTTP/1.1\r\n"
            b"Host: a.test\r\n\r\n"
        ),
        accept=Accepted(
            method=b"POST",
            headers=[HOST, (b"content-length", b"5")],
            body=b"hello",
            requests=3,
            all=[(b"POST", b"/", b"hello"), (b"GET", b"/2", b""), (b"GET", b"/1", b"")],
        ),
    ),
    Case(
        "cn-close-then-request",
        "connection",
        "must",
        "MUST NOT process further requests after close, RFC 9112 9.6",
        (
            b"GET /1 HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Connection: close\r\n\r\n"
            b"GET /2 HTTP/1.1\r\n"
            b"Host: a.test\r\n\r\n"
        ),
        accept=Accepted(target=b"/1", headers=[HOST, (b"connection", b"close")], keep_alive=False),
        never=[b"/2"],
    ),
    Case(
        "cn-close-in-list",
        "connection",
        "must",
        "case-insensitive list member, RFC 9110 7.6.1",
        (
            b"GET /1 HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Connection: foo ,\tCLOSE\r\n\r\n"
            b"GET /2 HTTP/1.1\r\n"
            b"Host: a.test\r\n\r\n"
        ),
        accept=Accepted(target=b"/1", headers=[HOST, (b"connection", b"foo ,\tCLOSE")], keep_alive=False),
        never=[b"/2"],
    ),
    Case(
        "cn-close-second-line",
        "connection",
        "must",
        "close wins over keep-alive, over several lines, RFC 9112 9.3",
        (
            b"GET /1 HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Connection: keep-alive\r\n"
            b"Connection: close\r\n\r\n"
            b"GET /2 HTTP/1.1\r\n"
            b"Host: a.test\r\n\r\n"
        ),
        accept=Accepted(
            target=b"/1",
            headers=[HOST, (b"connection", b"keep-alive"), (b"connection", b"close")],
            keep_alive=False,
        ),
        never=[b"/2"],
    ),
    Case(
        "cn-10-default-close",
        "connection",
        "must",
        "1.0 without keep-alive: close after the response, RFC 9112 9.3",
        b"GET /1 HTTP/1.0\r\n\r\nGET /2 HTTP/1.1\r\nHost: a.test\r\n\r\n",
        accept=Accepted(target=b"/1", version=b"1.0", headers=[], keep_alive=False),
        never=[b"/2"],
    ),
    Case(
        "cn-10-keep-alive",
        "connection",
        "must",
        "1.0 keep-alive is honoured (and echoed) or closed; both end cleanly, RFC 9112 9.3",
        b"GET /1 HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
        accept=Accepted(target=b"/1", version=b"1.0", headers=[(b"connection", b"Keep-Alive")]),
    ),
    Case(
        "cn-list",
        "connection",
        "must",
        "empty list elements, RFC 9110 5.6.1.2",
        b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: keep-alive, , Foo,\r\n\r\n",
        accept=Accepted(headers=[HOST, (b"connection", b"keep-alive, , Foo,")]),
    ),
    Case(
        "cn-upgrade-unknown",
        "connection",
        "must",
        "ignored; what follows is a request, not raw data, RFC 9110 7.8",
        (
            b"GET / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Connection: upgrade\r\n"
            b"Upgrade: foo/2\r\n\r\n"
            b"GET /2 HTTP/1.1\r\n"
            b"Host: a.test\r\n\r\n"
        ),
        accept=Accepted(
            headers=[HOST, (b"connection", b"upgrade"), (b"upgrade", b"foo/2")],
            requests=2,
            all=[(b"GET", b"/", b""), (b"GET", b"/2", b"")],
        ),
    ),
    Case(
        "cn-upgrade-post-body",
        "connection",
        "must",
        "a body with an ignored Upgrade is still a body, RFC 9110 7.8",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Connection: upgrade\r\n"
            b"Upgrade: foo\r\n"
            b"Content-Length: 5\r\n\r\n"
            b"helloGET /2 HTTP/1.1\r\n"
            b"Host: a.test\r\n\r\n"
        ),
        accept=Accepted(
            method=b"POST",
            headers=[HOST, (b"connection", b"upgrade"), (b"upgrade", b"foo"), (b"content-length", b"5")],
            body=b"hello",
            requests=2,
            all=[(b"POST", b"/", b"hello"), (b"GET", b"/2", b"")],
        ),
    ),
    Case(
        "cn-nominates-host",
        "connection",
        "must",
        "an origin does not strip what Connection names, RFC 9110 7.6.1",
        b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: host, content-length\r\n\r\n",
        accept=Accepted(headers=[HOST, (b"connection", b"host, content-length")]),
    ),
    Case(
        "cn-second-no-host",
        "connection",
        "must",
        "checks apply to every request, not only the first, RFC 9112 3.2",
        b"GET /1 HTTP/1.1\r\nHost: a.test\r\n\r\nGET /2 HTTP/1.1\r\n\r\n",
        accept=Accepted(target=b"/1", keep_alive=False, then_reject={400}),
        never=[b"/2"],
    ),
    Case(
        "cn-close-then-garbage",
        "connection",
        "must",
        "bytes after close are discarded, not answered, RFC 9112 9.6",
        b"GET /1 HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n\x00junk\r\n\r\n",
        accept=Accepted(target=b"/1", headers=[HOST, (b"connection", b"close")], keep_alive=False),
    ),
    Case(
        "cn-body-overrun",
        "connection",
        "must",
        "surplus bytes start the next (bad) request, RFC 9112 9.3.2",
        b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhelloX\r\n\r\n",
        accept=Accepted(
            method=b"POST",
            headers=[HOST, (b"content-length", b"5")],
            body=b"hello",
            keep_alive=False,
            then_reject={400},
        ),
    ),
    # --- expect ------------------------------------------------------------------------------------------
    Case(
        "ex-100-case",
        "expect",
        "must",
        "case-insensitive, RFC 9110 10.1.1",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nEXPECT: 100-CONTINUE\r\nContent-Length: 5\r\n\r\nhello"),
        accept=Accepted(
            method=b"POST",
            headers=[HOST, (b"expect", b"100-CONTINUE"), (b"content-length", b"5")],
            body=b"hello",
        ),
    ),
    Case(
        "ex-100-chunked",
        "expect",
        "must",
        "RFC 9110 10.1.1",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Expect: 100-continue\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"5\r\n"
            b"hello\r\n"
            b"0\r\n\r\n"
        ),
        accept=Accepted(
            method=b"POST",
            headers=[HOST, (b"expect", b"100-continue"), (b"transfer-encoding", b"chunked")],
            body=b"hello",
        ),
    ),
    Case(
        "ex-100-10",
        "expect",
        "must",
        "MUST ignore the expectation in 1.0: no 1xx to a 1.0 client, RFC 9110 10.1.1",
        b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
        accept=Accepted(
            method=b"POST",
            version=b"1.0",
            headers=[(b"expect", b"100-continue"), (b"content-length", b"5")],
            body=b"hello",
            keep_alive=False,
        ),
    ),
    Case(
        "ex-100-cl0",
        "expect",
        "must",
        "zero length: no wait, no confusion with what follows, RFC 9110 10.1.1",
        (
            b"POST / HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Expect: 100-continue\r\n"
            b"Content-Length: 0\r\n\r\n"
            b"GET /2 HTTP/1.1\r\n"
            b"Host: a.test\r\n\r\n"
        ),
        accept=Accepted(
            method=b"POST",
            headers=[HOST, (b"expect", b"100-continue"), (b"content-length", b"0")],
            requests=2,
            all=[(b"POST", b"/", b""), (b"GET", b"/2", b"")],
        ),
    ),
    Case(
        "ex-unknown",
        "expect",
        "policy",
        "MAY answer 417, RFC 9110 10.1.1",
        b"POST / HTTP/1.1\r\nHost: a.test\r\nExpect: tea\r\nContent-Length: 5\r\n\r\nhello",
        accept=Accepted(
            method=b"POST", headers=[HOST, (b"expect", b"tea"), (b"content-length", b"5")], body=b"hello"
        ),
        reject={417},
        stage="head",
    ),
    Case(
        "ex-list",
        "expect",
        "policy",
        "Expect is a list, RFC 9110 10.1.1",
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue, tea\r\nContent-Length: 5\r\n\r\nhello"),
        accept=Accepted(
            method=b"POST",
            headers=[HOST, (b"expect", b"100-continue, tea"), (b"content-length", b"5")],
            body=b"hello",
        ),
        reject={417},
        stage="head",
    ),
    # --- limits ------------------------------------------------------------------------------------------
    Case(
        "lm-target-1m",
        "limits",
        "policy",
        "MUST answer 414 to a target longer than we parse; must not buffer without end, RFC 9112 3",
        b"GET /" + b"a" * 1_048_576 + b" HTTP/1.1\r\nHost: a.test\r\n\r\n",
        reject={400, 414, 431},
        stage="head",
    ),
    Case(
        "lm-method-64k",
        "limits",
        "policy",
        "a method longer than any we know, RFC 9112 3",
        b"G" * 65_536 + b" / HTTP/1.1\r\nHost: a.test\r\n\r\n",
        reject={400, 414, 431, 501},
        stage="head",
    ),
    Case(
        "lm-value-1m",
        "limits",
        "policy",
        "one field over the limit, RFC 9110 5.4, RFC 6585 5",
        b"GET / HTTP/1.1\r\nHost: a.test\r\nX-A: " + b"v" * 1_048_576 + b"\r\n\r\n",
        reject={400, 431},
        stage="head",
    ),
    Case(
        "lm-fields-20000",
        "limits",
        "policy",
        "count limit: tiny fields cost far more memory than bytes, RFC 9110 5.4",
        b"GET / HTTP/1.1\r\nHost: a.test" + b"\r\na:" * 20_000 + b"\r\n\r\n",
        reject={400, 431},
        stage="head",
    ),
    Case(
        "lm-total-1m",
        "limits",
        "policy",
        "total limit, each field being small, RFC 9110 5.4",
        b"GET / HTTP/1.1\r\nHost: a.test\r\n"
        + b"".join(b"X-%d: " % i + b"v" * 2000 + b"\r\n" for i in range(520))
        + b"\r\n",
        reject={400, 431},
        stage="head",
    ),
    Case(
        "lm-crlf-flood",
        "limits",
        "policy",
        "empty lines must not reset a header timer for ever, RFC 9112 2.2",
        b"\r\n" * 10_000 + b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
        accept=Accepted(),
        reject={400},
        stage="head",
        may_close_silently=True,
    ),
    # --- line-endings ------------------------------------------------------------------------------------
    Case(
        "le-request-line-lf",
        "line-endings",
        "policy",
        "bare LF, RFC 9112 2.2",
        b"GET / HTTP/1.1\nHost: a.test\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "le-field-lf",
        "line-endings",
        "policy",
        "bare LF, RFC 9112 2.2",
        b"GET / HTTP/1.1\r\nHost: a.test\nX-A: v\r\n\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "le-final-lf",
        "line-endings",
        "policy",
        "bare LF ends the head, RFC 9112 2.2",
        b"GET / HTTP/1.1\r\nHost: a.test\r\n\n",
        reject={400},
        stage="head",
    ),
    Case(
        "le-all-cr",
        "line-endings",
        "policy",
        "bare CR, RFC 9112 2.2",
        b"GET / HTTP/1.1\rHost: a.test\r\r",
        reject={400},
        stage="head",
        eof=True,
        may_close_silently=True,
    ),
    Case(
        "le-crcrlf",
        "line-endings",
        "policy",
        "bare CR before CRLF, RFC 9112 2.2",
        b"GET / HTTP/1.1\r\r\nHost: a.test\r\r\n\r\r\n",
        reject={400},
        stage="head",
    ),
    Case(
        "le-lfcr",
        "line-endings",
        "policy",
        "LF CR is no terminator, RFC 9112 2.2",
        b"GET / HTTP/1.1\n\rHost: a.test\n\r\n\r",
        reject={400},
        stage="head",
        eof=True,
    ),
    # --- foreign -----------------------------------------------------------------------------------------
    Case(
        "fo-websocket",
        "foreign",
        "must",
        "a handshake is a plain HTTP request first, RFC 6455 4.1",
        (
            b"GET /ws HTTP/1.1\r\n"
            b"Host: a.test\r\n"
            b"Upgrade: websocket\r\n"
            b"Connection: keep-alive, Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        ),
        accept=Accepted(
            target=b"/ws",
            headers=[
                HOST,
                (b"upgrade", b"websocket"),
                (b"connection", b"keep-alive, Upgrade"),
                (b"sec-websocket-version", b"13"),
                (b"sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ=="),
            ],
        ),
    ),
    Case(
        "fo-tls-hello",
        "foreign",
        "must",
        "TLS on the plain port: a quick, quiet refusal",
        b"\x16\x03\x01\x00.\x01\x00\x00*\x03\x03AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        reject={400},
        stage="head",
        eof=True,
        may_close_silently=True,
    ),
    Case(
        "fo-h2-preface",
        "foreign",
        "must",
        "HTTP/2 prior knowledge on a 1.x-only listener; PRI is never dispatched, RFC 9113 3.4",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
        reject={400, 505},
        stage="head",
        may_close_silently=True,
    ),
    Case(
        "fo-proxy-v2",
        "foreign",
        "must",
        "the v2 signature starts with CRLF CRLF NUL: not an empty line to skip",
        (
            b"\r\n\r\n"
            b"\x00\r\n"
            b"QUIT\n!\x11\x00\x0c\xc0\x00\x02\x01\xc0\x00\x02\x02\x00\x05\x00PGET /1 HTTP/1.1\r\n"
            b"Host: a.test\r\n\r\n"
        ),
        reject={400},
        stage="head",
        never=[b"/1"],
    ),
    Case(
        "fo-ssh-banner",
        "foreign",
        "must",
        "other protocols: refuse at the first line",
        b"SSH-2.0-scanner\r\n",
        reject={400, 505},
        stage="head",
        eof=True,
        may_close_silently=True,
    ),
    Case(
        "fo-response-line",
        "foreign",
        "must",
        "a response is not a request, RFC 9112 2.1",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        reject={400, 505},
        stage="head",
    ),
]
