"""The configuration in use, from one RolloutFleet object of the API server.

Policy: as with a file (`config_watch`): an accepted change applies at the next tick, a refused one is logged once, counted
and told until the spec is good again, and what needs a restart is refused with that remedy. The spec last accepted is told
as `state.accepted`, for the object's status: a controller that starts while the spec is bad goes on with it.
While the installed definition keeps other fields than this controller knows, or nobody can say, the fleet is held: nothing
is scaled, and notices are answered.
Invariants: an object is known by its UID; another one of the same name is not this fleet, and neither is one that is being
made anew. A deleted object changes nothing here: `gone` tells whoever runs the controller.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from scaler.config.convert import to_spec
from scaler.config.crd import NAME, installed_hash, schema_hash
from scaler.config.custom_object import Accepted, accepted, last_accepted, place_of, read_fleet, spec_digest
from scaler.config.diff import changes
from scaler.config.faults import ConfigError, Fault
from scaler.config.reload import Outcome, restart_faults
from scaler.config.schema import RolloutFleet
from scaler.kube.contract import DEFINITIONS, ROLLOUT_FLEETS, Json, KubeApi, KubeError, NotFound
from scaler.kube.reflector import Reflector
from scaler.model.clock import Clock
from scaler.model.spec import FleetSpec
from scaler.telemetry.metrics import Metrics

log = structlog.get_logger()

_DEFINITION_EVERY_S = 60.0
"""A definition changes with an upgrade; a minute of holding after it is not felt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigState:
    """What became of the object's spec, for its status."""

    uid: str
    generation: int
    """Of the spec last looked at."""
    digest: str
    """Of the configuration in use."""
    accepted: Accepted
    """The spec in use."""
    faults: tuple[str, ...]
    """Why the spec as it is now is not in use."""
    schema_current: bool | None
    """Whether the installed definition is ours; None: it could not be read."""
    schema_message: str
    paused: bool
    """As the operator wants it."""
    dry_run: bool


async def definition_state(kube: KubeApi) -> tuple[bool, str]:
    """Whether the installed definition is the one that this controller knows, and that in words. Raises `KubeError`."""
    try:
        found = installed_hash(await kube.get(DEFINITIONS, NAME))
    except NotFound:
        return False, f"there is no definition {NAME}"
    if found == schema_hash():
        return True, f"the definition has schema {found}"
    return False, (
        f"holding: the installed definition has schema {found or 'unknown'}, this controller knows "
        f"{schema_hash()} (apply deploy/crd of this release)"
    )


