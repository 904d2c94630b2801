"""AWS for tests: moto's server on loopback, our client on it, clients whose answers are written down beforehand."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import boto3
import pytest
from botocore.client import BaseClient
from botocore.config import Config
from botocore.stub import Stubber
from moto.server import ThreadedMotoServer

from scaler.aws.client import BotoAws, open_aws
from scaler.model.clock import Clock

REGION = "us-east-1"


@pytest.fixture(scope="session")
def moto_server() -> Iterator[str]:
    """Moto's server, shared by all tests of a session."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    _load(url, "ec2", "describe_launch_templates")
    _load(url, "autoscaling", "describe_auto_scaling_groups")
    yield url
    server.stop()


def _load(url: str, service: str, call: str) -> None:
    """Moto loads a service at its first call: on a busy machine longer than our client waits before it asks again."""
    patience = Config(read_timeout=120, retries={"mode": "standard", "total_max_attempts": 1})
    client = _session().client(
        service, endpoint_url=url, config=patience, aws_access_key_id="testing", aws_secret_access_key="testing"
    )
    getattr(client, call)()


@pytest.fixture
def aws_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials that are nobody's, and no instance metadata."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.delenv("AWS_PROFILE", raising=False)


@cache
def _session() -> Any:
    """One for all: it keeps the service models that it has read."""
    return boto3.session.Session(region_name=REGION)


@asynccontextmanager
async def opened(url: str, clock: Clock) -> AsyncIterator[BotoAws]:
    """Our client on the server at `url`."""
    aws = open_aws(REGION, clock=clock, endpoint_url=url)
    try:
        yield aws
    finally:
        await aws.close()


def stubbed(service: str, clock: Clock) -> tuple[BotoAws, Stubber]:
    """A client whose answers and errors are written down beforehand; nothing goes out, nothing is repeated."""
    client: BaseClient = _session().client(
        service, config=Config(retries={"mode": "standard", "total_max_attempts": 1})
    )
    stubber = Stubber(client)
    stubber.activate()
    return BotoAws({service: client}, {service: client}, clock=clock, threads=2), stubber


def answered_at(date: str) -> Mapping[str, Any]:
    """Metadata of an answer with that Date header."""
    return {"HTTPStatusCode": 200, "HTTPHeaders": {"date": date}}
