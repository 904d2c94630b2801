"""Fleets that share a capacity pool: who adopts what nobody launched, and who goes first where room is short.

Policy: one place, one actor's state, several views; each fleet sees and ends only what is its own by tag or label. Room is the
provider's maximum less what is there and what is on its way. Where it is short, a launch of a lower priority is refused with
the reason while one of a higher priority waits for room; equal priorities are served as they come. A fleet waits from a
refusal on, and for `_WAITS_S` at most, so that one that has changed its mind, or died, holds nobody up. A launch that was refused
comes again under another token, so what a fleet waits for is what it asks for now: each burst of asking begins anew.
What belongs to no fleet is adopted by the fleet of the highest priority (the first by name among equals), and by no other.
Non-goals: taking capacity from one fleet for another. Each fleet's own guard rails bound what it asks for.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from scaler.model.clock import Clock

T = TypeVar("T")

_BURST_S = 0.5
"""What a decision asks for comes within this; decisions come less often."""

_WAITS_S = 180.0
"""Longer than the longest back-off after a refusal, so that whoever waits asks again in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    fleet: str
    needs: int
    since_s: float


class SharedPlace:
    """Fleets of one place; see the module's docstring."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._priorities: dict[str, int] = {}
        self._waiting: dict[tuple[str, str], _Waiting] = {}
        self._asked_at_s: dict[str, float] = {}

    def join(self, fleet: str, priority: int) -> None:
        """This fleet works here now, with that priority."""
        self._priorities[fleet] = priority

    def leave(self, fleet: str) -> None:
        """It does not any more; what it launched stays its own."""
        self._priorities.pop(fleet, None)
        self._asked_at_s.pop(fleet, None)
        self._waits_no_more(fleet)

    def adopts(self, fleet: str) -> bool:
        """Whether what belongs to nobody is this fleet's to adopt."""
        return min(self._priorities, key=lambda name: (-self._priorities[name], name), default=None) == fleet

    def admit(self, fleet: str, token: str, *, needs: int, room: int) -> str | None:
        """Why this launch may not take `needs` of the `room` left now; None: it may, and does not wait any more."""
        self._asks(fleet)
        ahead = self._ahead(fleet)
        if needs + sum(waiting.needs for waiting in ahead) <= room:
            self._waiting.pop((fleet, token), None)
            return None
        self._waiting[fleet, token] = _Waiting(fleet=fleet, needs=needs, since_s=self._clock.monotonic_s())
        if needs <= room:
            names = ", ".join(sorted({waiting.fleet for waiting in ahead}))
            return f"the {room} places left are kept for {names}, of higher priority"
        return f"{needs} instances are needed and there is room for {max(0, room)}: raise the maximum or free some"

    def _asks(self, fleet: str) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._asked_at_s.get(fleet, now_s) > _BURST_S:
            self._waits_no_more(fleet)
        self._asked_at_s[fleet] = now_s

    def _waits_no_more(self, fleet: str) -> None:
        self._waiting = {key: waiting for key, waiting in self._waiting.items() if waiting.fleet != fleet}

    def _ahead(self, fleet: str) -> list[_Waiting]:
        self._forget_old()
        mine = self._priorities.get(fleet, 0)
        return [waiting for waiting in self._waiting.values() if self._priorities.get(waiting.fleet, 0) > mine]

    def _forget_old(self) -> None:
        oldest_s = self._clock.monotonic_s() - _WAITS_S
        self._waiting = {key: waiting for key, waiting in self._waiting.items() if waiting.since_s >= oldest_s}


class Places:
    """The state of each place, made once and shared by the views of all fleets of a process."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}

    def at(self, place: Hashable, make: Callable[[], T]) -> T:
        """What was made for this place, or is made now."""
        if place not in self._made:
            self._made[place] = make()
        return cast("T", self._made[place])