class KubeConfigWatch:
    """See the module's docstring. `start` before anything else."""

    _body: Json
    _fleet: RolloutFleet
    _spec: FleetSpec
    _digest: str
    _accepted: Accepted

    def __init__(self, kube: KubeApi, *, namespace: str, name: str, clock: Clock, metrics: Metrics) -> None:
        self._kube, self._clock, self._metrics = kube, clock, metrics
        self._namespace, self._name = namespace, name
        self._faults: tuple[str, ...] = ()
        self._schema_current: bool | None = None
        self._schema_message = "the definition has not been read yet"
        self.gone = asyncio.Event()
        """Set when the object is deleted."""

    async def start(self) -> None:
        """Read object and definition. `NotFound` where there is no such fleet, `ConfigError` where nothing of it can be used.

        Any `KubeError` of reading the object.
        """
        body = await self._kube.get(ROLLOUT_FLEETS, self._name, namespace=self._namespace)
        self._body = body
        await self._read_definition()
        try:
            self._use(read_fleet(body), accepted(body))
        except ConfigError as error:
            kept = last_accepted(body)
            if kept is None:
                raise
            self._use(*kept)
            self._refuse(error.faults)

    @property
    def fleet(self) -> RolloutFleet:
        """The fleet as configured."""
        return self._fleet

    @property
    def spec(self) -> FleetSpec:
        """What the engine decides by: held, as if paused, unless the definition is known to be ours."""
        return self._spec if self._schema_current else replace(self._spec, paused=True)

    @property
    def digest(self) -> str:
        """Tells one configuration from another."""
        return self._digest

    @property
    def faults(self) -> Sequence[str]:
        """Why the spec as it is now is not used; empty: it is used."""
        return self._faults

    @property
    def body(self) -> Json:
        """The object as last seen."""
        return self._body

    @property
    def state(self) -> ConfigState:
        """What became of the spec."""
        return ConfigState(
            uid=self._body["metadata"]["uid"],
            generation=int(self._body["metadata"].get("generation", 0)),
            digest=self._digest,
            accepted=self._accepted,
            faults=self._faults,
            schema_current=self._schema_current,
            schema_message=self._schema_message,
            paused=self._fleet.spec.paused,
            dry_run=self._fleet.spec.dry_run,
        )

    async def watch(self, wake: asyncio.Event) -> None:
        """Follow object and definition, and set `wake` when something else is to be used; never returns."""
        reflector: Reflector[Json] = Reflector(
            self._kube,
            ROLLOUT_FLEETS,
            clock=self._clock,
            keep=lambda body: body,
            namespace=self._namespace,
            field_selector=f"metadata.name={self._name}",
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(reflector.run())
            group.create_task(self._watch_object(reflector, wake))
            group.create_task(self._watch_definition(wake))

    async def _watch_object(self, reflector: Reflector[Json], wake: asyncio.Event) -> None:
        while True:
            await reflector.changed()
            if self.seen(reflector.items.get(self._body["metadata"]["uid"])) is Outcome.CHANGED:
                wake.set()

    async def _watch_definition(self, wake: asyncio.Event) -> None:
        while True:
            await self._clock.sleep(_DEFINITION_EVERY_S)
            before = self._schema_current
            await self._read_definition()
            if self._schema_current != before:
                wake.set()

    async def _read_definition(self) -> None:
        try:
            current, message = await definition_state(self._kube)
        except KubeError as error:
            self._say_unread(error)
        else:
            self._definition(current=current, message=message)

    def _say_unread(self, error: KubeError) -> None:
        """What was known stays known; before that nobody can say."""
        if self._schema_current is None:
            self._schema_message = f"holding: the definition cannot be read: {error}"
        log.warning("definition_unread", error=str(error))

    def _definition(self, *, current: bool, message: str) -> None:
        if current is not self._schema_current or message != self._schema_message:
            (log.info if current else log.warning)("definition_read", current=current, detail=message)
        self._schema_current, self._schema_message = current, message

    def seen(self, body: Json | None) -> Outcome:
        """The object of this UID as it is now; None: it is gone. Only a new spec can change anything."""
        if body is not None:
            self._body = body
            return self._judge(body)
        if not self.gone.is_set():
            log.warning("fleet_deleted", fleet=place_of(self._body))
        self.gone.set()
        return Outcome.UNCHANGED

    def _judge(self, body: Json) -> Outcome:
        if spec_digest(body.get("spec") or {}) == self._accepted.digest:
            self._faults = ()
            self._accepted = accepted(body)
            return Outcome.UNCHANGED
        try:
            fleet = read_fleet(body)
        except ConfigError as error:
            return self._refuse(error.faults)
        found = changes(self._fleet, fleet)
        unsafe = restart_faults(found, place_of(body))
        if unsafe:
            return self._refuse(unsafe)
        self._faults = ()
        self._use(fleet, accepted(body))
        if not found:
            return Outcome.UNCHANGED
        self._metrics.reloads.labels("accepted").inc()
        log.info("config_accepted", digest=self._digest, changes=[change.path for change in found])
        return Outcome.CHANGED

    def _refuse(self, faults: Sequence[Fault]) -> Outcome:
        lines = tuple(str(fault) for fault in faults)
        if lines != self._faults:
            self._metrics.reloads.labels("rejected").inc()
            log.warning("config_rejected", faults=lines)
        self._faults = lines
        return Outcome.REJECTED

    def _use(self, fleet: RolloutFleet, spec: Accepted) -> None:
        self._fleet, self._accepted = fleet, spec
        self._spec = to_spec(fleet)
        self._digest = hashlib.sha256(fleet.model_dump_json().encode()).hexdigest()[:12]
