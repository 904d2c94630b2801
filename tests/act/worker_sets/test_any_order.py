"""Launches, removals, evictions, failures and new controllers in any order: no pod goes but those named or evicted."""

import asyncio
from contextlib import suppress
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scaler.act.base import NotYet, PoolUnavailable
from scaler.act.worker_sets.base import WorkerSet
from scaler.act.worker_sets.registry import make_worker_set
from scaler.kube.contract import DEPLOYMENTS, RAY_CLUSTERS, Conflict, Json, KubeUnreachable
from tests.builders.kube_objects import dig
from tests.builders.workloads import NAMESPACE, Workloads, deployment, ray_cluster, uid_of

FAILURES = (KubeUnreachable("no answer"), Conflict("changed", status=409))


class AnyOrder(RuleBasedStateMachine):
    """One object with a count; `kind` says which."""

    kind = ""

    @initialize(replicas=st.integers(0, 4), seed=st.integers(0, 1000))
    def begin(self, replicas: int, seed: int) -> None:
        self.runner = asyncio.Runner()
        self.world = Workloads(seed=seed)
        self.resource, body = self._object(replicas)
        self.world.kube.place(self.resource, body, namespace=NAMESPACE)
        self.world.reconcile()
        self.world.run_pods()
        self.world.clock.pass_time(60)
        self.set = self._restarted()
        self.tokens: list[str] = []
        self.victims: list[str] = []
        self.evicted: set[str] = set()
        self.seen = {uid_of(pod) for pod in self._members()}
        self.wanted = replicas

    def _object(self, replicas: int) -> tuple[Any, Json]:
        if self.kind == "deployment":
            return DEPLOYMENTS, deployment("x", replicas)
        return RAY_CLUSTERS, ray_cluster("x", replicas)

    def _restarted(self) -> WorkerSet:
        return make_worker_set(self.kind, self.world.settings("x", group="rollout"), clock=self.world.clock)

    def _members(self) -> list[Json]:
        return [pod for pod in self.world.all_pods() if dig(pod, "metadata.labels")["ray.io/group"] == "rollout"]

    def _live(self) -> list[str]:
        """UIDs in the order of names, which come out of the seed."""
        pods = sorted(self._members(), key=lambda pod: str(pod["metadata"]["name"]))
        return [uid_of(pod) for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def _count(self) -> int:
        spec = self.world.object(self.resource, "x")["spec"]
        return int(spec["workerGroupSpecs"][1]["replicas"])

    def _do(self, work: Any) -> Any:
        return self.runner.run(work)

    @rule()
    def launch(self) -> None:
        token = f"t{len(self.tokens)}"
        self.tokens.append(token)
        self.wanted += 1
        for _ in range(3):
            with suppress(PoolUnavailable):
                self._do(self.set.add(token, "o"))
                return
        self.world.kube.heal()
        self._do(self.set.add(token, "o"))

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def repeat_a_launch(self, data: st.DataObject) -> None:
        with suppress(PoolUnavailable):
            assert not self._do(self.set.add(data.draw(st.sampled_from(self.tokens)), "o"))

    @rule(data=st.data())
    def name_a_victim(self, data: st.DataObject) -> None:
        free = [uid for uid in self._live() if uid not in self.victims]
        if free:
            self.victims.append(data.draw(st.sampled_from(free)))
            self.wanted -= 1

    @rule()
    def remove(self) -> None:
        for uid in self.victims:
            with suppress(NotYet, PoolUnavailable):
                self._do(self.set.remove(uid))

    @rule(data=st.data())
    def evict(self, data: st.DataObject) -> None:
        free = [uid for uid in self._live() if uid not in self.victims]
        if free:
            uid = data.draw(st.sampled_from(free))
            self.evicted.add(uid)
            self.world.delete_pod(uid)

    @rule()
    def controllers(self) -> None:
        self.world.reconcile()

    @rule()
    def pods_run(self) -> None:
        self.world.run_pods()

    @rule()
    def pods_end(self) -> None:
        self.world.kube.end_pods()

    @rule()
    def observe(self) -> None:
        with suppress(PoolUnavailable):
            self._do(self.set.observe())

    @rule(late=st.booleans())
    def lists_are_late_or_catch_up(self, late: bool) -> None:
        self.world.pods.freeze(frozen=late)

    @rule()
    def new_controller(self) -> None:
        self.set = self._restarted()

    @rule(error=st.sampled_from(FAILURES), landed=st.booleans())
    def a_write_fails(self, error: Exception, landed: bool) -> None:
        self.world.kube.fail_next("patch", "*", error, landed=landed and isinstance(error, KubeUnreachable))

    @rule(seconds=st.integers(1, 20))
    def time(self, seconds: int) -> None:
        self.world.clock.pass_time(seconds)

    @invariant()
    def no_other_pod_goes(self) -> None:
        if not hasattr(self, "world"):
            return
        live = set(self._live())
        self.seen |= live
        assert self.seen - live <= self.evicted.union(self.victims)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.kube.heal()
        self.world.pods.freeze(frozen=False)
        for _ in range(12):
            self.remove()
            self.observe()
            self.world.reconcile()
            self.world.run_pods()
            self.world.kube.end_pods()
            self.world.clock.pass_time(15)
            self.no_other_pod_goes()
        view = self._do(self.set.observe())
        live = set(self._live())
        assert self._count() == self.wanted == len(live)
        assert not live.intersection(self.victims)
        assert not view.waiting
        told = [pod.launch_token for pod in view.pods if pod.launch_token]
        assert len(told) == len(set(told))
        self.runner.close()


class Deployments(AnyOrder):
    kind = "deployment"

    def _members(self) -> list[Json]:
        return self.world.all_pods()

    def _count(self) -> int:
        return int(self.world.object(self.resource, "x")["spec"]["replicas"])


class RayGroups(AnyOrder):
    kind = "ray_cluster"


_LIMITS = settings(max_examples=40, stateful_step_count=30)
TestDeployments = Deployments.TestCase
TestDeployments.settings = _LIMITS
TestRayGroups = RayGroups.TestCase
TestRayGroups.settings = _LIMITS
