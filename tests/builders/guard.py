"""The trainers' guard put together on an API server, with what it counted."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from scaler.act.trainer_repairs import RepairOutcome, TrainerRepairs
from scaler.aws.contract import Aws
from scaler.guard.protect import Protector
from scaler.guard.watch import GuardWatch
from scaler.kube.contract import KubeApi
from scaler.model.clock import Clock
from scaler.model.spec import FleetSpec
from scaler.model.trainers import RepairKind, TrainerSpec
from scaler.observe.trainers import Ports, TrainerObserver
from tests.builders.trainers import Nodes, Pods


@dataclass(kw_only=True)
class Guarding:
    """`watch` and its parts; `spec`, `places` and `leads` may be changed between looks."""

    kube: KubeApi
    clock: Clock
    trainers: tuple[TrainerSpec, ...]
    nodes: Nodes = field(default_factory=Nodes)
    pods: Pods = field(default_factory=Pods)
    aws: Aws | None = None
    places: Mapping[str, str] = field(default_factory=dict)
    leads: bool = True
    slow_s: float = 0.0
    """0: every source is asked at every look."""
    repaired: Counter[tuple[RepairKind, RepairOutcome]] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.spec = FleetSpec(name="demo", namespace="rl", stages=(), trainers=self.trainers)
        self.observer = TrainerObserver(
            Ports(kube=self.kube, nodes=self.nodes, pods=self.pods, aws=self.aws, clock=self.clock),
            slow_s=self.slow_s,
        )
        self.repairs = TrainerRepairs(kube=self.kube, aws=self.aws, clock=self.clock, count=self._repaired)
        self.protector = Protector(
            clock=self.clock,
            nodes=self.nodes,
            pods=self.pods,
            trainers=lambda: self.spec.trainers,
            fleet=lambda: "rl.demo",
            places=lambda: self.places,
            count=self._refused,
        )
        self.watch = GuardWatch(
            clock=self.clock,
            observer=self.observer,
            repairs=self.repairs,
            protector=self.protector,
            spec=lambda: self.spec,
            places=lambda: self.places,
            leads=lambda: self.leads,
        )

    def _repaired(self, kind: RepairKind, outcome: RepairOutcome) -> None:
        self.repaired[kind, outcome] += 1

    def _refused(self, kind: str) -> None:
        self.refused[kind] += 1

    def change(self, **over: Any) -> None:
        """Another specification from the next look on."""
        self.spec = replace(self.spec, **over)
