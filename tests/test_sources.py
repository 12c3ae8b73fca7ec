"""sources.py: flags, variables and files, which of them wins, and errors that name the source."""

from __future__ import annotations

import pytest

from servery.config import Config
from servery.errors import ConfigError
from servery.sources import load


@pytest.fixture(autouse=True)
def empty_directory(tmp_path, monkeypatch):
    """No pyproject.toml lies in the current directory unless a test writes one."""
    monkeypatch.chdir(tmp_path)


# --- flags and variables -----------------------------------------------------------------------------


def test_defaults_alone():
    loaded = load({}, {"PATH": "/bin"})
    assert loaded.config == Config()
    assert set(loaded.sources.values()) == {"default"}


def test_flags_are_texts_lists_and_bools():
    flags = {
        "app": "main:app",
        "port": "9000",
        "reload": True,
        "access_log": False,
        "header": ["X-A: 1, 2", "X-B: 3"],
        "log_level": "DEBUG",
        "timeout_head": "2.5",
        "limit_body_size": "none",
    }
    loaded = load(flags, {})
    config, sources = loaded.config, loaded.sources
    assert (config.port, config.reload, config.access_log) == (9000, True, False)
    assert config.header == ("X-A: 1, 2", "X-B: 3")
    assert (config.log_level, config.timeout_head, config.limit_body_size) == ("debug", 2.5, None)
    assert sources["app"] == "command line"
    assert sources["access_log"] == "--no-access-log"
    assert sources["timeout_head"] == "--timeout-head"
    assert sources["host"] == "default"


@pytest.mark.parametrize(
    ("word", "value"),
    [
        *[("true", True), ("1", True), ("Yes", True), ("ON", True)],
        *[("false", False), ("0", False), ("no", False), ("Off", False)],
    ],
)
def test_switches_in_variables(word, value):
    loaded = load({}, {"SERVERY_USE_COLORS": word})
    assert loaded.config.use_colors is value
    assert loaded.sources["use_colors"] == "SERVERY_USE_COLORS"


def test_variables():
    environ = {
        "SERVERY_APP": "main:app",
        "SERVERY_BIND": "a:1, unix:/x,",
        "SERVERY_UDS_MODE": "660",
        "SERVERY_TIMEOUT_LIFESPAN_STARTUP": "None",
        "SERVERY_BUILD_NATIVE": "no",
        "OTHER_PORT": "5",
    }
    config = load({}, environ).config
    assert config.app == "main:app"
    assert config.bind == ("a:1", "unix:/x")
    assert config.uds_mode == 0o660
    assert config.timeout_lifespan_startup is None


@pytest.mark.parametrize(
    ("flags", "environ", "text"),
    [
        ({"port": "x"}, {}, "--port: 'x' is not a whole number, 0 to 65535"),
        ({"port": "99999"}, {}, "--port: 99999 is not a whole number"),
        ({"timeout_head": "soon"}, {}, "--timeout-head: 'soon' is not a number of seconds"),
        ({"timeout_head": "nan"}, {}, "--timeout-head: nan is not"),
        ({"uds_mode": "rw"}, {}, "--uds-mode: 'rw' is not an octal mode such as 660"),
        ({"bind": ["x"]}, {}, "--bind: 'x': write HOST:PORT"),
        ({"app": ""}, {}, "command line: '' is not an import string"),
        ({"host": "none"}, {"SERVERY_PORT": ""}, "SERVERY_PORT: '' is not"),
        ({}, {"SERVERY_RELOAD": "maybe"}, "SERVERY_RELOAD: 'maybe' is not one of true, 1, yes, on, false"),
        ({}, {"SERVERY_PROT": "1"}, "SERVERY_PROT: there is no such setting; did you mean 'SERVERY_PORT'?"),
        ({}, {"SERVERY_port": "1"}, "did you mean 'SERVERY_PORT'?"),
        ({}, {"SERVERY_XYZZY": "1"}, "SERVERY_XYZZY: there is no such setting"),
        ({}, {"SERVERY_PORT": "tcp://10.0.0.1:80"}, "enableServiceLinks"),
        ({}, {"SERVERY_PORT_80_TCP": "tcp://10.0.0.1:80"}, "enableServiceLinks"),
    ],
)
def test_bad_texts_name_their_source(flags, environ, text):
    with pytest.raises(ConfigError) as caught:
        load(flags, environ)
    assert text in str(caught.value)


def test_contradictions_name_both_sources():
    with pytest.raises(ConfigError) as caught:
        load({"uds": "/x"}, {"SERVERY_FD": "0"})
    assert str(caught.value).endswith("(uds: --uds, fd: SERVERY_FD)")


def test_a_default_given_on_purpose_contradicts_too():
    with pytest.raises(ConfigError, match=r"bind and port both .* \(bind: --bind, port: --port\)"):
        load({"bind": ["a:1"], "port": "8000"}, {})
    assert load({"bind": ["a:1"], "uds": "none"}, {}).config.bind == ("a:1",)


# --- files -------------------------------------------------------------------------------------------


