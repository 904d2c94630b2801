"""Generated spot capacity in the YAML: a semi-Markov process a zone, and what strikes a region at once."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, Strict

from scaler.config.scalars import Duration, OfferingWord, PositiveCount, PositiveDuration, Ratio
from scaler.config.yaml_model import Problem, YamlModel, duplicates
from scaler.simulate.delays import Delay

Rate = Annotated[float, Strict(), Field(ge=0, le=1e6)]
LEAST_S = 1.0
"""Of what is drawn again and again, or there is no end to it."""
_NEXT_TO_NOTHING = "a time may be next to nothing", "write 1s at least"


class Spread(YamlModel):
    """A time: `least` and a lognormal part above it, at most `most`."""

    least_s: Duration = 0.0
    """Never below it. Default 0s."""
    median_s: Duration = 0.0
    """Median of the part above `least`. Default 0s: a constant."""
    sigma: Annotated[float, Strict(), Field(ge=0, le=4)] = 0.0
    """Of the logarithm of that part. Default 0."""
    most_s: PositiveDuration = 365 * 86400.0
    """Never above it. Default a year, that is no bound."""

    @property
    def longest_s(self) -> float:
        """What none in a billion exceeds."""
        return self.to_delay().at(1 - 1e-9)

    def to_delay(self) -> Delay:
        """As it is drawn."""
        return Delay(least_s=self.least_s, median_s=self.median_s, sigma=self.sigma, most_s=self.most_s)

    def problems(self) -> Iterator[Problem]:
        """A least time over the most."""
        if self.least_s > self.most_s:
            yield Problem(("least",), "least is over most", "lower one, or raise the other")


class Region(YamlModel):
    """Zones whose bad times coincide."""

    name: OfferingWord
    """For draws and reports."""
    zones: Annotated[tuple[OfferingWord, ...], Field(min_length=1)]
    """Names of its zones; prices are found by them."""


class Scarcity(YamlModel):
    """Times that strike a region: each takes the capacity of some of its zones at once."""

    every: Spread
    """From the end of one to the start of the next."""
    lasts: Spread
    """How long one is."""
    strikes_ratio: Ratio
    """Chance of each zone of the region to be struck by one."""

    def problems(self) -> Iterator[Problem]:
        """Times that may be 0 and would never end."""
        if self.every.least_s < LEAST_S:
            yield Problem(("every", "least"), *_NEXT_TO_NOTHING)


class HazardStep(YamlModel):
    """Interruptions of instances from an age on."""

    from_s: Duration
    """Age of the instance."""
    per_h: Rate
    """Interruptions an hour."""


class Hazard(YamlModel):
    """Reclaims on top of what falls of the counts take: by age, and in bursts that strike a zone."""

    steps: tuple[HazardStep, ...] = ()
    """By age, the first from 0s. Default: none."""
    bursts_per_h: Rate = 0.0
    """Bursts of a zone. Default 0."""
    burst_ratio: Ratio = 0.0
    """Share of the zone's instances that a burst takes. Default 0%."""

    def problems(self) -> Iterator[Problem]:
        """Steps that do not start at 0 or do not grow."""
        ages_s = [step.from_s for step in self.steps]
        if ages_s and (ages_s[0] or ages_s != sorted(set(ages_s))):
            yield Problem(("steps",), "ages must grow, the first 0s", "put them in order")


class Generated(YamlModel):
    """Spot capacity by seed. A zone is up or down by turns; up, it offers a count that is drawn anew from time to time."""

    regions: Annotated[tuple[Region, ...], Field(min_length=1)]
    """Where there is capacity."""
    replicas: PositiveCount
    """Most replicas that a zone gives."""
    up: Spread
    """How long a zone gives something. Sojourns have heavy tails: research/spot-policies.md 1.3."""
    down: Spread
    """How long it gives nothing."""
    full_ratio: Ratio = 1.0
    """Share of the counts drawn that are all; the others are 1 to all but one alike. Default 100%."""
    recount: Spread = Field(default={"least": "10m", "median": "1h", "sigma": 1}, validate_default=True)
    """How long a count holds within an up time. Default: median 70 minutes."""
    scarcity: Scarcity | None = None
    """What the zones of a region have in common. Default: nothing."""
    hazard: Hazard | None = None
    """Reclaims on top. Default: none."""

    def problems(self) -> Iterator[Problem]:
        """Zones named twice; times that may be 0 and would never end."""
        names = [zone for region in self.regions for zone in region.zones]
        for _, name in duplicates(names):
            yield Problem(("regions",), f"zone {name} is there twice", "name each zone once")
        for key in ("up", "down", "recount"):
            if getattr(self, key).least_s < LEAST_S:
                yield Problem((key, "least"), *_NEXT_TO_NOTHING)
