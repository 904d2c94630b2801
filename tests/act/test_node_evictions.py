"""Nodes that go are emptied: every pod by its UID, by one order of deadline over budget over grace, each by itself."""

import pytest

from scaler.kube.contract import DISRUPTION_BUDGETS, PODS, KubeUnreachable, TooMany
from scaler.kube.facts import FLEET_LABEL
from tests.builders.node_bed import (
    FLEET,
    FOREIGN_TAINT,
    NOW_S,
    OTHER_FLEET,
    SPACE,
    a_bed,
    a_mark,
    a_victim,
    an_emptying,
)


async def test_pods_are_evicted_once_the_node_carries_its_taint() -> None:
    async with a_bed() as bed:
        bed.node("a", taints=[FOREIGN_TAINT])
        bed.pod("p", "a")
        keeping = bed.keep()
        refused = keeping.kube.fail_next("patch", "nodes", KubeUnreachable("away"), times=3)
        keeping.want(an_emptying("a"))
        await bed.settle(1.3)
        assert (refused.hit, bed.pods_left()) == (2, {"p": None})
        await bed.settle(10.0)
        assert bed.pods_left() == {"p": 30}
        assert keeping.sent("create", "pods/eviction") == 1


async def test_bug_039_a_pod_that_slipped_in_before_the_taint_is_evicted_too() -> None:
    async with a_bed() as bed:
        bed.node("a")
        keeping = bed.keep()
        await bed.settle()
        keeping.want(an_emptying("a"))
        await bed.settle(1.0)
        bed.pod("late", "a")
        await bed.settle(2.0)
        assert bed.pods_left() == {"late": 30}


async def test_a_noticed_node_is_emptied_only_when_its_time_comes() -> None:
    async with a_bed() as bed:
        bed.node("a")
        bed.pod("p", "a")
        keeping = bed.keep()
        keeping.want(a_mark("a", empty_from_s=NOW_S + 110.0))
        await bed.settle(109.0)
        assert bed.pods_left() == {"p": None}
        await bed.settle(2.5)
        assert bed.pods_left() == {"p": pytest.approx(8, abs=1)}, "without any word from the loop"


async def test_a_node_whose_pods_are_not_ours_to_evict_keeps_them() -> None:
    async with a_bed() as bed:
        bed.node("a")
        bed.pod("p", "a")
        keeping = bed.keep()
        keeping.want(a_mark("a", empty_from_s=None))
        await bed.settle(200.0)
        assert bed.pods_left() == {"p": None}


@pytest.mark.parametrize(
    ("pod", "goes"),
    [
        pytest.param({}, True, id="anybody's pod"),
        pytest.param({"owner": "ReplicaSet"}, True, id="a ReplicaSet's"),
        pytest.param({"owner": "DaemonSet"}, False, id="a daemon stays"),
        pytest.param({"owner": "DaemonSet", "labels": {FLEET_LABEL: FLEET}}, True, id="a worker of a DaemonSet goes"),
        pytest.param(
            {"owner": "DaemonSet", "labels": {FLEET_LABEL: OTHER_FLEET}}, False, id="another fleet's daemon stays"
        ),
        pytest.param({"labels": {FLEET_LABEL: OTHER_FLEET}}, True, id="another fleet's pod goes: the machine does"),
        pytest.param({"annotations": {"kubernetes.io/config.mirror": "x"}}, False, id="a static pod stays"),
        pytest.param({"phase": "Succeeded"}, False, id="what has finished stays"),
        pytest.param({"phase": "Failed"}, False, id="what has failed stays"),
        pytest.param({"phase": "Pending"}, True, id="what begins goes"),
        pytest.param(
            {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}, True, id="bug 030: guards are for our own choice"
        ),
    ],
)
async def test_bug_030_which_pods_go_from_a_node_that_is_taken(pod: dict[str, object], goes: bool) -> None:
    async with a_bed() as bed:
        bed.node("a")
        bed.pod("p", "a", **pod)  # type: ignore[arg-type]
        keeping = bed.keep()
        keeping.want(an_emptying("a"))
        await bed.settle(5.0)
        assert (bed.pods_left()["p"] is not None) == goes
        await bed.settle(200.0)
        assert (bed.pods_left()["p"] is not None) == goes


