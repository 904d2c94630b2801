"""The agent against a real ledger, in this process: the engine makes a token only when the test allows one."""

import math
import signal
import struct
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rollout_worker.engines.base import EngineError, GenerateRequest, TokenChunk, UnitError
from rollout_worker.engines.dry_run import DryRunEngine, DryRunOptions
from rollout_worker.engines.keyed import uniform
from rollout_worker.token_counter import read_token_counter
from scaler.ledger.history import EventKind
from scaler.model.weights import WEIGHTS_FILE
from scaler.model.work import FinishReason, PolicyVersion, ReleaseReason, Resume, VersionSpan
from tests.builders.engines import VOCAB, GateClock
from tests.builders.worker import a_unit, publish_weights
from tests.builders.worker_world import World, a_world, an_agent, configure, quick_agent, until

UNIT = a_unit()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with a_world(tmp_path) as world:
        yield world


def undisturbed(tokens: int, seed: int = UNIT.seed) -> tuple[int, ...]:
    """What the dry-run engine says without any interruption."""
    return tuple(int(uniform(seed, position) * VOCAB) for position in range(tokens))


async def test_units_are_leased_generated_and_committed(world: World) -> None:
    units = [a_unit(f"g{i}", max_tokens=5 + i, seed=i) for i in range(12)]
    world.put(*units)
    async with an_agent(world, concurrency=3) as running:
        running.gate.open()
        await until(lambda: world.committed() == 12)
        assert read_token_counter(running.counter) == sum(unit.max_tokens for unit in units)
    by_unit = {group.units[0].unit_id: group.samples[0] for group in world.samples()}
    for unit in units:
        sample = by_unit[unit.unit_id]
        assert sample.tokens == undisturbed(unit.max_tokens, unit.seed)
        assert sample.logprobs == pytest.approx((-math.log(VOCAB),) * unit.max_tokens)
        assert sample.spans == (VersionSpan(0, unit.max_tokens, 1),)
        assert sample.finish_reason is FinishReason.TOKEN_BOUND


async def test_every_tick_looks_at_what_a_kill_would_lose(world: World) -> None:
    def at_risk() -> tuple[int, ...]:
        return struct.unpack("<QQ", running.counter.read_bytes()[8:])

    world.put(UNIT)
    async with an_agent(world, permits=7, publish_progress=False) as running:
        await until(lambda: world.has_worker() and world.worker().status.tokens_generated == 7)
        looks, tokens = at_risk()
        await until(lambda: at_risk()[0] >= looks + 10)
        more, later = at_risk()
        assert later - tokens == 7 * (more - looks)


async def test_heartbeats_say_how_it_is(world: World) -> None:
    world.put(UNIT)
    async with an_agent(world, permits=7, publish_progress=False):
        await until(lambda: world.has_worker() and world.worker().status.tokens_generated == 7)
        status = world.worker().status
        assert (status.ready, status.version, status.running_units, status.capacity_units) == (True, 1, 1, 8)
        assert status.unpublished_tokens == 7
        assert world.worker().identity.instance_id == "i-w"


async def test_progress_published_before_a_kill_is_what_the_next_worker_continues_from(world: World) -> None:
    world.put(UNIT)
    async with an_agent(world, permits=9, agent=quick_agent(lease_ttl_s=0.5)) as running:
        await running.published(9)
    async with an_agent(world, worker="next") as running:
        running.gate.open()
        await until(lambda: world.committed() == 1)
        assert running.machine.tokens_generated == UNIT.max_tokens - 9
    assert world.samples()[0].samples[0].tokens == undisturbed(UNIT.max_tokens)
    assert world.ledger.stats().tokens.salvaged == 9


async def test_with_the_no_progress_switch_the_next_worker_starts_anew(world: World) -> None:
    world.put(UNIT)
    agent = quick_agent(grace_s=0.01)
    async with an_agent(world, permits=9, agent=agent, publish_progress=False) as running:
        await running.generated(9)
        running.agent.drain_on(signal.SIGTERM)
        assert await running.ended() == 0
    async with an_agent(world, worker="next") as running:
        running.gate.open()
        await until(lambda: world.committed() == 1)
        assert running.machine.tokens_generated == UNIT.max_tokens
    assert world.ledger.stats().tokens.salvaged == 0


async def test_a_restart_unit_that_lost_its_worker_starts_from_its_prompt(world: World) -> None:
    world.put(a_unit(resume=Resume.RESTART))
    async with an_agent(world, permits=9, agent=quick_agent(grace_s=0.01)) as running:
        await running.generated(9)
        running.agent.drain_on(signal.SIGTERM)
        assert await running.ended() == 0
    async with an_agent(world, worker="next") as running:
        running.gate.open()
        await until(lambda: world.committed() == 1)
        assert running.machine.tokens_generated == UNIT.max_tokens


async def test_while_the_ledger_is_away_the_engine_goes_on_and_nothing_is_lost(world: World) -> None:
    world.put(UNIT, a_unit("other", seed=90, max_tokens=40))
    async with an_agent(world, permits=4) as running:
        await running.generated(4)
        running.switch.away = True
        running.gate.allow(50)
        await running.generated(50)
        assert world.committed() == 0
        running.switch.away = False
        running.gate.open()
        await until(lambda: world.committed() == 2)
        assert running.machine.tokens_generated == 60
    assert {group.attempts for group in world.samples()} == {(1,)}


