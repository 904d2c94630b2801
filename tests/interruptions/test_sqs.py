"""The queue as a source: a message goes only when its action is recorded, and nothing that a queue holds stops anything."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import pytest

from scaler.aws.contract import AwsError, AwsFault
from scaler.interruptions.queue import inbox
from scaler.interruptions.queue.wire import CLUSTER_TAG
from scaler.interruptions.registry import make_source
from scaler.interruptions.sqs import SqsNotices, SqsSettings
from scaler.model.interruption import HINT_TTL_S, VOID_AFTER_DEADLINE_S, InterruptionNotice, NoticeKind
from tests.builders import messages as m
from tests.builders.clock import FakeClock
from tests.builders.fake_sqs import CLUSTER, GRAVEYARD, URL, FakeSqs, Owner, away
from tests.builders.messages import EVENT_AT_S, INSTANCE, OTHER, Fields

SPOT = m.body(m.spot())
ONE_RECEIVER = 1


@dataclass
class Bed:
    """A queue, who owns what, and the source on both."""

    clock: FakeClock
    sqs: FakeSqs
    owner: Owner
    source: SqsNotices

    async def told(self) -> tuple[InterruptionNotice, ...]:
        return await self.source.current()

    async def instances(self) -> list[str]:
        return [notice.instance_id for notice in await self.told()]

    async def record(self, *instance_ids: str) -> None:
        await self.source.recorded(frozenset(instance_ids))
        await self.clock.settle()


def settings_of(sqs: FakeSqs, owner: Owner, *, dead_letters: bool = True) -> SqsSettings:
    return SqsSettings(
        aws=sqs,
        queue_url=URL,
        cluster_uid=CLUSTER,
        owner=owner,
        dead_letter_url=GRAVEYARD if dead_letters else None,
        receivers=ONE_RECEIVER,
    )


@asynccontextmanager
async def running(sqs: FakeSqs, owner: Owner, *, dead_letters: bool = True) -> AsyncIterator[Bed]:
    """A controller's life: the source runs, and is gone afterwards as a killed one is."""
    source = SqsNotices(settings_of(sqs, owner, dead_letters=dead_letters), clock=sqs.clock)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(source.run())
        await sqs.clock.settle()
        yield Bed(sqs.clock, sqs, owner, source)
        task.cancel()


@pytest.fixture
def sqs() -> FakeSqs:
    return FakeSqs(FakeClock(EVENT_AT_S + 1.0))


@pytest.fixture
def owner() -> Owner:
    return Owner({INSTANCE})


# From receipt to removal.


async def test_a_message_is_told_and_stays_until_its_action_is_recorded(sqs: FakeSqs, owner: Owner) -> None:
    sqs.put(SPOT)
    async with running(sqs, owner) as bed:
        await bed.clock.advance(100.0)
        assert [(n.instance_id, n.kind, n.deadline_s) for n in await bed.told()] == [
            (INSTANCE, NoticeKind.SPOT_INTERRUPTION, EVENT_AT_S + 120.0)
        ]
        assert sqs.bodies() == [SPOT], "hidden, not deleted"
        assert sqs.queues[URL][0].received == 1, "kept hidden all the while"
        await bed.record(INSTANCE)
        assert sqs.bodies() == []
        assert await bed.instances() == [INSTANCE], "recorded or not, it stands"
        health = bed.source.health()
        assert (health.received, health.duplicates, health.foreign, health.unknown, health.error) == (1, 0, 0, 0, "")


async def test_a_new_notice_wakes_at_once_and_only_once(sqs: FakeSqs, owner: Owner) -> None:
    async with running(sqs, owner) as bed:
        await bed.source.current()
        waiting = asyncio.ensure_future(bed.source.changed())
        await bed.clock.advance(5.0)
        assert not waiting.done()
        sqs.put(SPOT)
        await bed.clock.advance(1.0)
        assert waiting.done()
        await bed.source.current()
        again = asyncio.ensure_future(bed.source.changed())
        await bed.clock.advance(30.0)
        assert not again.done()
        again.cancel()


