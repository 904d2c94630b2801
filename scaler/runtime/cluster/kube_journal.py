"""The journal of a fleet in a cluster: a ConfigMap beside the fleet, replaced as a whole, turn by turn.

Policy: what must outlive a crash (intents, orders to drain, the engine's memory) is written before it is acted on, in one
replace that only succeeds on the version that we wrote last: a leader that was succeeded finds out there, before it acts.
While the API server is away turns are kept and written with the next one, and the caller is told that they are not durable.
The body is compressed JSON: orders of thousands of nodes fit into the size that etcd takes. An entry that this version cannot
read is left out and said, so that nothing of another version keeps a fleet from being tended: the ledger shows its drains, and a
launch that was answered is in its pool's list.

Invariants: the epoch in it never falls; whoever finds a higher one than its own raises `Succeeded` and stops. What is written at
`open` was read at the version that it replaces. Launch tokens go on above this leader's epoch, which is above the time, so that a
journal that was lost, or a fleet of the same name, repeats none.
Non-goals: history. Decisions are kept in a file beside the process, for `explain`; the fleet's status has the last one.
"""

import asyncio
import gzip
import json
import sqlite3
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import structlog
from pydantic import TypeAdapter, ValidationError

from scaler.kube.contract import CONFIG_MAPS, Conflict, Json, KubeApi, KubeError, NotFound
from scaler.ledger.contract import StaleEpoch
from scaler.model.plan import Memory
from scaler.observe.drain_orders import DrainOrder
from scaler.observe.intents import Intent
from scaler.runtime.journal import Committed, Journal, Turn

log = structlog.get_logger()

T = TypeVar("T")
_KEY = "journal.json.gz"
_TRIES = 5
"""Writes in between that `open` puts up with."""
_COMMIT_S = 2.0
"""A turn waits no longer for its journal: drains are not to be held up by an API server that hangs, and leadership ends 7 s after
the last renewal."""
_EPOCH = "headrace.dev/epoch"
_MEMORY: TypeAdapter[Memory] = TypeAdapter(Memory)
_INTENT: TypeAdapter[Intent] = TypeAdapter(Intent)
_ORDER: TypeAdapter[DrainOrder] = TypeAdapter(DrainOrder)


class Succeeded(StaleEpoch):
    """A later leader of this cluster has been here."""


