"""Who led when, and who did what: by the lease's own record, SimCloud's log, the API server's audit log, the ledger's history.

Non-goals: what controllers say of themselves, but for the one line that tells which of them a holder's nonce belongs to.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from scaler.kube.contract import LEASES, KubeError
from scaler.kube.lease_record import record_of
from scaler.ledger.audit import events_of
from scaler.ledger.history import EventKind
from tests.cluster.control_plane import ControlPlane
from tests.e2e.cluster.base import SYSTEM, caller_of
from tests.e2e.cluster.bed import Bed

_READING = ("Describe", "List", "Get", "Receive")
_WRITING = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_LOOK_S = 0.1


def user_of(name: str) -> str:
    """Whom the API server takes a controller for."""
    return f"headrace-{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A leadership, from when the lease first showed it."""

    seen_at_s: float
    holder: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """A call that changes something. `at_s`: when the server had it."""

    at_s: float
    what: str
    done: bool


class Witness:
    """See the module's docstring. `run` looks at the lease."""

    def __init__(self, bed: Bed) -> None:
        self._bed = bed
        self._clock = bed.sim.kernel
        self.terms: list[Term] = []

    async def run(self) -> None:
        """Follow the lease; never returns."""
        while True:
            with suppress(KubeError):
                found = record_of(await self._bed.api.get(LEASES, "headrace", namespace=SYSTEM))
                last = self.terms[-1] if self.terms else None
                if found.holder and (last is None or (last.holder, last.epoch) != (found.holder, found.epoch)):
                    self.terms.append(Term(seen_at_s=self._clock.now_s(), holder=found.holder, epoch=found.epoch))
            await asyncio.sleep(_LOOK_S)

    def leader(self) -> str:
        """Name of the controller that took the lease last; empty: none has."""
        return self._named(self.terms[-1].holder) if self.terms else ""

    def leaders(self) -> list[str]:
        """All of them, in order."""
        return [self._named(term.holder) for term in self.terms]

    def _named(self, holder: str) -> str:
        return next((name for name in self._bed.controllers if holder in self._bed.log_of(name)), holder)

    def epoch(self) -> int:
        """Of the leadership seen last."""
        return self.terms[-1].epoch

    def in_cloud(self, name: str) -> list[Deed]:
        """What a controller had AWS change."""
        calls = list(self._bed.sim.log.calls)
        return [
            Deed(at_s=call.at_s, what=f"{call.operation} {dict(call.parameters)}", done=not call.error)
            for call in calls
            if call.caller == caller_of(name) and not call.operation.startswith(_READING)
        ]

    def in_cluster(self, name: str) -> list[Deed]:
        """What a controller had the API server change, its lease apart."""
        return list(_deeds(self._bed.plane, user_of(name)))

    def read_before(self, name: str, at_s: float) -> set[str]:
        """Resources that a controller had been answered reads of by then."""
        events = _events(self._bed.plane, user_of(name))
        return {
            event["objectRef"]["resource"]
            for event in events
            if event["verb"] in ("get", "list") and _at_s(event) < at_s and event["responseStatus"]["code"] < 300
        }

    def acted_at_s(self, name: str) -> float:
        """When a controller first changed anything."""
        deeds = [*self.in_cloud(name), *self.in_cluster(name)]
        return min((deed.at_s for deed in deeds if deed.done), default=float("inf"))

    def said(self, name: str, event: str) -> list[dict[str, Any]]:
        """The lines of a controller's log about one kind of event."""
        lines = (line for line in self._bed.log_of(name).splitlines() if line.startswith("{") and line.endswith("}"))
        return [line for line in map(json.loads, lines) if line["event"] == event]

    def decided_at_s(self, name: str) -> float:
        """When a controller decided first, beyond that it must wait for lists; never: infinity."""
        decisions = self.said(name, "decision")
        found = [each for each in decisions if not all("hold_not_synced" in told for told in each["stages"].values())]
        return datetime.fromisoformat(found[0]["timestamp"]).timestamp() if found else float("inf")

    def has_decided(self, name: str) -> bool:
        """Whether it has by now."""
        return self.decided_at_s(name) < float("inf")

    def drain_epochs(self) -> list[int]:
        """Epochs of all drains and of those taken back, in the ledger's order."""
        events = events_of(self._bed.open_ledger())
        return [int(event.data["epoch"] or 0) for event in events if event.kind is EventKind.WORKER_DRAINED]

    def check(self) -> None:
        """One acted at any time, and every epoch is above those before."""
        epochs = [term.epoch for term in self.terms]
        assert epochs == sorted(set(epochs)), self.terms
        for before, after in zip(self.leaders(), self.leaders()[1:], strict=False):
            first_s = self.acted_at_s(after)
            late = [deed for deed in self.in_cloud(before) + self.in_cluster(before) if deed.at_s >= first_s]
            assert [deed for deed in late if deed.done] == [], f"{before} acted after {after} had begun"
        drains = self.drain_epochs()
        assert drains == sorted(drains)
        assert set(drains) <= set(epochs)


def _events(plane: ControlPlane, user: str) -> Iterator[dict[str, Any]]:
    """What the API server answered a user."""
    for event in plane.audited():
        if event["stage"] == "ResponseComplete" and event["user"]["username"] == user:
            yield event


def _at_s(event: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp()


def _deeds(plane: ControlPlane, user: str) -> Iterator[Deed]:
    for event in _events(plane, user):
        about = event.get("objectRef", {})
        if event["verb"] not in _WRITING or about.get("resource") == "leases":
            continue
        where = "/".join(str(about.get(key, "")) for key in ("resource", "namespace", "name", "subresource"))
        yield Deed(
            at_s=_at_s(event),
            what=f"{event['verb']} {where}",
            done=event.get("responseStatus", {}).get("code", 0) < 300,
        )
