"""What can go wrong, by name: each kind does one thing to a world, with draws of its own."""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING

from scaler.ledger.contract import LedgerError
from scaler.model.interruption import InterruptionNotice, NoticeKind
from tests.faults.cloud import TRAINER_INSTANCE, Machine
from tests.faults.setup import WARNING_S, static_size, with_stage
from tests.faults.virtual_loop import START_S
from tests.faults.workers import WorkerProcess

if TYPE_CHECKING:
    from tests.faults.world import World

Kind = Callable[["World", Random], None]


def _living(world: "World") -> list[Machine]:
    return sorted(world.cloud.living(), key=lambda machine: machine.launched_s)


def _some_worker(world: "World", random: Random) -> WorkerProcess | None:
    alive = [process for process in world.hosts.processes.values() if process.alive]
    return random.choice(alive) if alive else None


# --- the cloud ------------------------------------------------------------------------------------------------------


def _burst(world: "World", random: Random) -> None:
    """An offering is taken back, all or much of it, with warnings that come in time, late or never."""
    living = _living(world)
    if not living:
        return
    offering = random.choice(living).offering_id
    victims = [machine for machine in living if machine.offering_id == offering]
    victims = victims[: random.randint(1, len(victims))]
    _short(world, offering, len(living) - len(victims), random.uniform(20.0, 60.0))
    for machine in victims:
        _interrupt(world, random, machine)


def _interrupt(world: "World", random: Random, machine: Machine) -> None:
    warning_s = random.choice((WARNING_S, WARNING_S, WARNING_S, WARNING_S, 14.0, 0.5))
    notice = world.cloud.interrupt(machine, warning_s=warning_s, spared=random.random() < 0.15)
    to_controller, to_node = random.choice(
        ((0.0, 0.0), (0.0, None), (0.0, None), (None, 0.0), (6.0, 1.0), (None, None))
    )
    if to_controller is not None:
        world.later(to_controller, lambda: world.cloud.tell(notice, wakes=random.random() < 0.7))
    if to_controller is not None and random.random() < 0.3:
        world.later(to_controller + random.uniform(0.0, 8.0), lambda: world.cloud.tell(notice))
    if to_node is not None:
        world.later(to_node, lambda: _tell_node(world, machine, notice))


def _tell_node(world: "World", machine: Machine, notice: InterruptionNotice) -> None:
    process = world.hosts.processes.get(machine.instance_id)
    if process is not None and notice.deadline_s is not None:
        process.hear_notice(notice.deadline_s - START_S)


def _short(world: "World", offering: str, holds: int, seconds: float) -> None:
    before = world.cloud.capacity[offering]
    world.cloud.capacity[offering] = max(0, min(before, holds))

    def back() -> None:
        world.cloud.capacity[offering] = max(before, world.cloud.capacity[offering])

    world.later(seconds, back)


def _vanish(world: "World", random: Random) -> None:
    """An instance goes without a word."""
    living = _living(world)
    if living:
        world.cloud.end(random.choice(living), "vanished")


def _refusals(world: "World", random: Random) -> None:
    """Nothing more is to be had of some offerings."""
    for offering in sorted(world.cloud.capacity):
        if random.random() < 0.6:
            _short(world, offering, 0, random.uniform(15.0, 50.0))


def _pool_away(world: "World", random: Random) -> None:
    troubles, until_s = world.cloud.troubles, world.loop.time() + random.uniform(5.0, 45.0)
    troubles.away_until_s[random.choice(("spot", "reserve"))] = until_s


def _partial_lists(world: "World", random: Random) -> None:
    world.cloud.troubles.partial_until_s = world.loop.time() + random.uniform(5.0, 40.0)


def _cloud_hangs(world: "World", random: Random) -> None:
    world.cloud.troubles.hangs_until_s = world.loop.time() + random.uniform(5.0, 35.0)


def _adapter_broken(world: "World", random: Random) -> None:
    world.cloud.troubles.broken_until_s = world.loop.time() + random.uniform(5.0, 25.0)


def _answers_lost(world: "World", random: Random) -> None:
    world.cloud.troubles.loss = random.uniform(0.3, 0.9)
    world.cloud.troubles.slowness_s = random.choice((0.0, 4.0))
    world.later(random.uniform(15.0, 50.0), lambda: _answers_again(world))


def _answers_again(world: "World") -> None:
    world.cloud.troubles.loss = world.cloud.troubles.slowness_s = 0.0