async def test_worker_pods_of_a_victim_are_left_to_who_takes_the_replica_out() -> None:
    """Evicted, a Deployment would make another, and the count would never fall."""
    async with a_bed() as bed:
        for node in ("victim", "taken"):
            bed.node(node)
            bed.pod(f"{node}-worker", node, owner="ReplicaSet")
            bed.pod(f"{node}-other", node)
        keeping = bed.keep(workers=frozenset({"victim-worker", "taken-worker"}))
        keeping.want(a_victim("victim", empty_from_s=0.0), an_emptying("taken"))
        await bed.settle(300.0)
        assert [name for name, grace in bed.pods_left().items() if grace is None] == ["victim-worker"]


async def test_bug_029_a_budget_holds_a_pod_until_the_deadline_and_no_longer() -> None:
    async with a_bed() as bed:
        bed.node("a")
        bed.pod("p", "a", labels={"app": "x"}, grace_s=60)
        bed.budget("x", allowed=0)
        keeping = bed.keep()
        keeping.want(an_emptying("a"))
        await bed.settle(114.0)
        assert bed.pods_left() == {"p": None}
        assert keeping.sent("delete", "pods") == 0
        assert 20 <= keeping.sent("create", "pods/eviction") <= 60, "asked again in a while, not all the time"
        await bed.settle(3.0)
        assert bed.pods_left() == {"p": pytest.approx(4, abs=1)}
        assert keeping.sent("delete", "pods") == 1


async def test_a_budget_that_opens_lets_the_pod_go_at_once() -> None:
    async with a_bed() as bed:
        bed.node("a")
        bed.pod("p", "a", labels={"app": "x"})
        bed.budget("x", allowed=0)
        keeping = bed.keep()
        keeping.want(an_emptying("a"))
        await bed.settle(10.0)
        await bed.kube.patch(DISRUPTION_BUDGETS, "x", {"spec": {"maxUnavailable": 1}}, namespace=SPACE)
        await bed.settle(4.0)
        assert bed.pods_left() == {"p": 30}
        assert keeping.sent("delete", "pods") == 0


async def test_bug_031_a_budget_is_never_overruled_by_our_own_choice() -> None:
    async with a_bed() as bed:
        bed.node("a")
        bed.pod("p", "a", labels={"app": "x"})
        bed.budget("x", allowed=0)
        keeping = bed.keep()
        keeping.want(a_victim("a", empty_from_s=0.0))
        await bed.settle(600.0)
        assert bed.pods_left() == {"p": None}
        assert keeping.sent("delete", "pods") == 0


@pytest.mark.parametrize(
    ("own_s", "left_s", "sent_s"),
    [
        pytest.param(30, 100.0, 30, id="its own"),
        pytest.param(600, 60.0, 59, id="what is left of the deadline"),
        pytest.param(0, 100.0, 1, id="at least a second"),
        pytest.param(None, 100.0, 30, id="the cluster's default"),
        pytest.param(30, 3.0, 2, id="deleted: what is left"),
        pytest.param(30, 0.0, 1, id="bug 032: at the deadline"),
        pytest.param(30, -500.0, 1, id="bug 032: long past the deadline"),
    ],
)
async def test_bug_032_grace_is_clamped(own_s: int | None, left_s: float, sent_s: int) -> None:
    async with a_bed() as bed:
        bed.node("a")
        bed.pod("p", "a", grace_s=own_s)
        keeping = bed.keep()
        await bed.settle()
        keeping.want(an_emptying("a", in_s=1.0 + left_s))
        await bed.settle(0.5)
        assert bed.pods_left() == {"p": sent_s}


async def test_a_pod_that_somebody_gave_longer_than_there_is_is_ended_in_time() -> None:
    async with a_bed() as bed:
        bed.node("a")
        bed.pod("p", "a")
        await bed.kube.delete(PODS, "p", namespace=SPACE, grace_s=14_400)
        keeping = bed.keep()
        keeping.want(an_emptying("a", in_s=60.0))
        await bed.settle(50.0)
        assert bed.pods_left() == {"p": 14_400}
        await bed.settle(30.0)
        assert bed.pods_left() == {"p": pytest.approx(4, abs=1)}
        assert keeping.sent("delete", "pods") == 1


