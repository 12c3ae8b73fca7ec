"""Build hook: the compiled core, and the facts of the build. All metadata stands in pyproject.toml.

SERVERY_BUILD_NATIVE=auto      build the compiled core; if that fails, a pure install that says why (default)
SERVERY_BUILD_NATIVE=require   build it or fail
SERVERY_BUILD_NATIVE=no        leave it out: a py3-none-any wheel
SERVERY_BUILD_HTTP2=auto       with HTTP/2 in it where nghttp2 is installed, headers and all (default)
SERVERY_BUILD_HTTP2=require    with it, or fail: what wheels are built with
SERVERY_BUILD_HTTP2=no         without it
SERVERY_BUILD_TRACE=1          with line tracing, for coverage of the compiled code; slow, never for a release
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

from setuptools import Command, Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext
from setuptools.errors import CCompilerError

PACKAGE = "servery._speedups"
FOLDER = Path("servery/_speedups")
FACTS = FOLDER / "build.json"
SOURCES = {
    "engine": ["engine.pyx", "scan.c"],
    "websocket": ["websocket.pyx", "frames.c"],
    "tally": ["tally.pyx"],
}
if sys.platform != "win32":  # no readiness there that a loop could wait for
    SOURCES |= {"reactor": ["reactor.pyx", "poll.c"], "shared": ["shared.pyx"], "calls": ["calls.pyx"]}
    SOURCES |= {name: [f"{name}.pyx"] for name in ("records", "http_cycle", "websocket_cycle", "connection")}
# Over nghttp2, which not every machine has: left out where it is not there, and `servery --http2` says so.
HTTP2 = {"hpack": ["hpack.pyx"], "http2": ["http2.pyx"]}
if sys.platform != "win32":
    HTTP2 |= {"http2_connection": ["http2_connection.pyx"]}
NAMES = [f"{PACKAGE}.{module}" for module in (*SOURCES, *HTTP2)]
DEPENDS = [Path("setup.py"), *FOLDER.glob("*.pxd"), *FOLDER.glob("*.h")]

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "auto_pickle": False,  # coroutines, above all, cannot be copied
    # freethreading_compatible is not declared. It only promises that the module needs no GIL, and nothing has
    # proven that yet: the tables of lines and names that the module keeps are shared by all threads.
}


def switch(name: str, *values: str) -> str:
    """The value of a variable, which must be one of `values`; the first one if it is not set."""
    value = os.environ.get(name, values[0])
    if value not in values:
        raise SystemExit(f"{name}={value!r} is not one of {', '.join(values)}")
    return value


MODE = switch("SERVERY_BUILD_NATIVE", "auto", "require", "no")
TRACE = switch("SERVERY_BUILD_TRACE", "0", "1") == "1"
IS_CPYTHON = sys.implementation.name == "cpython"
if MODE == "require" and not IS_CPYTHON:
    raise SystemExit(
        "SERVERY_BUILD_NATIVE=require: the compiled core needs CPython, and this is "
        f"{platform.python_implementation()}; leave the variable out to install without it"
    )
WANTED = MODE != "no" and IS_CPYTHON


def find_nghttp2() -> dict[str, list[str]] | None:
    """Where nghttp2 is, in the words of `Extension`: as pkg-config says, or where headers usually are."""
    try:
        said = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "libnghttp2"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        roots = [Path(sys.prefix), *map(Path, ("/usr", "/usr/local", "/opt/homebrew", "/opt/local"))]
        paths = [Path(path) for path in os.environ.get("CPATH", "").split(os.pathsep) if path]
        for folder in (*paths, *(root / "include" for root in roots)):
            if (folder / "nghttp2" / "nghttp2.h").exists():
                libraries = str(folder.parent / "lib")
                return {"libraries": ["nghttp2"], "include_dirs": [str(folder)], "library_dirs": [libraries]}
        return None
    flags = shlex.split(said.stdout)
    kinds = {"libraries": "-l", "include_dirs": "-I", "library_dirs": "-L"}
    return {kind: [flag[2:] for flag in flags if flag[:2] == start] for kind, start in kinds.items()}


HTTP2_MODE = switch("SERVERY_BUILD_HTTP2", "auto", "require", "no")
NGHTTP2 = find_nghttp2() if WANTED and HTTP2_MODE != "no" else None
if HTTP2_MODE == "require" and WANTED and NGHTTP2 is None:
    raise SystemExit(
        "SERVERY_BUILD_HTTP2=require: nghttp2 is not found: install its headers (Debian: libnghttp2-dev, "
        "Fedora: libnghttp2-devel, Homebrew: libnghttp2), or leave the variable out to build without it"
    )


class BuildNative(build_ext):
    """Compiles the core. With ``auto``, whatever goes wrong leaves an install that is pure, and says so."""

    failure = ""

    def finalize_options(self) -> None:
        super().finalize_options()
        if self.parallel is None:
            self.parallel = True  # as many compilers as there are processors

    def run(self) -> None:
        if not self.extensions:
            return
        # What an earlier build left behind may be of other sources, flags or Cython: always made anew.
        for name in NAMES:
            Path(self.build_lib, self.get_ext_filename(name)).unlink(missing_ok=True)
        try:
            self._translate()
            super().run()
        except Exception as error:
            self.failure = self._in_words(error)
            if MODE == "require":
                raise RuntimeError(f"SERVERY_BUILD_NATIVE=require: {self.failure}") from error
            # A missing Cython, a missing compiler, headers that are not installed: all of it is forgiven.
            self.extensions = []
            self.distribution.ext_modules = []
            print(f"servery: the compiled core was not built: {self.failure}", file=sys.stderr)

    def _in_words(self, error: Exception) -> str:
        """Why there is no compiled core."""
        if isinstance(error, ImportError):
            return f"Cython, which the build needs, cannot be imported ({error})"
        if isinstance(error, CCompilerError):
            command = getattr(self.compiler, "compiler_so", ["cl"])[0]
            return f"the C compiler failed ({command}): it, or the headers of Python, may be missing"
        return " ".join(f"{type(error).__name__}: {error}".split())[:300]

    def _translate(self) -> None:
        """Cython to C. Not into the source tree, unless Cython's coverage plugin has to find it there."""
        from Cython.Build import cythonize

        translated = cythonize(
            self.extensions,
            build_dir=None if TRACE else "build/cython",
            compiler_directives=DIRECTIVES | {"linetrace": TRACE},
            force=True,
            quiet=True,
            nthreads=(os.cpu_count() or 1) if sys.platform == "linux" else 0,  # processes, which are forked
        )
        for extension, made in zip(self.extensions, translated, strict=True):
            extension.sources = made.sources

    def build_extension(self, ext: Extension) -> None:
        unixlike = self.compiler.compiler_type != "msvc"
        if unixlike and "CFLAGS" not in os.environ:
            ext.extra_compile_args = ["-O3", "-g0"]
        ext.define_macros += [("SERVERY_FLAGS", c_string(self._flags(ext)))]
        if TRACE:
            ext.define_macros += [("CYTHON_TRACE", "1"), ("CYTHON_TRACE_NOGIL", "1")]
        super().build_extension(ext)

    def _flags(self, ext: Extension) -> str:
        """What the compiler is told besides macros and paths."""
        command = getattr(self.compiler, "compiler_so", ["", "/O2"])
        return " ".join([*command[1:], *ext.extra_compile_args, *(["(traced)"] if TRACE else [])])


