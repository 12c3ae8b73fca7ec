"""Memory that the compiled core takes and forgets: ``make leaks``, or ``make leaks ARGS="--io transport"``.

A short soak for a server with sanitizers in it. When the server ends, LeakSanitizer tells of memory to which
nothing points any more. Python itself and other extensions leave some behind; this fails if one of ours has
had a part in a piece that was left. ARGS are those of ``tests/soak/run.py``.
"""

from __future__ import annotations

import re
import subprocess
import sys

from build import PYTHON, TREE, build, environment, reports

OURS = "/_speedups/"
SHORT = ["--part", "mixed", "--minutes", "0", "--least", "400"]
CANARY = 31_337
FORGET = f"""
import ctypes
malloc = ctypes.CDLL(None).malloc
malloc.restype = ctypes.c_void_p
malloc({CANARY})
"""
"""What the application of the soak does besides: so many octets must be in the report of each server."""

WAYS = (["--io", "reactor"], ["--io", "reactor", "--loop", "uvloop"], ["--io", "transport"])


def leaks(report: str) -> list[str]:
    """The pieces of memory in a report that were taken by code of ours, or on its behalf."""
    pieces = re.findall(r"^(?:Direct|Indirect) leak of .*?(?:\n\s*\n|\Z)", report, re.MULTILINE | re.DOTALL)
    return [piece for piece in pieces if OURS in piece]


def soak(arguments: list[str]) -> int:
    """Run one soak; returns the number of leaks, or 1 if the soak itself failed."""
    # Only with the slow way of unwinding stacks is it seen who called Python's own functions.
    surroundings = environment(detect_leaks=1, exitcode=0, fast_unwind_on_malloc=0)
    program = [PYTHON, "tests/soak/run.py", *SHORT, "--most", "4000", "--parser", "native", *arguments]
    done = subprocess.run(program, cwd=TREE, env=surroundings, check=False)
    written = reports()
    found = [piece for report in written for piece in leaks(report)]
    print(*found, sep="\n")
    if not any(f"leak of {CANARY} byte" in report for report in written):
        print("the leak that every server has here was not reported:", *written, sep="\n")
        return 1
    print(f"{' '.join(arguments)}: {len(found) or 'no'} leaks of ours")
    return len(found) or done.returncode


def main() -> int:
    """Build, and soak."""
    build()
    with (TREE / "tests" / "soak" / "app.py").open("a") as application:
        application.write(FORGET)
    ways = [sys.argv[1:]] if sys.argv[1:] else WAYS
    return 1 if sum([soak(list(way)) for way in ways]) else 0


if __name__ == "__main__":
    sys.exit(main())
