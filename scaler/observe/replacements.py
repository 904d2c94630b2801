"""Replacements that come by themselves: counted from the notice or the loss on, so that nobody launches a second one.

Where a pool is not ours to refill (an EKS managed node group, Karpenter), what goes without our doing is replaced without our
doing. Until its replacement is seen it is shown as REQUESTED. So the count never falls below what will be there, and never shows
a replacement twice.

Where the pool tells how many are missing, since an object holds the count of replicas (Karpenter), nothing is remembered: those
are to come, and one for each that is noticed and still stands.

Policy, for each other such pool
* A replica that goes and not by our choice (noticed, on its way out, or gone from the list) is owed a replacement, once.
* What appears without a launch of ours pays the oldest debt. While nothing is owed it pays beforehand for a replica with a
  rebalance recommendation, which AWS may replace early; else it is just there.
* A debt outlives its replica, and ends after the pool's launch time-out: then the engine sees to it.
* A launch that was listed by its token, and is by its pod now, went nowhere.
* A replica whose notice is taken back, or that comes again under its own name (pods made anew), is owed nothing.

Everything here is lost with the process: a new one sees what is noticed now, and what was launched since. It may refill a loss
that nobody remembers, and is then above the target until it lowers.
Non-goals: replicas that end by our own choice, which nobody replaces.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from scaler.decide.world import ON_ITS_WAY_OUT, is_noticed
from scaler.model.capacity import ReplicaPhase
from scaler.model.plan import ReasonCode
from scaler.model.snapshot import ReplicaView
from scaler.model.spec import PoolSpec

_PREFIX = "replacement-of:"
_OUR_REASONS = frozenset({ReasonCode.SIZE_DOWN.value, ReasonCode.REPLACE_FAILED_LAUNCH.value})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Debt:
    noticed_at_s: float
    """On the clock of the notice, which is the one of launches."""
    seen_at_s: float
    offering_id: str


@dataclass(slots=True)
class _Pool:
    """What is remembered of a pool."""

    seen: Mapping[str, ReplicaView] | None = None
    """Replicas with instances, as last looked at; None: never."""
    debts: dict[str, _Debt] = field(default_factory=dict)
    """By replica, the oldest first."""
    settled: set[str] = field(default_factory=set)
    """Replicas that are still there, and whose replacement is owed, has come, or is not waited for any more."""
    ours: set[str] = field(default_factory=set)
    """Replicas that go by our choice."""


class Replacements:
    """The debts of all pools, from one look to the next."""

    def __init__(self) -> None:
        self._pools: dict[str, _Pool] = {}

    def look(
        self, pool: PoolSpec, views: Sequence[ReplicaView], now_s: float, told_to_go: AbstractSet[str]
    ) -> list[ReplicaView]:
        """The replacements that are still to come. `told_to_go`: replicas that we chose to end, or are ending."""
        known = self._pools.setdefault(pool.name, _Pool())
        there = {view.replica_id: view for view in views if view.instance_ids}
        arrived = [view for name, view in there.items() if _is_new(known, name, view)]
        _return(known, there)
        _remember_ours(known, there, told_to_go)
        for view in _going(known, there):
            _owe(known, view, now_s)
        for view in sorted(arrived, key=lambda view: (view.launched_at_s or 0.0, view.replica_id)):
            _pay(known, there, view)
        known.debts = {
            name: debt for name, debt in known.debts.items() if now_s - debt.seen_at_s <= pool.launch_timeout_s
        }
        known.settled &= there.keys()
        known.seen = there
        return [_expected(pool.name, name, debt) for name, debt in known.debts.items()]

    def keep(self, pools: Iterable[str]) -> None:
        """Forget all other pools."""
        wanted = frozenset(pools)
        self._pools = {name: pool for name, pool in self._pools.items() if name in wanted}


def to_come(pool: PoolSpec, views: Sequence[ReplicaView], now_s: float, missing: int) -> list[ReplicaView]:
    """The replacements that are still to come, where the pool tells how many others have yet to make."""
    standing = (view for view in views if view.instance_ids and is_noticed(view))
    owed = {view.replica_id: _debt(view, now_s) for view in standing if view.phase is not ReplicaPhase.TERMINATING}
    offering_id = pool.offerings[0].offering_id if pool.offerings else ""
    owed |= {str(n): _Debt(noticed_at_s=now_s, seen_at_s=now_s, offering_id=offering_id) for n in range(missing)}
    return [_expected(pool.name, name, debt) for name, debt in owed.items()]


def _is_new(known: _Pool, name: str, view: ReplicaView) -> bool:
    """Whether it came by itself since the last look; at the first look, whether it may have."""
    if view.launch_token or name in known.debts or name in known.settled:
        return False
    return known.seen is None or name not in known.seen


def _return(known: _Pool, there: Mapping[str, ReplicaView]) -> None:
    for name, view in there.items():
        if not _goes(view) and name in known.debts:
            del known.debts[name]
            known.settled.discard(name)
        elif not _goes(view) and not _is_hinted(view):
            known.settled.discard(name)


def _remember_ours(known: _Pool, there: Mapping[str, ReplicaView], told_to_go: AbstractSet[str]) -> None:
    chosen = {
        name
        for name, view in there.items()
        if name in told_to_go or (view.phase in ON_ITS_WAY_OUT and view.drain_reason in _OUR_REASONS)
    }
    known.ours = (known.ours | chosen) & (there.keys() | (known.seen or {}).keys())
    known.ours -= {name for name, view in there.items() if not _goes(view) and name not in told_to_go}


def _going(known: _Pool, there: Mapping[str, ReplicaView]) -> Iterator[ReplicaView]:
    """What goes, and not by our choice; the first look cannot tell whose choice it was but by a notice."""
    noticed = sorted(
        (view for view in there.values() if is_noticed(view)), key=lambda v: (_noticed_at_s(v), v.replica_id)
    )
    yield from noticed
    if known.seen is None:
        return
    out = (view for view in there.values() if _goes(view) and not is_noticed(view))
    answered = {view.launch_token for view in there.values() if view.launch_token}
    lost = (view for name, view in known.seen.items() if name not in there and view.launch_token not in answered)
    yield from (view for view in (*out, *lost) if view.replica_id not in known.ours)


def _owe(known: _Pool, view: ReplicaView, now_s: float) -> None:
    name = view.replica_id
    if name not in known.debts and name not in known.settled:
        known.debts[name] = _debt(view, now_s)
        known.settled.add(name)


def _debt(view: ReplicaView, now_s: float) -> _Debt:
    return _Debt(noticed_at_s=_noticed_at_s(view), seen_at_s=now_s, offering_id=view.offering_id)


def _pay(known: _Pool, there: Mapping[str, ReplicaView], arrived: ReplicaView) -> None:
    at_s = arrived.launched_at_s or 0.0
    for name, debt in known.debts.items():
        if name != arrived.replica_id and (known.seen is not None or at_s >= debt.noticed_at_s):
            del known.debts[name]
            return
    hinted = (name for name, view in there.items() if _is_hinted(view) and at_s >= _noticed_at_s(view))
    early = min((name for name in hinted if name not in known.settled), default=None)
    if early is not None:
        known.settled.add(early)


def _goes(view: ReplicaView) -> bool:
    return is_noticed(view) or view.phase in ON_ITS_WAY_OUT


def _is_hinted(view: ReplicaView) -> bool:
    return view.notice is not None and not _goes(view)


def _noticed_at_s(view: ReplicaView) -> float:
    return view.notice.noticed_at_s if view.notice is not None else view.launched_at_s or 0.0


def _expected(pool: str, name: str, debt: _Debt) -> ReplicaView:
    return ReplicaView(
        replica_id=_PREFIX + name,
        pool=pool,
        offering_id=debt.offering_id,
        phase=ReplicaPhase.REQUESTED,
        launched_at_s=debt.seen_at_s,
        comes_by_itself=True,
    )
