"""The Kubernetes object that holds a pool's worker replicas, in the YAML. A new kind is one model and one arm here."""

from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import Field

from scaler.config.scalars import Name
from scaler.config.yaml_model import RESTART, YamlModel


class _WorkerSet(YamlModel):
    type: str
    counts: ClassVar[bool] = True
    """The object has a count that we write."""
    name: Annotated[Name, Field(json_schema_extra=RESTART)]
    """Name of the object."""
    namespace: Annotated[Name | None, Field(json_schema_extra=RESTART)] = None
    """Its namespace. Default: the fleet's own."""


class DaemonSet(_WorkerSet):
    """One worker pod on every node of the pool: nothing but nodes is counted."""

    counts: ClassVar[bool] = False
    type: Annotated[Literal["daemon_set"], Field(json_schema_extra=RESTART)]
    """Which kind of object."""


class Deployment(_WorkerSet):
    """One worker pod a replica."""

    type: Annotated[Literal["deployment"], Field(json_schema_extra=RESTART)]
    """Which kind of object."""


class LeaderWorkerSet(_WorkerSet):
    """k pods a replica that live and die together.

    `name` is the template: each replica gets an object of its own, made after it with `replicas: 1`, since one object
    scales down from its highest ordinal only.
    """

    type: Annotated[Literal["leader_worker_set"], Field(json_schema_extra=RESTART)]
    """Which kind of object."""


class RayCluster(_WorkerSet):
    """A worker group of a RayCluster, scaled by `replicas` with `workersToDelete`."""

    type: Annotated[Literal["ray_cluster"], Field(json_schema_extra=RESTART)]
    """Which kind of object."""
    group: Annotated[str, Field(min_length=1, max_length=63, json_schema_extra=RESTART)]
    """Name of the worker group (`groupName`)."""


WorkerSetModel: TypeAlias = Annotated[
    DaemonSet | Deployment | LeaderWorkerSet | RayCluster, Field(discriminator="type")
]
