"""What the SQLite engine keeps, where, and what of it compaction forgets."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from scaler.ledger.audit import audit
from scaler.ledger.contract import Commit, CommitOutcome, UnitState
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
    sample,
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


def test_samples_of_one_call_share_a_row_unless_their_body_is_an_object(path: Path) -> None:
    ledger = begin(path)
    ledger.configure(settings(batch_groups=100))
    ledger.put_units(group("wide", size=5))
    leases = lease_all(ledger, "w1", 9)
    ledger.commit("w1", [commit_of(lease) for lease in leases[:4]])
    wide = leases[4:]
    lengths = [3, LONG, 5, LONG, 7]
    commits = [commit_of(lease, tokens=length) for lease, length in zip(wide, lengths, strict=True)]

    ledger.commit("w1", [*reversed(commits[1:]), commits[0]])

    assert count(path, "samples") == 2 + 3
    batch = ledger.take_batch(ledger.attach_trainer("t"), 3, 0, 1)
    assert batch is not None
    assert [len(sample.tokens) for sample in batch.groups[2].samples] == lengths


def test_units_that_ask_for_different_things_get_what_they_asked_for_also_when_drawn_again(path: Path) -> None:
    ledger = open_path(path, "job")
    ledger.configure(settings(batch_groups=100, on_stale=OnStale.REQUEUE))
    ledger.register(identity("w1"))
    prompts = [(1,), (1,), (2,) * LONG, (1,), *[(3,)] * 66]
    units = [replace(unit, prompt=prompts[unit.sample_index]) for unit in group("g", size=len(prompts))]
    ledger.put_units(units)
    assert count(path, "specs") == 5  # of these, 64 of the last 66 share one

    leases = lease_all(ledger, "w1", 100)
    assert [lease.unit for lease in leases] == units
    ledger.commit("w1", [commit_of(lease) for lease in leases])
    assert ledger.take_batch(ledger.attach_trainer("t"), 1, 9, 1) is None

    again = [lease.unit for lease in lease_all(ledger, "w1", 100)]
    assert [unit.prompt for unit in again] == prompts
    assert len({unit.seed - old.seed for unit, old in zip(again, units, strict=True)} - {0}) == 1


def test_one_call_may_commit_a_unit_twice_and_units_of_many_groups_and_tokens(path: Path) -> None:
    ledger = begin(path)
    first, second = lease_all(ledger, "w1", 1), lease_all(ledger, "w1", 2)
    one, other, stranger = first[0], second[0], second[1]
    stale = replace(commit_of(other), fencing_token=one.fencing_token)

    outcomes = ledger.commit("w1", [commit_of(one), stale, commit_of(one), commit_of(stranger), commit_of(other)])

    done, repeated, refused = CommitOutcome.COMMITTED, CommitOutcome.ALREADY, CommitOutcome.REFUSED
    assert outcomes == (done, refused, repeated, done, done)
    assert audit(ledger).findings == ()


def test_a_commit_of_an_id_that_no_unit_can_have_is_refused(path: Path) -> None:
    ledger = begin(path)
    (lease,) = lease_all(ledger, "w1", 1)
    names = ["g0.0/x", "g0.0/-1", "g0.0/1048576", "g0.0/99999999999999999999", "g0.0", "nobody.0/0"]
    strangers = [Commit(unit_id=name, fencing_token=lease.fencing_token, sample=sample(name)) for name in names]

    assert ledger.commit("w1", strangers) == (CommitOutcome.REFUSED,) * len(names)
    assert ledger.commit("w1", [commit_of(lease)]) == (CommitOutcome.COMMITTED,)


def count(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as db:
        (rows,) = db.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(rows)