class KubeJournal:
    """See the module's docstring; a `TurnJournal`."""

    def __init__(
        self, kube: KubeApi, *, namespace: str, fleet: str, owner: Mapping[str, Any], epoch: int, decisions: Journal
    ) -> None:
        """`owner`: the fleet's `ownerReferences` entry, so that the journal goes with it."""
        self._kube = kube
        self._namespace = namespace
        self._name = f"headrace-journal-{fleet}"
        self._owner = dict(owner)
        self._epoch = epoch
        self._decisions = decisions
        self._memory = Memory(next_intent=epoch)
        self._intents: dict[str, Intent] = {}
        self._orders: dict[str, DrainOrder] = {}
        self._version: str | None = None
        self._written: str | None = None
        self._seq = 0

    async def open(self) -> None:
        """Read what an earlier leader left, and put our epoch there.

        Raises:
            Succeeded: a later leader has been here.
            KubeError: the API server does not answer.
        """
        for _ in range(_TRIES):
            await self._read()
            text = self._text()
            try:
                await self._send(text)
            except (Conflict, NotFound):
                continue
            self._written = text
            return
        raise Conflict(f"{self._name} is written by another again and again", status=409)

    def memory(self) -> Memory:
        """As last written; launch tokens go on from this leader's epoch where there is none."""
        return self._memory

    def intents(self) -> tuple[Intent, ...]:
        """See `TurnJournal`."""
        return tuple(sorted(self._intents.values(), key=lambda each: each.decided_at_s))

    def orders(self) -> tuple[DrainOrder, ...]:
        """See `TurnJournal`."""
        return tuple(self._orders.values())

    async def commit(self, turn: Turn) -> Committed:
        """Write a tick. `Succeeded` where a later leader has written."""
        self._take(turn)
        seq = self._keep_decision(turn)
        try:
            async with asyncio.timeout(_COMMIT_S):
                await self._put()
        except (KubeError, TimeoutError) as error:
            log.warning("journal_not_written", fleet=self._name, error=str(error) or "no answer in time")
            return Committed(seq=seq, durable=False)
        return Committed(seq=seq, durable=True)

    def _keep_decision(self, turn: Turn) -> int:
        """History is for people: a full disk stops no fleet."""
        local = Turn(at_s=turn.at_s, memory=turn.memory, decision=turn.decision, outcomes=turn.outcomes)
        try:
            self._seq = self._decisions.write(local)
        except (sqlite3.Error, OSError) as error:
            log.warning("decision_not_kept", fleet=self._name, error=str(error))
        return self._seq

    def decisions(self, last: int) -> list[dict[str, Any]]:
        """The last decisions of this process, newest first."""
        return self._decisions.decisions(last)

    def close(self) -> None:
        """Give the file of decisions up."""
        self._decisions.close()

    def _take(self, turn: Turn) -> None:
        self._memory = turn.memory
        self._intents |= {each.token: each for each in turn.intents}
        self._orders |= {each.replica_id: each for each in turn.orders}
        for token in turn.intents_over:
            self._intents.pop(token, None)
        for replica_id in turn.orders_over:
            self._orders.pop(replica_id, None)

    def _text(self) -> str:
        body = {
            "memory": _MEMORY.dump_python(self._memory, mode="json"),
            "intents": [_INTENT.dump_python(each, mode="json") for each in self._intents.values()],
            "orders": [_ORDER.dump_python(each, mode="json") for each in self._orders.values()],
        }
        return json.dumps(body, separators=(",", ":"))

    async def _put(self) -> None:
        """Replace it by what we hold. Who else writes it can only be a leader: the higher epoch wins."""
        text = self._text()
        if text == self._written:
            return
        self._written = None  # until it is answered nobody knows what is there: it may have landed, or not
        try:
            await self._send(text)
        except (Conflict, NotFound):
            # Our own write whose answer was lost, somebody's annotation, or somebody who deleted it.
            await self._get()
            await self._send(text)
        self._written = text

    async def _send(self, text: str) -> None:
        metadata: Json = {
            "name": self._name,
            "namespace": self._namespace,
            "annotations": {_EPOCH: str(self._epoch)},
            "labels": {"app.kubernetes.io/managed-by": "headrace"},
            "ownerReferences": [self._owner],
        }
        data = b64encode(gzip.compress(text.encode(), 3, mtime=0)).decode()
        body: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": {_KEY: data}}
        if self._version is None:
            answer = await self._kube.create(CONFIG_MAPS, body, namespace=self._namespace)
        else:
            metadata["resourceVersion"] = self._version
            answer = await self._kube.replace(CONFIG_MAPS, self._name, body, namespace=self._namespace)
        self._version = answer["metadata"]["resourceVersion"]

    async def _get(self) -> Json | None:
        try:
            found = await self._kube.get(CONFIG_MAPS, self._name, namespace=self._namespace)
        except NotFound:
            self._version = None
            return None
        epoch = _whole((found["metadata"].get("annotations") or {}).get(_EPOCH))
        if epoch > self._epoch:
            raise Succeeded(f"leader epoch {epoch} has written {self._name}, ours is {self._epoch}")
        self._version = found["metadata"]["resourceVersion"]
        return found

    async def _read(self) -> None:
        found = await self._get()
        body = _body_of(found or {}, self._name)
        self._intents = {each.token: each for each in self._entries(body, "intents", _INTENT)}
        self._orders = {each.replica_id: each for each in self._entries(body, "orders", _ORDER)}
        memory = body.get("memory")
        try:
            self._memory = _MEMORY.validate_python(memory)
        except ValidationError:
            # Written by another version, or never: only the counter behind launch tokens must survive it.
            known = _whole(memory.get("next_intent")) if isinstance(memory, dict) else 0
            self._memory = Memory(next_intent=max(self._epoch, known))

    def _entries(self, body: Json, key: str, form: TypeAdapter[T]) -> Iterator[T]:
        entries = body.get(key)
        for entry in entries if isinstance(entries, list) else ():
            try:
                yield form.validate_python(entry)
            except ValidationError as error:
                log.error("journal_entry_left_out", journal=self._name, kind=key, error=str(error))


def _body_of(found: Json, name: str) -> Json:
    """What a ConfigMap holds; empty, and said, where nobody can read it."""
    data = (found.get("binaryData") or {}).get(_KEY)
    if not data:
        return {}
    try:
        body = json.loads(gzip.decompress(b64decode(data)))
    except (ValueError, OSError, EOFError, zlib.error) as error:
        log.error("journal_unreadable", journal=name, error=repr(error))
        return {}
    return body if isinstance(body, dict) else {}


def _whole(value: object) -> int:
    """A count, as JSON or an annotation has it; 0 where it is none."""
    try:
        return int(value) if isinstance(value, int | str) else 0
    except ValueError:
        return 0
