"""The status of a fleet: from the newest tick alone, and a condition's time moves only when it turns."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.config.crd_status import MAX_COMMANDS, MAX_TEXT, STATUS
from scaler.interruptions.base import SourceHealth
from scaler.kube.contract import Json
from scaler.model.capacity import ReplicaPhase
from scaler.model.reading import MISSING
from scaler.model.snapshot import OfferingView
from scaler.model.units import utc_text
from scaler.runtime.conditions import ConditionType
from scaler.runtime.fleet_status import text
from scaler.telemetry.readout import Readout
from tests.builders.fleet_status import CONFIG, a_readout, a_status, condition
from tests.builders.snapshots import (
    NOW_S,
    OFFERING,
    a_fleet_spec,
    a_pool_view,
    a_replica,
    a_world_of,
    rate_matched,
    remembering,
    some_replicas,
    some_signals,
)

ALL = [kind.value for kind in ConditionType]


def test_a_fleet_that_is_well() -> None:
    status = a_status()
    assert [each["type"] for each in status["conditions"]] == ALL
    turned = {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}
    assert turned == {
        "Ready": ("True", "Deciding"),
        "Accepted": ("True", "SpecAccepted"),
        "SchemaCurrent": ("True", "SameSchema"),
        "SignalsFresh": ("True", "Fresh"),
        "CapacitySatisfied": ("True", "Satisfied"),
        "TrainerProtected": ("Unknown", "NoTrainers"),
        "InterruptionSourcesHealthy": ("True", "Answering"),
        "SoleOwner": ("True", "SoleOwner"),
        "Paused": ("False", "Running"),
    }
    assert {key: status[key] for key in ("desired", "requested", "observed", "ready", "spendUsdPerH", "reason")} == {
        "desired": 3, "requested": 3, "observed": 3, "ready": 3, "spendUsdPerH": "3.00", "reason": "steady",
    }  # fmt: skip
    assert (status["observedGeneration"], status["configDigest"]) == (3, "0123456789ab")
    assert status["leader"] == {"identity": "headrace-0", "epoch": 7}
    assert status["lastAccepted"] == {"digest": "d", "generation": 3, "spec": {"interval": "10s"}}
    (stage,) = status["stages"]
    assert (stage["name"], stage["policy"], stage["pools"]) == ("rollout", "static", [{"name": "pool", "replicas": 3}])
    assert stage["reason"]["code"] == "steady"


TURNED: list[tuple[str, dict[str, Any], str, tuple[str, str, str]]] = [
    ("a spec that is refused", {"config": replace(CONFIG, faults=("spec.x: unknown key", "spec.y: too"))}, "Accepted",
     ("False", "SpecRefused", "generation 3 stays in use: spec.x: unknown key; spec.y: too")),
    ("another definition", {"config": replace(CONFIG, schema_current=False, schema_message="holding: other")}, "SchemaCurrent",
     ("False", "OtherSchema", "holding: other")),
    ("a definition unread", {"config": replace(CONFIG, schema_current=None, schema_message="forbidden")}, "SchemaCurrent",
     ("Unknown", "DefinitionUnread", "forbidden")),
    ("signals that are missing",
     {"readout": a_readout(a_world_of(some_replicas(1), signals=some_signals(unblocked_rate_per_s=MISSING)),
                           a_fleet_spec(rate_matched()))},
     "SignalsFresh", ("False", "Holding", "rollout: ")),
    ("a first tick", {"readout": Readout(leading=True)}, "SignalsFresh", ("Unknown", "NotSynced", "nothing is decided")),
    ("too few replicas", {"readout": a_readout(a_world_of(some_replicas(1)), a_fleet_spec(3))}, "CapacitySatisfied",
     ("False", "Launching", "rollout: 1 ready of 3")),
    ("too few by a guard rail", {"readout": a_readout(a_world_of(some_replicas(1)), a_fleet_spec(5, max_step_up=1),
                                                      remembering(desired=1))}, "CapacitySatisfied",
     ("False", "Launching", "rollout: 1 ready of 2 (held back by step_up)")),
    ("too few by a refusal",
     {"readout": a_readout(a_world_of(some_replicas(1), pools=[a_pool_view(
         "pool", OfferingView(offering=OFFERING, refused_at_s=NOW_S - 1, refusals=2))]), a_fleet_spec(3))},
     "CapacitySatisfied", ("False", "Refused",
      "rollout: 1 ready of 3 (held back by no_offering); refused of late: pool g/a/spot")),
    ("too few by a refusal in the provider's words",
     {"readout": a_readout(a_world_of(some_replicas(1), pools=[a_pool_view(
         "pool", OfferingView(offering=OFFERING, refused_at_s=NOW_S - 1, refusals=2,
                              refused_because="no_room: raise the maximum"))]), a_fleet_spec(3))},
     "CapacitySatisfied", ("False", "Refused",
      "rollout: 1 ready of 3 (held back by no_offering); refused of late: pool g/a/spot (no_room: raise the maximum)")),
    ("a pool that is held",
     {"readout": a_readout(a_world_of(some_replicas(3), pools=[a_pool_view(refused="the node group is UPDATING")]))},
     "Ready", ("False", "PoolsHeld", "pool pool: the node group is UPDATING")),
    ("trainers that are safe", {"has_trainers": True, "trainers_protected": True}, "TrainerProtected",
     ("True", "Protected", "nothing would")),
    ("trainers that are not", {"has_trainers": True, "trainers_protected": False, "trainer_findings": ["pod t-0: evictable"]},
     "TrainerProtected", ("False", "Exposed", "pod t-0: evictable")),
    ("trainers unseen", {"has_trainers": True}, "TrainerProtected", ("Unknown", "NotLooked", "the guard has not")),
    ("a silent source", {"readout": a_readout(notices={"sqs": SourceHealth(answered_at_s=NOW_S - 121),
                                                       "imds": SourceHealth(answered_at_s=NOW_S)})},
     "InterruptionSourcesHealthy", ("False", "Silent", "no answer for 120 s from sqs")),
    ("a source that never answered", {"readout": a_readout(notices={"sqs": SourceHealth(answered_at_s=None)})},
     "InterruptionSourcesHealthy", ("False", "Silent", "no answer for 120 s from sqs")),
    ("no source", {"readout": a_readout(notices={})}, "InterruptionSourcesHealthy", ("Unknown", "NoSources", "no source")),
    ("another writer", {"foreign_writers": ["HorizontalPodAutoscaler rl/x scales Deployment rl/workers"]}, "SoleOwner",
     ("False", "OtherWriter", "HorizontalPodAutoscaler rl/x")),
    ("writers unseen", {"foreign_writers": None}, "SoleOwner", ("Unknown", "NotLooked", "other writers")),
    ("a pause", {"config": replace(CONFIG, paused=True)}, "Paused", ("True", "Paused", "no scaling and no repairs")),
    ("a dry run", {"config": replace(CONFIG, dry_run=True)}, "Paused", ("False", "DryRun", "not paused, but a dry run")),
    ("no ledger", {"readout": a_readout(ledger_ok=False, ledger_error="gone")}, "Ready",
     ("False", "LedgerAway", "the ledger does not answer: gone")),
    ("a ledger that refuses", {"readout": a_readout(ledger_ok=False, ledger_refuses=True, ledger_error="NOPERM")}, "Ready",
     ("False", "LedgerRefuses", "the ledger may not be used as it is: NOPERM")),
    ("nothing rebuilt yet", {"readout": Readout(leading=True, synced=False)}, "Ready", ("False", "NotSynced", "ledger and")),
    ("a standby", {"readout": Readout()}, "Ready", ("Unknown", "NotLeading", "this controller does not act")),
    ("a pool that cannot be listed", {"readout": a_readout(pools_away={"pool": 2})}, "Ready",
     ("False", "PoolsAway", "no complete list of late from pool")),
    ("not ready by a writer", {"foreign_writers": ["x"]}, "Ready", ("False", "SoleOwner", "x")),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "kind", "wanted"), [row[1:] for row in TURNED], ids=[row[0] for row in TURNED])
def test_what_makes_a_condition_turn(facts: dict[str, Any], kind: str, wanted: tuple[str, str, str]) -> None:
    status, reason, message = condition(a_status(**facts), kind)
    assert (status, reason) == wanted[:2]
    assert message.startswith(wanted[2])


def times(status: Json) -> dict[str, str]:
    return {each["type"]: each["lastTransitionTime"] for each in status["conditions"]}


def test_times_change_on_transition_only() -> None:
    first = a_status()
    later = a_status(previous=first, now_s=NOW_S + 20)
    assert times(later) == times(first)
    paused = a_status(config=replace(CONFIG, paused=True), previous=later, now_s=NOW_S + 40)
    assert times(paused) == {**times(first), "Paused": utc_text(NOW_S + 40)}


@given(st.lists(st.tuples(st.booleans(), st.none() | st.booleans(), st.integers(0, 3)), max_size=8))
def test_a_time_is_that_of_the_last_turn_whatever_happens(turns: list[tuple[bool, bool | None, int]]) -> None:
    status: Json = {}
    since: dict[str, tuple[str, str]] = {}
    for number, (paused, current, faults) in enumerate(turns):
        now_s = NOW_S + 30 * number
        config = replace(CONFIG, paused=paused, schema_current=current, faults=("x",) * faults)
        status = a_status(config=config, previous=status, now_s=now_s)
        for each in status["conditions"]:
            if since.get(each["type"], ("", ""))[0] != each["status"]:
                since[each["type"]] = (each["status"], utc_text(now_s))
            assert each["lastTransitionTime"] == since[each["type"]][1]
    assert len({each["type"] for each in status.get("conditions", [])}) == (len(ALL) if turns else 0)


def test_bug_088_nothing_but_times_and_the_last_plan_comes_from_the_status_before() -> None:
    """KEDA#7490: a status made of the old object is a turn late, or never cleared."""
    bad = a_status(
        a_readout(a_world_of(some_replicas(1), pools=[a_pool_view(refused="not ours")])), foreign_writers=["x"]
    )
    assert bad["stages"][0]["pools"] == [{"name": "pool", "replicas": 1, "refused": "not ours"}]
    fresh, after = a_status(), a_status(previous=bad)
    for status in (after, fresh):
        status.pop("lastPlan", None)
        for each in status["conditions"]:
            del each["lastTransitionTime"]
    assert after == fresh


