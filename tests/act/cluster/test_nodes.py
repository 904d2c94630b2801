"""Nodes are marked and emptied on a real API server, with real budgets and controllers that write to nodes meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from scaler.act.node_marks import NodeMark, Owned
from scaler.act.nodes import NodeKeeper
from scaler.kube.api import open_api
from scaler.kube.facts import DEADLINE_ANNOTATION, DRAIN_TAINT, FLEET_LABEL
from scaler.kube.indexes import WatchedNodes, WatchedPods
from scaler.runtime.clock import SystemClock
from tests.builders import kube
from tests.builders.kube import Kube
from tests.cluster.control_plane import ControlPlane

pytestmark = pytest.mark.cluster

CLOCK = SystemClock()
FLEET = "rl.mill"


@asynccontextmanager
async def a_keeper(plane: ControlPlane, fleet: str = FLEET) -> AsyncIterator[NodeKeeper]:
    api = open_api(plane.kubeconfig, clock=CLOCK)
    nodes, pods = WatchedNodes(api, CLOCK), WatchedPods(api, CLOCK, None)
    keeper = NodeKeeper(
        kube=api,
        nodes=nodes,
        pods=pods,
        clock=CLOCK,
        fleet=fleet,
        objection=lambda _: None,
        marked=lambda *_: None,
        may_act=lambda: True,
    )
    tasks = [asyncio.ensure_future(work) for work in (nodes.run(), pods.run(), keeper.run())]
    try:
        yield keeper
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await api.close()


def want(keeper: NodeKeeper, *names: str, owned: tuple[str, ...] = (), in_s: float = 120.0, **facts: Any) -> None:
    marks = [
        NodeMark(
            instance_id=kube.instance_id_of(name),
            deadline_s=CLOCK.now_s() + in_s,
            reason="notice",
            epoch=1,
            **facts,
        )
        for name in names
    ]
    instances = [kube.instance_id_of(name) for name in (*names, *owned)]
    keeper.want({mark.instance_id: mark for mark in marks}, dict.fromkeys(instances, Owned("spot")))


def is_marked(node: Mapping[str, Any]) -> bool:
    taints = {taint["key"] for taint in node["spec"].get("taints", ())}
    noted = DEADLINE_ANNOTATION in node["metadata"].get("annotations", {})
    return DRAIN_TAINT in taints and noted and bool(node["spec"].get("unschedulable"))


def by_name(found: list[dict[str, Any]], prefix: str) -> dict[str, dict[str, Any]]:
    return {n["metadata"]["name"]: n for n in found if n["metadata"]["name"].startswith(prefix)}


@asynccontextmanager
async def some_nodes(client: Kube, count: int, prefix: str, **options: Any) -> AsyncIterator[list[str]]:
    made = kube.nodes(count, prefix, **options)
    await client.create_all(made)
    try:
        yield [each["metadata"]["name"] for each in made]
    finally:
        for each in made:
            await client.delete(each)


async def test_nodes_are_marked_and_unmarked_while_others_write_to_them(cluster: ControlPlane) -> None:
    async with (
        Kube.of(cluster) as client,
        some_nodes(client, 8, "keeper-busy", labels={"team": "rl"}) as names,
        a_keeper(cluster) as keeper,
    ):
        want(keeper, *names[:4], owned=tuple(names))
        for number in range(5):
            for name in names:
                await client.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {"seen": str(number)}}})
        await client.until(
            "/api/v1/nodes",
            lambda found: (
                {name for name, node in by_name(found, "keeper-busy").items() if is_marked(node)} == set(names[:4])
                and all(n["metadata"]["labels"].get(FLEET_LABEL) for n in by_name(found, "keeper-busy").values())
            ),
        )
        want(keeper, owned=tuple(names))
        found = await client.until(
            "/api/v1/nodes",
            lambda found: (
                not any(
                    is_marked(node) or node["spec"].get("unschedulable") or _cordon_taint(node)
                    for node in by_name(found, "keeper-busy").values()
                )
            ),
        )
        for node in by_name(found, "keeper-busy").values():
            assert (node["metadata"]["labels"]["team"], node["metadata"]["labels"]["seen"]) == ("rl", "4")
            assert not {key for key in node["metadata"].get("annotations", {}) if key.startswith("headrace.dev/")}


def _cordon_taint(node: Mapping[str, Any]) -> bool:
    """The node controller's, which follows a cordon."""
    return any(taint["key"] == "node.kubernetes.io/unschedulable" for taint in node["spec"].get("taints", ()))


async def test_two_fleets_race_for_nodes_and_each_node_has_one_owner(api_server: ControlPlane) -> None:
    async with (
        Kube.of(api_server) as client,
        some_nodes(client, 30, "keeper-race") as names,
        a_keeper(api_server) as ours,
        a_keeper(api_server, "rl.weir") as theirs,
    ):
        want(ours, *names)
        want(theirs, *names)
        found = await client.until(
            "/api/v1/nodes",
            lambda found: all(is_marked(node) for node in by_name(found, "keeper-race").values()),
        )
        for node in by_name(found, "keeper-race").values():
            owner = node["metadata"]["labels"][FLEET_LABEL]
            assert owner == node["metadata"]["annotations"]["headrace.dev/marked-by"]
        owned = {each: ours.recorded(kube.instance_id_of(each)) for each in names}
        assert {each: theirs.recorded(kube.instance_id_of(each)) for each in names} == {
            each: not mine for each, mine in owned.items()
        }


@pytest.mark.timeout(180)
async def test_bug_029_a_real_budget_is_kept_until_the_deadline_and_not_beyond(cluster: ControlPlane) -> None:
    space = "keeper-budget"
    async with (
        Kube.of(cluster) as client,
        some_nodes(client, 2, "keeper-evict", labels={"for": "keeper-evict"}),
        a_keeper(cluster) as keeper,
    ):
        await client.create(kube.namespace(space))
        try:
            selector = {"nodeSelector": {"for": "keeper-evict"}}
            held = kube.deployment("held", 2, within=space, **selector)
            free = kube.deployment("free", 2, within=space, **selector)
            await client.create_all([held, free, _budget("held", space)])
            pods = f"/api/v1/namespaces/{space}/pods"
            placed = await client.until(pods, lambda found: len(found) == 4 and all(map(kube.is_running, found)))
            budgets = f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets"
            await client.until(budgets, lambda found: all(b.get("status", {}).get("currentHealthy") for b in found))
            before = {pod["metadata"]["uid"]: pod["metadata"]["labels"]["app"] for pod in placed}
            want(keeper, "keeper-evict-0", "keeper-evict-1", in_s=14.0, empty_from_s=0.0)
            after = await client.until(pods, lambda found: "free" not in _apps_left(found, before))
            assert _apps_left(after, before) == ["held", "held"], "the budget has its say"
            # Gone by force, and their successors find no node.
            await client.until(
                pods, lambda found: len(found) == 4 and {pod["status"]["phase"] for pod in found} == {"Pending"}
            )
        finally:
            await client.delete(f"/api/v1/namespaces/{space}")


def _apps_left(found: list[dict[str, Any]], before: Mapping[str, str]) -> list[str]:
    there = [pod for pod in found if pod["metadata"]["uid"] in before and "deletionTimestamp" not in pod["metadata"]]
    return [before[pod["metadata"]["uid"]] for pod in there]


def _budget(app: str, space: str) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": space},
        "spec": {"selector": {"matchLabels": {"app": app}}, "maxUnavailable": 0},
    }
