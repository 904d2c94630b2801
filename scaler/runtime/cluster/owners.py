"""Whose an instance is, for sources whose messages name instances of the whole account.

Policy: an instance is ours if a fleet's pool lists it, or its node carries a fleet's label. One that a fleet listed stays ours
for a while after it is gone, since messages come late. A node of the cluster without any of that is somebody else's.
Non-goals: which fleet it is; every fleet looks for itself.
"""

from collections.abc import Iterable

from scaler.interruptions.base import Ownership
from scaler.kube.facts import FLEET_LABEL, NodeIndex
from scaler.model.clock import Clock

_REMEMBER_S = 3600.0


class Owners:
    """An `InstanceOwner`; fleets tell it what they list."""

    def __init__(self, nodes: NodeIndex, clock: Clock) -> None:
        self._nodes = nodes
        self._clock = clock
        self._listed: dict[str, dict[str, float]] = {}

    def listed(self, fleet: str, instance_ids: Iterable[str]) -> None:
        """The instances that a fleet's pools hold now."""
        now_s = self._clock.monotonic_s()
        known = self._listed.get(fleet, {})
        kept = {each: at_s for each, at_s in known.items() if now_s - at_s < _REMEMBER_S}
        self._listed[fleet] = kept | dict.fromkeys(instance_ids, now_s)

    def forget(self, fleet: str) -> None:
        """The fleet is no more."""
        self._listed.pop(fleet, None)

    def knows(self, instance_id: str) -> Ownership:
        """See `InstanceOwner`."""
        if any(instance_id in listed for listed in self._listed.values()):
            return Ownership.OURS
        node = self._nodes.by_instance(instance_id)
        if node is None:
            return Ownership.UNKNOWN
        return Ownership.OURS if node.labels.get(FLEET_LABEL) else Ownership.FOREIGN

    def ours(self) -> frozenset[str]:
        """Every instance that a fleet lists, or listed a while ago."""
        return frozenset(each for listed in self._listed.values() for each in listed)
