"""The growing counters behind a `SourceHealth`."""

from dataclasses import asdict, dataclass

from scaler.interruptions.base import SourceHealth


@dataclass(slots=True)
class Counts:
    """As the fields of `SourceHealth` of the same names."""

    received: int = 0
    duplicates: int = 0
    foreign: int = 0
    malformed: int = 0
    unknown: int = 0
    ignored: int = 0
    expired: int = 0
    dead_lettered: int = 0

    def health(self, answered_at_s: float | None, *, error: str = "", queue_age_s: float | None = None) -> SourceHealth:
        """The counters as they are now."""
        return SourceHealth(answered_at_s=answered_at_s, error=error, queue_age_s=queue_age_s, **asdict(self))
