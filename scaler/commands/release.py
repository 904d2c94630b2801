"""`headrace release`: take a fleet's marks off nodes, workers and instances, and nothing else. Capacity stays as it is.

Policy: look, take away, look again, until nothing is found: a change of somebody else's in between costs another look. Refused
while a controller could put marks back: a fleet that is there must be paused or in dry run, and its status must say so.
Idempotent, and made for a fleet whose object is gone too.
"""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scaler.act import release_instances, release_marks
from scaler.act.release_marks import Marks, Who
from scaler.act.release_step import Step
from scaler.aws.contract import Aws, AwsError
from scaler.commands.kubeconfig import usual_kubeconfig
from scaler.config.controller import load_controller
from scaler.config.custom_object import read_fleet
from scaler.config.faults import ConfigError
from scaler.config.providers import LocalProvider
from scaler.kube.api import open_api
from scaler.kube.contract import ROLLOUT_FLEETS, Conflict, Json, KubeApi, KubeError, NotFound
from scaler.model.clock import Clock
from scaler.runtime.clock import SystemClock

_LOOKS = 5
_BETWEEN_LOOKS_S = 1.0
"""What was written shows in lists a moment later on AWS."""


class Refused(Exception):
    """It may not be done now; the text says what to do first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseOptions:
    """What the command line says."""

    fleet: str
    namespace: str
    kubeconfig: Path | None
    controller: Path | None
    """Settings of the controller, for its access to AWS; None: instances are left as they are."""
    dry_run: bool


@dataclass(slots=True, kw_only=True)
class Found:
    """One look."""

    steps: list[Step] = field(default_factory=list)
    last: list[Step] = field(default_factory=list)
    """Only once all others are done."""
    left: list[str] = field(default_factory=list)

    @property
    def all(self) -> list[Step]:
        """In order."""
        return [*self.steps, *self.last]


def run_release(options: ReleaseOptions) -> int:
    """0: nothing of the fleet's is left; 1: something is; 2: refused, or settings that cannot be used; 3: no answer."""
    try:
        return asyncio.run(_run(options, SystemClock()))
    except (ConfigError, Refused) as error:
        print(error, file=sys.stderr)
        return 2
    except (KubeError, AwsError, OSError) as error:
        print(f"no answer: {error}", file=sys.stderr)
        return 3


async def _run(options: ReleaseOptions, clock: Clock) -> int:
    access = load_controller(options.controller).spec.aws if options.controller else None
    aws: Aws | None = None
    if access is not None:
        from scaler.aws.client import open_aws

        aws = await asyncio.to_thread(lambda: open_aws(access.region, clock=clock, endpoint_url=access.endpoint_url))
    kube = open_api(usual_kubeconfig(options.kubeconfig), clock=clock)
    try:
        return await _release(Releaser(kube=kube, aws=aws, clock=clock, options=options))
    finally:
        await kube.close()
        if aws is not None:
            await aws.close()


async def _release(releaser: "Releaser") -> int:
    if releaser.options.dry_run:
        found = await releaser.look()
        _say([f"would take from {step}" for step in found.all], found.left)
        return 0
    for _ in range(_LOOKS):
        found = await releaser.look()
        if not found.all:
            break
        await releaser.carry_out(found)
        await releaser.clock.sleep(_BETWEEN_LOOKS_S)
    _say([f"still there: {step}" for step in found.all], found.left)
    if found.all:
        return 1
    but = " but for the above" if found.left else ""
    print(
        f"nothing of fleet {releaser.options.namespace}/{releaser.options.fleet} is left{but}; its capacity is as it was"
    )
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Releaser:
    """Looks and takes away; checks with every look that it may."""

    kube: KubeApi
    aws: Aws | None
    clock: Clock
    options: ReleaseOptions

    async def look(self) -> Found:
        """What there is to take away now. `Refused` where a controller would put it back."""
        options = self.options
        body = await self._fleet()
        if body is not None:
            _check(body)
        who = Who(namespace=options.namespace, name=options.fleet, worker_namespaces=_worker_namespaces(body))
        marks: Marks = await release_marks.look(self.kube, who, now_s=self.clock.now_s())
        found = Found(steps=marks.others, last=marks.nodes, left=marks.left)
        if self.aws is None:
            found.left.append("instances were not looked at: name the controller's settings (--controller)")
        else:
            found.steps = [
                *found.steps,
                *await release_instances.look(self.aws, who.key, marks.instance_ids),
            ]
        return found

    async def carry_out(self, found: Found) -> None:
        """Nodes last, and only if all else went well: their labels say where the rest is."""
        done = [await self._do(step) for step in found.steps]
        if all(done):
            for step in found.last:
                await self._do(step)

    async def _do(self, step: Step) -> bool:
        try:
            await step.act()
        except NotFound:
            return True
        except Conflict:
            return False
        print(f"taken from {step}")
        return True

    async def _fleet(self) -> Json | None:
        try:
            return await self.kube.get(ROLLOUT_FLEETS, self.options.fleet, namespace=self.options.namespace)
        except NotFound:
            return None


def _check(body: Json) -> None:
    """Paused or in dry run, as wanted and as taken up: else a controller puts back what is taken away."""
    spec, status = body.get("spec") or {}, body.get("status") or {}
    named = f"{body['metadata']['namespace']}/{body['metadata']['name']}"
    if not (spec.get("paused") or spec.get("dryRun", True)):
        raise Refused(
            f"fleet {named} is at work, and its controller would put everything back: pause it first (kubectl -n "
            f"{body['metadata']['namespace']} patch rolloutfleet {body['metadata']['name']} --type merge "
            """-p '{"spec":{"paused":true}}'), or delete it: that changes no capacity"""
        )
    if status and not (status.get("paused") or status.get("dryRun")):
        raise Refused(
            f"fleet {named} is to rest, and its status does not say so yet: wait for its controller; where none runs any "
            "more, delete the fleet: that changes no capacity"
        )


def _worker_namespaces(body: Json | None) -> frozenset[str]:
    """Where the spec says that workers are; a spec that cannot be read says nothing."""
    try:
        fleet = read_fleet(body) if body is not None else None
    except ConfigError:
        return frozenset()
    pools = [pool for stage in fleet.spec.stages for pool in stage.pools] if fleet else []
    providers = [pool.provider for pool in pools if not isinstance(pool.provider, LocalProvider)]
    return frozenset(provider.worker_set.namespace or "" for provider in providers) - {""}


def _say(lines: Sequence[str], left: Sequence[str]) -> None:
    for line in (*lines, *left):
        print(line)
