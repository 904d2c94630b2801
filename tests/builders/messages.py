"""Messages as AWS sends them, one builder a kind: the samples of the documentation, with what a test cares about."""

import json
from collections.abc import Callable
from typing import Any

INSTANCE = "i-0b662ef9931388ba0"
OTHER = "i-0f00ba4f00ba4f00b"
EVENT_AT_S = 1_622_905_809.0
"""2021-06-05T15:10:09Z."""
SENT_AT_S = EVENT_AT_S + 1.0
EVENT_TIME = "2021-06-05T15:10:09Z"
RESERVATION = "cr-0123456789abcdef0"

Fields = dict[str, Any]


def envelope(kind: str, detail: Fields, *, source: str = "aws.ec2", resources: tuple[str, ...] = ()) -> Fields:
    """EventBridge's."""
    return {
        "version": "0",
        "id": "1e5527d7-bb36-4607-3370-4164db56a40e",
        "detail-type": kind,
        "source": source,
        "account": "123456789012",
        "time": EVENT_TIME,
        "region": "us-east-1",
        "resources": list(resources),
        "detail": detail,
    }


def arn(instance_id: str = INSTANCE) -> str:
    return f"arn:aws:ec2:us-east-1:123456789012:instance/{instance_id}"


def spot(instance_id: str = INSTANCE, action: str = "terminate") -> Fields:
    detail = {"instance-id": instance_id, "instance-action": action}
    return envelope("EC2 Spot Instance Interruption Warning", detail, resources=(arn(instance_id),))


def rebalance(instance_id: str = INSTANCE) -> Fields:
    detail = {"instance-id": instance_id}
    return envelope("EC2 Instance Rebalance Recommendation", detail, resources=(arn(instance_id),))


def state_change(instance_id: str = INSTANCE, state: str = "shutting-down") -> Fields:
    detail = {"instance-id": instance_id, "state": state}
    return envelope("EC2 Instance State-change Notification", detail, resources=(arn(instance_id),))


def health(*instance_ids: str, start: object = "Sat, 05 Jun 2021 18:00:00 GMT") -> Fields:
    named = instance_ids or (INSTANCE,)
    detail = {
        "eventArn": "arn:aws:health:us-east-1::event/EC2/AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED/x",
        "service": "EC2",
        "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
        "eventTypeCategory": "scheduledChange",
        "eventScopeCode": "ACCOUNT_SPECIFIC",
        "communicationId": "1234abc01232a4012345678-1",
        "startTime": start,
        "endTime": "",
        "lastUpdatedTime": "Sat, 05 Jun 2021 15:10:09 GMT",
        "statusCode": "upcoming",
        "eventRegion": "us-east-1",
        "eventDescription": [{"language": "en_US", "latestDescription": "degraded hardware"}],
        "affectedEntities": [{"entityValue": each, "tags": {}} for each in named],
        "page": "1",
        "totalPages": "1",
        "affectedAccount": "123456789012",
    }
    return envelope("AWS Health Event", detail, source="aws.health", resources=named)


def reservation(instance_id: str = INSTANCE, ends: object = "2021-06-05T15:12:09Z") -> Fields:
    detail = {
        "instance-id": instance_id,
        "instance-action": "terminate",
        "instance-termination-time": ends,
        "azId": "use1-az1",
    }
    kind = "EC2 Capacity Reservation Instance Interruption Warning"
    return envelope(kind, detail, resources=(arn(instance_id),))


def capacity_block(end: object = "2021-06-05T15:50:09Z", kind: str = "Capacity Block Expiration Warning") -> Fields:
    detail = {"capacity-reservation-id": RESERVATION, "end-date": end}
    where = f"arn:aws:ec2:us-east-1:123456789012:capacity-reservation/{RESERVATION}"
    return envelope(kind, detail, resources=(where,))


def hook_detail(instance_id: str = INSTANCE, transition: str = "autoscaling:EC2_INSTANCE_TERMINATING") -> Fields:
    return {
        "LifecycleActionToken": "630aa23f-48eb-45e7-aba6-799ea6093a0f",
        "AutoScalingGroupName": "rollout-a",
        "LifecycleHookName": "headrace",
        "EC2InstanceId": instance_id,
        "LifecycleTransition": transition,
        "Origin": "AutoScalingGroup",
        "Destination": "EC2",
    }


def lifecycle(instance_id: str = INSTANCE) -> Fields:
    group = "arn:aws:autoscaling:us-east-1:123456789012:autoScalingGroup:x:autoScalingGroupName/rollout-a"
    kind = "EC2 Instance-terminate Lifecycle Action"
    return envelope(kind, hook_detail(instance_id), source="aws.autoscaling", resources=(group,))


def launch_lifecycle(instance_id: str = INSTANCE) -> Fields:
    detail = hook_detail(instance_id, "autoscaling:EC2_INSTANCE_LAUNCHING")
    return envelope("EC2 Instance-launch Lifecycle Action", detail, source="aws.autoscaling")


def lifecycle_direct(instance_id: str = INSTANCE) -> Fields:
    """As a hook with a notification target sends it."""
    rest = {"Service": "AWS Auto Scaling", "Time": EVENT_TIME, "RequestId": "r", "AccountId": "123456789012"}
    return hook_detail(instance_id) | rest


def by_sns(inner: Fields) -> Fields:
    return {"Type": "Notification", "MessageId": "m", "TopicArn": "arn:aws:sns:x", "Message": json.dumps(inner)}


def hook_test() -> Fields:
    return {
        "AccountId": "123456789012",
        "RequestId": "r",
        "AutoScalingGroupName": "rollout-a",
        "Service": "AWS Auto Scaling",
        "Event": "autoscaling:TEST_NOTIFICATION",
        "Time": EVENT_TIME,
    }


def scaling_result(kind: str = "EC2 Instance Terminate Unsuccessful") -> Fields:
    detail = {"StatusCode": "Failed", "AutoScalingGroupName": "rollout-a", "EC2InstanceId": INSTANCE, "Details": {}}
    return envelope(kind, detail, source="aws.autoscaling")


SAMPLES: dict[str, Callable[[], Fields]] = {
    "spot": spot,
    "rebalance": rebalance,
    "state change": state_change,
    "health": health,
    "reservation": reservation,
    "capacity block": capacity_block,
    "lifecycle": lifecycle,
    "lifecycle direct": lifecycle_direct,
    "lifecycle by SNS": lambda: by_sns(lifecycle_direct()),
    "launch": launch_lifecycle,
    "test": hook_test,
    "result": scaling_result,
}


def body(fields: Fields) -> str:
    return json.dumps(fields)