def test_bug_088_a_newer_plan_takes_the_place_of_the_last_one_at_once() -> None:
    up = a_status(a_readout(a_world_of(some_replicas(1)), a_fleet_spec(3)))
    newer = a_readout(a_world_of(some_replicas(1)), a_fleet_spec(2), decided_at_s=NOW_S + 60)
    plan = a_status(newer, previous=up)["lastPlan"]
    assert ([each["kind"] for each in plan["commands"]], plan["decidedAt"]) == (["launch"], utc_text(NOW_S + 60))


def test_the_last_plan_stays_while_nothing_newer_was_asked_for() -> None:
    up = a_status(a_readout(a_world_of(some_replicas(1)), a_fleet_spec(3)))
    assert [each["kind"] for each in up["lastPlan"]["commands"]] == ["launch", "launch"]
    assert up["lastPlan"]["decidedAt"] == utc_text(NOW_S)
    assert a_status(previous=up, now_s=NOW_S + 60)["lastPlan"] == up["lastPlan"]
    repeated = a_readout(a_world_of(some_replicas(1)), a_fleet_spec(3), decided_at_s=NOW_S + 60)
    assert a_status(repeated, previous=up)["lastPlan"] == up["lastPlan"]


def test_a_plan_of_thousands_is_cut_and_counted() -> None:
    plan = a_status(a_readout(a_world_of(), a_fleet_spec(90)))["lastPlan"]
    assert (len(plan["commands"]), plan["commandsOmitted"]) == (MAX_COMMANDS, 90 - MAX_COMMANDS)


