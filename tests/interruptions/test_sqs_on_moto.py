"""The same source against a real SQS wire format and a real EventBridge rule: moto's server, our AWS client, real time."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import boto3
import pytest

from scaler.aws.client import BotoAws
from scaler.interruptions.queue.inbox import InboxRules
from scaler.interruptions.queue.wire import CLUSTER_TAG
from scaler.interruptions.sqs import SqsNotices, SqsSettings
from scaler.model.interruption import NoticeKind
from scaler.runtime.clock import SystemClock
from tests.builders import messages as m
from tests.builders.aws import REGION, aws_environment, moto_server, opened
from tests.builders.fake_sqs import CLUSTER, Owner
from tests.builders.messages import INSTANCE, OTHER

__all__ = ["aws_environment", "moto_server"]

QUICK = InboxRules(hidden_s=2, grace_s=2.0)


@dataclass
class Queues:
    """A queue of our cluster's and its dead letters, on moto."""

    endpoint: str
    client: Any
    name: str = field(default_factory=lambda: f"q-{uuid4().hex[:8]}")
    url: str = ""
    graveyard: str = ""

    def __post_init__(self) -> None:
        self.url = self.client.create_queue(QueueName=self.name, tags={CLUSTER_TAG: CLUSTER})["QueueUrl"]
        self.graveyard = self.client.create_queue(QueueName=f"{self.name}-dead")["QueueUrl"]

    def put(self, *bodies: str) -> None:
        for start in range(0, len(bodies), 10):
            entries = [{"Id": str(n), "MessageBody": body} for n, body in enumerate(bodies[start : start + 10])]
            self.client.send_message_batch(QueueUrl=self.url, Entries=entries)

    def count(self, url: str) -> int:
        """Messages in a queue, hidden or not."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = self.client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return sum(int(answer[name]) for name in names)

    @property
    def left(self) -> int:
        return self.count(self.url)


@pytest.fixture
def queues(moto_server: str, aws_environment: None) -> Iterator[Queues]:
    client = boto3.client("sqs", region_name=REGION, endpoint_url=moto_server)
    yield Queues(moto_server, client)
    client.close()


@asynccontextmanager
async def running(queues: Queues, owner: Owner, rules: InboxRules = QUICK) -> AsyncIterator[SqsNotices]:
    clock = SystemClock()
    async with opened(queues.endpoint, clock) as aws, asyncio.TaskGroup() as group:
        source = SqsNotices(_settings(aws, queues, owner, rules), clock=clock)
        task = group.create_task(source.run())
        yield source
        task.cancel()


def _settings(aws: BotoAws, queues: Queues, owner: Owner, rules: InboxRules) -> SqsSettings:
    return SqsSettings(
        aws=aws,
        queue_url=queues.url,
        cluster_uid=CLUSTER,
        owner=owner,
        dead_letter_url=queues.graveyard,
        wait_s=1,
        rules=rules,
    )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not await asyncio.to_thread(condition):
            await SystemClock().sleep(0.05)


async def told(source: SqsNotices, number: int) -> set[tuple[str, NoticeKind]]:
    async with asyncio.timeout(30):
        while len(notices := await source.current()) < number:
            await source.changed()
    return {(notice.instance_id, notice.kind) for notice in notices}


async def test_an_event_that_a_rule_delivers_is_told_and_removed_once_recorded(
    queues: Queues, moto_server: str
) -> None:
    arn = queues.client.get_queue_attributes(QueueUrl=queues.url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    events = boto3.client("events", region_name=REGION, endpoint_url=moto_server)
    events.put_rule(Name=queues.name, EventPattern=json.dumps({"source": ["aws.ec2", "aws.autoscaling"]}))
    events.put_targets(Rule=queues.name, Targets=[{"Id": "queue", "Arn": arn}])
    for fields in (m.spot(), m.lifecycle(OTHER)):
        entry = {
            "Source": fields["source"],
            "DetailType": fields["detail-type"],
            "Detail": json.dumps(fields["detail"]),
            "Resources": fields["resources"],
        }
        assert events.put_events(Entries=[entry])["FailedEntryCount"] == 0
    events.remove_targets(Rule=queues.name, Ids=["queue"])
    events.delete_rule(Name=queues.name)
    events.close()
    async with running(queues, Owner({INSTANCE, OTHER})) as source:
        assert await told(source, 2) == {
            (INSTANCE, NoticeKind.SPOT_INTERRUPTION),
            (OTHER, NoticeKind.LIFECYCLE_HOOK),
        }
        spot, _ = await source.current()
        assert spot.deadline_s == pytest.approx(SystemClock().now_s() + 120.0, abs=10.0)
        await source.recorded(frozenset({INSTANCE}))
        await until(lambda: queues.left == 1)


async def test_what_is_not_recorded_stays_longer_than_it_is_hidden_and_comes_again_after_a_crash(
    queues: Queues,
) -> None:
    queues.put(m.body(m.rebalance() | {"time": None}))
    async with running(queues, Owner({INSTANCE})) as source:
        await told(source, 1)
        await asyncio.to_thread(lambda: queues.client.receive_message(QueueUrl=queues.url, WaitTimeSeconds=3))
        assert source.health().duplicates == 0
        assert queues.left == 1
    async with running(queues, Owner({INSTANCE})) as source:
        await told(source, 1)
        await source.recorded(frozenset({INSTANCE}))
        await until(lambda: queues.left == 0)


async def test_poison_is_buried_and_strangers_go_after_their_while(queues: Queues) -> None:
    queues.put("{", m.body(m.hook_test()), m.body(m.spot(OTHER)), "}")
    async with running(queues, Owner()) as source:
        await until(lambda: queues.left == 0 and queues.count(queues.graveyard) == 2)
        await until(lambda: source.health().unknown == 1)
        health = source.health()
        assert (health.malformed, health.dead_lettered, health.ignored, health.error) == (2, 2, 1, "")


async def test_hundreds_of_notices_and_their_duplicates_are_told_once_and_all_removed(queues: Queues) -> None:
    ids = [f"i-{n:017x}" for n in range(100)]
    queues.put(*(m.body(m.spot(each) | {"time": None}) for each in ids * 2))
    async with running(queues, Owner(set(ids)), InboxRules()) as source:
        assert {instance_id for instance_id, _ in await told(source, len(ids))} == set(ids)
        await until(lambda: source.health().duplicates >= len(ids))
        assert source.health().received == len(ids)
        await source.current()
        await source.recorded(frozenset(ids))
        await until(lambda: queues.left == 0)


async def test_another_clusters_queue_is_refused(queues: Queues) -> None:
    queues.client.tag_queue(QueueUrl=queues.url, Tags={CLUSTER_TAG: "another"})
    queues.put(m.body(m.spot()))
    async with running(queues, Owner({INSTANCE})) as source:
        await until(lambda: "another" in source.health().error)
        assert source.health().answered_at_s is None
        queues.client.tag_queue(QueueUrl=queues.url, Tags={CLUSTER_TAG: CLUSTER})
        await until(lambda: source.health().received == 1 or source.health().answered_at_s is not None)


async def test_a_queue_that_does_not_exist_is_unhealthy_and_stops_nothing(queues: Queues) -> None:
    queues.url += "-gone"
    async with running(queues, Owner()) as source:
        await until(lambda: "ListQueueTags" in source.health().error)
        assert await source.current() == ()
