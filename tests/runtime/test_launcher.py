"""Launches that give way to nodes being marked: what they are when their time comes."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from scaler.act.base import LaunchOutcome, LaunchResult, PoolActor
from scaler.model.plan import LaunchReplica
from scaler.observe.offerings import OfferingMemory
from scaler.runtime.launcher import Launcher
from scaler.runtime.outcomes import Outcomes
from scaler.telemetry.metrics import Metrics
from scaler.telemetry.readout import Readout
from tests.builders.clock import FakeClock
from tests.builders.fleet import a_launch


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
