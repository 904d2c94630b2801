"""What the rest of Headrace asks of a Kubernetes API server: ten calls, raw JSON, errors told apart.

Policy: every call has a time-out of its own, passes one client-side token bucket (sized for mass interruption, not for a
quiet day), and is repeated within that time-out only where a repeat is harmless. Lists are whole or fail.
Invariants: nothing here caches; what is read is what the server said. A call that failed for lack of an answer may have
been carried out: callers re-read or repeat with preconditions.
Source of the shapes: Kubernetes API conventions.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

Json: TypeAlias = dict[str, Any]


class KubeError(Exception):
    """The server said no, or said nothing. `status` is HTTP's, 0 where no answer came."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after_s = retry_after_s


class KubeUnreachable(KubeError):
    """No answer in time, a broken connection, or a server that fails (5xx): nothing is known."""


class NotFound(KubeError):
    """404, and a UID (of a precondition, or in a patch's metadata) that names what is gone: success to who deletes."""


class Conflict(KubeError):
    """409: the object has changed since it was read, or exists already."""


class Gone(KubeError):
    """410, or a watch's ERROR event of that code: list anew."""


class TooMany(KubeError):
    """429: throttled, or an eviction that a disruption budget forbids now; `retry_after_s` where the server says."""


class Denied(KubeError):
    """401 or 403: credentials or RBAC."""


class Invalid(KubeError):
    """400 or 422: the server will not take this, ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A kind of object and where it is served."""

    group: str = ""
    """Empty: the core group."""
    version: str = "v1"
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As an object's `apiVersion` says it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, name: str = "", namespace: str | None = None, subresource: str = "") -> str:
        """The path under the server's address. `namespace` None with a namespaced resource: of all namespaces."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        place = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return root + place + "".join(f"/{part}" for part in (self.plural, name, subresource) if part)


NODES = Resource(plural="nodes", kind="Node", namespaced=False)
PODS = Resource(plural="pods", kind="Pod")
EVENTS = Resource(plural="events", kind="Event")
CONFIG_MAPS = Resource(plural="configmaps", kind="ConfigMap")
SECRETS = Resource(plural="secrets", kind="Secret")
NAMESPACES = Resource(plural="namespaces", kind="Namespace", namespaced=False)
LEASES = Resource(group="coordination.k8s.io", plural="leases", kind="Lease")
DEPLOYMENTS = Resource(group="apps", plural="deployments", kind="Deployment")
REPLICA_SETS = Resource(group="apps", plural="replicasets", kind="ReplicaSet")
DAEMON_SETS = Resource(group="apps", plural="daemonsets", kind="DaemonSet")
DISRUPTION_BUDGETS = Resource(group="policy", plural="poddisruptionbudgets", kind="PodDisruptionBudget")
PRIORITY_CLASSES = Resource(group="scheduling.k8s.io", plural="priorityclasses", kind="PriorityClass", namespaced=False)
AUTOSCALERS = Resource(
    group="autoscaling", version="v2", plural="horizontalpodautoscalers", kind="HorizontalPodAutoscaler"
)
DEFINITIONS = Resource(
    group="apiextensions.k8s.io", plural="customresourcedefinitions", kind="CustomResourceDefinition", namespaced=False
)
NODE_CLAIMS = Resource(group="karpenter.sh", plural="nodeclaims", kind="NodeClaim", namespaced=False)
NODE_POOLS = Resource(group="karpenter.sh", plural="nodepools", kind="NodePool", namespaced=False)
LEADER_WORKER_SETS = Resource(group="leaderworkerset.x-k8s.io", plural="leaderworkersets", kind="LeaderWorkerSet")
RAY_CLUSTERS = Resource(group="ray.io", plural="rayclusters", kind="RayCluster")
ROLLOUT_FLEETS = Resource(group="headrace.dev", version="v1alpha1", plural="rolloutfleets", kind="RolloutFleet")


class PatchType(StrEnum):
    """The media types of a patch. Lists are replaced by a merge patch: send `metadata.resourceVersion` with them."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A whole list, all of its pages, at one resource version."""

    items: tuple[Json, ...]
    resource_version: str


class Change(StrEnum):
    """What a watch tells."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """One event. The object of a bookmark holds its resource version only."""

    change: Change
    body: Json


class KubeApi(Protocol):
    """See the module's docstring. Every call may raise any `KubeError`."""

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Json:
        """One object. `NotFound` where there is none."""
        ...

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> Listing:
        """All objects, page after page. A list that expires between pages is begun again once, then `Gone`."""
        ...

    def pages(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncIterator[Listing]:
        """The same, a page at a time: who keeps little of each object never holds them all whole.

        Nothing may be concluded before the iterator has ended. `Gone` where the list expired between pages.
        """
        ...

    def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        time_out_s: float = 300.0,
        silent_s: float = 90.0,
    ) -> AsyncIterator[WatchEvent]:
        """Events after `resource_version`, bookmarks too, until the server ends the watch after `time_out_s`.

        Raises:
            Gone: the version is too old.
            KubeUnreachable: the connection broke, or nothing came for `silent_s`: half-open sockets look like that.
        """
        ...

    async def create(self, resource: Resource, body: Json, *, namespace: str | None = None) -> Json:
        """Make an object. `Conflict` where its name is taken."""
        ...

    async def replace(
        self, resource: Resource, name: str, body: Json, *, namespace: str | None = None, subresource: str = ""
    ) -> Json:
        """Put the whole object; `Conflict` where its `metadata.resourceVersion` is not the newest."""
        ...

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Json | Sequence[Json],
        *,
        namespace: str | None = None,
        subresource: str = "",
        patch_type: PatchType = PatchType.MERGE,
    ) -> Json:
        """Change part of an object; returns it whole."""
        ...

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        grace_s: int | None = None,
    ) -> None:
        """Delete; `NotFound` where it is gone, or where `uid` names another one of that name."""
        ...

    async def evict(self, name: str, *, namespace: str, pod_uid: str, grace_s: int | None = None) -> None:
        """Evict a pod, by its UID. `TooMany` where a budget forbids it now; `NotFound` where that very pod is gone."""
        ...

    def ahead_s(self) -> float | None:
        """Server's clock minus ours by the last answers' Date headers, good to a second; None before the first."""
        ...

    def counts(self) -> Mapping[tuple[str, str], int]:
        """Requests sent since start by (verb as RBAC names it, `plural` or `plural/subresource`)."""
        ...

    async def close(self) -> None:
        """Give connections up."""
        ...
