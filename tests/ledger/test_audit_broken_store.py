"""Real stores, broken on purpose: audit finds each fault, and the command says so by its exit code."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scaler.cli import app
from scaler.ledger.audit import audit
from scaler.ledger.audit_report import Fault
from scaler.ledger.contract import Ledger
from scaler.ledger.history import EventKind, HistoryEvent, Scalar
from tests.builders.ledger import commit_of, delta, groups, ids, lease_all, release_of, settings
from tests.builders.tampering import SqliteTamperer, Tamperer, ValkeyTamperer
from tests.ledger.factories import LedgerFactory, SqliteFactory, shared_server

TRAINED, COMMITTED, HELD, WAITING = "g0.0", "g1.0/0", "g2.0/0", "g2.0/1"
"""What becomes of whom in the honest life: a group and three units."""


@dataclass(frozen=True, slots=True)
class Store:
    """A ledger after its honest life, and a way round it."""

    ledger: Ledger
    tamper: Tamperer

    def events(self, kind: EventKind, subject: str) -> list[HistoryEvent]:
        """All of a kind about a unit or group, cut down to it."""
        return [
            replace(event, entries=tuple(entry for entry in event.entries if entry.subject == subject))
            for event in self.ledger.history()
            if event.kind is kind and any(entry.subject == subject for entry in event.entries)
        ]

    def append(self, event: HistoryEvent, **data: Scalar) -> None:
        """Copy an event to the end of the history, with other data."""
        seq = self.ledger.history()[-1].seq + 1
        self.tamper.append_event(replace(event, seq=seq, data={**event.data, **data}))


@pytest.fixture
def store(ledger_factory: LedgerFactory, ledger: Ledger) -> Store:
    """One group trained on, one complete, one with a unit handed from holder to holder and one never leased."""
    live_honestly(ledger, ledger_factory)
    return Store(ledger, tamperer_of(ledger_factory))


def live_honestly(ledger: Ledger, factory: LedgerFactory) -> None:
    ledger.configure(settings(batch_groups=1, max_staleness=2))
    ledger.put_units(groups(3))
    train_on_one_group(ledger)
    *complete, left = lease_all(ledger, "w1", 3)
    ledger.commit("w1", [commit_of(lease) for lease in complete])
    ledger.release("w1", [release_of(left, progress=delta(0, 5))])
    factory.now_s += 60.0
    (again,) = lease_all(ledger, "w1", 1)
    assert (again.unit.unit_id, len(again.progress.tokens)) == (HELD, 5)


def train_on_one_group(ledger: Ledger) -> None:
    leases = lease_all(ledger, "w1", 2)
    assert ids(leases) == [f"{TRAINED}/0", f"{TRAINED}/1"]
    ledger.commit("w1", [commit_of(lease) for lease in leases])
    epoch = ledger.attach_trainer("t")
    batch = ledger.take_batch(epoch, 1, 0, 2)
    assert batch is not None
    assert ledger.ack_batch(epoch, [batch.batch_id]) == 1


def tamperer_of(factory: LedgerFactory) -> Tamperer:
    return SqliteTamperer(factory.path) if isinstance(factory, SqliteFactory) else ValkeyTamperer(shared_server())


def commit_again(store: Store) -> None:
    store.append(store.events(EventKind.COMMITTED, COMMITTED)[0])


def commit_under_the_fence_of_the_former_holder(store: Store) -> None:
    former = store.events(EventKind.LEASED, HELD)[0].entries[0].data["fence"]
    (example,) = store.events(EventKind.COMMITTED, COMMITTED)
    (entry,) = example.entries
    entry = replace(entry, subject=HELD, data={**entry.data, "fence": former})
    store.append(replace(example, entries=(entry,)))


def acknowledge_in_a_second_batch(store: Store) -> None:
    for kind in (EventKind.BATCH_TAKEN, EventKind.BATCH_ACKED):
        store.append(store.events(kind, TRAINED)[0], batch=2)


def remove_the_release(store: Store) -> None:
    store.tamper.remove_event(store.events(EventKind.RELEASED, HELD)[0].seq)


WAYS: dict[str, tuple[Callable[[Store], None], Fault, str]] = {
    "a waiting unit is removed": (lambda store: store.tamper.remove_unit(WAITING), Fault.UNIT_LOST, WAITING),
    "a held unit is removed": (lambda store: store.tamper.remove_unit(HELD), Fault.UNIT_LOST, HELD),
    "a sample's unit is pending again": (
        lambda store: store.tamper.make_pending(COMMITTED),
        Fault.SAMPLE_LOST,
        COMMITTED,
    ),
    "a sample's unit is removed": (lambda store: store.tamper.remove_unit(COMMITTED), Fault.SAMPLE_LOST, COMMITTED),
    "a unit is committed a second time": (commit_again, Fault.SAMPLE_DOUBLED, COMMITTED),
    "a former holder commits": (commit_under_the_fence_of_the_former_holder, Fault.FENCE_BROKEN, HELD),
    "a held unit's fence is another": (
        lambda store: store.tamper.set_fence_counter(HELD, 99),
        Fault.FENCE_BROKEN,
        HELD,
    ),
    "a group is acknowledged in two batches": (acknowledge_in_a_second_batch, Fault.GROUP_TRAINED_TWICE, TRAINED),
    "an event is removed": (remove_the_release, Fault.HISTORY_GAP, ""),
}
"""Way -> how, the fault that audit must name, and of whom; a gap has a number only."""

COUNTS = {
    Fault.UNIT_LOST: "units_lost",
    Fault.SAMPLE_LOST: "units_lost",
    Fault.SAMPLE_DOUBLED: "samples_doubled",
    Fault.FENCE_BROKEN: "fences_broken",
    Fault.GROUP_TRAINED_TWICE: "groups_trained_twice",
}
"""Where the command counts a fault."""


def command(*words: str) -> tuple[int, str]:
    """`headrace audit ... --json`: exit code and what it printed."""
    result = CliRunner().invoke(app, ["audit", *words, "--json"])
    return result.exit_code, result.stdout


def audit_command(store: Store) -> tuple[int, dict[str, object]]:
    code, text = command(store.tamper.url, "--job", store.tamper.job)
    return code, json.loads(text)


def test_an_honest_life_is_clean(store: Store) -> None:
    assert audit(store.ledger).findings == ()
    code, told = audit_command(store)
    assert (code, told["ok"], told["findings"]) == (0, True, [])


@pytest.mark.parametrize("way", WAYS)
def test_audit_finds_what_was_broken(store: Store, way: str) -> None:
    break_it, fault, subject = WAYS[way]
    assert audit(store.ledger).ok
    break_it(store)
    found = {(finding.fault, finding.subject) for finding in audit(store.ledger).findings}
    assert fault in {seen for seen, of in found if subject in of}


@pytest.mark.parametrize("way", WAYS)
def test_the_command_names_it_and_exits_with_1(store: Store, way: str) -> None:
    break_it, fault, subject = WAYS[way]
    break_it(store)
    code, told = audit_command(store)
    assert (code, told["ok"]) == (1, False)
    assert (fault.value, True) in faults_of(told["findings"], subject)
    assert fault not in COUNTS or told[COUNTS[fault]] == 1


SAMPLE_WAYS: dict[str, Callable[[Store], None]] = {
    "removed": lambda store: store.tamper.remove_sample(COMMITTED),
    "garbled": lambda store: store.tamper.garble_sample(COMMITTED),
}


@pytest.mark.parametrize("way", SAMPLE_WAYS)
def test_samples_that_are_gone_or_cannot_be_read_are_lost(store: Store, way: str) -> None:
    SAMPLE_WAYS[way](store)
    code, told = audit_command(store)
    # Both units of the group: they were committed together.
    assert (code, told["ok"], told["units_lost"]) == (1, False, 2)
    assert faults_of(told["findings"], COMMITTED.partition("/")[0]) == [(Fault.SAMPLE_LOST.value, True)] * 2


def faults_of(findings: object, subject: str) -> Sequence[tuple[str, bool]]:
    assert isinstance(findings, list)
    return [(finding["fault"], subject in finding["subject"]) for finding in findings]


def test_a_ledger_that_is_not_there_is_exit_code_2_and_is_not_made(tmp_path: Path) -> None:
    missing = tmp_path / "no.db"
    assert command(str(missing))[0] == 2
    assert not missing.exists()
