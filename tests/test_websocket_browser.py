"""A browser's own WebSocket against a server: what scripts see of messages, closes and denials."""

from __future__ import annotations

import queue

import pytest
from chromium import chromium
from harness import WAIT
from test_websocket_clients import chat, url

TALK = """async (url) => {
    const socket = new WebSocket(url, ["x", "y"]);
    socket.binaryType = "arraybuffer";
    const event = (name) => new Promise(done => socket.addEventListener(name, done, {once: true}));
    await event("open");
    const different = [];
    for (const text of ["", "a", "grüße 𝄞", "x".repeat(126), "é".repeat(200000)]) {
        socket.send(text);
        if ((await event("message")).data !== text) different.push(text.length);
    }
    for (const size of [0, 1, 125, 126, 65535, 65536, 1000000]) {
        const sent = new Uint8Array(size).map((_, index) => index * 7 + (index >> 8));
        socket.send(sent);
        const found = new Uint8Array((await event("message")).data);
        const same = found.length === size && found.every((octet, index) => octet === sent[index]);
        if (!same) different.push(size);
    }
    socket.send("close 4001 why");
    const end = await event("close");
    return [different, socket.protocol, socket.extensions, end.code, end.reason, end.wasClean];
}"""

END = """(url) => new Promise(done => {
    const socket = new WebSocket(url);
    let opened = false;
    socket.onopen = () => { opened = true; };
    socket.onclose = (end) => done([opened, end.code, end.reason, end.wasClean]);
    window.socket = socket;
})"""
"""Opens one and waits for its end, whoever brings it."""

OPEN = """(url) => new Promise(done => {
    window.socket = new WebSocket(url);
    window.socket.onopen = () => done(true);
    window.socket.onclose = () => done(false);
})"""


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser):
    page = browser.new_page()
    yield page
    page.close()


class Told:
    """`chat`, and what its `receive` said at the end."""

    def __init__(self):
        self.ends = queue.Queue()

    async def __call__(self, scope, receive, send):
        async def listening():
            message = await receive()
            if message["type"] == "websocket.disconnect":
                self.ends.put((message["code"], message["reason"]))
            return message

        await chat(scope, listening, send)


@pytest.mark.parametrize("compression", [True, False])
def test_messages_come_back_and_the_close_is_seen(serve, page, compression):
    with serve(chat, ws_per_message_deflate=compression) as server:
        different, protocol, extensions, *end = page.evaluate(TALK, url(server))
    assert different == []
    assert protocol == "x"
    assert extensions.startswith("permessage-deflate") if compression else extensions == ""
    assert end == [4001, "why", True]
    assert server.errors.lines(30) == []


def test_a_denial_is_an_end_without_an_open(serve, page):
    with serve(chat) as server:
        assert page.evaluate(END, url(server, "/deny")) == [False, 1006, "", False]
        [line] = server.access.wait(1)
    assert '"GET /deny HTTP/1.1" 401 ' in line


def test_a_script_closes(serve, page):
    app = Told()
    with serve(app) as server:
        assert page.evaluate(OPEN, url(server))
        page.evaluate("socket.close(3001, 'bye é')")
        assert app.ends.get(timeout=WAIT) == (3001, "bye é")


def test_a_page_that_is_left_is_going_away(serve, page):
    app = Told()
    with serve(app) as server:
        assert page.evaluate(OPEN, url(server))
        page.goto("about:blank")
        assert app.ends.get(timeout=WAIT) == (1001, "")


def test_the_stop_is_a_clean_close(serve, page):
    with serve(chat) as server:
        assert page.evaluate(OPEN, url(server))
        page.evaluate("void (window.end = new Promise(done => { socket.onclose = done; }))")
        server.server.should_exit = True
        assert page.evaluate("end.then(end => [end.code, end.reason, end.wasClean])") == [1012, "", True]
        server.stop()
    assert server.errors.lines(30) == []
