"""RLBoost: take any spot instance there is, up to the number that balances generation and training.

    N_prem <- (t_remote * n + T_seed * n_resv) / t_train          once a step (policy version)

t_remote  time that n preemptible instances generate for one step (s); t_remote * n is the step's work in instance-seconds
t_train   time that the trainer needs for one step when it never waits (s)
T_seed    time that the n_resv engines on the trainer's own GPUs generate before they turn to training ("seeding")

Source: RLBoost (NSDI '26, arXiv 2510.19225), Algorithm 1 and its rule for the cap on remote instances. By design it has no
price term, no choice among zones, no on-demand, and reacts to a preemption only by taking another instance.

Where an asynchronous, disaggregated trainer had to choose
* The trainer's GPUs never generate: n_resv = 0, so T_seed, its update and its memory M[n] have nothing to act on.
* Steps overlap, so t_remote is not a phase that could be timed. What is left of the formula is work over time:
  t_remote * n = B / g (batch B in samples, g accepted samples/s of an instance that has work), t_train = B / r (r the unblocked
  rate): N_prem = r / g, the balance point. g and r are the averages of `policies.demand`.
* N_prem is a count of instances: it is rounded up, since the cap must let the trainer be fed. It changes only when the
  policy version does, as there; where no version is told, at any time.
* "Any instance": each launch goes to the next spot offering in order of name, in turn; which of them has capacity decides.
* It starts at `initial_replicas` until a goodput is known (there: N_prem = n_resv).

Invariant: more demand never asks for fewer replicas; signals missing, stale or invalid: hold.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from policies.base import Place, Sizing, SizingInput
from policies.demand import Averaging, Demand, admitted_samples, demand_hold, read_demand
from policies.moves import moved, not_lowered
from policies.offers import Offer, offers
from scaler.model.plan import Reason, ReasonCode
from scaler.model.snapshot import ReplicaView

CAP, STEP = "cap_replicas", "step"
"""Memory: N_prem, and the policy version at which it was reckoned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Its start and its averages; the rule itself has no parameter."""

    initial_replicas: int = field(default=1, metadata={"ge": 1})
    """N_prem before a goodput was measured."""
    rate_time_constant_s: float = field(default=300.0, metadata={"ge": 0.0, "tune": (60.0, 3600.0, "log")})
    """Over which the trainer's unblocked rate is averaged."""
    goodput_time_constant_s: float = field(default=900.0, metadata={"ge": 0.0, "tune": (60.0, 7200.0, "log")})
    """Over which the goodput of a replica is averaged."""


def size(view: SizingInput, params: Params) -> Sizing:
    """Wish for N_prem spot replicas, wherever they can be had."""
    hold = demand_hold(view)
    if hold is not None:
        return Sizing(replicas=None, reason=hold, memory=view.memory)
    averaging = Averaging(
        rate_time_constant_s=params.rate_time_constant_s, goodput_time_constant_s=params.goodput_time_constant_s
    )
    demand = read_demand(view, averaging, admitted_samples(view.stage.signals))
    cap, cap_memory = _cap(view, params, demand)
    spot = sorted((offer for offer in offers(view) if offer.spot), key=lambda offer: offer.key)
    held = view.counting
    sizing = moved(
        view,
        _in_turn(cap - len(held), [offer for offer in spot if offer.usable]),
        _surplus(held, len(held) - cap),
        memory={**demand.memory, **cap_memory},
        reason=_reason(demand, cap, len(held)),
    )
    return not_lowered(view, demand, sizing)


def _cap(view: SizingInput, params: Params, demand: Demand) -> tuple[int, Mapping[str, float]]:
    """N_prem, reckoned anew where a step has passed."""
    if demand.balance is None:
        return params.initial_replicas, {}
    version = view.stage.signals.policy_version.value
    step = version if version is not None and math.isfinite(version) else None
    standing = view.memory.get(CAP)
    if standing is not None and step is not None and view.memory.get(STEP) == step:
        return int(standing), {CAP: standing, STEP: step}
    cap = math.ceil(min(demand.balance, 1e9) - 1e-9)
    return cap, {CAP: float(cap)} if step is None else {CAP: float(cap), STEP: step}


def _in_turn(missing: int, spot: Sequence[Offer]) -> tuple[Place, ...]:
    """Shares as even as they can be, the first ones larger."""
    if missing <= 0 or not spot:
        return ()
    share, more = divmod(missing, len(spot))
    counts = (share + (i < more) for i in range(len(spot)))
    return tuple(offer.place(count) for offer, count in zip(spot, counts, strict=True) if count)


def _surplus(held: Sequence[ReplicaView], surplus: int) -> Sequence[ReplicaView]:
    """Those with the least in flight, since any is like any other."""
    order = sorted(held, key=lambda replica: (replica.unpublished_tokens, replica.running_units, replica.replica_id))
    return order[: max(0, surplus)]


def _reason(demand: Demand, cap: int, held: int) -> Reason:
    return Reason(
        code=ReasonCode.STEADY,
        message=f"generation balances training at {cap} replicas; {held} are held",
        inputs=(
            ("unblocked_rate_per_s", demand.rate),
            ("goodput_per_replica_per_s", demand.goodput or 0.0),
            ("cap_replicas", float(cap)),
        ),
    )
