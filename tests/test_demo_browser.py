"""The demo page in a real browser."""

from __future__ import annotations

import hashlib
import platform
import re
import signal
import subprocess
import sys

import pytest
from chromium import chromium
from playwright.sync_api import expect

pytestmark = pytest.mark.shared_server

UPLOAD = bytes(range(256)) * 1000 + b"end"


@pytest.fixture(scope="module")
def address(way):
    """The address of a server process with the demo."""
    command = [sys.executable, "-m", "servery", "servery.demo:app", "--port", "0", *way.flags]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        lines = []
        while not (found := re.search(r"· (http://127\.0\.0\.1:\d+)", lines[-1] if lines else "")):
            lines.append(process.stderr.readline())
            assert lines[-1], f"the server did not start:\n{''.join(lines)}"
        yield found[1]
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=20)[1]
        assert "Traceback" not in errors, errors
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser):
    """A page that must not complain."""
    context = browser.new_context()
    page = context.new_page()
    complaints = []
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda failed: complaints.append(failed.url))
    yield page
    assert complaints == []
    context.close()


def row(page, table, name):
    """The value next to `name` in one of the tables."""
    term = page.locator("dt", has_text=re.compile(f"^{re.escape(name)}$"))
    return page.locator(f"#{table} .row", has=term).locator("dd")


@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 900)], ids=["phone", "desktop"])
def test_the_page_shows_the_server_and_the_request(page, address, way, width, height):
    page.set_viewport_size({"width": width, "height": height})
    requested = []
    page.on("request", lambda request: requested.append(request.url))
    assert page.goto(address).status == 200
    expect(row(page, "configuration", "parser")).to_have_text(way.parser)
    expect(row(page, "configuration", "io")).to_have_text(way.io)
    expect(row(page, "configuration", "loop")).to_have_text(way.loop)
    expect(row(page, "configuration", "python")).to_contain_text(platform.python_version())
    expect(row(page, "request", "method")).to_have_text("GET")
    expect(row(page, "request", "server")).to_have_text(address.removeprefix("http://"))
    expect(row(page, "headers", "user-agent")).to_have_text(page.evaluate("navigator.userAgent"))
    expect(page.locator("#state")).to_have_text("live")
    assert requested
    assert all(url.startswith((address, "data:")) for url in requested)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_ticker_advances_by_itself(page, address):
    page.goto(address)
    expect(page.locator("#tick")).to_have_text(re.compile(r"[1-9]"))
    seen = int(page.locator("#tick").inner_text())
    later = re.compile("|".join(f"^{number}$" for number in range(seen + 2, seen + 30)))
    expect(page.locator("#tick")).to_have_text(later, timeout=20_000)
    expect(page.locator("#time")).to_have_text(re.compile(r"^\d\d:\d\d:\d\d$"))


@pytest.mark.parametrize("content", [UPLOAD, b"", b"x" * 1_048_576], ids=["every octet", "empty", "largest"])
def test_an_upload_comes_back(page, address, content):
    page.goto(address)
    file = {"name": "upload.bin", "mimeType": "application/x-test", "buffer": content}
    page.set_input_files("#file", file)
    with page.expect_response("**/echo") as answered:
        page.click("#send")
    expect(page.locator("#message")).to_have_text("Came back unchanged.")
    expect(page.locator("#size")).to_have_text(f"{len(content):,} bytes")
    expect(page.locator("#sha256")).to_have_text(hashlib.sha256(content).hexdigest())
    assert answered.value.header_value("content-type") == "application/x-test"


def test_too_large_an_upload_is_explained(page, address):
    page.goto(address)
    file = {"name": "upload.bin", "mimeType": "application/x-test", "buffer": b"x" * 1_048_577}
    page.set_input_files("#file", file)
    page.click("#send")
    expect(page.locator("#message")).to_contain_text("curl")
    expect(page.locator("#size")).to_have_text("–")


@pytest.mark.parametrize("word", ["hello", "grüße 𝄞 <b>", "x" * 100_000], ids=["short", "not ascii", "long"])
def test_what_is_said_comes_back(page, address, word):
    page.goto(address)
    expect(page.locator("#link")).to_contain_text("open")
    page.fill("#word", word)
    page.click("#say")
    expect(page.locator("#heard")).to_have_text(word)
    expect(page.locator("#took")).to_have_text(re.compile(r"^\d+\.\d\d ms$"))


def test_the_round_trip_is_shown_and_lives(page, address):
    page.goto(address)
    expect(page.locator("#trip")).to_have_text(re.compile(r"^\d+\.\d\d ms$"))
    first = page.locator("#trip").text_content()
    expect(page.locator("#trip")).not_to_have_text(first, timeout=20_000)
