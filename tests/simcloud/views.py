"""Eventual consistency: what Describe calls show of things that have changed of late.

Policy: while a lag is set, every change leaves a version behind, and each Describe call draws one moment of the last
`describe_lag_s` and shows everything as it was then: what was made since is not there, what has gone since still is.
Source: EC2 API reference, "Eventual consistency".
"""

from collections.abc import Mapping
from typing import Generic, TypeVar

from tests.simcloud.kernel import Kernel
from tests.simcloud.settings import Settings

T = TypeVar("T")
_ALWAYS = float("-inf")


class Views(Generic[T]):
    """Versions of one kind of thing, by name."""

    def __init__(self, kernel: Kernel, settings: Settings) -> None:
        self._kernel = kernel
        self._settings = settings
        self._versions: dict[str, list[tuple[float, T | None]]] | None = None

    def begin(self, current: Mapping[str, T]) -> None:
        """Keep versions from now on."""
        self._versions = {name: [(_ALWAYS, view)] for name, view in current.items()}

    @property
    def kept(self) -> bool:
        """Whether changes are to be noted."""
        return self._versions is not None

    def note(self, name: str, view: T | None) -> None:
        """Something is like this now; None: gone."""
        if self._versions is None:
            return
        history = self._versions.setdefault(name, [])
        history.append((self._kernel.now_s(), view))
        oldest_s = self._kernel.now_s() - self._settings.describe_lag_s
        while len(history) > 1 and history[1][0] <= oldest_s:
            del history[0]

    def seen(self) -> dict[str, T] | None:
        """Everything as one call sees it; None: as it is."""
        if self._versions is None or self._settings.describe_lag_s <= 0:
            return None
        at_s = self._kernel.now_s() - self._kernel.rng.uniform(0.0, self._settings.describe_lag_s)
        found = {name: _at(history, at_s) for name, history in self._versions.items()}
        return {name: view for name, view in found.items() if view is not None}


def _at(history: list[tuple[float, T | None]], at_s: float) -> T | None:
    newest: T | None = None
    for changed_at_s, view in history:
        if changed_at_s > at_s:
            break
        newest = view
    return newest
