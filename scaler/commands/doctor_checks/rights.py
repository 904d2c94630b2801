"""What a controller may have to do for this fleet, and whether whoever asks may do it: a review of access for each right.

The table says what the chart grants (`deploy/helm/headrace/templates/_rights.tpl`), by what makes it needed: `tests/deploy`
compares the two, so that neither can go its own way.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from scaler.commands.doctor_checks.base import Line, fail, not_looked, ok
from scaler.commands.doctor_checks.cluster_world import ClusterWorld, worker_namespaces
from scaler.config.controller import Controller, Election
from scaler.config.crd import NAME
from scaler.config.providers import AutoScalingGroupProvider, EksNodeGroupProvider, KarpenterProvider, LocalProvider
from scaler.config.schema import RolloutFleet
from scaler.kube.contract import KubeApi, KubeError, Resource
from scaler.model.trainers import RepairKind

ACCESS_REVIEWS = Resource(
    group="authorization.k8s.io", plural="selfsubjectaccessreviews", kind="SelfSubjectAccessReview", namespaced=False
)
SELF_REVIEWS = Resource(
    group="authentication.k8s.io", plural="selfsubjectreviews", kind="SelfSubjectReview", namespaced=False
)
_ACCOUNT = "system:serviceaccount:"
_ABOUT = "rights"
_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Right:
    """One verb on one resource. `namespace` empty: everywhere; `name` empty: of any name."""

    group: str
    resource: str
    """Plural, or `plural/subresource`."""
    verb: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        named = f" {self.name}" if self.name else ""
        return f"{self.verb} {kind}{named}" + (f" in {self.namespace}" if self.namespace else "")


_Rule = tuple[str, str, str]
"""Group, resource, verbs."""

_CLUSTER: tuple[_Rule, ...] = (("", "nodes", "get list watch patch"),)
_TRAINERS: tuple[_Rule, ...] = (
    ("", "pods", "list"),
    ("policy", "poddisruptionbudgets", "list"),
    ("scheduling.k8s.io", "priorityclasses", "list"),
)
_KARPENTER: tuple[_Rule, ...] = (
    ("", "pods", "list"),
    ("karpenter.sh", "nodepools", "get"),
    ("karpenter.sh", "nodeclaims", "list watch patch delete"),
)
_KARPENTER_AND_TRAINERS: tuple[_Rule, ...] = (("karpenter.sh", "nodepools", "list"),)
_FLEETS: tuple[_Rule, ...] = (
    ("headrace.dev", "rolloutfleets", "get list watch"),
    ("headrace.dev", "rolloutfleets/status", "patch"),
    ("", "configmaps", "get create update"),
    ("", "events", "create patch"),
)
_WORKERS: tuple[_Rule, ...] = (("", "pods", "list watch"),)
_ON_EC2: tuple[_Rule, ...] = (("", "pods/eviction", "create"), ("", "pods", "delete"))
_COUNTED: tuple[_Rule, ...] = (("autoscaling", "horizontalpodautoscalers", "list"),)
_SETS: dict[str, tuple[_Rule, ...]] = {
    "daemon_set": (),
    "deployment": (
        *_COUNTED,
        ("", "pods", "patch"),
        ("apps", "deployments", "get patch"),
        ("apps", "replicasets", "list"),
    ),
    "leader_worker_set": (
        *_COUNTED,
        ("leaderworkerset.x-k8s.io", "leaderworkersets", "get list create patch delete"),
    ),
    "ray_cluster": (*_COUNTED, ("", "pods", "patch"), ("ray.io", "rayclusters", "get patch")),
}
"""By the type of worker set."""
_REPAIRS: dict[RepairKind, tuple[_Rule, ...]] = {
    RepairKind.ANNOTATIONS: (("", "pods", "get patch"),),
    RepairKind.CHECKPOINT: (("", "pods", "get patch"),),
    RepairKind.DISRUPTION_BUDGET: (("policy", "poddisruptionbudgets", "get create"),),
    RepairKind.SCALE_IN_PROTECTION: (),
}


def needed(fleet: RolloutFleet, settings: Controller | None, election: Election) -> tuple[Right, ...]:
    """All that a controller of these settings may have to do for the fleet, each once. Settings None: of its namespace only."""
    own = fleet.metadata.namespace or "default"
    everywhere = settings is not None and not settings.spec.namespaces
    found = [
        Right(group="", resource="namespaces", verb="get", name="kube-system"),
        Right(group="apiextensions.k8s.io", resource="customresourcedefinitions", verb="get", name=NAME),
        Right(group="coordination.k8s.io", resource="leases", verb="create", namespace=election.namespace),
        *(
            Right(
                group="coordination.k8s.io",
                resource="leases",
                verb=verb,
                namespace=election.namespace,
                name=election.name,
            )
            for verb in ("get", "update")
        ),
        *_rights(_of_cluster(fleet), ""),
        *_rights(_FLEETS, "" if everywhere else own),
        *_of_workers(fleet, everywhere=everywhere),
        *_of_repairs(fleet, own),
    ]
    return tuple(sorted(set(found)))


def _rights(rules: Iterable[_Rule], namespace: str) -> Iterator[Right]:
    for group, resource, verbs in rules:
        for verb in verbs.split():
            yield Right(group=group, resource=resource, verb=verb, namespace=namespace)


def _of_cluster(fleet: RolloutFleet) -> Iterator[_Rule]:
    providers = [pool.provider for stage in fleet.spec.stages for pool in stage.pools]
    karpenter = any(isinstance(each, KarpenterProvider) for each in providers)
    yield from _CLUSTER
    if fleet.spec.trainers:
        yield from _TRAINERS
    if karpenter:
        yield from _KARPENTER
    if karpenter and fleet.spec.trainers:
        yield from _KARPENTER_AND_TRAINERS


def _of_workers(fleet: RolloutFleet, *, everywhere: bool) -> Iterator[Right]:
    own = fleet.metadata.namespace or "default"
    for place in {own, *worker_namespaces(fleet)}:
        yield from _rights(_WORKERS, "" if everywhere else place)
    for provider in (pool.provider for stage in fleet.spec.stages for pool in stage.pools):
        if isinstance(provider, LocalProvider):
            continue
        place = "" if everywhere else provider.worker_set.namespace or own
        yield from _rights(_SETS[provider.worker_set.type], place)
        if isinstance(provider, AutoScalingGroupProvider | EksNodeGroupProvider):
            yield from _rights(_ON_EC2, place)


def _of_repairs(fleet: RolloutFleet, own: str) -> Iterator[Right]:
    for trainer in fleet.spec.trainers:
        for kind in trainer.repair:
            yield from _rights(_REPAIRS[kind], trainer.namespace or own)


async def who_asks(reviews: KubeApi) -> str:
    """The user's name as the API server has it; empty where it does not say. `KubeError` where it does not answer."""
    body = {"apiVersion": SELF_REVIEWS.api_version, "kind": SELF_REVIEWS.kind}
    answer = await reviews.create(SELF_REVIEWS, body)
    return str(((answer.get("status") or {}).get("userInfo") or {}).get("username") or "")


