"""A DaemonSet as a worker set: nodes are all that counts."""

import pytest

from scaler.act.worker_sets.daemon_set import make
from scaler.act.worker_sets.registry import WORKER_SETS, make_worker_set
from scaler.kube.contract import DAEMON_SETS
from tests.builders.workloads import NAMESPACE, Workloads


def _world(pods: int = 2) -> Workloads:
    world = Workloads()
    owner = world.kube.place(DAEMON_SETS, {"metadata": {"name": "d"}, "spec": {}}, namespace=NAMESPACE)
    for _ in range(pods):
        world.new_pod(owner, {"app": "d"})
    world.run_pods()
    return world


async def test_its_pods_are_told_each_with_its_node() -> None:
    world = _world()
    view = await make(world.settings("d"), clock=world.clock).observe()
    assert {pod.uid for pod in view.pods} == world.uids()
    assert all(pod.node_name and pod.replica_key == pod.uid for pod in view.pods)
    assert (view.desired, view.waiting, view.refused_reason) == (None, (), None)


async def test_nothing_is_written_up_or_down() -> None:
    world = _world()
    worker_set = make(world.settings("d"), clock=world.clock)
    assert not await worker_set.add("a", "o")
    assert await worker_set.remove(min(world.uids()))
    assert not world.kube.counts()


async def test_one_that_is_gone_and_one_that_cannot_hold_several_nodes_are_refused() -> None:
    world = _world()
    view = await make(world.settings("d", nodes_per_replica=2), clock=world.clock).observe()
    assert "leader_worker_set" in str(view.refused_reason)
    view = await make(world.settings("gone"), clock=world.clock).observe()
    assert "there is no DaemonSet" in str(view.refused_reason)


@pytest.mark.parametrize("kind", sorted(WORKER_SETS))
def test_every_kind_of_the_registry_can_be_made(kind: str) -> None:
    world = Workloads()
    assert make_worker_set(kind, world.settings("x", group="g"), clock=world.clock)


def test_a_kind_that_nobody_knows_is_refused_with_those_that_are_known() -> None:
    world = Workloads()
    with pytest.raises(ValueError, match="daemon_set, deployment"):
        make_worker_set("job", world.settings("x"), clock=world.clock)
