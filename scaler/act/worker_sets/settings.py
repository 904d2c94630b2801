"""What every worker set is handed: the API server, the watched pods, and which object it is."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from scaler.kube.contract import KubeApi
from scaler.kube.facts import PodIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSetSettings:
    """A worker set's object and the ports to it."""

    kube: KubeApi
    pods: PodIndex
    namespace: str
    name: str
    group: str = ""
    """The worker group, where the object is a RayCluster."""
    nodes_per_replica: int = 1
    node_selectors: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Offering id -> labels that its nodes carry: where one object stands for one replica, they place it."""

    def __str__(self) -> str:
        """As messages name it."""
        return f"{self.namespace}/{self.name}"
