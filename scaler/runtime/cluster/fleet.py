"""One fleet of a cluster: its configuration, controller, nodes, guard, status and Events, in a task group of their own.

Policy: a fleet that breaks is begun anew after a while, and no other fleet hears of it; only a lost leadership, or a later
leader of this cluster, is everybody's. A ledger that knows a later epoch while we lead has another cluster's controller at work,
or had one: that fleet rests, until we have led for so long that a new epoch, which begins at the time of day, is worth the
process's new start. A fleet that was deleted is let go: nothing of its capacity is touched.
Invariants: nothing is decided before the journal carries our epoch, and nodes and pods have been listed.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import structlog

from scaler.act.nodes import NodeKeeper, NodeMark
from scaler.act.trainer_repairs import TrainerRepairs
from scaler.config.convert import job_settings
from scaler.decide import decide
from scaler.guard.protect import Protector
from scaler.guard.watch import GuardWatch, trainers_of
from scaler.kube.contract import ROLLOUT_FLEETS, NotFound
from scaler.kube.facts import FLEET_LABEL, NodeFacts, PodFacts
from scaler.kube.waiting import within
from scaler.ledger.contract import StaleEpoch
from scaler.model.job import JobSettings
from scaler.observe.ledger_watch import LedgerWatch
from scaler.observe.offerings import OfferingMemory
from scaler.observe.trainers import Ports, TrainerObserver
from scaler.runtime.cluster.kube_journal import KubeJournal, Succeeded
from scaler.runtime.cluster.pools import ClusterActors, places_of
from scaler.runtime.cluster.reporter import Reporter
from scaler.runtime.cluster.shared import Shared
from scaler.runtime.cluster.worker_pods import workers_of
from scaler.runtime.drainer import Drainer
from scaler.runtime.ender import Ender
from scaler.runtime.executor import Executor
from scaler.runtime.fleet_events import fleet_of
from scaler.runtime.fleet_source import FleetKey
from scaler.runtime.housekeeping import keep_house
from scaler.runtime.job_rules import JobRules
from scaler.runtime.journal import Journal
from scaler.runtime.kube_config import KubeConfigWatch
from scaler.runtime.launcher import Launcher
from scaler.runtime.ledger_thread import LedgerThread
from scaler.runtime.loop import Controller, Parts
from scaler.runtime.marks import NodeMarks
from scaler.runtime.outcomes import Outcomes
from scaler.runtime.pool_watch import PoolWatch
from scaler.runtime.sources import ledger_opener, signal_sources
from scaler.runtime.status_writer import StatusWriter
from scaler.telemetry.events import EventRecorder
from scaler.telemetry.metrics import Metrics
from scaler.telemetry.readout import Readout

log = structlog.get_logger()

_FIRST_RETRY_S = 2.0
_LONGEST_RETRY_S = 60.0
_RESIGN_AFTER_S = 600.0
_LOOK_S = 0.1


class FleetRunner:
    """See the module's docstring."""

    def __init__(self, shared: Shared, key: FleetKey, *, epoch: int, identity: str) -> None:
        self._shared = shared
        self._key = key
        self._epoch = epoch
        self._identity = identity
        self._controller: Controller | None = None
        self._journal: KubeJournal | None = None
        self._config: KubeConfigWatch | None = None
        self._stopped = asyncio.Event()
        self._since_s = self.began_s = shared.clock.monotonic_s()
        """When this run of the fleet began, monotonic."""
        self.name = f"{key.namespace}.{key.name}"
        self.metrics = Metrics(shared.clock, lambda: self.readout)
        shared.muster.expect(self.name)

    @property
    def readout(self) -> Readout:
        """The last tick."""
        return self._controller.readout if self._controller else Readout(leading=True, leader_epoch=self._epoch)

    def decisions(self, last: int) -> list[dict[str, Any]]:
        """The last decisions of this process, newest first."""
        return self._journal.decisions(last) if self._journal else []

    @property
    def running(self) -> bool:
        """Whether it decides: not while it cannot be begun, nor once its object is gone."""
        return self._controller is not None

    def config_json(self) -> dict[str, Any]:
        """The configuration in use, for the status."""
        config = self._config
        if config is None:
            return {"ok": False, "digest": "", "faults": ["not read yet"]}
        return {"ok": not config.faults, "digest": config.digest, "faults": list(config.faults)}

    def stop(self) -> None:
        """The fleet is no more: let it go."""
        self._stopped.set()

    async def run(self) -> None:
        """Until cancelled, or the fleet is gone; begun anew after whatever breaks.

        Raises:
            StaleEpoch: a later leader acts.
        """
        structlog.contextvars.bind_contextvars(of=self.name)
        wait_s = _FIRST_RETRY_S
        while not self._stopped.is_set():
            self.began_s = began_s = self._shared.clock.monotonic_s()
            try:
                await self._once()
                self._shared.muster.here(self.name)
                return
            except* Succeeded:
                raise
            except* StaleEpoch:
                if self._is_to_resign():
                    raise
                log.exception("fleet_has_another_controller", fleet=self.name, epoch=self._epoch)
            except* Exception:
                log.exception("fleet_broke", fleet=self.name)
            if self._shared.clock.monotonic_s() - began_s > _LONGEST_RETRY_S:
                wait_s = _FIRST_RETRY_S
            self._controller = None
            self._shared.muster.here(self.name)
            await self._rest(wait_s)
            wait_s = min(_LONGEST_RETRY_S, 2 * wait_s)

    def _is_to_resign(self) -> bool:
        """Whether a new epoch is worth its price to all other fleets: they are begun anew with it."""
        led_s = self._shared.clock.monotonic_s() - self._since_s
        return led_s > _RESIGN_AFTER_S or not self._shared.leading()

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await within(self._shared.clock, seconds, self._stopped.wait())

    async def _read_config(self) -> KubeConfigWatch | None:
        """The fleet's configuration; None: its object is gone."""
        key = self._key
        config = KubeConfigWatch(
            self._shared.kube, namespace=key.namespace, name=key.name, clock=self._shared.clock, metrics=self.metrics
        )
        try:
            await config.start()
        except NotFound:
            return None
        return config if config.state.uid == key.uid else None

    async def _lists(self) -> None:
        """Wait until nodes and pods have been listed: who owns an instance, and which are a trainer's, is told by them."""
        shared = self._shared
        if shared.nodes.current_at_s is None or shared.pods.current_at_s is None:
            log.info("waiting_for_lists", fleet=self.name)
        while shared.nodes.current_at_s is None or shared.pods.current_at_s is None:
            await shared.clock.sleep(_LOOK_S)

    async def _once(self) -> None:
        shared = self._shared
        config = await self._read_config()
        if config is None:
            log.info("fleet_gone", fleet=self.name)
            return
        self._config = config
        await self._lists()
        self._journal = journal = await self._open_journal()
        fleet = config.fleet
        calls, slow_calls = (LedgerThread(ledger_opener(fleet)) for _ in range(2))
        try:
            async with asyncio.TaskGroup() as group:
                work = group.create_task(self._work(config, journal, calls, slow_calls, group))
                ways = [group.create_task(event.wait()) for event in (config.gone, self._stopped)]
                await asyncio.wait((work, *ways), return_when=asyncio.FIRST_COMPLETED)
                log.info("fleet_gone", fleet=self.name)
                raise _Gone
        except* _Gone:
            self._stopped.set()
        finally:
            self._controller = None
            for each in (calls, slow_calls):
                each.close()
            journal.close()
            shared.hub.leave(self._key.uid)
            shared.owners.forget(self._key.uid)
            self._journal = None

    async def _open_journal(self) -> KubeJournal:
        key = self._key
        owner = {
            "apiVersion": ROLLOUT_FLEETS.api_version,
            "kind": ROLLOUT_FLEETS.kind,
            "name": key.name,
            "uid": key.uid,
        }
        file = self._shared.state_dir / key.namespace / f"{key.name}-{self._epoch}.sqlite"
        journal = KubeJournal(
            self._shared.kube,
            namespace=key.namespace,
            fleet=key.name,
            owner=owner,
            epoch=self._epoch,
            decisions=Journal(file, durable=False),
        )
        await journal.open()
        return journal

    async def _work(
        self,
        config: KubeConfigWatch,
        journal: KubeJournal,
        calls: LedgerThread,
        slow_calls: LedgerThread,
        group: asyncio.TaskGroup,
    ) -> None:
        shared, key = self._shared, self._key
        events = EventRecorder(
            shared.kube, clock=shared.clock, about=fleet_of(key.namespace, key.name, key.uid), identity=self._identity
        )
        guard, protector = self._guard(config)
        keeper = self._keeper(protector, workers_of(lambda: config.fleet))
        actors = ClusterActors(shared, lambda: config.fleet, protector.guards, self._refused, group)
        reporter = Reporter(
            clock=shared.clock,
            config=config,
            guard=guard,
            events=events,
            writer=StatusWriter(
                shared.kube,
                clock=shared.clock,
                namespace=key.namespace,
                name=key.name,
                uid=key.uid,
                seen=lambda: config.body,
            ),
            identity=self._identity,
        )
        self._controller = controller = self._build(config, journal, calls, actors, keeper, protector, reporter)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(controller.run(tasks))
                tasks.create_task(config.watch(controller.wake))
                tasks.create_task(keep_house(slow_calls, shared.clock, lambda: not config.spec.dry_run))
                tasks.create_task(keeper.run())
                tasks.create_task(guard.run())
                tasks.create_task(reporter.run())
                tasks.create_task(events.run())
        finally:
            await actors.close()

    def _guard(self, config: KubeConfigWatch) -> tuple[GuardWatch, Protector]:
        shared = self._shared
        protector = Protector(
            clock=shared.clock,
            nodes=shared.nodes,
            pods=shared.pods,
            trainers=lambda: trainers_of(config.spec),
            fleet=lambda: self.name,
            places=lambda: places_of(config.fleet),
            count=lambda kind: self.metrics.trainer_vetoes.labels(kind).inc(),
        )
        watch = GuardWatch(
            clock=shared.clock,
            observer=TrainerObserver(
                Ports(kube=shared.kube, nodes=shared.nodes, pods=shared.pods, aws=shared.aws, clock=shared.clock)
            ),
            repairs=TrainerRepairs(
                kube=shared.kube,
                aws=shared.aws,
                clock=shared.clock,
                count=lambda kind, outcome: self.metrics.trainer_repairs.labels(kind.value, outcome.value).inc(),
            ),
            protector=protector,
            spec=lambda: config.spec,
            places=lambda: places_of(config.fleet),
            leads=shared.leading,
        )
        return watch, protector

    def _keeper(self, protector: Protector, workers: Callable[[PodFacts], bool]) -> NodeKeeper:
        shared = self._shared

        def marked(mark: NodeMark, after_s: float) -> None:
            if mark.noticed_at_s is not None:
                self.metrics.notice_to_taint.observe(max(0.0, after_s))

        def objection(node: NodeFacts) -> str | None:
            owner = node.labels.get(FLEET_LABEL)
            if owner and owner != self.name:
                return f"it belongs to fleet {owner}"
            return protector.against_node(node.name, node.uid)

        return NodeKeeper(
            kube=shared.kube,
            nodes=shared.nodes,
            pods=shared.pods,
            clock=shared.clock,
            fleet=self.name,
            objection=objection,
            marked=marked,
            may_act=shared.leading,
            workers=workers,
        )

    def _build(
        self,
        config: KubeConfigWatch,
        journal: KubeJournal,
        calls: LedgerThread,
        actors: ClusterActors,
        keeper: NodeKeeper,
        protector: Protector,
        reporter: Reporter,
    ) -> Controller:
        shared, metrics, clock = self._shared, self.metrics, self._shared.clock
        offerings, outcomes = OfferingMemory(), Outcomes(clock, metrics, reporter.outcome)
        watch = LedgerWatch(calls, clock)
        executor = Executor(
            launcher=Launcher(
                clock=clock,
                offerings=offerings,
                outcomes=outcomes,
                metrics=metrics,
                may_act=shared.leading,
                urgent=lambda: keeper.behind,
            ),
            drainer=Drainer(clock=clock, calls=calls, outcomes=outcomes, metrics=metrics, epoch=self._epoch),
            ender=Ender(clock=clock, calls=calls, outcomes=outcomes, may_act=shared.leading),
            outcomes=outcomes,
            objection=protector.objection,
        )
        notices = shared.hub.join(self._key.uid, self._wake)
        return Controller(
            Parts(
                clock=clock,
                config=config,
                actors=actors,
                rules=JobRules(calls, lambda: _rules(config)),
                ledger=watch,
                signals=signal_sources(config.fleet, watch, clock),
                pools=PoolWatch(clock),
                notices=notices,
                offerings=offerings,
                executor=executor,
                journal=journal,
                metrics=metrics,
                leader_epoch=self._epoch,
                decide=decide,
                marks=NodeMarks(keeper),
                may_act=shared.leading,
                mustered=self._mustered,
                after_turn=lambda readout: self._after(readout, reporter),
            )
        )

    async def _mustered(self) -> None:
        self._shared.muster.here(self.name)
        await self._shared.muster.complete()

    def _wake(self) -> None:
        if self._controller is not None:
            self._controller.wake.set()

    def _refused(self) -> None:
        if self._controller is not None:
            self._controller.refused.set()

    def _after(self, readout: Readout, reporter: Reporter) -> None:
        if readout.snapshot is not None:
            replicas = (replica for stage in readout.snapshot.stages for replica in stage.replicas)
            self._shared.owners.listed(self._key.uid, (each for replica in replicas for each in replica.instance_ids))
        reporter.tick(readout)


class _Gone(Exception):
    """The fleet's object was deleted."""


def _rules(config: KubeConfigWatch) -> JobSettings | None:
    return None if config.spec.dry_run else job_settings(config.fleet)
