"""The audit finds each way in which a history can be wrong, and nothing in one that is right."""

from collections.abc import Mapping

import pytest

from scaler.ledger.audit import Auditor
from scaler.ledger.audit_report import AuditReport, Fault
from scaler.ledger.contract import CensusEntry, UnitState
from scaler.ledger.history import EventKind
from tests.builders.history import Story, held

CONSUMED = [held("g.0/0", UnitState.CONSUMED), held("g.0/1", UnitState.CONSUMED)]
PENDING = [held("g.0/0"), held("g.0/1")]


def judge(
    story: Story,
    census: list[CensusEntry],
    changed_after: int | None = None,
    samples: Mapping[str, str] | None = None,
) -> AuditReport:
    """`samples` None: of each committed unit a good one."""
    auditor = Auditor()
    auditor.feed(story.events)
    good = {entry.unit_id: "" for entry in census if entry.state is UnitState.COMMITTED}
    last = story.events[-1].seq if changed_after is None else changed_after
    auditor.compare(census, good if samples is None else samples, last)
    return auditor.report()


def full_life() -> Story:
    story = Story().put().attach(1).run("g.0/0", "1.1").lease("g.0/1", "1.2", progress=0)
    story.release("g.0/1", "1.2", progress=7).lease("g.0/1", "1.3", progress=7, attempt=2).commit("g.0/1", "1.3")
    return story.take(1, "g.0").take(1, "g.0").ack(1, "g.0")