async def rights(world: ClusterWorld) -> Sequence[Line]:
    """The controller's, where it is its account that asks; a person's say nothing of the controller's."""
    if world.fleet is None:
        return [not_looked(_ABOUT, "the fleet is not known", "see the line on the fleet")]
    wanted = needed(world.fleet, world.access.settings, world.election)
    try:
        lacking = await missing(world.access.reviews, wanted)
    except KubeError as error:
        return [not_looked(_ABOUT, str(error), "look again once it answers")]
    if not world.user.startswith(_ACCOUNT):
        may = f"{world.user or 'you'} may do {len(wanted) - len(lacking)} of {len(wanted)} things that this fleet needs"
        found = f"{may}; what the controller may is not known"
        return [not_looked(_ABOUT, found, world.in_its_pod)]
    if not lacking:
        return [ok(_ABOUT, f"all {len(wanted)} that this fleet needs are granted to {world.user}")]
    remedy = (
        "switch on in the chart's values what the fleet uses, and name its namespaces; rbac.yaml of the chart has them"
    )
    return [fail(_ABOUT, f"{world.user} may not {right}", remedy) for right in lacking]


async def missing(reviews: KubeApi, wanted: Sequence[Right]) -> list[Right]:
    """Those that are not granted to whoever asks. Any `KubeError`."""
    free = asyncio.Semaphore(_AT_ONCE)

    async def granted(right: Right) -> bool:
        async with free:
            answer = await reviews.create(ACCESS_REVIEWS, _review(right))
            return bool((answer.get("status") or {}).get("allowed"))

    allowed = await asyncio.gather(*map(granted, wanted))
    return [right for right, yes in zip(wanted, allowed, strict=True) if not yes]


def _review(right: Right) -> dict[str, object]:
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "verb": right.verb,
        "namespace": right.namespace,
        "name": right.name,
    }
    return {
        "apiVersion": ACCESS_REVIEWS.api_version,
        "kind": ACCESS_REVIEWS.kind,
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
