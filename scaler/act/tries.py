"""What is being worked on, and what rests after a failure: each thing by itself, by its UID.

Invariants: a thing is worked on once at a time; after failures in a row it rests longer each time, up to a bound; memory is what
rests now, and what failed and is still there.
"""

from collections.abc import Callable

from scaler.model.clock import Clock

FIRST_REST_S, LONGEST_REST_S = 0.5, 10.0
"""After a failure, doubled from time to time."""


class Tries:
    """See the module's docstring."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._busy: set[str] = set()
        self._failures: dict[str, int] = {}
        self._until_s: dict[str, float] = {}

    def may(self, uid: str) -> bool:
        """Whether it may be tried now."""
        return uid not in self._busy and self._clock.monotonic_s() >= self._until_s.get(uid, 0.0)

    def begin(self, uid: str) -> None:
        """It is being worked on."""
        self._busy.add(uid)

    def end(self, uid: str, *, failed: bool) -> None:
        """It is not any more."""
        self._busy.discard(uid)
        if not failed:
            self._failures.pop(uid, None)
            return
        times = self._failures[uid] = self._failures.get(uid, 0) + 1
        self.rest(uid, min(LONGEST_REST_S, FIRST_REST_S * 2.0 ** min(times - 1, 16)))

    def rest(self, uid: str, seconds: float) -> None:
        """Leave it alone for a while."""
        self._until_s[uid] = self._clock.monotonic_s() + seconds

    def first_due_in_s(self, longest_s: float) -> float:
        """Until the first rest ends, at most `longest_s`."""
        now_s = self._clock.monotonic_s()
        return max(0.0, min(longest_s, min(self._until_s.values(), default=now_s + longest_s) - now_s))

    def forget(self, is_there: Callable[[str], bool]) -> None:
        """Rests that are over, and failures of what is gone."""
        now_s = self._clock.monotonic_s()
        self._until_s = {uid: at_s for uid, at_s in self._until_s.items() if at_s > now_s}
        self._failures = {uid: times for uid, times in self._failures.items() if is_there(uid)}
