"""A Deployment as a worker set: one pod more a token, one named pod less, whatever the ReplicaSet would rather do."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest

from scaler.act.base import NotYet, PoolUnavailable
from scaler.act.worker_sets.base import SetRefused
from scaler.act.worker_sets.deployment import COST_VALID_S, Deployment
from scaler.act.worker_sets.notes import KEPT, LAUNCHES_ANNOTATION
from scaler.act.worker_sets.replica_set_order import COST_ANNOTATION, LOWEST_MARK
from scaler.kube.contract import AUTOSCALERS, DEPLOYMENTS, PODS, Conflict, Denied, KubeUnreachable
from scaler.kube.facts import TOKEN_ANNOTATION
from tests.builders.workloads import NAMESPACE, Workloads, deployment, uid_of


class World(Workloads):
    """A Deployment `w` whose pods run, and its worker set."""

    def __init__(self, replicas: int, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.kube.place(DEPLOYMENTS, deployment("w", replicas), namespace=NAMESPACE)
        self.set = self.restarted()
        self.reconcile()
        self.run_pods()

    def restarted(self) -> Deployment:
        """Another controller's."""
        return Deployment(self.settings("w"), clock=self.clock)

    @property
    def count(self) -> int:
        return int(self.object(DEPLOYMENTS, "w")["spec"]["replicas"])

    def scale(self, replicas: int) -> None:
        self.edit(DEPLOYMENTS, "w", {"spec": {"replicas": replicas}})

    def cost(self, uid: str) -> Any:
        pod = next(pod for pod in self.all_pods() if uid_of(pod) == uid)
        return (pod["metadata"].get("annotations") or {}).get(COST_ANNOTATION)

    async def tokens(self) -> dict[str, str]:
        """Pod UID -> token, as observed."""
        return {pod.uid: pod.launch_token for pod in (await self.set.observe()).pods}


async def test_each_launch_raises_the_count_by_one_and_a_repeated_token_by_none() -> None:
    world = World(2)
    assert [await world.set.add(token, "o") for token in ("a", "b", "a")] == [True, True, False]
    assert world.count == 4
    assert not await world.restarted().add("b", "o")
    assert world.count == 4


async def test_a_launch_waits_until_its_pod_is_there_and_the_pod_is_told_its_token() -> None:
    world = World(2)
    await world.set.add("a", "type/zone/spot")
    (waiting,) = (await world.set.observe()).waiting
    assert (waiting.token, waiting.offering_id, waiting.since_s) == ("a", "type/zone/spot", world.clock.now_s())
    before = world.uids()
    world.reconcile()
    view = await world.set.observe()
    assert not view.waiting
    (new,) = [pod for pod in view.pods if pod.uid not in before]
    assert (new.launch_token, new.offering_id, new.replica_key) == ("a", "type/zone/spot", new.uid)
    assert {pod.launch_token for pod in view.pods if pod.uid in before} == {""}
    (told,) = [pod for pod in world.all_pods() if uid_of(pod) == new.uid]
    assert told["metadata"]["annotations"][TOKEN_ANNOTATION] == "a"


async def test_launches_are_settled_by_another_controller_after_a_crash_at_any_write() -> None:
    for crash_after in range(4):
        world = World(1)
        await world.set.add("a", "o")
        await world.set.add("b", "o")
        world.reconcile()
        old = world.uids()
        world.kube.fail_next("patch", "*", KubeUnreachable("no answer"), times=1, landed=crash_after % 2 == 0)
        for _ in range(crash_after):
            try:
                await world.set.observe()
            except PoolUnavailable:
                continue
        world.kube.heal()
        world.set = world.restarted()
        await world.set.observe()
        told = await world.tokens()
        assert sorted(told.values()) == ["", "a", "b"]
        assert world.uids() == old


async def test_a_pod_that_was_there_before_the_launch_never_answers_it_however_late_the_lists_are() -> None:
    world = World(3)
    adopted = world.uids()
    world.pods.freeze()
    await world.set.add("a", "o")
    world.reconcile()
    assert set((await world.tokens()).values()) == {""}
    world.pods.freeze(frozen=False)
    told = await world.tokens()
    assert {token for uid, token in told.items() if uid in adopted} == {""}
    assert [token for uid, token in told.items() if uid not in adopted] == ["a"]


async def test_of_pods_made_in_one_second_those_seen_before_the_launch_do_not_answer_it() -> None:
    world = World(8)
    adopted = world.uids()
    await world.set.observe()
    for token in ("a", "b"):
        await world.set.add(token, "o")
    world.reconcile()
    world.run_pods()
    told = await world.tokens()
    assert {token for uid, token in told.items() if uid in adopted} == {""}
    assert sorted(token for uid, token in told.items() if uid not in adopted) == ["a", "b"]


