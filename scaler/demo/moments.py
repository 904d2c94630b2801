"""What the demo sees of the world over time, as plain values: what the view shows, the plot draws, the summary sums."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One look at everything. `at_s` is seconds since the demo's start; None where it could not be seen."""

    at_s: float
    desired: int | None = None
    ready: int = 0
    starting: int = 0
    draining: int = 0
    capacity: int | None = None
    """Instances the cloud would let us hold."""
    buffered_samples: int | None = None
    batch_samples: int | None = None
    updates: int = 0
    reward: float | None = None
    wait_ratio: float | None = None
    noticed: int = 0
    unnoticed: int = 0
    salvaged_tokens: int = 0
    decision: str = ""
    """The controller's last reason, in its own words."""

    @property
    def held(self) -> int:
        """Replicas that count: ready and starting."""
        return self.ready + self.starting


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One policy update, from the trainer's own record. `at_s` as in `Moment`."""

    at_s: float
    step: int
    reward: float
    phase_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """One loss of an instance, from the cloud's own record. `at_s` as in `Moment`."""

    at_s: float
    noticed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A whole demo."""

    moments: tuple[Moment, ...]
    updates: tuple[Update, ...]
    interruptions: tuple[Interruption, ...]
    min_replicas: int
    max_replicas: int
    title: str = ""
