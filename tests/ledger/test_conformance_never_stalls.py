"""Drops, filtered groups, dead letters and half-full batches never stall a job, at any staleness.

One client makes all calls, thousands of them. The store is in memory: what a disk takes to sync changes nothing but the wait.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from scaler.ledger.audit import audit
from scaler.model.job import OnStale
from tests.builders.ledger import settings
from tests.builders.memory import memory_folder
from tests.ledger.factories import LedgerFactory
from tests.ledger.mill import Mill, Weather

ROUNDS = 700
STALLED_AFTER = 120
"""Rounds of 2 s without an update; a unit's longest back-off is 30 s and its lease runs out after 30 s."""

STORM = Weather(
    unit_fails=0.03, infrastructure_fails=0.05, worker_vanishes=0.05, group_is_filtered=0.3, unit_is_slow=0.3
)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Where the store goes."""
    with memory_folder() as folder:
        yield folder


in_all_weathers = pytest.mark.parametrize(
    ("staleness", "on_stale"),
    [(staleness, on_stale) for staleness in (0, 1, 16) for on_stale in (OnStale.DROP, OnStale.REQUEUE)],
    ids=str,
)


@in_all_weathers
def test_a_job_in_a_storm_goes_on(ledger_factory: LedgerFactory, staleness: int, on_stale: OnStale) -> None:
    _goes_on(ledger_factory, staleness, on_stale, ROUNDS)


@pytest.mark.long
@pytest.mark.timeout(900)
@in_all_weathers
def test_a_job_goes_on_for_thousands_of_rounds(
    ledger_factory: LedgerFactory, staleness: int, on_stale: OnStale
) -> None:
    _goes_on(ledger_factory, staleness, on_stale, 10 * ROUNDS)


def _goes_on(factory: LedgerFactory, staleness: int, on_stale: OnStale, rounds: int) -> None:
    rules = settings(group_size=3, batch_groups=3, max_staleness=staleness, on_stale=on_stale, unit_failure_limit=2)
    mill = Mill(factory, rules, STORM, seed=staleness)

    for _ in range(rounds):
        mill.turn()
        assert mill.rounds_since_update < STALLED_AFTER, mill.ledger.stats()

    stats = mill.ledger.stats()
    assert mill.step > rounds / 10
    assert min(stats.dead_lettered, stats.tokens.salvaged, len(stats.dropped)) > 0
    assert stats.accepted == mill.step * rules.batch_samples
    assert audit(mill.ledger).findings == ()


@pytest.mark.parametrize("staleness", [0, 1])
def test_waiting_units_of_admitted_groups_keep_their_places(ledger_factory: LedgerFactory, staleness: int) -> None:
    """Each group lacks one unit that backs off; were its place given to fresh groups, no group could be completed."""
    rules = settings(group_size=4, batch_groups=2, max_staleness=staleness, unit_failure_limit=1000)
    mill = Mill(ledger_factory, rules, Weather(infrastructure_fails=0.5), seed=7)

    for _ in range(300):
        mill.turn()
        assert mill.rounds_since_update < STALLED_AFTER, mill.ledger.stats()
