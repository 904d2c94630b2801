"""A fleet on a real API server: its configuration, its status as kubectl shows it, its Events."""

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest

from scaler.config.crd import HASH_ANNOTATION, NAME, definition
from scaler.config.reload import Outcome
from scaler.kube.api import open_api
from scaler.kube.contract import DEFINITIONS, EVENTS, NAMESPACES, ROLLOUT_FLEETS, Denied, Invalid, Json, KubeApi
from scaler.runtime.clock import SystemClock
from scaler.runtime.fleet_events import fleet_of
from scaler.runtime.fleet_source import FleetSource, Turn
from scaler.runtime.kube_config import KubeConfigWatch
from scaler.runtime.status_writer import StatusWriter
from scaler.telemetry.events import EventRecorder, Note
from scaler.telemetry.metrics import Metrics
from scaler.telemetry.readout import Readout
from tests.builders.definition import established
from tests.builders.fleet_status import a_readout, a_status
from tests.builders.rollout_fleets import an_object
from tests.builders.snapshots import a_fleet_spec, a_pool_view, a_world_of, remembering, some_replicas
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fixtures import api_server

__all__ = ["api_server"]
pytestmark = pytest.mark.cluster
CLOCK = SystemClock()
AWAY = {"type": "valkey", "urlFile": "relative/url"}
"""A path that only the controller refuses."""


class Bench:
    """A namespace of its own, and a client."""

    def __init__(self, kube: KubeApi, plane: ControlPlane) -> None:
        self.kube, self.plane, self.namespace = kube, plane, f"fleet-{uuid4().hex[:8]}"

    async def apply(self, **spec: Any) -> Json:
        return await self.kube.create(
            ROLLOUT_FLEETS, an_object(namespace=self.namespace, **spec), namespace=self.namespace
        )

    async def change(self, **spec: Any) -> Json:
        return await self.kube.patch(ROLLOUT_FLEETS, "demo", {"spec": spec}, namespace=self.namespace)

    async def stored(self) -> Json:
        return await self.kube.get(ROLLOUT_FLEETS, "demo", namespace=self.namespace)

    def config(self) -> KubeConfigWatch:
        return KubeConfigWatch(
            self.kube, namespace=self.namespace, name="demo", clock=CLOCK, metrics=Metrics(CLOCK, Readout)
        )

    def writer(self, config: KubeConfigWatch) -> StatusWriter:
        return StatusWriter(
            self.kube,
            clock=CLOCK,
            namespace=self.namespace,
            name="demo",
            uid=config.state.uid,
            seen=lambda: config.body,
        )


@pytest.fixture
async def bench(api_server: ControlPlane) -> AsyncIterator[Bench]:
    await asyncio.to_thread(established, api_server)
    kube = open_api(api_server.kubeconfig, clock=CLOCK)
    bench = Bench(kube, api_server)
    await kube.create(NAMESPACES, {"metadata": {"name": bench.namespace}})
    yield bench
    for body in (await kube.list(ROLLOUT_FLEETS, namespace=bench.namespace)).items:
        await kube.delete(ROLLOUT_FLEETS, body["metadata"]["name"], namespace=bench.namespace)
    await kube.close()


@asynccontextmanager
async def watched(config: KubeConfigWatch) -> AsyncIterator[asyncio.Event]:
    wake = asyncio.Event()
    task = asyncio.create_task(config.watch(wake))
    yield wake
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_change_with_kubectl_arrives_and_a_bad_one_does_not(bench: Bench) -> None:
    await bench.apply()
    config = bench.config()
    await config.start()
    assert (config.spec.namespace, config.spec.dry_run, config.state.schema_current) == (bench.namespace, True, True)
    async with watched(config) as wake:
        await bench.change(paused=True, dryRun=False)
        await asyncio.wait_for(wake.wait(), 60.0)
        assert (config.spec.paused, config.spec.dry_run) == (True, False)
        with pytest.raises(Invalid, match=r"spec\.interval"):
            await bench.change(interval="soon")
        await bench.change(ledger={"type": "valkey", "url": None, "urlFile": "relative/url"})
        assert config.seen(await bench.stored()) is Outcome.REJECTED
        assert "spec.ledger.urlFile: 'relative/url' starts from nowhere in a cluster" in config.faults[0]
        assert config.spec.paused


async def test_a_status_is_kept_whole_and_leaves_the_spec_alone(bench: Bench) -> None:
    await bench.apply()
    config = bench.config()
    await config.start()
    writer = bench.writer(config)
    short = a_readout(
        a_world_of(some_replicas(1), pools=[a_pool_view(refused="x")]),
        a_fleet_spec(3, max_step_up=1),
        remembering(desired=1),
    )
    for readout in (a_readout(), short):
        status = a_status(readout, config.state, writer.previous)
        writer.offer(status)
        assert await writer.write()
        stored = await bench.stored()
        assert stored["status"] == status, "nothing was dropped in silence"
        assert (stored["metadata"]["generation"], stored["spec"]) == (1, config.body["spec"])


async def test_a_restart_goes_on_with_the_spec_last_accepted(bench: Bench) -> None:
    await bench.apply(interval="12s")
    config = bench.config()
    await config.start()
    writer = bench.writer(config)
    writer.offer(a_status(config=config.state))
    assert await writer.write()
    await bench.change(interval="20s", ledger={"type": "valkey", "url": None, "urlFile": "relative/url"})
    again = bench.config()
    await again.start()
    assert again.spec.interval_s == 12.0
    assert (again.state.generation, again.state.accepted.generation) == (2, 1)
    assert "starts from nowhere" in again.faults[0]


