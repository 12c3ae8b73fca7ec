"""What servery reads itself of TLS: names in ClientHellos and in certificates."""

from __future__ import annotations

import datetime
import ssl
import struct

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID, ObjectIdentifier
from hypothesis import given
from hypothesis import strategies as st

from servery.tls.der import dns_names, expires, subject
from servery.tls.hello import LONGEST, RECORDS, server_name

# --- ClientHello -------------------------------------------------------------------------------------


def hello_of(name):
    """The first flight of a client that asks for `name`."""
    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def in_records(message, size):
    """A handshake message in records of `size` octets."""
    pieces = [message[at : at + size] for at in range(0, len(message), size)]
    return b"".join(b"\x16\x03\x01" + struct.pack(">H", len(piece)) + piece for piece in pieces)


def hello_with(extensions, *, session=b"", trailing=b""):
    """A ClientHello message with these extensions, encoded."""
    body = b"\x03\x03" + bytes(32) + bytes((len(session),)) + session + b"\x00\x02\x13\x01" + b"\x01\x00"
    body += struct.pack(">H", len(extensions)) + extensions + trailing
    return b"\x01" + len(body).to_bytes(3, "big") + body


def name_extension(*entries):
    content = b"".join(bytes((kind,)) + struct.pack(">H", len(name)) + name for kind, name in entries)
    content = struct.pack(">H", len(content)) + content
    return b"\x00\x00" + struct.pack(">H", len(content)) + content


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("a.example", "a.example"),
        ("A.Example", "a.example"),
        (None, ""),
        ("127.0.0.1", ""),
        ("x" * 63, "x" * 63),
    ],
)
def test_the_name_of_real_clients(name, read):
    hello = hello_of(name)
    assert server_name(hello) == read
    assert server_name(hello + b"\x14\x03\x03\x00\x01\x01") == read
    for end in range(len(hello)):
        assert server_name(hello[:end]) is None


def test_a_hello_in_several_records():
    message = hello_of("a.example")[5:]
    size = -(-len(message) // RECORDS)
    assert server_name(in_records(message, size)) == "a.example"
    for end in range(len(message) + 5 * RECORDS):
        assert server_name(in_records(message, size)[:end]) is None
    with pytest.raises(ValueError, match="too many records"):
        server_name(in_records(message, len(message) // (RECORDS + 1)))


@pytest.mark.parametrize(
    ("extensions", "read"),
    [
        (b"", ""),
        (b"\x00\x2b\x00\x01\x00" + name_extension((0, b"a.example")), "a.example"),
        (name_extension((1, b"x"), (0, b"a.example")), "a.example"),
        (name_extension((1, b"x")), ""),
        (name_extension((0, b"a.example.")), "a.example"),
        (name_extension((0, b"a\xff.example")), ""),
        (name_extension((0, b"a b")), ""),
        (name_extension((0, b"\n")), ""),
        (name_extension((0, b"")), ""),
        (name_extension((0, b"x" * 253)), "x" * 253),
        (name_extension((0, b"x" * 254)), ""),
    ],
)
def test_names_of_odd_clients(extensions, read):
    assert server_name(in_records(hello_with(extensions, session=b"s" * 32), 16_384)) == read


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\x40\x01",
        b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
        b"\x16\x03\x01\x00\x04\x01" + (LONGEST - 3).to_bytes(3, "big"),
        b"\x16\x03\x01\x00\x04\x01\x00\x00\x00",
        in_records(hello_with(b"\x00\x00\x00\x05\x00"), 1000),
        in_records(hello_with(b"\x00\x00\x00\x05\x00\x09\x00\x00\x05"), 1000),
        in_records(hello_with(b"\x00"), 1000),
    ],
)
def test_what_is_no_hello(data):
    with pytest.raises(ValueError):
        server_name(data)


def test_the_longest_hello():
    room = LONGEST - len(hello_with(b"")) - 4
    longest = hello_with(b"\x00\x15" + struct.pack(">H", room) + bytes(room))
    assert len(longest) == LONGEST
    assert server_name(in_records(longest, 16_384)) == ""


@given(st.binary(max_size=200), st.integers(0, 1000), st.integers(0, 255))
def test_anything_is_read_or_refused(data, at, octet):
    hello = bytearray(in_records(hello_with(name_extension((0, b"a.example"))), 40))
    hello[at % len(hello)] = octet
    for octets in (data, b"\x16\x03\x01\x00\x28" + data, bytes(hello)):
        try:
            assert isinstance(server_name(octets), str | None)
        except ValueError:
            pass


# --- certificates ------------------------------------------------------------------------------------

KEY = ec.generate_private_key(ec.SECP256R1())
END = datetime.datetime(2031, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)


def certificate(names=(), alternatives=None, end=END):
    """A certificate in DER."""
    name = x509.Name(list(names))
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(KEY.public_key())
    builder = (
        builder.serial_number(1).not_valid_before(END - datetime.timedelta(days=9999)).not_valid_after(end)
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
    if alternatives is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), False)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


