"""Write the reference of settings into docs/configuration.md, from the table in servery/config.py.

python docs/build_reference.py           write it
python docs/build_reference.py --check   write nothing; exit code 1 if it would change
"""

from __future__ import annotations

import sys
from pathlib import Path

from servery.config import GROUPS, SETTINGS
from servery.settings import Mode, Setting, Switch, Texts

PAGE = Path(__file__).with_name("configuration.md")
START, END = "<!-- reference -->\n", "<!-- /reference -->\n"
COLUMNS = ("flag", "variable", "TOML key", "default", "meaning")


def flag(name: str, setting: Setting) -> str:
    """The flag as ``--help`` shows it; the application is the one positional argument."""
    dashed = name.replace("_", "-")
    if name == "app":
        return f"`{setting.kind.metavar}`"
    if isinstance(setting.kind, Switch):
        return f"`--{dashed}` `--no-{dashed}`"
    return f"`--{dashed} {setting.kind.metavar}`"


def default(setting: Setting) -> str:
    """The default in the words of a flag, with its unit."""
    value = setting.default
    if value is None or value == () or value == "":
        return setting.unset
    if isinstance(setting.kind, Mode):
        return f"`{value:o}`"
    if isinstance(value, bool):
        return "on" if value else "off"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return f"`{text}` {setting.kind.unit}".rstrip()


def row(name: str, setting: Setting) -> str:
    """One line of a table."""
    meaning = setting.help
    if isinstance(setting.kind, Texts):
        word = {",": "commas", ";": "semicolons"}[setting.kind.separator]
        meaning += f" (variable: separated by {word}; TOML: a list)"
    cells = (flag(name, setting), f"`SERVERY_{name.upper()}`", f"`{name}`", default(setting), meaning)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def reference() -> str:
    """One table for each group, in the order of ``--help``."""
    parts = []
    for group in GROUPS:
        rows = [row(name, setting) for name, setting in SETTINGS.items() if setting.group == group]
        head = "| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS)
        parts.append(f"### {group}\n\n{head}\n" + "\n".join(rows) + "\n")
    return "\n" + "\n".join(parts) + "\n"


def page(text: str) -> str:
    """`text` of the page with the reference between its markers renewed."""
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return before + START + reference() + END + after


def main() -> int:
    """Exit code 0, or 1 if ``--check`` finds the page out of date."""
    current = PAGE.read_text("utf-8")
    wanted = page(current)
    if "--check" in sys.argv[1:]:
        if wanted != current:
            print(f"{PAGE} is out of date: run python docs/build_reference.py")
        return int(wanted != current)
    PAGE.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