def _stillborn(world: "World", random: Random) -> None:
    """What is launched does not start, or takes longer than it may."""
    troubles = world.cloud.troubles
    troubles.stillborn, troubles.slow_boot = random.choice(((0.7, 0.0), (0.0, 0.6), (0.3, 0.3)))
    world.later(random.uniform(15.0, 40.0), lambda: _start_again(world))


def _start_again(world: "World") -> None:
    world.cloud.troubles.stillborn = world.cloud.troubles.slow_boot = 0.0


def _odd_notices(world: "World", random: Random) -> None:
    """Foreign, malformed, contradictory, doubled and hints."""
    now_s = START_S + world.loop.time()
    living = _living(world)
    names = [TRAINER_INSTANCE, "i-of-nobody"] + [machine.instance_id for machine in living[:2]]
    for name in names:
        real = name.startswith("i-") or random.random() < 0.3
        kind = NoticeKind.SPOT_INTERRUPTION if real else NoticeKind.REBALANCE_RECOMMENDATION
        deadline_s = random.choice((now_s + WARNING_S, now_s - 1000.0, math.nan, math.inf, None))
        notice = InterruptionNotice(instance_id=name, kind=kind, noticed_at_s=now_s, deadline_s=deadline_s)
        for _ in range(random.randint(1, 2)):
            world.cloud.tell(notice, wakes=random.random() < 0.5)


def _changing_notice(world: "World", random: Random) -> None:
    """Two notices for one instance, with different deadlines, in either order; it goes at the earlier one."""
    living = [machine for machine in _living(world) if machine.taken_s is None]
    if not living:
        return
    notice = world.cloud.interrupt(random.choice(living), warning_s=20.0)
    later = replace(notice, deadline_s=(notice.deadline_s or 0.0) + 15.0)
    first, second = random.sample((notice, later), 2)
    world.cloud.tell(first)
    world.later(random.uniform(0.0, 8.0), lambda: world.cloud.tell(second))
    _calls_doubled(world, random)


def _notices_broken(world: "World", random: Random) -> None:
    world.cloud.troubles.notices_broken_until_s = world.loop.time() + random.uniform(5.0, 35.0)


# --- workers --------------------------------------------------------------------------------------------------------


def _kill_worker(world: "World", random: Random) -> None:
    process = _some_worker(world, random)
    if process is not None:
        world.hosts.restart(process, leave_old=False)


def _twin_worker(world: "World", random: Random) -> None:
    """A new process of the same name while the old one goes on."""
    process = _some_worker(world, random)
    if process is not None:
        world.hosts.restart(process, leave_old=True)


def _stopped_worker(world: "World", random: Random) -> None:
    """SIGSTOP, and SIGCONT after its leases have run out."""
    process = _some_worker(world, random)
    if process is not None:
        process.sleeps_until_s = world.loop.time() + random.uniform(10.0, 35.0)


def _engine_trouble(world: "World", random: Random) -> None:
    world.hosts.engines.infrastructure, world.hosts.engines.slow_call = random.choice(
        ((0.3, 0.0), (0.0, 0.4), (0.2, 0.2))
    )
    world.later(random.uniform(15.0, 40.0), lambda: _engine_again(world))


def _engine_again(world: "World") -> None:
    world.hosts.engines.infrastructure = world.hosts.engines.slow_call = 0.0


# --- the store ------------------------------------------------------------------------------------------------------


def _store_away(world: "World", random: Random) -> None:
    _out_of_reach(world, "all", random.uniform(4.0, 45.0))


def _cut_off(world: "World", random: Random) -> None:
    """One of its clients cannot reach the store."""
    worker = _some_worker(world, random)
    others = ["controller", "controller", "trainer"]
    _out_of_reach(
        world, random.choice(others + ([worker.identity.worker] if worker else [])), random.uniform(10.0, 60.0)
    )


def _out_of_reach(world: "World", client: str, seconds: float) -> None:
    world.store.away_until_s[client] = world.loop.time() + seconds


def _store_flaky(world: "World", random: Random) -> None:
    world.store.loss = random.uniform(0.1, 0.5)
    world.later(random.uniform(10.0, 40.0), lambda: _store_steady(world))


def _store_steady(world: "World") -> None:
    world.store.loss = 0.0


def _calls_doubled(world: "World", random: Random) -> None:
    """A network that delivers calls twice, the second time late."""
    world.store.doubles_until_s = world.loop.time() + random.uniform(20.0, 60.0)


