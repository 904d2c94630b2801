import pytest
from botocore.exceptions import ClientError

from tests.simcloud.contract.conftest import Cloud

_ABOUT = {"clusterName": "training", "nodegroupName": "rollout"}


@pytest.fixture
def made(cloud: Cloud) -> Cloud:
    eks = cloud("eks")
    subnets = cloud("ec2").describe_subnets()["Subnets"]
    zone_a = next(one["SubnetId"] for one in subnets if one["AvailabilityZone"] == "us-east-1a")
    role = "arn:aws:iam::123456789012:role/node"
    eks.create_cluster(name="training", roleArn=role, resourcesVpcConfig={"subnetIds": [zone_a]})
    eks.create_nodegroup(
        nodeRole=role,
        subnets=[zone_a],
        capacityType="SPOT",
        instanceTypes=["p5.48xlarge"],
        scalingConfig={"minSize": 0, "maxSize": 5, "desiredSize": 1},
        labels={"team": "rl"},
        **_ABOUT,
    )
    return cloud


def test_a_node_group_tells_its_sizes_type_labels_and_auto_scaling_group(made: Cloud) -> None:
    found = made("eks").describe_nodegroup(**_ABOUT)["nodegroup"]
    assert found["status"] == "ACTIVE"
    assert found["capacityType"] == "SPOT"
    assert found["scalingConfig"] == {"minSize": 0, "maxSize": 5, "desiredSize": 1}
    assert found["instanceTypes"] == ["p5.48xlarge"]
    assert found["labels"] == {"team": "rl"}
    assert len(found["resources"]["autoScalingGroups"]) == 1
    assert made("eks").list_nodegroups(clusterName="training")["nodegroups"] == ["rollout"]


def test_its_desired_size_is_changed_by_an_update(made: Cloud) -> None:
    eks = made("eks")
    update = eks.update_nodegroup_config(scalingConfig={"desiredSize": 3}, **_ABOUT)["update"]
    assert update["type"] == "ConfigUpdate"
    made.until(lambda: eks.describe_nodegroup(**_ABOUT)["nodegroup"]["status"] == "ACTIVE")
    assert eks.describe_nodegroup(**_ABOUT)["nodegroup"]["scalingConfig"]["desiredSize"] == 3


def test_an_unknown_node_group_is_not_found(made: Cloud) -> None:
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        made("eks").describe_nodegroup(clusterName="training", nodegroupName="none")
