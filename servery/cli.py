"""The command line: argv -> `Config` -> a running server, and what the user reads when that fails.

Exit codes: 0 all went well, 2 the configuration cannot work, 3 the server could not start,
130 interrupted before it served. What `--help` and `--version` do not need is imported late.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from ._version import __version__
from .config import GROUPS, SETTINGS, Config
from .errors import ConfigError, ServeryError
from .failures import EXIT_INTERRUPTED, report
from .settings import Setting, Switch, Texts, nearest
from .sources import Loaded, flag, load
from .streams import release_streams
from .supervisor import needs_supervisor

HELP_COLUMNS = 100
EPILOG = """\
Every setting can also stand in a TOML file, as NAME = VALUE, and in the environment, as
SERVERY_NAME (lists with commas between). Flags win over the environment, the environment over the
file, the file over the defaults. Without --config, the table [tool.servery] of ./pyproject.toml is
read if it is there.

servery ctl COMMAND talks to a server that runs with --admin; servery ctl --help lists the commands.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code. `argv` is without the program's name."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if arguments[:1] == ["ctl"]:
            from .admin.client import main as control

            return control(arguments[1:])
        return _run(arguments)
    except ServeryError as error:
        return report(error)
    except KeyboardInterrupt:
        print("servery: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    finally:
        release_streams()


def _run(arguments: list[str]) -> int:
    parser = _make_parser()
    options = _parse(parser, arguments)
    if options.pop("help", False):
        parser.print_help()
        return 0
    verbose = options.pop("verbose", False)
    if options.pop("version", False):
        _print_version(verbose)
        return 0
    if verbose:
        raise ConfigError("--verbose belongs to --version; for more in the log use --log-level debug")
    only_check = options.pop("check_config", False)
    only_print = options.pop("print_config", False)
    file = options.pop("config", None)
    loaded = load(options, os.environ, file)
    if only_print:
        _print_config(loaded)
        return 0
    if loaded.config.app is None:
        raise ConfigError("no application is named: give MODULE:ATTR, as in: servery main:app")
    if only_check:
        _check(loaded.config)
        return 0
    if needs_supervisor(loaded.config):
        from .supervisor.supervise import run_supervised

        code = run_supervised(loaded.config, lambda: load(options, os.environ, file).config)
        return _leave(loaded.config, code) if loaded.config.worker_kind == "thread" else code
    return _serve(loaded.config)


def _serve(config: Config) -> int:
    if config.reload:
        from .supervisor.reloader import run_reloader

        return run_reloader(config)
    from .supervisor.single import run_single

    try:
        code = run_single(config)
    except ServeryError as error:
        code = report(error)
    return _leave(config, code)


def _leave(config: Config, code: int) -> int:
    """End with `code`, in spite of threads of the application, which has run in this process."""
    from .leaving import leave_within

    return leave_within(config.timeout_cancel, code)


def _print_config(loaded: Loaded) -> None:
    from .show import config_text

    print(config_text(loaded))


def _check(config: Config) -> None:
    from .apps import load_app
    from .selection import select
    from .tls.watch import watch

    select(config)
    watch(config)
    load_app(config)
    print("configuration is valid")


def _print_version(verbose: bool) -> None:
    if not verbose:
        print(f"servery {__version__}")
        return
    import json

    from .selection import build_facts

    print(json.dumps(build_facts(), indent=2))


# --- the parser, made from the table -----------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """Raises instead of printing the usage of some seventy flags and leaving the process."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; servery --help lists all flags")


def _make_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="servery",
        usage="servery [FLAGS] MODULE:ATTR",
        description="An application server for Python: HTTP/1.1 and ASGI. Defaults stand in brackets.",
        epilog=EPILOG,
        formatter_class=_formatter,
        argument_default=argparse.SUPPRESS,
        add_help=False,
        allow_abbrev=False,
    )
    groups = {title: parser.add_argument_group(title) for title in GROUPS}
    for name, setting in SETTINGS.items():
        _add(groups[setting.group], name, setting)
    _add_actions(groups["Other"])
    return parser


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=36, width=HELP_COLUMNS)


def _add(group: argparse._ArgumentGroup, name: str, setting: Setting) -> None:
    text = f"{setting.help} {_default_text(setting)}".replace("%", "%%")
    if name == "app":
        group.add_argument("app", nargs="?", metavar=setting.kind.metavar, help=text)
    elif isinstance(setting.kind, Switch):
        group.add_argument(flag(name), action=argparse.BooleanOptionalAction, help=text)
    else:
        # Texts stay texts here: the table parses them as it does for the other sources.
        action = "append" if isinstance(setting.kind, Texts) else "store"
        group.add_argument(flag(name), action=action, metavar=setting.kind.metavar, help=text)


def _default_text(setting: Setting) -> str:
    default = setting.default
    if default is None or default == () or default == "":
        return f"[{setting.unset}]"
    word = {True: "on", False: "off"}[default] if isinstance(default, bool) else f"{default}"
    if isinstance(default, float):
        word = f"{default:g}"
    return f"[{word}{f' {setting.kind.unit}' if setting.kind.unit else ''}]"


def _add_actions(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--config", metavar="PATH", help="TOML file to read instead of ./pyproject.toml")
    group.add_argument(
        "--check-config", action="store_true", help="check the settings, import the application, and exit"
    )
    group.add_argument(
        "--print-config",
        action="store_true",
        help="print every setting and where it comes from, as TOML, and exit",
    )
    group.add_argument("--version", action="store_true", help="print the version and exit")
    group.add_argument(
        "--verbose", action="store_true", help="with --version: facts of this install, as JSON"
    )
    group.add_argument("-h", "--help", action="store_true", help="print this help and exit")


def _parse(parser: argparse.ArgumentParser, arguments: list[str]) -> dict[str, Any]:
    options, unknown = parser.parse_known_args(arguments)
    for argument in unknown:
        word = argument.partition("=")[0]
        if not word.startswith("-"):
            raise ConfigError(f"unexpected argument {argument!r}: only one application can be served")
        near = nearest(word, parser._option_string_actions)
        raise ConfigError(f"unknown flag {word!r}{near or '; servery --help lists all flags'}")
    return vars(options)
