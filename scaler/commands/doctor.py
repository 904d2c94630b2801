"""`headrace doctor`: why does it do nothing? Looks at everything that a controller needs, and says what to do. It only reads."""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import structlog

from scaler.aws.contract import Aws
from scaler.commands.doctor_checks.base import Level, Line, examine, fail
from scaler.commands.doctor_checks.cluster_world import Access
from scaler.commands.kubeconfig import usual_kubeconfig
from scaler.config.controller import Controller, load_controller
from scaler.config.faults import ConfigError, one_line
from scaler.config.last_good import load_at_start
from scaler.kube.api import open_api
from scaler.kube.contract import KubeError
from scaler.model.clock import Clock
from scaler.runtime.clock import SystemClock
from scaler.runtime.leadership import never

WRONG_INPUT = 2
IN_POD = Path("/etc/headrace/controller.yaml")
"""Where the chart puts the controller's settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """What the command line says. Without `fleet` the file is a fleet's on one machine, else the controller's settings."""

    fleet: str | None = None
    namespace: str = "default"
    file: Path | None = None
    kubeconfig: Path | None = None
    region: str | None = None
    as_json: bool = False


class Misused(Exception):
    """The arguments do not say what to look at."""


def run_doctor(options: DoctorOptions) -> int:
    """0: nothing fails; 1: something does; 2: arguments or configuration that cannot be used."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())  # what adapters log is told as findings
    clock = SystemClock()
    try:
        refused, lines = asyncio.run(_look(options, clock))
    except (Misused, OSError) as error:
        print(error, file=sys.stderr)
        return WRONG_INPUT
    _print(lines, as_json=options.as_json)
    if refused:
        return WRONG_INPUT
    return int(any(line.level is Level.FAIL for line in lines))


async def _look(options: DoctorOptions, clock: Clock) -> tuple[bool, Sequence[Line]]:
    """Whether the configuration is refused, and the lines."""
    try:
        if options.fleet is None:
            return await _look_here(options, clock)
        return await _look_at_cluster(options, clock)
    except ConfigError as error:
        remedy = "until it is mended nothing else can be looked at"
        return True, [fail("configuration", str(fault), remedy) for fault in error.faults]


async def _look_here(options: DoctorOptions, clock: Clock) -> tuple[bool, Sequence[Line]]:
    from scaler.commands.doctor_checks.local_world import open_local
    from scaler.commands.doctor_checks.registry import LOCAL
    from scaler.runtime.daemon import state_files

    if options.file is None:
        raise Misused("name the fleet's file (-f fleet.yaml), or a fleet of a cluster (NAME --namespace NS)")
    if options.kubeconfig or options.region:
        raise Misused("--kubeconfig and --region are for a fleet of a cluster: name it")
    files = state_files(options.file)
    start = load_at_start(options.file, files.last_good)
    return bool(start.faults), await examine(LOCAL, await open_local(options.file, start, files, clock))


async def _look_at_cluster(options: DoctorOptions, clock: Clock) -> tuple[bool, Sequence[Line]]:
    from scaler.aws.client import open_aws
    from scaler.commands.controller_answers import url_of
    from scaler.commands.doctor_checks.http_probes import hear
    from scaler.config.scalars import split_address

    settings = _settings(options)
    if settings is not None and options.region:
        raise Misused("the controller's settings name the region: leave --region out")
    access = settings.spec.aws if settings is not None else None
    region = access.region if access is not None else options.region
    endpoint = access.endpoint_url if access is not None else None
    config = usual_kubeconfig(options.kubeconfig)
    kube, reviews = open_api(config, clock=clock, may_write=never), open_api(config, clock=clock)
    aws: Aws | None = None
    if region is not None:
        aws = await asyncio.to_thread(lambda: open_aws(region, clock=clock, endpoint_url=endpoint, may_write=never))
    at_home = settings is not None and config is None
    heard = await hear(url_of(*split_address(settings.spec.listen))) if settings is not None and at_home else None
    try:
        return await look_at_fleet(
            Access(
                clock=clock,
                kube=kube,
                reviews=reviews,
                aws=aws,
                settings=settings,
                namespace=options.namespace,
                name=options.fleet or "",
                heard=heard,
            )
        )
    finally:
        await kube.close()
        await reviews.close()
        if aws is not None:
            await aws.close()


def _settings(options: DoctorOptions) -> Controller | None:
    """Those named, or those of the pod that this is."""
    if options.file is not None:
        return load_controller(options.file)
    at_home = options.kubeconfig is None and IN_POD.exists()
    return load_controller(IN_POD) if at_home else None


async def look_at_fleet(access: Access) -> tuple[bool, Sequence[Line]]:
    """Whether the spec is refused, and all that can be looked at; one line where the API server does not answer."""
    from scaler.commands.doctor_checks.cluster_world import open_cluster
    from scaler.commands.doctor_checks.registry import CLUSTER
    from scaler.commands.doctor_checks.rights import who_asks

    try:
        user = await who_asks(access.reviews)
    except KubeError as error:
        return False, [fail("API server", str(error), "see --kubeconfig, KUBECONFIG and the network")]
    async with open_cluster(access, user) as world:
        return bool(world.faults), await examine(CLUSTER, world)


def _print(lines: Sequence[Line], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"ok": _is_ok(lines), "lines": [asdict(line) for line in lines]}, indent=1))
        return
    width = max(map(len, Level))
    for line in lines:
        remedy = f" -> {one_line(line.remedy)}" if line.remedy else ""
        print(f"{line.level:{width}}  {one_line(line.about)}: {one_line(line.found)}{remedy}")
    counts = ", ".join(f"{count} {level}" for level in Level if (count := sum(line.level is level for line in lines)))
    print(f"\n{counts}")


def _is_ok(lines: Sequence[Line]) -> bool:
    return not any(line.level is Level.FAIL for line in lines)
