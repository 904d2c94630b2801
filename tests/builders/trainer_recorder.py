"""Who changed a trainer's objects: snapshots of their resource versions, compared, with the managers that the server noted.

For tests that promise that nothing of a trainer was changed but by repair. It sees the trainer's pods, their nodes (and those
set aside), disruption budgets of its namespace and priority classes of its pods.
Changes of `status` alone, and a kubelet's or a node controller's upkeep of a node, are not changes of the trainer: what counts
is the object without `status`, `metadata.resourceVersion`, `metadata.managedFields` and node heartbeats.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from scaler.kube.contract import DISRUPTION_BUDGETS, NODES, PODS, PRIORITY_CLASSES, Json, KubeApi, Resource
from scaler.model.trainers import TrainerSpec

_Key = tuple[str, str, str]
"""(plural, namespace, name)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerChange:
    """One object that is not as it was."""

    what: str
    """`pods rl/trainer-0`."""
    how: str
    """`made`, `changed`, `replaced` (another UID), or `gone`."""
    paths: tuple[str, ...]
    """Where it differs, as dotted paths."""
    managers: tuple[str, ...]
    """Field managers that wrote since the snapshot, by the server's own notes; empty where it keeps none."""


@dataclass(slots=True)
class TrainerRecorder:
    """`snapshot`, let things happen, then ask for `changes`."""

    api: KubeApi
    trainers: Sequence[TrainerSpec]
    _before: dict[_Key, Json] = field(default_factory=dict)

    async def snapshot(self) -> None:
        """Remember how everything is now."""
        self._before = await self._collect()

    async def changes(self) -> list[TrainerChange]:
        """Everything that is not as it was at the snapshot."""
        after = await self._collect()
        found = [
            _compared(key, self._before.get(key), after.get(key)) for key in sorted(self._before.keys() | after.keys())
        ]
        return [change for change in found if change is not None]

    async def _collect(self) -> dict[_Key, Json]:
        found: dict[_Key, Json] = {}
        for trainer in self.trainers:
            labels = ",".join(f"{key}={value}" for key, value in sorted(trainer.match_labels.items()))
            pods = (await self.api.list(PODS, namespace=trainer.namespace, label_selector=labels)).items
            budgets = (await self.api.list(DISRUPTION_BUDGETS, namespace=trainer.namespace)).items
            nodes = (await self.api.list(NODES)).items
            names = {pod["spec"].get("nodeName") for pod in pods} | {
                key[2] for key in self._before if key[0] == "nodes"
            }
            _add(found, PODS, pods)
            _add(found, DISRUPTION_BUDGETS, budgets)
            _add(found, NODES, (node for node in nodes if _is_its(node, trainer, names)))
            classes = {pod["spec"].get("priorityClassName") for pod in pods}
            listed = (await self.api.list(PRIORITY_CLASSES)).items
            _add(found, PRIORITY_CLASSES, (each for each in listed if each["metadata"]["name"] in classes))
        return found


def _is_its(node: Json, trainer: TrainerSpec, names: set[str | None]) -> bool:
    metadata = node["metadata"]
    return metadata["name"] in names or trainer.owns_node(metadata.get("labels") or {})


def _add(found: dict[_Key, Json], resource: Resource, bodies: Iterable[Json]) -> None:
    for body in bodies:
        metadata = body["metadata"]
        found[resource.plural, metadata.get("namespace", ""), metadata["name"]] = body


def _compared(key: _Key, before: Json | None, after: Json | None) -> TrainerChange | None:
    plural, namespace, name = key
    what = f"{plural} {namespace}/{name}" if namespace else f"{plural} {name}"
    if before is None or after is None:
        how, body = ("made", after) if before is None else ("gone", before)
        return TrainerChange(what=what, how=how, paths=(), managers=tuple(_managers(body or {}, None)))
    if before["metadata"]["uid"] != after["metadata"]["uid"]:
        return TrainerChange(what=what, how="replaced", paths=(), managers=tuple(_managers(after, None)))
    paths = tuple(_differences(_essence(before), _essence(after), ""))
    if not paths:
        return None
    return TrainerChange(what=what, how="changed", paths=paths, managers=tuple(_managers(after, before)))


def _essence(body: Json) -> Json:
    kept = {key: value for key, value in body.items() if key != "status"}
    kept["metadata"] = {
        key: value for key, value in body["metadata"].items() if key not in ("resourceVersion", "managedFields")
    }
    return kept


def _differences(before: object, after: object, path: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from _differences(before.get(key), after.get(key), f"{path}.{key}" if path else key)
    elif before != after:
        yield path


def _managers(after: Json, before: Json | None) -> Iterator[str]:
    """Managers whose note is new or has changed: the server writes one for each manager and operation."""
    old = {
        json.dumps(each, sort_keys=True) for each in ((before or {}).get("metadata") or {}).get("managedFields") or ()
    }
    notes = ((after.get("metadata") or {}).get("managedFields") or ()) if after else ()
    fresh = {each.get("manager", "") for each in notes if json.dumps(each, sort_keys=True) not in old}
    yield from sorted(fresh)
