"""The stack that brings notices: well-formed, deployable, and for exactly the kinds of messages that the controller acts upon."""

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
import yaml
from cfnlint import api as cfnlint
from moto import mock_aws

from scaler.interruptions.messages import uneventful
from scaler.interruptions.messages.table import KINDS
from tests.deploy.chart import ROOT
from tests.deploy.iam import FILLED_IN

TEMPLATE = ROOT / "deploy" / "eventbridge" / "notices.yaml"


class _Loose(yaml.SafeLoader):
    """Takes CloudFormation's short forms as they are."""


_Loose.add_multi_constructor("!", lambda loader, suffix, node: (suffix, node.value))


RESOURCES: dict[str, Any] = yaml.load(TEMPLATE.read_text(), Loader=_Loose)["Resources"]
UID = FILLED_IN["CLUSTER_UID"]
_LAUNCH_HOOK = ("aws.autoscaling", "EC2 Instance-launch Lifecycle Action")
"""Nothing follows from it: no rule, so no message to pay for."""
_FOURTEEN_DAYS_S = 14 * 24 * 3600


pytestmark = pytest.mark.filterwarnings("ignore:Tried to parse AWS..SQS..QueuePolicy")
"""moto makes everything of the stack but that."""


@pytest.fixture
def stack() -> Iterator[dict[str, str]]:
    """The stack on moto; its outputs."""
    with mock_aws():
        cloud = boto3.client("cloudformation", region_name="us-east-1")
        given = {"ClusterUid": UID, "LifecycleHooks": "yes"}
        cloud.create_stack(
            StackName="notices",
            TemplateBody=TEMPLATE.read_text(),
            Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in given.items()],
            Capabilities=["CAPABILITY_IAM"],
        )
        (found,) = cloud.describe_stacks(StackName="notices")["Stacks"]
        yield {each["OutputKey"]: each["OutputValue"] for each in found["Outputs"]}


def test_the_template_is_well_formed() -> None:
    found = cfnlint.lint_all(TEMPLATE.read_text())
    assert [str(each) for each in found if each.rule.severity != "informational"] == []


def test_the_queue_is_tagged_and_keeps_what_came_for_as_long_as_it_can(stack: dict[str, str]) -> None:
    sqs = boto3.client("sqs", region_name="us-east-1")
    for url in (stack["QueueUrl"], stack["DeadLetterUrl"]):
        assert sqs.list_queue_tags(QueueUrl=url)["Tags"]["headrace.dev/cluster"] == UID
        kept = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["MessageRetentionPeriod"])["Attributes"]
        assert int(kept["MessageRetentionPeriod"]) == _FOURTEEN_DAYS_S
    redrive = sqs.get_queue_attributes(QueueUrl=stack["QueueUrl"], AttributeNames=["RedrivePolicy"])["Attributes"]
    assert json.loads(redrive["RedrivePolicy"])["deadLetterTargetArn"] == stack["DeadLetterQueueArn"]


def test_every_rule_sends_to_the_queue_and_nobody_else_may(stack: dict[str, str]) -> None:
    events = boto3.client("events", region_name="us-east-1")
    rules = events.list_rules()["Rules"]
    for rule in rules:
        targets = events.list_targets_by_rule(Rule=rule["Name"])["Targets"]
        assert [each["Arn"] for each in targets] == [stack["QueueArn"]]
    statements = RESOURCES["QueuePolicy"]["Properties"]["PolicyDocument"]["Statement"]
    (allowing,) = [each for each in statements if each["Effect"] == "Allow"]
    named = {name for name, each in RESOURCES.items() if each["Type"] == "AWS::Events::Rule"}
    assert set(allowing["Condition"]["ArnEquals"]["aws:SourceArn"]) == {("GetAtt", f"{name}.Arn") for name in named}
    assert len(rules) == len(named)


def test_the_rules_are_for_the_kinds_that_something_follows_from(stack: dict[str, str]) -> None:
    events = boto3.client("events", region_name="us-east-1")
    patterns = [json.loads(rule["EventPattern"]) for rule in events.list_rules()["Rules"]]
    wanted = {(source, kind) for each in patterns for source in each["source"] for kind in each["detail-type"]}
    eventful = {kind for kind, parser in KINDS.items() if parser.__module__ != uneventful.__name__}
    assert wanted == eventful - {_LAUNCH_HOOK}


def test_a_hook_may_send_straight_to_the_queue_with_the_role(stack: dict[str, str]) -> None:
    assert stack["HookRoleArn"].startswith("arn:aws:iam::")
    (policy,) = RESOURCES["HookRole"]["Properties"]["Policies"]
    (statement,) = policy["PolicyDocument"]["Statement"]
    assert statement["Action"] == ["sqs:SendMessage", "sqs:GetQueueUrl"]
    assert statement["Resource"] == ("GetAtt", "Queue.Arn")


def test_without_hooks_there_is_no_role() -> None:
    assert RESOURCES["HookRole"]["Condition"] == "WithHooks"
