"""Faults inside a fleet: the line names the place, what is wrong and what to do."""

from typing import Any

import pytest

from policies.registry import SIZING
from tests.builders.fleet_yaml import (
    GONE,
    a_cluster_fleet,
    a_fleet,
    a_karpenter_pool,
    a_local_provider,
    a_pool,
    a_stage,
    a_worker_set,
    an_asg,
    an_eks_group,
    an_offering,
    changed,
    faults_of,
    the_fleet,
    without,
)

STAGE = ("spec", "stages", 0)
RAILS = (*STAGE, "guardRails")
POOL = (*STAGE, "pools", 0)
PROVIDERS = "auto_scaling_group, eks_node_group, karpenter, local"

WRONG_VALUES: list[tuple[str, tuple[str | int, ...], Any, str]] = [
    ("another version", ("apiVersion",), "headrace.dev/v1",
     "apiVersion: 'headrace.dev/v1' is not known here (use headrace.dev/v1alpha1)"),
    ("a key with a slip", ("spec", "intervall"), "1s", "spec.intervall: unknown key (did you mean interval?)"),
    ("a key out of the blue", ("metadata", "zzz"), 1,
     "metadata.zzz: unknown key (known here: annotations, labels, name, namespace)"),
    ("a name in capitals", ("metadata", "name"), "Demo", "metadata.name: 'Demo' is no name (use up to 63 lower-case"),
    ("a unit that is none", ("spec", "interval"), "10x",
     "spec.interval: '10x' is no duration (write it like \"500ms\""),
    ("a duration in other digits", ("spec", "interval"), "\u0663s", "spec.interval: '\u0663s' is no duration ("),
    ("a share in other digits", (*RAILS, "disruptionBudget"), "1\u0660%",
     "guardRails.disruptionBudget: '1\u0660%' is no percentage ("),
    ("an amount in other digits", ("spec", "spendCapUsdPerH"), "\uff14\uff11",
     "spec.spendCapUsdPerH: '\uff14\uff11' is no amount of USD ("),
    ("a port in other digits", ("spec", "http"), {"listen": "localhost:909\u0660"},
     "http.listen: 'localhost:909\u0660' is no address ("),
    ("a store's database in other digits", ("spec", "ledger"), {"type": "valkey", "url": "valkey://h/\u0663"},
     "ledger.url: 'valkey://h/\u0663' is no address of a Valkey store"),
    ("a number without unit", ("spec", "interval"), 10,
     'spec.interval: 10 is no duration (write it as text in quotes, like "90s")'),
    ("a duration of nothing", ("spec", "interval"), "0s", "spec.interval: '0s' is too little (more than \"0s\")"),
    ("a duration of ages", ("spec", "interval"), "9" * 39 + "d", "is too much (at most \"3650d\")"),
    ("a duration that fills a page", ("spec", "interval"), "1s" * 9000, "is no duration (write it like"),
    ("a share over all", (*RAILS, "disruptionBudget"), "101%",
     "guardRails.disruptionBudget: '101%' is no percentage ("),
    ("an amount as a number", ("spec", "spendCapUsdPerH"), 41.5,
     "spec.spendCapUsdPerH: 41.5 is no amount of USD (write it as text"),
    ("a negative amount", ("spec", "spendCapUsdPerH"), "-1", "spec.spendCapUsdPerH: '-1' is no amount of USD"),
    ("a flag in quotes", ("spec", "paused"), "yes",
     "spec.paused: 'yes' is neither true nor false (write true or false"),
    ("a count in quotes", (*RAILS, "floor"), "3", "guardRails.floor: '3' is no whole number (write digits only"),
    ("a count below zero", (*RAILS, "floor"), -1, "guardRails.floor: -1 is out of bounds (use at least 0)"),
    ("a count beyond reason", (*RAILS, "ceiling"), 10**30,
     "guardRails.ceiling: a number of more than 20 digits is out of bounds"),
    ("a flag for a count", (*RAILS, "floor"), True, "guardRails.floor: true is no whole number"),
    ("nothing for a mapping", RAILS, None, "guardRails: nothing is no mapping (write keys and values)"),
    ("a mapping for a list", (*STAGE, "pools"), {}, "pools: a mapping is no list (write a list"),
    ("a zone called no", (*POOL, "offerings", 0, "zone"), False,
     "offerings[0].zone: false is no text (put it in quotes)"),
    ("an unknown stage", (*STAGE, "name"), "rollouts",
     "stages[0].name: 'rollouts' is not known here (use rollout or reward"),
    ("an unknown policy", (*STAGE, "policy"), {"type": "magic"},
     "stages[0].policy: unknown policy 'magic' (known: " + ", ".join(sorted(SIZING)) + ")"),
    ("a policy without type", (*STAGE, "policy"), {}, "policy: policy has no type (add type, one of: buffer_band,"),
    ("a policy that is a word", (*STAGE, "policy"), "static",
     "policy: 'static' is no mapping (write keys and values)"),
    ("an unknown parameter", (*STAGE, "policy"), {"type": "static", "replicas": 1, "x": 2},
     "policy.x: unknown key (known here: replicas, type)"),
    ("a missing parameter", (*STAGE, "policy"), {"type": "static"}, "policy.replicas: is missing (add it: "),
    ("a parameter out of bounds", (*STAGE, "policy"), {"type": "static", "replicas": -1},
     "policy.replicas: -1 is out of bounds"),
    ("parameters at odds", (*STAGE, "policy"), {"type": "buffer_band", "lowMark": 2.0},
     "policy: low_mark (2) must be below high_mark (1.5) ("),
    ("an unknown placement", (*STAGE, "placement"), {"type": "luck"},
     "placement.type: unknown placement 'luck' (known: cheapest_available)"),
    ("an unknown ledger", ("spec", "ledger"), {"type": "mysql"},
     "spec.ledger: unknown ledger 'mysql' (known: sqlite, valkey)"),
    ("an unknown source", (*STAGE, "signals"), {"type": "http"},
     "signals.type: unknown signals 'http' (known: ledger)"),
    ("an unknown provider", (*POOL, "provider", "type"), "asg",
     f"provider: unknown provider 'asg' (known: {PROVIDERS})"),
    ("a provider without type", (*POOL, "provider"), without({"p": a_local_provider()}, "p", "type")["p"],
     f"provider: provider has no type (add type, one of: {PROVIDERS})"),
    ("a pool without offerings", (*POOL, "offerings"), [],
     "offerings: there is nothing in offerings (add one: What can be had"),
    ("a stage without pools", (*STAGE, "pools"), [],
     "pools: there is nothing in pools (add one: Where its replicas live"),
    ("a fleet without stages", ("spec", "stages"), [], "spec.stages: there is nothing in stages"),
    ("an empty command", (*POOL, "provider", "command"), [], "command: there is nothing in command"),
    ("an unknown placeholder", (*POOL, "provider", "command"), ["{leger}"],
     "command[0]: unknown placeholder {leger} (known: {instanceId}"),
    ("a placeholder by number", (*POOL, "provider", "command"), ["{}"], "command[0]: unknown placeholder {} ("),
    ("a brace left open", (*POOL, "provider", "command"), ["{"], "command[0]: '{' cannot be read"),
    ("a placeholder with a form", (*POOL, "provider", "command"), ["{job:>9}"],
     "holds more than a name in its braces (write a literal"),
    ("weights that are nowhere", (*POOL, "provider", "command"), ["{weights}"],
     "command: {weights} stands for nothing (set spec.weightsDir)"),
    ("a variable with a sign", (*POOL, "provider", "env"), {"A=": "x"}, "'A=' cannot name an environment variable"),
    ("a variable's number", (*POOL, "provider", "env"), {"A": 3}, "env.A: 3 is no text (put it in quotes)"),
    ("a path with a NUL", (*POOL, "provider", "stateDir"), "a\0b", "stateDir: 'a\\x00b' cannot be used"),
    ("an address without port", ("spec", "http"), {"listen": "localhost"},
     "http.listen: 'localhost' is no address (write host and port"),
    ("a port beyond all", ("spec", "http"), {"listen": "[::1]:70000"}, "http.listen: port 70000 does not exist"),
    ("a store of another kind", ("spec", "ledger"), {"type": "valkey", "url": "http://x"},
     "ledger.url: 'http://x' is no address of a Valkey store"),
    ("a store's broken address", ("spec", "ledger"), {"type": "valkey", "url": "valkey://[x"},
     "ledger.url: 'valkey://[x' is no address"),
    ("a password", ("spec", "ledger"), {"type": "valkey", "url": "valkey://u:p@h"},
     "ledger.url: a password does not belong into this file"),
    ("a store without address", ("spec", "ledger"), {"type": "valkey"},
     "spec.ledger: exactly one of url and urlFile is needed"),
    ("a file name no URL can hold", ("spec", "ledger", "path"), "a?b", "ledger.path: the path holds ? (choose"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "value", "line"), [row[1:] for row in WRONG_VALUES], ids=[row[0] for row in WRONG_VALUES]
)
def test_one_wrong_value_is_one_line(path: tuple[str | int, ...], value: Any, line: str) -> None:
    (fault,) = faults_of(changed(a_fleet(), *path, to=value))
    assert line in str(fault)


