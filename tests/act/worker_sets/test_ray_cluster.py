"""A RayCluster's worker group as a worker set: the operator takes the named pod and never one by chance."""

from typing import Any

import pytest

from scaler.act.base import NotYet
from scaler.act.worker_sets.base import SetRefused
from scaler.act.worker_sets.ray_cluster import CLEARED_AFTER_S, WITHDRAWN_AFTER_S, RayWorkerGroup, make
from scaler.kube.contract import RAY_CLUSTERS, Json
from tests.builders.workloads import NAMESPACE, Workloads, ray_cluster, uid_of


class World(Workloads):
    """A RayCluster `r` whose pods run, and the worker set of its group `rollout`."""

    def __init__(self, replicas: int, *, seed: int = 0, spec: Json | None = None, **group: Any) -> None:
        super().__init__(seed=seed)
        self.kube.place(RAY_CLUSTERS, ray_cluster("r", replicas, spec=spec, **group), namespace=NAMESPACE)
        self.reconcile()
        self.run_pods()
        self.clock.pass_time(60)
        self.set = self.restarted()

    def restarted(self) -> RayWorkerGroup:
        return make(self.settings("r", group="rollout"), clock=self.clock)

    @property
    def group(self) -> Json:
        return dict(self.object(RAY_CLUSTERS, "r")["spec"]["workerGroupSpecs"][1])

    @property
    def named(self) -> list[str]:
        return list((self.group.get("scaleStrategy") or {}).get("workersToDelete") or [])

    def members(self) -> set[str]:
        """UIDs of the group's pods, going or not."""
        return {uid_of(pod) for pod in self.all_pods() if pod["metadata"]["labels"]["ray.io/group"] == "rollout"}


async def test_a_launch_raises_the_groups_count_once_and_leaves_the_rest_as_it_is() -> None:
    world = World(2)
    before = world.object(RAY_CLUSTERS, "r")["spec"]["workerGroupSpecs"]
    assert [await world.set.add("a", "o"), await world.set.add("a", "o")] == [True, False]
    after = world.object(RAY_CLUSTERS, "r")["spec"]["workerGroupSpecs"]
    assert after[0] == before[0]
    assert after[1] == {**before[1], "replicas": 3, "scaleStrategy": {"workersToDelete": []}}
    assert [launch.token for launch in (await world.set.observe()).waiting] == ["a"]
    old = world.members()
    world.reconcile()
    view = await world.set.observe()
    assert {pod.launch_token for pod in view.pods if pod.uid not in old} == {"a"}
    assert {pod.launch_token for pod in view.pods if pod.uid in old} == {""}


@pytest.mark.parametrize("seed", range(6))
async def test_bug_056_the_operator_deletes_the_named_worker_and_none_by_chance(seed: int) -> None:
    world = World(6, seed=seed)
    victim = sorted(world.members())[seed]
    rest = world.members() - {victim}
    for _ in range(4):
        if seed % 2:
            world.set = world.restarted()
        await world.set.remove(victim)
        world.reconcile()
    assert world.group["replicas"] == 5
    assert world.members() == rest | {victim}  # it still goes
    world.kube.end_pods()
    world.reconcile()
    assert await world.set.remove(victim)
    world.clock.pass_time(CLEARED_AFTER_S + 1)
    await world.set.observe()
    assert world.named == []
    world.reconcile()
    assert world.members() == rest


async def test_a_name_stays_while_its_pod_goes_whoever_scales_meanwhile() -> None:
    world = World(4)
    victim = min(world.members())
    await world.set.remove(victim)
    world.reconcile()
    named = world.named
    await world.set.add("a", "o")
    world.clock.pass_time(300)
    await world.set.observe()
    assert world.named == named != []
    world.reconcile()
    world.kube.end_pods()
    world.reconcile()
    assert len(world.members()) == 4
    assert victim not in world.members()


