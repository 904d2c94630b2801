"""LeaderWorkerSets as a worker set: an object of its own for each replica, made after a template."""

import pytest

from scaler.act.base import PoolUnavailable
from scaler.act.worker_sets.base import SetRefused
from scaler.act.worker_sets.leader_worker_set import NAME_LABEL, TEMPLATE_LABEL, LeaderWorkerSets, make
from scaler.kube.contract import AUTOSCALERS, LEADER_WORKER_SETS, Json, KubeUnreachable
from tests.builders.kube_objects import dig
from tests.builders.workloads import NAMESPACE, Workloads, leader_worker_set, uid_of

SELECTOR = {"topology.kubernetes.io/zone": "us-west-2b"}


class World(Workloads):
    """A template `t` of groups of two, and its worker set."""

    def __init__(self, name: str = "t", *, replicas: int = 0, size: int = 2) -> None:
        super().__init__()
        self.name = name
        self.kube.place(LEADER_WORKER_SETS, leader_worker_set(name, replicas=replicas, size=size), namespace=NAMESPACE)
        self.set = self.restarted()

    def restarted(self) -> LeaderWorkerSets:
        settings = self.settings(self.name, nodes_per_replica=2, node_selectors={"o": SELECTOR})
        return make(settings, clock=self.clock)

    def copies(self) -> list[Json]:
        return [
            each for each in self.kube.store.every(LEADER_WORKER_SETS, None) if each["metadata"]["name"] != self.name
        ]

    async def launched(self, *tokens: str) -> None:
        for token in tokens:
            await self.set.add(token, "o")
        self.reconcile()
        self.run_pods()

    async def keys(self) -> dict[str, set[str]]:
        """Replica key -> UIDs of its pods, as observed."""
        found: dict[str, set[str]] = {}
        for pod in (await self.set.observe()).pods:
            found.setdefault(pod.replica_key, set()).add(pod.uid)
        return found


async def test_each_launch_makes_one_object_bound_to_its_offering_and_owned_by_the_template() -> None:
    world = World()
    assert [await world.set.add("a", "o"), await world.restarted().add("a", "o")] == [True, False]
    (copy,) = world.copies()
    template = world.object(LEADER_WORKER_SETS, "t")
    assert copy["spec"]["replicas"] == 1
    assert dig(copy, "spec.leaderWorkerTemplate.workerTemplate.spec.nodeSelector") == SELECTOR
    assert dig(copy, "spec.leaderWorkerTemplate.workerTemplate.metadata.labels") == {"app": "t", TEMPLATE_LABEL: "t"}
    assert copy["metadata"]["ownerReferences"][0]["uid"] == template["metadata"]["uid"]
    assert template["spec"]["replicas"] == 0


async def test_a_replica_is_all_pods_of_its_object_with_the_launch_that_made_it() -> None:
    world = World()
    await world.set.add("a", "o")
    (waiting,) = (await world.set.observe()).waiting
    assert (waiting.token, waiting.offering_id) == ("a", "o")
    world.reconcile()
    await world.launched("b")
    view = await world.set.observe()
    assert (len(view.pods), view.desired, view.waiting) == (4, 2, ())
    assert {(pod.launch_token, pod.offering_id) for pod in view.pods} == {("a", "o"), ("b", "o")}
    assert sorted(map(len, (await world.keys()).values())) == [2, 2]


async def test_the_named_replica_goes_whole_and_no_other() -> None:
    world = World()
    await world.launched("a", "b", "c")
    keys = await world.keys()
    victim = sorted(keys)[1]
    assert not await world.set.remove(victim)
    world.reconcile()
    assert not await world.set.remove(victim)
    view = await world.set.observe()
    assert {pod.uid for pod in view.pods if pod.terminating} == keys[victim]
    assert {pod.replica_key for pod in view.pods} == set(keys)
    assert view.desired == 2
    world.kube.end_pods()
    assert await world.set.remove(victim)
    assert await world.keys() == {key: pods for key, pods in keys.items() if key != victim}


async def test_pods_of_an_object_that_is_gone_go_even_before_they_are_told() -> None:
    world = World()
    await world.launched("a")
    (key,) = await world.keys()
    await world.set.remove(key)
    assert all(pod.terminating and pod.replica_key == key for pod in (await world.set.observe()).pods)


