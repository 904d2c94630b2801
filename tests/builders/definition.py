"""The fleet's definition on a real API server, and objects sent to it as kubectl sends them."""

import time
from dataclasses import dataclass
from typing import Any

from scaler.config.crd import NAME, definition
from scaler.kube.contract import ROLLOUT_FLEETS
from tests.cluster.api import Refused
from tests.cluster.control_plane import ControlPlane

DEFINITIONS_PATH = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{NAME}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API server said to an object; `message` is empty where it took it."""

    status: int
    message: str


def established(plane: ControlPlane) -> dict[str, Any]:
    """The definition, applied and served."""
    plane.api.apply(definition())
    for _ in range(600):
        found = plane.api.get(DEFINITIONS_PATH)
        conditions = found.get("status", {}).get("conditions") or []
        if any(each["type"] == "Established" and each["status"] == "True" for each in conditions) and _served(plane):
            return found
        time.sleep(0.1)
    raise AssertionError(f"never established: {found.get('status')}")


def _served(plane: ControlPlane) -> bool:
    try:
        plane.api.get(ROLLOUT_FLEETS.path())
    except Refused:
        return False
    return True


def sent(plane: ControlPlane, document: dict[str, Any]) -> Answer:
    """What becomes of the document, which is not kept; unknown fields are refused, as kubectl asks for by default."""
    namespace = "default"
    body = {**document, "metadata": {key: value for key, value in document["metadata"].items() if key != "namespace"}}
    path = ROLLOUT_FLEETS.path(namespace=namespace)
    try:
        plane.api.create(f"{path}?dryRun=All&fieldValidation=Strict", body)
    except Refused as refusal:
        return Answer(refusal.status, str(refusal))
    return Answer(201, "")
