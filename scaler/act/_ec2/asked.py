"""Launches that were asked for, and which instances answer them, while tags do not tell yet.

Auto Scaling tags nothing at launch, so an instance is in lists before our tags are on it. Until then this memory says whose it
is; where a controller died in between, the replay of the token says it again.

* An instance that an answer named is known from then on.
* While an answer is out, as many untagged newcomers of its offering as it asked for are held back from adoption: each would be
  taken for a replica of its own, and then change its name. Held back for two minutes at most.
* A launch that waits for what the group launches by itself (`own`) takes newcomers in the order of asking.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from scaler.act._ec2.identity import Identity
from scaler.act._ec2.members import FLEET_TAG, Member
from scaler.act._ec2.reading import Reading
from scaler.model.clock import Clock

_HELD_BACK_S = 120.0
_FORGOTTEN_S = 1800.0
"""Longer than any launch is waited for."""
_ASKED_AGAIN_S = 60.0
"""A launch without an answer is asked for with every turn of the loop, which come more often than this."""
SLACK_S = 5.0
"""Launch times are whole seconds, and AWS's clock is known to a second."""
REPEATED_S = 900.0
"""Where no token of AWS's tells a repeat, what the group launched of late and nobody has claimed may be what an earlier
controller asked for by the same token: it is taken before the group is raised again."""


@dataclass(slots=True, kw_only=True)
class Asked:
    """One launch that was asked for."""

    identity: Identity
    client_token: str
    offering_id: str
    nodes: int
    asked_at_s: float
    """On AWS's clock."""
    begun_s: float
    """On the monotonic clock."""
    reach_s: float
    """Instances launched so long before it was asked for may answer it."""
    own: bool = False
    """The group launches by itself; no call of ours brings it."""
    repeated_s: float = 0.0
    """When it was last asked for: a launch that nobody asks for any more waits for nothing."""
    answered_s: float | None = None
    mark: int = 0
    """Of the readings that count what it brought: the first has this one."""


@dataclass(slots=True)
class Launches:
    """See the module's docstring."""

    clock: Clock
    known: dict[str, Identity] = field(default_factory=dict)
    """Instance id -> the launch that brought it."""
    seen: set[str] = field(default_factory=set)
    """Known instances that have been listed."""
    adopted: set[str] = field(default_factory=set)
    """Untagged instances that have been listed under their own ids, which they keep."""
    doomed: dict[str, float] = field(default_factory=dict)
    """Instances of launches that came in part or came wrong: being ended, never a replica."""
    _asked: dict[str, Asked] = field(default_factory=dict)

    def ask(self, asked: Asked) -> Asked:
        """Remember it; a launch that is asked for again keeps its first time."""
        self._forget_old()
        kept = self._asked.setdefault(asked.client_token, asked)
        kept.repeated_s = asked.begun_s
        return kept

    def earlier(self, client_token: str) -> Asked | None:
        """The launch, if it was asked for before."""
        return self._asked.get(client_token)

    def answered(self, asked: Asked, instance_ids: Iterable[str], mark: int) -> None:
        """These instances came; readings from `mark` on count them."""
        asked.answered_s, asked.mark = self.clock.monotonic_s(), mark
        self.known |= dict.fromkeys(instance_ids, asked.identity)

    def refused(self, asked: Asked) -> None:
        """Nothing came of it, and nothing will."""
        self._asked.pop(asked.client_token, None)

    def gone(self, listed: Mapping[str, Member]) -> None:
        """Forget instances that are listed no more; a list may be a moment old, so only after a while."""
        old_s = self.clock.monotonic_s() - _HELD_BACK_S
        recent = {a.identity.token for a in self._asked.values() if a.answered_s is None or a.answered_s > old_s}
        self.known = {i: who for i, who in self.known.items() if i in listed or who.token in recent}
        self.seen = (self.seen | listed.keys()) & self.known.keys()
        self.adopted &= listed.keys()
        self.doomed = {i: at_s for i, at_s in self.doomed.items() if i in listed or at_s > old_s}

    def on_its_way(self, mark: int) -> int:
        """Instances that calls asked for and a reading of that mark may not count yet."""
        calls = [asked for asked in self._asked.values() if not asked.own]
        return sum(a.nodes for a in calls if a.answered_s is None or a.mark > mark)

    def waiting(self) -> list[Asked]:
        """Launches that wait for what the group launches by itself, the first asked first."""
        recent_s = self.clock.monotonic_s() - _ASKED_AGAIN_S
        return [a for a in self._asked.values() if a.own and a.answered_s is None and a.repeated_s >= recent_s]

    def settle(self, reading: Reading) -> frozenset[str]:
        """Give newcomers to the launches that they answer; returns those that are held back from adoption."""
        self.gone(reading.members)
        newcomers = [member for member in reading.members.values() if self._is_new(member)]
        for member in newcomers:
            self._by_client_token(member)
        called = [a for a in self._asked.values() if not a.own and a.answered_s is None]
        held = self._held_back(called, newcomers)
        free = [member for member in newcomers if member.instance_id not in held]
        for asked in self.waiting():
            self._take(asked, free, reading.mark)
        return frozenset(held | self._held_back(self.waiting(), free))

    def _is_new(self, member: Member) -> bool:
        strange = member.instance_id not in self.known and member.instance_id not in self.doomed
        return strange and member.counted and FLEET_TAG not in member.tags

    def _by_client_token(self, member: Member) -> None:
        asked = self._asked.get(member.client_token)
        if asked is not None:
            self.known[member.instance_id] = asked.identity

    def _take(self, asked: Asked, newcomers: Iterable[Member], mark: int) -> None:
        by_zone: dict[str, list[Member]] = {}
        for member in self._since(asked, newcomers):
            by_zone.setdefault(member.zone, []).append(member)
        for members in by_zone.values():
            if len(members) >= asked.nodes:
                self.answered(asked, [member.instance_id for member in members[: asked.nodes]], mark)
                return

    def _held_back(self, unanswered: Iterable[Asked], newcomers: Iterable[Member]) -> set[str]:
        held: set[str] = set()
        old_s = self.clock.monotonic_s() - _HELD_BACK_S
        for asked in unanswered:
            if asked.begun_s > old_s:
                fits = [m for m in self._since(asked, newcomers) if asked.own or m.offering_id == asked.offering_id]
                held |= {m.instance_id for m in [m for m in fits if m.instance_id not in held][: asked.nodes]}
        return held

    def _since(self, asked: Asked, newcomers: Iterable[Member]) -> list[Member]:
        first_s = asked.asked_at_s - asked.reach_s
        named = self.known.keys() | self.adopted
        new = [m for m in newcomers if m.launched_at_s >= first_s and m.instance_id not in named]
        return sorted(new, key=lambda m: (m.launched_at_s, m.instance_id))

    def _forget_old(self) -> None:
        oldest_s = self.clock.monotonic_s() - _FORGOTTEN_S
        self._asked = {token: asked for token, asked in self._asked.items() if asked.begun_s > oldest_s}
