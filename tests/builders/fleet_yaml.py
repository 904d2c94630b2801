"""A valid fleet as the plain values of its YAML, and ways to make it wrong in one place."""

import copy
from pathlib import Path
from typing import Any

import yaml

from scaler.config.faults import ConfigError, Fault
from scaler.config.loader import parse_fleets
from scaler.config.schema import RolloutFleet

SOURCE = Path("/etc/headrace/fleet.yaml")


def an_offering(**over: Any) -> dict[str, Any]:
    plain = {"instanceType": "process", "zone": "here", "capacityType": "spot", "priceUsdPerH": "1.00"}
    return {**plain, **over}


def a_local_provider(**over: Any) -> dict[str, Any]:
    return {"type": "local", "stateDir": "cloud", "command": ["worker", "--ledger={ledger}"], **over}


def a_pool(**over: Any) -> dict[str, Any]:
    return {"name": "spot", "provider": a_local_provider(), "offerings": [an_offering()], **over}


GONE = object()
"""Stands for a value that is taken away."""


def a_worker_set(kind: str = "deployment", **over: Any) -> dict[str, Any]:
    plain = {"type": kind, "name": "workers"}
    return {**plain, **({"group": "rollout"} if kind == "ray_cluster" else {}), **over}


def an_asg(**over: Any) -> dict[str, Any]:
    """A pool of an Auto Scaling group."""
    plain = {"type": "auto_scaling_group", "group": "rollout-a", "workerSet": a_worker_set("daemon_set")}
    return a_pool(provider={**plain, **over})


def an_eks_group(**over: Any) -> dict[str, Any]:
    """A pool of an EKS managed node group."""
    plain = {"type": "eks_node_group", "cluster": "rl", "nodeGroup": "rollout-a", "workerSet": a_worker_set()}
    return a_pool(provider={**plain, **over})


def a_karpenter_pool(**over: Any) -> dict[str, Any]:
    """A pool of a Karpenter NodePool."""
    plain = {"type": "karpenter", "nodePool": "rollout", "workerSet": a_worker_set("leader_worker_set")}
    return a_pool(provider={**plain, **over})


def a_cluster_fleet(*pools: dict[str, Any], name: str = "demo", **spec: Any) -> dict[str, Any]:
    """A fleet in namespace rl, on Valkey; one pool of an Auto Scaling group by default."""
    plain = {
        "ledger": {"type": "valkey", "url": "valkeys://store.rl.svc:6379/0"},
        "stages": [a_stage(pools=list(pools) or [an_asg()])],
    }
    return changed(a_fleet(name, **{**plain, **spec}), "metadata", "namespace", to="rl")


def a_stage(**over: Any) -> dict[str, Any]:
    plain = {
        "name": "rollout",
        "policy": {"type": "rate_match"},
        "guardRails": {"floor": 1, "ceiling": 4},
        "pools": [a_pool()],
    }
    return {**plain, **over}


def a_fleet(name: str = "demo", **spec: Any) -> dict[str, Any]:
    """`spec` replaces keys of the spec."""
    plain = {
        "spendCapUsdPerH": "10.00",
        "job": {"groupSize": 8, "batchGroups": 4},
        "ledger": {"type": "sqlite", "path": "ledger.db"},
        "stages": [a_stage()],
    }
    return {
        "apiVersion": "headrace.dev/v1alpha1",
        "kind": "RolloutFleet",
        "metadata": {"name": name},
        "spec": {**plain, **spec},
    }


def changed(document: dict[str, Any], *path: str | int, to: Any) -> dict[str, Any]:
    """A copy with another value at the path; keys on the way are made."""
    result: Any = copy.deepcopy(document)
    place = result
    for step in path[:-1]:
        place = place.setdefault(step, {}) if isinstance(place, dict) else place[step]
    place[path[-1]] = to
    return dict(result)


def without(document: dict[str, Any], *path: str | int) -> dict[str, Any]:
    """A copy without what is at the path."""
    result: Any = copy.deepcopy(document)
    place = result
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
    return dict(result)


def text_of(*documents: object) -> bytes:
    return yaml.safe_dump_all(documents, sort_keys=False).encode()


def parsed(*documents: object) -> list[RolloutFleet]:
    return parse_fleets(text_of(*documents), SOURCE)


def the_fleet(document: object | None = None) -> RolloutFleet:
    (fleet,) = parsed(a_fleet() if document is None else document)
    return fleet


def faults_of(*documents: object) -> tuple[Fault, ...]:
    """What is wrong with these documents; nothing if nothing is."""
    return faults_in(text_of(*documents))


def faults_in(data: bytes) -> tuple[Fault, ...]:
    try:
        parse_fleets(data, SOURCE)
    except ConfigError as error:
        return error.faults
    return ()
