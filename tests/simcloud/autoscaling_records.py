"""Auto Scaling's calls about what else belongs to a group: hooks, policies, scheduled actions, warm pool, refreshes.

Policies, scheduled actions, warm pools and refreshes are records only: they are to be seen, and do nothing.
"""

from tests.simcloud.asked import Asked, Json, page
from tests.simcloud.autoscaling_groups import uncontended
from tests.simcloud.bus import Bus
from tests.simcloud.errors import CloudError
from tests.simcloud.groups import LAUNCHING, TERMINATING, Group, Groups, Hook
from tests.simcloud.kernel import Kernel
from tests.simcloud.notifications import test_notification
from tests.simcloud.settings import Settings

_SHORTEST_HOOK_S, _LONGEST_HOOK_S = 30, 7200


class AutoScalingRecords:
    """See the module's docstring."""

    def __init__(self, kernel: Kernel, settings: Settings, groups: Groups, bus: Bus) -> None:
        self._kernel = kernel
        self._settings = settings
        self._groups = groups
        self._bus = bus

    def _group(self, asked: Asked) -> Group:
        return uncontended(self._groups.get(asked.p["AutoScalingGroupName"]), self._kernel.now_s())

    def put_lifecycle_hook(self, asked: Asked) -> Json:
        """A notification target is sent a test message when it is set."""
        group, name = self._group(asked), asked.p["LifecycleHookName"]
        known = group.hooks.get(name)
        transition = asked.p.get("LifecycleTransition", known.transition if known else "")
        if transition not in {LAUNCHING, TERMINATING}:
            raise CloudError("ValidationError", "LifecycleTransition is required for new lifecycle hooks.")
        hook = known or Hook(name=name, transition=transition)
        _update(hook, asked)
        group.hooks[name] = hook
        if asked.p.get("NotificationTargetARN"):
            self._bus.deliver(queue_name(hook.target_arn), test_notification(self._kernel, self._settings, group, hook))
        return {}

    def delete_lifecycle_hook(self, asked: Asked) -> Json:
        group, name = self._group(asked), asked.p["LifecycleHookName"]
        if group.hooks.pop(name, None) is None:
            raise CloudError("ValidationError", f"No Lifecycle Hook found with name {name}")
        return {}

    def describe_lifecycle_hooks(self, asked: Asked) -> Json:
        names, group = asked.p.get("LifecycleHookNames"), self._group(asked)
        found = [_hook_view(group, hook) for name, hook in group.hooks.items() if not names or name in names]
        return {"LifecycleHooks": found}

    def put_scaling_policy(self, asked: Asked) -> Json:
        group = self._group(asked)
        arn = f"{group.arn}:policyName/{asked.p['PolicyName']}"
        group.policies[asked.p["PolicyName"]] = {
            **asked.p,
            "PolicyARN": arn,
            "Enabled": asked.p.get("Enabled", True),
            "Alarms": [],
        }
        return {"PolicyARN": arn, "Alarms": []}

    def delete_policy(self, asked: Asked) -> Json:
        self._group(asked).policies.pop(asked.p["PolicyName"], None)
        return {}

    def describe_policies(self, asked: Asked) -> Json:
        found = [one for group in self._chosen(asked) for one in group.policies.values()]
        shown, token = page(found, asked.p.get("NextToken"), asked.p.get("MaxRecords", 50))
        return {"ScalingPolicies": shown, "NextToken": token}

    def _chosen(self, asked: Asked) -> list[Group]:
        name = asked.p.get("AutoScalingGroupName")
        return [self._groups.get(name)] if name else list(self._groups.by_name.values())

    def put_scheduled_update_group_action(self, asked: Asked) -> Json:
        group = self._group(asked)
        group.scheduled[asked.p["ScheduledActionName"]] = dict(asked.p)
        return {}

    def delete_scheduled_action(self, asked: Asked) -> Json:
        self._group(asked).scheduled.pop(asked.p["ScheduledActionName"], None)
        return {}

    def describe_scheduled_actions(self, asked: Asked) -> Json:
        found = [one for group in self._chosen(asked) for one in group.scheduled.values()]
        shown, token = page(found, asked.p.get("NextToken"), asked.p.get("MaxRecords", 50))
        return {"ScheduledUpdateGroupActions": shown, "NextToken": token}

    def put_warm_pool(self, asked: Asked) -> Json:
        names = ("MaxGroupPreparedCapacity", "MinSize", "PoolState", "InstanceReusePolicy")
        self._group(asked).warm_pool = {name: asked.p[name] for name in names if name in asked.p}
        return {}

    def delete_warm_pool(self, asked: Asked) -> Json:
        self._group(asked).warm_pool = None
        return {}

    def describe_warm_pool(self, asked: Asked) -> Json:
        pool = self._group(asked).warm_pool
        return {"Instances": []} | ({} if pool is None else {"WarmPoolConfiguration": pool})

    def start_instance_refresh(self, asked: Asked) -> Json:
        group = self._group(asked)
        if any(one["Status"] in {"Pending", "InProgress"} for one in group.refreshes):
            raise CloudError(
                "InstanceRefreshInProgress",
                "An Instance Refresh is already in progress and blocks the execution of this Instance Refresh.",
            )
        made: Json = {
            "InstanceRefreshId": self._kernel.uuid(),
            "AutoScalingGroupName": group.name,
            "Status": "InProgress",
            "StartTime": self._kernel.date(),
            "PercentageComplete": 0,
            "InstancesToUpdate": len(group.members),
        }
        group.refreshes.insert(0, made)
        return {"InstanceRefreshId": made["InstanceRefreshId"]}

    def cancel_instance_refresh(self, asked: Asked) -> Json:
        for one in self._group(asked).refreshes:
            if one["Status"] in {"Pending", "InProgress"}:
                one |= {"Status": "Cancelled", "EndTime": self._kernel.date()}
                return {"InstanceRefreshId": one["InstanceRefreshId"]}
        raise CloudError(
            "ActiveInstanceRefreshNotFound", "No in progress or pending Instance Refresh found for Auto Scaling group."
        )

    def describe_instance_refreshes(self, asked: Asked) -> Json:
        shown, token = page(self._group(asked).refreshes, asked.p.get("NextToken"), asked.p.get("MaxRecords", 50))
        return {"InstanceRefreshes": shown, "NextToken": token}


