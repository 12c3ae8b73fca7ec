"""selection.py: what runs, what is imported for it, and what is said when it cannot run."""

from __future__ import annotations

import asyncio
import json
import select as readiness
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import psutil
import pytest
import websocket_subjects
import wire_frames
from harness import new_loop
from sample_apps import ok, respond
from under_test import ENGINES, IOS, Way, clean_environment

from servery import Config, ConfigError, Server
from servery.http1.engine import Http1Engine
from servery.limits import DEFAULTS
from servery.selection import HTTP2_MODULES, MODULES, SPEEDUPS, build_facts, select

ROOT = Path(__file__).resolve().parents[1]
ABI = EXTENSION_SUFFIXES[0]
OF_NATIVE = IOS[-1]
"""What ``--io`` is with ``--parser native`` if nobody says: the reactor, where there can be one."""
REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
IMPORTED = """
import asyncio, contextvars, json, sys
from servery.config import Config
from servery.limits import DEFAULTS
from servery.selection import select
selection = select(Config(parser=sys.argv[1], io=sys.argv[2]))
core = "servery._speedups"
imported = [name.removeprefix(core) for name in sys.modules if name.startswith(core)]
selection.engine_factory(DEFAULTS, lambda: b"")(0.0)
loop = asyncio.new_event_loop()
selection.open_io(loop, contextvars.copy_context()).close()
loop.close()
assert imported == [name.removeprefix(core) for name in sys.modules if name.startswith(core)]
print(json.dumps(imported))
"""
WITHOUT_READINESS = """
import select, sys
for name in ("epoll", "kqueue"):
    vars(select).pop(name, None)
from servery.cli import main
sys.exit(main())
"""


def python(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run an interpreter that finds servery in `cwd`."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=30,
    )


@pytest.fixture
def without(tmp_path: Path) -> Path:
    """A folder with the package, but without its compiled core and without word of how it was built."""
    leave = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd", "build.json")
    shutil.copytree(ROOT / "servery", tmp_path / "servery", ignore=leave)
    return tmp_path


def refusal(folder: Path, *flags: str, program: tuple[str, ...] = ("-m", "servery")) -> str:
    """What the command says that refuses to serve."""
    done = python(*program, "servery.demo:app", "--port", "0", *flags, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("servery: error: --")
    return done.stderr


# --- what runs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("parser", "io"), [("python", "transport"), ("native", OF_NATIVE)])
def test_the_parser_brings_its_io_and_its_engine(parser: str, io: str) -> None:
    selection = select(Config(parser=parser))
    engine = selection.engine_factory(DEFAULTS, lambda: b"")(0.0)
    assert type(engine).__module__ == ENGINES[parser]
    assert str(selection) == f"parser={parser} io={io} loop=asyncio"


@pytest.mark.parametrize("parser", ENGINES)
def test_the_parser_brings_the_engine_of_websockets(parser: str) -> None:
    config = Config(parser=parser)
    request = Http1Engine(DEFAULTS, lambda has: b"", 0.0).receive(wire_frames.handshake(), 0.0)[0]
    opened = select(config).handshake_reader(config, lambda has: b"")(request)
    assert opened is not None
    assert type(opened.accept(None, [], 0.0)).__module__ == websocket_subjects.ENGINES[parser]


def test_what_was_asked_for_runs(way: Way) -> None:
    assert str(select(Config(**way.settings))) == f"parser={way.parser} io={way.io} loop={way.loop}"


def test_a_server_says_what_runs_and_answers(serve) -> None:
    """Who calls the application tells which code that is."""

    async def app(scope, receive, send):
        driver = type(getattr(receive, "__self__", receive)).__module__
        await respond(send, f"{scope['extensions']['servery']['runs']} by={driver} ".encode())

    with serve(app) as server:
        selection = server.server.selection
        answer = server.raw(REQUEST)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert f"\r\n\r\n{selection} interface=asgi3 by=".encode() in answer
    fused = selection.parser == "native" and selection.io == "reactor"
    assert (b" by=servery._speedups.http_cycle " in answer) == fused


@pytest.mark.parametrize(("parser", "io"), MODULES)
def test_of_the_compiled_core_only_what_runs_is_imported_and_before_a_socket_is_bound(
    parser: str, io: str
) -> None:
    imported = json.loads(python("-c", IMPORTED, parser, io).stdout)
    wanted = {f".{module}" for module in MODULES[parser, io]}
    assert set(imported) == ({"", *wanted} if wanted else set())


def test_a_server_inside_of_a_loop_that_nobody_named_serves(way: Way) -> None:
    """The running loop is what counts, whatever the configuration says."""
    settings = {**way.settings, "loop": "asyncio"}

    async def main() -> bytes:
        server = Server(Config(app=ok, port=0, lifespan="off", **settings))
        task = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.001)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(REQUEST)
        answer = await reader.read()
        writer.close()
        server.should_exit = True
        await task
        return answer

    with asyncio.Runner(loop_factory=lambda: new_loop(way.loop)) as runner:
        assert runner.run(main()).endswith(b"\r\n\r\nok")


