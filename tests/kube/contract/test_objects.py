"""Objects: made, changed, deleted, and refused."""

import asyncio

import pytest

from scaler.kube.contract import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    LEASES,
    NODES,
    PODS,
    Conflict,
    Invalid,
    Json,
    KubeError,
    NotFound,
    PatchType,
)
from tests.builders.kube import deployment, pod
from tests.kube.contract.conftest import Bench

TAINT = {"key": "a", "value": "1", "effect": "NoSchedule"}
OTHER_UID = "5f0ff7a8-0000-0000-0000-000000000000"
OTHER_TAINT = {"key": "b", "value": "2", "effect": "NoSchedule"}


def a_map(name: str = "m", **data: str) -> Json:
    return {"metadata": {"name": name}, "data": data}


async def test_what_is_created_has_uid_version_and_time_and_is_read_back_as_it_is(bench: Bench) -> None:
    made = await bench.api.create(CONFIG_MAPS, a_map(x="1"), namespace=bench.namespace)
    assert made["data"] == {"x": "1"}
    assert {"uid", "resourceVersion", "creationTimestamp"} <= made["metadata"].keys()
    assert made["metadata"]["namespace"] == bench.namespace
    assert (made["apiVersion"], made["kind"]) == ("v1", "ConfigMap")
    assert await bench.api.get(CONFIG_MAPS, "m", namespace=bench.namespace) == made


async def test_a_generated_name_begins_as_asked(bench: Bench) -> None:
    body = {"metadata": {"generateName": "event-"}}
    made = await bench.api.create(CONFIG_MAPS, body, namespace=bench.namespace)
    assert made["metadata"]["name"].startswith("event-")
    assert made["metadata"]["name"] != "event-"


async def test_what_is_not_there_is_not_found_whatever_is_asked(bench: Bench) -> None:
    for call in (
        bench.api.get(CONFIG_MAPS, "none", namespace=bench.namespace),
        bench.api.patch(CONFIG_MAPS, "none", {"data": {}}, namespace=bench.namespace),
        bench.api.delete(CONFIG_MAPS, "none", namespace=bench.namespace),
        bench.api.get(NODES, f"{bench.namespace}-none"),
        bench.api.evict("none", namespace=bench.namespace, pod_uid="u"),
    ):
        with pytest.raises(NotFound):
            await call


async def test_a_name_that_is_taken_is_a_conflict(bench: Bench) -> None:
    await bench.api.create(CONFIG_MAPS, a_map(), namespace=bench.namespace)
    with pytest.raises(Conflict):
        await bench.api.create(CONFIG_MAPS, a_map(), namespace=bench.namespace)


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a?b", "..", "a b"])
async def test_a_call_without_a_proper_name_never_reaches_a_collection(bench: Bench, name: str) -> None:
    await bench.api.create(CONFIG_MAPS, a_map(), namespace=bench.namespace)
    with pytest.raises(Invalid):
        await bench.api.delete(CONFIG_MAPS, name, namespace=bench.namespace)
    with pytest.raises(Invalid):
        await bench.api.get(CONFIG_MAPS, name, namespace=bench.namespace)
    assert await bench.api.get(CONFIG_MAPS, "m", namespace=bench.namespace)


async def test_a_namespaced_object_needs_its_namespace(bench: Bench) -> None:
    with pytest.raises(Invalid):
        await bench.api.get(CONFIG_MAPS, "m")
    with pytest.raises(Invalid):
        await bench.api.create(CONFIG_MAPS, a_map())


async def test_a_replacement_needs_the_newest_version(bench: Bench) -> None:
    first = await bench.api.create(LEASES, {"metadata": {"name": "l"}}, namespace=bench.namespace)
    held = {**first, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 10}}
    second = await bench.api.replace(LEASES, "l", held, namespace=bench.namespace)
    assert second["spec"]["holderIdentity"] == "a"
    assert second["metadata"]["resourceVersion"] != first["metadata"]["resourceVersion"]
    with pytest.raises(Conflict):
        await bench.api.replace(LEASES, "l", held, namespace=bench.namespace)


