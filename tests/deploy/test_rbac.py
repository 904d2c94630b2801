"""The controller under exactly the rights that the chart grants, on a real API server: nothing is denied, nothing is idle.

One run, in which fleets of every kind of pool and worker set grow, are noticed, are drained, shrink, are paused and released,
and a trainer is mended. What it asked of the API server is read from the audit log, what it asked of AWS from SimCloud's.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.fixtures import require
from tests.deploy.chart import NAMESPACE as SYSTEM
from tests.deploy.chart import RELEASE, ROOT, Json, of_kind, rendered, require_helm, the
from tests.deploy.fleets import MIXED, add_bystanders, add_mixed, add_trainer, guarded, mixed, pause
from tests.deploy.iam import action_of, allowed
from tests.deploy.rights import Audited, Right, audited, granted, of_role
from tests.e2e.cluster.base import CALLER, JOB, NAMESPACE
from tests.e2e.cluster.bed import Bed, a_bed

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(400)]

_WITH = ("controllers", "scheduler", "kwok", "karpenter", "kuberay", "lws")
_VALUES: Mapping[str, Any] = {
    "namespaces": [NAMESPACE],
    "karpenter": {"enabled": True},
    "leaderWorkerSet": {"enabled": True},
    "ray": {"enabled": True},
    "trainers": {"watch": True, "repair": [NAMESPACE]},
}
_CEILING, _FLOOR = 6, 2
_OPERATOR = "operator"
RARELY_USED = {
    ("", "pods", "delete"): (
        "past the deadline of a notice, where a disruption budget holds a pod",
        "tests/act/test_node_evictions.py::test_bug_029_a_budget_holds_a_pod_until_the_deadline_and_no_longer",
    ),
    ("karpenter.sh", "nodepools", "list"): (
        "a trainer on nodes of Karpenter",
        "tests/guard/test_real_parts.py::test_a_node_pool_with_karpenters_defaults_protects_nothing_and_a_protected_one_all",
    ),
}
"""Rights that a run of a minute does not come to, and the test that proves that they are needed."""
RARELY_RELEASED = {
    ("", "pods", "patch"): (
        "a launch whose pod has come, at the moment of the release",
        "tests/deploy/test_release.py::test_every_mark_of_the_fleet_goes_and_nothing_else_changes",
    ),
    ("karpenter.sh", "nodeclaims", "patch"): (
        "a claim is marked only while its replica goes",
        "tests/deploy/test_release.py::test_every_mark_of_the_fleet_goes_and_nothing_else_changes",
    ),
}
RARELY_CALLED = {
    "autoscaling:CompleteLifecycleAction": (
        "groups with lifecycle hooks",
        "tests/act/test_ec2_ending.py::test_one_that_waits_in_a_termination_hook_is_let_through",
    ),
    "autoscaling:DescribeLifecycleHooks": (
        "groups with lifecycle hooks",
        "tests/act/test_ec2_ending.py::test_one_that_waits_in_a_termination_hook_is_let_through",
    ),
    "autoscaling:SetDesiredCapacity": (
        "pools with up: set_desired_capacity",
        "tests/act/test_ec2_desired.py::test_launches_side_by_side_are_written_one_after_another",
    ),
    "ec2:DescribeCapacityReservations": (
        "trainers in reservations and capacity blocks",
        "tests/observe/test_trainer_instances.py::test_a_capacity_block_and_a_reservation_of_somebody_else",
    ),
    "ec2:TerminateInstances": (
        "detached instances that EC2 does not take",
        "tests/act/test_ec2_ending.py::test_a_detached_one_that_lives_too_long_is_reaped",
    ),
    "sqs:ChangeMessageVisibility": (
        "messages whose action takes longer to be recorded than they are hidden at first",
        "tests/interruptions/test_sqs.py::test_a_message_is_told_and_stays_until_its_action_is_recorded",
    ),
    "sqs:SendMessage": (
        "a dead-letter queue that we fill",
        "tests/interruptions/test_sqs.py::test_bug_011_poison_goes_to_the_dead_letters_once_and_stops_nothing",
    ),
}


class Run:
    """The run, as it went."""

    def __init__(self, bed: Bed, objects: list[Json]) -> None:
        self.bed = bed
        self.objects = objects
        self.account = f"system:serviceaccount:{SYSTEM}:{RELEASE}"

    @property
    def rights(self) -> list[Right]:
        """The controller's."""
        return granted(self.objects, RELEASE)

    def of(self, user: str) -> Audited:
        """What a user did so far."""
        return audited(self.bed.plane.audited(), user)

    def called(self) -> set[str]:
        """The IAM actions of all that we called on AWS."""
        return {action_of(call.service, call.operation) for call in self.bed.sim.log.calls if call.caller == CALLER}