CROSSED: list[tuple[str, dict[str, Any], str]] = [
    ("floor over ceiling", a_fleet(stages=[a_stage(guardRails={"floor": 5, "ceiling": 4})]),
     "spec.stages[0].guardRails.floor: the floor 5 is over the ceiling 4 (lower floor or raise ceiling)"),
    ("a cap below the floor's cost", a_fleet(spendCapUsdPerH="1.99", stages=[a_stage(guardRails={"floor": 2, "ceiling": 4})]),
     "spec.spendCapUsdPerH: 1.99 USD/h do not pay for the floor, which costs 2.00 (raise it or lower a stage's"),
    ("a stage's cap below its floor's cost", changed(a_fleet(), *RAILS, "spendCapUsdPerH", to="0.50"),
     "guardRails.spendCapUsdPerH: 0.50 USD/h do not pay for the floor, which costs 1.00 (raise it or lower floor)"),
    ("a stage's cap over the fleet's", changed(a_fleet(), *RAILS, "spendCapUsdPerH", to="11"),
     "guardRails.spendCapUsdPerH: the stage's cap 11.00 is over the fleet's 10.00 USD/h ("),
    ("a floor without room", changed(a_fleet(), *POOL, "maxReplicas", to=0),
     "guardRails.floor: the floor 1 does not fit into the pools, which hold 0 (raise a pool's maxReplicas or lower floor)"),
    ("cooldowns upside down", changed(a_fleet(), *RAILS, "cooldownUp", to="10m"),
     "guardRails.cooldownDown: 5m is shorter than cooldownUp, so the fleet would fall faster than it rises (raise it to 10m"),
    ("a margin over the deadline", changed(a_fleet(), *STAGE, "drain", to={"margin": "2m"}),
     "drain.margin: 2m leaves nothing of the 2m to drain in (lower margin or raise voluntaryDeadline)"),
    ("signals older than the loop's turn", a_fleet(interval="31s"),
     "signals.maxAge: 30s is shorter than the loop's interval, so every signal would be stale (raise it to 31s"),
    ("launches that time out at once", changed(a_fleet(), *POOL, "launchTimeout", to="9s"),
     "pools[0].launchTimeout: it is shorter than the loop's interval"),
    ("a pool's back-off upside down", changed(a_fleet(), *POOL, "refusalBackoffInitial", to="1h"),
     "refusalBackoffInitial: the first wait is longer than the longest (raise refusalBackoffMax to 1h"),
    ("a job's back-off upside down", changed(a_fleet(), "spec", "job", "backoffInitial", to="1h"),
     "spec.job.backoffInitial: the first wait is longer than the longest"),
    ("one pool twice", a_fleet(stages=[a_stage(pools=[a_pool(), a_pool()])]),
     "spec.stages[0].pools[1].name: pool spot is there twice (give each pool a name of its own)"),
    ("one offering twice", a_fleet(stages=[a_stage(pools=[a_pool(offerings=[an_offering(), an_offering(priceUsdPerH="2")])])]),
     "offerings[1]: offering process/here/spot is there twice (keep one of them)"),
    ("one stage twice", a_fleet(stages=[a_stage(), a_stage(pools=[a_pool(name="other")])]),
     "spec.stages[1].name: stage rollout is there twice"),
]  # fmt: skip


