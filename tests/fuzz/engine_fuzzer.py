"""A coverage-guided target for both engines: libFuzzer, through atheris, looks for octets on which they part.

    make fuzz ARGS="engine"                           half a minute
    make fuzz ARGS="engine -max_total_time=3600"      an hour

An input is what the peer sends, and behind it `fuzz.chance.CHOICES` octets that choose all the rest: cuts,
limits, time, and what the application does (`fuzz.scripts`). The search is guided by the reference,
instrumented as bytecode, and by the compiled core if it was built for that: ``--core FOLDER`` says where such
a core is.
`fuzz.run` builds one with clang, AddressSanitizer and UndefinedBehaviorSanitizer, and starts this program.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris


def main() -> None:
    """Look for differences until a flag of libFuzzer says that it is enough."""
    import servery._speedups

    if "--core" in sys.argv:
        at = sys.argv.index("--core")
        core = sys.argv[at + 1]
        del sys.argv[at : at + 2]
        servery._speedups.__path__.insert(0, f"{core}/servery/_speedups")
    with atheris.instrument_imports(include=["servery.http1"]):
        import servery._speedups.engine
        import servery.http1.engine
    print(f"the compiled engine is {servery._speedups.engine.__file__}", file=sys.stderr)
    atheris.Setup(sys.argv, compare)
    atheris.Fuzz()


def compare(data: bytes) -> None:
    """One input. Raises where the engines part."""
    from fuzz.chance import CHOICES, Chance
    from fuzz.differential import ORDERS
    from fuzz.playing import difference
    from fuzz.scripts import random_script

    octets, chance = data[:-CHOICES], Chance(data[-CHOICES:])
    if octets:
        order = chance.pick(ORDERS)
        if found := difference(random_script(chance, octets), order):
            raise AssertionError(f"the engines differ at {found}")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    main()