async def test_a_lease_that_ran_out_while_the_ledger_was_away_is_left_to_its_new_holder(world: World) -> None:
    world.put(UNIT)
    async with an_agent(world, permits=4, agent=quick_agent(lease_ttl_s=0.3)) as running:
        await running.published(4)
        running.switch.away = True
        async with an_agent(world, worker="next") as successor:
            await until(lambda: bool(successor.machine.units))
            running.switch.away = False
            await until(lambda: not running.machine.units)
            successor.gate.open()
            await until(lambda: world.committed() == 1)
    (sample,) = world.samples()[0].samples
    assert sample.tokens == undisturbed(UNIT.max_tokens)


async def test_it_waits_for_a_job_that_is_not_configured_yet(tmp_path: Path) -> None:
    with a_world(tmp_path, configured=False) as world:
        async with an_agent(world) as running:
            running.gate.open()
            await until(lambda: running.machine.ready and running.machine.registered)
            configure(world)
            world.put(UNIT)
            await until(lambda: world.committed() == 1)


async def test_new_weights_are_loaded_while_running_and_spans_say_so(world: World) -> None:
    world.put(UNIT)
    async with an_agent(world, permits=6) as running:
        await running.generated(6)
        publish_weights(world.weights, 2, body=b"newer")
        await until(lambda: running.machine.version == 2)
        running.gate.open()
        await until(lambda: world.committed() == 1)
    assert world.samples()[0].samples[0].spans == (VersionSpan(0, 6, 1), VersionSpan(6, UNIT.max_tokens, 2))


async def test_corrupt_weights_are_never_loaded(world: World) -> None:
    (publish_weights(world.weights, 2, body=b"newer") / WEIGHTS_FILE).write_bytes(b"wrong")
    world.put(UNIT)
    async with an_agent(world) as running:
        running.gate.open()
        await until(lambda: world.committed() == 1)
    assert {span.version for span in world.samples()[0].samples[0].spans} == {1}


async def test_it_is_not_ready_and_leases_nothing_before_the_minimum_version(world: World) -> None:
    world.put(UNIT)
    async with an_agent(world, min_version=2) as running:
        running.gate.open()
        await until(lambda: world.has_worker() and world.worker().status.version == 1)
        assert not world.worker().status.ready
        assert world.ledger.stats().running == 0
        publish_weights(world.weights, 2, body=b"newer")
        await until(lambda: world.committed() == 1 and world.worker().status.ready)


class FaultyEngine(DryRunEngine):
    """Fails the first generation of each unit, with an error, after three tokens."""

    def __init__(self, gate: GateClock, error: Exception) -> None:
        super().__init__(DryRunOptions(vocab=VOCAB), gate)
        self._error = error
        self._failed = False

    async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenChunk]:
        count = 0
        async for chunk in super().generate(request):
            yield chunk
            count += 1
            if count == 3 and not self._failed:
                self._failed = True
                raise self._error


async def test_an_engine_failure_costs_no_retry_and_no_token(world: World) -> None:
    world.put(UNIT)
    async with an_agent(world, engine=lambda gate: FaultyEngine(gate, EngineError("out of memory"))) as running:
        running.gate.open()
        await until(lambda: world.committed() == 1)
        assert running.machine.tokens_generated == UNIT.max_tokens
    (release,) = world.history_of(EventKind.RELEASED, UNIT.unit_id)
    assert (release["reason"], release["progress"]) == (ReleaseReason.INFRASTRUCTURE, 3)


async def test_a_units_own_failure_counts_to_its_limit_and_keeps_its_error(tmp_path: Path) -> None:
    with a_world(tmp_path, unit_failure_limit=1, group_redraw_limit=0) as world:
        world.put(UNIT)
        async with an_agent(world, engine=lambda gate: FaultyEngine(gate, UnitError("prompt too long"))) as running:
            running.gate.open()
            await until(lambda: bool(world.ledger.dead_letters()))
        (letter,) = world.ledger.dead_letters()
        assert (letter.unit_id, letter.failures, letter.error) == (UNIT.unit_id, 1, "prompt too long")


class LopsidedEngine(DryRunEngine):
    """Says fewer log-probabilities than tokens, once."""

    def __init__(self, gate: GateClock) -> None:
        super().__init__(DryRunOptions(vocab=VOCAB), gate)
        self._done = False

    async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenChunk]:
        if not self._done:
            self._done = True
            yield TokenChunk(tokens=(1, 2), logprobs=(-1.0,), version=1)
        async for chunk in super().generate(request):
            yield chunk


async def test_tokens_without_log_probabilities_are_not_taken(world: World) -> None:
    world.put(UNIT)
    async with an_agent(world, engine=LopsidedEngine) as running:
        running.gate.open()
        await until(lambda: world.committed() == 1)
    assert world.samples()[0].samples[0].tokens == undisturbed(UNIT.max_tokens)


async def test_a_unit_that_can_no_longer_be_used_is_abandoned(tmp_path: Path) -> None:
    with a_world(tmp_path, max_staleness=0) as world:
        epoch = world.ledger.attach_trainer("trainer")
        publish_to_ledger(world, epoch, 1)
        world.put(UNIT)
        async with an_agent(world, permits=6) as running:
            await running.published(6)
            publish_to_ledger(world, epoch, 3)
            await until(lambda: not running.machine.units)
        assert world.history_of(EventKind.COMMITTED, UNIT.unit_id) == []


def publish_to_ledger(world: World, epoch: int, step: int) -> None:
    world.ledger.publish(epoch, PolicyVersion(step, "0" * 64))
