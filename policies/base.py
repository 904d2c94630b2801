"""What a policy is: a pure function of a stage's view, its own parameters and its own small memory.

A policy says how many replicas are wanted and why. It never looks at limits: guard rails have the last word, after it.
It reads no clock (`now_s` is in the call) and keeps no state but the numbers it returns.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from scaler.model.plan import Reason
from scaler.model.snapshot import OfferingView, ReplicaView, StageView


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An offering where launches may go, at most `replicas` of them."""

    pool: str
    offering_id: str
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """A size wished for. `replicas` None means hold: the signals do not allow a judgement."""

    replicas: int | None
    reason: Reason
    memory: Mapping[str, float] = field(default_factory=dict)
    places: tuple[Place, ...] | None = None
    """Where to launch what is missing, in this order and nowhere else, though the floor is filled anywhere. None leaves it
    to the placement policy: right where a size does not depend on what it costs."""
    release_first: tuple[str, ...] = ()
    """Ids of the replicas to let go first, in this order, before the usual order of victims."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizingInput:
    """All that a sizing policy may look at."""

    now_s: float
    stage: StageView
    signal_max_age_s: float
    memory: Mapping[str, float]
    launching: int
    """Replicas asked for or starting."""
    ready: int
    desired: int | None = None
    """The size last decided, after guard rails; None where nothing was decided yet. A lost replica does not lower it."""
    counting: tuple[ReplicaView, ...] = ()
    """The replicas that count as capacity, in order of id: requested to ready, neither noticed nor a failed launch."""
    usable: tuple[tuple[str, OfferingView], ...] = ()
    """(pool, offering) where a launch may be asked for now: not refused lately, and the pool has room. Spend is not looked at."""
    full: bool = False
    """The stage is at its ceiling: nothing is launched until something has gone."""
    nodes_per_replica: Mapping[str, int] = field(default_factory=dict)
    """Pool -> nodes that make one replica, 1 where absent: a replica costs that many times its offering's price."""

    @property
    def base(self) -> int:
        """The size that a relative policy starts from: the one last decided, else what counts as capacity."""
        return self.launching + self.ready if self.desired is None else self.desired


SizingPolicy: TypeAlias = Callable[[SizingInput, Any], Sizing]
"""(input, the policy's own Params) -> Sizing."""

PlacementPolicy: TypeAlias = Callable[
    [int, tuple[tuple[str, OfferingView], ...], float, Any], tuple[tuple[str, str], ...]
]
"""(replicas wanted, offerings that may be used as (pool, view), now_s, Params) -> (pool, offering_id) for each, perhaps fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A policy and the frozen dataclass of its parameters.

    Field names of `params` carry their unit (`_s`, `_ratio`, `_usd`, plain numbers else; a rate `_per_s` is a plain
    number), from which the YAML's form follows: durations and percentages are strings there. Bounds are in the fields'
    metadata (`ge`, `gt`, `le`); checks across fields are in `__post_init__` and raise `ValueError`. What `headrace tune`
    searches is there too: `tune`, (low, high) or (low, high, "log"), or the values of a flag or word; without it a field stays.
    """

    params: type
    function: Callable[..., Any]