async def test_what_was_recorded_before_it_was_told_is_not_taken_for_recorded(sqs: FakeSqs, owner: Owner) -> None:
    """The set was made from what was told before: an older notice of the same instance."""
    sqs.put(SPOT)
    async with running(sqs, owner) as bed:
        await bed.record(INSTANCE)
        assert sqs.bodies() == [SPOT]
        await bed.told()
        await bed.record(INSTANCE)
        assert sqs.bodies() == []


async def test_recorded_for_one_instance_removes_no_other_message(sqs: FakeSqs, owner: Owner) -> None:
    owner.ours.add(OTHER)
    sqs.put(SPOT, m.body(m.spot(OTHER)))
    async with running(sqs, owner) as bed:
        await bed.told()
        await bed.record(OTHER)
        assert sqs.bodies() == [SPOT]


async def test_bug_001_messages_of_a_batch_that_fails_in_part_are_each_handled_alone(
    sqs: FakeSqs, owner: Owner
) -> None:
    ids = [f"i-{n:017x}" for n in range(25)]
    owner.ours.update(ids)
    sqs.put(*(m.body(m.spot(each)) for each in ids))
    sqs.bad_entries = {"m-3": "InternalError", "m-11": "InternalError"}
    async with running(sqs, owner) as bed:
        assert sorted(await bed.instances()) == ids
        await bed.record(*ids[:20])
        assert [json.loads(body)["detail"]["instance-id"] for body in sqs.bodies()] == [ids[3], ids[11], *ids[20:]]
        sqs.bad_entries = {}
        await bed.clock.advance(2.0)
        assert len(sqs.bodies()) == 5, "deleted at the next look"


async def test_bug_004_every_kind_takes_one_path(sqs: FakeSqs, owner: Owner) -> None:
    kinds: list[Callable[[], Fields]] = [m.spot, m.rebalance, m.state_change, m.health, m.reservation]
    sqs.put(*(m.body(make()) for make in kinds))
    async with running(sqs, owner) as bed:
        assert len({notice.kind for notice in await bed.told()}) == len(kinds)
        assert len(sqs.bodies()) == len(kinds)
        await bed.record(INSTANCE)
        assert sqs.bodies() == []


async def test_of_two_notices_of_a_kind_the_earlier_deadline_stands_whatever_the_order(
    sqs: FakeSqs, owner: Owner
) -> None:
    late, early = m.body(m.reservation(ends="2021-06-05T15:12:09Z")), m.body(m.reservation(ends="2021-06-05T15:11:09Z"))
    sqs.put(late)
    async with running(sqs, owner) as bed:
        await bed.told()
        await bed.record(INSTANCE)
        sqs.put(early, late)
        await bed.clock.advance(2.0)
        assert [notice.deadline_s for notice in await bed.told()] == [EVENT_AT_S + 60.0]
        assert sqs.bodies() == [early], "the earlier deadline has to be recorded anew; the later one says nothing new"
        await bed.record(INSTANCE)
        assert sqs.bodies() == []


# Crashes and redelivery.


async def test_after_a_crash_before_the_record_the_message_comes_again(sqs: FakeSqs, owner: Owner) -> None:
    sqs.put(SPOT)
    async with running(sqs, owner) as first:
        assert await first.instances() == [INSTANCE]
    async with running(sqs, owner) as second:
        assert await second.instances() == []
        await second.clock.advance(inbox.InboxRules().hidden_s + 1.0)
        assert await second.instances() == [INSTANCE]


async def test_after_a_crash_between_record_and_removal_it_is_removed_once_told_recorded_again(
    sqs: FakeSqs, owner: Owner
) -> None:
    sqs.put(SPOT)
    sqs.failing["DeleteMessageBatch"] = away()
    async with running(sqs, owner) as first:
        await first.told()
        await first.record(INSTANCE)
        assert sqs.bodies() == [SPOT]
    sqs.failing.clear()
    async with running(sqs, owner) as second:
        await second.clock.advance(inbox.InboxRules().hidden_s + 1.0)
        assert await second.instances() == [INSTANCE]
        await second.record(INSTANCE)
        assert sqs.bodies() == []


