"""Kubernetes objects for tests, and a client that makes many at once and waits for what must come.

The builders give plain JSON objects with the least that the API server takes; keyword arguments fill in what a test is
about. `Kube` speaks to a `tests.cluster` control plane, or to whatever a kubeconfig names.
"""

import asyncio
import hashlib
import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

import aiohttp
import yaml

from tests.cluster.paths import JsonObject, collection_of, path_of

GPU = "nvidia.com/gpu"
_PATIENCE_S = 60.0
"""How long a test waits for what must come; two busy cores make everything slow."""
_AGAIN_S = 0.1
_GATHER_S = 0.01
"""Events that come in a burst are judged together."""


def node(
    name: str,
    *,
    instance_id: str | None = None,
    zone: str = "us-west-2a",
    instance_type: str = "p5.48xlarge",
    capacity_type: str = "spot",
    gpus: int = 8,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Sequence[JsonObject] = (),
) -> JsonObject:
    """A node as EKS registers it; with kwok it becomes Ready, and pods run on it."""
    instance_id = instance_id or instance_id_of(name)
    room = {"cpu": "192", "memory": "2048Gi", "pods": "110", GPU: str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/zone": zone,
                "topology.kubernetes.io/region": zone[:-1],
                "node.kubernetes.io/instance-type": instance_type,
                "eks.amazonaws.com/capacityType": capacity_type.replace("-", "_").upper(),
                **(labels or {}),
            },
            "annotations": dict(annotations or {}),
        },
        "spec": {"providerID": f"aws:///{zone}/{instance_id}", "taints": list(taints)},
        "status": {"capacity": room, "allocatable": room},
    }


def instance_id_of(name: str) -> str:
    """The instance that a node of this name stands for, where the test does not say."""
    return f"i-0{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def nodes(count: int, prefix: str, **options: Any) -> list[JsonObject]:
    """So many nodes, `prefix`-0 and on."""
    return [node(f"{prefix}-{i}", **options) for i in range(count)]


