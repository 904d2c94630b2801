"""Nodes and pods found by what they are looked up by."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.kube.contract import NODES, PODS, Json, KubeUnreachable
from scaler.kube.facts import PodFacts
from scaler.kube.indexes import WatchedNodes, WatchedPods
from tests.builders.clock import FakeClock
from tests.builders.fake_kube import FakeKube
from tests.builders.kube import node, pod


@asynccontextmanager
async def running(clock: FakeClock, index: WatchedNodes | WatchedPods) -> AsyncIterator[None]:
    task = asyncio.ensure_future(index.run())
    await clock.settle()
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def owned(body: Json, uid: str) -> Json:
    body["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "r", "uid": uid, "controller": True}]
    return body


async def test_nodes_are_found_by_name_and_by_instance() -> None:
    clock = FakeClock()
    api = FakeKube(clock)
    for i in range(3):
        api.place(NODES, node(f"n{i}", instance_id=f"i-{i}"))
    nodes = WatchedNodes(api, clock)
    async with running(clock, nodes):
        assert {each.name for each in nodes.all()} == {"n0", "n1", "n2"}
        found = nodes.by_instance("i-1")
        assert found is not None
        assert found == nodes.by_name("n1")
        await api.delete(NODES, "n1")
        await clock.settle()
        assert nodes.by_instance("i-1") is nodes.by_name("n1") is None
        assert nodes.current_at_s == clock.now_s()


async def test_bug_100_an_empty_instance_finds_nothing_and_a_node_without_one_is_found_by_name() -> None:
    """KC#2507."""
    clock = FakeClock()
    api = FakeKube(clock)
    for name in ("a", "b"):
        api.place(NODES, {"metadata": {"name": name}, "spec": {"providerID": ""}})
    nodes = WatchedNodes(api, clock)
    async with running(clock, nodes):
        assert nodes.by_instance("") is None
        assert nodes.by_name("") is None
        found = nodes.by_name("a")
        assert found is not None
        assert found.instance_id == ""


async def test_of_two_nodes_of_one_instance_the_newer_is_found_and_after_it_the_other() -> None:
    clock = FakeClock()
    api = FakeKube(clock)
    api.place(NODES, node("old", instance_id="i-1"))
    clock.pass_time(60.0)
    api.place(NODES, node("new", instance_id="i-1"))
    nodes = WatchedNodes(api, clock)
    async with running(clock, nodes):
        first = nodes.by_instance("i-1")
        await api.delete(NODES, "new")
        await clock.settle()
        second = nodes.by_instance("i-1")
    assert first is not None
    assert second is not None
    assert (first.name, second.name) == ("new", "old")


async def test_a_node_whose_provider_id_comes_late_is_found_once_it_has_come() -> None:
    clock = FakeClock()
    api = FakeKube(clock)
    api.place(NODES, {"metadata": {"name": "a"}, "spec": {}})
    nodes = WatchedNodes(api, clock)
    async with running(clock, nodes):
        await api.patch(NODES, "a", {"spec": {"providerID": "aws:///z/i-9"}})
        await clock.settle()
        assert nodes.by_instance("i-9") == nodes.by_name("a")


async def test_bug_020_pods_are_found_by_node_owner_and_uid_in_all_their_namespaces() -> None:
    clock = FakeClock()
    api = FakeKube(clock)
    for namespace in ("ns1", "ns2", "other"):
        api.place(PODS, owned(pod("p", within=namespace, node_name="n1"), "u-r"))
    api.place(PODS, pod("waiting", within="ns1"))
    pods = WatchedPods(api, clock, ["ns1", "ns2"])
    async with running(clock, pods):
        assert [p.namespace for p in pods.on_node("n1")] == ["ns1", "ns2"]
        assert pods.on_node("") == ()
        assert len(pods.owned_by("u-r")) == 2
        assert pods.owned_by("") == ()
        first = pods.on_node("n1")[0]
        assert pods.by_uid(first.uid) is first
        assert len(pods.all()) == 3
        await api.delete(PODS, "p", namespace="ns1", grace_s=0)
        await clock.settle()
        assert pods.by_uid(first.uid) is None
        assert len(pods.owned_by("u-r")) == 1


