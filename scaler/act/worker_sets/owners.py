"""Who else writes a worker set's count: found on every observe, since any of them may come at any time.

Policy: a count has one owner (design section 3, rule 7). Found are: a HorizontalPodAutoscaler that targets the object, KEDA
(which makes one), Kueue (its queue label), Argo Rollouts (its mark on a workload that it drives), Ray's autoscaler, and any
controller that owns the object itself and so may reset what it made.
Sources: autoscaling/v2 API; KEDA, Kueue, Argo Rollouts and KubeRay API references.
"""

from collections.abc import Iterable
from typing import Any

from scaler.kube.contract import AUTOSCALERS, Json, KubeApi, Resource

KUEUE_LABEL = "kueue.x-k8s.io/queue-name"
KEDA_LABEL = "scaledobject.keda.sh/name"
ARGO_ANNOTATION = "rollout.argoproj.io/workload-generation"


async def other_owner(kube: KubeApi, resource: Resource, body: Json) -> str | None:
    """Who else owns the count, as `another owner: ...`; None: nobody that we can see."""
    found = marked_owner(body)
    if found is None:
        listed = await kube.list(AUTOSCALERS, namespace=body["metadata"]["namespace"])
        found = _autoscaler(listed.items, resource, body["metadata"]["name"])
    return None if found is None else f"another owner: {found}"


def marked_owner(body: Json) -> str | None:
    """The owner that the object itself tells of."""
    meta = body["metadata"]
    if queue := (meta.get("labels") or {}).get(KUEUE_LABEL):
        return f"Kueue, by the queue {queue}"
    if ARGO_ANNOTATION in (meta.get("annotations") or {}):
        return "an Argo Rollout that this workload belongs to"
    if (body.get("spec") or {}).get("enableInTreeAutoscaling"):
        return "Ray's autoscaler (enableInTreeAutoscaling)"
    owner = next((ref for ref in meta.get("ownerReferences") or () if ref.get("controller")), None)
    return None if owner is None else f"{owner.get('kind')} {owner.get('name')}, which controls this object"


def _autoscaler(autoscalers: Iterable[Json], resource: Resource, name: str) -> str | None:
    for autoscaler in autoscalers:
        target = (autoscaler.get("spec") or {}).get("scaleTargetRef") or {}
        if _targets(target, resource, name):
            return _named(autoscaler["metadata"])
    return None


def _targets(target: dict[str, Any], resource: Resource, name: str) -> bool:
    group = str(target.get("apiVersion", "")).rpartition("/")[0]
    return target.get("kind") == resource.kind and target.get("name") == name and group == resource.group


def _named(meta: dict[str, Any]) -> str:
    keda = next((ref for ref in meta.get("ownerReferences") or () if ref.get("kind") == "ScaledObject"), None)
    scaled = (meta.get("labels") or {}).get(KEDA_LABEL) or (keda or {}).get("name")
    return f"KEDA's ScaledObject {scaled}" if scaled else f"HorizontalPodAutoscaler {meta['name']}"
