"""EKS's calls about managed node groups, each of which is an Auto Scaling group, and what EKS does about its hooks.

Sources: EKS API reference; EKS user guide, "Managed node groups": Spot groups have Capacity Rebalancing on; a lowered desired
size goes straight to the group, whose victims are its own choice; while an update runs, another is refused; nodes are drained
"during terminations or updates", and let go after 15 minutes at the latest; a node is replaced once the replacement is Ready.
Both of the group's hooks, their names, 1800 s and CONTINUE are as such groups show them when they are described (exports of
them by Terraform, runbooks that complete `Terminate-LC-Hook` by hand). Assumed: that the launch hook is what waits for Ready.
"""

from dataclasses import dataclass, field

from tests.simcloud.asked import Asked, Json, page
from tests.simcloud.catalogue import subnet_of
from tests.simcloud.ec2_facts import Templates
from tests.simcloud.errors import CloudError
from tests.simcloud.groups import LAUNCHING, TERMINATING, Group, Groups, Hook, Member, Wait
from tests.simcloud.hooks import HookWaits
from tests.simcloud.keeper import Keeper
from tests.simcloud.kernel import Kernel, as_date
from tests.simcloud.settings import Settings, draw

HOOKS = {"Launch-LC-Hook": LAUNCHING, "Terminate-LC-Hook": TERMINATING}
"""What every managed group has: name -> transition."""
_HOOK_S = 1800


@dataclass(slots=True, kw_only=True)
class NodeGroup:
    """A managed node group."""

    cluster: str
    name: str
    arn: str
    group: Group
    capacity_type: str
    instance_types: tuple[str, ...]
    labels: dict[str, str]
    taints: list[Json]
    tags: dict[str, str]
    created_at_s: float
    status: str = "ACTIVE"
    modified_at_s: float = 0.0
    issues: list[Json] = field(default_factory=list)
    updates: dict[str, Json] = field(default_factory=dict)


