"""From launches and releases that a policy wants to one size that the engine carries out.

The engine knows one number, and either grows or shrinks. So either launches go first, and what is to go waits until its better
one is asked for, or releases go first, for a policy that names only what can be spared already. Where guard rails did not
allow the last growth (ceiling, spend), launches would wait for ever: then releases go first in any case.

Invariants: never launches and releases at once; without either the size is what counts now.
"""

from collections.abc import Mapping, Sequence

from policies.base import Place, Sizing, SizingInput
from policies.demand import Demand
from scaler.model.plan import Reason, ReasonCode
from scaler.model.snapshot import ReplicaView

WISHED = "wished_replicas"
"""Memory: the size last wished for."""


def moved(
    view: SizingInput,
    launches: Sequence[Place],
    releases: Sequence[ReplicaView],
    *,
    memory: Mapping[str, float],
    reason: Reason,
    releases_first: bool = False,
) -> Sizing:
    """Wish for the launches, else for the releases (the first of them first), else for what there is; or the other way round."""
    count = len(view.counting)
    more = sum(place.replicas for place in launches)
    if releases and (releases_first or not more or _growth_was_refused(view)):
        wanted, launches = count - len(releases), ()
    else:
        wanted = count + more
    return Sizing(
        replicas=wanted,
        reason=Reason(code=_code(wanted, count), message=reason.message, inputs=reason.inputs, clamps=reason.clamps),
        memory={**memory, WISHED: float(wanted)},
        places=tuple(launches),
        release_first=tuple(replica.replica_id for replica in releases),
    )


def _growth_was_refused(view: SizingInput) -> bool:
    wished = view.memory.get(WISHED)
    return wished is not None and view.desired is not None and wished > view.desired


def _code(wanted: int, count: int) -> ReasonCode:
    if wanted == count:
        return ReasonCode.STEADY
    return ReasonCode.SIZE_UP if wanted > count else ReasonCode.SIZE_DOWN


def not_lowered(view: SizingInput, demand: Demand, sizing: Sizing) -> Sizing:
    """The same wish, or a hold where it would lower the fleet although the goodput is not fresh."""
    if demand.may_lower or sizing.replicas is None or sizing.replicas >= len(view.counting):
        return sizing
    reason = Reason(code=ReasonCode.HOLD_SIGNAL_STALE, message="holding: goodput_per_replica_per_s is not fresh")
    return Sizing(replicas=None, reason=reason, memory=sizing.memory)
