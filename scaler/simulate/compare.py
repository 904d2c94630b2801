"""Policies side by side over many windows, each beside the optimum of the same window.

Policy
* A row is a policy in a window: the mean over its seeds, the same seeds for every policy.
* A window's regime is the optimum's own: plenty, it waits less than 2 % and buys no on-demand; scarce, it waits although it
  buys on-demand; mixed, the rest (`scaler.simulate.optimum.bound`).
* A group is a policy over the windows of a scenario and regime, or of all regimes: means, each with a 95 % interval
  (`bootstrap`), and the share of the gap that it closes, sum(baseline - policy) / sum(baseline - bound), of costs per sample.
* The baseline is the one named, or the policy with the lowest mean ratio to the bound over all windows, leaving out the
  default policy wherever there is another: that is the one that the others are baselines to.

Invariants: a policy's cost that is infinite (nothing was trained) makes an infinite mean, never a missing one; a window where
not even the optimum can train, or pays nothing for it, has rows and counts for no group.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean
from typing import Any

from scaler.simulate.bootstrap import Draws, Interval, block_windows, both_draws, mean_of, ratio_of, wider
from scaler.simulate.jobs import OPTIMUM, Place
from scaler.simulate.optimum import Regime

ALL = "all"
"""Of regimes: every one."""
DEFAULT_POLICY = "marginal_value"
BEFORE_REFUNDS = "before_refunds_usd_per_1k_samples"
NO_BOUND = (
    "no window has a bound to hold costs against: nothing can be trained there, or a sample may cost nothing, as where the "
    "trainer does (trainer.nodeUsdPerH of the scenario, --trainer-usd-per-h of headrace record)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A policy, or the optimum, in one window; means over the seeds."""

    policy: str
    scenario: str
    place: Place
    regime: Regime
    seeds: int
    cost_usd_per_1k_samples: float
    bound_usd_per_1k_samples: float
    before_refunds_usd_per_1k_samples: float
    """What it would cost were nothing refunded."""
    bound_before_refunds_usd_per_1k_samples: float
    trainer_wait_ratio: float
    bound_wait_ratio: float
    least_wait_ratio: float
    """No run that costs at most 1.01 times the bound waits less; NaN where nothing can be credited."""
    bound_status: str
    """The solver's word."""
    figures: Mapping[str, float]
    """Every other number of the summary."""

    @property
    def ratio(self) -> float:
        """Cost over the bound; infinite where that is 0."""
        return over(self.cost_usd_per_1k_samples, self.bound_usd_per_1k_samples)

    @property
    def ratio_before_refunds(self) -> float:
        """Cost over the bound, both before refunds: what foresight of reclaims cannot lower."""
        return over(self.before_refunds_usd_per_1k_samples, self.bound_before_refunds_usd_per_1k_samples)

    def to_json(self) -> dict[str, Any]:
        """Flat; what is not finite is None."""
        place = self.place
        where = {"scenario": self.scenario, "trace": place.trace, "window": place.window, "start_h": place.start_h}
        mine = {
            "regime": self.regime,
            "seeds": self.seeds,
            "cost_usd_per_1k_samples": self.cost_usd_per_1k_samples,
            "bound_usd_per_1k_samples": self.bound_usd_per_1k_samples,
            "ratio": self.ratio,
            "before_refunds_usd_per_1k_samples": self.before_refunds_usd_per_1k_samples,
            "ratio_before_refunds": self.ratio_before_refunds,
            "trainer_wait_ratio": self.trainer_wait_ratio,
            "bound_wait_ratio": self.bound_wait_ratio,
            "least_wait_ratio": self.least_wait_ratio,
            "bound_status": self.bound_status,
        }
        return jsonable({"policy": self.policy, **where, **mine, **self.figures})


def rows_of(place: Place, optimum: Mapping[str, Any], runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Row]:
    """The rows of a window, the optimum's last. `runs`: the figures of each seed by policy."""
    regime = Regime(optimum["regime"])
    every = {**runs, OPTIMUM: [optimum]}
    return [_row(name, place, regime, optimum, figures) for name, figures in every.items()]