async def test_a_message_received_again_is_removed_by_its_newest_receipt(sqs: FakeSqs, owner: Owner) -> None:
    sqs.put(SPOT)
    sqs.failing["ChangeMessageVisibilityBatch"] = away()
    async with running(sqs, owner) as bed:
        await bed.clock.advance(50.0)
        assert sqs.queues[URL][0].received > 1
        assert (await bed.instances(), bed.source.health().received) == ([INSTANCE], 1)
        await bed.record(INSTANCE)
        assert sqs.bodies() == []


async def test_a_receipt_that_is_void_is_given_up_and_the_notice_stands(sqs: FakeSqs, owner: Owner) -> None:
    sqs.put(SPOT)
    async with running(sqs, owner) as bed:
        sqs.bad_entries = {"m-0": "InvalidParameterValue"}
        await bed.clock.advance(15.0)
        sqs.bad_entries = {}
        assert await bed.instances() == [INSTANCE]
        await bed.clock.advance(15.0)
        assert sqs.queues[URL][0].received == 2, "hidden no longer, it came again"
        await bed.told()
        await bed.record(INSTANCE)
        assert sqs.bodies() == []


async def test_ten_thousand_duplicates_are_one_notice_and_one_message_in_hand(sqs: FakeSqs, owner: Owner) -> None:
    sqs.put(*[SPOT] * 10_000)
    async with running(sqs, owner) as bed:
        await bed.clock.advance(60.0)
        assert await bed.instances() == [INSTANCE]
        health = bed.source.health()
        assert (health.received, health.duplicates) == (1, 9_999)
        assert sqs.bodies() == [SPOT], "the first stays, it is not recorded yet"
        await bed.record(INSTANCE)
        assert sqs.bodies() == []
        sqs.put(*[SPOT] * 100)
        await bed.clock.advance(5.0)
        assert sqs.bodies() == [], "recorded already"


@pytest.mark.parametrize("time", [f"2021-06-05T15:10:{second:02}Z" for second in (9, 10, 11)])
async def test_bug_013_the_same_notice_with_a_moving_time_is_one(sqs: FakeSqs, owner: Owner, time: str) -> None:
    sqs.put(SPOT)
    moved = m.spot() | {"time": time, "id": "another"}
    async with running(sqs, owner) as bed:
        sqs.put(m.body(moved))
        await bed.clock.advance(2.0)
        assert [notice.deadline_s for notice in await bed.told()] == [EVENT_AT_S + 120.0]


# Instances that are not ours, or not yet.


@pytest.mark.parametrize("known", [True, False], ids=["known to be foreign", "unknown"])
async def test_bug_008_a_strangers_message_is_kept_a_minute_then_removed_and_counted(sqs: FakeSqs, known: bool) -> None:
    sqs.put(SPOT)
    async with running(sqs, Owner(foreign={INSTANCE} if known else set())) as bed:
        await bed.clock.advance(58.0)
        assert sqs.bodies() == [SPOT]
        await bed.clock.advance(4.0)
        assert sqs.bodies() == []
        assert await bed.told() == ()
        health = bed.source.health()
        assert (health.foreign, health.unknown) == ((1, 0) if known else (0, 1))
        assert sqs.calls["ChangeMessageVisibilityBatch"] == 1, "hidden once for all of its minute"
        assert health.queue_age_s == 0.0, "other people's messages are no backlog"


async def test_bug_009_a_strangers_message_is_received_once_and_not_again_and_again(sqs: FakeSqs) -> None:
    sqs.put(SPOT)
    async with running(sqs, Owner()) as bed:
        stored = sqs.queues[URL][0]
        await bed.clock.advance(300.0)
        assert (stored.received, sqs.bodies()) == (1, [])


