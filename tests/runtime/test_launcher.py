"""Launches that give way to nodes being marked, and launches whose instances nobody ever saw."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import pytest

from scaler.act.base import LaunchOutcome, LaunchResult, PoolActor, PoolObservation
from scaler.model.plan import LaunchReplica
from scaler.model.snapshot import OfferingView
from scaler.observe.intents import Intent
from scaler.observe.offerings import OfferingMemory
from scaler.runtime.launcher import Launcher
from scaler.runtime.outcomes import Outcome, Outcomes
from scaler.telemetry.metrics import Metrics
from scaler.telemetry.readout import Readout
from tests.builders.clock import FakeClock
from tests.builders.fleet import OFFERING, a_launch, a_spec, an_instance


class _Pool:
    def __init__(self) -> None:
        self.asked: list[str] = []

    async def launch(self, command: LaunchReplica) -> LaunchOutcome:
        self.asked.append(command.token)
        return LaunchOutcome(result=LaunchResult.LAUNCHED, instance_id=f"i-{command.token}")


def _launcher(clock: FakeClock, urgent: Callable[[], bool]) -> Launcher:
    metrics = Metrics(clock, Readout)
    return Launcher(
        clock=clock, offerings=OfferingMemory(), outcomes=Outcomes(clock, metrics), metrics=metrics, urgent=urgent
    )


async def test_what_was_intended_since_it_gave_way_is_not_launched_with_it() -> None:
    """Its own turn says whether the journal has it, and whether the fleet is paused by then."""
    clock, pool = FakeClock(), _Pool()
    launcher = _launcher(clock, urgent=lambda: True)
    first, given_up, later = (replace(a_launch(), token=token) for token in ("first", "given-up", "later"))
    async with asyncio.TaskGroup() as group:
        launcher.intend([first, given_up])
        launcher.start(group, {first.pool: cast("PoolActor", pool)}, 1)
        launcher.intend([later])
        launcher.forget(given_up.token)
        await clock.advance(10.0)
    assert pool.asked == ["first"]


async def test_what_a_later_turn_had_launched_meanwhile_is_not_called_for_again() -> None:
    clock, pool = FakeClock(), _Pool()
    in_a_hurry = [True]
    launcher = _launcher(clock, urgent=lambda: in_a_hurry[0])
    launch = a_launch()
    actors = {launch.pool: cast("PoolActor", pool)}
    async with asyncio.TaskGroup() as group:
        launcher.intend([launch])
        launcher.start(group, actors, 1)
        await clock.settle()
        in_a_hurry[0] = False
        launcher.start(group, actors, 2)
        await clock.advance(10.0)
    assert pool.asked == [launch.token]


class _Nameless(_Pool):
    async def launch(self, command: LaunchReplica) -> LaunchOutcome:
        return replace(await super().launch(command), instance_id=None)


@dataclass
class _Row:
    """Launches of one plan, all answered at the same moment."""

    clock: FakeClock
    launcher: Launcher
    offerings: OfferingMemory
    heard: list[Outcome]
    answered_at_s: float

    def listed(
        self, after_s: float, *tokens: str, away: frozenset[str] = frozenset(), refused: str | None = None
    ) -> None:
        """A list that was made so long after the answers, and shows instances of these tokens."""
        instances = tuple(an_instance(f"i-{token}", token=token) for token in tokens)
        listed = PoolObservation(listed_at_s=self.answered_at_s + after_s, instances=instances, refused_reason=refused)
        specs = {pool.name: pool for pool in a_spec().stages[0].pools}
        self.launcher.settle({"pool": listed}, specs, away=away, lists_apart_s=30.0)


TOKENS = ("t1", "t2", "t3", "t4")


def _shown_and_gone(row: _Row) -> None:
    row.listed(1.0, *TOKENS)
    row.listed(6.0)


def _away_meanwhile(row: _Row) -> None:
    row.listed(0.0, away=frozenset({"pool"}))
    row.listed(6.0)


def _given_up(row: _Row) -> None:
    for token in TOKENS:
        row.launcher.forget(token)
    row.listed(6.0)


async def _a_row(group: asyncio.TaskGroup, *, adopted: bool = False, named: bool = True) -> _Row:
    clock, offerings, heard = FakeClock(), OfferingMemory(), list[Outcome]()
    metrics = Metrics(clock, Readout)
    outcomes = Outcomes(clock, metrics, lambda _, outcome, __: heard.append(outcome))
    launcher = Launcher(clock=clock, offerings=offerings, outcomes=outcomes, metrics=metrics)
    launches = [a_launch(token) for token in TOKENS]
    if adopted:
        launcher.adopt(Intent(command=launch, decided_at_s=clock.now_s()) for launch in launches)
    else:
        launcher.intend(launches)
    launcher.start(group, {"pool": cast("PoolActor", _Pool() if named else _Nameless())}, 1)
    await clock.settle()
    heard.clear()
    return _Row(clock, launcher, offerings, heard, clock.now_s())


async def test_launches_that_no_list_ever_shows_count_as_replicas_that_died_before_they_were_ready() -> None:
    async with asyncio.TaskGroup() as group:
        row = await _a_row(group)
        row.listed(4.0)
        assert row.heard == [], "lists may lag"
        row.listed(6.0)
        row.listed(7.0)
    (view,) = row.offerings.views("pool", (OFFERING,))
    assert row.heard == [Outcome.LOST] * 4
    told = "4 replicas in a row went before they were ready"
    assert (view.refusals, view.refused_because) == (1, told), "asked for together, they are one refusal"
    assert row.launcher.intents == ()


@pytest.mark.parametrize(
    ("happens", "how"),
    [
        pytest.param(_shown_and_gone, {}, id="a list showed them: who compares lists counts them"),
        pytest.param(_away_meanwhile, {}, id="the pool was away meanwhile"),
        pytest.param(lambda row: row.listed(36.0), {}, id="nobody looked for long"),
        pytest.param(_given_up, {}, id="we gave them up"),
        pytest.param(lambda row: row.listed(6.0), {"adopted": True}, id="an earlier controller left them"),
        pytest.param(lambda row: row.listed(6.0), {"named": False}, id="no instance was named: others make it"),
        pytest.param(lambda row: row.listed(6.0, refused="another's"), {}, id="the pool is not ours to judge"),
    ],
)
async def test_launches_of_which_nobody_knows_that_they_went_by_themselves_are_held_against_no_offering(
    happens: Callable[[_Row], None], how: dict[str, bool]
) -> None:
    async with asyncio.TaskGroup() as group:
        row = await _a_row(group, **how)
        happens(row)
    assert row.launcher.intents == (), "they are settled all the same"
    assert row.offerings.views("pool", (OFFERING,)) == (OfferingView(offering=OFFERING),)
    assert row.heard == []
