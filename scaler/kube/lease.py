"""`LeaderElector`: at most one controller acts, by a Lease object, and its epoch fences whatever it sends out.

Policy: the holder renews every `retry_s` and leads until `renew_deadline_s` after it *began* the last renewal that succeeded.
Others take a lease whose record they have seen unchanged for the holder's own `leaseDurationSeconds`, on their monotonic
clock; what the record says of time is for people. A lease that vanishes under somebody who knew it is treated as held for
that long. Each request is given up before the next is due, and goes its own lane (`open_api`).

Why two never lead: a renewal is written after it began, so whoever waits saw it later than that, and waits
`lease_s` > `renew_deadline_s` longer. Every write carries the resource version it was decided on, so a late one changes
nothing. `leading` is a comparison of two numbers: a process that was stopped and goes on does not lead even before its
first await. A write whose answer was lost may have landed; the record then names this very process (a nonce is part of the
holder's identity), which is why losing answers costs no leadership and gains none.
The epoch (annotation `headrace.dev/epoch`) rises with each acquisition: above the record's, above all of our own, and at
least to the second of the wall clock, so that it stays above that of a lease object that was lost.

Non-goals: clocks whose rates differ by a quarter; machines that are frozen whole, with a monotonic clock that stands still
meanwhile (the epoch is what stops their writes); fairness among those who wait.
Bugs this must not have: kubernetes#44887, #47671 (no request time-out), client-go#448 (timestamps), #23731 and fabric8#7258
(own duration for the holder's), KP#4168 (renewals behind other work), kubernetes-client/python's elector (wall clock).
"""

import math
from collections.abc import Coroutine
from typing import Any, NoReturn, TypeVar
from uuid import uuid4

from scaler.kube.contract import LEASES, Conflict, Json, KubeApi, KubeError, NotFound
from scaler.kube.lease_record import Record, record_of, written
from scaler.kube.waiting import within
from scaler.model.clock import Clock

T = TypeVar("T")

_REQUEST_RATIO = 0.9
"""Of `retry_s`: how long one request may take."""
_RELEASE_TRIES = 3
"""A renewal that was given up may still land in between."""


class LeadershipLost(Exception):
    """Another leads, or may: stop acting at once."""


