"""What was seen: every event by number, and every promise that was broken."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Broken:
    """A promise that did not hold, right after an event."""

    at_s: float
    event: int
    rule: str
    detail: str

    def __str__(self) -> str:
        return f"t={self.at_s:.1f}s, event {self.event}: {self.rule}: {self.detail}"


@dataclass(slots=True)
class Watch:
    """Kept by everything in a world. `say` prints events, or is None."""

    now_s: Callable[[], float]
    say: Callable[[str], None] | None = None
    events: int = 0
    broken: list[Broken] = field(default_factory=list)

    def event(self, what: str, *facts: object) -> None:
        """Something happened; what it broke is told by `broke` right after."""
        self.events += 1
        if self.say is not None:
            self.say(f"{self.events:6d} {self.now_s():8.2f} {what} {' '.join(map(str, facts))}")

    def broke(self, rule: str, detail: str) -> None:
        """The last event broke a promise. The first such ends the schedule, so more are of no interest."""
        if len(self.broken) < 5:
            self.broken.append(Broken(self.now_s(), self.events, rule, detail))
            if self.say is not None:
                self.say(f"BROKEN {rule}: {detail}")