async def test_the_minute_counts_from_the_first_receipt_over_restarts(sqs: FakeSqs) -> None:
    sqs.put(SPOT)
    async with running(sqs, Owner()) as first:
        await first.clock.advance(5.0)
    async with running(sqs, Owner()) as second:
        await second.clock.advance(55.0)
        await second.clock.advance(4.0)
        assert sqs.bodies() == []


async def test_an_instance_that_becomes_known_in_its_minute_is_told_and_keeps_its_message(sqs: FakeSqs) -> None:
    sqs.put(SPOT)
    owner = Owner()
    async with running(sqs, owner) as bed:
        await bed.clock.advance(30.0)
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                await bed.source.changed()
        waiting = asyncio.ensure_future(bed.source.changed())
        owner.ours.add(INSTANCE)
        await bed.clock.advance(2.0)
        assert waiting.done()
        assert await bed.instances() == [INSTANCE]
        await bed.clock.advance(60.0)
        assert sqs.bodies() == [SPOT], "it has not joined: nothing is recorded yet"


async def test_bug_010_an_instance_of_ours_that_is_gone_already_ends_its_message(sqs: FakeSqs, owner: Owner) -> None:
    sqs.put(m.body(m.state_change(state="terminated")))
    async with running(sqs, owner) as bed:
        assert await bed.instances() == [INSTANCE]
        owner.ours.clear()
        await bed.clock.advance(62.0)
        assert sqs.bodies() == []
        assert await bed.told() == ()


async def test_bug_012_what_nobody_ever_records_goes_once_it_is_void(sqs: FakeSqs, owner: Owner) -> None:
    sqs.put(SPOT)
    async with running(sqs, owner) as bed:
        await bed.clock.advance(110.0 + VOID_AFTER_DEADLINE_S)
        assert sqs.bodies() == [SPOT]
        await bed.clock.advance(12.0)
        assert sqs.bodies() == []
        assert await bed.told() == ()
        assert bed.source.health().expired == 1
        assert len(bed.source._standing) == 0
        assert len(bed.source._inbox) == 0


async def test_bug_012_strangers_beyond_a_bound_are_left_in_the_queue_and_ours_never(
    sqs: FakeSqs, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "MAX_STRANGERS", 5)
    sqs.put(*(m.body(m.spot(f"i-{n:017x}")) for n in range(20)), SPOT)
    async with running(sqs, owner) as bed:
        await bed.clock.advance(5.0)
        assert len(bed.source._inbox) == 6
        assert await bed.instances() == [INSTANCE]
        assert len(sqs.bodies()) == 21, "none is lost"
        await bed.clock.advance(300.0)
        assert sqs.bodies() == [SPOT]


async def test_of_several_instances_in_a_message_ours_are_told_and_the_message_waits_for_all(
    sqs: FakeSqs, owner: Owner
) -> None:
    stranger = "i-00000000000000bad"
    owner.ours.add(OTHER)
    sqs.put(m.body(m.health(INSTANCE, stranger, OTHER)))
    async with running(sqs, owner) as bed:
        assert sorted(await bed.instances()) == sorted([INSTANCE, OTHER])
        await bed.record(INSTANCE)
        await bed.clock.advance(65.0)
        assert len(sqs.bodies()) == 1
        await bed.record(INSTANCE, OTHER)
        assert sqs.bodies() == []
        assert bed.source.health().unknown == 1


# What cannot be read, or asks for nothing.


BROKEN = ["", "{", "null", '{"detail": 1}', "\ud800", m.body(m.spot() | {"detail": {}, "resources": []})]


@pytest.mark.parametrize("body", BROKEN, ids=ascii)
async def test_bug_011_poison_goes_to_the_dead_letters_once_and_stops_nothing(
    sqs: FakeSqs, owner: Owner, body: str
) -> None:
    sqs.put(body, SPOT)
    async with running(sqs, owner) as bed:
        assert await bed.instances() == [INSTANCE]
        await bed.clock.advance(60.0)
        assert sqs.bodies() == [SPOT]
        assert sqs.bodies(GRAVEYARD) == [body]
        health = bed.source.health()
        assert (health.malformed, health.dead_lettered) == (1, 1)


