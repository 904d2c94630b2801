"""The instance file: how a worker learns which instance it runs on, without asking instance metadata itself.

One JSON object, written atomically by the node agent: `{"instance_id": str, "instance_type": str, "zone": str,
"life_cycle": str}`, where `life_cycle` is as EC2 says it ("spot", "on-demand", "capacity-block", ...), empty where it does not.
"""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceFile:
    """What the file says."""

    instance_id: str
    instance_type: str
    zone: str
    life_cycle: str


def dump_instance(instance: InstanceFile) -> str:
    """The file's text."""
    return json.dumps(asdict(instance))


def parse_instance(text: str) -> InstanceFile:
    """The instance in the file's text; `ValueError` says what is wrong with it."""
    try:
        raw = json.loads(text)
        found = InstanceFile(
            instance_id=str(raw["instance_id"]),
            instance_type=str(raw["instance_type"]),
            zone=str(raw["zone"]),
            life_cycle=str(raw["life_cycle"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"no instance: {error!r} in {text[:200]!r}") from error
    if not found.instance_id:
        raise ValueError(f"no instance: its id is empty in {text[:200]!r}")
    return found
