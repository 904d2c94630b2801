"""The guard against parts that only the real thing has: Karpenter's NodePools, RBAC, moto's Auto Scaling groups."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from scaler.act.trainer_repairs import RepairOutcome
from scaler.kube.api import open_api
from scaler.kube.contract import DISRUPTION_BUDGETS, NODE_POOLS, Json, Resource
from scaler.model.trainers import CheckCode, RepairKind, Severity
from scaler.observe.trainer_instances import describe_members
from scaler.runtime.clock import SystemClock
from tests.builders.aws import aws_environment, moto_server, opened
from tests.builders.fake_kube import FakeKube
from tests.builders.guard import Guarding
from tests.builders.trainer_objects import TrainerOnApi
from tests.builders.trainers import codes
from tests.cluster.control_plane import ControlPlane
from tests.guard.test_drills import look
from tests.observe.test_trainer_instances import a_group

__all__ = ["aws_environment", "moto_server"]

ALARM, UNKNOWN = Severity.ALARM, Severity.UNKNOWN
RBAC = "rbac.authorization.k8s.io"
ROLES = Resource(group=RBAC, plural="roles", kind="Role")
ROLE_BINDINGS = Resource(group=RBAC, plural="rolebindings", kind="RoleBinding")
CLUSTER_ROLES = Resource(group=RBAC, plural="clusterroles", kind="ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource(group=RBAC, plural="clusterrolebindings", kind="ClusterRoleBinding", namespaced=False)
REVIEWS = Resource(
    group="authorization.k8s.io", plural="subjectaccessreviews", kind="SubjectAccessReview", namespaced=False
)

DEFAULTS: Json = {
    "template": {
        "spec": {
            "requirements": [],
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        }
    }
}
PROTECTED: Json = {
    "disruption": {"budgets": [{"nodes": "0"}], "consolidateAfter": "Never"},
    "template": {
        "spec": {
            "expireAfter": "Never",
            "requirements": [
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand", "reserved"]}
            ],
        }
    },
}


@pytest.mark.cluster
@pytest.mark.slow
async def test_a_node_pool_with_karpenters_defaults_protects_nothing_and_a_protected_one_all(
    karpenter_cluster: ControlPlane,
) -> None:
    clock = SystemClock()
    place = TrainerOnApi(api=open_api(karpenter_cluster.kubeconfig, clock=clock), clock=clock)
    await place.begin()
    name = place.of("pool")
    labels = {"karpenter.sh/nodepool": name}
    for number in range(2):
        await place.change_node(
            f"node-{number}", {"metadata": {"labels": labels, "annotations": {"karpenter.sh/do-not-disrupt": "true"}}}
        )
        pod = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}
        await place.change_pod(f"trainer-{number}", pod)
    await place.api.create(NODE_POOLS, {**_head(NODE_POOLS, name), "spec": DEFAULTS})
    try:
        guarding = await look(place)
        assert codes(guarding.watch.findings or ()) == {
            (CheckCode.NODE_POOL_BUDGETS, ALARM),
            (CheckCode.NODE_POOL_EXPIRY, ALARM),
            (CheckCode.NODE_POOL_CONSOLIDATION, ALARM),
        }
        await place.api.patch(NODE_POOLS, name, {"spec": PROTECTED})
        await look(place, guarding)
        assert guarding.watch.findings == ()
    finally:
        await place.api.delete(NODE_POOLS, name)
        await place.end()
        await place.api.close()


def _head(resource: Resource, name: str) -> Json:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}


READS = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": ["list"]},
]
"""What the guard reads in the whole cluster, besides the nodes that the controller watches anyway."""
NODE_REPAIRS = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}]
IN_ITS_NAMESPACE = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "get", "patch"]},
    {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["list", "get", "create"]},
]


@pytest.mark.cluster
async def test_with_the_permissions_that_it_needs_and_no_more_the_guard_sees_and_mends_all(
    api_server: ControlPlane,
) -> None:
    async with _as_user(api_server, READS + NODE_REPAIRS, IN_ITS_NAMESPACE) as (place, guarding):
        place.repair = frozenset(RepairKind)
        guarding.change(trainers=(place.trainer,))
        await place.api.delete(DISRUPTION_BUDGETS, "trainer", namespace=place.namespace)
        for taken in ("trainer-0", "trainer-1"):
            await place.change_pod(taken, {"metadata": {"annotations": None}})
        await place.change_node("node-0", {"metadata": {"annotations": None}})
        await look(place, guarding)
        assert guarding.watch.findings == ()
        assert {outcome for _, outcome in guarding.repaired} == {RepairOutcome.DONE}
        assert guarding.repaired.total() == 4
        used = {(verb, what) for verb, what in guarding.kube.counts()}
        allowed = {
            (verb, what)
            for rule in READS + NODE_REPAIRS + IN_ITS_NAMESPACE
            for what in rule["resources"]
            for verb in rule["verbs"]
        }
        assert used == allowed, "nothing is asked for that is not used"


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("cluster_wide", "in_namespace", "unknown"),
    [
        (READS, IN_ITS_NAMESPACE[:1], {CheckCode.DISRUPTION_BUDGET}),
        (READS[:1], IN_ITS_NAMESPACE, {CheckCode.PRIORITY, CheckCode.ROLLOUT_PREEMPTION}),
        (READS[1:], IN_ITS_NAMESPACE, {CheckCode.CO_TENANCY}),
    ],
    ids=["no budgets", "no priority classes", "no pods of others"],
)
async def test_what_rbac_hides_is_unknown_and_the_rest_is_seen(
    api_server: ControlPlane, cluster_wide: list[Json], in_namespace: list[Json], unknown: set[CheckCode]
) -> None:
    async with _as_user(api_server, cluster_wide, in_namespace) as (place, guarding):
        await look(place, guarding)
        assert codes(guarding.watch.findings or ()) == {(check, UNKNOWN) for check in unknown}
        assert guarding.watch.protected is None


@asynccontextmanager
async def _as_user(
    plane: ControlPlane, cluster_wide: list[Json], in_namespace: list[Json]
) -> AsyncIterator[tuple[TrainerOnApi, Guarding]]:
    """A trainer made by an administrator, and a guard that is somebody with these rules."""
    clock = SystemClock()
    place = TrainerOnApi(api=open_api(plane.kubeconfig, clock=clock), clock=clock)
    user = place.of("guard")
    client = open_api(plane.kubeconfig_for(user), clock=clock)
    await place.begin()
    await _grant(place, user, cluster_wide, in_namespace)
    yield place, Guarding(kube=client, clock=clock, trainers=(place.trainer,))
    for resource in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS):
        await place.api.delete(resource, user)
    await place.end()
    for api in (place.api, client):
        await api.close()


async def _grant(place: TrainerOnApi, user: str, cluster_wide: list[Json], in_namespace: list[Json]) -> None:
    roles = (
        (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, cluster_wide, None),
        (ROLES, ROLE_BINDINGS, in_namespace, place.namespace),
    )
    for role, binding, rules, namespace in roles:
        await place.api.create(role, {**_head(role, user), "rules": rules}, namespace=namespace)
        given = {
            "roleRef": {"kind": role.kind, "name": user, "apiGroup": RBAC},
            "subjects": [{"kind": "User", "name": user, "apiGroup": RBAC}],
        }
        await place.api.create(binding, {**_head(binding, user), **given}, namespace=namespace)
    await _until_granted(place, user, cluster_wide[-1], "")
    await _until_granted(place, user, in_namespace[-1], place.namespace)


async def _until_granted(place: TrainerOnApi, user: str, rule: Json, namespace: str) -> None:
    """The server's own view of RBAC follows its objects a moment later."""
    attributes = {
        "group": rule["apiGroups"][-1],
        "resource": rule["resources"][-1],
        "verb": rule["verbs"][-1],
        "namespace": namespace,
    }
    body: Json = {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind}
    body["spec"] = {"user": user, "resourceAttributes": attributes}
    while not (await place.api.create(REVIEWS, body))["status"]["allowed"]:
        await place.clock.sleep(0.05)


@pytest.mark.usefixtures("aws_environment")
async def test_scale_in_protection_is_found_missing_and_set_on_a_group(moto_server: str) -> None:
    clock = SystemClock()
    place = TrainerOnApi(api=FakeKube(clock), clock=clock)
    await place.begin()
    async with opened(moto_server, clock) as aws:
        _, ids = await a_group(aws, 2)
        place.repair = frozenset({RepairKind.SCALE_IN_PROTECTION})
        guarding = Guarding(kube=place.api, clock=clock, trainers=(place.trainer,), aws=aws)
        for number, each in enumerate(ids):
            await place.change_node(f"node-{number}", {"spec": {"providerID": f"aws:///us-east-1a/{each}"}})
        await look(place, guarding)
        assert codes(guarding.watch.findings or ()) == {(CheckCode.TERMINATION_PROTECTION, Severity.WARN)}
        assert guarding.repaired == {(RepairKind.SCALE_IN_PROTECTION, RepairOutcome.DONE): 2}
        assert all(member.protected for member in (await describe_members(aws, frozenset(ids))).values())
        assert guarding.protector.untouchable.instance_ids == set(ids)
