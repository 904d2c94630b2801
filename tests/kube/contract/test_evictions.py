"""Evictions: by UID, within budgets."""

import pytest

from scaler.kube.contract import DISRUPTION_BUDGETS, PODS, Json, NotFound, TooMany
from tests.builders.kube import pod
from tests.kube.contract.conftest import Bench


async def a_running_pod(bench: Bench, name: str = "p") -> str:
    node = await bench.node(name)
    body = pod(name, within=bench.namespace, labels={"app": "x"}, node_name=node["metadata"]["name"])
    await bench.api.create(PODS, body, namespace=bench.namespace)
    status: Json = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    running = await bench.api.patch(PODS, name, {"status": status}, namespace=bench.namespace, subresource="status")
    return str(running["metadata"]["uid"])


async def a_budget(bench: Bench, allowed: int) -> None:
    """As the disruption controller leaves it."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": spec}
    await bench.api.create(DISRUPTION_BUDGETS, body, namespace=bench.namespace)
    counted = {
        "observedGeneration": 1,
        "disruptionsAllowed": allowed,
        "currentHealthy": 1 + allowed,
        "desiredHealthy": 1,
    }
    status = {"status": {**counted, "expectedPods": 1 + allowed}}
    await bench.api.patch(DISRUPTION_BUDGETS, "b", status, namespace=bench.namespace, subresource="status")


async def leaving(bench: Bench, name: str = "p") -> bool:
    return "deletionTimestamp" in (await bench.api.get(PODS, name, namespace=bench.namespace))["metadata"]


async def test_an_evicted_pod_begins_its_grace(bench: Bench) -> None:
    uid = await a_running_pod(bench)
    await bench.api.evict("p", namespace=bench.namespace, pod_uid=uid, grace_s=7)
    meta = (await bench.api.get(PODS, "p", namespace=bench.namespace))["metadata"]
    assert meta["deletionGracePeriodSeconds"] == 7


async def test_bug_033_an_eviction_by_uid_spares_another_pod_of_that_name(bench: Bench) -> None:
    """KC PR#998."""
    await a_running_pod(bench)
    with pytest.raises(NotFound):
        await bench.api.evict("p", namespace=bench.namespace, pod_uid="5f0ff7a8-0000-0000-0000-000000000000")
    assert not await leaving(bench)


async def test_a_budget_that_allows_none_forbids_it_for_now(bench: Bench) -> None:
    uid = await a_running_pod(bench)
    await a_budget(bench, allowed=0)
    with pytest.raises(TooMany):
        await bench.api.evict("p", namespace=bench.namespace, pod_uid=uid)
    assert not await leaving(bench)


async def test_a_budget_is_used_up_by_evictions(bench: Bench) -> None:
    first, second = await a_running_pod(bench, "p"), await a_running_pod(bench, "q")
    await a_budget(bench, allowed=1)
    await bench.api.evict("p", namespace=bench.namespace, pod_uid=first)
    with pytest.raises(TooMany):
        await bench.api.evict("q", namespace=bench.namespace, pod_uid=second)
    assert await leaving(bench, "p")
    assert not await leaving(bench, "q")


async def test_a_pod_that_does_not_run_yet_needs_no_budget(bench: Bench) -> None:
    node = await bench.node()
    body = pod("p", within=bench.namespace, labels={"app": "x"}, node_name=node["metadata"]["name"])
    uid = (await bench.api.create(PODS, body, namespace=bench.namespace))["metadata"]["uid"]
    await a_budget(bench, allowed=0)
    await bench.api.evict("p", namespace=bench.namespace, pod_uid=uid)
