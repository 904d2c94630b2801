"""Replacements that come by themselves: counted from the notice or the loss on, so that nobody launches a second one.

Where a pool is not ours to refill (an EKS managed node group, Karpenter), what goes without our doing is replaced without our
doing. Until its replacement is seen it is shown as REQUESTED. So the count never falls below what will be there, and never shows
a replacement twice.

Where the pool tells how many are missing, since an object holds the count of replicas (Karpenter), nothing is remembered: those
are to come, and one for each that is noticed and still stands.

Policy, for each other such pool
* A replica that goes and not by our choice (noticed, on its way out, or gone from the list) is owed a replacement, once. One
  that we end is owed none: its group tells of its end by a hook like of any other.
* What appears without a launch of ours pays the oldest debt. While nothing is owed it pays beforehand for a replica with a
  rebalance recommendation, which AWS may replace early; else it is just there. A notice or a recommendation may be heard of
  after its replacement was listed: what came by itself since it was given pays then.
* A replica that was replaced on a recommendation goes: its owner ends it once the other is ready. From then on it is shown with a
  notice that binds, so that it hands over, and its replacement counts in its place.
* A debt outlives its replica, and ends after the pool's launch time-out: then the engine sees to it.
* A launch that was listed by its token, and is by its pod now, went nowhere.
* A replica whose notice is taken back, or that comes again under its own name (pods made anew), is owed nothing.

Everything here is lost with the process: a new one sees what is noticed now, and what was launched since. It may refill a loss
that nobody remembers, and is then above the target until it lowers.
Non-goals: replicas that end by our own choice, which nobody replaces.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from scaler.decide.world import ON_ITS_WAY_OUT, is_noticed
from scaler.model.capacity import ReplicaPhase
from scaler.model.interruption import InterruptionNotice, NoticeKind
from scaler.model.plan import ReasonCode
from scaler.model.snapshot import ReplicaView
from scaler.model.spec import PoolSpec

_PREFIX = "replacement-of:"
_OUR_REASONS = frozenset({ReasonCode.SIZE_DOWN.value, ReasonCode.REPLACE_FAILED_LAUNCH.value})
REPLACED_ENDS_WITHIN_S = 900.0
"""From the sight of its replacement on: EKS waits until that is Ready, and then drains for 15 min at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Debt:
    noticed_at_s: float
    """On the clock of the notice, which is the one of launches."""
    seen_at_s: float
    offering_id: str
    told: bool
    """By a notice, so that what was launched since answers it."""


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
    spare: dict[str, float] = field(default_factory=dict)
    """Replicas that came by themselves for nobody -> when they were seen to; at the first look, when they were launched."""
    replaced_at_s: dict[str, float] = field(default_factory=dict)
    """Replicas that were replaced on a recommendation -> when that was seen."""


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
            _pay(known, view, now_s)
        _pay_late(known)
        _pay_beforehand(known, there, now_s)
        known.debts = {
            name: debt for name, debt in known.debts.items() if now_s - debt.seen_at_s <= pool.launch_timeout_s
        }
        known.settled &= there.keys()
        known.spare = {name: at_s for name, at_s in known.spare.items() if name in there}
        known.replaced_at_s = {name: at_s for name, at_s in known.replaced_at_s.items() if name in known.settled}
        known.seen = there
        return [_expected(pool.name, name, debt) for name, debt in known.debts.items()]

    def noticed(self, pool: str, views: Iterable[ReplicaView]) -> list[ReplicaView]:
        """The replicas as last looked at; one that was replaced on a recommendation has a notice that binds."""
        known = self._pools.get(pool, _Pool())
        return [
            replace(view, notice=_goes_by(view, known.replaced_at_s[view.replica_id]))
            if view.replica_id in known.replaced_at_s and not is_noticed(view)
            else view
            for view in views
        ]

    def keep(self, pools: Iterable[str]) -> None:
        """Forget all other pools."""
        wanted = frozenset(pools)
        self._pools = {name: pool for name, pool in self._pools.items() if name in wanted}


