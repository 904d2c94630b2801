"""Everything that is done in the ledger: drains first, all of them, then taking drains back and releasing work.

Invariants: an order to drain is remembered (and journalled) until the ledger shows its mark, however often the store is
away and however late the worker registers. Deadlines are told to the store on the store's clock. A newer controller's
epoch in the ledger ends this one: `StaleEpoch` passes through. Ours is there before anything else of ours is done: what an
earlier controller still sends from then on is refused.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from scaler.act.base import PoolObservation
from scaler.ledger.contract import Ledger, LedgerError, LedgerUnavailable, StaleEpoch
from scaler.model.clock import Clock
from scaler.model.job import WorkerRecord
from scaler.model.plan import DrainReplica, ReleaseReplicaWork, UndrainReplica
from scaler.model.work import ReleaseReason
from scaler.observe.drain_orders import DrainOrder
from scaler.observe.ledger_watch import LedgerCalls, LedgerReading
from scaler.runtime.outcomes import Outcome, Outcomes
from scaler.telemetry.metrics import Metrics

_SAME_DEADLINE_S = 1.0
"""Two clocks lie between a deadline as ordered and as shown."""
_NOBODY = ""
"""A worker that there never is: only the epoch counts."""
_CALL_S = 5.0
_EACH_S = 0.05
"""Time-out of one job of many calls; a durable write on a slow disk takes as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderChanges:
    """What the journal has to be told."""

    put: tuple[DrainOrder, ...]
    over: tuple[str, ...]


class Drainer:
    """See the module's docstring."""

    def __init__(self, *, clock: Clock, calls: LedgerCalls, outcomes: Outcomes, metrics: Metrics, epoch: int) -> None:
        self._clock = clock
        self._calls = calls
        self._outcomes = outcomes
        self._metrics = metrics
        self._epoch = epoch
        self._announced = False
        self._orders: dict[str, DrainOrder] = {}
        self._commands: dict[str, tuple[DrainReplica, int]] = {}
        self._told: dict[str, Outcome] = {}
        self._put: dict[str, DrainOrder] = {}
        self._over: list[str] = []

    @property
    def orders(self) -> Mapping[str, DrainOrder]:
        """Drains that the ledger has not shown yet, by replica id."""
        return dict(self._orders)

    def adopt(self, orders: Iterable[DrainOrder]) -> None:
        """Take over what an earlier controller left."""
        self._orders |= {order.replica_id: order for order in orders}

    def order(self, commands: Iterable[DrainReplica]) -> None:
        """Remember drains; of two for one replica the earlier deadline holds."""
        for command in commands:
            known = self._orders.get(command.replica_id)
            if known is None or command.deadline_s < known.deadline_s:
                self._orders[command.replica_id] = self._put[command.replica_id] = _order_of(command)
                self._over = [replica_id for replica_id in self._over if replica_id != command.replica_id]

    def expect(self, commands: Iterable[DrainReplica], seq: int) -> None:
        """Tell what becomes of these commands of decision `seq`."""
        for command in commands:
            self._commands[command.replica_id] = (command, seq)
            self._told.pop(command.replica_id, None)

    def changes(self) -> OrderChanges:
        """Changes since the last call."""
        changes = OrderChanges(put=tuple(self._put.values()), over=tuple(self._over))
        self._put, self._over = {}, []
        return changes

    def settle(self, reading: LedgerReading | None, pools: Mapping[str, PoolObservation]) -> None:
        """Drop orders that the ledger shows, and those of replicas that are gone."""
        for order in list(self._orders.values()):
            listed = pools.get(order.pool)
            gone = listed is not None and all(each.replica_id != order.replica_id for each in listed.instances)
            if gone or (reading is not None and _is_shown(order, reading)):
                self._drop(order.replica_id)

    async def announce(self) -> None:
        """Make our epoch known to the ledger; tried again with the next turn where it is away."""
        if self._announced:
            return
        try:
            await self._calls.call(lambda ledger: ledger.undrain(_NOBODY, self._epoch))
        except StaleEpoch:
            raise
        except LedgerError:
            return
        self._announced = True

    async def mark(self, reading: LedgerReading | None, held: AbstractSet[str] = frozenset()) -> None:
        """Mark every worker with an order draining, in one go. Orders without a registered worker wait, and so do `held` ones."""
        orders = [order for replica_id, order in self._orders.items() if replica_id not in held]
        if reading is None:
            for order in orders:
                self._report(order, Outcome.WAITING, "the ledger has not answered yet")
            return
        workers = [(order, _worker_of(order, reading.workers)) for order in orders]
        for order, worker in workers:
            if worker is None:
                self._report(order, Outcome.WAITING, "its worker has not registered")
        due = [(order, worker.identity.worker) for order, worker in workers if worker is not None]
        calls = [self._drain_call(order, worker, reading.store_ahead_s) for order, worker in due]
        for (order, _), result in zip(due, await self._all(calls), strict=True):
            self._marked(order, result)

    async def undrain(self, commands: Sequence[UndrainReplica], seq: int) -> None:
        """Take drains back."""
        for command in commands:
            self._drop(command.replica_id)
        calls = [_undrain_call(command, self._epoch) for command in commands]
        for command, result in zip(commands, await self._all(calls), strict=True):
            outcome = Outcome.DONE if result is True else Outcome.ALREADY
            failed = isinstance(result, LedgerError)
            self._outcomes.record(
                command, seq, Outcome.UNAVAILABLE if failed else outcome, repr(result) if failed else ""
            )

    async def release(self, commands: Sequence[ReleaseReplicaWork], seq: int) -> None:
        """Give the leases of lost workers back."""
        calls = [_release_call(command, self._epoch) for command in commands]
        for command, result in zip(commands, await self._all(calls), strict=True):
            failed = isinstance(result, LedgerError)
            message = repr(result) if failed else f"{result} leases released"
            self._outcomes.record(command, seq, Outcome.UNAVAILABLE if failed else Outcome.DONE, message)

    async def _all(self, calls: Sequence[Callable[[Ledger], int]]) -> Sequence[int | LedgerError]:
        """The results of `calls`, made one after another in one job; errors in place of what failed."""
        if not calls:
            return ()
        try:
            return await self._calls.call(lambda ledger: _each(ledger, calls), _CALL_S + _EACH_S * len(calls))
        except StaleEpoch:
            raise
        except LedgerError as error:
            return [error] * len(calls)

    def _drain_call(self, order: DrainOrder, worker: str, store_ahead_s: float) -> Callable[[Ledger], int]:
        deadline_s, epoch = order.deadline_s + store_ahead_s, self._epoch
        return lambda ledger: ledger.drain(worker, deadline_s, order.reason, epoch)

    def _marked(self, order: DrainOrder, result: int | LedgerError) -> None:
        if isinstance(result, LedgerError):
            self._report(order, Outcome.UNAVAILABLE, repr(result))
        elif not result:
            self._report(order, Outcome.WAITING, "the ledger does not know its worker any more")
        else:
            if order.noticed_at_s is not None and self._told.get(order.replica_id) is not Outcome.DONE:
                self._metrics.notice_to_drain.observe(max(0.0, self._clock.now_s() - order.noticed_at_s))
            self._report(order, Outcome.DONE)

    def _report(self, order: DrainOrder, outcome: Outcome, message: str = "") -> None:
        """Tell an outcome once, not at every tick that it stays the same."""
        command = self._commands.get(order.replica_id)
        if command is not None and self._told.get(order.replica_id) is not outcome:
            self._told[order.replica_id] = outcome
            self._outcomes.record(*command, outcome, message)

    def _drop(self, replica_id: str) -> None:
        self._commands.pop(replica_id, None)
        self._told.pop(replica_id, None)
        self._put.pop(replica_id, None)
        if self._orders.pop(replica_id, None) is not None:
            self._over.append(replica_id)


