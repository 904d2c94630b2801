"""What a lifecycle hook tells, direct to its queue or through EventBridge. Source: Auto Scaling user guide, "EventBridge
event reference" and "Route notifications to Amazon SQS".
"""

import json

from tests.simcloud.asked import Json
from tests.simcloud.groups import LAUNCHING, Group, Hook, Member, Wait
from tests.simcloud.kernel import Kernel, as_date
from tests.simcloud.settings import Settings


def action_detail(group: Group, member: Member, wait: Wait) -> Json:
    """`detail` of a lifecycle action's event, and the fields of its direct notification."""
    launching = wait.hook.transition == LAUNCHING
    return {
        "LifecycleActionToken": wait.token,
        "AutoScalingGroupName": group.name,
        "LifecycleHookName": wait.hook.name,
        "EC2InstanceId": member.instance.instance_id,
        "LifecycleTransition": wait.hook.transition,
        "NotificationMetadata": wait.hook.metadata,
        "Origin": "EC2" if launching else "AutoScalingGroup",
        "Destination": "AutoScalingGroup" if launching else "EC2",
    }


def action_notification(kernel: Kernel, settings: Settings, detail: Json) -> str:
    """The body that a hook's own queue gets."""
    return json.dumps(_envelope(kernel, settings) | detail)


def test_notification(kernel: Kernel, settings: Settings, group: Group, hook: Hook) -> str:
    """The body that a hook's queue gets when the hook is made."""
    about = {
        "AutoScalingGroupName": group.name,
        "AutoScalingGroupARN": group.arn,
        "LifecycleHookName": hook.name,
        "Event": "autoscaling:TEST_NOTIFICATION",
    }
    return json.dumps(_envelope(kernel, settings) | about)


def through_sns(kernel: Kernel, topic_arn: str, body: str) -> str:
    """The same as a topic wraps it."""
    return json.dumps(
        {
            "Type": "Notification",
            "MessageId": kernel.uuid(),
            "TopicArn": topic_arn,
            "Subject": "Auto Scaling: Lifecycle action",
            "Message": body,
            "Timestamp": _millis(kernel.now_s()),
        }
    )


def _envelope(kernel: Kernel, settings: Settings) -> Json:
    return {
        "Service": "AWS Auto Scaling",
        "Time": _millis(kernel.now_s()),
        "RequestId": kernel.uuid(),
        "AccountId": settings.account,
    }


def _millis(at_s: float) -> str:
    return as_date(at_s).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
