"""Who acts on a capacity pool, and its own settings. A new provider is one model here and one arm of `Provider`."""

import string
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import AfterValidator, Field

from scaler.config.faults import shown
from scaler.config.scalars import LONGEST_TEXT, Duration, FilePath, Flag, Name, PlainText
from scaler.config.worker_sets import WorkerSetModel
from scaler.config.yaml_model import RESTART, Problem, YamlModel, refusal
from scaler.model.spec import Duties

PLACEHOLDERS = frozenset(
    {"ledger", "job", "worker", "replicaId", "instanceId", "noticeFile", "tokenCounter", "weights", "offering"}
)
"""What a local worker's command may ask for; the local actor fills it in at launch. A literal brace is `{{` or `}}`."""


def placeholders(word: str) -> tuple[str, ...]:
    """Names in braces in one word of a command. `ValueError` where braces do not match or hold more than a name."""
    found = []
    for _, name, form, conversion in string.Formatter().parse(word):
        if name is not None:
            if form or conversion:
                raise ValueError(f"{shown(word)} holds more than a name in its braces")
            found.append(name)
    return tuple(found)


def _command_word(word: str) -> str:
    try:
        names = placeholders(word)
    except ValueError as error:
        raise refusal(f"{shown(word)} cannot be read: {error}", "write a literal brace twice") from None
    for name in names:
        if name not in PLACEHOLDERS:
            known = ", ".join(f"{{{known}}}" for known in sorted(PLACEHOLDERS))
            raise refusal(f"unknown placeholder {{{name}}}", f"known: {known}; write a literal brace twice")
    return word


def _variable(name: str) -> str:
    if not name or "=" in name or "\0" in name:
        raise refusal(f"{shown(name)} cannot name an environment variable", "use letters, digits and underscores")
    return name


def _value(value: str) -> str:
    if "\0" in value:
        raise refusal(f"{shown(value)} cannot be the value of an environment variable", "leave the NUL out")
    return value


_WORD = r"^([^{}\x00]|\{\{|\}\}|\{(" + "|".join(sorted(PLACEHOLDERS)) + r")\})+$"
CommandWord = Annotated[PlainText, AfterValidator(_command_word), Field(json_schema_extra={"pattern": _WORD})]
Environment = Annotated[
    dict[
        Annotated[str, Field(max_length=256), AfterValidator(_variable)],
        Annotated[str, Field(max_length=LONGEST_TEXT), AfterValidator(_value)],
    ],
    Field(max_length=256),
]


class ProviderModel(YamlModel):
    """Base of all providers in the YAML."""

    type: str
    duties: ClassVar[Duties] = Duties()
    """Who does what when an instance goes."""
    one_machine: ClassVar[bool] = False
    """Workers run where the controller runs: only then may the ledger be a file."""

    @property
    def place(self) -> str:
        """Where its instances live: two pools of one name cannot share it."""
        return self.type

    @property
    def asks_for(self) -> frozenset[str]:
        """Placeholders that its settings use."""
        return frozenset()


class LocalProvider(ProviderModel):
    """Processes on this machine: an instance is a process group."""

    one_machine: ClassVar[bool] = True
    type: Annotated[Literal["local"], Field(json_schema_extra=RESTART)]
    """Who acts on the pool."""
    state_dir: Annotated[FilePath, Field(json_schema_extra=RESTART)]
    """Folder of instance records, notices, counters and logs; a new controller adopts what it finds there."""
    command: Annotated[tuple[CommandWord, ...], Field(min_length=1, max_length=256)]
    """Program and arguments of one worker, run without a shell. May hold {ledger}, {job}, {worker}, {replicaId}, {instanceId},
    {offering}, {noticeFile}, {tokenCounter} and {weights}."""
    env: Environment = Field(default_factory=dict)
    """Environment variables on top of the controller's own. None by default: what works in the shell works here."""
    termination_grace_s: Duration = 10.0
    """From SIGTERM to SIGKILL. Default 10s: a drained worker has nothing left to do but exit, and a hung one must not keep
    its place."""

    @property
    def place(self) -> str:
        """Its folder."""
        return self.state_dir

    @property
    def asks_for(self) -> frozenset[str]:
        """Placeholders in its command."""
        return frozenset(name for word in self.command for name in placeholders(word))


class _InCluster(ProviderModel):
    worker_set: WorkerSetModel
    """What runs the workers on its nodes."""

    @property
    def counted(self) -> bool:
        """Whether the worker set has a count that we write."""
        return self.worker_set.counts


class AutoScalingGroupProvider(_InCluster):
    """A self-managed Auto Scaling group of EC2: one instance type and one way of buying, in one zone or several."""

    duties: ClassVar[Duties] = Duties(taints=True, evicts=True, replaces=True, detaches=True)
    type: Annotated[Literal["auto_scaling_group"], Field(json_schema_extra=RESTART)]
    """Who acts on the pool."""
    group: Annotated[PlainText, Field(json_schema_extra=RESTART)]
    """Name of the group."""
    up: Literal["launch_instances", "set_desired_capacity"] = "launch_instances"
    """How it is raised. Default launch_instances: relative, idempotent by token, refusals answered at once; the other is for
    Regions and partitions without it."""

    @property
    def place(self) -> str:
        """The group."""
        return f"auto_scaling_group/{self.group}"


class EksNodeGroupProvider(_InCluster):
    """An EKS managed node group: AWS drains and replaces what it interrupts."""

    duties: ClassVar[Duties] = Duties(taints=True, evicts=True, replaces=False, detaches=False)
    type: Annotated[Literal["eks_node_group"], Field(json_schema_extra=RESTART)]
    """Who acts on the pool."""
    cluster: Annotated[PlainText, Field(json_schema_extra=RESTART)]
    """Name of the EKS cluster."""
    node_group: Annotated[PlainText, Field(json_schema_extra=RESTART)]
    """Name of the node group."""
    accept_az_rebalance: Flag = False
    """A group over several zones is rebalanced by AWS, which ends instances that work, and that cannot be turned off. Default
    false: such a group is refused; one zone a group is better."""
    accept_autoscaler_tags: Flag = False
    """EKS offers every managed group to Cluster Autoscaler by tags. Default false: the group is refused as long as it has them;
    true says that no Cluster Autoscaler runs in this cluster, or that it leaves this group alone."""

    @property
    def place(self) -> str:
        """The node group."""
        return f"eks_node_group/{self.cluster}/{self.node_group}"


class KarpenterProvider(_InCluster):
    """A Karpenter NodePool: pods ask, Karpenter launches, taints, evicts and replaces."""

    duties: ClassVar[Duties] = Duties(replaces=False)
    type: Annotated[Literal["karpenter"], Field(json_schema_extra=RESTART)]
    """Who acts on the pool."""
    node_pool: Annotated[Name, Field(json_schema_extra=RESTART)]
    """Name of the NodePool; not a static one."""

    @property
    def place(self) -> str:
        """The NodePool."""
        return f"karpenter/{self.node_pool}"

    def problems(self) -> Iterator[Problem]:
        """A worker set without a count makes Karpenter launch nothing."""
        if not self.worker_set.counts:
            yield Problem(
                ("workerSet", "type"),
                "a DaemonSet makes Karpenter launch nothing: its pods come after nodes",
                "use a deployment, a leader_worker_set or a ray_cluster",
            )


Provider: TypeAlias = Annotated[
    LocalProvider | AutoScalingGroupProvider | EksNodeGroupProvider | KarpenterProvider, Field(discriminator="type")
]
