"""Whose an instance is, and which replica's: from its tags, from its node's labels, or from the launch that brought it.

Invariants: tags and labels are written once and never over another fleet's. Where tag and label name different fleets, it is
nobody's, and nobody touches it. A trainer's node is nobody's. An untagged instance belongs to the fleet whose turn it is to
adopt at that place (`scaler.act.sharing`), which is the only fleet there in the common case.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from scaler.act._ec2.members import FLEET_TAG, GROUP_TAG, POOL_TAG, REPLICA_TAG, TOKEN_TAG, Member
from scaler.kube.facts import FLEET_LABEL, NodeFacts, NodeIndex

NOBODY = "?"
"""Owner of what must not be touched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The launch that an instance belongs to."""

    fleet: str
    pool: str
    token: str

    @property
    def replica_id(self) -> str:
        """Bounded, and fit for a label: tokens may be long."""
        return f"{self.pool}-{hashlib.sha256(self.token.encode()).hexdigest()[:12]}"

    def tags(self, group: str) -> dict[str, str]:
        """What its instances are tagged with."""
        return {
            FLEET_TAG: self.fleet,
            POOL_TAG: self.pool,
            REPLICA_TAG: self.replica_id,
            TOKEN_TAG: self.token,
            GROUP_TAG: group,
        }

    def client_token(self, group: str) -> str:
        """AWS's idempotency token, at most 64 letters, the same whichever controller asks."""
        return hashlib.sha256(repr((group, self.fleet, self.pool, self.token)).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Owners:
    """Tells a fleet's instances from others'."""

    nodes: NodeIndex | None
    guarded: Callable[[NodeFacts], bool]
    """True for nodes of trainers."""

    def node(self, member: Member) -> NodeFacts | None:
        """Its node, once it has joined."""
        return self.nodes.by_instance(member.instance_id) if self.nodes else None

    def owner(self, member: Member, launched: Mapping[str, Identity]) -> str:
        """The fleet; empty: free; `NOBODY`: not to be touched."""
        node = self.node(member)
        if node is not None and self.guarded(node):
            return NOBODY
        known = launched.get(member.instance_id)
        named = {
            known.fleet if known else "",
            member.tags.get(FLEET_TAG, ""),
            node.labels.get(FLEET_LABEL, "") if node else "",
        } - {""}
        return NOBODY if len(named) > 1 else next(iter(named), "")


def token_of(member: Member, launched: Mapping[str, Identity]) -> str:
    """The token of the launch that brought it; empty where no launch of ours did."""
    known = launched.get(member.instance_id)
    return known.token if known else member.tags.get(TOKEN_TAG, "")