async def test_bug_033_bug_020_a_pod_of_the_same_name_is_another_pod() -> None:
    async with a_bed() as bed:
        for name in "ab":
            bed.node(name)
        bed.pod("p", "a")
        bed.pod("p", "b", space="elsewhere")
        keeping = bed.keep()
        await bed.settle()
        keeping.kube.lag("create", "pods/eviction", 2.0, times=1)
        keeping.want(an_emptying("a"))
        await bed.settle(1.0)
        await bed.kube.delete(PODS, "p", namespace=SPACE, grace_s=0)
        bed.pod("p", "b")
        await bed.settle(30.0)
        pods = bed.kube.store.every(PODS, None)
        assert [("deletionTimestamp" in pod["metadata"], pod["spec"]["nodeName"]) for pod in pods] == [
            (False, "b"),
            (False, "b"),
        ]


async def test_bug_007_bug_036_one_pod_that_does_not_go_holds_no_other_up() -> None:
    async with a_bed() as bed:
        for name in ("held", "free"):
            bed.node(name)
            for number in range(5):
                bed.pod(f"{name}-{number}", name)
        bed.pod("stuck", "held", labels={"app": "x"})
        bed.budget("x", allowed=0)
        keeping = bed.keep()
        await bed.settle()
        keeping.kube.hang("create", "pods/eviction", times=2)
        keeping.want(an_emptying("held"), an_emptying("free"))
        await bed.settle(2.0)
        assert sum(grace is None for grace in bed.pods_left().values()) == 3
        await bed.settle(30.0)
        assert [name for name, grace in bed.pods_left().items() if grace is None] == ["stuck"]


async def test_bug_034_a_large_drain_asks_once_a_pod() -> None:
    async with a_bed() as bed:
        for node in range(100):
            bed.node(f"n{node}")
            for number in range(4):
                bed.pod(f"p{node}-{number}", f"n{node}")
        keeping = bed.keep()
        await bed.settle()
        keeping.want(*(an_emptying(f"n{node}") for node in range(100)))
        await bed.settle(5.0)
        assert None not in bed.pods_left().values()
        assert keeping.sent("create", "pods/eviction") == 400
        bed.kube.end_pods()
        await bed.settle(60.0)
        assert keeping.sent("create", "pods/eviction") == 400


async def test_an_eviction_whose_answer_was_lost_is_no_second_one() -> None:
    async with a_bed() as bed:
        bed.node("a")
        bed.pod("p", "a")
        keeping = bed.keep()
        keeping.kube.fail_next("create", "pods/eviction", KubeUnreachable("away"), times=1, landed=True)
        keeping.want(an_emptying("a"))
        await bed.settle(30.0)
        assert bed.pods_left() == {"p": 30}
        assert keeping.sent("create", "pods/eviction") == 1


async def test_a_throttled_eviction_waits_as_long_as_the_server_says() -> None:
    async with a_bed() as bed:
        bed.node("a")
        bed.pod("p", "a")
        keeping = bed.keep()
        busy = TooMany("busy", status=429, retry_after_s=7.0)
        keeping.kube.fail_next("create", "pods/eviction", busy, times=1)
        keeping.want(an_emptying("a"))
        await bed.settle(6.0)
        assert bed.pods_left() == {"p": None}
        await bed.settle(4.0)
        assert bed.pods_left() == {"p": 30}


async def test_a_drain_that_is_taken_back_evicts_nobody_any_more() -> None:
    async with a_bed() as bed:
        bed.node("a")
        bed.pod("p", "a", labels={"app": "x"})
        bed.budget("x", allowed=0)
        keeping = bed.keep()
        keeping.want(a_victim("a", empty_from_s=0.0))
        await bed.settle(5.0)
        keeping.want(owned="a")
        await bed.settle(1.0)
        sent = keeping.sent("create", "pods/eviction")
        await bed.settle(200.0)
        assert keeping.sent("create", "pods/eviction") == sent
        assert bed.pods_left() == {"p": None}