def namespace(name: str) -> JsonObject:
    """A namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def pod_spec(
    *, gpus: int = 0, node_name: str | None = None, tolerations: Sequence[JsonObject] = (), **more: Any
) -> JsonObject:
    """One container that does nothing; `gpus` devices asked for."""
    limits = {GPU: str(gpus)} if gpus else {}
    return {
        "containers": [{"name": "main", "image": "none", "resources": {"limits": limits, "requests": {"cpu": "1"}}}],
        "tolerations": list(tolerations),
        **({"nodeName": node_name} if node_name else {}),
        **more,
    }


def pod(name: str, *, within: str = "default", labels: Mapping[str, str] | None = None, **spec: Any) -> JsonObject:
    """A pod; with `node_name` it needs no scheduler."""
    metadata = {"name": name, "namespace": within, "labels": dict(labels or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(**spec)}


def deployment(name: str, replicas: int, *, within: str = "default", **spec: Any) -> JsonObject:
    """A Deployment whose pods carry the label app=`name`."""
    return _workload("Deployment", name, within, spec, replicas=replicas)


def daemon_set(name: str, *, within: str = "default", **spec: Any) -> JsonObject:
    """A DaemonSet whose pods carry the label app=`name`."""
    return _workload("DaemonSet", name, within, spec)


def _workload(kind: str, name: str, within: str, spec: Mapping[str, Any], **more: Any) -> JsonObject:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": within},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": _template(name, spec), **more},
    }


def _template(name: str, spec: Mapping[str, Any]) -> JsonObject:
    return {"metadata": {"labels": {"app": name}}, "spec": pod_spec(**spec)}


def ray_cluster(
    name: str, replicas: int, *, within: str = "default", group: str = "rollout", **spec: Any
) -> JsonObject:
    """A RayCluster with one worker group; its head asks for no GPU."""
    workers = {
        "groupName": group,
        "replicas": replicas,
        "minReplicas": 0,
        "maxReplicas": 1000,
        "rayStartParams": {},
        "template": {"spec": pod_spec(**spec)},
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, "namespace": within},
        "spec": {
            "headGroupSpec": {"rayStartParams": {}, "template": {"spec": pod_spec()}},
            "workerGroupSpecs": [workers],
        },
    }


def leader_worker_set(name: str, replicas: int, size: int, *, within: str = "default", **spec: Any) -> JsonObject:
    """A LeaderWorkerSet of `replicas` groups of `size` pods each, the leader among them."""
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name, "namespace": within},
        "spec": {
            "replicas": replicas,
            "leaderWorkerTemplate": {"size": size, "workerTemplate": _template(name, spec)},
        },
    }


def node_pool(name: str, *, requirements: Sequence[JsonObject] = (), **spec: Any) -> list[JsonObject]:
    """A Karpenter NodePool of Spot nodes that consolidates only what is empty, and the node class it names."""
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": name}
    spot = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}
    template = {"spec": {"nodeClassRef": reference, "requirements": [spot, *requirements], "expireAfter": "Never"}}
    disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s"}
    return [
        {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": name}},
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": name},
            "spec": {"template": template, "disruption": disruption, **spec},
        },
    ]


class HasKubeconfig(Protocol):
    """A control plane, say."""

    @property
    def kubeconfig(self) -> Path:
        """Where an API server is, and who we are to it."""
        ...


class Kube:
    """A client: raw JSON, errors raised (`aiohttp.ClientResponseError`), nothing retried but in `until`."""

    def __init__(self, session: aiohttp.ClientSession, at_once: int = 32) -> None:
        self._session = session
        self._slots = asyncio.Semaphore(at_once)

    @classmethod
    @asynccontextmanager
    async def of(cls, where: HasKubeconfig | Path) -> AsyncIterator[Self]:
        """A client of a control plane as its administrator, or as whom a kubeconfig file says."""
        config = yaml.safe_load((where if isinstance(where, Path) else where.kubeconfig).read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        if "client-certificate" in user:
            context.load_cert_chain(user["client-certificate"], user["client-key"])
        async with aiohttp.ClientSession(
            cluster["server"],
            connector=aiohttp.TCPConnector(ssl=context),
            headers={"Authorization": f"Bearer {user['token']}"} if "token" in user else None,
            raise_for_status=_refusals,
        ) as session:
            yield cls(session)

    async def get(self, path: str) -> JsonObject:
        """What is at `path`."""
        return await self._send("GET", path)

    async def create(self, obj: JsonObject) -> JsonObject:
        """Make it; its status too, where the API server takes that on creation (nodes)."""
        return await self._send("POST", collection_of(obj), obj)

    async def create_all(self, objs: Iterable[JsonObject]) -> None:
        """Make many, 32 at a time."""
        async with asyncio.TaskGroup() as group:
            for obj in objs:
                group.create_task(self.create(obj))

    async def apply(self, obj: JsonObject) -> JsonObject:
        """Make it so, whether it is there or not."""
        path = f"{path_of(obj)}?fieldManager=tests&force=true"
        return await self._send("PATCH", path, obj, "application/apply-patch+yaml")

    async def patch(self, path: str, change: JsonObject) -> JsonObject:
        """A merge patch."""
        return await self._send("PATCH", path, change, "application/merge-patch+json")

    async def delete(self, obj_or_path: JsonObject | str) -> JsonObject:
        """Delete an object, or whatever is at a path; a collection too."""
        path = obj_or_path if isinstance(obj_or_path, str) else path_of(obj_or_path)
        return await self._send("DELETE", path)

    async def delete_all(self, paths: Iterable[str]) -> None:
        """Delete what is at these paths, 32 at a time."""
        async with asyncio.TaskGroup() as group:
            for path in paths:
                group.create_task(self.delete(path))

    async def _send(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> JsonObject:
        content = None if body is None else json.dumps(body)
        async with (
            self._slots,
            self._session.request(method, path, data=content, headers={"Content-Type": kind}) as reply,
        ):
            return dict(await reply.json())

    async def items(self, path: str) -> list[JsonObject]:
        """What is in a collection; `path` may carry selectors."""
        return list((await self.get(path))["items"])

    async def until(
        self, path: str, holds: Callable[[list[JsonObject]], bool], *, within_s: float = _PATIENCE_S
    ) -> list[JsonObject]:
        """The collection at `path` once it is as wanted; follows a watch, and begins anew where that breaks.

        Raises:
            AssertionError: it never was; with what it was last.
        """
        view = _View()
        following = asyncio.ensure_future(self._follow(path, view))
        try:
            async with asyncio.timeout(within_s):
                while not (view.listed and holds(list(view.items.values()))):
                    await view.changed.wait()
                    view.changed.clear()
                    await asyncio.sleep(_GATHER_S)
                return list(view.items.values())
        except TimeoutError:
            last = json.dumps(list(view.items.values()))[:4000]
            raise AssertionError(f"{path} never became so ({view.trouble}): {last}") from None
        finally:
            following.cancel()
            await asyncio.wait([following])

    async def _follow(self, path: str, view: "_View") -> None:
        while True:
            try:
                await self._list_and_watch(path, view)
            except (aiohttp.ClientError, OSError) as trouble:
                view.trouble = trouble
                await asyncio.sleep(_AGAIN_S)

    async def _list_and_watch(self, path: str, view: "_View") -> None:
        listed = await self.get(path)
        view.begin(listed["items"])
        query = _with(path, f"watch=1&resourceVersion={listed['metadata']['resourceVersion']}")
        async with self._session.get(query, timeout=_ENDLESS) as reply:
            async for line in reply.content:
                view.note(json.loads(line))


@dataclass(slots=True)
class _View:
    """A collection as its watch tells it."""

    items: dict[str, JsonObject] = field(default_factory=dict)
    listed: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    trouble: Exception | None = None

    def begin(self, items: Iterable[JsonObject]) -> None:
        self.items = {item["metadata"]["uid"]: item for item in items}
        self.listed = True
        self.changed.set()

    def note(self, event: JsonObject) -> None:
        if event["type"] == "ERROR":
            raise aiohttp.ClientError(event["object"])
        uid = event["object"]["metadata"]["uid"]
        if event["type"] == "DELETED":
            self.items.pop(uid, None)
        else:
            self.items[uid] = event["object"]
        self.changed.set()


_ENDLESS = aiohttp.ClientTimeout(total=None)


def _with(path: str, query: str) -> str:
    return f"{path}{'&' if '?' in path else '?'}{query}"


async def _refusals(reply: aiohttp.ClientResponse) -> None:
    if not reply.ok:
        raise aiohttp.ClientResponseError(
            reply.request_info, reply.history, status=reply.status, message=(await reply.text())[:1000]
        )


def is_ready(obj: JsonObject) -> bool:
    """Whether its condition Ready is True."""
    conditions = obj.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def is_running(obj: JsonObject) -> bool:
    """Whether a pod runs and is not on its way out."""
    return obj.get("status", {}).get("phase") == "Running" and "deletionTimestamp" not in obj["metadata"]
