"""Bug reports about events that are no single source's business, by their numbers in `tests.bug_reports`."""

import asyncio
import os
from collections.abc import AsyncIterator

import boto3
import pytest

from scaler.interruptions.queue.wire import CLUSTER_TAG
from scaler.interruptions.sqs import SqsNotices, SqsSettings
from scaler.runtime.clock import SystemClock
from tests.builders.aws import REGION, aws_environment, moto_server, opened
from tests.builders.fake_sqs import CLUSTER, Owner
from tests.builders.imds import FakeImds, served

__all__ = ["aws_environment", "moto_server"]


@pytest.fixture
async def metadata() -> AsyncIterator[FakeImds]:
    async with served(SystemClock()) as server:
        yield server


async def test_bug_027_the_queue_needs_no_instance_metadata(
    moto_server: str, aws_environment: None, metadata: FakeImds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Region and account come from the configuration: a pod that is kept from instance metadata works."""
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url)
    assert "AWS_REGION" not in os.environ
    client = boto3.client("sqs", region_name=REGION, endpoint_url=moto_server)
    url = client.create_queue(QueueName="needs-no-metadata", tags={CLUSTER_TAG: CLUSTER})["QueueUrl"]
    client.close()
    async with opened(moto_server, SystemClock()) as aws, asyncio.timeout(30), asyncio.TaskGroup() as group:
        settings = SqsSettings(aws=aws, queue_url=url, cluster_uid=CLUSTER, owner=Owner(), wait_s=0)
        source = SqsNotices(settings, clock=SystemClock())
        task = group.create_task(source.run())
        while source.health().answered_at_s is None:
            await SystemClock().sleep(0.02)
        task.cancel()
    assert not metadata.seen