@pytest.mark.parametrize(
    "names",
    [
        [],
        [x509.NameAttribute(NameOID.COMMON_NAME, "alice")],
        [
            x509.RelativeDistinguishedName(
                [
                    x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
                    x509.NameAttribute(NameOID.ORGANIZATION_NAME, 'A, "B" + C; <D>\\'),
                ]
            ),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, " # x "),
            x509.NameAttribute(NameOID.COMMON_NAME, "#b=c"),
            x509.NameAttribute(NameOID.LOCALITY_NAME, "Zürich \u20ac \U0001f600"),
            x509.NameAttribute(NameOID.DOMAIN_COMPONENT, "example"),
            x509.NameAttribute(NameOID.USER_ID, "a"),
            x509.NameAttribute(NameOID.STATE_OR_PROVINCE_NAME, "s"),
            x509.NameAttribute(NameOID.STREET_ADDRESS, "x" * 100),
        ],
    ],
)
def test_subjects(names):
    if names and isinstance(names[0], x509.RelativeDistinguishedName):
        names[0:1] = list(names[0])
    der = certificate(names)
    assert subject(der) == x509.load_der_x509_certificate(der).subject.rfc4514_string()


def test_subjects_of_other_types_are_written_as_they_are_encoded():
    names = [x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@b"), x509.NameAttribute(NameOID.COMMON_NAME, "c")]
    assert subject(certificate(names)) == "CN=c,1.2.840.113549.1.9.1=#1603614062"
    odd = x509.NameAttribute(ObjectIdentifier("2.999.1"), "x")
    assert subject(certificate([odd])) == "2.999.1=#0c0178"


def test_alternative_names():
    import ipaddress

    names = [
        x509.DNSName("a.example"),
        x509.IPAddress(ipaddress.ip_address("::1")),
        x509.DNSName("*.B.example"),
    ]
    assert dns_names(certificate(alternatives=names)) == ["a.example", "*.b.example"]
    assert dns_names(certificate()) == []


@pytest.mark.parametrize("year", [2026, 2049, 2050, 2100])
def test_the_end_of_its_time(year):
    end = END.replace(year=year)
    assert expires(certificate(end=end)) == end.timestamp()


@pytest.mark.parametrize("read", [subject, dns_names, expires])
def test_what_is_no_certificate(read):
    der = certificate([x509.NameAttribute(NameOID.COMMON_NAME, "alice")], [x509.DNSName("a.example")])
    for broken in (b"", b"\x30", b"\x30\x03\x02\x01\x01", b"\x02\x01\x01", der + der, der[:-1]):
        with pytest.raises(ValueError):
            read(broken)
    for at in range(0, len(der), 3):
        try:
            read(der[:at] + b"\xff" + der[at + 1 :])
        except ValueError:
            pass