def _row(
    name: str, place: Place, regime: Regime, optimum: Mapping[str, Any], seeds: Sequence[Mapping[str, Any]]
) -> Row:
    numbers = {key for key, value in seeds[0].items() if isinstance(value, int | float)} - {"seed", BEFORE_REFUNDS}
    means = {key: fmean(figures[key] for figures in seeds) for key in sorted(numbers)}
    return Row(
        policy=name,
        scenario=str(seeds[0]["scenario"]),
        place=place,
        regime=regime,
        seeds=len(seeds),
        cost_usd_per_1k_samples=means.pop("cost_usd_per_1k_samples"),
        bound_usd_per_1k_samples=optimum["cost_usd_per_1k_samples"],
        before_refunds_usd_per_1k_samples=fmean(map(_before_refunds, seeds)),
        bound_before_refunds_usd_per_1k_samples=optimum[BEFORE_REFUNDS],
        trainer_wait_ratio=means.pop("trainer_wait_ratio"),
        bound_wait_ratio=optimum["trainer_wait_ratio"],
        least_wait_ratio=optimum["least_trainer_wait_ratio"],
        bound_status=optimum["status"],
        figures=means,
    )


def _before_refunds(figures: Mapping[str, Any]) -> float:
    if BEFORE_REFUNDS in figures:  # the optimum's is a bound of its own
        return float(figures[BEFORE_REFUNDS])
    return float(figures["cost_usd_per_1k_samples"] * (1.0 + figures["refunds_usd"] / figures["cost_usd"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean or a share with its interval; None where there are too few windows to say."""

    value: float
    interval: Interval | None

    def to_json(self, name: str) -> dict[str, float | None]:
        """Three entries: the name, and it with `_low` and `_high`."""
        low, high = (None, None) if self.interval is None else (self.interval.low, self.interval.high)
        return {name: self.value, f"{name}_low": low, f"{name}_high": high}


_NO_GAP = Estimate(value=math.nan, interval=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A policy over the windows of a scenario and regime."""

    policy: str
    scenario: str
    regime: str
    windows: int
    cost_usd_per_1k_samples: Estimate
    bound_usd_per_1k_samples: float
    """Mean over the same windows."""
    ratio: Estimate
    """Mean over windows of cost over bound."""
    ratio_before_refunds: Estimate
    trainer_wait_ratio: Estimate
    bound_wait_ratio: float
    least_wait_ratio: float
    gap_share: Estimate | None
    """None for the optimum and without a gap."""
    gap_share_before_refunds: Estimate | None

    def to_json(self) -> dict[str, Any]:
        """Flat; what is not finite is None."""
        entries: dict[str, Any] = {
            "policy": self.policy,
            "scenario": self.scenario,
            "regime": self.regime,
            "windows": self.windows,
            "bound_usd_per_1k_samples": self.bound_usd_per_1k_samples,
            "bound_wait_ratio": self.bound_wait_ratio,
            "least_wait_ratio": self.least_wait_ratio,
            **self.cost_usd_per_1k_samples.to_json("cost_usd_per_1k_samples"),
            **self.ratio.to_json("ratio"),
            **self.ratio_before_refunds.to_json("ratio_before_refunds"),
            **self.trainer_wait_ratio.to_json("trainer_wait_ratio"),
            **(self.gap_share or _NO_GAP).to_json("gap_share"),
            **(self.gap_share_before_refunds or _NO_GAP).to_json("gap_share_before_refunds"),
        }
        return jsonable(entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All rows, and what they come to."""

    rows: tuple[Row, ...]
    groups: tuple[Group, ...]
    baseline: str

    def to_json(self) -> dict[str, Any]:
        """Rows and groups as flat mappings."""
        return {
            "baseline": self.baseline,
            "groups": [group.to_json() for group in self.groups],
            "rows": [row.to_json() for row in self.rows],
        }


def compare(
    rows: Iterable[Row], baseline: str | None = None, defaults: Iterable[str] = (DEFAULT_POLICY,)
) -> Comparison:
    """Group the rows. `defaults`: names of policies that are no baseline wherever there is another.

    Raises:
        ValueError: the baseline named has no row, or nothing can be judged.
    """
    kept = tuple(sorted(rows, key=_in_time_order))
    names = [name for name in dict.fromkeys(row.policy for row in kept) if name != OPTIMUM]
    if baseline is not None and baseline not in names:
        raise ValueError(f"the baseline {baseline!r} is none of the policies {', '.join(names)}")
    judged = [row for row in kept if judges(row.bound_usd_per_1k_samples)]
    if not judged:
        raise ValueError(NO_BOUND)
    chosen = baseline or best_single(judged, set(defaults))
    return Comparison(rows=kept, groups=tuple(_groups(judged, names, chosen)), baseline=chosen)


def judges(bound: float) -> bool:
    """Whether a cost can be held against this bound."""
    return 0 < bound < math.inf


def over(cost: float, bound: float) -> float:
    """A cost as a multiple of its bound."""
    return cost / bound if bound else math.inf


def _in_time_order(row: Row) -> tuple[str, str, float, int]:
    return row.scenario, row.place.trace or "", row.place.start_h, row.place.window


def best_single(rows: Sequence[Row], defaults: set[str]) -> str:
    """The policy with the lowest mean ratio to the bound, first by name where two are equal."""
    names = {row.policy for row in rows} - {OPTIMUM}
    among = sorted(names - defaults) or sorted(names)
    return min(among, key=lambda name: fmean(row.ratio for row in rows if row.policy == name))


def _groups(rows: Sequence[Row], names: Sequence[str], baseline: str) -> Iterable[Group]:
    for scenario in dict.fromkeys(row.scenario for row in rows):
        here = [row for row in rows if row.scenario == scenario]
        for regime in (*Regime, ALL):
            inside = [row for row in here if regime in (row.regime, ALL)]
            if inside:
                yield from _side_by_side(inside, names, baseline, regime)


def _side_by_side(rows: Sequence[Row], names: Sequence[str], baseline: str, regime: str) -> Iterable[Group]:
    by_name = {name: [row for row in rows if row.policy == name] for name in (*names, OPTIMUM)}
    drawn = both_draws(*blocks_of([row.place for row in by_name[baseline]]))
    base = by_name[baseline]
    for name, mine in by_name.items():
        yield Group(
            policy=name,
            scenario=mine[0].scenario,
            regime=regime,
            windows=len(mine),
            cost_usd_per_1k_samples=_mean([row.cost_usd_per_1k_samples for row in mine], drawn),
            bound_usd_per_1k_samples=fmean(row.bound_usd_per_1k_samples for row in mine),
            ratio=_mean([row.ratio for row in mine], drawn),
            ratio_before_refunds=_mean([row.ratio_before_refunds for row in mine], drawn),
            trainer_wait_ratio=_mean([row.trainer_wait_ratio for row in mine], drawn),
            bound_wait_ratio=fmean(row.bound_wait_ratio for row in mine),
            least_wait_ratio=fmean(row.least_wait_ratio for row in mine),
            gap_share=_gap_share(base, mine, drawn, _costs),
            gap_share_before_refunds=_gap_share(base, mine, drawn, _costs_before_refunds),
        )


def _mean(values: Sequence[float], drawn: Sequence[Draws]) -> Estimate:
    return Estimate(value=fmean(values), interval=wider(mean_of(values), drawn))


def _costs(row: Row) -> tuple[float, float]:
    return row.cost_usd_per_1k_samples, row.bound_usd_per_1k_samples


def _costs_before_refunds(row: Row) -> tuple[float, float]:
    return row.before_refunds_usd_per_1k_samples, row.bound_before_refunds_usd_per_1k_samples


def _gap_share(
    base: Sequence[Row],
    mine: Sequence[Row],
    drawn: Sequence[Draws],
    costs_of: Callable[[Row], tuple[float, float]],
) -> Estimate | None:
    """sum(baseline - policy) / sum(baseline - bound); None for the optimum, without a gap, or where one has no cost."""
    closed = [costs_of(b)[0] - costs_of(row)[0] for b, row in zip(base, mine, strict=True)]
    gap = [cost - bound for cost, bound in map(costs_of, base)]
    if mine[0].policy == OPTIMUM or not (math.isfinite(sum(closed)) and 0 < sum(gap) < math.inf):
        return None
    return Estimate(value=sum(closed) / sum(gap), interval=wider(ratio_of(closed, gap), drawn))


def blocks_of(places: Sequence[Place]) -> tuple[list[int], int]:
    """How many places each trace has, and how many make a block; `places`: those of a trace together, in order of time."""
    traces = [list(group) for _, group in groupby(places, key=lambda place: place.trace)]
    return [len(windows) for windows in traces], block_windows(len(places), max(map(_overlapping, traces)))


def _overlapping(windows: Sequence[Place]) -> int:
    """How many windows of a trace cover the same moment at most, by the first one's length."""
    first = windows[0]
    if first.trace is None:  # each has a capacity of its own
        return 1
    return sum(first.start_h <= place.start_h < first.start_h + first.hours - 1e-9 for place in windows)


def jsonable(entries: Mapping[str, Any]) -> dict[str, Any]:
    """With None for what is not finite, and words for enumerations."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in entries.items()
    }
