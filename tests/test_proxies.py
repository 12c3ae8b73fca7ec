"""Whom to believe, and what forwarding fields mean: text and octets in, values out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servery import Config
from servery.errors import ConfigError
from servery.proxies.fields import FIELDS, MOST_COMMAS, MOST_HOPS, Origin, read_origin
from servery.proxies.nodes import read_host, read_node, read_port, read_prefix
from servery.proxies.rewriting import ScopeRewriter
from servery.proxies.trust import Trust
from servery.rules import FORWARDING_FIELDS

TRUST = Trust(("10.0.0.0/8", "fd00::/8"))


def test_the_settings_name_the_fields_that_are_read():
    assert {name.encode() for name in FORWARDING_FIELDS} == FIELDS


# --- whom to believe ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "host", "trusted"),
    [
        ((), "127.0.0.1", False),
        ((), None, False),
        (("unix",), None, True),
        (("unix",), "127.0.0.1", False),
        (("0.0.0.0/0",), None, False),
        (("0.0.0.0/0",), "::1", False),
        (("10.0.0.0/8",), "10.255.255.255", True),
        (("10.0.0.0/8",), "11.0.0.0", False),
        (("10.0.0.1",), "10.0.0.1", True),
        (("10.0.0.1",), "::ffff:10.0.0.1", True),
        (("::ffff:10.0.0.0/104",), "10.0.0.1", True),
        (("::1",), "::1", True),
        (("::1",), "0:0:0:0:0:0:0:1", True),
        (("fd00::/8",), "fdff::1", True),
        (("fd00::/8",), "fe00::1", False),
        (("10.0.0.1",), "not an address", False),
        (("10.0.0.1",), "", False),
    ],
)
def test_peers_on_the_list_are_trusted_and_no_others(entries, host, trusted):
    trust = Trust(entries)
    client, server = (None, ("/path", None)) if host is None else ((host, 1), ("127.0.0.1", 80))
    assert trust.is_trusted(client, server) is trusted
    assert host is None or trust.trusts(host) is trusted


def test_who_has_no_address_since_it_has_reset_its_connection_is_nobody():
    trust = Trust(("unix", "0.0.0.0/0"))
    assert trust.is_trusted(None, ("/path", None))
    assert not trust.is_trusted(None, ("127.0.0.1", 80))
    assert not trust.is_trusted(None, None)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("*", "everybody"),
        ("10.0.0.1/8", "10.0.0.0/8"),
        ("proxy.example", "such as 10.0.0.1"),
        ("10.0.0", "such as 10.0.0.1"),
        ("UNIX", "unix"),
        ("10.0.0.0/33", "network"),
    ],
)
def test_an_entry_that_is_no_peer_is_refused_with_what_to_write(entry, said):
    with pytest.raises(ConfigError, match=said):
        Config(trusted_proxy=(entry,))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"forwarded_field": ("x-forwarded-for",)}, "trusted_proxy"),
        ({"forwarded_field": ("x-real-ip",), "trusted_proxy": ("unix",)}, "x-forwarded-for"),
        ({"forwarded_field": ("forwarded", "X-Forwarded-Host"), "trusted_proxy": ("unix",)}, "the same"),
        ({"trusted_proxy": ("unix", "unix")}, "twice"),
        ({"proxy_protocol": "v1"}, "trusted_proxy"),
        ({"request_id_reply": True}, "request_id_header"),
        ({"request_id_header": "x-request-id"}, "request_id_reply"),
        ({"request_id_header": "a b", "request_id_reply": True}, "name of a field"),
        ({"request_id_header": "Connection", "request_id_reply": True}, "another one"),
    ],
)
def test_settings_that_could_not_work_are_refused(settings, said):
    with pytest.raises(ConfigError, match=said):
        Config(**settings)


# --- addresses in fields -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "node"),
    [
        (b"1.2.3.4", ("1.2.3.4", 0)),
        (b"1.2.3.4:1024", ("1.2.3.4", 1024)),
        (b"1.2.3.4:65535", ("1.2.3.4", 65535)),
        (b"1.2.3.4:65536", ("1.2.3.4", 0)),
        (b"1.2.3.4:99999", ("1.2.3.4", 0)),
        (b"1.2.3.4:_port", ("1.2.3.4", 0)),
        (b" \t1.2.3.4 ", ("1.2.3.4", 0)),
        (b"::1", ("::1", 0)),
        (b"[::1]", ("::1", 0)),
        (b"[::1]:8080", ("::1", 8080)),
        (b"[::ffff:1.2.3.4]:1", ("::ffff:1.2.3.4", 1)),
        *(
            (junk, None)
            for junk in (b"", b"[::1", b"::1]", b"unknown", b"_hidden", b"evil\tx", b"1.2.3.4:", b"[]")
        ),
        *(
            (junk, None)
            for junk in (b"1.2.3.400", b"1.2.3", b"[1.2.3.4]", b"01.2.3.4", b"localhost", b"\xff", b"1:2")
        ),
        *(
            (junk, None)
            for junk in (
                b'1.2.3.4" GET /x',
                b"1.2.3.4\x00",
                b"1.2.3.4 x",
                b"[fe80::1%eth0]",
                b"\xd9\xa1.2.3.4",
            )
        ),
    ],
)
def test_addresses_with_ports_brackets_and_junk(text, node):
    assert read_node(text) == node


@pytest.mark.parametrize(
    ("text", "host"),
    [
        (b"a.example", (b"a.example", None)),
        (b"a.example:8443", (b"a.example", 8443)),
        (b"[::1]:80", (b"[::1]", 80)),
        *(
            (junk, None)
            for junk in (b"", b"a b", b"a/b", b"a@b", b"a:0", b"a:65536", b"a:", b"::1", b"a\xff", b"a,b")
        ),
    ],
)
def test_hosts(text, host):
    assert read_host(text) == host


@pytest.mark.parametrize(
    ("text", "port"),
    [(b"1", 1), (b"65535", 65535), (b"65536", None), (b"0", None), (b"+1", None), (b"", None)],
)
def test_ports(text, port):
    assert read_port(text) == port


@pytest.mark.parametrize(
    ("text", "prefix"),
    [
        (b"/api", b"/api"),
        (b"/api/", b"/api"),
        (b"/a/b%20c", b"/a/b%20c"),
        (b"/", b""),
        *(
            (junk, None)
            for junk in (
                b"",
                b"api",
                b"//evil.example",
                b"/a//b",
                b"/a?b",
                b"/a#b",
                b"/a b",
                b"/\xff",
                b"/a\\b",
            )
        ),
    ],
)
def test_prefixes(text, prefix):
    assert read_prefix(text) == prefix


# --- X-Forwarded-* -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "client"),
    [
        (b"6.6.6.6, 1.2.3.4, 10.0.0.9", ("1.2.3.4", 0)),
        (b"10.0.0.5", ("10.0.0.5", 0)),
        (b"10.0.0.5, 10.0.0.6", ("10.0.0.5", 0)),
        (b"", None),
        (b" , ", None),
        (b"1.2.3.4", ("1.2.3.4", 0)),
        (b"1.2.3.4:5", ("1.2.3.4", 5)),
        (b"6.6.6.6, unknown, 10.0.0.9:7", ("10.0.0.9", 7)),
        (b"6.6.6.6, unknown", None),
        (b"6.6.6.6,,10.0.0.9", ("10.0.0.9", 0)),
    ],
)
def test_the_first_address_from_the_right_that_is_not_trusted(value, client):
    assert read_origin({b"x-forwarded-for": value}, TRUST.trusts) == Origin(client=client)


def test_hops_are_bounded():
    def client(hops: int):
        value = b",".join([b"1.2.3.4", *[b"10.0.0.1"] * (hops - 1)])
        return read_origin({b"x-forwarded-for": value}, TRUST.trusts).client

    assert client(MOST_HOPS) == ("1.2.3.4", 0)
    assert client(MOST_HOPS + 1) == ("10.0.0.1", 0)


@pytest.mark.parametrize(
    ("proto", "addresses", "tls"),
    [
        (b"https", b"1.2.3.4", True),
        (b"HTTPS", b"1.2.3.4", True),
        (b"wss", b"", True),
        (b"http", b"1.2.3.4", False),
        (b"https, http", b"6.6.6.6, 1.2.3.4", False),
        (b"http, https, http", b"6.6.6.6, 1.2.3.4, 10.0.0.1", True),
        (b"https", b"1.2.3.4, 10.0.0.1, 10.0.0.2", True),
        (b"ftp", b"1.2.3.4", None),
        (b"", b"1.2.3.4", None),
        (b"https\xff", b"1.2.3.4", None),
    ],
)
def test_the_scheme_is_that_of_the_hop_which_saw_the_client(proto, addresses, tls):
    said = {b"x-forwarded-proto": proto, b"x-forwarded-for": addresses}
    assert read_origin(said, TRUST.trusts).tls is tls


# --- Forwarded ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "origin"),
    [
        (b"for=1.2.3.4", Origin(("1.2.3.4", 0))),
        (b'For="1.2.3.4:5";Proto=https;Host=a.example', Origin(("1.2.3.4", 5), True, (b"a.example", None))),
        (b'for="[::1]:8080"', Origin(("::1", 8080))),
        (b"for=[::1]", Origin(("::1", 0))),
        (b"for=1.2.3.4:5", Origin(("1.2.3.4", 5))),
        (b"for=6.6.6.6, for=1.2.3.4;proto=https, for=10.0.0.1;proto=http", Origin(("1.2.3.4", 0), True)),
        (b"for=6.6.6.6;proto=https, for=1.2.3.4", Origin(("1.2.3.4", 0))),
        (b"for=_hidden;proto=https", Origin(None, True)),
        (b"for=6.6.6.6, for=unknown, for=10.0.0.1", Origin(("10.0.0.1", 0))),
        (b"proto=https", Origin(None, True)),
        (b"for=1.2.3.4;by=_x;secret=y ; proto=https", Origin(("1.2.3.4", 0), True)),
        (b'for="1.2.3.4, for=6.6.6.6', Origin(("6.6.6.6", 0))),
        (b'for=", for=1.2.3.4', Origin(("1.2.3.4", 0))),
        (b'for="a, b";host="c\\,d", for=10.0.0.1', Origin(("10.0.0.1", 0))),
        (b'host="a\\.example"', Origin(None, None, (b"a.example", None))),
        (b"for=1.2.3.4,", Origin(("1.2.3.4", 0))),
        (b" ; for=1.2.3.4;; proto=https ;, ,", Origin(("1.2.3.4", 0), True)),
        (b"", Origin()),
        (b"1.2.3.4", Origin()),
        (b"for=1.2.3.4 x", Origin()),
        (b"for = 1.2.3.4", Origin()),
        (b'for="1.2.3.4', Origin()),
    ],
)
def test_forwarded(value, origin):
    found = read_origin({b"forwarded": value}, TRUST.trusts)
    if value.startswith(b'for="a, b"'):  # the element left of a trusted hop counts, and names no address
        assert found.client == ("10.0.0.1", 0)
    else:
        assert found == origin


def test_commas_in_quotes_are_bounded():
    def client(commas: int):
        value = b'for=1.2.3.4;secret="%b"' % (b"," * commas)
        return read_origin({b"forwarded": value}, TRUST.trusts).client

    assert client(MOST_COMMAS) == ("1.2.3.4", 0)
    assert client(MOST_COMMAS + 1) is None


@pytest.mark.parametrize(
    "junk",
    [b" " * 65_000 + b"x", b"a=b;" * 16_000 + b"x", b'a="' + b"," * 65_000, b"a" * 65_000, b'a="\\' * 16_000],
)
def test_junk_of_any_length_is_quickly_done_with(junk):
    """In steps that grow with its length and not with its square: the test's own time-out would tell."""
    for value in (junk, junk + b", for=10.0.0.1", b"for=10.0.0.1," + junk):
        read_origin({b"forwarded": value}, TRUST.trusts)
        read_origin(dict.fromkeys(FIELDS - {b"forwarded"}, value), TRUST.trusts)


