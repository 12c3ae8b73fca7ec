"""What is asked for and what has to come back: requests, expected bodies, files that are served."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .loadgen.client import Expectation
from .paths import HERE, cache

FILES = {"128k": 128 * 1024, "8m": 8 * 1024 * 1024}
"""Files under ``/file/``, with their sizes in octets."""

BROWSER = {
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Accept-Language": "en-GB,en;q=0.7,de;q=0.3",
    "Accept-Encoding": "gzip, deflate, br, zstd",
    "Referer": "https://www.example.com/catalogue?page=2",
    "Connection": "keep-alive",
    "Cookie": "session=6f1a2b3c4d5e6f708192a3b4c5d6e7f8; theme=dark; seen=1",
    "Upgrade-Insecure-Requests": "1",
    "Sec-Fetch-Dest": "document",
    "Sec-Fetch-Mode": "navigate",
    "Sec-Fetch-Site": "same-origin",
    "Sec-Fetch-User": "?1",
    "Priority": "u=0, i",
    "Pragma": "no-cache",
}
"""With Host these are the fifteen fields of a browser's navigation."""

FIELD_SETS: dict[str, dict[str, str]] = {
    "plain": {},
    "browser": BROWSER,
    "many": {f"X-Field-{number:02}": f"value of field number {number}" for number in range(31)},
}
"""By name in scenarios. Each gets Host as its first field: `many` has 32."""

HANDSHAKE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}
ACCEPT = ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
"""The answer to the key of RFC 6455, section 1.3."""


def request(method: str, path: str, fields: Mapping[str, str], body: bytes = b"") -> bytes:
    """The octets of one request."""
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: 127.0.0.1",
        *(f"{name}: {value}" for name, value in fields.items()),
    ]
    if body or method in ("POST", "PUT", "PATCH"):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


def file_content(name: str) -> bytes:
    """The octets of one of `FILES`: the same on every machine."""
    return random.Random(name).randbytes(FILES[name])


def files_directory() -> Path:
    """A directory with all of `FILES`."""
    directory = cache() / "files"
    directory.mkdir(exist_ok=True)
    for name, size in FILES.items():
        path = directory / name
        if not path.exists() or path.stat().st_size != size:
            path.write_bytes(file_content(name))
    return directory


def expected_body(description: Any) -> bytes:
    """A body as scenarios describe it: a text, ``{repeat, times}``, or ``{file}``.

    Raises KeyError for others.
    """
    if isinstance(description, str):
        return description.encode()
    if "file" in description:
        return file_content(description["file"])
    return str(description["repeat"]).encode() * int(description["times"])


def expectation(table: Mapping[str, Any]) -> Expectation:
    """What ``[expect]`` of a scenario says."""
    fields = tuple((name.lower(), value) for name, value in table.get("fields", {}).items())
    status = table.get("status", 200)
    if "body" not in table:
        return Expectation(status, table.get("length"), table.get("sha256"), fields)
    body = expected_body(table["body"])
    return Expectation(status, len(body), hashlib.sha256(body).hexdigest(), fields)


def fixtures_hash() -> str:
    """Of the applications, this file and the scenarios; results record it."""
    digest = hashlib.sha256()
    for path in [
        Path(__file__),
        *sorted((HERE / "apps").glob("*.py")),
        *sorted((HERE / "scenarios").glob("*.toml")),
    ]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
