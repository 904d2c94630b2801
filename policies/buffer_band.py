"""What a queue-length autoscaler does: a band around the buffer's depth, a step up below it, a step down above it.

    depth < low_mark   -> n + step_up_replicas
    depth > high_mark  -> n - step_down_replicas
    otherwise          -> n

n is the size last decided (replicas), or what counts as capacity where nothing was decided yet; depth is the buffer
depth, in steps of the consumer (samples / samples per batch) or in samples. After a step the policy waits `settle_s` for
its effect, and takes no step up while the last one has not arrived (launches that found no capacity): no wind-up.
Source: queue-length autoscaling as research names it (miles' queue pinned at zero or at capacity, AReaL #1086).

Invariants: less buffer never asks for fewer replicas; without a fresh depth it holds.
Non-goals: rates. It reacts only once the buffer has moved, and swings where launches take longer than the band lasts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from policies.base import Sizing, SizingInput
from policies.freshness import reason_to_hold
from scaler.model.plan import Reason, ReasonCode

STEPPED_AT_S = "stepped_at_s"
"""Memory: when the last step was wished for."""


class MarkUnit(StrEnum):
    """What the marks are counted in."""

    STEPS = "steps"
    """Batches of the consumer."""
    SAMPLES = "samples"


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The band, and the steps taken outside it. `low_mark` is below `high_mark`, else `ValueError`."""

    low_mark: float = field(default=0.5, metadata={"ge": 0.0, "tune": (0.0, 2.0)})
    """Buffer depth below which a step up is taken, in `marks_in`."""
    high_mark: float = field(default=1.5, metadata={"gt": 0.0, "tune": (0.5, 6.0)})
    """Buffer depth above which a step down is taken, in `marks_in`."""
    marks_in: MarkUnit = MarkUnit.STEPS
    """Whether the marks count batches of the trainer (steps) or samples."""
    step_up_replicas: int = field(default=1, metadata={"ge": 1, "tune": (1, 8, "log")})
    """Replicas added by a step up."""
    step_down_replicas: int = field(default=1, metadata={"ge": 1, "tune": (1, 8, "log")})
    """Replicas let go by a step down."""
    settle_s: float = field(default=60.0, metadata={"ge": 0.0, "tune": (30.0, 3600.0, "log")})
    """Wait after a step, for its effect."""

    def __post_init__(self) -> None:
        if not self.low_mark < self.high_mark:
            raise ValueError(f"low_mark ({self.low_mark:g}) must be below high_mark ({self.high_mark:g})")


def size(view: SizingInput, params: Params) -> Sizing:
    """Wish for one step more, one step less, or the same; hold without a fresh buffer depth."""
    signals = view.stage.signals
    hold = reason_to_hold({"buffered_samples": signals.buffered_samples}, view.now_s, view.signal_max_age_s)
    if hold is not None:
        return Sizing(replicas=None, reason=hold, memory=view.memory)
    samples = signals.buffered_samples.value or 0.0
    depth = samples if params.marks_in is MarkUnit.SAMPLES else samples / max(1, signals.batch_samples)
    wanted = _step(view, params, depth)
    return Sizing(replicas=wanted, reason=_reason(view, params, depth, wanted), memory=_remember(view, wanted))


def _step(view: SizingInput, params: Params, depth: float) -> int:
    """The size after at most one step; the same size while the last step settles."""
    stepped_at_s = view.memory.get(STEPPED_AT_S)
    if stepped_at_s is not None and view.now_s - stepped_at_s < params.settle_s:
        return view.base
    if depth < params.low_mark:
        arrived = view.launching + view.ready >= view.base
        return view.base + params.step_up_replicas if arrived else view.base
    if depth > params.high_mark:
        return max(0, view.base - params.step_down_replicas)
    return view.base


def _remember(view: SizingInput, wanted: int) -> Mapping[str, float]:
    return view.memory if wanted == view.base else {STEPPED_AT_S: view.now_s}


def _reason(view: SizingInput, params: Params, depth: float, wanted: int) -> Reason:
    where = "below" if depth < params.low_mark else "above" if depth > params.high_mark else "inside"
    band = f"{params.low_mark:g} to {params.high_mark:g} {params.marks_in}"
    code = _code(view.base, wanted)
    return Reason(
        code=code,
        message=f"buffer of {depth:.2f} is {where} the band of {band}: {view.base} -> {wanted} replicas",
        inputs=(("depth", depth), ("low_mark", params.low_mark), ("high_mark", params.high_mark)),
    )


def _code(base: int, wanted: int) -> ReasonCode:
    if wanted == base:
        return ReasonCode.STEADY
    return ReasonCode.SIZE_UP if wanted > base else ReasonCode.SIZE_DOWN