async def test_kubectl_get_shows_sizes_reason_and_state(bench: Bench) -> None:
    await bench.apply()
    config = bench.config()
    await config.start()
    writer = bench.writer(config)
    writer.offer(a_status(config=config.state))
    assert await writer.write()
    found = await asyncio.to_thread(
        bench.plane.api.get, f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{NAME}"
    )
    columns = found["spec"]["versions"][0]["additionalPrinterColumns"]
    names = [column["name"] for column in columns]
    assert names == ["Desired", "Requested", "Observed", "Ready", "Reason", "Paused", "DryRun", "Age"]
    body = await bench.stored()
    shown = []
    for column in columns[:-1]:
        value = body
        for step in column["jsonPath"].strip(".").split("."):
            value = value[step]
        shown.append(value)
    assert shown == [3, 3, 3, 3, "steady", False, True]


async def test_another_objects_status_is_refused_by_its_uid(bench: Bench) -> None:
    await bench.apply()
    config = bench.config()
    await config.start()
    writer = bench.writer(config)
    await bench.kube.delete(ROLLOUT_FLEETS, "demo", namespace=bench.namespace)
    await bench.apply()
    writer.offer({"ready": 1})
    assert not await writer.write()
    assert "status" not in await bench.stored()


async def test_an_older_definition_drops_fields_in_silence_and_the_fleet_is_held(bench: Bench) -> None:
    older = copy.deepcopy(definition())
    spec = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["properties"]["dryRun"]
    older["metadata"]["annotations"][HASH_ANNOTATION] = "0000000000000000"
    await bench.apply(dryRun=False)
    try:
        await asyncio.to_thread(bench.plane.api.apply, older)
        config = bench.config()
        await config.start()
        assert config.spec.paused
        assert config.state.schema_current is False
        assert "0000000000000000" in config.state.schema_message
    finally:
        await asyncio.to_thread(established, bench.plane)
    assert (await bench.kube.get(DEFINITIONS, NAME))["metadata"]["annotations"][HASH_ANNOTATION] != "0000000000000000"


async def test_events_are_taken_counted_and_found_by_their_fleet(bench: Bench) -> None:
    body = await bench.apply()
    about = fleet_of(bench.namespace, "demo", body["metadata"]["uid"])
    recorder = EventRecorder(bench.kube, clock=CLOCK, about=about, identity="headrace-0")
    for number in range(3):
        recorder.record(Note(reason="SizeUp", message=f"number {number}"))
        assert await recorder.send_one()
    selector = f"involvedObject.uid={body['metadata']['uid']}"
    (event,) = (await bench.kube.list(EVENTS, namespace=bench.namespace, field_selector=selector)).items
    assert (event["count"], event["message"], event["reason"]) == (3, "number 2", "SizeUp")


async def test_fleets_that_come_and_go_are_told(bench: Bench) -> None:
    first = await bench.apply()
    source = FleetSource(bench.kube, clock=CLOCK, namespaces=[bench.namespace])
    task = asyncio.create_task(source.run())
    async with asyncio.timeout(60.0):
        (turn,) = await source.turns()
        assert (turn.turn, turn.key.uid) == (Turn.ADDED, first["metadata"]["uid"])
        await bench.kube.delete(ROLLOUT_FLEETS, "demo", namespace=bench.namespace)
        (turn,) = await source.turns()
        assert (turn.turn, turn.key.uid) == (Turn.REMOVED, first["metadata"]["uid"])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def may(name: str, namespace: str, *verbs: str) -> list[Json]:
    """A role for fleets in a namespace, and a user of that name who has it."""
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name, "namespace": namespace}}
    rule = {"apiGroups": ["headrace.dev"], "resources": ["rolloutfleets"], "verbs": list(verbs)}
    subject = {"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "Role", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
    return [
        {**rbac, "kind": "Role", "rules": [rule]},
        {**rbac, "kind": "RoleBinding", "subjects": [subject], "roleRef": role},
    ]


async def test_who_may_pause_a_fleet_is_decided_by_rbac(bench: Bench) -> None:
    await bench.apply()
    pause = {"spec": {"paused": True}}
    for name, verbs in (("viewer", ["get"]), ("operator", ["get", "patch"])):
        for body in may(f"{name}-{bench.namespace}", bench.namespace, *verbs):
            await asyncio.to_thread(bench.plane.api.apply, body)
        kube = open_api(bench.plane.kubeconfig_for(f"{name}-{bench.namespace}"), clock=CLOCK)
        try:
            assert (await kube.get(ROLLOUT_FLEETS, "demo", namespace=bench.namespace))["spec"].get("paused") is None
            with pytest.raises(Denied):
                await kube.patch(
                    ROLLOUT_FLEETS, "demo", {"status": {"ready": 1}}, namespace=bench.namespace, subresource="status"
                )
            if name == "viewer":
                with pytest.raises(Denied):
                    await kube.patch(ROLLOUT_FLEETS, "demo", pause, namespace=bench.namespace)
            else:
                await kube.patch(ROLLOUT_FLEETS, "demo", pause, namespace=bench.namespace)
        finally:
            await kube.close()
    config = bench.config()
    await config.start()
    assert config.spec.paused
