"""What the SQLite engine keeps, where, and what of it compaction forgets."""

import sqlite3
from pathlib import Path

from scaler.ledger.contract import CommitOutcome, UnitState
from scaler.ledger.sqlite import open_path
from scaler.model.job import OnStale
from scaler.model.work import ReleaseReason
from tests.builders.ledger import (
    READY,
    TTL_S,
    beat_of,
    commit_of,
    delta,
    group,
    groups,
    identity,
    lease_all,
    release_of,
    run_units,
    settings,
    states,
)
from tests.builders.sqlite_ledger import begin

LONG = 20_000
"""Tokens of a body of more than 64 KiB."""


def objects(path: Path) -> list[Path]:
    return sorted(path.parent.glob("*.objects/*/*"))


def test_large_bodies_lie_beside_the_database_and_go_with_their_unit(path: Path) -> None:
    ledger = begin(path)
    one, two = lease_all(ledger, "w1", 2)
    ledger.heartbeat("w1", [beat_of(one, delta(0, LONG))], READY, TTL_S)
    assert len(objects(path)) == 1
    ledger.commit("w1", [commit_of(one, tokens=LONG), commit_of(two, tokens=LONG)])
    assert len(objects(path)) == 2
    epoch = ledger.attach_trainer("t")
    batch = ledger.take_batch(epoch, 1, 0, 1)
    assert batch is not None
    assert [sample.tokens for sample in batch.groups[0].samples] == [tuple(range(LONG))] * 2
    assert all(body.read_bytes()[8:9] == b"{" for body in objects(path))

    ledger.ack_batch(epoch, [batch.batch_id])
    ledger.compact()

    assert objects(path) == []


def test_a_group_drawn_again_owns_its_prompt(path: Path) -> None:
    ledger = open_path(path, "job")
    ledger.configure(settings(on_stale=OnStale.REQUEUE))
    ledger.register(identity("w1"))
    prompt = tuple(range(LONG))
    units = [
        unit.__class__(
            group_id=unit.group_id,
            sample_index=unit.sample_index,
            group_size=2,
            prompt=prompt,
            seed=unit.seed,
            max_tokens=8,
            time_bound_s=1.0,
        )
        for unit in group("g")
    ]
    ledger.put_units(units)
    run_units(ledger, "w1", 2)
    assert ledger.take_batch(ledger.attach_trainer("t"), 1, 9, 1) is None
    ledger.compact()

    leases = lease_all(ledger, "w1", 2)

    assert [lease.unit.prompt for lease in leases] == [prompt] * 2
    assert [lease.unit.seed for lease in leases] != [unit.seed for unit in units]
    assert len(objects(path)) == 2


def test_a_refused_commit_of_the_same_bytes_takes_nothing_away(path: Path) -> None:
    ledger = begin(path)
    old, other = lease_all(ledger, "w1", 2)
    ledger.release("w1", [release_of(old)])
    (new,) = lease_all(ledger, "w1", 1)
    ledger.commit("w1", [commit_of(new, tokens=LONG), commit_of(other)])
    assert ledger.commit("w1", [commit_of(old, tokens=LONG)]) == (CommitOutcome.REFUSED,)

    batch = ledger.take_batch(ledger.attach_trainer("t"), 1, 0, 1)

    assert batch is not None
    assert len(batch.groups[0].samples[0].tokens) == LONG


def test_compaction_leaves_of_what_is_over_only_its_name(path: Path) -> None:
    ledger = begin(path)
    run_units(ledger, "w1", 4)
    epoch = ledger.attach_trainer("t")
    batch = ledger.take_batch(epoch, 1, 0, 1)
    assert batch is not None
    ledger.ack_batch(epoch, [batch.batch_id])
    ledger.configure(settings(history_events=0))

    assert ledger.compact() > 0

    assert states(ledger) == {UnitState.COMMITTED: 2}
    db = sqlite3.connect(path)
    counts = {
        table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        for table in ("groups", "units", "specs", "samples", "watermarks", "batches")
    }
    db.close()
    assert counts == {"groups": 1, "units": 2, "specs": 1, "samples": 1, "watermarks": 1, "batches": 0}
    assert ledger.put_units(groups(2)) == 0


def test_a_worker_forgotten_and_registered_anew_is_found_by_clients_that_knew_it(path: Path) -> None:
    now_s = [1000.0]
    ledger, other = (open_path(path, "job", now_s=lambda: now_s[0]) for _ in range(2))
    ledger.configure(settings())
    ledger.put_units(groups(2))
    ledger.register(identity("w1"))
    run_units(ledger, "w1", 1)
    ledger.release_worker("w1", ReleaseReason.DRAIN)
    now_s[0] += 4000
    other.compact()
    assert other.register(identity("w1")) == 1

    run_units(ledger, "w1", 2)

    (record,) = ledger.workers()
    assert (record.committed_samples, record.gone) == (2, False)
