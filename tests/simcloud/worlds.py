"""A SimCloud on a clock that stands still, in process."""

from typing import Any

from tests.builders.clock import FakeClock
from tests.simcloud.asked import Json
from tests.simcloud.helpers import described, in_service, make_group
from tests.simcloud.settings import Settings
from tests.simcloud.sim import SimCloud

_STEP_S = 0.5


class World:
    """The cloud, its clock, and a group `rollout` in it."""

    def __init__(self, *, settings: Settings | None = None, seed: int = 1, **group: Any) -> None:
        self.clock = FakeClock(1_790_000_000.0)
        self.sim = SimCloud(self.clock, seed, settings)
        make_group(self.sim, **group)
        self.settle()

    def settle(self) -> None:
        """Long enough for everything that is under way, and shorter than any notice."""
        self.wait(60.0)

    def wait(self, seconds: float) -> None:
        """Time passes, and somebody looks all the while."""
        for _ in range(round(seconds / _STEP_S)):
            self.clock.pass_time(_STEP_S)
            self.sim.advance()

    def scaling(self, operation: str, **parameters: Any) -> Json:
        """An Auto Scaling call about the group."""
        return self.sim.call("autoscaling", operation, AutoScalingGroupName="rollout", **parameters)

    def launch(self, number: int, token: str = "t-1", **more: Any) -> Json:
        """LaunchInstances."""
        return self.scaling("LaunchInstances", RequestedCapacity=number, ClientToken=token, **more)

    def end(self, *ids: str, decrement: bool = True) -> Json:
        """TerminateInstanceInAutoScalingGroup, each in a call of its own; the last answer."""
        answer: Json = {}
        for one in ids:
            answer = self.sim.call(
                "autoscaling",
                "TerminateInstanceInAutoScalingGroup",
                InstanceId=one,
                ShouldDecrementDesiredCapacity=decrement,
            )
        return answer

    @property
    def group(self) -> Json:
        """As described."""
        return described(self.sim)

    @property
    def desired(self) -> int:
        """Of the group."""
        return int(self.group["DesiredCapacity"])

    @property
    def members(self) -> list[str]:
        """Ids in service."""
        return in_service(self.sim)

    def lifecycle(self, instance_id: str) -> str:
        """Of a member; empty: none."""
        states = {one["InstanceId"]: one["LifecycleState"] for one in self.group["Instances"]}
        return str(states.get(instance_id, ""))

    def activities(self) -> list[Json]:
        """Newest first."""
        found: list[Json] = self.scaling("DescribeScalingActivities")["Activities"]
        return found

    def state(self, instance_id: str) -> str:
        """Of an instance, as EC2 describes it."""
        found = self.sim.call("ec2", "DescribeInstances", InstanceIds=[instance_id])
        return str(found["Reservations"][0]["Instances"][0]["State"]["Name"])

    def how(self, instance_id: str) -> str:
        """What ended it."""
        [found] = self.sim.ended([instance_id])
        return found.by.value
