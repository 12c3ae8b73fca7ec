"""The HTTP scenarios for Locust, whose workers run on several machines: for load that one client cannot make.

``SCENARIO=post-1k locust -f benchmarks/locustfile.py --headless --users 64 --spawn-rate 64 --run-time 10s
--host http://SERVER:PORT``; with ``--master`` and ``--worker`` on other machines.

Every answer is checked exactly. Locust measures a closed loop with a client that costs far more than the
server's work for a small answer: its figures are those of many clients at once, and no substitute for CPU per
request.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from locust import FastHttpUser, task

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.fixtures import expectation
from benchmarks.scenario import all_scenarios

HTTP = {name: found for name, found in all_scenarios().items() if found.kind == "http"}
NAME = os.environ.get("SCENARIO", "immediate")
if NAME not in HTTP:
    raise SystemExit(f"SCENARIO={NAME}: choose one of {', '.join(HTTP)}")
CELL = HTTP[NAME].cells()[0]
EXPECTED = expectation(CELL.scenario.expect)


def split_request() -> tuple[str, str, dict[str, str], bytes]:
    """Method, path, fields and body of the scenario's request; Locust sets Host and Content-Length itself."""
    head, _, body = CELL.request().partition(b"\r\n\r\n")
    first, *lines = head.decode("ascii").split("\r\n")
    method, path, _ = first.split(" ")
    fields = dict(line.split(": ", 1) for line in lines)
    return (
        method,
        path,
        {name: fields[name] for name in fields if name not in ("Host", "Content-Length")},
        body,
    )


METHOD, PATH, FIELDS, BODY = split_request()


class Client(FastHttpUser):
    """One connection that asks, checks, and asks again."""

    @task
    def ask(self) -> None:
        """One request of the scenario."""
        with self.client.request(
            METHOD,
            PATH,
            name=CELL.scenario.name,
            headers=FIELDS,
            data=BODY.decode("latin-1") or None,
            catch_response=True,
        ) as response:
            body = response.content or b""
            if response.status_code != EXPECTED.status:
                response.failure(f"status {response.status_code}, not {EXPECTED.status}")
            elif EXPECTED.sha256 is not None and hashlib.sha256(body).hexdigest() != EXPECTED.sha256:
                response.failure(f"another body: {len(body)} octets")
            else:
                response.success()
