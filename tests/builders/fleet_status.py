"""What a status is made of, with one thing changed at a time."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scaler.config.custom_object import Accepted
from scaler.interruptions.base import SourceHealth
from scaler.kube.contract import Json
from scaler.model.plan import Memory
from scaler.model.snapshot import Snapshot
from scaler.model.spec import FleetSpec
from scaler.runtime.conditions import Surroundings
from scaler.runtime.fleet_status import status_of
from scaler.runtime.kube_config import ConfigState
from scaler.telemetry.readout import Readout
from tests.builders.snapshots import NOW_S, a_fleet_spec, a_world_of, planned, some_replicas

CONFIG = ConfigState(
    uid="u-1",
    generation=3,
    digest="0123456789ab",
    accepted=Accepted(digest="d", generation=3, spec={"interval": "10s"}),
    faults=(),
    schema_current=True,
    schema_message="the definition has schema x",
    paused=False,
    dry_run=False,
)
AROUND = Surroundings(now_s=NOW_S, identity="headrace-0")


def a_readout(
    snapshot: Snapshot | None = None, spec: FleetSpec | None = None, memory: Memory | None = None, **over: Any
) -> Readout:
    """A tick of a leader whose three replicas are all there and ready; the plan is the engine's own."""
    snapshot, spec = snapshot or a_world_of(some_replicas(3)), spec or a_fleet_spec(3)
    facts: dict[str, Any] = {
        "leading": True,
        "synced": True,
        "leader_epoch": 7,
        "decided_at_s": NOW_S,
        "spec": spec,
        "snapshot": snapshot,
        "plan": planned(snapshot, spec, memory),
        "ledger_ok": True,
        "notices": {"sqs": SourceHealth(answered_at_s=NOW_S - 5)},
    }
    return Readout(**(facts | over))


def a_status(
    readout: Readout | None = None,
    config: ConfigState = CONFIG,
    previous: Mapping[str, Any] | None = None,
    *,
    now_s: float = NOW_S,
    **around: Any,
) -> Json:
    """The status at `now_s`; `around` changes the surroundings."""
    return status_of(readout or a_readout(), config, replace(AROUND, now_s=now_s, **around), previous or {})


def condition(status: Json, kind: str) -> tuple[str, str, str]:
    """Status, reason and message of a condition."""
    (found,) = (each for each in status["conditions"] if each["type"] == kind)
    return found["status"], found["reason"], found["message"]