def _order_of(command: DrainReplica) -> DrainOrder:
    return DrainOrder(
        stage=command.stage,
        pool=command.pool,
        replica_id=command.replica_id,
        instance_ids=command.instance_ids,
        deadline_s=command.deadline_s,
        reason=command.reason.code.value,
        noticed_at_s=command.notice.noticed_at_s if command.notice else None,
    )


def _worker_of(order: DrainOrder, workers: Iterable[WorkerRecord]) -> WorkerRecord | None:
    found = [each for each in workers if each.identity.instance_id in order.instance_ids and not each.gone]
    return max(found, key=lambda each: (each.registered_at_s, each.incarnation), default=None)


def _is_shown(order: DrainOrder, reading: LedgerReading) -> bool:
    worker = _worker_of(order, reading.workers)
    if worker is None:
        return any(each.identity.instance_id in order.instance_ids for each in reading.workers)
    if worker.drain is None:
        return False
    return reading.local_s(worker.drain.deadline_s) <= order.deadline_s + _SAME_DEADLINE_S


def _undrain_call(command: UndrainReplica, epoch: int) -> Callable[[Ledger], int]:
    return lambda ledger: ledger.undrain(command.worker, epoch)


def _release_call(command: ReleaseReplicaWork, epoch: int) -> Callable[[Ledger], int]:
    return lambda ledger: ledger.release_worker(command.worker, ReleaseReason.WORKER_LOST, epoch)


def _each(ledger: Ledger, calls: Sequence[Callable[[Ledger], int]]) -> list[int | LedgerError]:
    """One refusal does not stop the rest; a store that went away does."""
    results: list[int | LedgerError] = []
    away: LedgerUnavailable | None = None
    for call in calls:
        if away is not None:
            results.append(away)
            continue
        try:
            results.append(call(ledger))
        except StaleEpoch:
            raise
        except LedgerUnavailable as error:
            away = error
            results.append(error)
        except LedgerError as error:
            results.append(error)
    return results
