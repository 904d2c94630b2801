"""What is wrong with a configuration: one readable line a fault, and the one error that carries them."""

from collections.abc import Iterable
from dataclasses import dataclass

MAX_TEXT = 300
"""Characters of a message that are shown: a fault stays one line that a terminal can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong, where it is, and what to do about it."""

    file: str
    line: int | None = None
    """Line in the file, from 1; None where the fault is about the file itself."""
    path: str = ""
    """Where in the document, for example `spec.stages[0].guardRails.floor`; empty for the file itself."""
    message: str
    remedy: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        where = f"{place}: {self.path}" if self.path else place
        return one_line(where) + ": " + one_line(f"{self.message} ({self.remedy})")

    @property
    def order(self) -> tuple[str, int, str, str]:
        """Sort key: as a person reads the file."""
        return (self.file, self.line or 0, self.path, self.message)


class ConfigError(Exception):
    """The configuration is refused. `faults` holds at least one fault, in order; the text has one line for each."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults: tuple[Fault, ...] = tuple(sorted(set(faults), key=lambda fault: fault.order))
        super().__init__("\n".join(str(fault) for fault in self.faults))


def one_line(text: str) -> str:
    """The text with everything that does not print escaped, cut to `MAX_TEXT` characters."""
    cut = text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 3] + "..."
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode() for char in cut
    )


def shown(value: object) -> str:
    """A value as a person would name it in a message."""
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else value[:57] + "...")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) >= 10**20:
        return "a number of more than 20 digits"
    return {type(None): "nothing", dict: "a mapping", list: "a list", tuple: "a list"}.get(type(value), str(value))
