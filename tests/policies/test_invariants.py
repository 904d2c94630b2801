"""What holds of every sizing policy, in any world at all."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.base import Sizing, SizingInput
from policies.registry import SIZING
from scaler.model.capacity import ReplicaPhase
from scaler.model.plan import ReasonCode
from scaler.model.reading import MISSING, Reading
from tests.builders.sizing import ALL, a_question, ask, held, seen
from tests.builders.snapshots import NOW_S, fresh

PARAMS: Mapping[str, dict[str, Any]] = {name: {} for name in SIZING} | {"static": {"replicas": 3}}
BY_DEMAND = ["rate_match", "spot_hedge", "rlboost", "uniform_progress", "marginal_value"]
LAMBDA = {"lambda_usd_per_sample": 0.04}
PHASES = [ReplicaPhase.REQUESTED, ReplicaPhase.LAUNCHING, ReplicaPhase.LOADING, ReplicaPhase.READY]

fleets = st.lists(
    st.tuples(st.sampled_from(ALL), st.sampled_from(PHASES), st.integers(0, 5), st.floats(0, 90_000)), max_size=6
)
troubles = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "refused_at_s": st.floats(0, NOW_S),
            "refusals": st.integers(0, 9),
            "reclaiming_at_s": st.floats(0, NOW_S),
        },
    ),
    min_size=len(ALL),
    max_size=len(ALL),
)
questions = st.builds(
    lambda fleet, trouble, unusable, depth, rate, goodput, version: a_question(
        {
            replica.replica_id: replica
            for offering, phase, count, age_s in fleet
            for replica in held(offering, count, phase, launched_at_s=NOW_S - age_s)
        }.values(),
        [seen(offering, **facts) for offering, facts in zip(ALL, trouble, strict=True)],
        unusable=unusable,
        buffered_samples=fresh(depth),
        unblocked_rate_per_s=fresh(rate),
        goodput_per_replica_per_s=fresh(goodput),
        policy_version=fresh(version),
        running_units=fresh(8),
    ),
    fleets,
    troubles,
    st.lists(st.sampled_from(ALL), max_size=3),
    st.floats(0, 500),
    st.floats(0, 5),
    st.floats(0, 2),
    st.integers(0, 50).map(float),
)


def asked(policy: str, question: SizingInput, **params: Any) -> Sizing:
    return ask(policy, question, **(PARAMS[policy] | params))


@pytest.mark.parametrize("policy", sorted(SIZING))
@given(question=questions, seed=st.integers(0, 99))
def test_the_order_of_what_is_seen_never_matters_and_asking_again_gives_the_same(
    policy: str, question: SizingInput, seed: int
) -> None:
    random = Random(seed)
    pools = tuple(
        replace(pool, offerings=tuple(random.sample(pool.offerings, len(pool.offerings))))
        for pool in question.stage.pools
    )
    replicas = tuple(random.sample(question.stage.replicas, len(question.stage.replicas)))
    shuffled = replace(
        question,
        stage=replace(question.stage, pools=pools, replicas=replicas),
        usable=tuple(random.sample(question.usable, len(question.usable))),
    )

    assert asked(policy, shuffled) == asked(policy, question) == asked(policy, question)


@pytest.mark.parametrize("policy", sorted(SIZING))
@given(question=questions)
def test_wishes_are_sane_again_and_again(policy: str, question: SizingInput) -> None:
    """The wish is a size, places are usable, memory is finite; also with the memory of the wish before, a minute later."""
    for minute in range(3):
        wish = asked(policy, replace(question, now_s=NOW_S + 10 * minute))
        question = replace(question, memory=wish.memory, desired=wish.replicas)

        assert wish.replicas is None or wish.replicas >= 0
        assert all(value == value and abs(value) < 1e18 for value in wish.memory.values())
        usable = {(pool, view.offering.offering_id) for pool, view in question.usable}
        assert all((place.pool, place.offering_id) in usable and place.replicas > 0 for place in wish.places or ())
        assert set(wish.release_first) <= {replica.replica_id for replica in question.counting}


@pytest.mark.parametrize("policy", sorted(set(SIZING) - {"static", "buffer_band"}))
@pytest.mark.parametrize(
    ("rate", "code"),
    [
        (MISSING, ReasonCode.HOLD_SIGNAL_MISSING),
        (Reading(1, NOW_S - 31), ReasonCode.HOLD_SIGNAL_STALE),
        (fresh(float("nan")), ReasonCode.HOLD_SIGNAL_INVALID),
        (fresh(-1), ReasonCode.HOLD_SIGNAL_INVALID),
    ],
    ids=["missing", "stale", "no number", "negative"],
)
def test_without_a_rate_it_holds_and_keeps_its_memory(policy: str, rate: Reading, code: ReasonCode) -> None:
    memory = {"at_s": 1.0, "rate_per_s": 2.0}
    wish = asked(policy, a_question(held(ALL[0], 2), memory=memory, unblocked_rate_per_s=rate, policy_version=fresh(1)))

    assert (wish.replicas, wish.reason.code, wish.memory) == (None, code, memory)


@pytest.mark.parametrize("policy", BY_DEMAND)
@pytest.mark.parametrize("goodput", [MISSING, Reading(0.25, NOW_S - 31)], ids=["missing", "stale"])
def test_a_goodput_that_is_not_fresh_never_lowers(policy: str, goodput: Reading) -> None:
    memory = {"at_s": NOW_S - 10, "rate_per_s": 1.0, "goodput_per_s": 0.25}
    question = a_question(
        held(ALL[0], 9), memory=memory, goodput_per_replica_per_s=goodput, policy_version=fresh(1), desired=9
    )
    wish = asked(policy, question)

    assert wish.replicas is None or wish.replicas >= 9


@pytest.mark.parametrize("policy", BY_DEMAND)
@given(question=questions, more=st.floats(1, 3))
def test_more_demand_never_asks_for_fewer(policy: str, question: SizingInput, more: float) -> None:
    rate = question.stage.signals.unblocked_rate_per_s.value or 0.0
    signals = replace(question.stage.signals, unblocked_rate_per_s=fresh(rate * more))
    greater = replace(question, stage=replace(question.stage, signals=signals))
    # A gang is all or nothing: where it grows beyond what spot has, it asks for nothing there.
    special: dict[str, dict[str, Any]] = {"marginal_value": LAMBDA, "uniform_progress": {"gang": False}}
    params = special.get(policy, {})

    assert (asked(policy, greater, **params).replicas or 0) >= (asked(policy, question, **params).replicas or 0)


@given(question=questions, less=st.floats(0, 1))
def test_less_buffer_never_asks_for_fewer(question: SizingInput, less: float) -> None:
    depth = question.stage.signals.buffered_samples.value or 0.0
    signals = replace(question.stage.signals, buffered_samples=fresh(depth * less))
    emptier = replace(question, stage=replace(question.stage, signals=signals))

    # Neither may have a full buffer by which workers' low goodput is excused: the goodput is the same for both.
    params = {**LAMBDA, "goodput_time_constant_s": 0.0}
    assert (asked("marginal_value", emptier, **params).replicas or 0) >= (
        asked("marginal_value", question, **params).replicas or 0
    )


@given(question=questions, cheaper=st.floats(0.1, 1))
def test_lower_prices_never_ask_for_fewer(question: SizingInput, cheaper: float) -> None:
    def cut(view: Any) -> Any:
        price = view.offering.price_usd_per_h * cheaper
        return replace(view, offering=replace(view.offering, price_usd_per_h=price))

    pools = tuple(replace(pool, offerings=tuple(map(cut, pool.offerings))) for pool in question.stage.pools)
    cut_question = replace(
        question,
        stage=replace(question.stage, pools=pools),
        usable=tuple((pool, cut(view)) for pool, view in question.usable),
    )

    assert (asked("marginal_value", cut_question, **LAMBDA).replicas or 0) >= (
        asked("marginal_value", question, **LAMBDA).replicas or 0
    )
