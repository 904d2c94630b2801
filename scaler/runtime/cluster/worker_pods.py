"""Which pods are a fleet's workers: those of the objects that its pools name, by owner and label, and any with the fleet's label.

Policy: judged by what the pod itself shows, so that it costs nothing to ask for every pod of a node. A Deployment's pods belong
to a ReplicaSet whose name is the Deployment's and a hash; those of the others carry their object's labels.
Non-goals: which replica a pod is; that is the worker set's to say.
"""

from collections.abc import Callable

from scaler.act.worker_sets.leader_worker_set import NAME_LABEL, TEMPLATE_LABEL
from scaler.act.worker_sets.ray_cluster import GROUP_LABEL
from scaler.config.providers import LocalProvider
from scaler.config.schema import RolloutFleet
from scaler.config.worker_sets import DaemonSet, Deployment, LeaderWorkerSet, RayCluster, WorkerSetModel
from scaler.kube.facts import FLEET_LABEL, PodFacts

RAY_CLUSTER_LABEL = "ray.io/cluster"


def is_worker(fleet: RolloutFleet, pod: PodFacts) -> bool:
    """Whether a pod is one of the fleet's worker pods."""
    own = fleet.metadata.namespace or "default"
    if pod.labels.get(FLEET_LABEL) == f"{own}.{fleet.metadata.name}":
        return True
    models = (
        pool.provider.worker_set
        for stage in fleet.spec.stages
        for pool in stage.pools
        if not isinstance(pool.provider, LocalProvider)
    )
    return any(pod.namespace == (model.namespace or own) and _is_of(model, pod) for model in models)


def workers_of(fleet: Callable[[], RolloutFleet]) -> Callable[[PodFacts], bool]:
    """The same, for whatever configuration is in use when it is asked."""
    return lambda pod: is_worker(fleet(), pod)


def _is_of(model: WorkerSetModel, pod: PodFacts) -> bool:
    match model:
        case DaemonSet():
            return (pod.owner_kind, pod.owner_name) == ("DaemonSet", model.name)
        case Deployment():
            return pod.owner_kind == "ReplicaSet" and pod.owner_name.rpartition("-")[0] == model.name
        case LeaderWorkerSet():
            return model.name in (pod.labels.get(NAME_LABEL), pod.labels.get(TEMPLATE_LABEL))
        case RayCluster():
            return (pod.labels.get(RAY_CLUSTER_LABEL), pod.labels.get(GROUP_LABEL)) == (model.name, model.group)