async def test_the_oldest_launch_gets_the_oldest_new_pod() -> None:
    world = World(0)
    order = []
    for token in ("b", "a", "c"):
        await world.set.add(token, "o")
        world.clock.pass_time(5)
        known = world.uids()
        world.reconcile()
        order += [(uid, token) for uid in world.uids() - known]
        world.clock.pass_time(5)
    assert await world.tokens() == dict(order)


async def test_pods_that_replace_lost_ones_answer_no_launch() -> None:
    world = World(2)
    await world.set.add("a", "o")
    world.reconcile()
    world.run_pods()
    told = await world.tokens()
    for uid in told:
        world.lose_pod(uid)
    world.reconcile()
    assert set((await world.tokens()).values()) == {""}
    assert not (await world.set.observe()).waiting


async def test_an_answered_launch_is_remembered_for_late_repeats_and_the_memory_is_bounded() -> None:
    world = World(0)
    for i in range(KEPT + 20):
        await world.set.add(f"t{i}", "o")
        world.reconcile()
        await world.set.observe()
    assert not await world.set.add(f"t{KEPT + 19}", "o")
    assert not await world.set.add("t30", "o")
    raw = world.object(DEPLOYMENTS, "w")["metadata"]["annotations"][LAUNCHES_ANNOTATION]
    assert len(json.loads(raw)[""]) <= KEPT + 1


async def test_a_write_that_others_were_quicker_than_is_made_anew_from_what_is_there_then() -> None:
    world = World(2)
    world.kube.fail_next("patch", "deployments", Conflict("changed", status=409), times=3)
    assert await world.set.add("a", "o")
    assert world.count == 3


async def test_a_launch_whose_answer_is_lost_is_not_made_twice() -> None:
    world = World(2)
    world.kube.fail_next("patch", "deployments", KubeUnreachable("no answer"), landed=True)
    with pytest.raises(PoolUnavailable):
        await world.set.add("a", "o")
    assert not await world.set.add("a", "o")
    assert world.count == 3


async def _remove(world: World, uid: str, times: int = 8) -> bool:
    """Repeat the removal as an actor does, with controllers and kubelet in between."""
    for _ in range(times):
        if await world.set.remove(uid):
            return True
        world.reconcile()
        world.kube.end_pods()
    return False


@pytest.mark.parametrize("seed", range(5))
async def test_bug_056_exactly_the_named_pod_goes_and_the_count_never_chooses_one(seed: int) -> None:
    world = World(6, seed)
    victim = sorted(world.uids())[seed]
    rest = world.uids() - {victim}
    assert await _remove(world, victim)
    assert world.count == 5
    world.reconcile()
    assert world.uids() == rest


async def test_a_removal_that_is_repeated_lowers_the_count_once_whichever_controller_repeats_it() -> None:
    world = World(4)
    victim = min(world.uids())
    for _ in range(5):
        assert not await world.set.remove(victim)
        world.set = world.restarted()
    assert world.count == 3
    world.reconcile()
    assert not await world.set.remove(victim)
    world.kube.end_pods()
    assert await world.set.remove(victim)
    assert await world.set.remove(victim)
    assert world.count == 3
    assert victim not in world.uids()


async def test_several_named_pods_go_together_and_no_other() -> None:
    world = World(8)
    victims = set(sorted(world.uids())[:3])
    rest = world.uids() - victims
    for _ in range(12):
        for victim in sorted(victims):
            try:
                await world.set.remove(victim)
            except NotYet:
                continue
        world.reconcile()
        world.kube.end_pods()
    assert world.count == 5
    assert world.uids() == rest
    assert (await world.set.observe()).desired == 5


async def test_pods_that_were_given_one_cost_by_two_controllers_are_told_apart() -> None:
    world = World(4)
    first, second = sorted(world.uids())[:2]
    for pod in world.all_pods():
        if uid_of(pod) in (first, second):
            world.edit(
                PODS, pod["metadata"]["name"], {"metadata": {"annotations": {COST_ANNOTATION: str(LOWEST_MARK)}}}
            )
    for _ in range(6):
        for uid in (first, second):
            with suppress(NotYet):
                await world.set.remove(uid)
        world.reconcile()
        world.kube.end_pods()
    assert world.count == 2
    assert world.uids().isdisjoint({first, second})