async def test_poison_stays_while_the_dead_letter_queue_is_away(sqs: FakeSqs, owner: Owner) -> None:
    sqs.put("{")
    sqs.failing["SendMessage"] = away("SendMessage")
    async with running(sqs, owner) as bed:
        await bed.clock.advance(60.0)
        assert sqs.bodies() == ["{"]
        assert "dead-letter" in bed.source.health().error
        sqs.failing.clear()
        await bed.clock.advance(5.0)
        assert (sqs.bodies(), sqs.bodies(GRAVEYARD)) == ([], ["{"])
        assert (bed.source.health().error, bed.source.health().malformed) == ("", 1)


async def test_a_burial_whose_removal_fails_is_not_repeated(sqs: FakeSqs, owner: Owner) -> None:
    sqs.put("{")
    sqs.failing["DeleteMessageBatch"] = away()
    async with running(sqs, owner) as bed:
        await bed.clock.advance(60.0)
        sqs.failing.clear()
        await bed.clock.advance(30.0)
        assert (sqs.bodies(), sqs.bodies(GRAVEYARD)) == ([], ["{"])


async def test_without_dead_letters_poison_is_left_to_the_queues_redrive_and_counted_once(
    sqs: FakeSqs, owner: Owner
) -> None:
    sqs.put("{")
    async with running(sqs, owner, dead_letters=False) as bed:
        await bed.clock.advance(100.0)
        assert sqs.bodies() == ["{"]
        assert sqs.queues[URL][0].received > 3, "its receipts count towards the redrive policy"
        assert bed.source.health().malformed == 1


@pytest.mark.parametrize(
    "make", [m.launch_lifecycle, m.scaling_result, m.hook_test, lambda: m.state_change(state="running")]
)
async def test_what_asks_for_nothing_is_removed_at_once_and_counted(
    sqs: FakeSqs, owner: Owner, make: Callable[[], Fields]
) -> None:
    sqs.put(m.body(make()))
    async with running(sqs, owner) as bed:
        await bed.clock.advance(1.0)
        assert sqs.bodies() == []
        assert await bed.told() == ()
        assert bed.source.health().ignored == 1


# Hints, hooks, blocks.


async def test_bug_017_a_hint_is_soft_and_goes_by_itself(sqs: FakeSqs, owner: Owner) -> None:
    sqs.put(m.body(m.rebalance()))
    async with running(sqs, owner) as bed:
        assert [notice.deadline_s for notice in await bed.told()] == [None]
        await bed.clock.advance(HINT_TTL_S + 20.0)
        assert await bed.told() == ()
        assert sqs.bodies() == []


async def test_a_newer_hint_renews_an_older_one(sqs: FakeSqs, owner: Owner) -> None:
    sqs.put(m.body(m.rebalance()))
    async with running(sqs, owner) as bed:
        await bed.clock.advance(600.0)
        sqs.put(m.body(m.rebalance() | {"time": "2021-06-05T15:20:09Z"}))
        await bed.clock.advance(HINT_TTL_S - 300.0)
        assert await bed.instances() == [INSTANCE]


async def test_bug_002_a_hook_is_completed_after_the_drain_and_not_before(sqs: FakeSqs, owner: Owner) -> None:
    sqs.put(m.body(m.lifecycle()))
    async with running(sqs, owner) as bed:
        await bed.told()
        await bed.record(INSTANCE)
        await bed.clock.advance(50.0)
        assert sqs.completed == []
        assert len(sqs.bodies()) == 1, "the hook's facts stay where a crash cannot lose them"
        await bed.source.drained(frozenset({INSTANCE}))
        await bed.clock.settle()
        assert [(each["AutoScalingGroupName"], each["LifecycleHookName"]) for each in sqs.completed] == [
            ("rollout-a", "headrace")
        ]
        assert sqs.bodies() == []


