"""The test suite on a compiled core that has sanitizers in it: ``make sanitize``, or ``make sanitize
ARGS="-k leaks"``.

Fails if a test fails, or if any process found something: an access to memory that is not its own, or what C
leaves undefined. ARGS are pytest's.
"""

from __future__ import annotations

import subprocess
import sys

from build import PYTHON, TREE, build, environment, reports

MEMORY = "it measures memory, and freed memory is kept for a while, to notice who uses it"
LEFT_OUT = {
    "tests/test_backpressure.py::test_a_body_that_nobody_reads_waits_in_the_network": MEMORY,
    "tests/test_backpressure.py::test_send_waits_for_a_slow_reader": MEMORY,
    "tests/test_backpressure.py::test_pipelined_requests_wait_until_the_client_reads": MEMORY,
    "tests/test_leaks.py::test_thousands_of_connections_leave_no_trace": MEMORY,
    "tests/test_leftovers.py::test_nothing_is_left_of_ten_thousand_that_connect_and_reset": MEMORY,
    "tests/test_fuzz_targets.py": "it brings a libFuzzer, whose hooks are those of the sanitizers",
}
"""Tests that cannot run here, and why."""


def main() -> int:
    """Build, test, and show what was found."""
    build()
    command = [PYTHON, "-m", "pytest", "-p", "no:cacheprovider", "-o", "timeout=600"]
    command += ["-o", "faulthandler_timeout=500", *(f"--deselect={test}" for test in LEFT_OUT)]
    for test, reason in LEFT_OUT.items():
        print(f"left out: {test}: {reason}")
    done = subprocess.run([*command, *sys.argv[1:]], cwd=TREE, env=environment(detect_leaks=0), check=False)
    found = reports()
    print(*found, sep="\n")
    print(f"the sanitizers found {len(found) or 'nothing'}")
    return 1 if found else done.returncode


if __name__ == "__main__":
    sys.exit(main())
