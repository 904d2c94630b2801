"""A fixed number of replicas, whatever the signals say.

Invariant: the wish never changes and needs no signal, so it never holds. Guard rails still have the last word.
"""

from dataclasses import dataclass, field

from policies.base import Sizing, SizingInput
from scaler.model.plan import Reason, ReasonCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """How many."""

    replicas: int = field(metadata={"ge": 0, "tune": (1, 128, "log")})
    """The size, whatever happens."""


def size(_view: SizingInput, params: Params) -> Sizing:
    """Wish for `params.replicas`."""
    return Sizing(
        replicas=params.replicas,
        reason=Reason(code=ReasonCode.STEADY, message=f"a fixed fleet of {params.replicas}"),
    )