async def test_pods_are_as_current_as_their_least_current_namespace() -> None:
    clock = FakeClock()
    api = FakeKube(clock)
    pods = WatchedPods(api, clock, ["ns1", "ns2"])
    api.fail_next("list", "pods", KubeUnreachable("down"))
    async with running(clock, pods):
        assert pods.current_at_s is None
        assert pods.trouble
        await clock.advance(1.0)
        assert pods.current_at_s == clock.now_s() - 1.0


async def test_pods_of_all_namespaces_and_of_a_selection_are_watched_too() -> None:
    clock = FakeClock()
    api = FakeKube(clock)
    api.place(PODS, pod("p", within="a", labels={"app": "x"}))
    api.place(PODS, pod("q", within="b", labels={"app": "y"}))
    everything, chosen = WatchedPods(api, clock, None), WatchedPods(api, clock, None, "app=x")
    async with running(clock, everything), running(clock, chosen):
        assert len(everything.all()) == 2
        assert [p.name for p in chosen.all()] == ["p"]


def test_no_namespace_at_all_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="namespace"):
        WatchedPods(FakeKube(FakeClock()), FakeClock(), [])


async def test_who_waits_is_woken_by_a_change_in_any_namespace() -> None:
    clock = FakeClock()
    api = FakeKube(clock)
    pods = WatchedPods(api, clock, ["ns1", "ns2"])
    async with running(clock, pods):
        await pods.changed()
        waiting = asyncio.ensure_future(pods.changed())
        await clock.settle()
        assert not waiting.done()
        api.place(PODS, pod("p", within="ns2"))
        await clock.settle()
        assert len(pods.all()) == 1
        await waiting


async def test_objects_that_are_no_nodes_are_skipped_and_counted() -> None:
    clock = FakeClock()
    api = FakeKube(clock)
    odd = api.place(NODES, node("odd"))
    api.store.find(NODES, None, "odd")["metadata"]["creationTimestamp"] = 5
    api.place(NODES, node("sound"))
    nodes = WatchedNodes(api, clock)
    async with running(clock, nodes):
        assert [each.name for each in nodes.all()] == ["sound"]
        assert nodes.skipped == 1
        assert odd


Write = tuple[str, int, int, int]
_LONGEST_REST_S = 60.0


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "move", "delete", "relist"]),
            st.integers(0, 3),
            st.integers(0, 2),
            st.integers(0, 2),
        ),
        max_size=25,
    )
)
def test_an_index_never_differs_from_a_search_through_all(writes: list[Write]) -> None:
    asyncio.run(_compare(writes))


async def _compare(writes: list[Write]) -> None:
    clock = FakeClock()
    api = FakeKube(clock)
    pods = WatchedPods(api, clock, ["ns"])
    async with running(clock, pods):
        for what, which, where, whose in writes:
            name = f"p{which}"
            if what == "put" and not api.store.has(PODS, "ns", name):
                api.place(PODS, owned(pod(name, within="ns", node_name=f"n{where}"), f"u{whose}"))
            elif what == "move" and api.store.has(PODS, "ns", name):
                await api.patch(PODS, name, {"spec": {"nodeName": f"n{where}"}}, namespace="ns")
            elif what == "delete" and api.store.has(PODS, "ns", name):
                await api.delete(PODS, name, namespace="ns", grace_s=0)
            elif what == "relist":
                api.expire_watches()
            await clock.advance(1.0)
            for i in range(3):
                assert set(found(pods.on_node(f"n{i}"))) == {p.uid for p in pods.all() if p.node_name == f"n{i}"}
                assert set(found(pods.owned_by(f"u{i}"))) == {p.uid for p in pods.all() if p.owner_uid == f"u{i}"}
        await clock.advance(_LONGEST_REST_S)  # after relists close upon each other the reflector rests before the next
        assert len(pods.all()) == len(list(api.store.every(PODS, "ns")))


def found(pods: tuple[PodFacts, ...]) -> list[str]:
    uids = [each.uid for each in pods]
    assert len(set(uids)) == len(uids)
    return uids
