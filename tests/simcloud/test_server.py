"""Over HTTP: what no call in process shows. Real clock, quick settings."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, HTTPClientError

from scaler.runtime.clock import SystemClock
from tests.simcloud.helpers import client, make_group, quick
from tests.simcloud.server import Server, serve
from tests.simcloud.sim import SimCloud


@pytest.fixture
def server() -> Iterator[Server]:
    sim = SimCloud(SystemClock(), 1, quick())
    make_group(sim)
    with serve(sim) as served:
        yield served


def post(address: str, path: str, body: dict[str, Any]) -> Any:
    request = Request(f"{address}/_sim/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(request) as answer:
        return json.load(answer)


def get(address: str, path: str) -> Any:
    with urlopen(f"{address}/_sim/{path}") as answer:
        return json.load(answer)


def launch(server: Server, number: int, token: str = "t", **more: Any) -> dict[str, Any]:
    scaling = client(server.address, "autoscaling", **more)
    found: dict[str, Any] = scaling.launch_instances(
        AutoScalingGroupName="rollout", RequestedCapacity=number, ClientToken=token
    )
    return found


def test_the_access_key_is_who_asked(server: Server) -> None:
    launch(server, 1, caller="FLEET-A")
    assert {call.caller for call in server.sim.log.of("LaunchInstances")} == {"FLEET-A"}


def test_a_lost_answer_breaks_the_connection_though_the_call_was_carried_out(server: Server) -> None:
    server.sim.drop_next("LaunchInstances", carried_out=True)
    with pytest.raises((ConnectionClosedError, HTTPClientError)):
        launch(server, 2)
    assert len(server.sim.running()) == 2
    assert len(launch(server, 2)["Instances"][0]["InstanceIds"]) == 2
    assert len(server.sim.running()) == 2


def test_an_unanswered_call_that_was_not_carried_out_looks_the_same(server: Server) -> None:
    server.sim.drop_next("LaunchInstances", carried_out=False)
    with pytest.raises((ConnectionClosedError, HTTPClientError)):
        launch(server, 2)
    assert server.sim.running() == []


@pytest.mark.parametrize(
    ("service", "operation", "call", "code", "status"),
    [
        ("ec2", "DescribeInstances", "describe_instances", "RequestLimitExceeded", 503),
        ("ec2", "DescribeInstances", "describe_instances", "UnauthorizedOperation", 403),
        ("autoscaling", "DescribePolicies", "describe_policies", "Throttling", 400),
        ("autoscaling", "DescribePolicies", "describe_policies", "InternalFailure", 500),
        ("eks", "ListClusters", "list_clusters", "ExpiredTokenException", 403),
        ("sqs", "ListQueues", "list_queues", "OverLimit", 403),
    ],
)
def test_any_code_and_status_can_be_answered(
    server: Server, service: str, operation: str, call: str, code: str, status: int
) -> None:
    server.sim.fail_next(operation, code, message="no", status=status)
    with pytest.raises(ClientError) as refused:
        getattr(client(server.address, service), call)()
    assert refused.value.response["Error"]["Code"] == code
    assert refused.value.response["Error"]["Message"] == "no"
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == status


def test_a_throttled_call_is_repeated_by_the_client_itself(server: Server) -> None:
    server.sim.fail_next("DescribeInstances", "RequestLimitExceeded", times=2, status=503)
    assert client(server.address, "ec2", attempts=3).describe_instances()["Reservations"] == []


def test_the_date_is_the_regions(server: Server) -> None:
    server.sim.kernel.skew_s = 3600.0
    answer = client(server.address, "ec2").describe_instances()
    date = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
    assert 3590.0 < date.timestamp() - SystemClock().now_s() < 3610.0


def test_a_long_poll_is_woken_by_a_message(server: Server) -> None:
    sqs = client(server.address, "sqs")
    url = sqs.create_queue(QueueName="q")["QueueUrl"]
    sender = threading.Timer(0.2, lambda: client(server.address, "sqs").send_message(QueueUrl=url, MessageBody="x"))
    sender.start()
    assert len(sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]) == 1
    sender.join()


def test_a_slow_answer_holds_nobody_else_up(server: Server) -> None:
    clients = [client(server.address, "ec2") for _ in range(2)]  # it takes a busy machine seconds to make one
    server.sim.slow_next("DescribeInstanceStatus", 2.0)
    slow = threading.Thread(target=clients[0].describe_instance_status)
    slow.start()
    clients[1].describe_instances()
    assert slow.is_alive()
    slow.join()


def test_fate_is_at_hand_over_http(server: Server) -> None:
    [members] = [one["InstanceIds"] for one in launch(server, 3)["Instances"]]
    sqs = client(server.address, "sqs")
    url = sqs.create_queue(QueueName="events")["QueueUrl"]
    post(server.address, "subscribe", {"queue": "events", "kinds": ["EC2 Spot Instance Interruption Warning"]})
    [victim] = post(server.address, "reclaim", {"number": 1})["done"]
    [message] = sqs.receive_message(QueueUrl=url)["Messages"]
    assert json.loads(message["Body"])["detail"]["instance-id"] == victim
    shown = {one["instance_id"]: one["noticed_at_s"] for one in get(server.address, "instances")}
    assert shown.keys() == set(members)
    assert [instance_id for instance_id, at_s in shown.items() if at_s is not None] == [victim]
    full = {"instance_type": "p5.48xlarge", "zone": "us-east-1a", "market": "spot", "instances": 0}
    post(server.address, "capacity", full)
    assert launch(server, 1, "t-2")["Instances"] == []
    post(server.address, "fail", {"ids": [victim]})
    assert [(one["instance_id"], one["by"]) for one in get(server.address, "ended")] == [(victim, "failed")]
    assert {call["operation"] for call in get(server.address, "log")} >= {"LaunchInstances", "ReceiveMessage"}


def test_what_fate_does_not_know_is_a_bad_request(server: Server) -> None:
    for path, body in (("reclaim", {"nonsense": 1}), ("fail", {"ids": ["i-none"]})):
        with pytest.raises(HTTPError) as refused:
            post(server.address, path, body)
        assert refused.value.code == 400
        refused.value.close()


def test_what_is_not_signed_for_a_service_of_ours_is_not_found(server: Server) -> None:
    with pytest.raises(HTTPError) as refused:
        urlopen(server.address)
    assert refused.value.code == 404
    refused.value.close()


def test_as_a_process_it_tells_its_address_and_ends_when_told() -> None:
    root = Path(__file__).parents[2]
    settings = json.dumps({"zones": ["us-east-1a"], "launch_delay_s": [0.0, 0.1]})
    with subprocess.Popen(
        [sys.executable, "-m", "tests.simcloud", "--settings", settings],
        cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, stdout=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        address = json.loads(child.stdout.readline())["address"]
        zones = client(address, "ec2").describe_availability_zones()["AvailabilityZones"]
        assert [zone["ZoneName"] for zone in zones] == ["us-east-1a"]
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == 0


def test_five_hundred_instances_are_described_and_as_many_notices_received(server: Server) -> None:
    server.sim.groups.get("rollout").max_size = 500
    for n in range(5):
        launch(server, 100, f"t-{n}")
    sqs, ec2 = client(server.address, "sqs"), client(server.address, "ec2")
    url = sqs.create_queue(QueueName="events")["QueueUrl"]
    server.sim.bus.subscribe("events", frozenset({"EC2 Spot Instance Interruption Warning"}))
    reservations = ec2.describe_instances()["Reservations"]
    assert len({one["InstanceId"] for r in reservations for one in r["Instances"]}) == 500
    told = set(server.sim.fate.reclaim())
    seen: set[str] = set()
    end_s = time.monotonic() + 60.0
    while seen != told:
        assert time.monotonic() < end_s
        for message in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
            seen.add(json.loads(message["Body"])["detail"]["instance-id"])