@pytest.mark.parametrize(("document", "line"), [row[1:] for row in CROSSED], ids=[row[0] for row in CROSSED])
def test_fields_at_odds_are_one_line(document: dict[str, Any], line: str) -> None:
    (fault,) = faults_of(document)
    assert line in str(fault)


@pytest.mark.parametrize(
    "path", [("spec", "spendCapUsdPerH"), (*RAILS, "floor"), (*RAILS, "ceiling")], ids=["spend cap", "floor", "ceiling"]
)
def test_what_must_be_said(path: tuple[str | int, ...]) -> None:
    (fault,) = faults_of(without(a_fleet(), *path))
    assert fault.message == "is missing"
    assert fault.path.endswith(str(path[-1]))


def test_a_stage_other_than_rollout_needs_signals_of_its_own() -> None:
    reward = a_stage(name="reward", pools=[a_pool(name="reward")])
    (fault,) = faults_of(a_fleet(stages=[a_stage(), reward]))
    assert "the job's ledger holds the queue of stage rollout only, not that of reward" in str(fault)


def test_a_fleet_without_rollout() -> None:
    messages = [fault.message for fault in faults_of(changed(a_fleet(), *STAGE, "name", to="reward"))]
    assert "there is no stage rollout" in messages


def test_faults_of_every_kind_are_told_together() -> None:
    document = changed(a_fleet(), *RAILS, to={"floor": 5, "ceiling": 4})
    document = changed(document, *POOL, "offerings", to=[an_offering(zone=1), an_offering(priceUsdPerH="x")])
    document = changed(document, "spec", "colour", to="red")
    assert [fault.path for fault in faults_of(document)] == [
        "spec.stages[0].guardRails.floor",
        "spec.stages[0].pools[0].offerings[0].zone",
        "spec.stages[0].pools[0].offerings[1].priceUsdPerH",
        "spec.colour",
    ]


