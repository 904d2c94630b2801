"""A drain that was ordered, and is remembered until the ledger shows it.

The order outlives a ledger that is away and a worker that has not registered yet: it is carried out by level, at every
tick, until the worker's record carries a drain mark or the replica is gone.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainOrder:
    """`deadline_s` and `noticed_at_s` are on the controller's clock; `noticed_at_s` only where a notice made us."""

    stage: str
    pool: str
    replica_id: str
    instance_ids: tuple[str, ...]
    deadline_s: float
    reason: str
    noticed_at_s: float | None = None
