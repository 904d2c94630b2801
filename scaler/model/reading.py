"""A signal and its freshness: missing, stale and zero are three different things (design section 3, rule 2)."""

import math
from dataclasses import dataclass
from enum import StrEnum


class Freshness(StrEnum):
    """Whether a value may be acted on."""

    FRESH = "fresh"
    STALE = "stale"
    MISSING = "missing"
    INVALID = "invalid"
    """NaN, infinite or negative: worse than missing, and said so."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A number and when it was true (controller's clock). `value` None means that it was never seen."""

    value: float | None = None
    at_s: float | None = None

    def freshness(self, now_s: float, max_age_s: float) -> Freshness:
        """Judge the reading at `now_s`. A reading from the future counts as fresh: clocks step."""
        if self.value is None or self.at_s is None:
            return Freshness.MISSING
        if not math.isfinite(self.value) or self.value < 0:
            return Freshness.INVALID
        return Freshness.STALE if now_s - self.at_s > max_age_s else Freshness.FRESH


MISSING = Reading()
