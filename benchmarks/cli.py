"""The command line: ``python -m benchmarks``."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from . import commands
from .loadgen.build import BuildError
from .machine import Processors, processors
from .paths import ENVIRONMENTS
from .record import RecordError
from .scenario import ScenarioError
from .trial import Settings
from .verdicts import CannotServe, Refused

SMOKE = Settings(trials=2, warmup=0.1, duration=0.3, timeouts_limit=1.0, longest_ramp=0.2)
"""Times of ``--smoke``: every piece is used, and no figure means anything."""


def _settings(parser: argparse.ArgumentParser, trials: int) -> None:
    defaults = Settings()
    parser.add_argument(
        "--trials", type=int, default=trials, metavar="N", help="of each server [%(default)s]"
    )
    parser.add_argument(
        "--duration", type=float, default=defaults.duration, metavar="S", help="timed [%(default)s]"
    )
    parser.add_argument(
        "--warmup", type=float, default=defaults.warmup, metavar="S", help="before it [%(default)s]"
    )
    parser.add_argument(
        "--client-processes", type=int, default=1, metavar="N", help="of the load [%(default)s]"
    )
    samples = defaults.max_latency_samples
    parser.add_argument(
        "--max-latency-samples", type=int, default=samples, metavar="N", help="0: all [%(default)s]"
    )
    limit = defaults.timeouts_limit
    parser.add_argument(
        "--timeouts-limit", type=float, default=limit, metavar="S", help="of the probes [%(default)s]"
    )
    parser.add_argument("--server-cpus", default="", metavar="SET", help="such as 0-2 [one for each worker]")
    parser.add_argument("--client-cpus", default="", metavar="SET", help="[the last quarter, at least one]")
    parser.add_argument(
        "--seed", type=int, default=defaults.seed, metavar="N", help="of the reservoir [%(default)s]"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="the whole machinery in seconds; no figure means anything"
    )


def _places(parser: argparse.ArgumentParser) -> None:
    help_envs = "environments of the peers, or one that has them all [%(default)s]"
    parser.add_argument("--envs", type=Path, default=ENVIRONMENTS, metavar="DIR", help=help_envs)
    parser.add_argument("--python", default="", metavar="PATH", help="the Python that has servery [this one]")


def _output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="JSON of the result [benchmarks/results/local/...]"
    )
    parser.add_argument("--no-report", action="store_true", help="write no page and no summary beside it")


def make_parser() -> argparse.ArgumentParser:  # long: one table of commands and their options
    """The parser of the command line."""
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__.partition("\n")[0])
    parsers = parser.add_subparsers(required=True, metavar="COMMAND")

    made = parsers.add_parser("list", help="scenarios, servers and studies")
    _places(made)
    made.set_defaults(run=commands.show)

    made = parsers.add_parser("run", help="measure scenarios")
    made.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="such as json or immediate@8,64")
    made.add_argument(
        "--servers", default="", metavar="A,B", help="names, or all [servery and uvicorn, two of each]"
    )
    made.add_argument(
        "--baseline", default="", metavar="A", help="what the others are compared with [the first]"
    )
    _settings(made, Settings().trials)
    _places(made)
    _output(made)
    made.set_defaults(run=commands.run)

    made = parsers.add_parser("ab", help="compare two command lines, on an application of yours if you like")
    made.add_argument(
        "--a", required=True, metavar="FLAGS", help="flags of servery, or a server's name and flags"
    )
    made.add_argument("--b", required=True, metavar="FLAGS", help="the same")
    made.add_argument("--app", default="", metavar="MODULE:APP", help="your application")
    made.add_argument("--app-dir", default=".", metavar="DIR", help="where it is imported from [%(default)s]")
    made.add_argument("--path", default="/", metavar="/x", help="what is asked for [%(default)s]")
    made.add_argument("--method", default="GET", metavar="M", help="[%(default)s]")
    made.add_argument("--wsgi", action="store_true", help="the application speaks WSGI")
    made.add_argument("--connections", type=int, default=64, metavar="N", help="with --app [%(default)s]")
    made.add_argument(
        "--scenario", default="immediate@64", metavar="NAME", help="without --app [%(default)s]"
    )
    _settings(made, 10)
    _places(made)
    _output(made)
    made.set_defaults(run=commands.ab)

    made = parsers.add_parser("study", help="repeat a published measurement")
    made.add_argument("names", nargs="*", metavar="NAME", help="without a name: all are listed")
    made.add_argument("--estimate", action="store_true", help="say how long it takes, and measure nothing")
    made.add_argument("--part", default="", metavar="NAME", help="this run of it alone [all]")
    made.add_argument(
        "--trials", dest="study_trials", type=int, metavar="N", help="of each server [as in its file]"
    )
    made.add_argument(
        "--duration", dest="study_duration", type=float, metavar="S", help="timed [as in its file]"
    )
    made.add_argument("--results", type=Path, default=None, metavar="DIR", help="[benchmarks/results]")
    made.add_argument("--server-cpus", default="", metavar="SET", help="such as 0-2 [one for each worker]")
    made.add_argument("--client-cpus", default="", metavar="SET", help="[the last quarter, at least one]")
    _places(made)
    made.set_defaults(run=commands.study)

    made = parsers.add_parser("compare", help="compare two results of the same measurement")
    made.add_argument("old", type=Path, metavar="OLD.json")
    made.add_argument("new", type=Path, metavar="NEW.json")
    made.add_argument(
        "--allow", default="", metavar="A,B", help="differences to accept: host, python, settings, ..."
    )
    made.set_defaults(run=commands.compare)

    made = parsers.add_parser("report", help="a page and a summary of results")
    made.add_argument("results", nargs="+", type=Path, metavar="RESULT.json")
    made.add_argument("--html", type=Path, metavar="FILE", help="[beside the first result]")
    made.add_argument("--markdown", type=Path, metavar="FILE", help="[beside the first result]")
    made.set_defaults(run=commands.report)

    made = parsers.add_parser("env", help="environments of the peers")
    made.add_argument("action", choices=["create", "list"])
    made.add_argument("names", nargs="*", metavar="NAME", help="[all]")
    made.add_argument(
        "--base", default=sys.executable, metavar="PATH", help="the Python that they are made with"
    )
    _places(made)
    made.set_defaults(run=commands.env)

    made = parsers.add_parser("check", help="check the load generator against wrk and h2load")
    made.add_argument("--connections", type=int, default=64, metavar="N", help="[%(default)s]")
    _settings(made, 5)
    made.set_defaults(run=commands.check)
    return parser


def settings_of(arguments: argparse.Namespace) -> Settings:
    """What `_settings` asked for."""
    asked = Settings(
        trials=arguments.trials,
        warmup=arguments.warmup,
        duration=arguments.duration,
        client_processes=arguments.client_processes,
        max_latency_samples=arguments.max_latency_samples,
        timeouts_limit=arguments.timeouts_limit,
        seed=arguments.seed,
    )
    return dataclasses.replace(SMOKE, seed=arguments.seed) if arguments.smoke else asked


def processors_of(arguments: argparse.Namespace) -> Processors:
    """The sets of the command line. Raises ValueError."""
    return processors(arguments.server_cpus, arguments.client_cpus)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command. 0; 1 if something was refused or differs; 2 for what cannot work; 130 after Ctrl+C."""
    arguments = make_parser().parse_args(argv)
    arguments.command_line = shlex.split("python -m benchmarks") + list(
        sys.argv[1:] if argv is None else argv
    )
    if hasattr(arguments, "trials"):
        arguments.settings = settings_of(arguments)
    try:
        if hasattr(arguments, "server_cpus"):
            arguments.processors = processors_of(arguments)
        result: int = arguments.run(arguments)
        return result
    except Refused as error:
        print(f"refused: {error}", file=sys.stderr)
        return 1
    except (BuildError, CannotServe, RecordError, ScenarioError, ValueError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(f"benchmarks: {shlex.join(map(str, error.cmd))} ended with {error.returncode}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