async def test_a_merge_patch_removes_by_null_and_replaces_lists(bench: Bench) -> None:
    node = await bench.node(spec={"taints": [TAINT], "unschedulable": True})
    patch: Json = {"metadata": {"labels": {"test": None, "x": "1"}}, "spec": {"taints": [OTHER_TAINT]}}
    changed = await bench.api.patch(NODES, node["metadata"]["name"], patch)
    assert changed["metadata"]["labels"] == {"x": "1"}
    assert changed["spec"]["taints"] == [OTHER_TAINT]
    assert changed["spec"]["unschedulable"] is True
    await bench.api.delete(NODES, node["metadata"]["name"])


async def test_bug_035_a_patch_of_an_older_version_is_a_conflict_and_changes_nothing(bench: Bench) -> None:
    """KC#1658: taints of others stay, since a list is only replaced with the version that it was read at."""
    node = await bench.node()
    name, version = node["metadata"]["name"], node["metadata"]["resourceVersion"]
    await bench.api.patch(NODES, name, {"spec": {"taints": [TAINT]}})
    patch = {"metadata": {"resourceVersion": version}, "spec": {"taints": [OTHER_TAINT]}}
    with pytest.raises(Conflict):
        await bench.api.patch(NODES, name, patch)
    assert (await bench.api.get(NODES, name))["spec"]["taints"] == [TAINT]


async def test_a_change_of_another_uid_finds_nothing_and_changes_nothing(bench: Bench) -> None:
    node = await bench.node()
    name = node["metadata"]["name"]
    patch = {"metadata": {"uid": OTHER_UID}, "spec": {"taints": [TAINT]}}
    with pytest.raises(NotFound):
        await bench.api.patch(NODES, name, patch)
    with pytest.raises(NotFound):
        await bench.api.replace(NODES, name, {**node, "metadata": {**node["metadata"], "uid": OTHER_UID}})
    assert TAINT not in (await bench.api.get(NODES, name)).get("spec", {}).get("taints", [])


async def test_a_patch_that_changes_nothing_makes_no_version(bench: Bench) -> None:
    first = await bench.api.create(CONFIG_MAPS, a_map(x="1"), namespace=bench.namespace)
    again = await bench.api.patch(CONFIG_MAPS, "m", {"data": {"x": "1"}}, namespace=bench.namespace)
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_a_json_patch_is_carried_out_whole_or_not_at_all(bench: Bench) -> None:
    await bench.api.create(CONFIG_MAPS, a_map(x="1"), namespace=bench.namespace)
    add = {"op": "add", "path": "/data/y", "value": "2"}

    async def patch(*operations: Json) -> Json:
        return await bench.api.patch(CONFIG_MAPS, "m", operations, namespace=bench.namespace, patch_type=PatchType.JSON)

    with pytest.raises(Invalid):
        await patch(add, {"op": "test", "path": "/data/x", "value": "9"})
    with pytest.raises(Invalid):
        await patch(add, {"op": "remove", "path": "/data/none"})
    assert (await bench.api.get(CONFIG_MAPS, "m", namespace=bench.namespace))["data"] == {"x": "1"}
    done = await patch({"op": "test", "path": "/data/x", "value": "1"}, add)
    assert done["data"] == {"x": "1", "y": "2"}


async def test_a_strategic_patch_merges_conditions_by_type_and_replaces_taints(bench: Bench) -> None:
    node = await bench.node(spec={"taints": [TAINT]})

    async def patch(condition: Json) -> dict[str, str]:
        body = {"status": {"conditions": [condition]}}
        name = node["metadata"]["name"]
        changed = await bench.api.patch(NODES, name, body, subresource="status", patch_type=PatchType.STRATEGIC)
        return {each["type"]: each["status"] for each in changed["status"].get("conditions", [])}

    assert await patch({"type": "Ready", "status": "True"}) == {"Ready": "True"}
    assert await patch({"type": "Mine", "status": "True"}) == {"Ready": "True", "Mine": "True"}
    assert await patch({"type": "Ready", "status": "False"}) == {"Ready": "False", "Mine": "True"}
    assert await patch({"type": "Ready", "$patch": "delete"}) == {"Mine": "True"}
    body = {"spec": {"taints": [OTHER_TAINT]}}
    replaced = await bench.api.patch(NODES, node["metadata"]["name"], body, patch_type=PatchType.STRATEGIC)
    assert replaced["spec"]["taints"] == [OTHER_TAINT]


