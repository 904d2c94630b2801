"""What a pool holds, as its provider lists it: facts that adapters hand in and a snapshot is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class InstanceState(StrEnum):
    """An instance as its provider sees it."""

    PENDING = "pending"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting_down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One instance of ours that is not gone. `launched_at_s` is on the provider's clock."""

    instance_id: str
    replica_id: str
    offering_id: str
    state: InstanceState
    launched_at_s: float
    launch_token: str
    node_name: str = ""
    """Its Kubernetes node, once it has joined; empty on one machine."""
    node_uid: str = ""
    attached: bool = True
    """Its group still counts it; an instance that left its group lives until the cloud takes it, or we reap it."""
    dying: bool = False
    """The machine itself goes, and this pool did not ask for it; where nobody tells, it is gone without a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolObservation:
    """Everything a pool holds, listed completely at `listed_at_s`."""

    listed_at_s: float
    instances: tuple[Instance, ...]
    refused_reason: str | None = None
    """Why this pool may not be acted on at all (another owner, wrong settings); None: it may."""
    available: Mapping[str, int] = field(default_factory=dict)
    """Offering id -> instances that could be had, where the provider tells; absent means unknown."""
    missing: int | None = None
    """Replicas that others will make and of which nothing is listed yet, where what others replace is told by a count; else
    None. With what is listed they are all that there will be, noticed ones that still stand apart: each of these is replaced
    once it goes."""
