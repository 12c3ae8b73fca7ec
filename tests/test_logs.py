from __future__ import annotations

import errno
import io
import json
import logging
import os
import pty
import re
import subprocess
import sys
import textwrap
import time
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from servery.errors import ConfigError
from servery.logs import (
    ACCESS_LOGGER,
    ERROR_LOGGER,
    TRACE,
    AccessLog,
    AccessRecord,
    LogHandler,
    WebSocketTraffic,
    configure,
    escape,
)
from servery.logs.escaping import escape_controls

PRINTABLE = re.compile(r"[\x20-\x7e]*")
EVERY_ATOM = (
    '%h %l %u %t "%r" %m %U %q %H %s %>s %b %B "%f" "%a" %D %L %M %T %p "%{X-One}i" "%{Etag}o" %I %x %%'
)


@dataclass
class Settings:
    log_level: str = "info"
    log_config: Any = None
    use_colors: bool | None = None
    access_log: bool = True
    access_log_format: str = "text"


RECORD = AccessRecord(
    client=("127.0.0.1", 52100),
    method=b"GET",
    target=b"/x?y",
    version=b"1.1",
    status=200,
    body_bytes_sent=1024,
    duration=0.001532,
    started_at=1_796_037_753.25,  # 30 November 2026, 11:22:33 UTC
    headers=[(b"host", b"a"), (b"user-agent", b"curl/8"), (b"x-one", b"1"), (b"x-one", b"2")],
    request_id="abc",
)


@pytest.fixture(autouse=True)
def loggers():
    """The two loggers, as they were before when the test is over."""
    both = [logging.getLogger(name) for name in (ERROR_LOGGER, ACCESS_LOGGER)]
    before = [(log.level, log.propagate, log.disabled, list(log.handlers)) for log in both]
    yield both
    for log, (level, propagate, disabled, handlers) in zip(both, before, strict=True):
        log.setLevel(level)
        log.propagate, log.disabled, log.handlers = propagate, disabled, handlers


@pytest.fixture
def zone(monkeypatch):
    """Set the time zone of the process."""

    def use(name):
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield use
    monkeypatch.undo()
    time.tzset()


def lines(format, *records):
    """What an access log in `format` hands to its stream."""
    stream = io.StringIO()
    logger = logging.Logger("access", logging.INFO)
    logger.addHandler(LogHandler(stream))
    log = AccessLog(format, logger)
    for record in records:
        log.log(record)
    assert log.lost == 0
    assert stream.getvalue().endswith("\n")
    return stream.getvalue()[:-1].split("\n")


def line(format, **changes):
    (only,) = lines(format, replace(RECORD, **changes))
    return only


# --- escaping --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"/plain?a=b", "/plain?a=b"),
        ("plain", "plain"),
        (b"", ""),
        (b"a\r\nb", r"a\x0d\x0ab"),
        (b"\x1b]0;x\x07", r"\x1b]0;x\x07"),
        (b"\x7f\x80\x9b\xff", r"\x7f\x80\x9b\xff"),
        (b'"\\', r"\"\\"),
        ("é\u2028", r"\xc3\xa9\xe2\x80\xa8"),
        ("\x9b", r"\xc2\x9b"),
        ("\udc80", r"\x80"),
        ("\ud800", r"\xed\xa0\x80"),
    ],
)
def test_escape(value, expected):
    assert escape(value) == expected


def test_every_octet_is_escaped_to_printable_ascii_and_can_be_told_apart():
    escaped = [escape(bytes([octet])) for octet in range(256)]
    assert all(PRINTABLE.fullmatch(text) for text in escaped)
    assert len(set(escaped)) == 256
    assert "".join(escaped) == escape(bytes(range(256)))


def test_error_texts_keep_their_letters_but_no_control_character():
    text = "ok · é\n\tnext \x1b[31m \x7f \x9b \u202e \ud800"
    assert escape_controls(text) == "ok · é\n\tnext \\x1b[31m \\x7f \\x9b \\u202e \\ud800"


