"""config.py, settings.py and rules.py: what a configuration may be."""

from __future__ import annotations

import dataclasses
import typing

import pytest

from servery import rules
from servery.config import GROUPS, SETTINGS, Config
from servery.errors import ConfigError
from servery.limits import DEFAULTS, Limits
from servery.settings import Kind, nearest


async def app(scope, receive, send):
    pass


# --- the table ---------------------------------------------------------------------------------------


def test_every_setting_has_group_help_and_reason():
    assert list(SETTINGS) == [field.name for field in dataclasses.fields(Config)]
    for name, setting in SETTINGS.items():
        assert setting.group in GROUPS, name
        assert setting.help, name
        assert setting.why, name


def test_rows_of_a_group_stand_together():
    groups = [setting.group for setting in SETTINGS.values()]
    assert list(dict.fromkeys(groups)) == list(GROUPS)
    assert groups == sorted(groups, key=GROUPS.index)


def test_none_is_allowed_where_the_annotation_says_so():
    for name, annotation in typing.get_type_hints(Config).items():
        assert SETTINGS[name].nullable == (type(None) in typing.get_args(annotation)), name


def test_every_limit_has_exactly_one_setting():
    covered = [setting.limit for setting in SETTINGS.values() if setting.limit]
    assert sorted(covered) == sorted(field.name for field in dataclasses.fields(Limits))
    assert Config().limits == DEFAULTS


def test_limits_follow_the_settings():
    config = Config(limit_head_size=100_000, limit_body_size=5, timeout_graceful_shutdown=1, body_min_rate=0)
    assert config.limits == dataclasses.replace(
        DEFAULTS, head_size=100_000, body_size=5, graceful_timeout=1, body_min_rate=0
    )


def test_config_is_frozen_and_replace_gives_a_checked_copy():
    config = Config(app="main:app", port=0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.port = 1  # type: ignore[misc]
    assert config.replace(port=9000) == Config(app="main:app", port=9000)
    assert config.port == 0
    with pytest.raises(ConfigError, match=r"^port: "):
        config.replace(port=-1)
    with pytest.raises(TypeError):
        config.replace(prot=1)


def test_extra_headers_are_as_asgi_wants_them():
    config = Config(header=("X-Frame-Options:DENY", "Link: </a>; title=\xe9", "X-Empty:"))
    assert config.extra_headers == (
        (b"x-frame-options", b"DENY"),
        (b"link", b"</a>; title=\xe9"),
        (b"x-empty", b""),
    )


def test_a_kind_must_check():
    with pytest.raises(NotImplementedError):
        Kind().check("x")


def test_nearest():
    assert nearest("prot", ["port", "host"]) == "; did you mean 'port'?"
    assert nearest("qqqq", ["port", "host"]) == ""


# --- single values from Python -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        {"app": app},
        {"fd": 0},
        {"uds": "/tmp/x", "uds_mode": 0},
        {"uds": "/tmp/x", "uds_mode": 0o777},
        {"port": 65535},
        {"bind": ("[::1]:80", "unix:/x", "fd://0", "localhost:0")},
        {"root_path": "/api/v1"},
        {"timeout_keep_alive": 0},
        {"timeout_head": 1},
        {"timeout_lifespan_startup": None},
        {"limit_body_size": 0},
        {"log_config": {"version": 1}},
        {"log_config": "log.toml"},
        {"access_log_format": "json"},
        {"access_log_format": "%(status)s", "access_log": False},
        {"use_colors": False},
        {"reload": True, "app": "main:app", "reload_dir": ("src",), "reload_delay": 1},
        {"header": ("Server: mine",), "server_header": False},
        {"header": ("Set-Cookie: a=1", "Set-Cookie: a=1")},
        {"limit_head_size": 20_000, "limit_request_field_size": 20_000},
    ],
)
def test_good_values(values):
    config = Config(**values)
    assert {name: getattr(config, name) for name in values} == values


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("app", 5, "5 is not an import string such as main:app, or a callable"),
        ("app", " ", "import string"),
        ("factory", 1, "1 is not true or false"),
        ("interface", "wsgi", "'wsgi' is not one of asgi3, asgi2"),
        ("lifespan", None, "None is not one of auto, on, off"),
        ("host", "", "at least one character"),
        ("host", "a\nb", "one line of text"),
        ("host", 5, "5 is not a text"),
        ("root_path", "api", "write '/api'"),
        ("root_path", "/api/", "write '/api'"),
        ("root_path", "/", "write ''"),
        ("port", "x", "'x' is not a whole number, 0 to 65535"),
        ("port", True, "True is not a whole number"),
        ("port", 65536, "65536 is not"),
        ("port", -1, "-1 is not"),
        ("port", 80.0, "80.0 is not"),
        ("fd", -1, "a whole number, 0 or more"),
        ("bind", "127.0.0.1:80", "is not a tuple of texts"),
        ("bind", ["127.0.0.1:80"], "is not a tuple of texts"),
        ("bind", (80,), "80 is not a text"),
        ("bind", ("nowhere",), "write HOST:PORT"),
        ("uds_mode", 0o1000, "a file mode from 0o000 to 0o777"),
        ("uds_mode", "660", "a file mode"),
        ("uds_mode", True, "a file mode"),
        ("backlog", 0, "1 or more"),
        ("limit_concurrency", 0, "1 or more"),
        ("limit_body_size", -1, "a whole number of bytes, 0 or more"),
        ("limit_head_size", None, "None is not a whole number of bytes, 1 or more"),
        ("body_min_rate", 1.5, "a whole number of bytes per second"),
        ("timeout_head", 0, "a number of seconds, more than 0"),
        ("timeout_head", float("nan"), "more than 0"),
        ("timeout_head", float("inf"), "more than 0"),
        ("timeout_head", "5", "'5' is not a number of seconds"),
        ("timeout_head", False, "False is not a number of seconds"),
        ("timeout_linger", -0.1, "0 or more"),
        ("log_level", "loud", "one of critical, error, warning, info, debug, trace"),
        ("log_level", [], "one of critical"),
        ("log_config", "log.yaml", "a .toml or .json file, or a dict"),
        ("access_log_format", "xml", "write text, json, or a template"),
        ("use_colors", "yes", "true or false"),
        ("header", ("X-A",), "write NAME:VALUE"),
    ],
)
def test_bad_values(name, value, text):
    with pytest.raises(ConfigError) as caught:
        Config(**{name: value})
    assert str(caught.value).startswith(f"{name}: ")
    assert text in str(caught.value)