async def test_pods_that_are_named_at_one_moment_get_a_cost_each(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(6)
    named = sorted(world.uids())[:4]
    patch = world.kube.patch

    async def slowly(*words: Any, **more: Any) -> Any:
        for _ in range(20):
            await asyncio.sleep(0)
        return await patch(*words, **more)

    monkeypatch.setattr(world.kube, "patch", slowly)
    await asyncio.gather(*(world.set.remove(uid) for uid in named))
    assert len({world.cost(uid) for uid in named}) == len(named)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        pytest.param({"phase": "Pending", "unschedulable": True}, "not scheduled", id="unscheduled"),
        pytest.param({"phase": "Pending", "node": "n"}, "Pending", id="pending on a node"),
        pytest.param({"phase": "Running", "ready": False, "node": "n"}, "not ready", id="not ready"),
    ],
)
async def test_nothing_is_taken_out_while_the_replica_set_would_rather_take_another_pod(
    state: dict[str, Any], reason: str
) -> None:
    world = World(3)
    victim = min(world.uids())
    world.scale(4)
    known = world.uids()
    world.reconcile()
    (other,) = world.uids() - known
    world.set_pod(other, **state)
    assert not await world.set.remove(victim)
    with pytest.raises(NotYet, match=reason):
        await world.set.remove(victim)
    assert world.count == 4
    world.run_pods()
    world.set_pod(other, phase="Running", ready=True)
    assert await _remove(world, victim)
    assert victim not in world.uids()
    assert other in world.uids()


async def test_a_pod_that_waits_for_a_node_can_be_given_up_while_others_wait_too() -> None:
    world = World(2)
    known = world.uids()
    world.scale(5)
    world.reconcile()
    waiting = world.uids() - known
    victim = min(waiting)
    assert await _remove(world, victim)
    assert world.uids() == (known | waiting) - {victim}
    assert world.count == 4


async def test_where_another_pod_went_all_the_same_the_count_rises_again_and_the_named_one_goes_after() -> None:
    world = World(4)
    victim, unlucky = sorted(world.uids())[:2]
    await world.set.remove(victim)
    await world.set.remove(victim)
    assert world.count == 3
    world.set_pod(unlucky, phase="Running", ready=False)  # after the check, before the ReplicaSet acts
    world.reconcile()
    world.kube.end_pods()
    assert unlucky not in world.uids()
    with pytest.raises(NotYet, match="another pod went"):
        await world.set.remove(victim)
    assert world.count == 4
    world.reconcile()
    world.run_pods()
    assert await _remove(world, victim)
    assert world.count == 3
    assert len(world.uids()) == 3


async def test_nothing_is_taken_out_during_a_rollout() -> None:
    world = World(3)
    victim = min(world.uids())
    await world.set.remove(victim)
    template = {"metadata": {"labels": {"app": "w", "pod-template-hash": "new"}}}
    owner = world.object(DEPLOYMENTS, "w")
    newest = world._new_set({**owner, "spec": {**owner["spec"], "template": template}}, "new", 2)
    world.new_pod(newest, template["metadata"]["labels"])
    world.run_pods()
    with pytest.raises(NotYet, match="rollout"):
        await world.set.remove(victim)
    assert world.count == 3


async def test_a_mark_that_nobody_needs_any_more_is_taken_away() -> None:
    world = World(3)
    victim = min(world.uids())
    await world.set.remove(victim)
    await world.set.observe()
    assert world.cost(victim) is not None
    world.clock.pass_time(COST_VALID_S + 1)
    world.set = world.restarted()
    await world.set.observe()
    assert world.cost(victim) is None
    assert world.count == 3


async def test_bug_040_a_launch_without_a_pod_is_given_up_by_its_token() -> None:
    world = World(2)
    await world.set.add("a", "o")
    assert await world.set.remove("a")
    assert world.count == 2
    assert not (await world.set.observe()).waiting
    assert await world.set.remove("a")
    assert world.count == 2


async def test_a_launch_whose_pod_has_come_is_not_given_up_by_its_token() -> None:
    world = World(2)
    await world.set.add("a", "o")
    world.reconcile()
    with pytest.raises(NotYet, match="come meanwhile"):
        await world.set.remove("a")
    await world.set.observe()
    with pytest.raises(NotYet, match="come meanwhile"):
        await world.set.remove("a")
    assert world.count == 3


async def test_a_pod_that_failed_is_no_replica_any_more() -> None:
    world = World(2)
    failed = min(world.uids())
    world.set_pod(failed, phase="Failed")
    assert failed not in await world.tokens()
    assert await world.set.remove(failed)
    assert world.count == 2


async def test_a_count_set_by_hand_is_told_and_not_fought_over(capsys: pytest.CaptureFixture[str]) -> None:
    world = World(3)
    await world.set.add("a", "o")
    world.scale(7)
    view = await world.set.observe()
    assert view.desired == 7
    assert "worker_set_counted_by_others" in capsys.readouterr().out
    assert world.count == 7
    await world.set.observe()
    assert "worker_set_counted_by_others" not in capsys.readouterr().out
    await world.set.add("b", "o")
    assert world.count == 8


