from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.simcloud.contract.conftest import Cloud


def ids_of(reservations: list[dict[str, Any]]) -> set[str]:
    return {one["InstanceId"] for reservation in reservations for one in reservation["Instances"]}


def test_instances_are_found_by_tag_state_type_and_id(cloud: Cloud) -> None:
    cloud.group(desired=3)
    ec2, members = cloud("ec2"), cloud.in_service()
    ec2.create_tags(Resources=members[:1], Tags=[{"Key": "replica", "Value": "r-1"}])
    tables = [
        ([{"Name": "tag:replica", "Values": ["r-1"]}], set(members[:1])),
        ([{"Name": "tag:replica", "Values": ["r-2"]}], set()),
        ([{"Name": "tag-key", "Values": ["replica"]}], set(members[:1])),
        ([{"Name": "tag:aws:autoscaling:groupName", "Values": ["work*"]}], set(members)),
        ([{"Name": "instance-state-name", "Values": ["pending", "running"]}], set(members)),
        ([{"Name": "instance-state-name", "Values": ["terminated"]}], set()),
        ([{"Name": "instance-type", "Values": ["p5.48xlarge"]}], set(members)),
        ([{"Name": "instance-id", "Values": members[1:]}], set(members[1:])),
    ]
    for filters, expected in tables:
        assert ids_of(ec2.describe_instances(Filters=filters)["Reservations"]) == expected, filters


def test_the_pages_of_a_listing_hold_every_instance_once(cloud: Cloud) -> None:
    cloud.group(desired=8)
    pages = list(cloud("ec2").get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": 5}))
    found = [one["InstanceId"] for page in pages for r in page["Reservations"] for one in r["Instances"]]
    assert sorted(found) == sorted(cloud.in_service())


def test_an_unknown_instance_is_an_error_that_names_it(cloud: Cloud) -> None:
    with pytest.raises(ClientError, match=r"InvalidInstanceID\.NotFound.*i-0123456789abcdef0"):
        cloud("ec2").describe_instances(InstanceIds=["i-0123456789abcdef0"])


def test_tags_are_put_replaced_listed_and_taken_away(cloud: Cloud) -> None:
    cloud.group(desired=1)
    ec2, [member] = cloud("ec2"), cloud.in_service()
    ec2.create_tags(Resources=[member], Tags=[{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}])
    ec2.create_tags(Resources=[member], Tags=[{"Key": "a", "Value": "3"}])
    ec2.delete_tags(Resources=[member], Tags=[{"Key": "b"}])
    filters = [{"Name": "resource-id", "Values": [member]}, {"Name": "key", "Values": ["a", "b"]}]
    [tag] = ec2.describe_tags(Filters=filters)["Tags"]
    assert (tag["Key"], tag["Value"], tag["ResourceId"], tag["ResourceType"]) == ("a", "3", member, "instance")


def test_a_terminated_instance_passes_through_shutting_down(cloud: Cloud) -> None:
    cloud.group(desired=1)
    [member] = cloud.in_service()
    [change] = cloud("ec2").terminate_instances(InstanceIds=[member])["TerminatingInstances"]
    assert (change["PreviousState"]["Name"], change["CurrentState"]["Name"]) == ("running", "shutting-down")
    cloud.until(lambda: cloud.instance(member)["State"] == {"Code": 48, "Name": "terminated"})


def test_a_protected_instance_cannot_be_terminated_through_ec2(cloud: Cloud) -> None:
    cloud.group(desired=1)
    ec2, [member] = cloud("ec2"), cloud.in_service()
    ec2.modify_instance_attribute(InstanceId=member, DisableApiTermination={"Value": True})
    with pytest.raises(ClientError, match="OperationNotPermitted"):
        ec2.terminate_instances(InstanceIds=[member])


def test_status_tells_of_running_instances_with_their_checks(cloud: Cloud) -> None:
    cloud.group(desired=2)
    found = cloud("ec2").describe_instance_status()["InstanceStatuses"]
    assert {one["InstanceId"] for one in found} == set(cloud.in_service())
    assert {(one["SystemStatus"]["Status"], one["InstanceStatus"]["Status"]) for one in found} == {("ok", "ok")}


def test_a_type_tells_its_gpus_and_its_network(cloud: Cloud) -> None:
    [found] = cloud("ec2").describe_instance_types(InstanceTypes=["p5.48xlarge"])["InstanceTypes"]
    assert [(gpu["Name"], gpu["Count"]) for gpu in found["GpuInfo"]["Gpus"]] == [("H100", 8)]
    assert found["NetworkInfo"]["EfaInfo"]["MaximumEfaInterfaces"] == 32
    assert found["VCpuInfo"]["DefaultVCpus"] == 192


def test_an_unknown_type_is_an_error(cloud: Cloud) -> None:
    with pytest.raises(ClientError, match="InvalidInstanceType"):
        cloud("ec2").describe_instance_types(InstanceTypes=["p99.mega"])


def test_zones_tell_their_ids(cloud: Cloud) -> None:
    zones = cloud("ec2").describe_availability_zones()["AvailabilityZones"]
    assert {"us-east-1a", "us-east-1b"} <= {zone["ZoneName"] for zone in zones}
    assert {zone["State"] for zone in zones} == {"available"}
    assert all(zone["ZoneId"].startswith("use1-az") for zone in zones)


def test_spot_prices_have_a_row_for_a_type_and_a_zone(cloud: Cloud) -> None:
    rows = cloud("ec2").describe_spot_price_history(InstanceTypes=["p5.48xlarge"], ProductDescriptions=["Linux/UNIX"])[
        "SpotPriceHistory"
    ]
    assert {row["InstanceType"] for row in rows} == {"p5.48xlarge"}
    assert {"us-east-1a", "us-east-1b"} <= {row["AvailabilityZone"] for row in rows}
    assert all(float(row["SpotPrice"]) > 0 for row in rows)


def test_a_launch_template_is_found_by_name_with_its_versions(cloud: Cloud) -> None:
    ec2, made = cloud("ec2"), cloud.template("workers")
    ec2.create_launch_template_version(
        LaunchTemplateName="workers", LaunchTemplateData={"InstanceType": "p4d.24xlarge"}
    )
    [found] = ec2.describe_launch_templates(LaunchTemplateNames=["workers"])["LaunchTemplates"]
    assert found["LaunchTemplateId"] == made["LaunchTemplateId"]
    assert (found["DefaultVersionNumber"], found["LatestVersionNumber"]) == (1, 2)
    [latest] = ec2.describe_launch_template_versions(LaunchTemplateName="workers", Versions=["$Latest"])[
        "LaunchTemplateVersions"
    ]
    assert latest["LaunchTemplateData"]["InstanceType"] == "p4d.24xlarge"


def test_an_attribute_is_described_by_its_name(cloud: Cloud) -> None:
    cloud.group(desired=1)
    ec2, [member] = cloud("ec2"), cloud.in_service()
    for wanted in (True, False):
        ec2.modify_instance_attribute(InstanceId=member, DisableApiTermination={"Value": wanted})
        found = ec2.describe_instance_attribute(InstanceId=member, Attribute="disableApiTermination")
        assert (found["InstanceId"], found["DisableApiTermination"]) == (member, {"Value": wanted})