async def _begin(bed: Bed) -> Run:
    """The chart's rights and settings, and a controller that has nothing else."""
    values = {
        **_VALUES,
        "aws": {"region": bed.sim.settings.region, "queueUrl": bed.queue_url, "endpointUrl": bed.endpoint},
    }
    objects = rendered(values)
    for each in of_kind(objects, "ServiceAccount", "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding"):
        await bed.kube.apply(each)
    settings = yaml.safe_load(the(objects, "ConfigMap")["data"]["controller.yaml"])
    settings["spec"] |= {"listen": "127.0.0.1:0", "stateDir": str(bed.folder / "state")}
    account = await asyncio.to_thread(bed.plane.service_account_kubeconfig, SYSTEM, RELEASE)
    bed.start_controller(kubeconfig=account, settings=settings)
    return Run(bed, objects)


async def _release(bed: Bed, name: str, kubeconfig: Path) -> str:
    words = ["release", name, "-n", NAMESPACE, "--kubeconfig", str(kubeconfig)]
    words += ["--controller", str(bed.folder / "controller-a.yaml")]
    env = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": CALLER,
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_EC2_METADATA_DISABLED": "true",
        "PYTHONPATH": str(ROOT),
    }
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "scaler.cli", *words],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def _as_operator(run: Run) -> Path:
    role = f"{RELEASE}-release"
    await run.bed.kube.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": _OPERATOR},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": _OPERATOR}],
        }
    )
    return await asyncio.to_thread(run.bed.plane.kubeconfig_for, _OPERATOR)


async def _grow_lose_and_shrink(bed: Bed) -> None:
    await bed.until("the ceiling", lambda: bed.serving(set()) == _CEILING, 120)
    gone = set(bed.sim.fate.reclaim(2))
    await bed.until("every noticed node is tainted", lambda: bed.tainted() >= gone)
    await bed.until("noticed instances have left their groups", lambda: gone.isdisjoint(bed.launched()), 120)
    bed.eat(1.0)
    await bed.until("the floor", lambda: len(bed.launched()) <= _FLOOR, 120)


async def test_what_is_granted_suffices_and_is_used(tmp_path: Path) -> None:
    require(*_WITH)
    require_helm()
    async with a_bed(tmp_path, with_=_WITH, audit=True) as bed:
        run = await _begin(bed)
        await add_trainer(bed)
        await add_mixed(bed)
        await add_bystanders(bed)
        bed.eat(80.0)
        await bed.fleet(trainers=guarded(), guardRails={"floor": _FLOOR, "ceiling": _CEILING})
        await bed.kube.create(mixed(bed.store.url))
        await _grow_lose_and_shrink(bed)
        await _until_all_is_used(run)
        operator = await _as_operator(run)
        for name in (JOB, MIXED):
            await pause(bed, name)
            await _release(bed, name, operator)
        bed.signal("a", signal.SIGTERM)
        await asyncio.to_thread(bed.controllers["a"].wait, 20)

        mine, theirs = run.of(run.account), run.of(_OPERATOR)
        assert mine.denied == theirs.denied == ()
        assert idle(run.rights, mine, RARELY_USED) == []
        releasing = list(of_role(the(run.objects, "ClusterRole", f"{RELEASE}-release")))
        assert idle(releasing, theirs, RARELY_RELEASED) == []
        assert run.called() <= allowed()
        assert allowed() - run.called() <= RARELY_CALLED.keys()


async def _until_all_is_used(run: Run) -> None:
    """The mixed fleet gives its replicas up one after another; what is missing in the end is told by the test."""
    with suppress(AssertionError):
        await run.bed.until("every right is used", lambda: not idle(run.rights, run.of(run.account), RARELY_USED), 60)


def idle(rights: Iterable[Right], by: Audited, rare: Container[tuple[str, str, str]]) -> list[Right]:
    """Rights that were not used and are not known to be rare."""
    common = [each for each in rights if each.what not in rare]
    return [each for each in common if not any(each.covers(use) for use in by.used)]


@pytest.mark.parametrize(
    ("reason", "proof"), sorted({*RARELY_USED.values(), *RARELY_RELEASED.values(), *RARELY_CALLED.values()})
)
def test_a_right_that_is_rarely_used_has_a_test_of_its_own(reason: str, proof: str) -> None:
    file, _, name = proof.partition("::")
    assert reason
    assert f"def {name}(" in (ROOT / file).read_text()