def test_elements_of_forwarded_are_bounded():
    def client(hops: int):
        value = b",".join([b"for=1.2.3.4", *[b"for=10.0.0.1"] * (hops - 1)])
        return read_origin({b"forwarded": value}, TRUST.trusts).client

    assert client(MOST_HOPS) == ("1.2.3.4", 0)
    assert client(MOST_HOPS + 1) == ("10.0.0.1", 0)


WORDS = b'for = ; , " \\ 10.0.0.1 1.2.3.4:5 [::1] proto https host a.example \xff \x00 : unknown / // 80'
PIECES = st.sampled_from([*WORDS.split(b" "), b" ", b"\t"])


@given(st.dictionaries(st.sampled_from(sorted(FIELDS)), st.lists(PIECES, max_size=12).map(b"".join)))
def test_nothing_that_a_peer_says_raises(said):
    origin = read_origin(said, TRUST.trusts)
    assert origin.client is None or 0 <= origin.client[1] <= 65_535


@given(st.lists(PIECES, max_size=12).map(b"".join))
def test_nothing_left_of_an_untrusted_hop_changes_anything(junk):
    """Whatever a client has sent itself: the proxy has appended the address that it saw."""
    for said in (
        {b"x-forwarded-for": junk + b", 1.2.3.4"},
        {b"forwarded": junk + b", for=1.2.3.4;proto=http"},
    ):
        assert read_origin(said, TRUST.trusts).client == ("1.2.3.4", 0)