class Eks:
    """See the module's docstring."""

    def __init__(
        self,
        kernel: Kernel,
        settings: Settings,
        groups: Groups,
        keeper: Keeper,
        templates: Templates,
        hooks: HookWaits,
    ) -> None:
        self._kernel = kernel
        self._settings = settings
        self._groups = groups
        self._keeper = keeper
        self._templates = templates
        self._hooks = hooks
        self.by_name: dict[tuple[str, str], NodeGroup] = {}

    def _get(self, asked: Asked) -> NodeGroup:
        name = asked.p["nodegroupName"]
        found = self.by_name.get((asked.p["clusterName"], name))
        if found is None:
            raise CloudError("ResourceNotFoundException", f"No node group found for name: {name}.", status=404)
        return found

    def create_nodegroup(self, asked: Asked) -> Json:
        cluster, name = asked.p["clusterName"], asked.p["nodegroupName"]
        if (cluster, name) in self.by_name:
            message = f"NodeGroup already exists with name {name} and cluster name {cluster}"
            raise CloudError("ResourceInUseException", message, status=409)
        types = tuple(asked.p.get("instanceTypes") or self._settings.instance_types[:1])
        capacity_type = asked.p.get("capacityType", "ON_DEMAND")
        group = self._make_group(cluster, name, types, capacity_type, asked)
        region, account = self._settings.region, self._settings.account
        made = NodeGroup(
            cluster=cluster,
            name=name,
            arn=f"arn:aws:eks:{region}:{account}:nodegroup/{cluster}/{name}/{self._kernel.uuid()}",
            group=group,
            capacity_type=capacity_type,
            instance_types=types,
            labels=dict(asked.p.get("labels", {})),
            taints=list(asked.p.get("taints", [])),
            tags=dict(asked.p.get("tags", {})),
            created_at_s=self._kernel.now_s(),
            modified_at_s=self._kernel.now_s(),
        )
        self.by_name[cluster, name] = made
        return {"nodegroup": self._view(made)}

    def _make_group(self, cluster: str, name: str, types: tuple[str, ...], capacity_type: str, asked: Asked) -> Group:
        spot = capacity_type == "SPOT"
        template = self._templates.make(f"eks-{self._kernel.uuid()}", {"InstanceType": types[0]})
        sizes = asked.p.get("scalingConfig", {"minSize": 1, "maxSize": 2, "desiredSize": 2})
        group_name = f"eks-{name}-{self._kernel.uuid()}"
        region, account = self._settings.region, self._settings.account
        group = Group(
            name=group_name,
            arn=f"arn:aws:autoscaling:{region}:{account}:autoScalingGroup:{self._kernel.uuid()}:autoScalingGroupName/{group_name}",
            zones=self._zones(asked),
            template=None,
            mixed=_mixed(template.template_id, types, spot=spot),
            min_size=sizes["minSize"],
            max_size=sizes["maxSize"],
            desired=sizes["desiredSize"],
            created_at_s=self._kernel.now_s(),
            capacity_rebalance=spot,
            managed={"cluster": cluster, "nodegroup": name},
            tags=_group_tags(cluster, name),
            hooks=_own_hooks(region, account),
        )
        self._groups.by_name[group_name] = group
        self._keeper.touch(group)
        return group

    def told(self, group: Group, member: Member, wait: Wait) -> None:
        """A hook waits: of its own groups EKS drains what goes, and lets everything through in its time."""
        if group.managed is None or wait.hook.name not in HOOKS:
            return
        if wait.hook.transition == LAUNCHING:
            delay_s = draw(self._kernel, self._settings.eks_join_delay_s)
        else:
            member.instance.eks_draining = True
            delay_s = self._settings.eks_drain_s
        self._kernel.after(delay_s, lambda: self._let_through(member, wait))

    def emptied(self, instance_id: str) -> None:
        """No pod that EKS waits for is left on the node of an instance that it drains."""
        with self._kernel.lock:
            for group in self._groups.by_name.values():
                member = group.members.get(instance_id)
                wait = member.waits.get("Terminate-LC-Hook") if member else None
                if member is not None and wait is not None:
                    self._let_through(member, wait)

    def _let_through(self, member: Member, wait: Wait) -> None:
        if member.waits.get(wait.hook.name) is wait:
            self._hooks.complete(member, wait.hook.name, wait.token, "CONTINUE")

    def _zones(self, asked: Asked) -> tuple[str, ...]:
        of_subnet = {subnet_of(zone): zone for zone in self._settings.zones}
        return tuple(of_subnet[one] for one in asked.p.get("subnets", []) if one in of_subnet) or self._settings.zones

    def list_nodegroups(self, asked: Asked) -> Json:
        names = [name for cluster, name in self.by_name if cluster == asked.p["clusterName"]]
        shown, token = page(names, asked.p.get("nextToken"), asked.p.get("maxResults"))
        return {"nodegroups": shown, "nextToken": token}

    def describe_nodegroup(self, asked: Asked) -> Json:
        return {"nodegroup": self._view(self._get(asked))}

    def delete_nodegroup(self, asked: Asked) -> Json:
        one = self._get(asked)
        one.status = "DELETING"
        self._size(one, {"minSize": 0, "desiredSize": 0}, asked.caller)
        return {"nodegroup": self._view(self.by_name.pop((one.cluster, one.name)))}

    def update_nodegroup_config(self, asked: Asked) -> Json:
        one = self._get(asked)
        if one.status != "ACTIVE":
            message = f"Nodegroup cannot be updated as it is currently not in Active State: {one.status}"
            raise CloudError("ResourceInUseException", message, status=409)
        sizes = asked.p.get("scalingConfig", {})
        _check_sizes(one, sizes)
        self._relabel(one, asked)
        update = self._begin_update(one, sizes)
        self._size(one, sizes, asked.caller)
        return {"update": update}

    def _begin_update(self, one: NodeGroup, sizes: Json) -> Json:
        params = [{"type": key[0].upper() + key[1:], "value": str(value)} for key, value in sizes.items()]
        update: Json = {
            "id": self._kernel.uuid(),
            "status": "InProgress",
            "type": "ConfigUpdate",
            "params": params,
            "createdAt": self._kernel.date(),
            "errors": [],
        }
        one.updates[update["id"]] = update
        one.status, one.modified_at_s = "UPDATING", self._kernel.now_s()
        self._kernel.after(draw(self._kernel, self._settings.eks_update_delay_s), lambda: self._updated(one, update))
        return dict(update)

    def _updated(self, one: NodeGroup, update: Json) -> None:
        update["status"] = "Successful"
        if one.status == "UPDATING":
            one.status = "ACTIVE"

    def _size(self, one: NodeGroup, sizes: Json, caller: str) -> None:
        group, before = one.group, one.group.desired
        group.min_size = sizes.get("minSize", group.min_size)
        group.max_size = sizes.get("maxSize", group.max_size)
        group.desired = sizes.get("desiredSize", min(max(group.desired, group.min_size), group.max_size))
        group.changed_by = caller
        group.why = group.resized(before, self._kernel.now_s())
        self._keeper.touch(group)

    def _relabel(self, one: NodeGroup, asked: Asked) -> None:
        labels, taints = asked.p.get("labels", {}), asked.p.get("taints", {})
        one.labels.update(labels.get("addOrUpdateLabels", {}))
        for key in labels.get("removeLabels", []):
            one.labels.pop(key, None)
        changed = {taint["key"] for taint in taints.get("addOrUpdateTaints", []) + taints.get("removeTaints", [])}
        one.taints = [taint for taint in one.taints if taint["key"] not in changed]
        one.taints += taints.get("addOrUpdateTaints", [])

    def describe_update(self, asked: Asked) -> Json:
        name, update_id = asked.p["name"], asked.p["updateId"]
        one = self.by_name.get((name, asked.p.get("nodegroupName", "")))
        if one is None or update_id not in one.updates:
            raise CloudError("ResourceNotFoundException", f"No update found for ID: {update_id}", status=404)
        return {"update": one.updates[update_id]}

    def create_cluster(self, asked: Asked) -> Json:
        """Any name is a cluster already."""
        return self.describe_cluster(asked)

    def describe_cluster(self, asked: Asked) -> Json:
        name = asked.p["name"]
        arn = f"arn:aws:eks:{self._settings.region}:{self._settings.account}:cluster/{name}"
        return {"cluster": {"name": name, "arn": arn, "status": "ACTIVE", "version": "1.33"}}

    def _view(self, one: NodeGroup) -> Json:
        group = one.group
        return {
            "nodegroupName": one.name,
            "nodegroupArn": one.arn,
            "clusterName": one.cluster,
            "version": "1.33",
            "createdAt": as_date(one.created_at_s),
            "modifiedAt": as_date(one.modified_at_s),
            "status": one.status,
            "capacityType": one.capacity_type,
            "scalingConfig": {"minSize": group.min_size, "maxSize": group.max_size, "desiredSize": group.desired},
            "instanceTypes": list(one.instance_types),
            "subnets": [subnet_of(zone) for zone in group.zones],
            "amiType": "AL2023_x86_64_NVIDIA",
            "nodeRole": f"arn:aws:iam::{self._settings.account}:role/node",
            "labels": dict(one.labels),
            "taints": list(one.taints),
            "resources": {"autoScalingGroups": [{"name": group.name}]},
            "health": {"issues": list(one.issues)},
            "updateConfig": {"maxUnavailable": 1},
            "tags": dict(one.tags),
        }