# --- what cannot run ---------------------------------------------------------------------------------


class Unwatching(asyncio.SelectorEventLoop):
    """As the proactor loop of Windows: it does not tell when a descriptor is ready."""

    def add_reader(self, fd, callback, *args):
        raise NotImplementedError


@pytest.mark.parametrize("parser", ENGINES)
def test_a_loop_that_watches_no_descriptor_is_refused_before_a_socket_is_bound(parser: str) -> None:
    config = Config(app=ok, port=0, lifespan="off", parser=parser, io="reactor")
    server = Server(config)
    with asyncio.Runner(loop_factory=Unwatching) as runner:
        before = psutil.Process().num_fds()
        message = (
            r"^--io reactor needs an event loop with add_reader\(\), and Unwatching .* use --io transport$"
        )
        with pytest.raises(ConfigError, match=message):
            runner.run(server.serve())
        assert server.listeners == []
        assert psutil.Process().num_fds() == before


def test_a_platform_without_readiness_is_told_so() -> None:
    said = refusal(ROOT, "--io", "reactor", program=("-c", WITHOUT_READINESS))
    assert "--io reactor needs epoll or kqueue, and this platform has neither: use --io transport" in said


def test_a_missing_core_is_refused_with_what_to_do(without: Path) -> None:
    said = refusal(without, "--parser", "native")
    assert "No module named 'servery._speedups.engine'" in said
    assert f"{without / 'servery' / '_speedups' / f'engine{ABI}'} (missing)" in said
    assert "not built: these are sources that no build has touched" in said
    assert "SERVERY_BUILD_NATIVE=require python -m pip install " in said
    assert said.endswith("without it:    --parser python\n")


def test_a_missing_reactor_is_refused_with_what_to_do(without: Path) -> None:
    said = refusal(without, "--io", "reactor")
    assert said.startswith("servery: error: --io reactor needs the compiled core, which cannot be imported: ")
    assert f"{without / 'servery' / '_speedups' / f'reactor{ABI}'} (missing)" in said
    assert said.endswith("without it:    --io transport\n")
    both = refusal(without, "--parser", "native", "--io", "reactor")
    assert both.endswith("without it:    --parser python --io transport\n")


@pytest.mark.parametrize("module", MODULES["native", OF_NATIVE])
def test_a_core_that_lacks_a_part_is_refused(without: Path, module: str) -> None:
    """Whatever part it is: nothing else is chosen instead."""
    for name in MODULES["native", OF_NATIVE]:
        if name != module:
            shutil.copy(SPEEDUPS / f"{name}{ABI}", without / "servery" / "_speedups")
    said = refusal(without, "--parser", "native")
    assert "--parser native needs the compiled core, which cannot be imported: " in said
    assert f"{module}{ABI} (missing)\n" in said