# --- formats ---------------------------------------------------------------------------------------------


def test_text(zone):
    zone("UTC")
    assert line("text") == (
        '127.0.0.1:52100 - - [30/Nov/2026:11:22:33 +0000] "GET /x?y HTTP/1.1" 200 1024 0.001532 abc'
    )


def test_text_of_what_is_missing(zone):
    zone("UTC")
    empty = line("text", client=None, method=b"", target=b"", version=b"", status=0, request_id=None)
    assert empty == '- - - [30/Nov/2026:11:22:33 +0000] "-" 000 1024 0.001532 -'
    assert line("text", aborted=True).endswith(" abc aborted")


def test_ipv6_has_brackets():
    assert line("text", client=("::1", 8000)).startswith("[::1]:8000 - - [")


@pytest.mark.parametrize("status", [0, 7, 99, 100, 299, 599, 799, 999])
def test_any_status(status):
    assert f'" {status:03d} 1024 ' in line("text", status=status)
    assert line("%s", status=status) == f"{status:03d}"
    assert json.loads(line("json", status=status))["status"] == status


def test_json(zone):
    zone("UTC")
    assert line("json") == (
        '{"time":"2026-11-30T11:22:33.250+00:00","client":"127.0.0.1","client_port":52100,"scheme":"http",'
        '"method":"GET","target":"/x?y","protocol":"HTTP/1.1","status":200,"bytes":1024,"duration":0.001532,'
        '"aborted":false,"request_id":"abc","referer":null,"user_agent":"curl/8","close_code":null,'
        '"messages_received":null,"bytes_received":null,"messages_sent":null}'
    )


def test_json_keys_never_change():
    missing = line("json", client=None, method=b"", target=b"", version=b"", request_id=None, headers=[])
    values = json.loads(missing)
    assert list(values) == list(json.loads(line("json")))
    unknown = {key for key, value in values.items() if value is None}
    assert unknown == {
        "client",
        "client_port",
        "method",
        "target",
        "protocol",
        "request_id",
        "referer",
        "user_agent",
        "close_code",
        "messages_received",
        "bytes_received",
        "messages_sent",
    }


TRAFFIC = WebSocketTraffic(
    close_code=1001, messages_received=3, bytes_received=120, messages_sent=5, bytes_sent=99
)


def test_a_websocket_adds_what_it_carried():
    assert line("text", websocket=TRAFFIC).endswith(" abc closed 1001 in 3/120 out 5/99")
    assert line("text", websocket=TRAFFIC, aborted=True).endswith(
        " abc closed 1001 in 3/120 out 5/99 aborted"
    )
    values = json.loads(line("json", websocket=TRAFFIC))
    assert list(values) == list(json.loads(line("json")))
    told = [values[key] for key in ("close_code", "messages_received", "bytes_received", "messages_sent")]
    assert told == [1001, 3, 120, 5]


def test_atoms_of_a_websocket():
    names = ("close_code", "messages_received", "bytes_received", "messages_sent", "bytes_sent")
    template = " ".join(f"%{{{name}}}w" for name in names)
    assert line(template, websocket=TRAFFIC) == "1001 3 120 5 99"
    assert line(template) == "- - - - -"


def test_json_gives_the_octets_back():
    every = bytes(range(256))
    written = line("json", target=every, request_id="\ud800")
    assert PRINTABLE.fullmatch(written)
    assert json.loads(written)["target"].encode("latin-1") == every
    assert json.loads(written)["request_id"] == "?"


def test_every_atom(zone):
    zone("UTC")
    pid = os.getpid()
    assert line(EVERY_ATOM, response_headers=[(b"ETag", b'"v"')]) == (
        '127.0.0.1 - - [30/Nov/2026:11:22:33 +0000] "GET /x?y HTTP/1.1" GET /x ?y HTTP/1.1 200 200 1024 1024'
        f' "-" "curl/8" 1532 0.001532 2 0 {pid} "1, 2" "\\"v\\"" abc - %'
    )