PROVIDER = (*POOL, "provider")
WORKER_SET = (*PROVIDER, "workerSet")
SETS = "daemon_set, deployment, leader_worker_set, ray_cluster"

WRONG_IN_A_CLUSTER: list[tuple[str, dict[str, Any], tuple[str | int, ...], Any, str]] = [
    ("a group without name", an_asg(), (*PROVIDER, "group"), GONE, "provider.group: is missing (add it: Name of the group)"),
    ("a group with an empty name", an_asg(), (*PROVIDER, "group"), "", "provider.group: '' cannot be used (write at least"),
    ("a group called by a number", an_asg(), (*PROVIDER, "group"), 7, "provider.group: 7 is no text (put it in quotes)"),
    ("an unknown way up", an_asg(), (*PROVIDER, "up"), "push",
     "provider.up: 'push' is not known here (use launch_instances or set_desired_capacity)"),
    ("a key of another provider", an_asg(), (*PROVIDER, "nodePool"), "x",
     "provider.nodePool: unknown key (known here: group, type, up, workerSet)"),
    ("a name too long for any group", an_asg(), (*PROVIDER, "group"), "g" * 5000,
     "provider.group: there is too much in group (at most 4096)"),
    ("no worker set", an_asg(), WORKER_SET, GONE, "provider.workerSet: is missing (add it: What runs the workers on its nodes)"),
    ("a worker set without type", an_asg(), WORKER_SET, {"name": "w"},
     f"provider.workerSet: workerSet has no type (add type, one of: {SETS})"),
    ("an unknown worker set", an_asg(), (*WORKER_SET, "type"), "stateful_set",
     f"provider.workerSet: unknown workerSet 'stateful_set' (known: {SETS})"),
    ("a worker set that is a word", an_asg(), WORKER_SET, "workers", "provider.workerSet: 'workers' is no mapping ("),
    ("a worker set without name", an_asg(), (*WORKER_SET, "name"), GONE,
     "workerSet.name: is missing (add it: Name of the object)"),
    ("a worker set in capitals", an_asg(), (*WORKER_SET, "name"), "Workers",
     "workerSet.name: 'Workers' is no name (use up to 63 lower-case"),
    ("a namespace in capitals", an_asg(), (*WORKER_SET, "namespace"), "RL",
     "workerSet.namespace: 'RL' is no name (use up to 63 lower-case"),
    ("a group of a Deployment", an_eks_group(), (*WORKER_SET, "group"), "x",
     "workerSet.group: unknown key (known here: name, namespace, type)"),
    ("no cluster", an_eks_group(), (*PROVIDER, "cluster"), GONE, "provider.cluster: is missing (add it: Name of the EKS"),
    ("no node group", an_eks_group(), (*PROVIDER, "nodeGroup"), GONE, "provider.nodeGroup: is missing (add it: Name of the"),
    ("a node group with a slip", an_eks_group(), (*PROVIDER, "nodegroup"), "x",
     "provider.nodegroup: unknown key (did you mean nodeGroup?)"),
    ("a flag for rebalancing in quotes", an_eks_group(), (*PROVIDER, "acceptAzRebalance"), "true",
     "provider.acceptAzRebalance: 'true' is neither true nor false ("),
    ("no NodePool", a_karpenter_pool(), (*PROVIDER, "nodePool"), GONE,
     "provider.nodePool: is missing (add it: Name of the NodePool"),
    ("a NodePool that is none", a_karpenter_pool(), (*PROVIDER, "nodePool"), "A B", "provider.nodePool: 'A B' is no name ("),
    ("a DaemonSet for Karpenter", a_karpenter_pool(), WORKER_SET, a_worker_set("daemon_set"),
     "provider.workerSet.type: a DaemonSet makes Karpenter launch nothing: its pods come after nodes (use a deployment,"),
    ("a RayCluster without group", a_karpenter_pool(), WORKER_SET, {"type": "ray_cluster", "name": "ray"},
     "workerSet.group: is missing (add it: Name of the worker group"),
    ("a RayCluster's empty group", a_karpenter_pool(), WORKER_SET, a_worker_set("ray_cluster", group=""),
     "workerSet.group: there is nothing in group ("),
    ("a RayCluster's endless group", a_karpenter_pool(), WORKER_SET, a_worker_set("ray_cluster", group="g" * 64),
     "workerSet.group: there is too much in group (at most 63)"),
    ("a file for a ledger", an_asg(), ("spec", "ledger"), {"type": "sqlite", "path": "/l.db"},
     "spec.ledger.type: SQLite is refused in a cluster, and pool spot is not on this machine (use a ledger of type valkey)"),
    ("a fleet's namespace in capitals", an_asg(), ("metadata", "namespace"), "RL", "metadata.namespace: 'RL' is no name ("),
]  # fmt: skip


