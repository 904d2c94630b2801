"""A fleet's YAML with another policy in its rollout stage; everything else as it was, comments aside.

Errors: `ConfigError`, where the text is no fleet before or after.
"""

from pathlib import Path
from typing import Any

import yaml

from scaler.config.loader import only_fleet, parse_fleets
from scaler.config.stage import StageName
from scaler.simulate.policy_file import PolicyChoice, dump_policy


def fleet_with(policy: PolicyChoice, text: str, source: Path | None) -> str:
    """The YAML of the one fleet in `text` with this policy and placement. `source` names the file in faults."""
    name = source or Path("fleet")
    only_fleet(parse_fleets(text.encode(), name), name)
    document: dict[str, Any] = yaml.safe_load(text)
    for stage in document["spec"]["stages"]:
        if stage["name"] == StageName.ROLLOUT:
            stage.update(yaml.safe_load(dump_policy(policy)))
    changed = yaml.safe_dump(document, sort_keys=False)
    only_fleet(parse_fleets(changed.encode(), name), name)
    return changed