# --- scopes ------------------------------------------------------------------------------------------------


def rewritten(
    *fields, root="", removes=True, kind="http", peer=("10.0.0.1", 9), believed=FIELDS - {b"forwarded"}
):
    scope = {
        "type": kind,
        "scheme": "ws" if kind == "websocket" else "http",
        "client": peer,
        "server": ("127.0.0.1", 8000),
        "root_path": root,
        "path": f"{root}/ö/x",
        "raw_path": f"{root}/%C3%B6/x".encode(),
        "headers": [(b"host", b"inner:8000"), *fields],
    }
    before = scope["headers"].copy()
    headers = scope["headers"]
    ScopeRewriter(TRUST, believed, removes, root)(scope)
    assert headers == before  # the access log has the request as it came
    return scope


FOR = (b"x-forwarded-for", b"1.2.3.4")
PROTO = (b"x-forwarded-proto", b"https")
HOST = (b"x-forwarded-host", b"a.example")


def test_repeated_fields_are_one_list():
    assert rewritten((b"x-forwarded-for", b"6.6.6.6"), FOR, (b"x-forwarded-for", b"10.0.0.2"))["client"] == (
        "1.2.3.4",
        0,
    )


@pytest.mark.parametrize(("kind", "scheme"), [("http", "https"), ("websocket", "wss")])
def test_scheme_by_type(kind, scheme):
    assert rewritten(PROTO, kind=kind)["scheme"] == scheme