def to_come(pool: PoolSpec, views: Sequence[ReplicaView], now_s: float, missing: int) -> list[ReplicaView]:
    """The replacements that are still to come, where the pool tells how many others have yet to make."""
    standing = (view for view in views if view.instance_ids and is_noticed(view))
    owed = {view.replica_id: _debt(view, now_s) for view in standing if view.phase is not ReplicaPhase.TERMINATING}
    offering_id = pool.offerings[0].offering_id if pool.offerings else ""
    owed |= {
        str(n): _Debt(noticed_at_s=now_s, seen_at_s=now_s, offering_id=offering_id, told=False) for n in range(missing)
    }
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
        name for name, view in there.items() if view.phase in ON_ITS_WAY_OUT and view.drain_reason in _OUR_REASONS
    }
    known.ours = (known.ours | chosen | told_to_go) & (there.keys() | (known.seen or {}).keys())
    known.ours -= {name for name, view in there.items() if not _goes(view) and name not in told_to_go}


def _going(known: _Pool, there: Mapping[str, ReplicaView]) -> Iterator[ReplicaView]:
    """What goes, and not by our choice; the first look cannot tell whose choice it was but by a notice."""
    noticed = (view for view in there.values() if is_noticed(view) and not _ends_by_us(known, view))
    yield from sorted(noticed, key=lambda v: (_noticed_at_s(v), v.replica_id))
    if known.seen is None:
        return
    out = (view for view in there.values() if _goes(view) and not is_noticed(view))
    answered = {view.launch_token for view in there.values() if view.launch_token}
    lost = (view for name, view in known.seen.items() if name not in there and view.launch_token not in answered)
    yield from (view for view in (*out, *lost) if view.replica_id not in known.ours)


def _ends_by_us(known: _Pool, view: ReplicaView) -> bool:
    """Its group does not count it any more, whatever else is told of it."""
    hooked = view.notice is not None and view.notice.kind is NoticeKind.LIFECYCLE_HOOK
    return view.replica_id in known.ours and (hooked or view.phase is ReplicaPhase.TERMINATING)


def _owe(known: _Pool, view: ReplicaView, now_s: float) -> None:
    name = view.replica_id
    if name not in known.debts and name not in known.settled:
        known.debts[name] = _debt(view, now_s)
        known.settled.add(name)


def _debt(view: ReplicaView, now_s: float) -> _Debt:
    told = view.notice is not None and is_noticed(view)
    return _Debt(noticed_at_s=_noticed_at_s(view), seen_at_s=now_s, offering_id=view.offering_id, told=told)


def _pay(known: _Pool, arrived: ReplicaView, now_s: float) -> None:
    at_s = arrived.launched_at_s or 0.0
    for name, debt in known.debts.items():
        if name != arrived.replica_id and (known.seen is not None or at_s >= debt.noticed_at_s):
            del known.debts[name]
            return
    known.spare[arrived.replica_id] = at_s if known.seen is None else now_s


def _pay_late(known: _Pool) -> None:
    for name, debt in list(known.debts.items()):
        if debt.told and _spend(known, name, debt.noticed_at_s):
            del known.debts[name]


def _pay_beforehand(known: _Pool, there: Mapping[str, ReplicaView], now_s: float) -> None:
    hinted = (view for name, view in sorted(there.items()) if _is_hinted(view) and name not in known.settled)
    for view in hinted:
        if _spend(known, view.replica_id, _noticed_at_s(view)):
            known.settled.add(view.replica_id)
            known.replaced_at_s[view.replica_id] = now_s


def _spend(known: _Pool, name: str, since_s: float) -> bool:
    """Take one that came for nobody since then, the oldest first."""
    fit = ((at_s, each) for each, at_s in known.spare.items() if each != name and at_s >= since_s)
    found = min(fit, default=None)
    if found is not None:
        del known.spare[found[1]]
    return found is not None


def _goes_by(view: ReplicaView, replaced_at_s: float) -> InterruptionNotice:
    """What its owner does not tell in words: its replacement is there, so it is drained and ended.

    Given when the recommendation was: who starts anew finds the replacement launched since then.
    """
    return InterruptionNotice(
        instance_id=view.notice.instance_id if view.notice else view.instance_ids[0],
        kind=NoticeKind.NODE_DISRUPTED,
        noticed_at_s=_noticed_at_s(view),
        deadline_s=replaced_at_s + REPLACED_ENDS_WITHIN_S,
    )


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
