"""What no policy can beat: a proven lower bound of cost per credited sample, with the future known.

`solve(scenario)` bounds every run of every policy in the scenario's world, whatever the seed; `problem_of` is the linear
program that it solves (`FORMAT.md`), `certificate` says why a solver need not be trusted. `grid` makes the steps,
`relaxation` and `rails` the numbers, `program` the matrix, `ratio` solves, `bound` tells.

Why no run is below it
    A run gives a feasible point of the program, whose cost is at most the run's and whose `credited` is at least the
    run's. So cost - lambda * credited >= 0 for all feasible points, which is what is proven, holds for the run. The point is
    made of means over steps of what the run does, and each row holds for the means because it holds at every moment. In
    the order of the rows:

    Held, ready, launches. A replica that is ready at t was held throughout [t - d, t], d the least time from grant to
        ready (warm ones since long ago): ready(t) <= held(u) for every u in [t - d, t], paid and refunded apart, since
        a replica is one or the other all its life. Let steps j <= k begin at most d apart and end at most d apart, and
        let u run through j as evenly as t through k: then 0 <= t - u <= d all the way, and the mean of ready over k is
        at most the mean of held over j. Steps may differ in length.
    Capacity. Those that the cloud has not marked to be taken are never more than the count: a grant needs all that is
        held, marked ones too, to be below it, and a fall marks the excess at once. Who is marked is gone `outlive_s`
        later. So held(t) <= the greatest count on [t - outlive_s, t] (of all the past, where falls take nothing);
        ready(t) <= the least value of that on [t - d, t]; ready(t) <= count(u) for t - d <= u <= t - outlive_s, since who
        is ready at t and there at u was not marked by u; and ready(t) <= warm replicas for t < d. The program has the
        means of these over each step, exactly, wherever in the step a count changes.
    Refunds. What is refunded was taken by a fall at f, granted at s in [f - w, f] (w the refund's window), and gone at the
        latest at min(s + w, f + outlive_s) and before the end. A fall takes at most what it falls by. Such a life is
        held at least on [s, f], ready at most on [s + d, min(s + w, f + outlive_s)]; it costs nothing. Its share of each
        step is linear in s between neighbouring moments of `lives`, so that the lives of a run are mixtures of those
        listed, and mixtures add up. Nothing is refunded where nothing falls. What is warm is older than any refund.
        Who is taken is drawn by the world; here whoever suits best is.
        Where instances are taken at times of their own (hazards by age, bursts) and that is refunded, a life may be
        refunded whenever it ends: held at most w, ready at most a share 1 - d / w of that. Then the bound lets every
        first hour be free, and says so (`refunds_unlimited`). Without refunds hazards only harm, and are left out.
    Charges. An instance that is not refunded is charged at least from its grant to its end: price times the integral of
        held. A billing minimum is implied where it is no longer than d: who is held for less is never ready, and a run
        without it is cheaper. Where it is longer: charged(t) >= held(t); charged(t) - charged(u) <= the grants on
        (u, t]; charged(t) >= the grants on (t - minimum, t]. A grant a share p through its step is given to the edge
        before it by 1 - p and to the edge after by p; with u running through a step as t does through the next, the
        second row holds for the means, and so does the third for all edges whose grants, and those of the step before
        them, are still charged in the step (their share of it is concave in p, the program's linear).
        The trainer is charged throughout.
    Guard rails. What counts as capacity is never more than the ceiling (or the warm start): every launch and every drain
        taken back needs room under it. Held are, besides, what was noticed (at most what fell within `outlive_s`) and
        what drains by our own choice: at most ceil(disruption budget * all in sight) at the decision that let it go,
        where in sight are also those that were noticed, or gone with leases, since `outlive_s + lease_ttl_s` and the
        drain's deadline, and two that failed by themselves within the two seconds that a decision takes to see to them.
        Spend caps and room of pools hold for all held but what is noticed. This holds for means; and just before a fall, where
        held is at least what is ready within d after it, plus the lives that a later fall or this one ends, and at
        least taken + count after the fall * taken / size of the fall, since nothing is taken before more than the
        count is held (its convex hull). None of it is used where the engine loses count: where a launch may outlast its
        time-out while its worker loads, or where hazards notice at any time; nor the ceiling where all may drain at once.
    Supply. Each lane of a ready replica works on one group; ready replicas make at most goodput * ready time, busy ones
        counted (no more run at once than `max_concurrent` and admission let), and `draw_slack_samples` by luck: in any
        stretch, since what is accepted differs from its share by less than a group. Weight swaps, prefills and lost
        work only lower it.
    The trainer. Let F be what it has finished, A the same with the share of the batch in work (spread evenly over the
        time that the batch takes), and V the most that is at most A and grows by at most `demand` a second. Batches that
        publish nothing are faster than the mean, so A <= V + `credit_ahead_samples`. The program's `worked` is V's growth;
        `stock` is the world's stock, which holds the batch in work, + F - V: not negative, as the batch holds what is
        worked of it, and at most admission's bound + `credit_ahead_samples` + slack. Stock at the start is left open
        between its least (the buffer) and its most (lanes and tails of the warm replicas, all done). Then credited = F +
        min(stock at the end, at the start) - stock at the start <= V + `stock` at the end - at the start, and <= F <= V
        + `credit_ahead_samples`, and F <= the batches that one finishes who never waits.

    Left out, so that it only loosens the bound: other stages and what they cost, failures of launches and of hardware,
    requests and refusals, staleness, cool-downs, step limits and floors, and that replicas are whole. The last costs
    little: in the smallest worlds the best schedule is within 1 % for most (`tests/simulate/optimum/test_exhaustive.py`).
    A mixed-integer version, in which a fall takes nothing before all that must stay is held, raised the bound of case A
    on 12 hours of the H100 counts by about 1 % and took most of a minute instead of a second.

In the mean (`in_the_mean`)
    No run is below the bound, and few can be near it: each launch may be at its shortest there, falls take whoever suits, and
    all whom they take stay for as long as one may. The world draws these, by keys of their own (seed, offering, slot, how often
    it was taken, or the fall): a draw is independent of all that happens before the cloud acts on it. So let a policy know what
    it likes, all of capacity and all other draws too, but of a launch only whether it has registered and whether it is ready,
    and of whom a fall takes, and of when these go, nothing before the fall. Then
    E[cost] >= lambda * E[credited], for the lambda of the program with the rows below (`luck`): many runs together cost no less
    a sample. (The mean of the runs' ratios is another number; one run may be below.) The means over draws of feasible points are
    feasible, as all rows are linear; what is new holds for them only.

    Late. A launch that is ended before `blind_s`, when nobody has registered, is never ready: leave it out of `made`. Of the
        others nothing has been learnt by then, so that of those granted at s a share F(t - s) at most is ready at t, F the
        distribution of boot and load together, launches that fail taken off. Hence ready(t) <= present(u) + integral
        over s in (u, t] of F(t - s) d made(s) for every u, where present counts until an instance is gone. In means: u runs
        through a step as evenly as t does, and a grant within a step is given to the edges around it, with weights that lie
        above F's mean wherever in the step it is (`launches`). And ready(t) <= present(t) - what was made within `blind_s`.
    Unready. Let T be the greatest time such that no rule of giving up (by age before the worker registers, by the time since
        then after) gains when a ready replica is worth T seconds and a second of an unready one costs 1. Rules of a launch
        cannot know more of its own draws, and all else is independent of them: so E[unready time] >= T * E[ready] for
        launches of any set that is chosen as they are granted, and what is lost to falls meanwhile only adds to it. Those
        granted on (u, t] have spent theirs by t: ready(t) <= present(u) + the integral over (u, t] of (present - ready) / T.
    Kept. Of those that a fall finds unmarked, it takes each with the same chance, as each has a draw of its own; there are at
        most `count before`, so that a share (fall / count before) at the most is taken, in the mean, of those granted at any
        one time. Who is taken for nothing is among them; the others go on: to a later fall, or to be paid for until this one
        at least (`kept`, part of held). Grants within a step are mixtures of moments that all falls of the offering share,
        as are the lives, of which those that are never ready are listed here too.

    Outlived. For each that a fall at f marks a moment is drawn then, at which it is gone if it is there so long: whatever
        anybody does, it is there at t with a chance of S(t - f) at most (`outlive`), and the fall marks at most what it falls by.
        The unmarked are never more than the count. So, where falls alone take, held(t) <= count(t) + the sum of fall * S(t - f)
        over all falls f up to t. Who is ready at t was held at u, t - d <= u <= t, and was unmarked then, or marked by a fall up
        to u: ready(t) <= count(u) + the sum of fall * S(t - f) over the falls f up to u only. The least of these over u, and of
        the rows for every run, is meaned over the step.
        Let all that a fall marks, and that would be gone within the refund, live a life of it, those too that we end before or
        that fail (refunded they would have cost less, and no row asks that they are there). Where granted + w > f + `outlive_s`
        that is all that it marks, so that nothing is said of their moments: a share S(t - f) of such a life at most is there at
        t (it `fades`), and its time after the fall counts as much less. S falls, so that the share of a step that is ready is
        convex in the grant, and mixtures of the moments around a grant have no less. The moment granted + w = f + `outlive_s` is
        listed, unfaded: lives granted later are mixtures of it and of faded ones, those granted before, whose refund hangs
        on the draw, of unfaded ones.

    Left out here: that the first samples come a generation after a replica is ready, that groups and batches are whole, that new
    weights stop a replica for a moment, and that who is noticed takes no new group.

Cost before refunds has a bound of its own, `before_refunds_usd_per_1k_samples`: the same program without lives. Foresight of
falls is worth much where they are many (an hour free for each replica taken), and no policy has it; what it pays before
refunds shows how near it is in all else.
"""

