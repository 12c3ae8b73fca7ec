"""What servery reads of certificates: names and the end of their time, from DER (X.690, RFC 5280 section
4.1).

Pure functions on octets. Each raises `ValueError` for what is no certificate; whether one can be trusted is
for OpenSSL to say.
"""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Iterator
from typing import NamedTuple

_SEQUENCE, _OID, _OCTETS, _UTC_TIME = 0x30, 0x06, 0x04, 0x17
_VERSION, _EXTENSIONS, _DNS_NAME = 0xA0, 0xA3, 0x82
_ALTERNATIVE_NAMES = bytes.fromhex("551d11")
"""2.5.29.17, subjectAltName."""

_TYPES = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The short names of RFC 4514 section 3."""

_TEXTS = {
    0x0C: "utf-8",
    0x12: "ascii",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1A: "ascii",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}
"""The encodings of the string types of ASN.1."""

_SPECIAL = re.compile(r'^[ #]|[\\"+,;<>\0]| $')


class _Item(NamedTuple):
    """One encoded value: its tag, its content, and both with the length between, as they stand."""

    tag: int
    content: bytes
    whole: bytes


class _Parts(NamedTuple):
    validity: _Item
    subject: _Item
    extensions: _Item | None


def subject(certificate: bytes) -> str:
    """The subject's distinguished name as RFC 4514 writes it: ``CN=alice,O=Example``."""
    names = _items(_parts(certificate).subject.content)
    return ",".join(reversed(["+".join(map(_attribute, _items(name.content))) for name in names]))


def dns_names(certificate: bytes) -> list[str]:
    """The DNS names of the subjectAltName extension, in lower case; wildcards as they stand."""
    extensions = _parts(certificate).extensions
    if extensions is None:
        return []
    (listed,) = _items(extensions.content)
    for extension in _items(listed.content):
        identifier, *_, value = _items(extension.content)
        if identifier.content == _ALTERNATIVE_NAMES:
            (listed,) = _items(_only(value, _OCTETS).content)
            names = _items(listed.content)
            return [name.content.decode("ascii").lower() for name in names if name.tag == _DNS_NAME]
    return []


def expires(certificate: bytes) -> int:
    """When the certificate's time is over, in seconds since the epoch."""
    _, end = _items(_parts(certificate).validity.content)
    text = end.content.decode("ascii")
    if end.tag == _UTC_TIME:  # RFC 5280 section 4.1.2.5.1: years of two digits end in 2049
        text = ("19" if text >= "50" else "20") + text
    return calendar.timegm(time.strptime(text, "%Y%m%d%H%M%SZ"))


def _parts(certificate: bytes) -> _Parts:
    outer = _whole(certificate)
    signed = _only(next(iter(outer), None), _SEQUENCE)
    fields = [item for item in _items(signed.content) if item.tag != _VERSION]
    if len(fields) < 6:
        raise ValueError("no certificate: fields are missing")
    extensions = next((item for item in fields[6:] if item.tag == _EXTENSIONS), None)
    return _Parts(_only(fields[3], _SEQUENCE), _only(fields[4], _SEQUENCE), extensions)


def _whole(certificate: bytes) -> list[_Item]:
    (outer,) = _items(certificate)
    return list(_items(_only(outer, _SEQUENCE).content))


def _only(item: _Item | None, tag: int) -> _Item:
    if item is None or item.tag != tag:
        raise ValueError("no certificate: a value of another type was expected")
    return item


def _items(data: bytes) -> Iterator[_Item]:
    at = 0
    while at < len(data):
        start = at
        if len(data) < at + 2:
            raise ValueError("no certificate: cut short")
        tag, size = data[at], data[at + 1]
        at += 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[at : at + count], "big")
            at += count
        if len(data) < at + size:
            raise ValueError("no certificate: cut short")
        yield _Item(tag, data[at : at + size], data[start : at + size])
        at += size


def _attribute(item: _Item) -> str:
    kind, value = _items(item.content)
    number = _dotted(_only(kind, _OID).content)
    encoding = _TEXTS.get(value.tag)
    if number not in _TYPES or encoding is None:  # RFC 4514 section 2.4: then the encoding itself is written
        return f"{_TYPES.get(number, number)}=#{value.whole.hex()}"
    text = value.content.decode(encoding)
    return f"{_TYPES[number]}={_SPECIAL.sub(_escaped, text)}"


def _escaped(match: re.Match[str]) -> str:
    return "\\00" if match[0] == "\0" else f"\\{match[0]}"


def _dotted(content: bytes) -> str:
    numbers, number = [], 0
    for octet in content:
        number = number << 7 | octet & 0x7F
        if not octet & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2) if numbers else 0
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:]))) if numbers else ""
