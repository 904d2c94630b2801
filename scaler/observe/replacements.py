"""Replacements that come by themselves: counted from the notice on, so that nobody launches a second one.

Where a pool is not ours to refill (an EKS managed node group, Karpenter), a noticed replica will be replaced without our
doing. Until that one is seen, it is shown as REQUESTED; what has come without a launch of ours since the oldest notice is
taken for it. So the count never falls below what will be there, and never shows a replacement twice.
"""

from collections.abc import Sequence

from scaler.decide.world import is_noticed
from scaler.model.capacity import ReplicaPhase
from scaler.model.snapshot import ReplicaView

_PREFIX = "replacement-of:"


def self_replaced(views: Sequence[ReplicaView]) -> list[ReplicaView]:
    """The replacements that are still to come, one for each noticed replica that nothing has replaced yet."""
    leaving = [view for view in views if view.instance_ids and is_noticed(view)]
    if not leaving:
        return []
    since_s = min(_noticed_at_s(view) for view in leaving)
    come = sum(_came_by_itself(view, since_s) for view in views)
    waiting = sorted(leaving, key=lambda view: (_noticed_at_s(view), view.replica_id))[come:]
    return [_expected(view) for view in waiting]


def _noticed_at_s(view: ReplicaView) -> float:
    return view.notice.noticed_at_s if view.notice is not None else view.launched_at_s or 0.0


def _came_by_itself(view: ReplicaView, since_s: float) -> bool:
    new = view.launched_at_s is not None and view.launched_at_s >= since_s
    return new and not view.launch_token and not is_noticed(view)


def _expected(view: ReplicaView) -> ReplicaView:
    return ReplicaView(
        replica_id=_PREFIX + view.replica_id,
        pool=view.pool,
        offering_id=view.offering_id,
        phase=ReplicaPhase.REQUESTED,
        launched_at_s=_noticed_at_s(view),
    )