import math
import time
from dataclasses import replace

from scaler.simulate.optimum.bound import Bound, Regime, bound_of
from scaler.simulate.optimum.builder import Program
from scaler.simulate.optimum.problem import Problem
from scaler.simulate.optimum.program import Layout, build
from scaler.simulate.optimum.ratio import Answer, least_ratio
from scaler.simulate.optimum.relaxation import problem_of, stock_of
from scaler.simulate.optimum.waiting import least_wait_ratio
from scaler.simulate.scenario import Scenario

__all__ = ["Bound", "Problem", "Regime", "problem_of", "solve", "stock_of", "without_refunds"]

HARDLY = 1.1
"""By how much a bound in the mean is usually above the one that holds for every run."""


def solve(scenario: Scenario, *, in_the_mean: bool = False) -> Bound:
    """The bound, whatever the policy and the seed; a second or so for 12 hours of a dozen offerings.

    `in_the_mean`: of the mean over draws that no policy knows; a minute for three zones, several for a dozen. What no run
    is below, no mean is either.
    """
    always = _solve(scenario, problem_of(scenario))
    if not in_the_mean:
        return always
    found = _solve(scenario, problem_of(scenario, in_the_mean=True), always)
    return replace(
        found,
        cost_usd_per_1k_samples=max(found.cost_usd_per_1k_samples, always.cost_usd_per_1k_samples),
        before_refunds_usd_per_1k_samples=max(
            found.before_refunds_usd_per_1k_samples, always.before_refunds_usd_per_1k_samples
        ),
        wall_s=found.wall_s + always.wall_s,
    )


