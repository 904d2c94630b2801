"""A launch that was decided: what the journal keeps of it until an instance answers, or never will.

Policy: an intent counts as capacity (REQUESTED) from the moment it is persisted until an instance with its token is
listed, the provider refuses it, or nothing can come of it any more. Its token is never used for anything else.
"""

from dataclasses import dataclass

from scaler.model.plan import LaunchReplica
from scaler.model.pool import PoolObservation


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A persisted launch. `answered_at_s` is set once the provider said that it launched."""

    command: LaunchReplica
    decided_at_s: float
    answered_at_s: float | None = None

    @property
    def token(self) -> str:
        """The launch's identity."""
        return self.command.token


def is_over(intent: Intent, pool: PoolObservation, visible_within_s: float, launch_timeout_s: float) -> bool:
    """Whether the pool's complete list settles the intent.

    It does where an instance carries the token; where the provider answered and a list that was made `visible_within_s`
    later shows none (it came and went); and where no answer came for `launch_timeout_s`.
    """
    if any(instance.launch_token == intent.token for instance in pool.instances):
        return True
    if intent.answered_at_s is not None:
        return pool.listed_at_s - intent.answered_at_s > visible_within_s
    return pool.listed_at_s - intent.decided_at_s > launch_timeout_s


def came_and_went(intent: Intent, pool: PoolObservation, visible_within_s: float, lists_apart_s: float) -> bool:
    """Whether the list that settles the intent says that what it launched went at once: it was to be seen by then, and is not.

    A list that comes later than `lists_apart_s` after that says nothing: it may have lived, and worked, unseen.
    """
    if intent.answered_at_s is None or pool.refused_reason is not None:
        return False
    if any(instance.launch_token == intent.token for instance in pool.instances):
        return False
    return visible_within_s < pool.listed_at_s - intent.answered_at_s <= visible_within_s + lists_apart_s