def test_precedence(tmp_path):
    (tmp_path / "s.toml").write_text('host = "file"\nport = 1\nbacklog = 1\nlog-level = "debug"\n')
    loaded = load({"host": "flag"}, {"SERVERY_HOST": "env", "SERVERY_PORT": "2"}, "s.toml")
    config, sources = loaded.config, loaded.sources
    assert (config.host, config.port, config.backlog, config.log_level) == ("flag", 2, 1, "debug")
    assert [sources[name] for name in ("host", "port", "backlog", "log_level", "fd")] == [
        "--host",
        "SERVERY_PORT",
        "s.toml",
        "s.toml",
        "default",
    ]


def test_toml_values(tmp_path):
    (tmp_path / "s.toml").write_text(
        'bind = ["unix:/x", "a:1"]\nuds-mode = "0660"\ntimeout_head = 3\nlimit_body_size = "none"\n'
        "access-log = false\n[log_config]\nversion = 1\n"
    )
    config = load({}, {}, "s.toml").config
    assert config.bind == ("unix:/x", "a:1")
    assert (config.uds_mode, config.timeout_head, config.limit_body_size) == (0o660, 3, None)
    assert (config.access_log, config.log_config) == (False, {"version": 1})


def test_the_project_file_is_found(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.servery]\nport = 9000\n")
    loaded = load({}, {})
    assert loaded.config.port == 9000
    assert loaded.sources["port"] == "pyproject.toml [tool.servery]"
    (tmp_path / "other.toml").write_text("backlog = 5\n")
    assert load({}, {}, "other.toml").config.port == 8000


@pytest.mark.parametrize(
    "text", ["", "[project]\nname = 'x'\n", "[project]\nname = 'servery'\n", "tool = 'servery'\n", "broken ["]
)
def test_project_files_without_our_table(tmp_path, text):
    (tmp_path / "pyproject.toml").write_text(text)
    assert load({}, {}).config == Config()


def test_a_named_project_file(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "pyproject.toml").write_text("[tool.servery]\nport = 9000\n")
    loaded = load({}, {}, "sub/pyproject.toml")
    assert (loaded.config.port, loaded.sources["port"]) == (9000, "sub/pyproject.toml [tool.servery]")
    (tmp_path / "sub" / "pyproject.toml").write_text("[tool.other]\n")
    with pytest.raises(ConfigError, match=r"^--config: sub/pyproject.toml has no table \[tool.servery\]"):
        load({}, {}, "sub/pyproject.toml")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("port =", "s.toml: is not valid TOML: "),
        ("port = 'x'", "s.toml: port: 'x' is not a whole number"),
        ("port = '8000'", "s.toml: port: '8000' is not a whole number"),
        ("prot = 1", "s.toml: there is no setting 'prot'; did you mean 'port'?"),
        ("log-levle = 'info'", "there is no setting 'log-levle'; did you mean 'log_level'?"),
        ("log-level = 'info'\nlog_level = 'info'", "'log-level' and 'log_level' are the same setting"),
        ("uds-mode = 660", 's.toml: uds-mode: 660 is not an octal mode in quotes such as "660"'),
        ("bind = 'a:1'", "s.toml: bind: 'a:1' is not a list of texts"),
        ("header = [1]", "s.toml: header: 1 is not a text"),
        ("port = 'none'", "s.toml: port: 'none' is not"),
        ("use_colors = 'yes'", "s.toml: use_colors: 'yes' is not true or false"),
        ("port = 2026-01-01", "s.toml: port: datetime.date(2026, 1, 1) is not"),
    ],
)
def test_bad_files_name_file_and_key(tmp_path, text, error):
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load({}, {}, "s.toml")
    assert error in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match=r"^--config: cannot read 'missing.toml': No such file"):
        load({}, {}, "missing.toml")
    (tmp_path / "s.toml").write_bytes(b"host = '\xff'")
    with pytest.raises(ConfigError, match=r"^s\.toml: is not valid TOML: "):
        load({}, {}, "s.toml")
    (tmp_path / "pyproject.toml").mkdir()
    with pytest.raises(ConfigError, match=r"^pyproject.toml: cannot be read: "):
        load({}, {})


def test_our_table_must_be_a_table(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool]\nservery = 1\n")
    with pytest.raises(ConfigError, match=r"below a line \[tool.servery\]"):
        load({}, {})


def test_reload_settings_in_a_file_wait_for_reload(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.servery]\nreload_dir = ['src']\n")
    off = load({"app": "m:a"}, {"SERVERY_RELOAD_DELAY": "3"})
    assert (off.config.reload_dir, off.config.reload_delay) == ((), 0.25)
    assert off.sources["reload_dir"] == (
        "default (pyproject.toml [tool.servery] is for reload, which is off)"
    )
    on = load({"app": "m:a", "reload": True}, {"SERVERY_RELOAD_DELAY": "3"})
    assert (on.config.reload_dir, on.config.reload_delay) == (("src",), 3)
    with pytest.raises(ConfigError, match=r"add reload, or drop reload_dir \(reload_dir: --reload-dir\)"):
        load({"reload_dir": ["src"]}, {})


def test_a_file_may_spell_out_defaults(tmp_path):
    (tmp_path / "s.toml").write_text('host = "127.0.0.1"\nport = 8000\nbind = ["a:1"]\n')
    assert load({}, {}, "s.toml").config.bind == ("a:1",)
