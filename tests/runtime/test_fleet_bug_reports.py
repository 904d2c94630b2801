"""Bugs of others that a fleet's configuration and status must not have, by their numbers in `tests.bug_reports`."""

import dataclasses
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.interruptions.base import SourceHealth
from scaler.kube.contract import ROLLOUT_FLEETS
from scaler.model.plan import DrainReplica, Memory, Plan
from scaler.runtime.conditions import ConditionType
from scaler.telemetry.readout import Readout
from tests.builders.clock import FakeClock
from tests.builders.fleet_status import CONFIG, a_readout, a_status, condition
from tests.builders.fleet_yaml import a_fleet, changed, faults_of
from tests.builders.rollout_fleets import a_cluster, a_watch, an_object
from tests.builders.snapshots import NOW_S, a_fleet_spec, a_world_of, planned, some_replicas


async def test_bug_058a_a_restart_decides_by_the_version_it_had_and_says_that_it_is_not_synced() -> None:
    """skypilot#8562: after a restart the service began at version 1 and churned."""
    clock = FakeClock()
    kube = await a_cluster(clock, an_object(interval="12s"))
    first = a_watch(kube, clock)
    await first.start()
    before = a_status(a_readout(a_world_of(some_replicas(1)), a_fleet_spec(3)), first.state)
    await kube.patch(ROLLOUT_FLEETS, "demo", {"status": before}, namespace="rl", subresource="status")
    again = a_watch(kube, clock)
    await again.start()
    assert (again.digest, again.state.accepted) == (first.digest, first.state.accepted)
    status = a_status(Readout(leading=True, leader_epoch=8), again.state, again.body["status"])
    assert condition(status, "Ready")[:2] == ("False", "NotSynced")
    assert condition(status, "CapacitySatisfied")[0] == "Unknown"
    assert "desired" not in status, "a size that nobody has decided is not shown as zero"
    assert status["lastPlan"] == before["lastPlan"]


READOUTS = st.builds(
    lambda leading, synced, ledger, away, silent: a_readout(
        leading=leading,
        synced=synced,
        ledger_ok=ledger,
        pools_away={"pool": 1} if away else {},
        notices={"sqs": SourceHealth(answered_at_s=NOW_S - (500 if silent else 1))},
    ),
    *[st.booleans()] * 5,
)
CONFIGS = st.builds(
    lambda paused, current, faults: replace(CONFIG, paused=paused, schema_current=current, faults=("x",) * faults),
    st.booleans(),
    st.none() | st.booleans(),
    st.integers(0, 1),
)


@given(READOUTS, CONFIGS, st.none() | st.lists(st.just("hpa"), max_size=1), st.none() | st.booleans())
def test_bug_079_conditions_never_contradict_each_other(
    readout: Readout, config: Any, writers: list[str] | None, protected: bool | None
) -> None:
    """Kueue#14811: contradictory conditions, and nobody looked again. Here each is judged anew from one tick."""
    status = a_status(readout, config, foreign_writers=writers, has_trainers=True, trainers_protected=protected)
    states = {each["type"]: each["status"] for each in status["conditions"]}
    needs = ["Accepted", "SchemaCurrent", "SignalsFresh", "SoleOwner", "InterruptionSourcesHealthy", "TrainerProtected"]
    if states["Ready"] == "True":
        assert "False" not in [states[need] for need in needs]
        assert (readout.leading, readout.synced, readout.ledger_ok, dict(readout.pools_away)) == (True, True, True, {})
    if not readout.synced:
        assert {states["SignalsFresh"], states["CapacitySatisfied"]} == {"Unknown"}
    assert set(states) == set(ConditionType)


def test_bug_086_a_fleet_without_history_lowers_nothing() -> None:
    """KEDA#5008: a new object was scaled to 0 at once. Unknown history is the beginning of a cool-down."""
    plan = planned(a_world_of(some_replicas(5)), a_fleet_spec(0, lower_after_fresh_s=1800.0), Memory())
    assert not [command for command in plan.commands if isinstance(command, DrainReplica)]
    assert a_status(a_readout(plan=plan))["stages"][0]["reason"]["clamps"][0]["code"] == "not_fresh_long_enough"


@pytest.mark.parametrize(("low", "high", "well"), [(1.0, 1.0, False), (1.5, 1.0, False), (1.0, 1.5, True)])
def test_bug_087_a_band_has_a_width(low: float, high: float, well: bool) -> None:
    """KEDA#2314: thresholds up and down were equal, and the fleet flapped. On the API server: `test_crd_on_api_server`."""
    band = {"type": "buffer_band", "lowMark": low, "highMark": high}
    assert (not faults_of(changed(a_fleet(), "spec", "stages", 0, "policy", to=band))) is well


def test_bug_089_a_status_is_made_of_values_that_nobody_can_change_and_of_nothing() -> None:
    """KEDA#7843, #6739: unlocked shared state, and an index into a list that was nil."""
    readout = a_readout()
    for value in (readout, readout.snapshot, readout.plan, CONFIG):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, dataclasses.fields(value)[0].name, None)  # type: ignore[arg-type]
    nothing = Plan(commands=(), look_again_in_s=1.0, stages=())
    for empty in (Readout(), Readout(plan=nothing), a_readout(snapshot=None, plan=nothing)):
        status = a_status(empty, previous={"conditions": None, "lastPlan": None})
        assert len(status["conditions"]) == len(ConditionType)
