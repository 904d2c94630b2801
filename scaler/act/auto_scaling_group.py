"""Pool on a self-managed Auto Scaling group: an instance is an EC2 instance, a replica is k of them.

Policy (design sections 3 and 5b): up by relative launches with the token of the persisted intent; down only by naming the
instance, with decrement, once its worker has handed over and, where a Kubernetes object counts workers, its pod is gone.
Instances count by their lifecycle state. A group that could change its own size, or take instances by itself, is refused
with the remedy.

What is ours is known by tags (`scaler.act._ec2.members`), written when a launch has been answered; an instance without tags is
adopted under its own id. Detached instances, which EC2 is taking, are listed by their tags until they are gone.

Why nothing here kills what it should not: no write of ours lowers the desired capacity except together with the one named
instance (CA#9182, CA#144); the group's own scale-in finds every instance protected; a late or repeated launch is answered from
its token; a late or repeated end finds the instance gone.

Non-goals: raising the group's maximum, or repairing its settings: those are the operator's, and are asked for by name.
"""

from dataclasses import dataclass
from typing import Literal

from scaler.act._ec2.checks import refused
from scaler.act._ec2.place import open_place
from scaler.act._ec2.pool import GroupPool
from scaler.act._ec2.reading import Reading
from scaler.act._ec2.settings import GroupSettings, site_of
from scaler.model.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoScalingGroupSettings(GroupSettings):
    """What a pool on an Auto Scaling group needs to know."""

    group: str
    """Name of the group."""
    up: Literal["launch_instances", "set_desired_capacity"] = "launch_instances"


class AutoScalingGroupPool(GroupPool):
    """A `PoolActor` for provider `auto_scaling_group`; see the module's docstring."""

    def __init__(self, settings: AutoScalingGroupSettings, *, pool: str, clock: Clock) -> None:
        sync = settings.up == "launch_instances"
        place = settings.places.at(
            ("auto_scaling_group", settings.group),
            lambda: open_place(settings.aws, settings.group, clock=clock, sync=sync),
        )
        place.sync = sync

        async def judge(reading: Reading) -> str | None:
            return refused(reading, await place.around(reading), settings.offerings, sync=place.sync)

        super().__init__(site_of(settings, place, pool, judge), falls_back=False)


def make(settings: object, *, pool: str, clock: Clock) -> AutoScalingGroupPool:
    """The actor of a pool on an Auto Scaling group; `TypeError` where the settings are another provider's."""
    if not isinstance(settings, AutoScalingGroupSettings):
        kind = type(settings).__name__
        raise TypeError(f"pool {pool}: an Auto Scaling group takes AutoScalingGroupSettings, not {kind}")
    return AutoScalingGroupPool(settings, pool=pool, clock=clock)