def _mixed(template_id: str, types: tuple[str, ...], *, spot: bool) -> Json:
    chosen = {"LaunchTemplateId": template_id, "Version": "1"}
    spread = {
        "OnDemandAllocationStrategy": "prioritized",
        "OnDemandBaseCapacity": 0,
        "OnDemandPercentageAboveBaseCapacity": 0 if spot else 100,
        "SpotAllocationStrategy": "price-capacity-optimized",
    }
    overrides = [{"InstanceType": one} for one in types]
    launch = {"LaunchTemplateSpecification": chosen, "Overrides": overrides}
    return {"LaunchTemplate": launch, "InstancesDistribution": spread}


def _own_hooks(region: str, account: str) -> dict[str, Hook]:
    topic = f"arn:aws:sns:{region}:{account}:eks-asg-lifecycle-hook-topic"
    return {
        name: Hook(name=name, transition=transition, timeout_s=_HOOK_S, default_result="CONTINUE", target_arn=topic)
        for name, transition in HOOKS.items()
    }


def _group_tags(cluster: str, name: str) -> list[Json]:
    tags = {
        f"kubernetes.io/cluster/{cluster}": "owned",
        "k8s.io/cluster-autoscaler/enabled": "true",
        f"k8s.io/cluster-autoscaler/{cluster}": "owned",
        "eks:cluster-name": cluster,
        "eks:nodegroup-name": name,
    }
    return [{"Key": key, "Value": value, "PropagateAtLaunch": True} for key, value in tags.items()]


def _check_sizes(one: NodeGroup, sizes: Json) -> None:
    low = sizes.get("minSize", one.group.min_size)
    high = sizes.get("maxSize", one.group.max_size)
    desired = sizes.get("desiredSize", min(max(one.group.desired, low), high))
    if low > high:
        raise CloudError(
            "InvalidParameterException", f"Minimum capacity {low} can't be greater than maximum size {high}"
        )
    if not low <= desired <= high:
        bound = f"minimum size {low}" if desired < low else f"maximum size {high}"
        raise CloudError("InvalidParameterException", f"desired capacity {desired} can't be outside of {bound}")