def test_atoms_of_what_is_missing():
    nothing = AccessRecord(None, b"", b"/", b"", 0, 0, 0.0, 0.0, [], aborted=True)
    assert lines('%h %m %U%q %H %b %B %I %x %{No}i %{No}o "%f"', nothing) == (['- - / - - 0 - X - - "-"'])


@pytest.mark.parametrize(
    "format", ["%Z", "%", "100% sure", "%{name}e", "%{name}", "%{}i", "%{name", "%>h", "%(h)s", "%{code}w"]
)
def test_unknown_atom(format):
    with pytest.raises(ConfigError, match=r"unknown atom.*use %h"):
        AccessLog(format, logging.getLogger(ACCESS_LOGGER))


def test_gunicorn_spelling_is_explained():
    with pytest.raises(ConfigError, match="gunicorn's %\\(h\\)s is %h here"):
        AccessLog("%(h)s", logging.getLogger(ACCESS_LOGGER))


@pytest.mark.parametrize("format", ["%h\n%s", "%h \x1b[31m", "é %h"])
def test_template_must_be_one_line_of_ascii(format):
    with pytest.raises(ConfigError, match="printable ASCII"):
        AccessLog(format, logging.getLogger(ACCESS_LOGGER))


def test_tabs_may_separate():
    assert line("%m\t%s") == "GET\t200"


def test_unknown_format():
    with pytest.raises(ConfigError, match='"common" is unknown; use "text", "json", or a template'):
        AccessLog("common", logging.getLogger(ACCESS_LOGGER))


@pytest.mark.parametrize("format", ["text", "json", EVERY_ATOM])
def test_a_peer_cannot_forge_a_line(format):
    evil = b'\r\n127.0.0.1 - - "GET /forged HTTP/1.1" 200\x1b[2J\x1b]0;x\x07\x7f\x9b\xe9\\" \xe2\x80\xa8'
    text = evil.decode("latin-1")
    headers = [(b"user-agent", evil), (b"referer", evil), (b"x-one", evil)]
    records = [
        replace(RECORD, method=evil, target=evil, version=evil, request_id=text, client=(text, 1)),
        replace(RECORD, headers=headers, response_headers=[(b"etag", evil)]),
        replace(RECORD, request_id=evil.decode("utf-8", "surrogateescape")),
    ]
    written = lines(format, *records)
    assert len(written) == len(records)
    assert all(PRINTABLE.fullmatch(text) for text in written)


def test_a_request_id_cannot_forge_a_field():
    assert line("text", request_id="x aborted").endswith(r" x\x20aborted")


def test_offset_is_right_across_the_end_of_summer_time(zone):
    zone("Europe/Berlin")
    change = 1_792_890_000  # 25 October 2026, 01:00 UTC: 03:00 +0200 becomes 02:00 +0100
    assert "[25/Oct/2026:02:59:59 +0200]" in line("text", started_at=change - 1)
    assert "[25/Oct/2026:02:00:00 +0100]" in line("text", started_at=change)
    assert json.loads(line("json", started_at=change - 0.001))["time"] == "2026-10-25T02:59:59.999+02:00"
    assert json.loads(line("json", started_at=change))["time"] == "2026-10-25T02:00:00.000+01:00"


def test_negative_and_broken_offsets(zone):
    zone("America/St_Johns")
    assert "-0330]" in line("text", started_at=1_796_037_001.0)
    zone("Asia/Kathmandu")
    assert line("json", started_at=1_796_037_002.0).startswith('{"time":"2026-11-30T16:55:02.000+05:45"')


# --- AccessLog -------------------------------------------------------------------------------------------


