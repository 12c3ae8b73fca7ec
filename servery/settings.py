"""What one setting is: the kinds of values, how text becomes a value, and what a value must satisfy.

This file knows no setting by name; the table of them stands in `config.py`. Every refusal is a
`ValueError` whose text ends a sentence that the caller begins with the name of the source
("--port: ", "SERVERY_PORT: ").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

TRUE_WORDS = ("true", "1", "yes", "on")
FALSE_WORDS = ("false", "0", "no", "off")

Rule = Callable[[str], "str | None"]
"""Looks at one text; returns what is wrong with it, or None."""


class Kind:
    """A kind of value. `metavar` and `unit` are words for the help."""

    metavar = "TEXT"
    unit = ""

    def parse(self, text: str) -> object:
        """The value that `text` of a flag or variable stands for; ValueError if there is none."""
        return text

    def from_toml(self, value: object) -> object:
        """The value that a TOML value stands for; ValueError if there is none."""
        return value

    def check(self, value: object) -> None:
        """ValueError unless `value` is of this kind; `parse` and `from_toml` do not check."""
        raise NotImplementedError

    def accept(self, value: object, good: bool, expects: str) -> None:
        """ValueError that says what was expected, unless `good`."""
        if not good:
            raise ValueError(f"{value!r} is not {expects}")


class Text(Kind):
    """One line of text; `rule` may ask for more, `empty` allows none."""

    def __init__(self, metavar: str, rule: Rule | None = None, *, empty: bool = False) -> None:
        self.metavar = metavar
        self.rule = rule
        self.empty = empty

    def check(self, value: object) -> None:
        _check_line(self, value, self.empty, self.rule)


class Texts(Kind):
    """A tuple of lines of text. A variable holds them with commas between, a flag is repeated.

    `separator` is for lines that have commas themselves.
    """

    def __init__(self, metavar: str, rule: Rule | None = None, *, separator: str = ",") -> None:
        self.metavar = metavar
        self.rule = rule
        self.separator = separator

    def parse(self, text: str) -> object:
        return tuple(part.strip() for part in text.split(self.separator) if part.strip())

    def from_toml(self, value: object) -> object:
        self.accept(value, isinstance(value, list), "a list of texts")
        return tuple(value)  # type: ignore[arg-type]

    def check(self, value: object) -> None:
        if not isinstance(value, tuple):
            raise ValueError(f"{value!r} is not a tuple of texts")
        for line in value:
            _check_line(self, line, False, self.rule)


class Switch(Kind):
    """True or false."""

    metavar = ""

    def parse(self, text: str) -> object:
        word = text.lower()
        expects = f"one of {', '.join(TRUE_WORDS + FALSE_WORDS)}"
        self.accept(text, word in TRUE_WORDS + FALSE_WORDS, expects)
        return word in TRUE_WORDS

    def check(self, value: object) -> None:
        self.accept(value, isinstance(value, bool), "true or false")


class Whole(Kind):
    """A whole number within bounds, both included."""

    def __init__(self, minimum: int, maximum: int | None = None, *, unit: str = "") -> None:
        self.minimum = minimum
        self.maximum = maximum
        self.unit = unit
        self.metavar = {"bytes": "BYTES", "bytes per second": "RATE"}.get(unit, "N")
        upper = "or more" if maximum is None else f"to {maximum}"
        self.expects = f"a whole number{f' of {unit}' if unit else ''}, {minimum} {upper}"

    def parse(self, text: str) -> object:
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"{text!r} is not {self.expects}") from None

    def check(self, value: object) -> None:
        whole = isinstance(value, int) and not isinstance(value, bool)
        self.accept(value, whole and self._within(value), self.expects)

    def _within(self, value: Any) -> bool:
        return bool(value >= self.minimum and (self.maximum is None or value <= self.maximum))


class WholeOrWord(Whole):
    """A whole number, or one word that stands for a number that is found out."""

    def __init__(self, word: str, minimum: int) -> None:
        super().__init__(minimum)
        self.word = word
        self.metavar = f"N|{word}"
        self.expects = f"{word!r}, or {self.expects}"

    def parse(self, text: str) -> object:
        return self.word if text.lower() == self.word else super().parse(text)

    def check(self, value: object) -> None:
        if value != self.word:
            super().check(value)


class Seconds(Kind):
    """A finite number of seconds: more than 0, or 0 too where `zero` allows it."""

    metavar = "SECONDS"
    unit = "seconds"

    def __init__(self, *, zero: bool = False) -> None:
        self.zero = zero
        self.expects = f"a number of seconds, {'0 or more' if zero else 'more than 0'}"

    def parse(self, text: str) -> object:
        try:
            return float(text)
        except ValueError:
            raise ValueError(f"{text!r} is not {self.expects}") from None

    def check(self, value: object) -> None:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        self.accept(value, number and self._within(value), self.expects)

    def _within(self, value: Any) -> bool:
        # NaN fails both comparisons, infinity the second: it would be a time-out that never fires.
        return bool((value >= 0 if self.zero else value > 0) and value < float("inf"))


class Choice(Kind):
    """One of a few words; capitals do not matter in a flag or variable."""

    def __init__(self, *options: str) -> None:
        self.options = options
        self.metavar = "{" + ",".join(options) + "}"

    def parse(self, text: str) -> object:
        return text.lower()

    def check(self, value: object) -> None:
        good = isinstance(value, str) and value in self.options
        self.accept(value, good, f"one of {', '.join(self.options)}")


class Mode(Kind):
    """Permission bits of a file: octal text outside of Python, an int inside."""

    metavar = "OCTAL"

    def parse(self, text: str) -> object:
        try:
            return int(text, 8)
        except ValueError:
            raise ValueError(f"{text!r} is not an octal mode such as 660") from None

    def from_toml(self, value: object) -> object:
        # A bare 660 in TOML is decimal: six hundred and sixty is 0o1224, which nobody means.
        if not isinstance(value, str):
            raise ValueError(f'{value!r} is not an octal mode in quotes such as "660"')
        return self.parse(value)

    def check(self, value: object) -> None:
        good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 0o777
        self.accept(value, good, "a file mode from 0o000 to 0o777")


class Application(Kind):
    """An import string, or from Python the callable itself."""

    metavar = "MODULE:ATTR"

    def check(self, value: object) -> None:
        good = callable(value) or (isinstance(value, str) and bool(value.strip()))
        self.accept(value, good, "an import string such as main:app, or a callable")


class LogConfig(Kind):
    """The path of a .toml or .json file, or a dict as `logging.config.dictConfig` takes it."""

    metavar = "PATH"

    def check(self, value: object) -> None:
        good = isinstance(value, dict) or (isinstance(value, str) and value.endswith((".toml", ".json")))
        self.accept(value, good, "the path of a .toml or .json file, or a dict for logging.config")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table in `config.py`."""

    default: object
    kind: Kind
    group: str
    help: str
    why: str
    """The reason for the default."""
    unset: str = "none"
    """How the help words a default that says nothing by itself: None, (), ""."""
    nullable: bool = False
    """None is a value too; text spells it ``none``."""
    limit: str | None = None
    """The field of `limits.Limits` that this setting fills."""

    def parse(self, text: str) -> object:
        """The checked value of a flag's or variable's text; ValueError says what is wrong."""
        if self.nullable and text.lower() == "none":
            return None
        value = self.kind.parse(text)
        self.kind.check(value)
        return value

    def from_toml(self, value: object) -> object:
        """The checked value of a TOML value; ValueError says what is wrong."""
        if self.nullable and value == "none":
            return None
        value = self.kind.from_toml(value)
        self.kind.check(value)
        return value

    def check(self, value: object) -> None:
        """ValueError unless `value` may stand in a `Config`."""
        if value is not None or not self.nullable:
            self.kind.check(value)


def nearest(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` with the nearest of `known`, or nothing if none is near."""
    from difflib import get_close_matches  # only a mistake pays for this import

    found = get_close_matches(word, list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


def _check_line(kind: Kind, value: object, empty: bool, rule: Rule | None) -> None:
    kind.accept(value, isinstance(value, str), "a text")
    text = str(value)
    kind.accept(value, empty or bool(text), "a text of at least one character")
    kind.accept(value, not any(character in text for character in "\0\r\n"), "one line of text")
    wrong = rule(text) if rule else None
    if wrong:
        raise ValueError(f"{value!r}: {wrong}")