@pytest.mark.parametrize("text", ["127.0.0.1:0", "h:65535", "[::]:80", "unix:a", "unix:@x", "fd://12"])
def test_bind_addresses(text):
    assert rules.bind(text) is None


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("unix:", "unix:PATH"),
        ("fd://", "fd://N"),
        ("fd://x", "fd://N"),
        ("fd://-1", "fd://N"),
        ("8000", "HOST:PORT"),
        (":8000", "HOST:PORT"),
        ("::1:80", "[V6]:PORT"),
        ("[::1:80", "[V6]:PORT"),
        ("::1]:80", "[V6]:PORT"),
        ("h:", "not a port"),
        ("h:x", "not a port"),
        ("h:65536", "not a port"),
        ("h:\u0661", "not a port"),
        ("h:0000000080", "not a port"),
    ],
)
def test_bad_bind_addresses(text, wrong):
    assert wrong in rules.bind(text)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("X A: b", "NAME:VALUE"),
        (": b", "NAME:VALUE"),
        ("X: a\x01", "NAME:VALUE"),
        ("X: a\x7f", "NAME:VALUE"),
        ("X: \u20ac", "NAME:VALUE"),
        ("X\xe9: a", "NAME:VALUE"),
        ("Content-Length: 5", "servery sets Content-Length itself"),
        ("TRANSFER-ENCODING: chunked", "servery sets TRANSFER-ENCODING itself"),
    ],
)
def test_bad_headers(text, wrong):
    assert wrong in rules.header(text)


# --- values that contradict each other ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"uds": "/x", "fd": 0}, "uds and fd both say where to listen"),
        ({"bind": ("a:1",), "host": "b"}, "bind and host both"),
        ({"bind": ("a:1",), "port": 1}, "bind and port both"),
        ({"bind": ("a:1",), "uds": "/x"}, "bind and uds both"),
        ({"bind": ("a:1",), "fd": 0}, "bind and fd both"),
        ({"uds": "/x", "port": 1}, "uds and port both"),
        ({"fd": 0, "host": "h"}, "fd and host both"),
        ({"uds_mode": 0o660}, "add uds or bind unix:PATH"),
        ({"uds_mode": 0o660, "bind": ("a:1",)}, "add uds or bind unix:PATH"),
        ({"bind": ("a:1", "b:1", "a:1")}, "bind names 'a:1' twice"),
        ({"limit_request_field_size": 65_537}, "raise limit_head_size to 65537 or more"),
        ({"limit_head_size": 8_191, "limit_request_field_size": 1}, "limit_request_line is 8192 bytes"),
        ({"reload_dir": ("a",)}, "reload_dir does nothing without reload"),
        ({"reload_delay": 1}, "reload_delay does nothing without reload"),
        (
            {"reload": True, "app": "m:a", "reload_include": ("*.x", "*.x")},
            "reload_include names '*.x' twice",
        ),
        ({"reload": True, "app": app}, "app must be an import string"),
        ({"header": ("SERVER: x",)}, "set server_header to false"),
        ({"header": ("Date: x",), "server_header": False}, "set date_header to false"),
    ],
)
def test_contradictions(values, text):
    with pytest.raises(ConfigError) as caught:
        Config(**values)
    assert text in str(caught.value)


def test_uds_mode_goes_with_a_bound_unix_socket():
    assert Config(bind=("a:1", "unix:/x"), uds_mode=0o600).uds_mode == 0o600
