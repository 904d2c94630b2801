"""Every test of this folder runs against SimCloud and against moto, over HTTP, through boto3."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.request import Request, urlopen

import pytest
from moto.server import ThreadedMotoServer

from scaler.runtime.clock import SystemClock
from tests.simcloud.helpers import client, quick
from tests.simcloud.server import serve
from tests.simcloud.sim import SimCloud

_PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True)
class Cloud:
    """A region behind an address."""

    address: str

    def __call__(self, service: str) -> Any:
        """A client."""
        return client(self.address, service)

    def template(self, name: str = "of-workers", instance_type: str = "p5.48xlarge") -> dict[str, str]:
        """A launch template, as a group names it."""
        data = {"InstanceType": instance_type, "ImageId": "ami-12c6146b"}
        made = self("ec2").create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)
        return {"LaunchTemplateId": made["LaunchTemplate"]["LaunchTemplateId"], "Version": "1"}

    def group(self, name: str = "workers", *, desired: int = 0, low: int = 0, high: int = 10, **more: Any) -> None:
        """A group of one zone, filled up to its desired capacity."""
        self("autoscaling").create_auto_scaling_group(
            AutoScalingGroupName=name,
            LaunchTemplate=self.template(f"of-{name}"),
            MinSize=low,
            MaxSize=high,
            DesiredCapacity=desired,
            AvailabilityZones=["us-east-1a"],
            **more,
        )
        self.until(lambda: len(self.in_service(name)) == desired)

    def described(self, name: str = "workers") -> dict[str, Any]:
        """The group."""
        groups = self("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
        found: dict[str, Any] = groups[0]
        return found

    def in_service(self, name: str = "workers") -> list[str]:
        """Ids of its members in service."""
        return [i["InstanceId"] for i in self.described(name)["Instances"] if i["LifecycleState"] == "InService"]

    def instance(self, instance_id: str) -> dict[str, Any]:
        """An instance."""
        reservations = self("ec2").describe_instances(InstanceIds=[instance_id])["Reservations"]
        found: dict[str, Any] = reservations[0]["Instances"][0]
        return found

    def until(self, true: Callable[[], bool]) -> None:
        """Wait for what comes by itself."""
        end_s = time.monotonic() + _PATIENCE_S
        while not true():
            assert time.monotonic() < end_s, "it did not come"
            time.sleep(0.02)


@pytest.fixture(scope="session")
def moto_address() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["simcloud", "moto"])
def cloud(request: pytest.FixtureRequest) -> Iterator[Cloud]:
    if request.param == "simcloud":
        with serve(SimCloud(SystemClock(), 1, quick())) as server:
            yield Cloud(server.address)
        return
    address = request.getfixturevalue("moto_address")
    with urlopen(Request(f"{address}/moto-api/reset", method="POST")):
        yield Cloud(address)
