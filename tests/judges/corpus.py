"""Feeds the request files of gunicorn's parser tests to servery's engine.

Run by `run.py` in an environment where gunicorn's sdist and its `tests` folder are on the import path: its
own loader reads the files and what they should give. Writes ``{test id: fault or ""}`` as JSON to the path
in the first argument.

A valid file must give the requests that are written beside it, a refused one must end in a refusal, and
both must not depend on how the octets are cut. Most files lack the Host field that servery insists on: it
is added, so that they are judged by what they are about; and limits that a file sets are set.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import treq

from servery.events import BodyReceived, ConnectionFailed, PeerClosed, RequestReceived
from servery.http1.engine import Http1Engine
from servery.limits import Limits

REQUESTS = Path(treq.__file__).parent / "requests"
ADDED = b"added.example"
VERSION = re.compile(rb" HTTP/1\.[01]\r\n")
MAX_LINE, MAX_COUNT, MAX_FIELD = 1 << 20, 32_768, 8190
HEAD = 1 << 21


class Reader:
    """One connection that answers every request with 200 as soon as it is complete."""

    def __init__(self, limits: Limits) -> None:
        self.engine = Http1Engine(limits, lambda flags: b"", 0.0)
        self.requests: list[dict[str, Any]] = []
        self.refusal: str | None = None

    def feed(self, data: bytes) -> None:
        """Take octets, as they come from a socket; ``b""`` is the end."""
        if self.refusal is None and not self.engine.closing:
            self._take(self.engine.receive(data, 0.0))

    def _take(self, events: list[Any]) -> None:
        for event in events:
            if isinstance(event, RequestReceived):
                self.requests.append(
                    {
                        "method": event.method.decode(),
                        "uri": event.target.decode(),
                        "version": tuple(int(digit) for digit in event.version.split(b".")),
                        "headers": shown(event.headers),
                        "body": b"",
                        "trailers": [],
                    }
                )
                if event.complete:
                    self._answer(event.stream)
            elif isinstance(event, BodyReceived):
                self.requests[-1]["body"] += event.data
                if not event.more:
                    self.requests[-1]["trailers"] = shown(event.trailers)
                    self._answer(event.stream)
            elif isinstance(event, ConnectionFailed):
                self.refusal = f"{event.replied} {event.error.reason}"
            else:
                assert isinstance(event, PeerClosed)

    def _answer(self, stream: int) -> None:
        self.engine.start_response(stream, 200, [], False)
        self.engine.send_body(stream, b"", False)
        self._take(self.engine.advance(0.0))


def shown(fields: list[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    """Field lines as the corpus writes them, without the Host field that was added."""
    return [(name.decode().upper(), value.decode("latin-1")) for name, value in fields if value != ADDED]


def expected(case: dict[str, Any]) -> dict[str, Any]:
    """What the corpus says of one request, in the shape of `Reader.requests`."""
    return {
        "method": case["method"],
        "uri": case["uri"]["raw"],
        "version": case["version"],
        "headers": case["headers"],
        "body": case["body"] or b"",
        "trailers": case.get("trailers", []),
    }


def with_host(data: bytes, requests: int) -> bytes:
    """`data` with a Host field in each of its `requests`, if there is none at all."""
    if b"\nhost:" in data.lower():
        return data
    return VERSION.sub(rb"\g<0>Host: " + ADDED + b"\r\n", data, requests)


def limits_of(cfg: Any) -> Limits:
    """gunicorn's three limits on a head. It counts the CRLF of a field; its 0 is the most it allows."""
    return Limits(
        request_line=cfg.limit_request_line or MAX_LINE,
        field_count=cfg.limit_request_fields or MAX_COUNT,
        field_size=(cfg.limit_request_field_size or MAX_FIELD) - len("\r\n"),
        head_size=HEAD,
    )


def read(data: bytes, size: int, limits: Limits) -> Reader:
    """All of `data`, `size` octets at a time, then the end."""
    reader = Reader(limits)
    for at in range(0, len(data), size):
        reader.feed(data[at : at + size])
    reader.feed(b"")
    return reader


def judge_valid(path: Path) -> str:
    """What is wrong with the reading of a file that stands for one or more requests."""
    case = treq.load_py(str(path.with_suffix(".py")))
    requests = case["request"] if isinstance(case["request"], list) else [case["request"]]
    wanted = [expected(request) for request in requests]
    data = with_host(treq.request(str(path), requests).data, len(requests))
    for size in (len(data), 1, 7):
        reader = read(data, size, limits_of(case["cfg"]))
        if reader.refusal is not None:
            return f"refused: {reader.refusal}"
        if reader.requests != wanted:
            return f"read as {reader.requests}, not {wanted}"
    return ""


def judge_invalid(path: Path) -> str:
    """What is wrong with the reading of a file that must be refused."""
    case = treq.load_py(str(path.with_suffix(".py")))
    data = with_host(treq.badrequest(str(path)).data, 1)
    refusals = set()
    for size in (len(data), 1, 7):
        reader = read(data, size, limits_of(case["cfg"]))
        if reader.refusal is None:
            return f"taken as {len(reader.requests)} requests where gunicorn says {case['request'].__name__}"
        refusals.add(reader.refusal)
    return "" if len(refusals) == 1 else f"the refusal depends on the cuts: {sorted(refusals)}"


def main() -> None:
    """Judge every file and write what was found."""
    found = {}
    for kind, judge in (("valid", judge_valid), ("invalid", judge_invalid)):
        paths = sorted((REQUESTS / kind).glob("*.http"))
        assert paths, f"no request files in {REQUESTS / kind}"
        for path in paths:
            found[f"{kind}/{path.stem}"] = judge(path)
    Path(sys.argv[1]).write_text(json.dumps(found, indent=1), "utf-8")


if __name__ == "__main__":
    main()
