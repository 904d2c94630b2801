"""What a comparison comes to, in a sentence a scenario."""

import math
from collections.abc import Iterator

from scaler.simulate.bootstrap import LEAST_WINDOWS
from scaler.simulate.compare import Comparison
from scaler.simulate.report.amounts import comparison as compared
from scaler.simulate.report.amounts import in_terminal, number, plural, usd
from scaler.simulate.verdict import Verdict, verdicts


def sentences(comparison: Comparison) -> Iterator[str]:
    """Who is cheapest, by how much, and whether by more than chance."""
    for verdict in verdicts(comparison):
        yield in_terminal(_say(verdict))


def _say(verdict: Verdict) -> str:
    where, windows = verdict.scenario, plural(verdict.windows, "window")
    if not math.isfinite(verdict.cost):
        return f"{where}: no policy trained something in each of the {windows}."
    costs = f"{usd(verdict.cost)} per 1,000 samples over {windows}"
    if verdict.next_policy is None:
        return f"{where}: {verdict.policy} costs {costs}; there is no other to hold it against."
    return f"{where}: {verdict.policy} has the lowest mean cost, {costs}{_distance(verdict)}"


def _distance(verdict: Verdict) -> str:
    if not math.isfinite(verdict.next_cost):
        return "; every other policy trained nothing in some window."
    level = verdict.cost == verdict.next_cost
    beside = "level with" if level else compared(verdict.cost, verdict.next_cost)
    return f", {beside} the next, {verdict.next_policy} ({usd(verdict.next_cost)}). {_chance(verdict)}"


def _chance(verdict: Verdict) -> str:
    found = verdict.more.interval
    if found is None:
        return f"Whether that is more than chance cannot be said: it takes {LEAST_WINDOWS} windows or more."
    paired = f"{number(found.low)} to {number(found.high)} USD"
    if verdict.more_than_chance:
        return f"That is more than chance: window by window the difference is {paired} (95 %)."
    return f"That may be chance: window by window the difference is {paired} (95 %), and 0 is in it."
