"""The test suite on a compiled core that has sanitizers in it: ``make sanitize``, or ``make sanitize
ARGS="-k leaks"``.

Fails if a test fails, or if any process found something: an access to memory that is not its own, or what C
leaves undefined. ARGS are pytest's.
"""

from __future__ import annotations

import subprocess
import sys

from build import PYTHON, TREE, build, environment, reports

LEFT_OUT: dict[str, str] = {}
"""Tests that cannot run here, and why."""


def main() -> int:
    """Build, test, and show what was found."""
    build()
    command = [PYTHON, "-m", "pytest", "-o", "timeout=300", "-p", "no:cacheprovider"]
    command += [f"--deselect={test}" for test in LEFT_OUT]
    done = subprocess.run([*command, *sys.argv[1:]], cwd=TREE, env=environment(detect_leaks=0), check=False)
    found = reports()
    print(*found, sep="\n")
    print(f"the sanitizers found {len(found) or 'nothing'}")
    return 1 if found else done.returncode


if __name__ == "__main__":
    sys.exit(main())
