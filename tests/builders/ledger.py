"""Units, progress and samples for tests of ledgers: name only what the test is about."""

from collections import Counter

from scaler.ledger.contract import Beat, Commit, Ledger, Release, UnitState
from scaler.model.job import JobSettings, OnStale, WorkerIdentity, WorkerStatus
from scaler.model.work import (
    FinishReason,
    Lease,
    PolicyVersion,
    ProgressDelta,
    ReleaseReason,
    Resume,
    Sample,
    VersionSpan,
    WorkUnit,
)

READY = WorkerStatus(ready=True)
TTL_S = 30.0


def settings(
    *,
    group_size: int = 2,
    batch_groups: int = 2,
    max_staleness: int = 1,
    on_stale: OnStale = OnStale.DROP,
    max_concurrent: int = 4096,
    unit_failure_limit: int = 3,
    group_redraw_limit: int = 1,
    history_events: int = 1_000_000,
) -> JobSettings:
    """A job of small groups, with a back-off of 1, 2, 4 .. 30 s."""
    return JobSettings(
        group_size=group_size,
        batch_groups=batch_groups,
        max_staleness=max_staleness,
        on_stale=on_stale,
        max_concurrent=max_concurrent,
        unit_failure_limit=unit_failure_limit,
        group_redraw_limit=group_redraw_limit,
        history_events=history_events,
    )


def group(group_id: str, size: int = 2, *, epoch: int = 0, resume: Resume = Resume.TOKEN) -> list[WorkUnit]:
    """The units of one group."""
    return [
        WorkUnit(
            group_id=group_id,
            group_epoch=epoch,
            sample_index=index,
            group_size=size,
            prompt=(1, 2, 3),
            seed=100 + index,
            max_tokens=64,
            time_bound_s=10.0,
            resume=resume,
            payload={"task": "copy"},
        )
        for index in range(size)
    ]


def groups(count: int, size: int = 2, *, first: int = 0, resume: Resume = Resume.TOKEN) -> list[WorkUnit]:
    """The units of the groups g<first> .. g<first + count - 1>, in this order."""
    return [unit for number in range(first, first + count) for unit in group(f"g{number}", size, resume=resume)]


def delta(start: int, count: int, version: int = 0) -> ProgressDelta:
    """`count` tokens from position `start`, of one policy version; a token's value is its position."""
    return ProgressDelta(
        start=start,
        tokens=tuple(range(start, start + count)),
        logprobs=(-0.5,) * count,
        spans=(VersionSpan(start, start + count, version),) if count else (),
    )


def sample(unit_id: str, tokens: int = 4, version: int = 0) -> Sample:
    """A finished sample of one policy version."""
    whole = delta(0, tokens, version)
    return Sample(
        unit_id=unit_id,
        tokens=whole.tokens,
        logprobs=whole.logprobs,
        spans=whole.spans,
        finish_reason=FinishReason.STOP,
        reward=1.0,
    )


def commit_of(lease: Lease, tokens: int = 4, version: int = 0) -> Commit:
    """The commit that ends a lease."""
    unit_id = lease.unit.unit_id
    return Commit(unit_id=unit_id, fencing_token=lease.fencing_token, sample=sample(unit_id, tokens, version))


def beat_of(lease: Lease, progress: ProgressDelta | None = None) -> Beat:
    """A beat for a lease."""
    return Beat(unit_id=lease.unit.unit_id, fencing_token=lease.fencing_token, progress=progress)


def release_of(
    lease: Lease, reason: ReleaseReason = ReleaseReason.DRAIN, progress: ProgressDelta | None = None, error: str = ""
) -> Release:
    """A lease given back."""
    return Release(
        unit_id=lease.unit.unit_id, fencing_token=lease.fencing_token, reason=reason, progress=progress, error=error
    )


def identity(worker: str = "w1") -> WorkerIdentity:
    """A worker on an instance of its own."""
    return WorkerIdentity(worker=worker, replica_id=f"r-{worker}", instance_id=f"i-{worker}")


def version(step: int) -> PolicyVersion:
    """A published policy."""
    return PolicyVersion(step, f"{step:064x}")


def lease_all(ledger: Ledger, worker: str, n: int, ttl_s: float = TTL_S) -> tuple[Lease, ...]:
    """What `lease` grants now."""
    return ledger.lease(worker, n, ttl_s).leases


def run_units(ledger: Ledger, worker: str, n: int, *, tokens: int = 4, version: int = 0) -> list[str]:
    """Lease `n` units and commit them; returns their ids."""
    leases = lease_all(ledger, worker, n)
    ledger.commit(worker, [commit_of(lease, tokens, version) for lease in leases])
    return [lease.unit.unit_id for lease in leases]


def ids(leases: tuple[Lease, ...]) -> list[str]:
    """Unit ids, in the order they were handed out."""
    return [lease.unit.unit_id for lease in leases]


def states(ledger: Ledger) -> dict[UnitState, int]:
    """How many units are in each state."""
    return dict(Counter(entry.state for entry in ledger.census()))
