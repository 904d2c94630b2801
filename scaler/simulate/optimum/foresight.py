"""What a planner reaches that knows capacity only so far ahead: an achieved cost, no bound.

The bound's program in receding horizon. The planner is asked as any sizing policy is, in the very world that policies are
judged in, so that its plan is feasible there by construction, with the same launches, refusals, notices and guard rails. At
each look it solves the program from now on, carries out what that holds in its first step, and looks again.

What it knows: the counts of all offerings now and for `foresight_s`; beyond that the last one stays (persistence). With 0 it
knows what is there now, which is more than a policy sees, and foresees nothing: no fall, no refund, no need of a hedge.
What it is told: lambda, the cost per sample in the long run, which weighs rent against waiting. The run is made again with
the cost that came out (Dinkelbach's step), and the cheaper one counts: all of them are achieved.

Where its program differs from the bound's
* A launch takes its median time, not its least. What is held now is ready as observed.
* The horizon is the foresight and `BEYOND_S` after it; stock below the world's at its start is worth lambda, above it nothing.
* A fall takes V of what is held only where V * (1 + stays / fall) is held just before it: who leaves is the cloud's choice, so
  that no refund is counted on for a replica that others would be taken instead of. The bound may let whoever suits go.
* What is held and young may be left for a fall too: its own cohort is a fall of its own, of lives that began in the past.
Plans are of fractions; the whole number of replicas is rounded up and shared out by largest remainders.

So the distance between the bound and a foresight of the whole window is luck (launches, who is taken), whole replicas and
what the bound leaves out; that between it and 0 is what foresight is worth to this planner. It is no optimum of such planners:
more foresight need not cost less, though it does where falls are what matters.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from policies.base import Place, Registered, Sizing, SizingInput
from policies.moves import moved
from scaler.model.capacity import ReplicaPhase
from scaler.model.plan import Reason, ReasonCode
from scaler.model.snapshot import ReplicaView
from scaler.model.spec import PolicySpec
from scaler.simulate.delays import Delay
from scaler.simulate.optimum.bound import use_of
from scaler.simulate.optimum.problem import Fall, Life, Limit, OfferingLimits, Problem, Stock
from scaler.simulate.optimum.program import build
from scaler.simulate.optimum.rails import Held
from scaler.simulate.optimum.ratio import least_cost
from scaler.simulate.optimum.relaxation import problem_of, ready_most
from scaler.simulate.optimum.steps import StepFunction, least_of, of_series
from scaler.simulate.result import Summary
from scaler.simulate.scenario import LaunchModel, OfferingModel, Scenario
from scaler.simulate.world import simulate
from scaler.traces.trace import Series

NAME = "foresight"
BEYOND_S = 7200.0
"""Of the horizon, after what is foreseen: what a launch must pay for itself within."""
LOOK_S = 60.0
"""Between two plans, unless a count changes before."""
FAR_LOOK_S = 300.0
"""The same with a foresight of an hour or more, whose plans change less."""
COHORT_S = 300.0
"""Ages of young replicas are told apart so finely."""
CRUMB = 0.1
"""Of a replica: what a plan wants less of is none."""
PASSES = 2
SHORTEST_S = 600.0
"""A plan is never for less: at the end of the world nothing is worth a launch."""


def achieved(scenario: Scenario, foresight_s: float, usd_per_sample: float, seed: int = 0) -> Summary:
    """The cheapest of the runs with `foresight_s` (infinite: all of the window); `usd_per_sample`: lambda of the first."""
    runs: list[Summary] = []
    for _ in range(PASSES):
        runs.append(_run(scenario, foresight_s, usd_per_sample, seed))
        if not runs[-1].samples_credited > 0:
            break
        usd_per_sample = runs[-1].cost_usd_per_1k_samples / 1000.0
    return min(runs, key=lambda run: run.cost_usd_per_1k_samples)


def _run(scenario: Scenario, foresight_s: float, usd_per_sample: float, seed: int) -> Summary:
    planner = Planner(scenario, foresight_s, usd_per_sample)
    first, *others = scenario.fleet.stages
    stages = (replace(first, sizing=PolicySpec(name=NAME, params=None)), *others)
    planned = replace(scenario, fleet=replace(scenario.fleet, stages=stages))
    known = {NAME: Registered(params=type(None), function=planner.size)}
    return simulate(planned, seed, others=known).summary


@dataclass(frozen=True, slots=True)
class _Now:
    """An offering as it stands."""

    model: OfferingModel
    counting: tuple[ReplicaView, ...]
    count: int
    occupied: int
    """Of the count: noticed and leaving ones too."""

    @property
    def doomed(self) -> int:
        """Those that a fall takes and that are not noticed yet."""
        return max(0, len(self.counting) - self.count) if self.model.reclaims else 0


class Planner:
    """A sizing policy with the scenario in its hand: see the module's docstring. For one run."""

    def __init__(self, scenario: Scenario, foresight_s: float, usd_per_sample: float) -> None:
        self._scenario, self._foresight_s, self._usd_per_sample = scenario, foresight_s, usd_per_sample
        pools = {pool.name for pool in scenario.fleet.stages[0].pools}
        self._models = [model for model in scenario.offerings if model.pool in pools]
        launch = scenario.launch
        self._launch_s = sum(delay.at(0.5) for delay in (launch.answer, launch.boot, launch.load))
        self._look_s = LOOK_S if foresight_s < 3600.0 else FAR_LOOK_S
        self._planned: tuple[float, tuple[int, ...]] | None = None
        self._wanted: tuple[int, ...] = ()

    def size(self, view: SizingInput, _: object) -> Sizing:
        """Launches and releases that the plan's first step asks for."""
        here = [self._now(model, view) for model in self._models]
        counts = tuple(one.count for one in here)
        if self._planned is None or view.now_s >= self._planned[0] + self._look_s or counts != self._planned[1]:
            self._planned = view.now_s, counts
            self._wanted = self._plan(here, view)
        launches, releases = [], []
        for one, wanted in zip(here, self._wanted, strict=True):
            more = min(wanted - len(one.counting), one.count - one.occupied)
            if more > 0:
                pool, offering_id = one.model.key
                launches.append(Place(pool=pool, offering_id=offering_id, replicas=more))
            releases += _leaving(one, view.now_s)[: max(0, len(one.counting) - one.doomed - wanted)]
        reason = Reason(code=ReasonCode.STEADY, message=f"a plan with {self._foresight_s:g} s of foresight")
        return moved(view, launches, releases, memory={}, reason=reason)

    def _now(self, model: OfferingModel, view: SizingInput) -> _Now:
        there = [r for r in view.stage.replicas if (r.pool, r.offering_id) == model.key]
        return _Now(
            model=model,
            counting=tuple(r for r in view.counting if (r.pool, r.offering_id) == model.key),
            count=model.capacity.at(view.now_s),
            occupied=sum(bool(r.instance_ids) or r.phase is ReplicaPhase.REQUESTED for r in there),
        )

    def _plan(self, here: Sequence[_Now], view: SizingInput) -> tuple[int, ...]:
        """Whole replicas to hold now, by offering."""
        problem = self._problem(here, view)
        program, layout = build(problem, pays_for_falls=True)
        x = least_cost(program, self._usd_per_sample * layout.unit_samples)
        if x is None:
            return tuple(len(one.counting) for one in here)
        return _whole([float(use_of(columns, x).held[0]) for columns in layout.offerings])

    def _problem(self, here: Sequence[_Now], view: SizingInput) -> Problem:
        scenario, now_s = self._scenario, view.now_s
        end_s = max(SHORTEST_S, min(scenario.end_s - now_s, self._foresight_s + BEYOND_S))
        models = tuple(
            replace(one.model, capacity=_foreseen(one.model.capacity, now_s, self._foresight_s)) for one in here
        )
        launch = LaunchModel(answer=Delay(), boot=Delay(least_s=self._launch_s), load=Delay())
        ahead = replace(scenario, offerings=models, end_s=end_s, launch=launch, warm_replicas=0)
        problem = problem_of(ahead)
        ceiling = float(max(scenario.fleet.stages[0].guard_rails.max_replicas, len(view.counting)))
        most = Limit(name="ceiling", weights=(1.0,) * len(here), mean_most=(ceiling,) * problem.steps, falls_most=())
        offerings = (self._offering(ahead, problem, *pair, now_s) for pair in zip(problem.offerings, here, strict=True))
        return replace(
            problem,
            credit_ahead_samples=0.0,
            stock=self._stock(view),
            offerings=tuple(offerings),
            instants_s=(),
            limits=(most,),
        )

    def _stock(self, view: SizingInput) -> Stock:
        """Credit is reckoned from the world's start; what the buffer holds more or less than then is `slack`."""
        signals, start = view.stage.signals, float(self._scenario.warm_depth_samples)
        depth, running = (reading.value or 0.0 for reading in (signals.buffered_samples, signals.running_units))
        batch = float(self._scenario.job.batch_samples)
        most = max(batch, depth, self._scenario.stock_bound_samples - running - batch)
        return Stock(start_least=start, start_most=start, most=most, slack=depth - start)

    def _offering(
        self, ahead: Scenario, problem: Problem, limits: OfferingLimits, one: _Now, now_s: float
    ) -> OfferingLimits:
        model = next(model for model in ahead.offerings if model.key == one.model.key)
        launched = ready_most(ahead, Held(model, of_series(model.capacity, ahead.end_s), _ANY))
        ready = least_of(launched, self._arrivals(one, now_s, ahead.end_s))
        return replace(
            limits,
            ready_most=tuple(float(value) for value in ready.means(np.array(problem.edges_s))),
            warm_replicas=len(one.counting),
            unforeseen_refund_s=0.0,
            falls=(*limits.falls, *self._cohorts(limits, one, now_s)),
        )

    def _arrivals(self, one: _Now, now_s: float, end_s: float) -> StepFunction:
        """The most that is ready, from what is held and on its way; whatever there is once a launch from now may be."""
        waits_s = Counter(_wait_s(replica, now_s, self._launch_s) for replica in one.counting)
        ready, steps = 0, {0.0: 0.0}
        for wait_s in sorted(waits_s):
            ready += waits_s[wait_s]
            steps[wait_s] = float(ready)
        steps[self._launch_s] = math.inf
        kept = sorted((at_s, value) for at_s, value in steps.items() if at_s < end_s)
        return StepFunction(tuple(at_s for at_s, _ in kept), tuple(value for _, value in kept), end_s)

    def _cohorts(self, limits: OfferingLimits, one: _Now, now_s: float) -> Iterator[Fall]:
        """What is held and young enough to be free if a fall takes it."""
        refund_s = one.model.offering.billing.refund_if_interrupted_within_s
        outlive_s = self._scenario.notices.outlive_s
        cohorts: dict[float, list[ReplicaView]] = {}
        for replica in one.counting:
            cohorts.setdefault(_age_s(replica, now_s) // COHORT_S * COHORT_S, []).append(replica)
        for fall in limits.falls:
            for age_s, replicas in cohorts.items():
                ready_s = min(_wait_s(replica, now_s, self._launch_s) for replica in replicas)
                ready_to_s = min(fall.at_s + outlive_s, refund_s - age_s)
                if fall.at_s < refund_s - age_s and ready_s < ready_to_s:
                    life = Life(granted_s=-age_s, ready_from_s=ready_s, ready_to_s=ready_to_s)
                    yield replace(fall, most_replicas=min(fall.most_replicas, len(replicas)), lives=(life,))


_ANY = 1_000_000
"""Warm replicas that limit nothing: `_arrivals` says what is there."""


def _foreseen(series: Series, now_s: float, foresight_s: float) -> Series:
    """The series from now on; its last value known stays."""
    later = [(at_s, count) for at_s, count in series.changes() if now_s < at_s <= now_s + foresight_s]
    times_s = (0.0, *(at_s - now_s for at_s, _ in later))
    return replace(series, times_s=times_s, counts=(series.at(now_s), *(count for _, count in later)))


def _age_s(replica: ReplicaView, now_s: float) -> float:
    return (
        max(0.0, now_s - replica.launched_at_s) if replica.launched_at_s is not None and replica.instance_ids else 0.0
    )


def _wait_s(replica: ReplicaView, now_s: float, launch_s: float) -> float:
    """Until it is ready; a launch that is late is expected within a quarter of a usual one."""
    if replica.phase is ReplicaPhase.READY:
        return 0.0
    return max(launch_s / 4, launch_s - _age_s(replica, now_s))


def _leaving(one: _Now, now_s: float) -> list[ReplicaView]:
    """In the order in which they are let go: what is not ready yet, then the oldest, which no refund waits for."""
    return sorted(one.counting, key=lambda r: (r.phase is ReplicaPhase.READY, -_age_s(r, now_s), r.replica_id))


def _whole(held: Sequence[float]) -> tuple[int, ...]:
    """Whole replicas: their sum rounded up but for a crumb, by largest remainders."""
    total = math.ceil(sum(held) - CRUMB)
    floors = [math.floor(one + 1e-6) for one in held]
    order = sorted(range(len(held)), key=lambda i: floors[i] - held[i])
    for i in order[: max(0, total - sum(floors))]:
        floors[i] += 1
    return tuple(floors)