async def test_an_apply_makes_what_is_missing_and_changes_what_is_there(bench: Bench) -> None:
    for value in ("1", "2"):
        body = {"apiVersion": "v1", "kind": "ConfigMap", **a_map(x=value)}
        made = await bench.api.patch(CONFIG_MAPS, "m", body, namespace=bench.namespace, patch_type=PatchType.APPLY)
        assert made["data"] == {"x": value}


async def test_a_deletion_by_uid_spares_another_object_of_that_name(bench: Bench) -> None:
    made = await bench.api.create(CONFIG_MAPS, a_map(), namespace=bench.namespace)
    with pytest.raises(NotFound):
        await bench.api.delete(CONFIG_MAPS, "m", namespace=bench.namespace, uid=OTHER_UID)
    assert await bench.api.get(CONFIG_MAPS, "m", namespace=bench.namespace)
    await bench.api.delete(CONFIG_MAPS, "m", namespace=bench.namespace, uid=made["metadata"]["uid"])
    with pytest.raises(NotFound):
        await bench.api.delete(CONFIG_MAPS, "m", namespace=bench.namespace)


async def test_a_finalizer_holds_a_deletion_until_it_is_taken_away(bench: Bench) -> None:
    body = {"metadata": {"name": "m", "finalizers": ["example.com/wait"]}}
    await bench.api.create(CONFIG_MAPS, body, namespace=bench.namespace)
    await bench.api.delete(CONFIG_MAPS, "m", namespace=bench.namespace)
    assert (await bench.api.get(CONFIG_MAPS, "m", namespace=bench.namespace))["metadata"]["deletionTimestamp"]
    await bench.api.patch(CONFIG_MAPS, "m", {"metadata": {"finalizers": None}}, namespace=bench.namespace)
    with pytest.raises(NotFound):
        await bench.api.get(CONFIG_MAPS, "m", namespace=bench.namespace)


async def test_status_and_the_rest_are_changed_apart(bench: Bench) -> None:
    body = deployment("d", 3, within=bench.namespace)
    made = await bench.api.create(DEPLOYMENTS, {**body, "status": {"replicas": 9}}, namespace=bench.namespace)
    assert not made.get("status")

    async def patch(subresource: str) -> Json:
        change = {"spec": {"replicas": 5}, "status": {"replicas": 7}}
        return await bench.api.patch(DEPLOYMENTS, "d", change, namespace=bench.namespace, subresource=subresource)

    after = await patch("status")
    assert (after["spec"]["replicas"], after["status"]["replicas"], after["metadata"]["generation"]) == (3, 7, 1)
    await bench.api.patch(
        DEPLOYMENTS, "d", {"status": {"replicas": 0}}, namespace=bench.namespace, subresource="status"
    )
    after = await patch("")
    assert (after["spec"]["replicas"], after["status"].get("replicas", 0), after["metadata"]["generation"]) == (5, 0, 2)


async def test_a_node_is_created_with_the_status_it_comes_with(bench: Bench) -> None:
    node = await bench.node(status={"allocatable": {"cpu": "4"}})
    assert node["status"]["allocatable"]["cpu"] == "4"
    name = node["metadata"]["name"]
    same = await bench.api.patch(NODES, name, {"status": {"allocatable": {"cpu": "8"}}})
    assert same["status"]["allocatable"]["cpu"] == "4"
    changed = await bench.api.patch(NODES, name, {"status": {"allocatable": {"cpu": "8"}}}, subresource="status")
    assert changed["status"]["allocatable"]["cpu"] == "8"


