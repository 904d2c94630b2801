"""What is noted in an object beside its count: launches by token, and the removals that are under way.

Policy: notes and count change in one write, so that a repeated command finds its note and changes nothing, after a restart
of the controller too. A launch is *waiting* until a pod answers it; answered ones are kept for the repeats of late callers,
`KEPT` of them. One annotation may hold the notes of several scopes (the worker groups of a RayCluster).
Invariants: a waiting launch is never dropped to make room. A note that cannot be read is no note.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from scaler.kube.contract import Json

LAUNCHES_ANNOTATION = "headrace.dev/launch-tokens"
REMOVALS_ANNOTATION = "headrace.dev/removals"
KEPT = 128
"""Answered launches that are remembered; a call that comes this late comes from a controller long gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A noted launch; `pod_uid` is empty while it waits."""

    token: str
    offering_id: str
    at_s: float
    pod_uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """A pod that the count does not cover any more."""

    pod_uid: str
    pod_name: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """All notes of one scope."""

    launches: tuple[Launch, ...] = ()
    removals: tuple[Removal, ...] = ()

    @property
    def waiting(self) -> tuple[Launch, ...]:
        """Launches that no pod answers, oldest first."""
        return tuple(launch for launch in self.launches if not launch.pod_uid)

    @property
    def going(self) -> frozenset[str]:
        """UIDs of pods whose removal is under way."""
        return frozenset(removal.pod_uid for removal in self.removals)

    def launch(self, token: str) -> Launch | None:
        """The launch of that token."""
        return next((launch for launch in self.launches if launch.token == token), None)

    def launch_of(self, pod_uid: str) -> Launch | None:
        """The launch that this pod answers."""
        return next((launch for launch in self.launches if launch.pod_uid == pod_uid), None)

    def with_launch(self, launch: Launch) -> "Notes":
        """One launch more, and at most `KEPT` answered ones, the newest."""
        answered = [known for known in self.launches if known.pod_uid]
        forgotten = {known.token for known in answered[: max(0, len(answered) - KEPT)]}
        kept = tuple(known for known in self.launches if known.token not in forgotten)
        return replace(self, launches=(*kept, launch))

    def answered(self, pods: Mapping[str, str]) -> "Notes":
        """With the pods (token -> UID) that answer waiting launches."""
        return replace(self, launches=tuple(_answered(launch, pods) for launch in self.launches))

    def without_launches(self, tokens: Collection[str]) -> "Notes":
        """These launches given up."""
        return replace(self, launches=tuple(launch for launch in self.launches if launch.token not in tokens))

    def with_removal(self, removal: Removal) -> "Notes":
        """One removal more."""
        return replace(self, removals=(*self.removals, removal))

    def without_removals(self, pod_uids: Collection[str]) -> "Notes":
        """These removals done, or taken back."""
        return replace(self, removals=tuple(known for known in self.removals if known.pod_uid not in pod_uids))


def _answered(launch: Launch, pods: Mapping[str, str]) -> Launch:
    pod_uid = pods.get(launch.token)
    return launch if launch.pod_uid or not pod_uid else replace(launch, pod_uid=pod_uid)


def read(body: Json, scope: str) -> Notes:
    """The notes that an object holds for a scope."""
    return Notes(
        launches=tuple(_launches(_scopes(body, LAUNCHES_ANNOTATION).get(scope))),
        removals=tuple(_removals(_scopes(body, REMOVALS_ANNOTATION).get(scope))),
    )


def annotations(body: Json, scope: str, notes: Notes) -> dict[str, str | None]:
    """The annotations that hold these notes, those of other scopes kept; None takes an annotation away."""
    launches = [[launch.token, launch.offering_id, launch.at_s, launch.pod_uid] for launch in notes.launches]
    removals = [[removal.pod_uid, removal.pod_name, removal.at_s] for removal in notes.removals]
    return {
        LAUNCHES_ANNOTATION: _merged(_scopes(body, LAUNCHES_ANNOTATION), scope, launches),
        REMOVALS_ANNOTATION: _merged(_scopes(body, REMOVALS_ANNOTATION), scope, removals),
    }


def _merged(scopes: Mapping[str, Any], scope: str, entries: list[list[Any]]) -> str | None:
    rest = {name: kept for name, kept in scopes.items() if name != scope}
    whole = {**rest, scope: entries} if entries else rest
    return json.dumps(whole, separators=(",", ":")) if whole else None


def _scopes(body: Json, annotation: str) -> Mapping[str, Any]:
    raw = (body["metadata"].get("annotations") or {}).get(annotation)
    try:
        read_as = json.loads(raw) if raw else {}
    except ValueError:
        return {}
    return read_as if isinstance(read_as, dict) else {}


def _launches(entries: Any) -> Iterable[Launch]:
    for entry in _rows(entries, 4):
        token, offering_id, at_s, pod_uid = entry
        if isinstance(at_s, int | float) and token:
            yield Launch(token=str(token), offering_id=str(offering_id), at_s=float(at_s), pod_uid=str(pod_uid))


def _removals(entries: Any) -> Iterable[Removal]:
    for entry in _rows(entries, 3):
        pod_uid, pod_name, at_s = entry
        if isinstance(at_s, int | float) and pod_uid:
            yield Removal(pod_uid=str(pod_uid), pod_name=str(pod_name), at_s=float(at_s))


def _rows(entries: Any, length: int) -> Iterable[list[Any]]:
    rows = entries if isinstance(entries, list) else []
    return (row for row in rows if isinstance(row, list) and len(row) == length)