@pytest.mark.parametrize(
    ("pool", "path", "value", "line"),
    [row[1:] for row in WRONG_IN_A_CLUSTER],
    ids=[row[0] for row in WRONG_IN_A_CLUSTER],
)
def test_one_wrong_value_in_a_cluster_is_one_line(
    pool: dict[str, Any], path: tuple[str | int, ...], value: Any, line: str
) -> None:
    document = a_cluster_fleet(pool)
    assert not faults_of(document)
    wrong = without(document, *path) if value is GONE else changed(document, *path, to=value)
    (fault,) = faults_of(wrong)
    assert line in str(fault)


def test_too_many_pools_or_offerings_are_told_in_one_line_each() -> None:
    offerings = [an_offering(zone=f"z{number}") for number in range(65)]
    (fault,) = faults_of(changed(a_fleet(), *POOL, "offerings", to=offerings))
    assert "offerings: there is too much in offerings (at most 64)" in str(fault)


def test_the_floor_is_paid_from_the_cheapest_pools_first() -> None:
    cheap = a_pool(name="cheap", maxReplicas=2, nodesPerReplica=2, offerings=[an_offering(priceUsdPerH="1")])
    dear = a_pool(name="dear", offerings=[an_offering(priceUsdPerH="9"), an_offering(zone="b", priceUsdPerH="3")])
    stage = a_stage(guardRails={"floor": 3, "ceiling": 4}, pools=[dear, cheap])
    assert the_fleet(a_fleet(stages=[stage])).spec.stages[0].floor_usd_per_h == 2 * 2 + 3


def test_literal_braces_are_no_placeholders() -> None:
    provider = a_local_provider(command=["--json={{}}", "{worker}-{replicaId}"])
    fleet = the_fleet(a_fleet(stages=[a_stage(pools=[a_pool(provider=provider)])]))
    assert fleet.spec.stages[0].pools[0].provider.asks_for == {"worker", "replicaId"}