GOOD = {
    "a whole life, with a hand-over and a batch that came again": (full_life(), CONSUMED),
    "final units may have been compacted out of the store": (full_life(), []),
    "a late commit, after expiry and before the fence is passed on": (
        Story().put().lease("g.0/0", "1.1").release("g.0/0", "1.1", reason="expired").commit("g.0/0", "1.1"),
        [held("g.0/0", UnitState.COMMITTED), held("g.0/1")],
    ),
    "a raised store epoch voids a lease": (
        Story().put().lease("g.0/0", "1.1").tell(EventKind.STORE_EPOCH, data={"store_epoch": 2}).lease("g.0/0", "2.1"),
        [held("g.0/0", UnitState.LEASED, "2.1"), held("g.0/1")],
    ),
    "a stale group drawn again": (
        Story().put().run("g.0/0", "1.1").drop("g.0", redrawn_as="g.1").put(epoch=1),
        [held("g.1/0"), held("g.1/1")],
    ),
    "a batch whose filtered group was replaced": (
        Story().put("a").put("b").attach(1).run("a.0/0", "1.1").run("a.0/1", "1.2").run("b.0/0", "1.3")
        .run("b.0/1", "1.4").take(1, "a.0").drop("a.0", "filtered").take(1, "b.0").ack(1, "b.0"),
        [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", GOOD)
def test_what_is_right_is_clean(case: str) -> None:
    story, census = GOOD[case]
    assert judge(story, census).findings == ()


BAD = {
    "a unit vanished from the store": (Story().put(), [held("g.0/0")], Fault.UNIT_LOST, "g.0/1"),
    "a group was put with a unit missing": (Story().put(size=1), [held("g.0/0")], Fault.UNIT_LOST, "g.0"),
    "a new draw was announced and never put": (
        Story().put().drop("g.0", redrawn_as="g.1"), [], Fault.UNIT_LOST, "g.1"),
    "a sample vanished": (
        Story().put().run("g.0/0", "1.1"), [held("g.0/1")], Fault.SAMPLE_LOST, "g.0/0"),
    "a sample's unit is pending again": (
        Story().put().run("g.0/0", "1.1"), PENDING, Fault.SAMPLE_LOST, "g.0/0"),
    "a committed unit was dead-lettered": (
        Story().put().run("g.0/0", "1.1").tell(EventKind.DEAD_LETTERED, [("g.0/0", {"failures": 3})]),
        [held("g.0/0", UnitState.DEAD_LETTERED), held("g.0/1")], Fault.SAMPLE_LOST, "g.0/0"),
    "published tokens were not handed over": (
        Story().put().lease("g.0/0", "1.1").release("g.0/0", "1.1", progress=9).lease("g.0/0", "1.2", progress=3),
        [held("g.0/0", UnitState.LEASED, "1.2"), held("g.0/1")], Fault.PROGRESS_LOST, "g.0/0"),
    "a unit nobody put is in the store": (
        Story().put(), [*PENDING, held("x.0/0")], Fault.UNIT_INVENTED, "x.0/0"),
    "a unit nobody put was leased": (
        Story().lease("x.0/0", "1.1"), [held("x.0/0", UnitState.LEASED, "1.1")], Fault.UNIT_INVENTED, "x.0/0"),
    "a unit was put twice": (Story().put().put(), PENDING, Fault.UNIT_PUT_TWICE, "g.0/0"),
    "a sample was committed twice under one fence": (
        Story().put().run("g.0/0", "1.1").commit("g.0/0", "1.1"),
        [held("g.0/0", UnitState.COMMITTED), held("g.0/1")], Fault.SAMPLE_DOUBLED, "g.0/0"),
    "two workers held a unit at once": (
        Story().put().lease("g.0/0", "1.1").lease("g.0/0", "1.2"),
        [held("g.0/0", UnitState.LEASED, "1.2"), held("g.0/1")], Fault.FENCE_BROKEN, "g.0/0"),
    "a fence went backwards": (
        Story().put().lease("g.0/0", "1.5").release("g.0/0", "1.5").lease("g.0/0", "1.4"),
        [held("g.0/0", UnitState.LEASED, "1.4"), held("g.0/1")], Fault.FENCE_BROKEN, "g.0/0"),
    "an old holder committed": (
        Story().put().lease("g.0/0", "1.1").release("g.0/0", "1.1").lease("g.0/0", "1.2").commit("g.0/0", "1.1"),
        [held("g.0/0", UnitState.COMMITTED), held("g.0/1")], Fault.FENCE_BROKEN, "g.0/0"),
    "an old holder released": (
        Story().put().lease("g.0/0", "1.1").release("g.0/0", "1.1").lease("g.0/0", "1.2").release("g.0/0", "1.1"),
        PENDING, Fault.FENCE_BROKEN, "g.0/0"),
    "the store holds another fence than was recorded": (
        Story().put().lease("g.0/0", "1.1"),
        [held("g.0/0", UnitState.LEASED, "1.7"), held("g.0/1")], Fault.FENCE_BROKEN, "g.0/0"),
    "a fence of an earlier store epoch was honoured": (
        Story().put().tell(EventKind.STORE_EPOCH, data={"store_epoch": 2}).lease("g.0/0", "1.9"),
        [held("g.0/0", UnitState.LEASED, "1.9"), held("g.0/1")], Fault.EPOCH_BROKEN, "g.0/0"),
    "an old trainer acknowledged": (
        Story().put().attach(1).run("g.0/0", "1.1").run("g.0/1", "1.2").take(1, "g.0").attach(2).ack(1, "g.0"),
        CONSUMED, Fault.EPOCH_BROKEN, "batch 1"),
    "a group was trained in two batches": (
        full_life().attach(2).take(2, "g.0", epoch=2).ack(2, "g.0", epoch=2), CONSUMED, Fault.GROUP_TRAINED_TWICE, "g.0"),
    "two draws of one prompt were trained": (
        full_life().put(epoch=1).run("g.1/0", "1.8").run("g.1/1", "1.9").take(2, "g.1").ack(2, "g.1"),
        CONSUMED, Fault.GROUP_TRAINED_TWICE, "g.1"),
    "a group is in two open batches": (
        Story().put().attach(1).run("g.0/0", "1.1").run("g.0/1", "1.2").take(1, "g.0").take(2, "g.0"),
        [held("g.0/0", UnitState.COMMITTED), held("g.0/1", UnitState.COMMITTED)], Fault.GROUP_TRAINED_TWICE, "g.0"),
    "a batch was acknowledged twice": (full_life().ack(1, "g.0"), CONSUMED, Fault.BATCH_BROKEN, "batch 1"),
    "a batch was acknowledged with other groups": (
        full_life().put("h").take(2, "g.0").ack(2, "h.0"), CONSUMED, Fault.BATCH_BROKEN, "batch 2"),
    "a group was taken before it was complete": (
        Story().put().attach(1).run("g.0/0", "1.1").take(1, "g.0"),
        [held("g.0/0", UnitState.COMMITTED), held("g.0/1")], Fault.GROUP_INCOMPLETE, "g.0"),
    "a group beyond the staleness bound was taken": (
        Story().put().attach(1).run("g.0/0", "1.1", 3).run("g.0/1", "1.2", 9).take(1, "g.0", version=5),
        [held("g.0/0", UnitState.COMMITTED), held("g.0/1", UnitState.COMMITTED)], Fault.GROUP_TOO_STALE, "g.0"),
    "a unit is leased in the store and pending by the history": (
        Story().put(), [held("g.0/0", UnitState.LEASED, "1.1"), held("g.0/1")], Fault.STATE_MISMATCH, "g.0/0"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_found(case: str) -> None:
    story, census, fault, subject = BAD[case]
    assert (fault, subject) in {(finding.fault, finding.subject) for finding in judge(story, census).findings}


def test_a_missing_event_is_a_gap() -> None:
    story = full_life()
    del story.events[4]
    assert Fault.HISTORY_GAP in {finding.fault for finding in judge(story, CONSUMED).findings}


def test_what_was_compacted_away_is_counted_as_unprovable_and_not_as_wrong() -> None:
    story = full_life().tell(EventKind.COMPACTED, data={"through_seq": 5, "units_final": 0})
    story.events = story.events[5:]
    report = judge(story, [*CONSUMED, held("older.0/0")])
    assert report.ok
    assert report.compacted_through_seq == 5
    assert report.unprovable_units == 3


def test_a_doubled_sample_is_found_also_where_the_beginning_is_compacted_away() -> None:
    story = full_life()
    story.events = story.events[5:]
    story.commit("g.0/1", "1.3")
    assert Fault.SAMPLE_DOUBLED in {finding.fault for finding in judge(story, CONSUMED).findings}


def test_units_that_change_while_the_audit_runs_are_left_out_of_the_comparison() -> None:
    story = Story().put().lease("g.0/0", "1.1")
    report = judge(story, PENDING, changed_after=2)
    assert report.ok
    assert report.skipped_live_units == 1


def test_a_beginning_that_no_compaction_accounts_for_is_a_gap() -> None:
    story = full_life()
    story.events = story.events[5:]
    assert Fault.HISTORY_GAP in {finding.fault for finding in judge(story, CONSUMED).findings}


@pytest.mark.parametrize(
    ("samples", "why"), [({}, "not in the store"), ({"g.0/0": "no safetensors"}, "no safetensors")]
)
def test_a_committed_unit_whose_sample_is_gone_or_cannot_be_read_has_lost_it(
    samples: Mapping[str, str], why: str
) -> None:
    story, census = Story().put().run("g.0/0", "1.1"), [held("g.0/0", UnitState.COMMITTED), held("g.0/1")]
    (finding,) = judge(story, census, samples=samples).findings
    assert (finding.fault, finding.subject) == (Fault.SAMPLE_LOST, "g.0/0")
    assert why in finding.message


def test_a_sample_is_not_missed_where_its_unit_went_on_meanwhile_or_is_over() -> None:
    story = Story().put().run("g.0/0", "1.1")
    census = [held("g.0/0", UnitState.COMMITTED), held("g.0/1")]
    assert judge(story, census, changed_after=1, samples={}).findings == ()
    assert judge(full_life(), CONSUMED, samples={}).findings == ()
