"""`headrace run --cluster`: the controller of all RolloutFleets of a cluster as a process.

Policy: it watches from its start, standby or not, so that a new leader has its lists at once; it acts only while it holds the
lease. A lost lease ends the process: whoever supervises it starts the next one, and nothing of the old leader's memory is
carried over. Health is served throughout; a standby is alive, and not ready.
Invariants: one leader acts; the lease's epoch is the fleets' epoch. Nothing here changes anything on an HTTP call.
"""

import asyncio
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from scaler.act.sharing import Places
from scaler.aws.contract import Aws
from scaler.config.controller import Controller as Settings
from scaler.config.scalars import split_address
from scaler.interruptions.base import NoticeSource
from scaler.interruptions.registry import make_source
from scaler.kube.api import open_api
from scaler.kube.contract import NAMESPACES, KubeApi, KubeError
from scaler.kube.indexes import WatchedNodes, WatchedPods
from scaler.kube.lease import LeaderElector
from scaler.model.clock import Clock
from scaler.runtime.cluster.fleet import FleetRunner
from scaler.runtime.cluster.heap import settle_heap
from scaler.runtime.cluster.notice_hub import NoticeHub
from scaler.runtime.cluster.owners import Owners
from scaler.runtime.cluster.shared import Muster, Shared
from scaler.runtime.fleet_source import FleetKey, FleetSource, Turn
from scaler.runtime.health import Verdict, alive
from scaler.runtime.http import HttpServer
from scaler.runtime.notice_watch import NoticeWatch
from scaler.runtime.status import status_json
from scaler.telemetry.fleets import Fleets, Requests

log = structlog.get_logger()

_CALLS_END_S = 3.0
"""Less than the lease has left: who waits for it loses nothing."""
_ASK_AGAIN_S = 2.0


