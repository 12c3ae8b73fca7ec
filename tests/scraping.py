"""Who reads a server's metrics again and again, and holds them to what counters promise."""

from __future__ import annotations

import re
import threading
import time

from harness import WAIT
from prometheus_client.parser import text_string_to_metric_families

from servery.admin.client import ask


def metrics_of(address: str) -> dict[str, float]:
    """name, and the values of labels behind it -> value; read by Prometheus's own parser."""
    return values(text_of(address))


def text_of(address: str) -> str:
    """The page itself."""
    status, text = ask(address, "GET", "/metrics")
    assert status == 200, text
    return text


def values(text: str) -> dict[str, float]:
    """See `metrics_of`."""
    return {
        sample.name + "".join(f" {value}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


RISING = re.compile(r"\w+(_total|_bucket|_count|_sum)\b")
"""What must never become less."""


class Scraper(threading.Thread):
    """Reads the metrics every `interval` seconds, each time on a connection of its own."""

    def __init__(self, address: str, interval: float = 1.0) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._interval = interval
        self._ending = threading.Event()
        self.last: dict[str, float] = {}
        self.count = 0
        self.slowest = 0.0
        """Seconds that the slowest answer took."""
        self.faults: list[str] = []
        """Answers that did not come, and counters that fell."""

    def run(self) -> None:
        while not self._ending.is_set():
            self.scrape()
            self._ending.wait(self._interval)

    def scrape(self) -> None:
        """Read them once, and compare."""
        begun = time.monotonic()
        try:
            found = metrics_of(self._address)
        except Exception as error:
            self.faults.append(repr(error))
            return
        self.slowest = max(self.slowest, time.monotonic() - begun)
        self.count += 1
        self.faults += [
            f"{name} fell from {before} to {found.get(name)}"
            for name, before in self.last.items()
            if RISING.match(name) and found.get(name, 0) < before - 1e-6
        ]
        self.last = found

    def __enter__(self) -> Scraper:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self.join(WAIT)