async def test_bug_002_a_hook_is_completed_at_the_deadline_at_the_latest(sqs: FakeSqs, owner: Owner) -> None:
    sqs.put(m.body(m.lifecycle_direct()), m.body(m.by_sns(m.lifecycle_direct())))
    async with running(sqs, owner) as bed:
        await bed.told()
        await bed.record(INSTANCE)
        await bed.clock.advance(118.0)
        assert sqs.completed == []
        await bed.clock.advance(3.0)
        assert len(sqs.completed) == 1, "one hook, told twice"


async def test_a_strangers_hook_is_never_completed(sqs: FakeSqs) -> None:
    sqs.put(m.body(m.lifecycle()))
    async with running(sqs, Owner()) as bed:
        await bed.source.drained(frozenset({INSTANCE}))
        await bed.clock.advance(200.0)
        assert (sqs.completed, sqs.bodies()) == ([], [])


async def test_a_hook_that_cannot_be_completed_yet_is_tried_again(sqs: FakeSqs, owner: Owner) -> None:
    sqs.put(m.body(m.lifecycle()))
    sqs.failing["CompleteLifecycleAction"] = away()
    async with running(sqs, owner) as bed:
        await bed.told()
        await bed.record(INSTANCE)
        await bed.source.drained(frozenset({INSTANCE}))
        await bed.clock.advance(5.0)
        assert "lifecycle hook" in bed.source.health().error
        sqs.failing.clear()
        await bed.clock.advance(2.0)
        assert (len(sqs.completed), sqs.bodies()) == (1, [])


async def test_bug_010_a_hook_that_has_gone_on_already_is_done(sqs: FakeSqs, owner: Owner) -> None:
    sqs.put(m.body(m.lifecycle()))
    gone = "ValidationError: No active Lifecycle Action found with instance ID i-1"
    sqs.failing["CompleteLifecycleAction"] = AwsError(gone, fault=AwsFault.CONFIGURATION)
    async with running(sqs, owner) as bed:
        await bed.told()
        await bed.record(INSTANCE)
        await bed.source.drained(frozenset({INSTANCE}))
        await bed.clock.settle()
        assert sqs.bodies() == []


async def test_a_capacity_block_that_ends_is_a_notice_to_each_of_its_instances(sqs: FakeSqs, owner: Owner) -> None:
    owner.ours.add(OTHER)
    sqs.members[m.RESERVATION] = [INSTANCE, OTHER, "i-00000000000000bad"]
    sqs.put(m.body(m.capacity_block()))
    async with running(sqs, owner) as bed:
        expected = {(each, NoticeKind.CAPACITY_RESERVATION_END, EVENT_AT_S + 600.0) for each in (INSTANCE, OTHER)}
        assert {(n.instance_id, n.kind, n.deadline_s) for n in await bed.told()} == expected
        await bed.record(INSTANCE, OTHER)
        await bed.clock.advance(65.0)
        assert sqs.bodies() == []


async def test_a_capacity_block_is_asked_about_until_somebody_answers(sqs: FakeSqs, owner: Owner) -> None:
    sqs.members[m.RESERVATION] = [INSTANCE]
    sqs.failing["DescribeInstances"] = away()
    sqs.put(m.body(m.capacity_block()))
    async with running(sqs, owner) as bed:
        await bed.clock.advance(120.0)
        assert await bed.told() == ()
        assert 20 <= sqs.calls["DescribeInstances"] <= 30
        sqs.failing.clear()
        await bed.clock.advance(6.0)
        assert await bed.instances() == [INSTANCE]


async def test_somebody_elses_capacity_block_goes_after_its_minute(sqs: FakeSqs, owner: Owner) -> None:
    sqs.put(m.body(m.capacity_block()))
    async with running(sqs, owner) as bed:
        await bed.clock.advance(65.0)
        assert sqs.bodies() == []
        assert bed.source.health().unknown == 1


# The queue itself.


