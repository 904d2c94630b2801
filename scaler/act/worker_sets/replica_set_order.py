"""Which pod a ReplicaSet deletes first when its count falls, as far as we can bind it.

Its order: pods without a node, then Pending, Unknown, Running; not ready before ready; only then the lowest
`controller.kubernetes.io/pod-deletion-cost`; crowded nodes, readiness and age decide what is left.
So a cost names a pod only while no other pod comes before it by what stands ahead of the cost.
Source: Kubernetes' ReplicaSet documentation, "Scaling a ReplicaSet" and "Pod deletion cost".
"""

from collections.abc import Iterable
from typing import Any

from scaler.kube.contract import Json

COST_ANNOTATION = "controller.kubernetes.io/pod-deletion-cost"
LOWEST_MARK, HIGHEST_MARK = -2_000_000_000, -1_000_000_000
"""Costs that we set lie between these; nobody else sets such."""
_PHASES = {"Pending": 0, "Unknown": 1}


def active(pod: Json) -> bool:
    """Whether a ReplicaSet counts it."""
    return not pod["metadata"].get("deletionTimestamp") and not ended(pod)


def ended(pod: Json) -> bool:
    """Whether its containers ran and will not again: it is nobody's replica any more."""
    return _status(pod).get("phase") in ("Succeeded", "Failed")


def cost(pod: Json) -> int:
    """Its deletion cost; 0 where it has none, or one that is no number."""
    raw = (pod["metadata"].get("annotations") or {}).get(COST_ANNOTATION, "0")
    try:
        return int(raw)
    except ValueError:
        return 0


def next_mark(pods: Iterable[Json]) -> int:
    """A cost below all but those marked before: who was named first goes first, whatever is named meanwhile."""
    marked = (cost(pod) for pod in pods if cost(pod) <= HIGHEST_MARK)
    return min(HIGHEST_MARK, max(marked, default=LOWEST_MARK - 1) + 1)


def objection(victim: Json, others: Iterable[Json]) -> str | None:
    """Why another pod could go instead of `victim` if the count fell now; None: it is the victim that goes."""
    key = (*_before_cost(victim), cost(victim))
    for other in others:
        if (*_before_cost(other), cost(other)) <= key:
            return f"pod {other['metadata']['name']} {_why(other, victim)}"
    return None


def _before_cost(pod: Json) -> tuple[bool, int, bool]:
    """Sorts as the ReplicaSet controller does, first to go first."""
    scheduled = bool((pod.get("spec") or {}).get("nodeName"))
    return scheduled, _PHASES.get(_status(pod).get("phase", "Pending"), 2), _ready(pod)


def _why(other: Json, victim: Json) -> str:
    if _before_cost(other) == _before_cost(victim):
        return "is marked to go first"
    if not (other.get("spec") or {}).get("nodeName"):
        return "is not scheduled and would go first"
    return f"is {'Pending' if _status(other).get('phase') == 'Pending' else 'not ready'} and would go first"


def _ready(pod: Json) -> bool:
    conditions: list[Any] = _status(pod).get("conditions") or []
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _status(pod: Json) -> Json:
    return pod.get("status") or {}