class ClusterDaemon:
    """One run of the process."""

    def __init__(self, settings: Settings, kubeconfig: Path | None, clock: Clock, identity: str | None = None) -> None:
        self._settings = settings
        self._kubeconfig = kubeconfig
        self._clock = clock
        self._identity = identity or socket.gethostname()
        self._runners: dict[FleetKey, FleetRunner] = {}
        self._registries: dict[str, CollectorRegistry] = {}
        self._elector: LeaderElector | None = None
        self._led_from_s: float | None = None
        self._registry = registry = CollectorRegistry(auto_describe=False)
        registry.register(Fleets(self._registries))
        self._http = HttpServer(registry=registry, alive=self._alive, ready=self._ready, status=self._status)

    async def run(self) -> int:
        """Until a signal; returns the exit code.

        Raises:
            LeadershipLost: another leads, or may.
        """
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, stopped.set)
        api = self._settings.spec.api
        kube = open_api(
            self._kubeconfig, clock=self._clock, qps=float(api.requests_per_s), burst=api.burst, may_write=self._leads
        )
        aws = await self._open_aws()
        self._registry.register(Requests(kube.counts, aws.counts if aws is not None else dict))
        try:
            await self._http.start(*split_address(self._settings.spec.listen))
            log.info("listening", address=self._http.address)
            async with asyncio.TaskGroup() as group:
                work = group.create_task(self._serve(kube, aws))
                stop = group.create_task(stopped.wait())
                await asyncio.wait((work, stop), return_when=asyncio.FIRST_COMPLETED)
                stop.cancel()
                work.cancel()
        finally:
            await self._hand_over(aws)
            await self._http.stop()
            await kube.close()
        log.info("controller_stopped")
        return 0

    async def _hand_over(self, aws: Aws | None) -> None:
        """Let calls that are out end before another leads; nothing new is sent meanwhile."""
        if aws is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CALLS_END_S):
                    await aws.close()
        if self._elector is not None:
            await self._elector.release()

    async def _open_aws(self) -> Aws | None:
        access = self._settings.spec.aws
        if access is None:
            return None
        from scaler.aws.client import open_aws

        return await asyncio.to_thread(
            lambda: open_aws(access.region, clock=self._clock, endpoint_url=access.endpoint_url, may_write=self._leads)
        )

    async def _serve(self, kube: KubeApi, aws: Aws | None) -> None:
        spec, clock = self._settings.spec, self._clock
        nodes = WatchedNodes(kube, clock)
        everywhere = not (spec.namespaces or spec.worker_namespaces)
        pods = WatchedPods(kube, clock, None if everywhere else {*spec.namespaces, *spec.worker_namespaces})
        owners = Owners(nodes, clock)
        fleets = FleetSource(kube, clock=clock, namespaces=spec.namespaces)
        self._elector = elector = LeaderElector(
            kube, namespace=spec.election.namespace, name=spec.election.name, identity=self._identity, clock=clock
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(nodes.run())
            group.create_task(pods.run())
            group.create_task(fleets.run())
            group.create_task(settle_heap(nodes, pods, clock))
            log.info("standby", lease=f"{spec.election.namespace}/{spec.election.name}", identity=elector.identity)
            sources = await self._sources(kube, aws, nodes, owners)
            epoch = await elector.acquire()
            self._led_from_s = clock.monotonic_s()
            log.info("leading", epoch=epoch)
            group.create_task(elector.hold())
            skews = {} if aws is None else {name: aws.ahead_s for name in sources if name != "nodes"}
            hub = NoticeHub(NoticeWatch(sources, clock, ahead_s=skews), clock)
            group.create_task(hub.run())
            shared = Shared(
                clock=clock,
                kube=kube,
                aws=aws,
                nodes=nodes,
                pods=pods,
                places=Places(),
                hub=hub,
                owners=owners,
                muster=Muster(clock),
                leading=lambda: elector.leading,
                state_dir=Path(spec.state_dir),
            )
            await self._follow(fleets, shared, epoch, group)

    async def _follow(self, fleets: FleetSource, shared: Shared, epoch: int, group: asyncio.TaskGroup) -> None:
        """A runner for each fleet that comes; the one of a fleet that goes ends by itself."""
        running: dict[str, asyncio.Task[None]] = {}
        while True:
            for turn in await fleets.turns():
                if turn.turn is Turn.ADDED:
                    runner = FleetRunner(shared, turn.key, epoch=epoch, identity=self._identity)
                    self._runners[turn.key] = runner
                    self._registries[runner.name] = runner.metrics.registry
                    running[runner.name] = group.create_task(_after(running.get(runner.name), runner))
                elif turn.key in self._runners:
                    gone = self._runners.pop(turn.key)
                    gone.stop()
                    if self._registries.get(gone.name) is gone.metrics.registry:
                        del self._registries[gone.name]

    async def _sources(
        self, kube: KubeApi, aws: Aws | None, nodes: WatchedNodes, owners: Owners
    ) -> dict[str, NoticeSource]:
        """The sources that are configured, by name."""
        notices, found = self._settings.spec.notices, dict[str, object]()
        if notices.nodes:
            from scaler.interruptions.nodes import NodeNoticeSettings

            found["nodes"] = NodeNoticeSettings(nodes=nodes, owner=owners, ahead_s=kube.ahead_s)
        if notices.instance_status and aws is not None:
            from scaler.interruptions.instance_status import InstanceStatusSettings

            found["instance_status"] = InstanceStatusSettings(aws=aws, instances=owners.ours)
        if notices.queue is not None and aws is not None:
            from scaler.interruptions.sqs import SqsSettings

            found["sqs"] = SqsSettings(
                aws=aws,
                queue_url=notices.queue.url,
                dead_letter_url=notices.queue.dead_letter_url,
                cluster_uid=await self._cluster_uid(kube),
                owner=owners,
            )
        return {name: make_source(name, settings, clock=self._clock) for name, settings in found.items()}

    async def _cluster_uid(self, kube: KubeApi) -> str:
        """Asked for as standby: nothing but the lease stands between a new leader and its work."""
        while True:
            try:
                return await cluster_uid(kube)
            except KubeError as error:
                log.warning("cluster_unknown", error=str(error))
                await self._clock.sleep(_ASK_AGAIN_S)

    def _leads(self) -> bool:
        return self._elector is not None and self._elector.leading

    def _alive(self) -> Verdict:
        if self._led_from_s is None:
            return Verdict(ok=True, message="standby")
        verdicts = self._verdicts(self._led_from_s)
        return next((each for each in verdicts if not each.ok), Verdict(ok=True, message=f"{len(verdicts)} fleets"))

    def _verdicts(self, led_from_s: float) -> Sequence[Verdict]:
        return [
            Verdict(ok=found.ok, message=f"{runner.name}: {found.message}")
            for runner in self._runners.values()
            if runner.running
            for found in (alive(runner.readout, max(led_from_s, runner.began_s), self._clock),)
        ]

    def _ready(self) -> Verdict:
        if not self._leads():
            return Verdict(ok=False, message="standby: another controller acts")
        return Verdict(ok=True, message="leading")

    def _status(self, last: int) -> dict[str, Any]:
        return {
            "leading": self._leads(),
            "identity": self._identity,
            "leader_epoch": self._elector.epoch if self._elector else 0,
            "fleets": {
                runner.name: status_json(
                    runner.readout,
                    now_s=self._clock.now_s(),
                    address=self._http.address,
                    config=runner.config_json(),
                    decisions=runner.decisions(last),
                )
                for runner in self._runners.values()
            },
        }


async def _after(before: asyncio.Task[None] | None, runner: FleetRunner) -> None:
    """A fleet that is made anew under its name begins once nothing of the old one is left."""
    if before is not None:
        await asyncio.wait((before,))
    await runner.run()


async def cluster_uid(kube: KubeApi) -> str:
    """What tells this cluster from all others: the UID of `kube-system`."""
    found = await kube.get(NAMESPACES, "kube-system")
    return str(found["metadata"]["uid"])
