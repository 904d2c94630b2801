"""Which fleets there are in a cluster: RolloutFleet objects of some namespaces or of all, each by its UID.

Policy: what is told are differences between complete lists: a fleet that came, a fleet that went. An object that was deleted
and made anew under its name is another fleet: the old one went before the new one came, or what belonged to the old one
(caches, counters, its controller) would be taken for the new one's.
Invariants: nobody is told of a fleet twice, nor of its going without its coming; order: those that went, then those that came.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from scaler.kube.contract import ROLLOUT_FLEETS, Json, KubeApi
from scaler.kube.reflector import Reflector
from scaler.model.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetKey:
    """One object, for as long as it lives."""

    uid: str
    namespace: str
    name: str


class Turn(StrEnum):
    """What happened to a fleet."""

    ADDED = "added"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class FleetTurn:
    """A fleet came or went."""

    turn: Turn
    key: FleetKey


class FleetSource:
    """See the module's docstring. `namespaces` empty: all of them."""

    def __init__(self, kube: KubeApi, *, clock: Clock, namespaces: Sequence[str] = ()) -> None:
        places: tuple[str | None, ...] = tuple(dict.fromkeys(namespaces)) or (None,)
        self._reflectors = [
            Reflector(kube, ROLLOUT_FLEETS, namespace=place, clock=clock, keep=_key_of) for place in places
        ]
        self._told: dict[str, FleetKey] = {}
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Follow the objects; never returns."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run())
                group.create_task(self._pass_on(reflector))

    async def _pass_on(self, reflector: Reflector[FleetKey]) -> None:
        while True:
            await reflector.changed()
            self._news.set()

    async def turns(self) -> Sequence[FleetTurn]:
        """Wait until fleets came or went since the last call, and tell which."""
        while True:
            self._news.clear()
            found = self._compare()
            if found:
                return found
            await self._news.wait()

    def _compare(self) -> list[FleetTurn]:
        if any(reflector.current_at_s is None for reflector in self._reflectors):
            return []
        now = {uid: key for reflector in self._reflectors for uid, key in reflector.items.items()}
        before, self._told = self._told, now
        gone = [FleetTurn(Turn.REMOVED, before[uid]) for uid in before.keys() - now.keys()]
        come = [FleetTurn(Turn.ADDED, now[uid]) for uid in now.keys() - before.keys()]
        return [*sorted(gone, key=_order), *sorted(come, key=_order)]


def _key_of(body: Json) -> FleetKey:
    meta = body["metadata"]
    return FleetKey(uid=meta["uid"], namespace=meta.get("namespace", ""), name=meta.get("name", ""))


def _order(turn: FleetTurn) -> tuple[str, str]:
    return (turn.key.namespace, turn.key.name)
