"""What every engine promises (`rollout_worker.engines.base`): a suite to inherit, given a started and loaded engine.

A subclass has a fixture `engine` (at version 1, at least 4 slots) and one `versions`: folders of versions 1 and 2. Both
have the vocabulary of `tests.builders.engines`, no end token, and room for 64 positions.
"""

import asyncio
import math
from pathlib import Path

import pytest

from rollout_worker.engines.base import Engine, EngineError, UnitError
from scaler.model.work import FinishReason
from tests.builders.engines import VOCAB, a_request, collect, load, logprobs_of, tokens_of


class EngineContract:
    """See the module's docstring."""

    async def test_a_stream_has_whole_chunks_of_one_version_and_one_finish_reason_at_its_end(
        self, engine: Engine
    ) -> None:
        chunks = await collect(engine, a_request(max_tokens=10))
        assert all(len(chunk.tokens) == len(chunk.logprobs) for chunk in chunks)
        assert all(0 <= token < VOCAB for token in tokens_of(chunks))
        assert all(logprob <= 0 and math.isfinite(logprob) for logprob in logprobs_of(chunks))
        assert {chunk.version for chunk in chunks} == {1}
        assert [chunk.finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + [FinishReason.TOKEN_BOUND]
        assert len(tokens_of(chunks)) == 10

    async def test_the_token_bound_counts_the_prefix(self, engine: Engine) -> None:
        chunks = await collect(engine, a_request(prefix=(4, 5, 6), max_tokens=5))
        assert len(tokens_of(chunks)) == 2
        assert chunks[-1].finish_reason is FinishReason.TOKEN_BOUND

    async def test_a_prefix_at_the_bound_ends_at_once_without_tokens(self, engine: Engine) -> None:
        (chunk,) = await collect(engine, a_request(prefix=(4, 5, 6), max_tokens=3))
        assert (chunk.tokens, chunk.finish_reason) == ((), FinishReason.TOKEN_BOUND)

    async def test_generations_that_share_the_engine_do_not_change_each_other(self, engine: Engine) -> None:
        requests = [a_request(f"r{seed}", seed=seed, max_tokens=5 + seed) for seed in range(6)]
        alone = [tokens_of(await collect(engine, request)) for request in requests]
        together = await asyncio.gather(*(collect(engine, request) for request in requests))
        assert [tokens_of(chunks) for chunks in together] == alone
        assert len(set(alone)) > 1

    async def test_a_generation_continues_from_a_prefix_as_if_it_had_never_stopped(self, engine: Engine) -> None:
        whole = await collect(engine, a_request())
        for cut in (1, 7, 23):
            rest = await collect(engine, a_request(prefix=tokens_of(whole)[:cut]))
            assert tokens_of(rest) == tokens_of(whole)[cut:]
            assert logprobs_of(rest) == pytest.approx(logprobs_of(whole)[cut:], abs=1e-9)

    async def test_an_aborted_generation_ends_without_a_finish_reason(self, engine: Engine) -> None:
        stream = engine.generate(a_request(max_tokens=60))
        first = await anext(stream)
        await engine.abort("r@0")
        rest = [chunk async for chunk in stream]
        assert [chunk.finish_reason for chunk in (first, *rest)] == [None] * (1 + len(rest))
        assert engine.load().running == 0

    async def test_an_unknown_id_is_not_worth_an_error(self, engine: Engine) -> None:
        await engine.abort("nobody")

    async def test_more_generations_than_slots_wait_for_their_turn(self, engine: Engine) -> None:
        many = engine.load().capacity + 3
        requests = [a_request(f"r{seed}", seed=seed) for seed in range(many)]
        done = await asyncio.gather(*(collect(engine, request) for request in requests))
        assert [len(tokens_of(chunks)) for chunks in done] == [24] * many

    async def test_an_abort_frees_the_slot_of_a_generation_and_the_place_of_a_waiting_one(self, engine: Engine) -> None:
        requests = [a_request(f"r{seed}", seed=seed) for seed in range(3 * engine.load().capacity)]
        await asyncio.gather(*(collect(engine, request, at_most=2) for request in requests))
        assert len(tokens_of(await collect(engine, a_request("after")))) == 24

    async def test_new_weights_act_at_a_token_boundary_and_the_chunks_say_so(
        self, engine: Engine, versions: tuple[Path, Path]
    ) -> None:
        chunks = []
        async for chunk in engine.generate(a_request(max_tokens=50)):
            chunks.append(chunk)
            if len(chunks) == 5:
                await load(engine, versions[1])
        seen = [chunk.version for chunk in chunks]
        assert seen == sorted(seen)
        assert set(seen) == {1, 2}
        assert len(tokens_of(chunks)) == 50
        assert engine.version() == 2

    @pytest.mark.parametrize(
        "faults",
        [pytest.param({"max_tokens": 0}, id="no room"), pytest.param({"prefix": (VOCAB,)}, id="an unknown token")],
    )
    async def test_a_request_that_can_never_be_served_is_the_units_own_failure(
        self, engine: Engine, faults: dict[str, int]
    ) -> None:
        with pytest.raises(UnitError):
            await collect(engine, a_request(**faults))  # type: ignore[arg-type]  # by name
        assert len(tokens_of(await collect(engine, a_request("after")))) == 24

    async def test_a_closed_engine_is_unhealthy_and_refuses_as_infrastructure(self, engine: Engine) -> None:
        assert await engine.healthy()
        await engine.close()
        assert not await engine.healthy()
        with pytest.raises(EngineError):
            await collect(engine, a_request())

    async def test_closing_ends_what_is_in_flight(self, engine: Engine) -> None:
        stream = engine.generate(a_request(max_tokens=60))
        await anext(stream)
        await engine.close()
        with pytest.raises(EngineError):
            [chunk async for chunk in stream]