def test_off_is_off(loggers):
    logger = loggers[1]
    log = AccessLog("text", logger)
    logger.handlers = [Collector()]
    for level, disabled in ((logging.WARNING, False), (logging.INFO, True)):
        logger.setLevel(level)
        logger.disabled = disabled
        assert not log.enabled
        log.log(RECORD)
    assert logger.handlers[0].records == []
    logger.disabled = False
    assert log.enabled


def test_handlers_get_the_record_itself():
    logger = logging.Logger("access", logging.INFO)
    collector = Collector()
    logger.addHandler(collector)
    AccessLog("text", logger).log(replace(RECORD, target=b"/100%25"))
    (entry,) = collector.records
    assert entry.access.target == b"/100%25"
    assert "/100%25" in entry.getMessage()
    assert entry.levelno == logging.INFO


def test_a_handler_that_raises_does_not_break_the_response(loggers):
    class Broken(logging.Handler):
        def emit(self, record):
            raise RuntimeError("no\nway")

    error_log, access_log = loggers
    collector = Collector()
    error_log.handlers, error_log.propagate = [collector], False
    access_log.handlers, access_log.level, access_log.disabled = [Broken()], logging.INFO, False
    log = AccessLog("text", access_log)
    log.log(RECORD)
    log.log(RECORD)
    assert log.lost == 2
    (entry,) = collector.records
    assert r"a line was lost (RuntimeError('no\\nway'))" in entry.getMessage()
    error_log.handlers = [Broken()]
    second = AccessLog("text", access_log)
    second.log(RECORD)
    assert second.lost == 1


class Collector(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)


# --- configure -------------------------------------------------------------------------------------------


def test_error_log_on_stderr_and_access_log_on_stdout(capsys, loggers):
    configure(Settings())
    error_log, access_log = loggers
    error_log.warning("look: %s", "é · \x1b[0m")
    AccessLog("text", access_log).log(RECORD)
    out, err = capsys.readouterr()
    assert out == line("text") + "\n"
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d"
    assert re.fullmatch(rf"{stamp} \[{os.getpid()}\] WARNING  look: é · \\x1b\[0m\n", err)


def test_only_entries_start_in_the_first_column(capsys, loggers):
    configure(Settings())
    try:
        raise ValueError("bad\n2026-01-01 forged\x1b")
    except ValueError:
        loggers[0].exception("application failed\nforged")
    first, *rest = capsys.readouterr().err.rstrip("\n").split("\n")
    assert first.endswith("ERROR    application failed")
    assert all(text.startswith("    ") for text in rest)
    assert "    2026-01-01 forged\\x1b" in rest


def test_configuring_twice_doubles_nothing(capsys, loggers):
    root = Collector()
    logging.getLogger().addHandler(root)
    try:
        configure(Settings())
        configure(Settings())
        loggers[0].error("once")
        AccessLog("text", loggers[1]).log(RECORD)
    finally:
        logging.getLogger().removeHandler(root)
    out, err = capsys.readouterr()
    assert (out.count("\n"), err.count("\n")) == (1, 1)
    assert root.records == []


def test_the_handlers_of_the_application_stay_open(tmp_path):
    handler = logging.FileHandler(tmp_path / "app.log", mode="w")
    app_log = logging.getLogger("test_logs.app")
    app_log.addHandler(handler)
    try:
        app_log.error("before")
        configure(Settings())
        app_log.error("after")
    finally:
        app_log.removeHandler(handler)
        handler.close()
    assert (tmp_path / "app.log").read_text() == "before\nafter\n"


@pytest.mark.parametrize(
    ("name", "level"),
    [("critical", 50), ("error", 40), ("warning", 30), ("info", 20), ("debug", 10), ("trace", 5)],
)
def test_levels(loggers, name, level):
    configure(Settings(log_level=name))
    assert [log.level for log in loggers] == [level, level]
    assert AccessLog("text", loggers[1]).enabled is (level <= logging.INFO)