async def test_the_scale_of_a_deployment_is_its_replicas(bench: Bench) -> None:
    made = await bench.api.create(DEPLOYMENTS, deployment("d", 3, within=bench.namespace), namespace=bench.namespace)
    scale = await bench.api.patch(
        DEPLOYMENTS, "d", {"spec": {"replicas": 4}}, namespace=bench.namespace, subresource="scale"
    )
    assert (scale["kind"], scale["spec"]["replicas"], scale["status"]["selector"]) == ("Scale", 4, "app=d")
    assert scale["metadata"]["uid"] == made["metadata"]["uid"]
    stale = {**scale, "metadata": {**scale["metadata"], "resourceVersion": made["metadata"]["resourceVersion"]}}
    with pytest.raises(Conflict):
        await bench.api.replace(DEPLOYMENTS, "d", stale, namespace=bench.namespace, subresource="scale")
    scale["spec"]["replicas"] = 2
    await bench.api.replace(DEPLOYMENTS, "d", scale, namespace=bench.namespace, subresource="scale")
    assert (await bench.api.get(DEPLOYMENTS, "d", namespace=bench.namespace))["spec"]["replicas"] == 2


async def test_a_scheduled_pod_that_is_deleted_stays_for_its_grace_and_a_waiting_one_does_not(bench: Bench) -> None:
    node = await bench.node()
    placed = pod("placed", within=bench.namespace, node_name=node["metadata"]["name"])
    await bench.api.create(PODS, placed, namespace=bench.namespace)
    await bench.api.create(PODS, pod("waiting", within=bench.namespace), namespace=bench.namespace)
    for name in ("placed", "waiting"):
        await bench.api.delete(PODS, name, namespace=bench.namespace, grace_s=20)
    leaving = await bench.api.get(PODS, "placed", namespace=bench.namespace)
    assert leaving["metadata"]["deletionGracePeriodSeconds"] == 20
    with pytest.raises(NotFound):
        await bench.api.get(PODS, "waiting", namespace=bench.namespace)
    await bench.api.delete(PODS, "placed", namespace=bench.namespace, grace_s=0)
    with pytest.raises(NotFound):
        await bench.api.get(PODS, "placed", namespace=bench.namespace)


async def test_of_many_who_write_by_version_each_round_has_one_winner(bench: Bench) -> None:
    made = await bench.api.create(CONFIG_MAPS, a_map(), namespace=bench.namespace)

    async def write(who: int) -> bool:
        try:
            await bench.api.replace(CONFIG_MAPS, "m", {**made, "data": {"who": str(who)}}, namespace=bench.namespace)
        except Conflict:
            return False
        return True

    assert sum(await asyncio.gather(*(write(who) for who in range(8)))) == 1


async def test_requests_are_counted_by_verb_and_subresource(bench: Bench) -> None:
    before = dict(bench.api.counts())
    await bench.api.create(DEPLOYMENTS, deployment("d", 3, within=bench.namespace), namespace=bench.namespace)
    await bench.api.patch(DEPLOYMENTS, "d", {"spec": {"replicas": 4}}, namespace=bench.namespace, subresource="scale")
    with pytest.raises(KubeError):
        await bench.api.evict("none", namespace=bench.namespace, pod_uid="u")
    await bench.api.list(DEPLOYMENTS, namespace=bench.namespace)
    after = bench.api.counts()
    for verb, plural in (
        ("create", "deployments"),
        ("patch", "deployments/scale"),
        ("create", "pods/eviction"),
        ("list", "deployments"),
    ):
        assert after[verb, plural] - before.get((verb, plural), 0) == 1


async def test_the_servers_clock_is_told_once_it_has_answered(bench: Bench) -> None:
    ahead_s = bench.api.ahead_s()
    assert ahead_s is not None
    assert abs(ahead_s) < 5.0