@pytest.mark.parametrize(
    ("fields", "host", "server"),
    [
        ((HOST,), b"a.example", ("a.example", 80)),
        ((HOST, PROTO), b"a.example", ("a.example", 443)),
        ((HOST, (b"x-forwarded-port", b"8443")), b"a.example:8443", ("a.example", 8443)),
        ((HOST, PROTO, (b"x-forwarded-port", b"443")), b"a.example", ("a.example", 443)),
        (((b"x-forwarded-host", b"[::1]:81"),), b"[::1]:81", ("::1", 81)),
        (((b"x-forwarded-port", b"81"),), b"inner:81", ("inner", 81)),
        (((b"x-forwarded-port", b"x"),), b"inner:8000", ("127.0.0.1", 8000)),
        (((b"x-forwarded-host", b"a b"),), b"inner:8000", ("127.0.0.1", 8000)),
    ],
)
def test_host_and_server(fields, host, server):
    scope = rewritten(*fields)
    assert [value for name, value in scope["headers"] if name == b"host"] == [host]
    assert scope["server"] == server


@pytest.mark.parametrize("root", ["", "/old", "/ü"])
def test_a_prefix_replaces_the_root_path(root):
    scope = rewritten((b"x-forwarded-prefix", b"/%C3%A4pi/"), root=root)
    assert (scope["root_path"], scope["path"], scope["raw_path"]) == (
        "/äpi",
        "/äpi/ö/x",
        b"/%C3%A4pi/%C3%B6/x",
    )


def test_an_untrusted_peer_changes_nothing_and_its_fields_go():
    scope = rewritten(FOR, PROTO, HOST, (b"forwarded", b"for=1.2.3.4"), peer=("8.8.8.8", 9))
    assert (scope["client"], scope["scheme"], scope["server"]) == (
        ("8.8.8.8", 9),
        "http",
        ("127.0.0.1", 8000),
    )
    assert scope["headers"] == [(b"host", b"inner:8000")]


def test_fields_that_are_not_named_are_not_believed_and_go():
    scope = rewritten(FOR, PROTO, (b"forwarded", b"for=6.6.6.6"), believed={b"x-forwarded-for"})
    assert (scope["client"], scope["scheme"]) == (("1.2.3.4", 0), "http")
    assert scope["headers"] == [(b"host", b"inner:8000"), FOR]


def test_what_is_not_believed_may_be_kept():
    scope = rewritten(FOR, PROTO, peer=("8.8.8.8", 9), removes=False)
    assert scope["client"] == ("8.8.8.8", 9)
    assert scope["headers"] == [(b"host", b"inner:8000"), FOR, PROTO]


def test_names_with_underscores_are_other_names():
    """They are the application's to see, and never a proxy's word."""
    scope = rewritten((b"x_forwarded_for", b"6.6.6.6"), (b"script_name", b"/admin"), FOR)
    assert scope["client"] == ("1.2.3.4", 0)
    assert scope["root_path"] == ""
    assert (b"x_forwarded_for", b"6.6.6.6") in scope["headers"]