def test_trace_has_a_name(capsys, loggers):
    configure(Settings(log_level="trace"))
    loggers[0].log(TRACE, "fine detail")
    assert "TRACE    fine detail" in capsys.readouterr().err


def test_unknown_level():
    with pytest.raises(ConfigError, match="'loud' is unknown; use one of critical, error"):
        configure(Settings(log_level="loud"))


def test_no_access_log(loggers):
    configure(Settings(access_log=False))
    assert not AccessLog("text", loggers[1]).enabled
    configure(Settings())
    assert AccessLog("text", loggers[1]).enabled


# --- colours ---------------------------------------------------------------------------------------------


def test_forced_colours(capsys, loggers):
    configure(Settings(use_colors=True))
    loggers[0].error("red")
    for status in (200, 301, 404, 500, 0):
        AccessLog("text", loggers[1]).log(replace(RECORD, status=status))
    out, err = capsys.readouterr()
    assert "\x1b[31mERROR   \x1b[0m red" in err
    plain, *coloured = out.splitlines()
    assert "\x1b" not in plain
    assert [text[:5] for text in coloured] == ["\x1b[36m", "\x1b[33m", "\x1b[31m", "\x1b[35m"]
    assert all(text.endswith("\x1b[0m") for text in coloured)


def test_json_is_never_coloured(capsys, loggers):
    configure(Settings(use_colors=True, access_log_format="json"))
    AccessLog("json", loggers[1]).log(replace(RECORD, status=500))
    assert json.loads(capsys.readouterr().out)["status"] == 500


@pytest.mark.parametrize(
    ("environment", "use_colors", "expected"),
    [
        ({}, None, True),
        ({"NO_COLOR": "1"}, None, False),
        ({"NO_COLOR": ""}, None, True),
        ({"TERM": "dumb"}, None, False),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, True),
    ],
)
def test_colours_on_a_terminal(monkeypatch, loggers, environment, use_colors, expected):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    ours, theirs = pty.openpty()
    with open(theirs, "w") as terminal, open(ours, "rb", buffering=0) as screen:
        monkeypatch.setattr(sys, "stderr", terminal)
        configure(Settings(use_colors=use_colors))
        loggers[0].error("hello")
        monkeypatch.undo()
        assert (b"\x1b[31mERROR" in screen.read(4096)) is expected


# --- log_config ------------------------------------------------------------------------------------------

TOML = """
[formatters.short]
format = "%(levelname)s|%(message)s"
[handlers.file]
class = "logging.FileHandler"
filename = "{file}"
formatter = "short"
[loggers."servery.error"]
handlers = ["file"]
[loggers."servery.access"]
handlers = ["file"]
level = "WARNING"
[root]
handlers = ["file"]
"""


@pytest.fixture
def close_handlers():
    """Close what a test's dictConfig has opened, on the root logger too."""
    root = logging.getLogger()
    before = list(root.handlers)
    yield
    logs = [root, logging.getLogger(ERROR_LOGGER), logging.getLogger(ACCESS_LOGGER)]
    for handler in {handler for log in logs for handler in log.handlers} - set(before):
        handler.close()
    root.handlers = before


@pytest.mark.usefixtures("close_handlers")
@pytest.mark.parametrize("kind", ["toml", "json", "dict"])
def test_own_log_configuration(tmp_path, loggers, kind):
    text = TOML.format(file=tmp_path / "out.log")
    source: Any = tomllib.loads(text)
    if kind != "dict":
        source = str(tmp_path / f"log.{kind}")
        Path(source).write_text(text if kind == "toml" else json.dumps(tomllib.loads(text)))
    app_log = logging.getLogger("test_logs.other")
    configure(Settings(log_config=source, log_level="debug"))
    configure(Settings(log_config=source, log_level="debug"))
    loggers[0].debug("once")
    loggers[1].warning("a warning")
    assert (tmp_path / "out.log").read_text() == "DEBUG|once\nWARNING|a warning\n"
    assert not AccessLog("text", loggers[1]).enabled  # its level is stated in the file
    assert not app_log.disabled


