"""Trainers in the YAML: how the guard finds them, and what it may repair. It never scales them.

Nothing is repaired that is not listed; what is not found, or found unprotected, is told in findings, metrics and the condition
`TrainerProtected`.
"""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from scaler.config.scalars import Count, Name, PositiveDuration
from scaler.config.yaml_model import Problem, YamlModel
from scaler.model.trainers import CheckCode, RepairKind

LabelKey = Annotated[str, Field(pattern=r"^([A-Za-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")]
LabelValue = Annotated[str, Field(pattern=r"^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$")]


class Labels(YamlModel):
    """A selector by equality."""

    match_labels: Annotated[dict[LabelKey, LabelValue], Field(min_length=1)]
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
    repair: tuple[RepairKind, ...] = ()
    """What the guard may mend by itself: annotations, disruption_budget, scale_in_protection, checkpoint. Default none: it only
    tells, since manifests in a repository are mended there."""
    ignore: tuple[CheckCode, ...] = ()
    """Checks that are not made, because somebody else answers for them. Default none."""
    efa_devices: Count | None = None
    """EFA devices that each node must offer. Default: all that its instance type has, where the pods ask for any; set it where
    the launch template attaches fewer, or where devices come by DRA (0: not checked)."""
    accelerators: Count | None = None
    """GPUs or Neuron devices likewise. Default: all that its instance type has, where the pods ask for any."""
    hot_spares: Count = 0
    """Healthy nodes of its own without a pod that must stand by. Default 0."""
    checkpoint_lead_s: PositiveDuration = 1200.0
    """How long before its capacity goes it is asked for a checkpoint. Default 20m: time for a large one, and little is repeated."""

    def problems(self) -> Iterator[Problem]:
        """Spares that could not be told from other nodes."""
        if self.hot_spares and self.nodes is None:
            yield Problem(
                ("hotSpares",), "nothing tells which nodes stand by for this trainer", "set nodes.matchLabels too"
            )
