"""Follows a controller's `/status`, as signs of capacity: what it holds of each offering, what was taken, what was refused.

Held: a replica with an instance and without notice. Taken: one that got a notice, or went without our having drained or
ended it. Refused: the outcomes of launches in its decisions. A look that fails changes nothing.
"""

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scaler.commands.record_folder import Change, refusals_in, signs_of
from scaler.model.capacity import ReplicaPhase
from scaler.traces.signs import Sign

DECISIONS = 200
"""Asked for at every look: more than a controller takes between two."""
TIME_OUT_S = 5.0
_OURS = frozenset({ReplicaPhase.DRAINING, ReplicaPhase.DRAINED, ReplicaPhase.TERMINATING})


class ControllerAway(Exception):
    """Nobody answers there, or somebody else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    offering_id: str
    phase: str
    noticed: bool


@dataclass(slots=True)
class Follower:
    """Looks at a controller. Times are its own clock's."""

    url: str
    start_s: float = 0.0
    end_s: float = 0.0
    changes: list[Change] = field(default_factory=list)
    _replicas: dict[str, _Seen] = field(default_factory=dict)
    _refusals: set[tuple[str, float]] = field(default_factory=set)

    def try_look(self) -> bool:
        """As `look`; False, and a line on stderr, where nobody answers."""
        try:
            self.look()
        except ControllerAway as error:
            print(error, file=sys.stderr)
            return False
        return True

    def look(self) -> None:
        """Take one look. `ControllerAway` where there is none to take."""
        self.take(read_status(f"{self.url.rstrip('/')}/status?last={DECISIONS}"))

    def take(self, status: Mapping[str, Any]) -> None:
        """Take a status in."""
        now_s = float(status["now_s"])
        first = not self.start_s
        self.start_s, self.end_s = self.start_s or now_s, now_s
        self._take_replicas(
            {r["replica_id"]: r for stage in status.get("stages", ()) for r in stage["replicas"]}, now_s
        )
        for decision in status.get("decisions", ()):
            for refusal in refusals_in(decision):
                key = refusal.offering_id, refusal.at_s
                if key not in self._refusals and not first:
                    self.changes.append(refusal)
                self._refusals.add(key)

    def signs(self) -> dict[str, list[Sign]]:
        """By offering."""
        return signs_of(sorted(self.changes, key=lambda change: change.at_s))

    def _take_replicas(self, replicas: Mapping[str, Mapping[str, Any]], now_s: float) -> None:
        seen = {
            replica_id: _Seen(offering_id=raw["offering_id"], phase=raw["phase"], noticed=raw["notice"] is not None)
            for replica_id, raw in replicas.items()
            if raw["phase"] != ReplicaPhase.REQUESTED
        }
        for replica_id, now in seen.items():
            self._compare(self._replicas.get(replica_id), now, replicas[replica_id], now_s)
        for replica_id in self._replicas.keys() - seen.keys():
            self._gone(self._replicas[replica_id], now_s)
        self._replicas = seen

    def _compare(self, before: _Seen | None, now: _Seen, raw: Mapping[str, Any], now_s: float) -> None:
        if before is None:
            since_s = min(now_s, max(self.start_s, raw.get("launched_at_s") or now_s))
            self._change(now, 1, since_s)
        if now.noticed and not (before and before.noticed):
            noticed_at_s = raw["notice"]["noticed_at_s"]
            self._change(now, -1, min(now_s, max(self.start_s, noticed_at_s)), taken=True)

    def _gone(self, before: _Seen, now_s: float) -> None:
        if not before.noticed:
            self._change(before, -1, now_s, taken=before.phase not in _OURS)

    def _change(self, seen: _Seen, by: int, at_s: float, *, taken: bool = False) -> None:
        self.changes.append(Change(at_s=at_s, offering_id=seen.offering_id, by=by, all_there_was=taken))


def read_status(url: str) -> dict[str, Any]:
    """The controller's status. `ControllerAway` where nobody answers, or not with a status."""
    try:
        with urllib.request.urlopen(url, timeout=TIME_OUT_S) as reply:  # noqa: S310 - http(s) only, checked by the caller
            status = json.loads(reply.read())
        if not isinstance(status, dict) or "now_s" not in status:
            raise ControllerAway(f"{url}: answers, but not as a controller does")
    except (OSError, urllib.error.URLError, ValueError) as error:
        raise ControllerAway(f"{url}: no answer: {error}") from error
    return status