@pytest.mark.usefixtures("close_handlers")
def test_own_configuration_without_our_loggers_reaches_the_root(tmp_path, loggers):
    configure(Settings())
    handler = {"class": "logging.FileHandler", "filename": str(tmp_path / "root.log")}
    configure(
        Settings(log_config={"handlers": {"f": handler}, "root": {"handlers": ["f"], "level": "WARNING"}})
    )
    loggers[0].info("to the root")
    assert (tmp_path / "root.log").read_text() == "to the root\n"
    assert not loggers[0].handlers


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("missing.toml", None, "No such file or directory; give the path"),
        ("log.ini", "", "must end in .toml or .json"),
        ("log.toml", "a = ", "(at line 1|Invalid value).*correct the file"),
        ("log.json", "{", "line 1 column 2.*correct the file"),
        ("log.json", "[]", "top level must be a table"),
        ("log.json", '{"loggers": []}', "loggers must be a table"),
        ("log.json", '{"loggers": {"a": 1}}', "loggers must be a table"),
        ("log.json", '{"version": 2}', "Unsupported version: 2.*dictConfig"),
        ("log.json", '{"handlers": {"h": {"class": "no.Such"}}}', "'h'.*no.*correct that entry"),
        ("log.toml", b"\xff", "save the file as UTF-8"),
    ],
)
def test_errors_name_the_file_and_the_fix(tmp_path, loggers, capsys, name, content, reason):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    configure(Settings(log_level="error"))
    with pytest.raises(ConfigError, match=reason) as caught:
        configure(Settings(log_config=str(path)))
    assert str(path) in str(caught.value)
    loggers[0].error("as before")
    assert "ERROR    as before" in capsys.readouterr().err
    assert loggers[0].level == logging.ERROR


# --- broken streams --------------------------------------------------------------------------------------

WRITE_MANY = textwrap.dedent(
    """
    import logging, resource, sys
    sys.path.insert(0, "tests")
    from test_logs import RECORD, Settings
    from servery.logs import AccessLog, configure
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    configure(Settings())
    access_log = logging.getLogger("servery.access")
    log = AccessLog("text", access_log)
    sys.stdin.readline()
    for _ in range(2000):
        log.log(RECORD)
    logging.getLogger("servery.error").error("still here, %d lost", access_log.handlers[0].lost)
    print("output of the application")
    """
)


def write_many(stdout, before=lambda: None):
    root = Path(__file__).parent.parent
    process = subprocess.Popen(
        [sys.executable, "-c", WRITE_MANY],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        cwd=root,
    )
    before()
    _, err = process.communicate("go\n", timeout=30)
    return process.returncode, err.splitlines()


def test_a_reader_that_went_away_is_told_once_and_breaks_nothing():
    reading, writing = os.pipe()
    code, err = write_many(writing, lambda: (os.close(reading), os.close(writing)))
    assert len(err) == 2
    assert "log lines to <stdout> are lost" in err[0]
    assert os.strerror(errno.EPIPE) in err[0]
    assert "still here, 1 lost" in err[1]
    assert code == 0


def test_a_full_file_is_told_once_and_breaks_nothing(tmp_path):
    with open(tmp_path / "access.log", "w") as full:
        _, err = write_many(full)
    assert os.strerror(errno.EFBIG) in err[0]
    assert sum("are lost" in text for text in err) == 1
    assert re.search(r"still here, 19\d\d lost", err[1])  # the first lines had room


def test_no_stream_at_all(monkeypatch, loggers):
    monkeypatch.setattr(sys, "stderr", None)
    configure(Settings())
    loggers[0].error("nowhere")
    assert loggers[0].handlers[0].lost == 2  # the line, and the one that would tell of it