def test_replicas_of_any_phase_are_counted_by_pool() -> None:
    replicas = [a_replica("a"), a_replica("b", ReplicaPhase.LAUNCHING), a_replica("c", ReplicaPhase.TERMINATING)]
    (stage,) = a_status(a_readout(a_world_of(replicas), a_fleet_spec(2)))["stages"]
    assert stage["pools"] == [{"name": "pool", "replicas": 3}]


@given(st.text(max_size=5000))
def test_any_message_is_bounded_and_printable(message: str) -> None:
    assert len(text(message)) <= MAX_TEXT
    assert text(message).isprintable()


def keys(node: Json, value: Any, path: str) -> list[str]:
    """Parts of a status that its form does not know."""
    if isinstance(value, list):
        return [found for each in value for found in keys(node["items"], each, path + "[]")]
    if not isinstance(value, dict) or "x-kubernetes-preserve-unknown-fields" in node:
        return []
    unknown = [f"{path}.{key}" for key in value if key not in node["properties"]]
    return unknown + [
        found for key, each in value.items() if key in node["properties"]
        for found in keys(node["properties"][key], each, f"{path}.{key}")
    ]  # fmt: skip


def test_the_definition_knows_every_field_of_a_status() -> None:
    pool = a_pool_view("pool", OfferingView(offering=OFFERING, refused_at_s=NOW_S, refusals=1), refused="not ours")
    world = a_world_of(some_replicas(1), pools=[pool])
    status = a_status(a_readout(world, a_fleet_spec(3, max_step_up=1), remembering(desired=1), pools_away={"pool": 1}))
    assert keys(STATUS, status, "status") == []
