"""Trainers in the YAML: how the guard finds them, and what it may repair. It never scales them.

Nothing is repaired that is not listed; what is not found, or found unprotected, is told in findings, metrics and the condition
`TrainerProtected`.
"""

import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from scaler.config.faults import shown
from scaler.config.scalars import Count, Name, PositiveDuration
from scaler.config.yaml_model import Problem, YamlModel, refusal
from scaler.model.trainers import CheckCode, RepairKind

_WORD = "[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
LABEL_KEY = f"^([a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_WORD}$"
_LABEL_VALUE = f"^({_WORD})?$"


def _label_key(key: str) -> str:
    if not re.fullmatch(LABEL_KEY, key):
        raise refusal(f"{shown(key)} is no label", "write it like app or example.com/app")
    return key


def _label_value(value: str) -> str:
    if not re.fullmatch(_LABEL_VALUE, value):
        raise refusal(f"{shown(value)} is no value of a label", "use up to 63 letters, digits, dots and dashes")
    return value


LabelKey = Annotated[str, AfterValidator(_label_key), Field(json_schema_extra={"pattern": LABEL_KEY})]
LabelValue = Annotated[
    str, AfterValidator(_label_value), Field(json_schema_extra={"pattern": _LABEL_VALUE, "maxLength": 63})
]


class Labels(YamlModel):
    """A selector by equality."""

    match_labels: Annotated[dict[LabelKey, LabelValue], Field(min_length=1, max_length=16)]
    """Labels that all must be there. At least one: an empty selector would take everything for a trainer."""


class Trainer(YamlModel):
    """A trainer that the guard looks after."""

    name: Name
    """Unique in the fleet; what findings call it."""
    selector: Labels
    """Labels of its pods."""
    namespace: Name | None = None
    """Where its pods are. Default: the fleet's own namespace."""
    nodes: Labels | None = None
    """Labels of nodes set aside for it, which are then guarded also while no pod of it runs there. Default: the nodes where its
    pods run, for half an hour longer than they do."""
    repair: Annotated[tuple[RepairKind, ...], Field(max_length=len(RepairKind))] = ()
    """What the guard may mend by itself: annotations, disruption_budget, scale_in_protection, checkpoint. Default none: it only
    tells, since manifests in a repository are mended there."""
    ignore: Annotated[tuple[CheckCode, ...], Field(max_length=len(CheckCode))] = ()
    """Checks that are not made, because somebody else answers for them. Default none."""
    efa_devices: Count | None = None
    """EFA devices that each node must offer. Default: all that its instance type has, where the pods ask for any; set it where
    the launch template attaches fewer, or where devices come by DRA (0: not checked)."""
    accelerators: Count | None = None
    """GPUs or Neuron devices likewise. Default: all that its instance type has, where the pods ask for any."""
    hot_spares: Count = 0
    """Healthy nodes of its own without a pod that must stand by. Default 0."""
    checkpoint_lead_s: PositiveDuration = 1200.0
    """How long before its capacity goes it is asked for a checkpoint. Default 20m: enough for a large one."""

    def problems(self) -> Iterator[Problem]:
        """Spares that could not be told from other nodes."""
        if self.hot_spares and self.nodes is None:
            yield Problem(
                ("hotSpares",), "nothing tells which nodes stand by for this trainer", "set nodes.matchLabels too"
            )
