"""How a group gets an instance: which type and market, with which tags, and its way into service.

Source: Auto Scaling user guide, "Auto Scaling groups with multiple instance types and purchase options": the on-demand share
above the base is rounded up; Spot goes to the cheapest override that has capacity (lowest-price, price-capacity-optimized),
on-demand and prioritised strategies go by the order of overrides.
"""

import math
from dataclasses import replace

from tests.simcloud.activities import Activities
from tests.simcloud.ec2_facts import Templates
from tests.simcloud.errors import CloudError
from tests.simcloud.groups import IN_SERVICE, Group, Member
from tests.simcloud.instances import Instance, Instances, LaunchSpec
from tests.simcloud.kernel import Kernel
from tests.simcloud.market import ON_DEMAND, SPOT, Market, Refusal


class Starter:
    """See the module's docstring."""

    def __init__(
        self,
        kernel: Kernel,
        market: Market,
        instances: Instances,
        templates: Templates,
        activities: Activities,
    ) -> None:
        self._kernel = kernel
        self._market = market
        self._instances = instances
        self._templates = templates
        self._activities = activities

    def specs(self, group: Group, zone: str) -> list[LaunchSpec]:
        """What may be launched, best first."""
        try:
            specs = [self._templates.spec(chosen, override) for chosen, override in group.choices()]
        except CloudError as error:
            raise CloudError("ValidationError", error.message) from error
        share = group.on_demand_share()
        if share is None:
            return specs
        market = _market(group, share)
        specs = [replace(spec, market=market) for spec in specs]
        return self._by_price(group, specs, zone) if market == SPOT else specs

    def _by_price(self, group: Group, specs: list[LaunchSpec], zone: str) -> list[LaunchSpec]:
        spread = (group.mixed or {}).get("InstancesDistribution", {})
        if spread.get("SpotAllocationStrategy", "lowest-price") == "capacity-optimized-prioritized":
            return specs
        return sorted(specs, key=lambda spec: self._market.price(spec.instance_type, zone))

    def launch(self, group: Group, zone: str, client_token: str = "") -> Member | tuple[LaunchSpec, Refusal]:
        """One instance in the zone; or the spec and the refusal of the last that was tried."""
        refused: tuple[LaunchSpec, Refusal] | None = None
        for spec in self.specs(group, zone):
            marked = replace(spec, tags=spec.tags | _group_tags(group), client_token=client_token)
            found = self._instances.launch(marked, zone)
            if isinstance(found, Instance):
                return self._join(group, found)
            refused = (spec, found)
        if refused is None:
            raise CloudError("ValidationError", "The group has no launch template")
        return refused

    def _join(self, group: Group, instance: Instance) -> Member:
        member = Member(instance=instance, protected=group.protected)
        instance.group, instance.protected = group.name, group.protected
        group.members[instance.instance_id] = member
        return member

    def serve(self, group: Group, member: Member) -> None:
        """It runs, and no hook waits any more: in service."""
        member.lifecycle = IN_SERVICE
        if member.activity is not None:
            self._activities.launched(group, member.activity, member.instance.instance_id)
            member.activity = None


def _market(group: Group, share: tuple[int, int]) -> str:
    base, percentage = share
    after = len(group.counted()) + 1
    wanted = min(after, base) + math.ceil(max(0, after - base) * percentage / 100)
    held = sum(member.instance.spec.market == ON_DEMAND for member in group.counted())
    return ON_DEMAND if held < wanted else SPOT


def _group_tags(group: Group) -> dict[str, str]:
    tags = {tag["Key"]: tag.get("Value", "") for tag in group.tags if tag.get("PropagateAtLaunch")}
    tags["aws:autoscaling:groupName"] = group.name
    if group.managed is not None:
        tags |= {"eks:cluster-name": group.managed["cluster"], "eks:nodegroup-name": group.managed["nodegroup"]}
    return tags
