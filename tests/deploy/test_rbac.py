"""The controller under exactly the rights that the chart grants, on a real API server: nothing is denied, nothing is idle.

One run, in which fleets of every kind of pool and worker set grow, are noticed, are drained, shrink, are paused and released,
and a trainer is mended. What it asked of the API server is read from the audit log, what it asked of AWS from SimCloud's.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.fixtures import require
from tests.deploy.chart import NAMESPACE as SYSTEM
from tests.deploy.chart import RELEASE, ROOT, Json, of_kind, rendered, the
from tests.deploy.fleets import MIXED, add_mixed, add_trainer, guarded, mixed, pause
from tests.deploy.rights import Audited, Right, audited, granted, of_role
from tests.e2e.cluster.bed import CALLER, JOB, NAMESPACE, Bed, a_bed

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
    ("", "pods", "delete"): "past a deadline that a disruption budget holds up: tests/act/test_nodes.py",
}
"""Rights that a run of a minute does not come to, and what proves that they are needed."""
RARELY_CALLED: dict[str, str] = {}


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
        return audited(self.bed.plane.audit_log, user)

    def idle(self) -> list[Right]:
        """Rights of the controller's that were not used and are not known to be rare."""
        used = self.of(self.account).used
        rights = [each for each in self.rights if each.what not in RARELY_USED]
        return [each for each in rights if not any(each.covers(use) for use in used)]

    def called(self) -> set[tuple[str, str]]:
        """AWS operations of ours."""
        return {(call.service, call.operation) for call in self.bed.sim.log.calls if call.caller == CALLER}


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
    require(*_WITH, "helm")
    async with a_bed(tmp_path, with_=_WITH, audit=True) as bed:
        run = await _begin(bed)
        await add_trainer(bed)
        await add_mixed(bed)
        bed.eat(80.0)
        await bed.fleet(trainers=guarded(), guardRails={"floor": _FLOOR, "ceiling": _CEILING})
        await bed.kube.create(mixed(bed.store.url))
        await _grow_lose_and_shrink(bed)
        try:
            await bed.until("every right is used", lambda: not run.idle(), 60)
        except AssertionError:
            assert run.idle() == []
        operator = await _as_operator(run)
        for name in (JOB, MIXED):
            await pause(bed, name)
            print(await _release(bed, name, operator))
        await asyncio.sleep(3)
        bed.signal("a", signal.SIGTERM)
        bed.controllers["a"].wait(20)

        mine, theirs = run.of(run.account), run.of(_OPERATOR)
        print(json.dumps(sorted(map(str, run.called()))))
        assert mine.denied == theirs.denied == ()
        assert run.idle() == []
        unused = [
            each
            for each in of_role(the(run.objects, "ClusterRole", f"{RELEASE}-release"))
            if not any(each.covers(use) for use in theirs.used)
        ]
        assert unused == []