async def test_a_token_never_makes_a_second_object_though_the_first_was_taken_out() -> None:
    world = World()
    await world.launched("a")
    (key,) = await world.keys()
    await world.set.remove(key)
    world.reconcile()
    world.kube.end_pods()
    assert not await world.restarted().add("a", "o")
    assert not world.copies()


async def test_a_launch_without_pods_is_given_up_by_its_token() -> None:
    world = World()
    await world.set.add("fleet/a:1", "o")
    assert not await world.set.remove("fleet/a:1")
    assert await world.set.remove("fleet/a:1")
    assert not world.copies()


async def test_a_create_whose_answer_is_lost_is_not_made_twice() -> None:
    world = World()
    world.kube.fail_next("create", "leaderworkersets", KubeUnreachable("no answer"), landed=True)
    with pytest.raises(PoolUnavailable):
        await world.set.add("a", "o")
    assert not await world.set.add("a", "o")
    assert len(world.copies()) == 1


async def test_a_group_that_is_made_anew_keeps_its_key_and_its_old_pods_are_not_it() -> None:
    world = World()
    await world.launched("a")
    ((key, old),) = (await world.keys()).items()
    for uid in old:
        world.delete_pod(uid)
    view = await world.set.observe()
    assert {pod.replica_key for pod in view.pods} == {f"{key}.before"}
    assert [launch.token for launch in view.waiting] == ["a"]
    assert not await world.set.remove(f"{key}.before")
    world.clock.pass_time(500)
    assert (await world.set.observe()).waiting[0].since_s == world.clock.now_s() - 500
    world.kube.end_pods()
    world.reconcile()
    keys = await world.keys()
    assert set(keys) == {key}
    assert not keys[key] & old
    assert await world.set.remove(f"{key}.before")
    assert len(world.copies()) == 1


async def test_bug_059_an_object_of_that_name_that_is_not_ours_is_left_alone() -> None:
    world = World()
    await world.launched("a")
    (key,) = await world.keys()
    world.kube.store.remove(LEADER_WORKER_SETS, NAMESPACE, key, None, None)
    for pod in world.all_pods():
        world.lose_pod(uid_of(pod))
    world.kube.place(LEADER_WORKER_SETS, leader_worker_set(key, replicas=1), namespace=NAMESPACE)
    assert await world.set.remove(key)
    assert [each["metadata"]["name"] for each in world.copies()] == [key]


async def test_pods_of_others_groups_are_not_ours() -> None:
    world = World()
    world.kube.place(LEADER_WORKER_SETS, leader_worker_set("else", replicas=1), namespace=NAMESPACE)
    world.reconcile()
    assert (await world.set.observe()).pods == ()


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        pytest.param({"replicas": 3}, "set its replicas to 0", id="it has replicas of its own"),
        pytest.param({"size": 4}, "4 pods a group where a replica has 2 nodes", id="wrong size"),
    ],
)
async def test_a_template_of_the_wrong_shape_is_refused(template: dict[str, int], reason: str) -> None:
    world = World("t", **template)
    assert reason in str((await world.set.observe()).refused_reason)
    with pytest.raises(SetRefused, match="LeaderWorkerSet"):
        await world.set.add("a", "o")


async def test_an_autoscaler_of_the_template_is_another_owner() -> None:
    world = World()
    target = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "t"}
    body = {"metadata": {"name": "h"}, "spec": {"scaleTargetRef": target}}
    world.kube.place(AUTOSCALERS, body, namespace=NAMESPACE)
    assert (await world.set.observe()).refused_reason == "another owner: HorizontalPodAutoscaler h"


async def test_replicas_are_still_listed_and_removed_where_the_template_is_gone() -> None:
    world = World()
    await world.launched("a")
    (key,) = await world.keys()
    world.kube.store.remove(LEADER_WORKER_SETS, NAMESPACE, "t", None, None)
    view = await world.set.observe()
    assert "there is no LeaderWorkerSet" in str(view.refused_reason)
    assert len(view.pods) == 2
    assert not await world.set.remove(key)
    assert not world.copies()


async def test_names_leave_room_for_what_the_controller_adds() -> None:
    world = World("a-template-with-a-name-that-is-as-long-as-one-may-be-by-the-rules")
    await world.launched("a")
    (pod, *_) = world.all_pods()
    assert len(pod["metadata"]["labels"][NAME_LABEL]) <= 51
