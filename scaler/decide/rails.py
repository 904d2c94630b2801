"""Guard rails over a wished size, in a fixed order, each clamp recorded.

    1 floor                   never fewer than `min_replicas`; wins over every rail against raising
    2 ceiling                 never more than `max_replicas`; wins over the floor
    3 spend                   no more than what is running may cost under the caps of stage and fleet
    4 step_up / step_down     at most so many more or fewer in one decision
    5 cooldown_up / _down     nothing so soon after the last change of size, in either direction
    6 not_fresh_long_enough   nothing fewer until signals have been fresh for `lower_after_fresh_s`
    then, replica by replica, outside this file: disruption budget when draining, spend and offerings when launching.

Sizes move from `base`, the size last decided: refilling a lost replica up to it is no change of size, so neither step nor
cool-down delays it. `count` is what counts as capacity now; more than `base` of that (a late launch) is surplus to lower.

Invariants: pure arithmetic; the result never exceeds the ceiling by our own choice, and holding (`wanted` None) never
lowers, but still raises to the floor.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from scaler.model.plan import Clamp, ClampCode, StageMemory
from scaler.model.spec import GuardRails


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the rails look at. `affordable`: how many of those counting now the spend caps allow."""

    now_s: float
    rails: GuardRails
    memory: StageMemory
    count: int
    affordable: int

    @property
    def base(self) -> int:
        """The size last decided, or what there is."""
        return self.count if self.memory.desired is None else self.memory.desired

    @property
    def standing(self) -> int:
        """The size that any fewer would lower."""
        return max(self.base, self.count)


class Railed(NamedTuple):
    """The size that the rails allow, and the clamps that made it."""

    size: int
    clamps: tuple[Clamp, ...] = ()

    def to(self, code: ClampCode, size: int) -> "Railed":
        """Clamped to `size`; nothing is recorded where that changes nothing."""
        if size == self.size:
            return self
        return Railed(size=size, clamps=(*self.clamps, Clamp(code=code, wanted=self.size, allowed=size)))


def apply_rails(situation: Situation, wanted: int | None) -> Railed:
    """The allowed size for a wished one; None means hold."""
    rails = situation.rails
    held = Railed(size=situation.standing if wanted is None else wanted)
    railed = held.to(ClampCode.FLOOR, max(held.size, rails.min_replicas))
    if wanted is None:
        # A ceiling below what is held stops refilling at once, but lowers nothing.
        return railed.to(ClampCode.CEILING, max(min(railed.size, rails.max_replicas), situation.count))
    railed = railed.to(ClampCode.CEILING, min(railed.size, rails.max_replicas))
    if situation.affordable < situation.count:
        railed = railed.to(ClampCode.SPEND, min(railed.size, situation.affordable))
    if railed.size < situation.standing:
        return _lowered(situation, railed)
    return _raised(situation, railed) if railed.size > situation.base else railed


def _raised(situation: Situation, railed: Railed) -> Railed:
    """Held where it is not allowed to go higher, though what is there and wanted is never let go for that."""
    rails, base = situation.rails, situation.base
    least = max(base, min(max(rails.min_replicas, situation.count), railed.size))
    railed = railed.to(ClampCode.STEP_UP, max(least, min(railed.size, base + rails.max_step_up)))
    if _cooling(situation, rails.cooldown_up_s):
        railed = railed.to(ClampCode.COOLDOWN_UP, least)
    return railed


def _lowered(situation: Situation, railed: Railed) -> Railed:
    """Held where it is not allowed to go lower, though never refilled above the ceiling."""
    rails, standing = situation.rails, situation.standing
    held = max(railed.size, min(standing, max(rails.max_replicas, situation.count)))
    railed = railed.to(ClampCode.STEP_DOWN, min(held, max(railed.size, standing - rails.max_step_down)))
    if _cooling(situation, rails.cooldown_down_s):
        railed = railed.to(ClampCode.COOLDOWN_DOWN, held)
    if not fresh_long_enough(situation):
        railed = railed.to(ClampCode.NOT_FRESH_LONG_ENOUGH, held)
    return railed


def _cooling(situation: Situation, cooldown_s: float) -> bool:
    return situation.now_s < last_change_s(situation.memory) + cooldown_s


def last_change_s(memory: StageMemory) -> float:
    """When the size last changed, either way; minus infinity where it never did."""
    changes = (memory.last_up_at_s, memory.last_down_at_s)
    return max([at_s for at_s in changes if at_s is not None], default=-math.inf)


def fresh_long_enough(situation: Situation) -> bool:
    """Whether signals have been fresh for as long as lowering needs."""
    since_s = situation.memory.fresh_since_s
    return since_s is not None and situation.now_s - since_s >= situation.rails.lower_after_fresh_s
