"""The preamble of the PROXY protocol: octets in, addresses out."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servery.errors import RemoteProtocolError
from servery.proxies.preamble import V2_SIGNATURE, Preamble

ANY = frozenset((1, 2))
V1 = b"PROXY TCP4 1.2.3.4 5.6.7.8 1000 443\r\n"
PAIRS = (("1.2.3.4", 1000), ("5.6.7.8", 443))
IPV4 = bytes((1, 2, 3, 4, 5, 6, 7, 8)) + struct.pack("!HH", 1000, 443)


def v2(block: bytes = IPV4, command: int = 0x21, family: int = 0x11) -> bytes:
    return V2_SIGNATURE + bytes((command, family)) + struct.pack("!H", len(block)) + block


def tlv(kind: int, value: bytes) -> bytes:
    return struct.pack("!BH", kind, len(value)) + value


def read(data: bytes, step: int = 0, versions=ANY, limit: int = 4096) -> Preamble:
    """The preamble at the beginning of `data`, fed whole or in steps until it is complete."""
    preamble = Preamble(versions, limit)
    step = step or max(len(data), 1)
    for at in range(0, len(data), step):
        if preamble.feed(data[at : at + step]):
            preamble.rest += data[at + step :]
            break
    return preamble


GOOD = [
    (V1, PAIRS, False),
    (b"PROXY TCP4 1.2.3.4 5.6.7.8 0 65535\r\n", (("1.2.3.4", 0), ("5.6.7.8", 65535)), False),
    (b"PROXY TCP6 ::1 fd00::2 1 2\r\n", (("::1", 1), ("fd00::2", 2)), False),
    (b"PROXY TCP6 " + b"ffff:" * 7 + b"ffff " + b"ffff:" * 7 + b"ffff 65535 65535\r\n", None, False),
    (b"PROXY UNKNOWN\r\n", (None, None), False),
    (b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n", (None, None), False),
    (v2(), PAIRS, False),
    (v2(family=0x12), PAIRS, False),
    (v2(b"\0" * 15 + b"\1" + b"\xfd" + b"\0" * 14 + b"\2" + struct.pack("!HH", 1, 2), family=0x21),
     (("::1", 1), ("fd00::2", 2)), False),
    (v2(b"\0" * 216, family=0x31), (None, None), False),
    (v2(b"", family=0x00), (None, None), False),
    (v2(IPV4, command=0x20), (None, None), False),
    (v2(b"", command=0x20, family=0), (None, None), False),
    (v2(IPV4 + tlv(4, b"noop") + tlv(0xEA, b"x" * 100)), PAIRS, False),
    (v2(IPV4 + tlv(0x20, b"\x01\0\0\0\0" + tlv(0x21, b"TLSv1.3"))), PAIRS, True),
    (v2(IPV4 + tlv(1, b"h2") + tlv(0x20, b"\x00\0\0\0\0")), PAIRS, False),
]  # fmt: skip


@pytest.mark.parametrize("step", [0, 1, 7])
@pytest.mark.parametrize(("data", "pairs", "tls"), GOOD)
def test_addresses_are_read_however_the_octets_are_cut(data, pairs, tls, step):
    preamble = read(data + b"GET / HTTP/1.1\r\n", step)
    assert preamble.complete
    assert preamble.rest == b"GET / HTTP/1.1\r\n"
    assert preamble.tls is tls
    if pairs is not None:
        assert (preamble.source, preamble.destination) == pairs


BAD = [
    b"GET / HTTP/1.1\r\n",
    b"\x16\x03\x01",
    b"proxy TCP4",
    b"PROXY  TCP4 1.2.3.4 5.6.7.8 1 2\r\n",
    b"PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n",
    b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2 3\r\n",
    b"PROXY TCP4 1.2.3.4 5.6.7.8 01 2\r\n",
    b"PROXY TCP4 1.2.3.4 5.6.7.8 +1 2\r\n",
    b"PROXY TCP4 1.2.3.4 5.6.7.8 1 65536\r\n",
    b"PROXY TCP4 1.2.3.4 5.6.7.8 1 \r\n",
    b"PROXY TCP4 ::1 ::2 1 2\r\n",
    b"PROXY TCP6 1.2.3.4 5.6.7.8 1 2\r\n",
    b"PROXY TCP6 fe80::1%a ::2 1 2\r\n",
    b"PROXY TCP4 1.2.3.\xb2 5.6.7.8 1 2\r\n",
    b"PROXY UDP4 1.2.3.4 5.6.7.8 1 2\r\n",
    b"PROXY \r\n",
    b"PROXY UNKNOWN " + b"x" * 92 + b"\r\n",
    b"PROXY " + b"x" * 101,
    V2_SIGNATURE[:5] + b"x",
    v2(command=0x11),
    v2(command=0x22),
    v2(command=0x31),
    v2(IPV4[:-1]),
    v2(b"\0" * 35, family=0x21),
    v2(IPV4 + tlv(4, b"noop")[:-1]),
]


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("data", BAD)
def test_what_is_no_preamble_is_refused(data, step):
    with pytest.raises(RemoteProtocolError):
        read(data, step)


def test_the_longest_line_and_one_octet_more():
    line = b"PROXY UNKNOWN " + b"x" * 91 + b"\r\n"
    assert len(line) == 107
    assert read(line).complete
    assert read(line, 1).complete
    with pytest.raises(RemoteProtocolError):
        read(line[:-2] + b"x\r\n")


@pytest.mark.parametrize("data", [V1, v2()])
def test_the_limit_and_one_octet_less(data):
    for step in (0, 1):
        assert read(data, step, limit=len(data)).complete
        with pytest.raises(RemoteProtocolError):
            read(data, step, limit=len(data) - 1)


def test_a_long_preamble_is_refused_before_it_has_come():
    with pytest.raises(RemoteProtocolError):
        read(V2_SIGNATURE + b"\x21\x11\xff\xff")


@pytest.mark.parametrize(("data", "versions"), [(V1, {2}), (v2(), {1})])
def test_a_version_that_was_not_asked_for_is_refused(data, versions):
    with pytest.raises(RemoteProtocolError):
        read(data, versions=frozenset(versions))


@given(st.one_of(st.binary(max_size=60), st.binary(max_size=60).map(lambda tail: V2_SIGNATURE + tail)))
def test_anything_is_a_preamble_or_refused(data):
    try:
        preamble = read(data)
    except RemoteProtocolError:
        return
    assert preamble.complete or len(data) < 4096 + 16
