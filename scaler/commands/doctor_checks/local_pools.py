"""Pools of processes, and the notice files of this machine: looked at as they lie there, nothing is created or moved on."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scaler.act.local import LocalPoolSettings
from scaler.commands.doctor_checks.base import Line, fail, ok, warn
from scaler.commands.doctor_checks.local_world import LocalWorld, may_create_in, nearest
from scaler.config.convert import to_spec
from scaler.config.faults import ConfigError
from scaler.interruptions.base import SourceHealth
from scaler.localcloud.state import StateDir
from scaler.runtime.adapters import notice_sources, pool_settings


async def pools(world: LocalWorld) -> Sequence[Line]:
    """Of each pool its command, its folder and its offerings, and what the controller says of it."""
    try:
        settings = pool_settings(world.fleet)
    except (ConfigError, TypeError, ValueError) as error:
        return [fail("pools", str(error), "this fleet is for a cluster: headrace run --cluster")]
    told = _told(world.status or {})
    offerings = {
        pool.name: [each.offering_id for each in pool.offerings]
        for stage in to_spec(world.fleet).stages
        for pool in stage.pools
    }
    return [
        line
        for name, (_, each) in settings.items()
        if isinstance(each, LocalPoolSettings)
        for line in (*_pool(name, each, offerings[name]), *_as_told(name, each, told.get(name, {}), world.status or {}))
    ]


def _told(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {pool["pool"]: pool for stage in status.get("stages", ()) for pool in stage["pools"]}


def _pool(name: str, settings: LocalPoolSettings, offerings: Sequence[str]) -> Iterator[Line]:
    about, state = f"pool {name}", StateDir(settings.state_dir)
    program = settings.command[0]
    if shutil.which(program) is None:
        yield fail(
            about, f"its command {program!r} is no program that can be run", "install it, or name its whole path"
        )
    folder = nearest(state.root)
    if not may_create_in(folder):
        yield fail(about, f"{folder} may not be written", "allow it, or name another stateDir")
        return
    try:
        listed, capacity = state.list_instances(), state.read_capacity()
    except (OSError, ValueError) as error:
        yield fail(about, f"cannot be listed: {error}", "mend or remove that file")
        return
    running = sum(record.alive and record.pool == name for record in listed.records)
    yield ok(
        about,
        f"can be listed: {running} running in {state.root}; offers {', '.join(offerings)}; "
        f"its workers' own output lies in {state.logs}",
    )
    if listed.skipped:
        yield warn(about, f"{listed.skipped} records cannot be read", f"look into {state.instances}")
    nothing = [offering for offering in offerings if capacity.get(offering) == 0]
    if nothing:
        yield warn(about, f"no capacity now for {', '.join(nothing)}", f"it is what {state.capacity_file} says")


def _as_told(
    name: str, settings: LocalPoolSettings, told: Mapping[str, Any], status: Mapping[str, Any]
) -> Iterator[Line]:
    about = f"pool {name}"
    if told.get("refused_reason"):
        yield fail(about, f"refused: {told['refused_reason']}", "as it says; the controller looks again by itself")
    failed = status.get("sources", {}).get("pools_away", {}).get(name)
    if failed:
        yield fail(about, f"the controller has failed to list it {failed} times in a row", "see pool_away in its log")
    for offering in told.get("offerings", ()):
        if offering["refusals"]:
            because = f": {offering['refused_because']}" if offering.get("refused_because") else ""
            found = f"{offering['offering']} was refused {offering['refusals']} times in a row{because}"
            remedy = "nothing to do where capacity is short: it is tried again, later and later; why workers die is in "
            yield warn(about, found, f"{remedy}{StateDir(settings.state_dir).logs}")


async def notices(world: LocalWorld) -> Sequence[Line]:
    """Each source is asked once."""
    lines = []
    for name, source in notice_sources(world.fleet, world.clock).items():
        try:
            standing = await source.current()
        except OSError as error:
            lines.append(fail(f"notices {name}", f"cannot be read: {error}", "allow it"))
            continue
        lines.append(_source(f"notices {name}", len(standing), source.health()))
    return lines


def _source(about: str, standing: int, health: SourceHealth) -> Line:
    found = f"answers; {standing} stand"
    if health.malformed or health.foreign:
        odd = f"{health.malformed} files are no notices, {health.foreign} about instances that never were"
        return warn(about, f"{found}; {odd}", "see who writes them")
    return ok(about, found)