def _store_restarts(world: "World", random: Random) -> None:
    world.store.restart()
    _out_of_reach(world, "all", random.uniform(0.0, 8.0))


def _store_hangs(world: "World", random: Random) -> None:
    world.plug.ledger_hangs_until_s = world.loop.time() + random.uniform(5.0, 30.0)


def _store_clock_steps(world: "World", random: Random) -> None:
    world.store_clock.step(random.choice((-20.0, -5.0, 5.0, 20.0, 120.0)))


# --- the controller -------------------------------------------------------------------------------------------------


def _kill_controller(world: "World", random: Random) -> None:
    world.leaders.away_s = random.choice((0.1, 1.0, 5.0, 30.0))
    world.leaders.kill()


def _crash_at_journal(world: "World", random: Random) -> None:
    """The next plan that commands something is persisted and not carried out, or not even persisted."""
    world.leaders.away_s = random.choice((0.1, 1.0, 12.0))
    world.plug.crash_at = random.choice(("before", "after", "after"))


def _controller_clock_steps(world: "World", random: Random) -> None:
    world.controller_clock.step(random.choice((-15.0, -3.0, 3.0, 15.0)))


def _old_leader(world: "World", random: Random) -> None:
    world.leaders.kill()
    world.leaders.away_s = 0.1
    world.later(random.uniform(1.0, 25.0), lambda: world.leaders.old_one_speaks(random))


def _superseded(world: "World", random: Random) -> None:
    """A newer controller, elsewhere, has spoken to the ledger."""
    world.leaders.away_s = random.choice((0.1, 20.0))
    with suppress(LedgerError):
        world.store.speak_as_newer_leader()


def _signal_gap(world: "World", random: Random) -> None:
    world.plug.gap = random.choice(("missing", "stale", "nan", "negative", "infinite"))
    world.plug.gap_began_s = world.loop.time()
    world.later(random.uniform(8.0, 50.0), lambda: _signals_again(world))


def _signals_again(world: "World") -> None:
    world.plug.gap = None


def _resized(world: "World", random: Random) -> None:
    """Somebody changes the configuration."""
    ceiling = world.fleet.stages[0].guard_rails.max_replicas
    world.change_fleet(static_size(world.fleet, random.randint(1, ceiling)))


def _ceiling_lowered(world: "World", random: Random) -> None:
    rails = world.fleet.stages[0].guard_rails
    world.change_fleet(with_stage(world.fleet, guard_rails=replace(rails, max_replicas=random.randint(2, 6))))


def _paused(world: "World", random: Random) -> None:
    world.change_fleet(replace(world.fleet, paused=True))
    world.later(random.uniform(10.0, 40.0), lambda: world.change_fleet(replace(world.fleet, paused=False)))


def _dry_run(world: "World", random: Random) -> None:
    world.change_fleet(replace(world.fleet, dry_run=True))
    world.later(random.uniform(10.0, 25.0), lambda: world.change_fleet(replace(world.fleet, dry_run=False)))


# --- the trainer ----------------------------------------------------------------------------------------------------


def _kill_trainer(world: "World", random: Random) -> None:
    """Anywhere, or on the way from a batch to its acknowledgement."""
    world.trainers.kill_at = random.choice(("now", "train", "checkpoint", "publish", "acknowledge"))
    world.trainers.away_s = random.choice((0.5, 5.0, 30.0))


def _old_trainer(world: "World", random: Random) -> None:
    world.trainers.kill_at, world.trainers.away_s = "now", 0.5
    world.later(random.uniform(8.0, 20.0), world.trainers.old_one_speaks)


FAULTS: Mapping[str, Kind] = MappingProxyType(
    {
        function.__name__.removeprefix("_"): function
        for function in (
            _burst, _vanish, _refusals, _pool_away, _partial_lists, _cloud_hangs, _adapter_broken, _answers_lost,
            _stillborn, _odd_notices, _changing_notice, _notices_broken,
            _kill_worker, _twin_worker, _stopped_worker, _engine_trouble,
            _store_away, _cut_off, _store_flaky, _calls_doubled, _store_restarts, _store_hangs, _store_clock_steps,
            _kill_controller, _crash_at_journal, _controller_clock_steps, _old_leader, _superseded, _signal_gap,
            _resized, _ceiling_lowered, _paused, _dry_run,
            _kill_trainer, _old_trainer,
        )
    }
)  # fmt: skip
"""Every kind by its name, in the order in which schedules draw them."""
