"""Match the fleet's goodput to the consumer's unblocked rate, and keep the buffer between two set-points.

    x = (lambda * (1 + headroom) + fill - shed) / g        n = the size last decided, moved into [ceil(x), ceil(x * (1 + slack))]
    fill = max(0, target - depth) / fill_horizon            shed = max(0, depth - upper) / fill_horizon

lambda  unblocked rate of the consumer (samples/s), EWMA. A starved consumer's own rate would settle the loop in starvation.
g       goodput: accepted samples/s of one ready replica, EWMA. The signal carries the acceptance ratio already, so it is
        not multiplied in again. Replicas that launch or load are worth nothing yet.
depth   buffer depth (samples). target and upper are steps of the consumer (batches) times samples per batch; target is
        never above what the staleness bound admits, (max_staleness + 1) * batches_per_version batches.
upper   the second set-point: queue age is staleness, so a deep buffer is as wrong as an empty one.
slack   hysteresis: the fleet is lowered only when `slack` more demand would still be met by fewer.

Source: throughput balance, N_train * r_train = N_sample * b / latency(b) (Applied Compute), with the generator's rate
taken as acceptance * rate (SemiAnalysis); the proportional term is research/rl-systems.md section 4.1. With a launch
time of L seconds the buffer obeys d(depth)/dt = (target - depth(t - L)) / fill_horizon, which does not overshoot where
fill_horizon >= e * L: choose fill_horizon_s at least three launch times.

What lambda and g may learn, and when they hold: `policies.demand`.

Before any goodput was measured: `initial_goodput_per_replica_per_s` where declared; else one replica at least, and
otherwise the size that there is. So it cannot wait at zero for a measurement that only a replica can make, and broken
workers, which never give one, do not grow the fleet to its ceiling.

Invariants: less buffer never asks for fewer replicas; lambda or depth missing, stale or invalid: hold; a goodput that is
not fresh while replicas are ready never lowers.
Non-goals: prices, availability, limits.
"""

import math
from dataclasses import dataclass, field

from policies.base import Sizing, SizingInput
from policies.demand import Averaging, Demand, admitted_samples, demand_hold, read_demand
from scaler.model.plan import Reason, ReasonCode

MOST_REPLICAS = 10**9
"""A goodput next to nothing asks for this many at most; guard rails do the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Set-points and time constants. `target_depth_steps` is at most `max_depth_steps`, else `ValueError`."""

    headroom_ratio: float = field(default=0.1, metadata={"ge": 0.0, "le": 1.0, "tune": (0.0, 0.5)})
    """Share of the trainer's rate that is supplied beyond it."""
    target_depth_steps: float = field(default=1.0, metadata={"ge": 0.0, "tune": (0.0, 3.0)})
    """Buffer depth that is filled up to, in batches of the trainer."""
    max_depth_steps: float = field(default=2.0, metadata={"gt": 0.0, "tune": (0.5, 6.0)})
    """Buffer depth above which less is supplied, in batches of the trainer."""
    fill_horizon_s: float = field(default=300.0, metadata={"gt": 0.0, "tune": (120.0, 14400.0, "log")})
    """Within which the buffer shall be back between the two; three launch times at least."""
    lower_slack_ratio: float = field(default=0.1, metadata={"ge": 0.0, "le": 1.0, "tune": (0.0, 0.5)})
    """Hysteresis: so much more demand must still be met before the fleet is lowered."""
    rate_time_constant_s: float = field(default=60.0, metadata={"ge": 0.0})
    """Over which the trainer's unblocked rate is averaged."""
    goodput_time_constant_s: float = field(default=120.0, metadata={"ge": 0.0})
    """Over which the goodput of a replica is averaged."""
    initial_goodput_per_replica_per_s: float | None = field(default=None, metadata={"gt": 0.0})
    """Accepted samples/s of a ready replica before that was measured. Default: unknown."""

    def __post_init__(self) -> None:
        if self.target_depth_steps > self.max_depth_steps:
            raise ValueError(
                f"target_depth_steps ({self.target_depth_steps:g}) must not be above "
                f"max_depth_steps ({self.max_depth_steps:g})"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Balance:
    """The numbers of the formula, in samples and samples/s."""

    demand: Demand
    depth: float
    target: float
    upper: float


def size(view: SizingInput, params: Params) -> Sizing:
    """Wish for the replicas that meet the unblocked rate and bring the buffer between its set-points."""
    hold = demand_hold(view, buffered_samples=view.stage.signals.buffered_samples)
    if hold is not None:
        return Sizing(replicas=None, reason=hold, memory=view.memory)
    balance = _balance(view, params)
    wanted = _replicas(view, params, balance)
    return Sizing(replicas=wanted, reason=_reason(view, balance, wanted), memory=balance.demand.memory)


def _balance(view: SizingInput, params: Params) -> _Balance:
    signals = view.stage.signals
    batch = max(1, signals.batch_samples)
    target = min(params.target_depth_steps * batch, admitted_samples(signals))
    averaging = Averaging(
        rate_time_constant_s=params.rate_time_constant_s,
        goodput_time_constant_s=params.goodput_time_constant_s,
        initial_goodput_per_replica_per_s=params.initial_goodput_per_replica_per_s,
    )
    return _Balance(
        demand=read_demand(view, averaging, target),
        depth=signals.buffered_samples.value or 0.0,
        target=target,
        upper=params.max_depth_steps * batch,
    )


def _replicas(view: SizingInput, params: Params, balance: _Balance) -> int:
    """The size last decided, moved into the interval that the formula allows."""
    goodput = balance.demand.goodput
    if not goodput:  # an average of next to nothing may round to 0
        return max(1, view.base)
    fill = max(0.0, balance.target - balance.depth) / params.fill_horizon_s
    shed = max(0.0, balance.depth - balance.upper) / params.fill_horizon_s
    wanted_rate = max(0.0, balance.demand.rate * (1 + params.headroom_ratio) + fill - shed)
    least = _ceil(wanted_rate / goodput)
    most = _ceil(wanted_rate / goodput * (1 + params.lower_slack_ratio))
    if least > view.base:
        return least
    return most if most < view.base and balance.demand.may_lower else view.base


def _ceil(replicas: float) -> int:
    """Rounded up, forgiving the last bits of floating point."""
    return math.ceil(min(replicas, MOST_REPLICAS) - 1e-9)


def _reason(view: SizingInput, balance: _Balance, wanted: int) -> Reason:
    moved = wanted - view.base
    code = ReasonCode.STEADY if not moved else ReasonCode.SIZE_UP if moved > 0 else ReasonCode.SIZE_DOWN
    rate, goodput = balance.demand.rate, balance.demand.goodput
    supply = "no goodput measured yet" if goodput is None else f"{goodput:.3g}/s a replica"
    return Reason(
        code=code,
        message=(
            f"consumer takes {rate:.3g} samples/s, {supply}, buffer {balance.depth:.0f} "
            f"(set-points {balance.target:.0f} and {balance.upper:.0f}): {view.base} -> {wanted} replicas"
        ),
        inputs=(
            ("unblocked_rate_per_s", rate),
            ("goodput_per_replica_per_s", goodput or 0.0),
            ("buffered_samples", balance.depth),
            ("target_samples", balance.target),
            ("upper_samples", balance.upper),
        ),
    )
