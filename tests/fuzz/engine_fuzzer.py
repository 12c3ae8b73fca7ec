"""A coverage-guided target for both engines: libFuzzer, through atheris, looks for octets on which they part.

    make fuzz ARGS="engine"                           half a minute
    make fuzz ARGS="engine -max_total_time=3600"      an hour
    make fuzz ARGS="websocket"                        the engines of WebSockets

An input is what the peer sends, and behind it `fuzz.chance.CHOICES` octets that choose all the rest: cuts,
limits, time, and what the application does (`fuzz.scripts`, `fuzz.websocket_scripts`). The search is guided
by the reference, instrumented as bytecode, and by the compiled core if it was built for that: ``--core
FOLDER`` says where such a core is.
`fuzz.run` builds one with clang, AddressSanitizer and UndefinedBehaviorSanitizer, and starts this program.
"""

from __future__ import annotations

import sys
from importlib import import_module
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
    target = sys.argv.pop(1)
    package, module, compare = TARGETS[target]
    with atheris.instrument_imports(include=[package]):
        compiled = import_module(module)
        import_module(f"{package}.engine")
    print(f"the compiled engine is {compiled.__file__}", file=sys.stderr)
    atheris.Setup(sys.argv, compare)
    atheris.Fuzz()


def compare_requests(data: bytes) -> None:
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


def compare_frames(data: bytes) -> None:
    """The same for the engines of WebSockets."""
    from fuzz.chance import CHOICES, Chance
    from fuzz.websocket_playing import difference
    from fuzz.websocket_scripts import random_script

    octets, chance = data[:-CHOICES], Chance(data[-CHOICES:])
    if octets and (found := difference(random_script(chance, octets))):
        raise AssertionError(f"the engines differ at {found}")


TARGETS = {
    "engine": ("servery.http1", "servery._speedups.engine", compare_requests),
    "websocket": ("servery.websocket", "servery._speedups.websocket", compare_frames),
}
"""The first argument: what guides the search, who is compared with it, and how."""


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    main()
