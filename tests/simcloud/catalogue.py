"""Facts of instance types, out of moto's copy of EC2's own answers; read when first asked for."""

import gzip
import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def instance_types() -> dict[str, dict[str, Any]]:
    """DescribeInstanceTypes' entries by name."""
    packed = files("moto").joinpath("ec2/resources/instance_types.json.gz").read_bytes()
    found: dict[str, dict[str, Any]] = json.loads(gzip.decompress(packed))
    return found


@cache
def vcpus(instance_type: str) -> int:
    """Default vCPUs; a type that the catalogue lacks has one."""
    return int(instance_types().get(instance_type, {}).get("VCpuInfo", {}).get("DefaultVCpus", 1))


def zone_id(zone: str) -> str:
    """`us-east-1a` -> `use1-az1`."""
    region, letter = zone[:-1], zone[-1]
    area, direction, number = region.split("-")
    return f"{area}{direction[0]}{number}-az{ord(letter) - ord('a') + 1}"


def subnet_of(zone: str) -> str:
    """The default subnet of a zone."""
    return f"subnet-{zone.replace('-', '')}"
