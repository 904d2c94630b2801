"""The controller's IAM policy: what the code calls and nothing else, bound as far as IAM binds it."""

import fnmatch
import json
import re
from importlib.resources import files
from typing import Any

import boto3
import pytest
from moto import mock_aws

from scaler.act import release_instances
from tests.deploy.iam import FILLED_IN, POLICY, SERVICES, allowed, filled_in, named_in_code, statements

_READING = re.compile(r":(Describe|Get|List|Receive)")
REFERENCE: dict[str, Any] = json.loads(files("cfnlint").joinpath("data/AdditionalSpecs/Policies.json").read_text())
"""AWS's service authorization reference, as cfn-lint carries it."""


def test_the_policy_allows_what_the_code_calls_and_nothing_else() -> None:
    assert allowed() == named_in_code()


def test_a_name_that_a_helper_is_given_is_found_too() -> None:
    assert "autoscaling:DescribeInstanceRefreshes" in named_in_code()
    assert "autoscaling:DeleteTags" not in named_in_code()


def test_every_word_to_be_filled_in_is_known() -> None:
    words = set(re.findall(r"[A-Z][A-Z_]{5,}", POLICY.read_text()))
    assert words == set(FILLED_IN)
    assert not re.search(r"[A-Z]{5}_", filled_in())


@mock_aws
def test_iam_takes_it() -> None:
    iam = boto3.client("iam", region_name="us-east-1")
    assert iam.create_policy(PolicyName="headrace", PolicyDocument=filled_in())["Policy"]["PolicyName"] == "headrace"


@pytest.mark.parametrize("statement", statements(), ids=lambda each: str(each["Sid"]))
def test_a_statement_names_resources_and_conditions_that_its_actions_have(statement: dict[str, Any]) -> None:
    for action in statement["Action"]:
        service, _, name = action.partition(":")
        assert service in SERVICES
        kinds = [kind.lower() for kind in REFERENCE[service]["Actions"][name.lower()].get("Resources", ())]
        if not kinds or statement["Resource"] == "*":
            assert statement["Resource"] == "*", f"{action} cannot be bound to a resource"
            continue
        resources = [REFERENCE[service]["Resources"][kind] for kind in kinds]
        fitting = [each for each in resources if _is_one(statement["Resource"], each["ARNFormats"])]
        assert fitting, f"{action} has no such resource"
        known = {key for each in fitting for key in each.get("ConditionKeys", ())}
        assert all(any(_is_key(key, form) for form in known) for key in _keys(statement)), action


def test_whatever_changes_something_is_bound_to_what_is_ours() -> None:
    for statement in statements():
        changing = [action for action in statement["Action"] if not _READING.search(action)]
        if changing:
            assert statement["Resource"] != "*", changing
            assert statement["Resource"].startswith("arn:aws:sqs:") or "Condition" in statement, changing


def test_only_our_own_tags_can_be_written() -> None:
    tagging = [each for each in statements() if "ec2:CreateTags" in each["Action"]]
    assert tagging
    for each in tagging:
        keys = each["Condition"]["ForAllValues:StringEquals"]["aws:TagKeys"]
        assert sorted(keys) == sorted(release_instances.OURS)


def _keys(statement: dict[str, Any]) -> set[str]:
    return {key for operator in statement.get("Condition", {}).values() for key in operator}


def _is_key(key: str, form: str) -> bool:
    return fnmatch.fnmatch(key.lower(), re.sub(r"\$\{[^}]*\}", "*", form).lower())


def _is_one(resource: str, formats: list[str]) -> bool:
    return any(re.fullmatch(re.sub(r"\$\{[^}]*\}", "[^:]*", form), resource) for form in formats)
