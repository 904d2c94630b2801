"""Where an object lives in the API, told from the object alone (no discovery): enough for the kinds that tests use."""

from collections.abc import Mapping
from typing import Any

JsonObject = dict[str, Any]

_CLUSTER_WIDE = {
    "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "KWOKNodeClass", "MutatingWebhookConfiguration",
    "Namespace", "Node", "NodeClaim", "NodeOverlay", "NodePool", "PersistentVolume", "PriorityClass", "StorageClass",
    "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration",
}  # fmt: skip


def collection_of(obj: Mapping[str, Any]) -> str:
    """The path to POST the object to; an object without a namespace goes to `default`."""
    version, kind = obj["apiVersion"], obj["kind"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    within = "" if kind in _CLUSTER_WIDE else f"/namespaces/{obj['metadata'].get('namespace', 'default')}"
    return f"{root}{within}/{_plural(kind)}"


def path_of(obj: Mapping[str, Any]) -> str:
    """The path of the object itself."""
    return f"{collection_of(obj)}/{obj['metadata']['name']}"


def _plural(kind: str) -> str:
    name = kind.lower()
    if name.endswith("y"):
        return f"{name[:-1]}ies"
    return f"{name}es" if name.endswith("s") else f"{name}s"
