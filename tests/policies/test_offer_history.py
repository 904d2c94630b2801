"""What is learnt of offerings: hazards by age and zone, and the share of requests granted."""

from typing import Any

import pytest

from policies.offer_history import PRIOR_PER_H, History, Learning, bucket_of, learn
from policies.offers import offers
from scaler.model.capacity import ReplicaPhase
from scaler.model.snapshot import ReplicaView
from tests.builders.sizing import EAST, ON_DEMAND, WEST, a_question, held, seen
from tests.builders.snapshots import NOW_S, a_notice

USUAL: dict[str, Any] = {
    "prior_weight_h": 10.0,
    "forget_s": 1e9,
    "by_age": True,
    "by_offering": True,
    "answers_forget_s": 1e9,
}


def learnt(
    *replicas: ReplicaView, noticed: tuple[ReplicaView, ...] = (), memory: dict[str, float] | None = None, **how: Any
) -> tuple[History, Any]:
    """After an hour with these, of which the noticed ones do not count any more."""
    question = a_question([*replicas, *noticed], (EAST, WEST, ON_DEMAND), memory=memory)
    if noticed:
        question = a_question(replicas, (EAST, WEST, ON_DEMAND), memory=memory)
        object.__setattr__(question.stage, "replicas", (*replicas, *noticed))
    known = {offer.key[1].split("/")[1]: offer for offer in offers(question)}
    return learn(question, tuple(known.values()), Learning(**(USUAL | how)), NOW_S - 3600), known


def taken(zone: Any, age_s: float) -> ReplicaView:
    (replica,) = held(zone, 1, launched_at_s=NOW_S - age_s, notice=a_notice(noticed_at_s=NOW_S))
    return replica


def test_before_anything_was_seen_the_prior_holds_and_on_demand_is_never_taken() -> None:
    history, known = learnt()

    assert history.hazards_per_h(known["east"]) == PRIOR_PER_H
    assert history.hazards_per_h(known["any"]) == (0.0,) * len(PRIOR_PER_H)


def test_hours_without_loss_lower_the_hazard_of_their_age_and_zone_alone() -> None:
    history, known = learnt(*held(EAST, 10, launched_at_s=NOW_S - 2 * 3600))
    hazards, bucket = history.hazards_per_h(known["east"]), bucket_of(2.0)

    assert hazards[bucket] == pytest.approx(PRIOR_PER_H[bucket] / 2)
    assert hazards[:bucket] == PRIOR_PER_H[:bucket]
    assert history.hazards_per_h(known["west"]) == PRIOR_PER_H


def test_an_interruption_counts_once_at_the_age_it_struck() -> None:
    history, known = learnt(noticed=(taken(EAST, 1800),))
    bucket = bucket_of(0.5)

    assert history.hazards_per_h(known["east"])[bucket] == pytest.approx(PRIOR_PER_H[bucket] + 0.1)
    seen_before = held(EAST, 1, launched_at_s=NOW_S - 9000, notice=a_notice(noticed_at_s=NOW_S - 7200))
    again, known = learnt(noticed=tuple(seen_before), memory=dict(history.sums))
    assert again.hazards_per_h(known["east"])[bucket] == pytest.approx(PRIOR_PER_H[bucket] + 0.1)


def test_without_zones_all_learn_from_each() -> None:
    history, known = learnt(noticed=(taken(EAST, 1800),), by_offering=False)

    assert history.hazards_per_h(known["west"]) == history.hazards_per_h(known["east"]) != PRIOR_PER_H


def test_without_ages_there_is_one_hazard() -> None:
    history, known = learnt(noticed=(taken(EAST, 1800),), by_age=False)

    assert len(set(history.hazards_per_h(known["east"]))) == 1


def test_what_is_old_is_forgotten() -> None:
    history, known = learnt(noticed=(taken(EAST, 1800),))
    later, known = learnt(memory=dict(history.sums), forget_s=60.0)

    assert later.hazards_per_h(known["east"]) == pytest.approx(PRIOR_PER_H)


def test_the_share_of_requests_granted() -> None:
    young = held(EAST, 3, ReplicaPhase.LAUNCHING, launched_at_s=NOW_S - 10)
    question = a_question(young, (seen(EAST), seen(WEST, refused_at_s=NOW_S - 5, refusals=1)))
    known = {offer.key[1].split("/")[1]: offer for offer in offers(question)}
    history = learn(question, tuple(known.values()), Learning(**USUAL), NOW_S - 60)

    assert (history.grant_ratio(known["east"]), history.grant_ratio(known["west"])) == (1.0, 0.5)


def test_the_memory_is_bounded_by_the_offerings() -> None:
    strangers = {f"hours:{i}:gone/{i}": 1.0 for i in range(100)}
    history, _ = learnt(*held(EAST, 4), memory=strangers)

    assert len(history.sums) <= 12 * 3