def _solve(scenario: Scenario, problem: Problem, near: Bound | None = None) -> Bound:
    """`near`: a bound that is hardly lower; whoever starts there has less to do."""
    began_s = time.perf_counter()
    program, layout = build(problem)
    answer = _least_ratio(problem, program, layout, near.cost_usd_per_1k_samples if near else None)
    plain = without_refunds(problem)
    gross = near.before_refunds_usd_per_1k_samples if near else None
    before_refunds = answer.proven if plain == problem else _least_ratio(plain, *build(plain), gross).proven
    least_wait = least_wait_ratio(problem, program, layout, answer.proven)
    return bound_of(scenario, problem, layout, answer, before_refunds, least_wait, time.perf_counter() - began_s)


def without_refunds(problem: Problem) -> Problem:
    """The same problem where every instance is paid for: it bounds cost before refunds are taken off."""
    offerings = tuple(replace(one, falls=(), unforeseen_refund_s=0.0) for one in problem.offerings)
    return replace(
        problem, offerings=offerings, instants_s=(), limits=tuple(replace(one, falls_most=()) for one in problem.limits)
    )


def _least_ratio(problem: Problem, program: Program, layout: Layout, near_usd_per_1k: float | None) -> Answer:
    first = _too_high(problem)
    if near_usd_per_1k is not None and math.isfinite(near_usd_per_1k):
        first = HARDLY * near_usd_per_1k / 1000.0 * layout.unit_samples
    return least_ratio(program, first, inside=problem.draws is not None)


def _too_high(problem: Problem) -> float:
    """A rate (USD a mean step's demand) above that of any fleet worth having: all that is held, for half the demand."""
    rent = sum(max(one.held_most) * one.usd_per_h for one in problem.offerings)
    return 2.0 * (problem.trainer_usd_per_h + rent) * problem.hours / problem.steps