@pytest.mark.parametrize("tags", [{}, {CLUSTER_TAG: "another"}, {"other": CLUSTER}])
async def test_a_queue_that_is_not_our_clusters_is_refused_and_not_touched(
    sqs: FakeSqs, owner: Owner, tags: dict[str, str]
) -> None:
    sqs.tags = tags
    sqs.put(SPOT)
    async with running(sqs, owner) as bed:
        await bed.clock.advance(120.0)
        assert sqs.calls["ReceiveMessage"] == 0
        health = bed.source.health()
        assert health.answered_at_s is None
        assert CLUSTER_TAG in health.error
        assert CLUSTER in health.error
        sqs.tags = {CLUSTER_TAG: CLUSTER}
        await bed.clock.advance(40.0)
        assert await bed.instances() == [INSTANCE]
        assert bed.source.health().error == ""


@pytest.mark.parametrize("operation", ["ListQueueTags", "ReceiveMessage"])
async def test_bug_021_a_queue_that_is_away_at_the_start_is_unhealthy_and_asked_again(
    sqs: FakeSqs, owner: Owner, operation: str
) -> None:
    sqs.failing[operation] = away(operation)
    sqs.put(SPOT)
    async with running(sqs, owner) as bed:
        await bed.clock.advance(300.0)
        health = bed.source.health()
        assert (health.answered_at_s, health.queue_age_s) == (None, None)
        assert operation in health.error
        assert sqs.calls[operation] < 100, "with back-off"
        sqs.failing.clear()
        await bed.clock.advance(40.0)
        assert await bed.instances() == [INSTANCE]
        assert bed.source.health().error == ""
        assert bed.source.health().answered_at_s is not None


async def test_a_queue_that_goes_away_keeps_what_it_told(sqs: FakeSqs, owner: Owner) -> None:
    sqs.put(SPOT)
    async with running(sqs, owner) as bed:
        assert await bed.instances() == [INSTANCE]
        for operation in ("ReceiveMessage", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"):
            sqs.failing[operation] = away(operation)
        await bed.record(INSTANCE)
        await bed.clock.advance(60.0)
        assert await bed.instances() == [INSTANCE]
        assert bed.source.health().error
        sqs.failing.clear()
        await bed.clock.advance(60.0)
        assert sqs.bodies() == []


async def test_bug_022_the_age_of_the_queue_is_that_of_the_oldest_message_not_recorded(
    sqs: FakeSqs, owner: Owner
) -> None:
    sqs.put(SPOT, sent_ago_s=40.0)
    async with running(sqs, owner) as bed:
        await bed.told()
        assert bed.source.health().queue_age_s == pytest.approx(40.0, abs=1.0)
        await bed.record(INSTANCE)
        assert bed.source.health().queue_age_s == 0.0


@pytest.mark.parametrize("ahead", [-3600.0, 3600.0])
async def test_a_wrong_clock_of_ours_changes_neither_deadlines_nor_ages(owner: Owner, ahead: float) -> None:
    sqs = FakeSqs(FakeClock(EVENT_AT_S + 1.0 - ahead), ahead=ahead)
    sqs.put(SPOT)
    async with running(sqs, owner) as bed:
        assert [notice.deadline_s for notice in await bed.told()] == [EVENT_AT_S + 120.0]
        assert bed.source.health().queue_age_s == pytest.approx(0.0, abs=1.0)


async def test_a_step_of_our_clock_drops_no_strangers_message_early(sqs: FakeSqs) -> None:
    sqs.put(SPOT)
    async with running(sqs, Owner()) as bed:
        sqs.clock.step(10_000.0)
        await bed.clock.advance(30.0)
        assert sqs.bodies() == [SPOT]


def test_the_registry_makes_a_queue_source(sqs: FakeSqs, owner: Owner) -> None:
    assert isinstance(make_source("sqs", settings_of(sqs, owner), clock=sqs.clock), SqsNotices)
    with pytest.raises(TypeError, match="SqsSettings"):
        make_source("sqs", None, clock=sqs.clock)
