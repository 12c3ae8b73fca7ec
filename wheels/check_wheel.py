"""Prove what a wheel of servery does: python -I wheels/check_wheel.py WHEEL

Installs the wheel, and nothing else, into an empty environment and looks at it from outside of any
checkout: the content, the tags, which code runs (by the files of its modules, and by the start-up line of a
live server that is then asked something, for each parser and each io), and what happens without the compiled
core: ``--parser native`` and ``--io reactor`` refuse with exit code 2, ``--parser python`` serves. Prints
what was proven, and fails with an AssertionError. Needs a pip in the Python that runs it, which must be the
one that the wheel is for.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

WAIT = 20.0
PURE = "py3-none-any"
CORE = "servery/_speedups/"
COMPILED = (".so", ".pyd")
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("SERVERY_", "PYTHON", "COVERAGE"))
}
ENGINES = {"engine", "websocket", "tally"}
FUSED = ENGINES | {"records", "reactor", "shared", "calls", "http_cycle", "websocket_cycle", "connection"}
MODULES = ENGINES if os.name == "nt" else FUSED
HTTP2 = {"hpack", "http2"} if os.name == "nt" else {"hpack", "http2", "http2_connection"}
"""What there is besides, if nghttp2 was there when the wheel was built."""
WAYS = {
    ("python", "transport"): set(),
    ("python", "reactor"): {"records", "reactor"},
    ("native", "transport"): ENGINES,
    ("native", "reactor"): FUSED,
}
"""What is imported of the compiled core, by parser and io."""
WHICH = """
import json, sys
from servery.config import Config
from servery.limits import DEFAULTS
from servery.selection import select
selection = select(Config(parser=sys.argv[1], io=sys.argv[2]))
core = "servery._speedups."
imported = {name.removeprefix(core): it.__file__ for name, it in sys.modules.items() if name.startswith(core)}
engine = type(selection.engine_factory(DEFAULTS, lambda: b"")(0.0))
print(json.dumps([engine.__module__, imported]))
"""


class Installed:
    """A wheel in an environment of its own, in which there is nothing else."""

    def __init__(self, wheel: Path, folder: Path) -> None:
        self.folder = folder
        venv.create(folder, with_pip=False, symlinks=os.name != "nt")
        scripts = folder / ("Scripts" if os.name == "nt" else "bin")
        self.python = scripts / ("python.exe" if os.name == "nt" else "python")
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "--disable-pip-version-check"]
        subprocess.run(
            [*pip, "install", "--no-index", "--quiet", str(wheel)], check=True, cwd=folder, env=ENVIRONMENT
        )
        listed = subprocess.check_output([*pip, "list", "--format", "json"], cwd=folder, env=ENVIRONMENT)
        assert [package["name"] for package in json.loads(listed)] == ["servery"]
        self.package = Path(self.say("-c", "import servery; print(servery.__path__[0])").strip())
        assert self.package.resolve().is_relative_to(folder.resolve()), self.package

    def command(self, *arguments: str) -> list[str]:
        """The interpreter, isolated: neither a folder nor a variable of the caller gets in."""
        return [str(self.python), "-I", "-W", "error", *arguments]

    def ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the interpreter to its end."""
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=WAIT,
            check=False,
        )

    def say(self, *arguments: str) -> str:
        """What it prints; it must succeed."""
        done = self.ask(*arguments)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done.stdout

    def extensions(self) -> list[Path]:
        """The compiled modules."""
        return [path for path in self.package.rglob("*") if path.suffix in COMPILED]

    def chosen(self, parser: str, io: str) -> tuple[str, dict[str, Path]]:
        """The module of the engine, and the files of the compiled core that were imported, by module."""
        module, imported = json.loads(self.say("-c", WHICH, parser, io))
        return module, {name: Path(file) for name, file in imported.items()}

    @contextmanager
    def serving(self, *flags: str) -> Iterator[tuple[str, str]]:
        """(start-up line, URL) of a live server, which must stop in order."""
        process = subprocess.Popen(
            self.command("-m", "servery", "servery.demo:app", "--port", "0", *flags),
            cwd=self.folder,
            env=ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            if " http://" not in line:
                process.kill()
                raise AssertionError(line + process.stderr.read())
            yield line, line.split()[-1]
        finally:
            process.terminate()
            process.communicate(timeout=WAIT)
        assert process.returncode == 0 or os.name == "nt", process.returncode


def check_content(wheel: Path) -> None:
    """The files and the tags of the wheel agree: no sources of the core, all modules or none."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        [label] = [archive.read(name).decode() for name in names if name.endswith(".dist-info/WHEEL")]
        facts = json.loads(archive.read(f"{CORE}build.json"))
    compiled = [name for name in names if name.endswith(COMPILED)]
    assert f"Root-Is-Purelib: {str(is_pure(wheel)).lower()}\n" in label, label
    assert {f"{CORE}__init__.py", f"{CORE}engine.pyi", "servery/py.typed"} <= names
    allowed = (".py", ".pyi", ".html", ".typed", ".json", *COMPILED)
    extra = [name for name in names if name.startswith("servery/") and not name.endswith((*allowed, "/"))]
    assert not extra, f"not for a wheel: {extra}"
    if is_pure(wheel):
        assert not compiled, f"a pure wheel with {compiled}"
        assert facts["native"] != "built"
    else:
        modules = MODULES | HTTP2 if facts["native"] == "built" else MODULES
        assert set(compiled) == {f"{CORE}{module}{EXTENSION_SUFFIXES[0]}" for module in modules}, compiled
        assert facts["native"].startswith("built")


def is_pure(wheel: Path) -> bool:
    """Whether the name of the wheel says that it runs everywhere."""
    return wheel.name.endswith(f"-{PURE}.whl")


def check_serves(installed: Installed, parser: str, io: str) -> None:
    """A live server says that it runs so, and answers."""
    with installed.serving("--parser", parser, "--io", io) as (line, url):
        assert f" parser={parser} io={io} " in line, line
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=WAIT) as response:
            assert (response.status, response.headers["server"]) == (200, "servery")
    print(f"--parser {parser} --io {io}: a live server says so and answers")


def check_http2(installed: Installed, io: str) -> None:
    """The compiled core speaks HTTP/2: its first frame is SETTINGS."""
    with installed.serving("--parser", "native", "--io", io, "--h2c") as (line, url):
        assert " http=1.1,2 " in line, line
        address = urllib.parse.urlsplit(url)
        with socket.create_connection((address.hostname, address.port), WAIT) as sock:
            sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
            assert sock.recv(9)[3:5] == b"\4\0"
    print(f"--parser native --io {io} --h2c: a live server speaks HTTP/2")


def check_choice(installed: Installed, parser: str, io: str) -> None:
    """What was asked for is imported, nothing else, and it lies in the environment."""
    module, imported = installed.chosen(parser, io)
    assert module == {"python": "servery.http1.engine", "native": "servery._speedups.engine"}[parser]
    assert imported.keys() == WAYS[parser, io], f"--parser {parser} --io {io} imported {imported}"
    for name, file in imported.items():
        assert file.resolve().is_relative_to(installed.package.resolve()), file
        assert any(file.name == f"{name}{suffix}" for suffix in EXTENSION_SUFFIXES), file
    print(f"--parser {parser} --io {io}: {', '.join(file.name for file in imported.values()) or 'pure'}")


def check_refuses(installed: Installed, how_built: str) -> None:
    """Without the compiled core what needs it serves nothing, and says what to do."""
    asked = [("--parser native", "engine", "--parser python"), ("--io reactor", "reactor", "--io transport")]
    for flag, module, instead in asked if "reactor" in MODULES else asked[:1]:
        done = installed.ask("-m", "servery", "servery.demo:app", "--port", "0", *flag.split())
        assert (done.returncode, done.stdout) == (2, ""), done
        for text in (
            f"{flag} needs the compiled core",
            f"{module}{EXTENSION_SUFFIXES[0]}",
            how_built,
            "SERVERY_BUILD_NATIVE=require",
            instead,
        ):
            assert text in done.stderr, done.stderr
        print(f"without the compiled core: {flag} exits with 2 and says what to do")
    facts = json.loads(installed.say("-m", "servery", "--version", "--verbose"))
    assert (facts["native"], facts["parsers"], facts["ios"]) == (None, ["python"], ["transport"])
    assert how_built in facts["native_missing"]


def check(wheel: Path) -> None:
    """All of it. Raises AssertionError."""
    check_content(wheel)
    print(f"{wheel.name}: content and tags agree")
    with tempfile.TemporaryDirectory() as folder:
        installed = Installed(wheel, Path(folder))
        for way, needed in WAYS.items():
            if needed <= (set() if is_pure(wheel) else MODULES):
                check_choice(installed, *way)
                check_serves(installed, *way)
        if is_pure(wheel):
            check_refuses(installed, "compiled core: ")
            return
        facts = json.loads(installed.say("-m", "servery", "--version", "--verbose"))
        assert facts["parsers"] == ["python", "native"]
        if facts["native"]["http2"] is None:
            assert facts["native"]["modules"].keys() == MODULES
            done = installed.ask(
                "-m", "servery", "servery.demo:app", "--parser", "native", "--h2c", "--port", "0"
            )
            assert (done.returncode, "libnghttp2-dev" in done.stderr) == (2, True), done
            print("without HTTP/2: --parser native --h2c exits with 2 and says what to do")
        else:
            assert facts["native"]["modules"].keys() == MODULES | HTTP2
            for io in sorted({io for parser, io in WAYS if WAYS[parser, io] <= MODULES}):
                check_http2(installed, io)
        print(json.dumps(facts["native"]))
        for extension in installed.extensions():
            extension.rename(extension.with_suffix(".hidden"))
        check_refuses(installed, "compiled core: built")
        check_serves(installed, "python", "transport")


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].endswith(".whl"):
        raise SystemExit(__doc__)
    check(Path(sys.argv[1]).resolve())
