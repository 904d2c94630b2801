"""Whatever order messages, crashes, failures and records come in, no notice of ours is lost, and in the end nothing is left."""

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.interruptions.messages.parsed import Told
from scaler.interruptions.messages.table import parse
from scaler.interruptions.sqs import SqsNotices, SqsSettings
from scaler.model.interruption import InterruptionNotice, NoticeKind
from tests.builders import messages as m
from tests.builders.clock import FakeClock
from tests.builders.fake_sqs import CLUSTER, GRAVEYARD, URL, FakeSqs, Owner, away
from tests.builders.messages import EVENT_AT_S

OURS = [f"i-{n:017x}" for n in range(2)]
STRANGER = "i-00000000000000bad"
Key = tuple[str, NoticeKind]


def body(kind: str, instance_id: str, second: int) -> str:
    """A message of one of three kinds about an instance, its deadline moved by some seconds."""
    if kind == "health":
        return m.body(m.health(*OURS[: second % 2 + 1], STRANGER))
    fields = {"spot": m.spot, "state": m.state_change}[kind](instance_id)
    return m.body(fields | {"time": f"2021-06-05T15:10:{second:02}Z"})


PUTS = st.tuples(
    st.just("put"),
    st.builds(body, st.sampled_from(["spot", "health"]), st.sampled_from(OURS), st.sampled_from([1, 11, 20]))
    | st.builds(body, st.just("state"), st.sampled_from([OURS[0], STRANGER]), st.integers(0, 20))
    | st.just("{"),
)
RECORDS = st.tuples(st.sampled_from(["tell and record", "record"]), st.sets(st.sampled_from(OURS), min_size=1))
TROUBLE = st.one_of(
    st.tuples(st.just("crash"), st.none()),
    st.tuples(st.just("meddle"), st.none()),
    st.tuples(
        st.just("toggle"),
        st.sampled_from(["ReceiveMessage", "DeleteMessageBatch", "ChangeMessageVisibilityBatch", "SendMessage"]),
    ),
)
STEPS = PUTS | RECORDS | PUTS | RECORDS | st.tuples(st.just("pass"), st.sampled_from([0.5, 11.0, 35.0])) | TROUBLE


@dataclass
class Life:
    """The world, what was put in, and what a crash cannot lose."""

    sqs: FakeSqs = field(default_factory=lambda: FakeSqs(FakeClock(EVENT_AT_S + 30.0)))
    owner: Owner = field(default_factory=lambda: Owner(set(OURS)))
    put: list[InterruptionNotice] = field(default_factory=list)
    told: tuple[InterruptionNotice, ...] = ()
    durable: dict[Key, float] = field(default_factory=dict)
    poison: int = 0

    def source(self) -> SqsNotices:
        self.told = ()
        return SqsNotices(
            SqsSettings(
                aws=self.sqs,
                queue_url=URL,
                cluster_uid=CLUSTER,
                owner=self.owner,
                dead_letter_url=GRAVEYARD,
                receivers=1,
            ),
            clock=self.sqs.clock,
        )

    async def do(self, source: SqsNotices, what: str, argument: object) -> None:
        if what == "put":
            self.sqs.put(str(argument))
            self.put += notices(str(argument))
            self.poison += argument == "{"
        elif what == "pass":
            assert isinstance(argument, float)
            await self.sqs.clock.advance(argument)
        elif isinstance(argument, set):
            if what == "tell and record":
                self.told = await source.current()
            await self.record(source, argument)
        elif what == "meddle":
            await self.meddle()
        elif self.sqs.failing.pop(str(argument), None) is None:
            self.sqs.failing[str(argument)] = away(str(argument))
        await self.sqs.clock.settle()

    async def meddle(self) -> None:
        """Somebody else receives what is in the queue and hides it for a moment: our receipts are void."""
        for stored in self.sqs.queues[URL]:
            stored.handle = "somebody else's"
            stored.visible_at_s = self.sqs.clock.monotonic_s() + 25.0

    async def record(self, source: SqsNotices, instance_ids: set[str]) -> None:
        """As the runtime does: what `current` told last, and nothing else, has been written down."""
        for notice in self.told:
            if notice.instance_id in instance_ids and notice.deadline_s is not None:
                known_s = self.durable.get((notice.instance_id, notice.kind), float("inf"))
                self.durable[notice.instance_id, notice.kind] = min(known_s, notice.deadline_s)
        await source.recorded(frozenset(instance_ids) & {notice.instance_id for notice in self.told})

    def check(self) -> None:
        """Each notice of ours is durable, or in the queue as early as it was told."""
        kept = dict(self.durable)
        for text in self.sqs.bodies():
            for notice in notices(text):
                assert notice.deadline_s is not None
                key = (notice.instance_id, notice.kind)
                kept[key] = min(kept.get(key, float("inf")), notice.deadline_s)
        for notice in self.put:
            if notice.instance_id in self.owner.ours:
                assert notice.deadline_s is not None
                assert kept.get((notice.instance_id, notice.kind), float("inf")) <= notice.deadline_s, notice


def notices(text: str) -> list[InterruptionNotice]:
    parsed = parse(text, sent_at_s=EVENT_AT_S + 30.0)
    return list(parsed.notices) if isinstance(parsed, Told) else []


async def lived(steps: list[tuple[str, object]]) -> None:
    life = Life()
    while steps:
        source = life.source()
        running = asyncio.ensure_future(source.run())
        await life.sqs.clock.settle()
        while steps:
            what, argument = steps.pop(0)
            if what == "crash":
                break
            await life.do(source, what, argument)
            life.check()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        life.check()
    await _ended_well(life)


async def _ended_well(life: Life) -> None:
    """Once everything answers and everything is recorded, the queue is empty and the poison is buried."""
    life.sqs.failing.clear()
    source = life.source()
    running = asyncio.ensure_future(source.run())
    for _ in range(12):
        if not life.sqs.bodies():
            break
        await life.sqs.clock.advance(20.0)
        life.told = await source.current()
        await life.record(source, set(OURS))
        life.check()
    await life.sqs.clock.settle()
    assert life.sqs.bodies() == []
    assert len(life.sqs.bodies(GRAVEYARD)) >= life.poison
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.slow
@settings(max_examples=120)
@given(st.lists(STEPS, min_size=4, max_size=14))
def test_no_order_of_events_loses_a_notice_of_ours(steps: list[tuple[str, object]]) -> None:
    asyncio.run(lived(list(steps)))