def queue_name(arn: str) -> str:
    """The queue of a target ARN."""
    return arn.rsplit(":", 1)[-1]


def _update(hook: Hook, asked: Asked) -> None:
    timeout_s = asked.p.get("HeartbeatTimeout", hook.timeout_s)
    if not _SHORTEST_HOOK_S <= timeout_s <= _LONGEST_HOOK_S:
        raise CloudError(
            "ValidationError", f"Heartbeat timeout must be between {_SHORTEST_HOOK_S} and {_LONGEST_HOOK_S} seconds."
        )
    hook.timeout_s = timeout_s
    hook.default_result = asked.p.get("DefaultResult", hook.default_result)
    hook.metadata = asked.p.get("NotificationMetadata", hook.metadata)
    hook.target_arn = asked.p.get("NotificationTargetARN", hook.target_arn)
    hook.role_arn = asked.p.get("RoleARN", hook.role_arn)


def _hook_view(group: Group, hook: Hook) -> Json:
    view: Json = {
        "LifecycleHookName": hook.name,
        "AutoScalingGroupName": group.name,
        "LifecycleTransition": hook.transition,
        "HeartbeatTimeout": hook.timeout_s,
        "GlobalTimeout": min(172_800, 100 * hook.timeout_s),
        "DefaultResult": hook.default_result,
    }
    optional = {
        "NotificationTargetARN": hook.target_arn,
        "RoleARN": hook.role_arn,
        "NotificationMetadata": hook.metadata,
    }
    return view | {name: value for name, value in optional.items() if value}