def c_string(text: str) -> str:
    """A literal for a macro; characters that shells and compilers read differently are replaced."""
    return '"' + text.replace("\\", "/").replace('"', "'") + '"'


class BuildFacts(Command):
    """Leaves word of how this was built, for whoever later misses the compiled core, or asks."""

    description = "write down how the compiled core was built"
    user_options: ClassVar[list[Any]] = []
    editable_mode = False

    def initialize_options(self) -> None:
        self.build_lib: Any = None

    def finalize_options(self) -> None:
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def run(self) -> None:
        native: Any = self.get_finalized_command("build_ext")
        top = Path() if self.editable_mode else Path(self.build_lib)
        if self.editable_mode and not native.extensions:
            # What an earlier build left in the checkout is not what this one made.
            for name in NAMES:
                (top / native.get_ext_filename(name)).unlink(missing_ok=True)
        facts = {"servery": self.distribution.get_version(), "native": self._native(native)}
        if WANTED:
            facts |= {"python": platform.python_version(), "platform": platform.platform()}
        (top / FACTS).parent.mkdir(parents=True, exist_ok=True)
        (top / FACTS).write_text(json.dumps(facts, indent=2) + "\n", "utf-8")

    def _native(self, native: Any) -> str:
        if MODE == "no":
            return "not asked for (SERVERY_BUILD_NATIVE=no)"
        if not WANTED:
            return f"not built: it needs CPython, and this is {platform.python_implementation()}"
        if native.failure:
            return f"failed: {native.failure}"
        if NGHTTP2 is not None:
            return "built"
        why = "not asked for" if HTTP2_MODE == "no" else "nghttp2 was not found"
        return f"built, without HTTP/2 ({why})"

    def get_outputs(self) -> list[str]:
        """The one file, which an editable install has in the checkout."""
        return [] if self.editable_mode else [str(Path(self.build_lib) / FACTS)]


class Build(build):
    """The usual steps, then `BuildFacts`."""

    sub_commands: ClassVar[list[Any]] = [*build.sub_commands, ("build_facts", None)]


class BuildLoadgen(Command):
    """Compiles the load generator of benchmarks/: only when it is asked for, and never into a wheel."""

    description = "compile the load generator of benchmarks/"
    user_options: ClassVar[list[Any]] = []

    def initialize_options(self) -> None:
        """There are none."""

    def finalize_options(self) -> None:
        """There are none."""

    def run(self) -> None:
        from benchmarks.loadgen.build import build

        print(build())


class Wheel(bdist_wheel):
    """A wheel is for one platform only if it has compiled code: known after compiling, told by its name."""

    def run_command(self, command: str) -> None:
        super().run_command(command)
        if command == "build":
            self.root_is_pure = not self.distribution.has_ext_modules()


def extensions() -> list[Extension]:
    """What is compiled: all of it, but for HTTP/2 where nghttp2 is not there."""
    found = NGHTTP2 or {}
    parts = [(SOURCES, {}), *([(HTTP2, found)] if found else [])]
    return [
        Extension(
            f"{PACKAGE}.{module}",
            [(FOLDER / source).as_posix() for source in sources],
            depends=[path.as_posix() for path in DEPENDS],
            include_dirs=[FOLDER.as_posix(), *options.get("include_dirs", ())],
            libraries=options.get("libraries"),
            library_dirs=options.get("library_dirs"),
        )
        for table, options in parts
        for module, sources in table.items()
    ]


setup(
    ext_modules=extensions() if WANTED else [],
    cmdclass={
        "build": Build,
        "build_ext": BuildNative,
        "build_facts": BuildFacts,
        "build_loadgen": BuildLoadgen,
        "bdist_wheel": Wheel,
    },
)