async def test_names_that_somebody_else_left_are_taken_away_with_the_next_list() -> None:
    world = World(2)
    groups = world.object(RAY_CLUSTERS, "r")["spec"]["workerGroupSpecs"]
    left = {**groups[1], "scaleStrategy": {"workersToDelete": ["long-gone"]}}
    world.edit(RAY_CLUSTERS, "r", {"spec": {"workerGroupSpecs": [groups[0], left]}})
    await world.set.observe()
    assert world.named == []
    assert world.group["replicas"] == 2


async def test_removals_of_several_pods_and_launches_end_at_the_sum_of_both() -> None:
    world = World(6)
    victims = set(sorted(world.members())[:3])
    rest = world.members() - victims
    for i, victim in enumerate(sorted(victims)):
        await world.set.remove(victim)
        if i < 2:
            await world.set.add(f"t{i}", "o")
        world.reconcile()
    for _ in range(3):
        world.kube.end_pods()
        world.reconcile()
        world.clock.pass_time(CLEARED_AFTER_S)
        await world.set.observe()
    assert rest < world.members()
    assert len(world.members()) == 5 == world.group["replicas"]
    assert sorted(pod.launch_token for pod in (await world.set.observe()).pods) == ["", "", "", "t0", "t1"]


async def test_bug_093_a_group_is_not_raised_above_its_max_replicas() -> None:
    world = World(3, maxReplicas=4)
    assert await world.set.add("a", "o")
    with pytest.raises(SetRefused, match="maxReplicas"):
        await world.set.add("b", "o")
    assert not await world.set.add("a", "o")
    assert world.group["replicas"] == 4


async def test_nothing_is_taken_out_at_min_replicas_since_it_would_come_again() -> None:
    world = World(2, minReplicas=2)
    with pytest.raises(SetRefused, match="minReplicas"):
        await world.set.remove(min(world.members()))
    assert world.group["replicas"] == 2
    assert world.named == []


async def test_a_launch_is_given_up_only_when_no_pod_can_be_on_its_way_for_it() -> None:
    world = World(2)
    members = world.members()
    await world.set.add("a", "o")
    with pytest.raises(NotYet, match="on its way"):
        await world.set.remove("a")
    world.clock.pass_time(WITHDRAWN_AFTER_S)
    assert await world.set.remove("a")
    world.reconcile()
    assert world.members() == members
    assert world.group["replicas"] == 2


async def test_a_pod_that_goes_by_itself_is_counted_as_the_operator_counts_it() -> None:
    world = World(3)
    await world.set.add("a", "o")
    world.reconcile()
    world.run_pods()
    await world.set.observe()
    world.delete_pod(min(world.members()))
    await world.set.add("b", "o")
    view = await world.set.observe()
    assert [launch.token for launch in view.waiting] == ["b"]
    world.reconcile()
    world.kube.end_pods()
    world.reconcile()
    view = await world.set.observe()
    assert not view.waiting
    assert len(view.pods) == 5 == view.desired


@pytest.mark.parametrize(
    ("spec", "group", "reason"),
    [
        pytest.param({"enableInTreeAutoscaling": True}, {}, "another owner: Ray's autoscaler", id="Ray's autoscaler"),
        pytest.param({"suspend": True}, {}, "suspended", id="suspended cluster"),
        pytest.param({}, {"suspend": True}, "suspended", id="suspended group"),
        pytest.param({}, {"numOfHosts": 4}, "several hosts", id="several hosts"),
        pytest.param({}, {"groupName": "other"}, "no worker group", id="no such group"),
    ],
)
async def test_a_group_that_we_may_not_scale_is_refused_and_never_written(
    spec: Json, group: dict[str, Any], reason: str
) -> None:
    world = World(2, spec=spec, **group)
    assert reason in str((await world.set.observe()).refused_reason)
    with pytest.raises(SetRefused):
        await world.set.add("a", "o")
    assert not any(verb == "patch" for verb, _ in world.kube.counts())


def test_a_ray_cluster_needs_the_name_of_its_group() -> None:
    world = Workloads()
    with pytest.raises(ValueError, match="group"):
        make(world.settings("r"), clock=world.clock)
