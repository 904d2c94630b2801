"""When to leave, and what still fits before.

Three sources may tell a worker to leave; the earliest deadline binds. Signal and notice are never taken back, the
ledger's mark may be. Work ends `margin_s` before the deadline, or a fifth of the time that the order left where that
is less, so that a compressed deadline keeps a compressed margin.
"""

from dataclasses import dataclass, field

from rollout_worker.events import DrainSource

_FOR_GOOD = (DrainSource.SIGNAL, DrainSource.NOTICE)
_SMOOTHING_RATIO = 0.05
"""Weight of a new token in the mean: some twenty tokens are remembered, a second or so of a large model."""


@dataclass(frozen=True, slots=True)
class _Order:
    ordered_at_s: float
    deadline_s: float

    def finish_by_s(self, margin_s: float, margin_ratio: float) -> float:
        notice_s = max(0.0, self.deadline_s - self.ordered_at_s)
        return self.deadline_s - min(margin_s, margin_ratio * notice_s)

    def give_up_at_s(self, last_try_s: float) -> float:
        return max(self.deadline_s, self.ordered_at_s + last_try_s)


@dataclass(slots=True, kw_only=True)
class DrainOrders:
    """The orders in force, by source. Times are on the agent's monotonic clock."""

    margin_s: float = 10.0
    margin_ratio: float = 0.2
    last_try_s: float = 5.0
    """How long a ledger that is away is tried at least, also past the deadline: nothing is saved by going sooner."""
    _orders: dict[DrainSource, _Order] = field(default_factory=dict)

    def order(self, source: DrainSource, at_s: float, deadline_s: float) -> bool:
        """Take an order; True where this source had none. Of one source's signals or notices the earliest binds."""
        old = self._orders.get(source)
        if old and source in _FOR_GOOD:
            deadline_s = min(deadline_s, old.deadline_s)
        self._orders[source] = _Order(old.ordered_at_s if old else at_s, deadline_s)
        return old is None

    def withdraw(self, source: DrainSource) -> bool:
        """Take an order back; True where there was one."""
        return self._orders.pop(source, None) is not None

    @property
    def active(self) -> bool:
        """Whether anything tells the worker to leave."""
        return bool(self._orders)

    @property
    def for_good(self) -> bool:
        """Whether the process is to end once it has handed over; a drain by the ledger leaves that to its owner."""
        return any(source in self._orders for source in _FOR_GOOD)

    @property
    def finish_by_s(self) -> float | None:
        """When generation must have ended."""
        return min((o.finish_by_s(self.margin_s, self.margin_ratio) for o in self._orders.values()), default=None)

    @property
    def give_up_at_s(self) -> float | None:
        """When a worker that is to end does so even if the ledger never answered."""
        orders = [self._orders[source] for source in _FOR_GOOD if source in self._orders]
        return min((o.give_up_at_s(self.last_try_s) for o in orders), default=None)


@dataclass(slots=True)
class TokenRate:
    """Seconds a token takes within one generation: an exponential mean over all generations of this worker."""

    _s_per_token: float | None = None

    def observe(self, tokens: int, seconds: float) -> None:
        """`tokens` followed a generation's previous ones after `seconds`."""
        if tokens <= 0 or seconds < 0:
            return
        weight = 1 - (1 - _SMOOTHING_RATIO) ** tokens
        sample = seconds / tokens
        old = self._s_per_token
        self._s_per_token = sample if old is None else old + weight * (sample - old)

    def seconds_for(self, tokens: int) -> float:
        """How long `tokens` more take; endless while nothing was measured."""
        if tokens <= 0:
            return 0.0
        return float("inf") if self._s_per_token is None else tokens * self._s_per_token
