"""RolloutFleet objects, and a cluster in memory that holds them and their definition."""

from typing import Any

from scaler.config.crd import definition
from scaler.kube.contract import DEFINITIONS, ROLLOUT_FLEETS, Json
from scaler.model.clock import Clock
from scaler.runtime.kube_config import KubeConfigWatch
from scaler.telemetry.metrics import Metrics
from scaler.telemetry.readout import Readout
from tests.builders.fake_kube import FakeKube
from tests.builders.fleet_yaml import a_cluster_fleet


def an_object(name: str = "demo", namespace: str = "rl", **spec: Any) -> Json:
    """A fleet's object as somebody applies it."""
    body = a_cluster_fleet(name=name, **spec)
    return {**body, "metadata": {"name": name, "namespace": namespace}}


async def a_cluster(clock: Clock, *objects: Json) -> FakeKube:
    """The definition and these fleets."""
    kube = FakeKube(clock)
    await kube.create(DEFINITIONS, definition())
    for body in objects:
        await kube.create(ROLLOUT_FLEETS, body, namespace=body["metadata"]["namespace"])
    return kube


def a_watch(kube: FakeKube, clock: Clock, name: str = "demo", namespace: str = "rl") -> KubeConfigWatch:
    """The configuration of a fleet, not started."""
    return KubeConfigWatch(kube, namespace=namespace, name=name, clock=clock, metrics=Metrics(clock, Readout))


async def change(kube: FakeKube, name: str = "demo", namespace: str = "rl", **spec: Any) -> Json:
    """Somebody edits the spec."""
    return await kube.patch(ROLLOUT_FLEETS, name, {"spec": spec}, namespace=namespace)


async def the_object(kube: FakeKube, name: str = "demo", namespace: str = "rl") -> Json:
    """The object as it is."""
    return await kube.get(ROLLOUT_FLEETS, name, namespace=namespace)