@pytest.mark.parametrize("flags", [("--h2c",), ("--http2", "--tls-self-signed")])
@pytest.mark.parametrize("module", HTTP2_MODULES[OF_NATIVE])
def test_a_core_without_http2_is_refused_only_if_it_is_asked_for(
    without: Path, module: str, flags: tuple[str, ...]
) -> None:
    """As a build leaves it that has not found nghttp2."""
    folder = without / "servery" / "_speedups"
    for name in (*MODULES["native", OF_NATIVE], *HTTP2_MODULES[OF_NATIVE]):
        if name != module:
            shutil.copy(SPEEDUPS / f"{name}{ABI}", folder)
    (folder / "build.json").write_text('{"native": "built, without HTTP/2 (nghttp2 was not found)"}')
    said = refusal(without, "--parser", "native", *flags)
    assert f"--parser native {flags[0]} needs a part of the compiled core that cannot be imported: " in said
    assert f"No module named 'servery._speedups.{module}'" in said
    assert "compiled core: built, without HTTP/2 (nghttp2 was not found)\n" in said
    assert "libnghttp2-dev" in said
    assert said.endswith(f"without it:    --parser python, or drop {flags[0]}\n")
    done = python("-m", "servery", "--version", "--verbose", cwd=without)
    facts = json.loads(done.stdout)["native"]
    assert facts["http2"] is None
    assert "built, without HTTP/2" in facts["http2_missing"]
    assert facts["modules"].keys() == set(MODULES["native", OF_NATIVE])


def test_the_refusal_says_how_the_install_was_built(without: Path) -> None:
    facts = {"native": "not asked for (SERVERY_BUILD_NATIVE=no)"}
    (without / "servery" / "_speedups" / "build.json").write_text(json.dumps(facts))
    assert "compiled core: not asked for (SERVERY_BUILD_NATIVE=no)\n" in refusal(
        without, "--parser", "native"
    )
    facts = {"native": "failed: no compiler", "python": "3.11.0", "platform": "Linux"}
    (without / "servery" / "_speedups" / "build.json").write_text(json.dumps(facts))
    assert "compiled core: failed: no compiler; Python 3.11.0, Linux\n" in refusal(
        without, "--parser", "native"
    )


def test_a_core_for_another_python_and_a_broken_one_are_named(without: Path) -> None:
    (without / "servery" / "_speedups" / "engine.other-abi.so").touch()
    assert "(missing; built for another Python: engine.other-abi.so)" in refusal(
        without, "--parser", "native"
    )
    (without / "servery" / "_speedups" / f"engine{ABI}").write_bytes(b"not a library")
    assert f"engine{ABI} (there)\n" in refusal(without, "--parser", "native")


def test_checking_the_configuration_finds_it_too(without: Path) -> None:
    assert "needs the compiled core" in refusal(without, "--check-config", "--parser", "native")
    assert "needs the compiled core" in refusal(without, "--check-config", "--io", "reactor")


# --- what is said of an install ----------------------------------------------------------------------


def test_facts_of_an_install_with_the_core() -> None:
    facts = build_facts()
    assert facts["parsers"] == ["python", "native"]
    assert facts["ios"] == [*IOS]
    assert facts["native_missing"] is None
    files = {name: Path(file).name for name, file in facts["native"]["modules"].items()}
    wanted = MODULES["native", OF_NATIVE] + HTTP2_MODULES[OF_NATIVE]
    assert files == {name: f"{name}{ABI}" for name in wanted}
    assert {"cython", "compiler", "flags", "scan"} <= facts["native"].keys()
    assert "unknown" not in facts["native"].values()
    assert facts["native"]["http2"].startswith("nghttp2 1.")
    assert facts["native"].get("poll") == next(
        (x for x in ("epoll", "kqueue") if hasattr(readiness, x)), None
    )


def test_facts_of_an_install_without_it(without: Path) -> None:
    done = python("-m", "servery", "--version", "--verbose", cwd=without)
    facts = json.loads(done.stdout)
    assert (facts["parsers"], facts["ios"], facts["native"]) == (["python"], ["transport"], None)
    assert "no build has touched" in facts["native_missing"]
