"""The journal of a fleet in a cluster: a ConfigMap beside the fleet, replaced as a whole, turn by turn.

Policy: what must outlive a crash (intents, orders to drain, the engine's memory) is written before it is acted on, in one
replace that only succeeds on the version that we wrote last: a leader that was succeeded finds out there, before it acts.
While the API server is away turns are kept and written with the next one, and the caller is told that they are not durable.
The body is compressed JSON: orders of thousands of nodes fit into the size that etcd takes.

Invariants: the epoch in it never falls; whoever finds a higher one than its own raises `StaleEpoch` and stops.
Non-goals: history. Decisions are kept in a file beside the process, for `explain`; the fleet's status has the last one.
"""

import gzip
import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

import structlog
from pydantic import TypeAdapter, ValidationError

from scaler.kube.contract import CONFIG_MAPS, Conflict, Json, KubeApi, KubeError, NotFound
from scaler.ledger.contract import StaleEpoch
from scaler.model.plan import Memory
from scaler.observe.drain_orders import DrainOrder
from scaler.observe.intents import Intent
from scaler.runtime.journal import Committed, Journal, Turn

log = structlog.get_logger()

_KEY = "journal.json.gz"
_EPOCH = "headrace.dev/epoch"
_MEMORY: TypeAdapter[Memory] = TypeAdapter(Memory)
_INTENT: TypeAdapter[Intent] = TypeAdapter(Intent)
_ORDER: TypeAdapter[DrainOrder] = TypeAdapter(DrainOrder)


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

    async def open(self) -> None:
        """Read what an earlier leader left, and put our epoch there.

        Raises:
            StaleEpoch: a later leader has been here.
            KubeError: the API server does not answer.
        """
        await self._read()
        await self._put()

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
        """Write a tick. `StaleEpoch` where a later leader has written."""
        self._take(turn)
        local = Turn(at_s=turn.at_s, memory=turn.memory, decision=turn.decision, outcomes=turn.outcomes)
        seq = self._decisions.write(local)
        try:
            await self._put()
        except KubeError as error:
            log.warning("journal_not_written", fleet=self._name, error=str(error))
            return Committed(seq=seq, durable=False)
        return Committed(seq=seq, durable=True)

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
        except Conflict:
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
        epoch = int((found["metadata"].get("annotations") or {}).get(_EPOCH, "0"))
        if epoch > self._epoch:
            raise StaleEpoch(f"leader epoch {epoch} has written {self._name}, ours is {self._epoch}")
        self._version = found["metadata"]["resourceVersion"]
        return found

    async def _read(self) -> None:
        found = await self._get()
        data = (found or {}).get("binaryData", {}).get(_KEY)
        if not data:
            return
        body = json.loads(gzip.decompress(b64decode(data)))
        self._intents = {each.token: each for each in map(_INTENT.validate_python, body["intents"])}
        self._orders = {each.replica_id: each for each in map(_ORDER.validate_python, body["orders"])}
        try:
            self._memory = _MEMORY.validate_python(body["memory"])
        except ValidationError:
            # Written by another version: only the counter behind launch tokens must survive it.
            self._memory = Memory(next_intent=max(self._epoch, int(body["memory"].get("next_intent", 0))))