class LeaderElector:
    """See the module's docstring. `acquire`, `hold` and `release` are for one task at a time."""

    def __init__(
        self,
        api: KubeApi,
        *,
        namespace: str,
        name: str,
        identity: str,
        clock: Clock,
        lease_s: float = 10.0,
        renew_deadline_s: float = 7.0,
        retry_s: float = 2.0,
    ) -> None:
        if not 0 < retry_s < renew_deadline_s < math.floor(lease_s):
            raise ValueError("retry, renewal deadline and lease in whole seconds must each be shorter than the next")
        self._api = api
        self._namespace = namespace
        self._name = name
        self._me = f"{identity}_{uuid4()}"
        self._clock = clock
        self._lease_s = math.floor(lease_s)
        self._renew_deadline_s = renew_deadline_s
        self._retry_s = retry_s
        self._lease: Json | None = None
        self._record: Record | None = None
        self._free_at_s = -math.inf
        """When whoever holds the record that we see now has lost it, unless we see another before."""
        self._highest_epoch = 0
        self._leads_until_s = -math.inf
        self._epoch = 0
        self.trouble = ""
        """What the last request failed of; empty once one is answered."""

    @property
    def leading(self) -> bool:
        """Whether this process acts, now. Ask right before each act."""
        return self._clock.monotonic_s() < self._leads_until_s

    @property
    def epoch(self) -> int:
        """Of our last acquisition; 0 before the first."""
        return self._epoch

    @property
    def identity(self) -> str:
        """As the lease names this process."""
        return self._me

    async def acquire(self) -> int:
        """Wait as standby until the lease is ours; returns its epoch. Errors of the server are waited out."""
        while True:
            began_s = self._clock.monotonic_s()
            try:
                await self._look()
                if self._clock.monotonic_s() >= self._free_at_s:
                    await self._take()
            except (KubeError, TimeoutError) as error:
                self.trouble = f"{type(error).__name__}: {error}"
            if self.leading:
                return self._epoch
            await self._clock.sleep(self._next_look_s(began_s) - self._clock.monotonic_s())

    def _next_look_s(self, began_s: float) -> float:
        regular_s = began_s + self._retry_s
        soon_s = self._free_at_s
        return soon_s if began_s < soon_s < regular_s else regular_s

    async def hold(self) -> NoReturn:
        """Renew, for as long as that can be done.

        Raises:
            LeadershipLost: the deadline has passed, or another holds the lease. `leading` is false by then.
        """
        try:
            due_s = self._clock.monotonic_s()
            while True:
                due_s = max(due_s + self._retry_s, self._clock.monotonic_s())
                await self._clock.sleep(min(due_s, self._leads_until_s) - self._clock.monotonic_s())
                await self._renew()
                if not self.leading:
                    raise LeadershipLost("no renewal succeeded in time")
        finally:
            self._leads_until_s = -math.inf

    async def release(self) -> None:
        """Stop leading, and let a standby take over at once if the server can be told."""
        self._leads_until_s = -math.inf
        for _ in range(_RELEASE_TRIES):
            try:
                await self._look()
                if self._record is not None and self._record.holder == self._me:
                    await self._write(holder="", epoch=self._record.epoch)
                return
            except Conflict:
                continue
            except (KubeError, TimeoutError):
                return

    async def _look(self) -> None:
        """Read the lease, and note when what it says was first seen."""
        try:
            lease = await self._ask(self._api.get(LEASES, self._name, namespace=self._namespace))
        except NotFound:
            lease = None
        self._note(lease)

    def _note(self, lease: Json | None) -> None:
        self.trouble = ""
        before, self._lease = self._record, lease
        self._record = record_of(lease) if lease is not None else None
        if self._record is not None:
            self._highest_epoch = max(self._highest_epoch, self._record.epoch)
        if self._record != before:
            # Of a lease that is gone, its holder knows no more than we do.
            holder = self._record or before
            free = holder is None or holder.holder in ("", self._me)
            waits_s = self._lease_s if holder is None or holder.duration_s is None else holder.duration_s
            self._free_at_s = -math.inf if free else self._clock.monotonic_s() + waits_s

    async def _take(self) -> None:
        began_s = self._clock.monotonic_s()
        epoch = max(self._highest_epoch + 1, self._epoch + 1, int(self._clock.now_s()))
        await self._write(holder=self._me, epoch=epoch)
        self._epoch = epoch
        self._leads_until_s = began_s + self._renew_deadline_s

    async def _renew(self) -> None:
        while self.leading:
            began_s = self._clock.monotonic_s()
            try:
                await self._write(holder=self._me, epoch=self._epoch)
            except Conflict:
                if await self._still_ours():
                    continue
                return
            except NotFound:
                raise LeadershipLost("the lease is gone") from None
            except (KubeError, TimeoutError) as error:
                self.trouble = f"{type(error).__name__}: {error}"
                return
            self._leads_until_s = began_s + self._renew_deadline_s
            return

    async def _still_ours(self) -> bool:
        """After a conflict: an own renewal whose answer was lost, or another holder. False where it is not known."""
        try:
            await self._look()
        except (KubeError, TimeoutError):
            return False
        if self._record is None or (self._record.holder, self._record.epoch) != (self._me, self._epoch):
            raise LeadershipLost(f"the lease is held by {self._record.holder if self._record else 'nobody'}")
        return True

    async def _write(self, *, holder: str, epoch: int) -> None:
        body = written(
            self._lease,
            name=self._name,
            holder=holder,
            epoch=epoch,
            duration_s=self._lease_s,
            now_s=self._clock.now_s(),
        )
        if self._lease is None:
            call = self._api.create(LEASES, body, namespace=self._namespace)
        else:
            call = self._api.replace(LEASES, self._name, body, namespace=self._namespace)
        self._note(await self._ask(call))

    async def _ask(self, call: Coroutine[Any, Any, T]) -> T:
        return await within(self._clock, self._request_s(), call)

    def _request_s(self) -> float:
        """Given up before the next one is due, and when leadership ends."""
        usual_s = self._retry_s * _REQUEST_RATIO
        left_s = self._leads_until_s - self._clock.monotonic_s()
        return min(usual_s, left_s) if left_s > 0 else usual_s