async def test_missing_is_what_others_have_yet_to_make_and_nothing_that_we_take_out_or_launch() -> None:
    world = World(4)
    victim, lost, *_ = sorted(world.uids())

    async def missing() -> int:
        return (await world.set.observe()).missing

    await world.set.add("a", "o")
    assert await missing() == 0
    world.reconcile()
    assert await missing() == 0
    world.run_pods()
    for _ in range(4):
        with suppress(NotYet):
            await world.set.remove(victim)
        assert await missing() == 0
        world.reconcile()
        assert await missing() == 0
    world.lose_pod(lost)
    assert await missing() == 1
    world.reconcile()
    assert await missing() == 0
    world.kube.end_pods()
    assert await missing() == 0
    assert victim not in world.uids()


async def test_a_pod_that_we_take_out_while_all_are_listed_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(4)
    victim = min(world.uids())
    await world.set.remove(victim)
    listed = world.kube.list

    async def meanwhile(*words: Any, **more: Any) -> Any:
        monkeypatch.setattr(world.kube, "list", listed)
        await world.set.remove(victim)
        world.reconcile()
        return await listed(*words, **more)

    monkeypatch.setattr(world.kube, "list", meanwhile)
    assert (await world.set.observe()).missing == 0
    assert world.count == 3


async def test_nothing_is_told_before_the_pods_were_listed() -> None:
    world = World(1)
    world.pods.listed = False
    with pytest.raises(PoolUnavailable, match="not been listed"):
        await world.set.observe()


async def test_an_object_that_is_gone_is_refused_and_one_that_cannot_be_read_is_not_known() -> None:
    world = World(1)
    world.kube.fail_next("get", "deployments", Denied("forbidden", status=403))
    with pytest.raises(PoolUnavailable):
        await world.set.observe()
    world.kube.store.remove(DEPLOYMENTS, NAMESPACE, "w", None, None)
    assert "there is no Deployment rl/w" in str((await world.set.observe()).refused_reason)
    with pytest.raises(SetRefused):
        await world.set.add("a", "o")


async def test_bug_090_a_deployment_made_anew_under_the_same_name_has_nothing_of_the_old_one() -> None:
    world = World(2)
    await world.set.add("a", "o")
    world.kube.store.remove(DEPLOYMENTS, NAMESPACE, "w", None, None)
    world.kube.place(DEPLOYMENTS, deployment("w", 1), namespace=NAMESPACE)
    view = await world.set.observe()
    assert (view.pods, view.waiting, view.desired) == ((), (), 1)


OWNERS = [
    pytest.param({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}}, "Kueue", id="Kueue"),
    pytest.param(
        {"metadata": {"annotations": {"rollout.argoproj.io/workload-generation": "1"}}},
        "Argo Rollout",
        id="Argo Rollouts",
    ),
    pytest.param(
        {"metadata": {"ownerReferences": [{"kind": "Model", "name": "m", "uid": "u", "controller": True}]}},
        "Model m",
        id="another controller",
    ),
]


@pytest.mark.parametrize(("patch", "name"), OWNERS)
async def test_another_owner_that_the_object_tells_of_is_refused(patch: dict[str, Any], name: str) -> None:
    world = World(1)
    world.edit(DEPLOYMENTS, "w", patch)
    reason = str((await world.set.observe()).refused_reason)
    assert reason.startswith("another owner: ")
    assert name in reason
    with pytest.raises(SetRefused, match="another owner"):
        await world.set.add("a", "o")


@pytest.mark.parametrize(
    ("labels", "kind", "found"),
    [
        pytest.param({}, "Deployment", "HorizontalPodAutoscaler h", id="HPA"),
        pytest.param({"scaledobject.keda.sh/name": "s"}, "Deployment", "KEDA's ScaledObject s", id="KEDA"),
        pytest.param({}, "StatefulSet", None, id="an HPA of another kind"),
    ],
)
async def test_bug_076_autoscalers_of_others_are_found_on_every_observe(
    labels: dict[str, str], kind: str, found: str | None
) -> None:
    world = World(1)
    assert (await world.set.observe()).refused_reason is None
    target = {"apiVersion": "apps/v1", "kind": kind, "name": "w"}
    body = {"metadata": {"name": "h", "labels": labels}, "spec": {"scaleTargetRef": target}}
    world.kube.place(AUTOSCALERS, body, namespace=NAMESPACE)
    reason = (await world.set.observe()).refused_reason
    assert reason == (None if found is None else f"another owner: {found}")
    world.kube.store.remove(AUTOSCALERS, NAMESPACE, "h", None, None)
    assert (await world.set.observe()).refused_reason is None


async def test_a_quiet_observe_writes_nothing() -> None:
    world = World(3)
    await world.set.observe()
    writes = {key: n for key, n in world.kube.counts().items() if key[0] not in ("get", "list", "watch")}
    assert not writes
    assert ("list", PODS.plural) not in world.kube.counts()
