"""The engines against their contract, and what each promises beyond it."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import torch

from rollout_worker.clock import SystemClock
from rollout_worker.engines.base import Engine, EngineError, TokenChunk, UnitError
from rollout_worker.engines.keyed import uniform
from rollout_worker.engines.registry import open_engine
from scaler.model.weights import WEIGHTS_FILE
from scaler.model.work import FinishReason
from tests.builders.engines import (
    MAX_LEN,
    a_model_body,
    a_request,
    collect,
    load,
    logprobs_of,
    model_mapping,
    opened,
    publish_model,
    tokens_of,
)
from tests.builders.worker import publish_weights
from tests.rollout_worker.engine_contract import EngineContract
from trainer.moe import MoEConfig, TinyMoE, model_from


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("weights")
    return publish_model(root, 1), publish_model(root, 2)


class TestTorch(EngineContract):
    @pytest.fixture
    async def engine(self, versions: tuple[Path, Path]) -> AsyncIterator[Engine]:
        async with opened("torch", {"slots": "4"}) as engine:
            await load(engine, versions[0])
            yield engine


class TestDryRun(EngineContract):
    @pytest.fixture
    async def engine(self, versions: tuple[Path, Path]) -> AsyncIterator[Engine]:
        async with opened("dry-run", {"slots": "4", "steps_per_s": "0"}) as engine:
            await load(engine, versions[0])
            yield engine


def recomputed(model: TinyMoE, request_prompt: tuple[int, ...], tokens: tuple[int, ...]) -> list[float]:
    """Log-probabilities of `tokens` after the prompt by one full pass without a cache."""
    text = torch.tensor([[*request_prompt, *tokens]])
    with torch.inference_mode():
        logits = model(text, torch.arange(text.shape[1])[None])
    chances = torch.log_softmax(logits[0].double(), dim=-1)
    first = len(request_prompt) - 1
    return [float(chances[first + i, token]) for i, token in enumerate(tokens)]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-5)])
async def test_torch_log_probabilities_are_those_of_a_full_pass(
    versions: tuple[Path, Path], dtype: str, tolerance: float
) -> None:
    request = a_request(max_tokens=40)
    async with opened("torch", {"dtype": dtype}) as engine:
        await load(engine, versions[0])
        chunks = await collect(engine, request)
    model = model_from(MoEConfig.from_mapping(model_mapping()), versions[0] / WEIGHTS_FILE, dtype=getattr(torch, dtype))
    assert logprobs_of(chunks) == pytest.approx(recomputed(model, request.prompt, tokens_of(chunks)), abs=tolerance)


async def test_torch_tokens_are_the_same_with_and_without_interruptions(versions: tuple[Path, Path]) -> None:
    """Cut anywhere, beside any batch mates, continued on another engine: token by token the same."""
    draw = random.Random(3)
    seeds = range(12)
    async with opened("torch") as first, opened("torch", {"slots": "3"}) as second:
        for engine in (first, second):
            await load(engine, versions[0])
        whole = {seed: await collect(first, a_request(f"w{seed}", seed=seed, max_tokens=50)) for seed in seeds}
        cut = await asyncio.gather(*(in_pieces((first, second), draw, seed) for seed in seeds))
    for seed, (tokens, logprobs) in zip(seeds, cut, strict=True):
        assert tokens == tokens_of(whole[seed])
        assert logprobs == pytest.approx(logprobs_of(whole[seed]), abs=1e-12)


async def in_pieces(
    engines: tuple[Engine, Engine], draw: random.Random, seed: int
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """50 tokens of one unit, each piece of random length on a random engine."""
    chunks: list[TokenChunk] = []
    while len(tokens_of(chunks)) < 50:
        request = a_request(f"c{seed}", seed=seed, prefix=tokens_of(chunks), max_tokens=50)
        chunks += await collect(draw.choice(engines), request, at_most=draw.randint(1, 25))
    return tokens_of(chunks), logprobs_of(chunks)


async def test_torch_goes_on_under_new_weights_as_if_all_had_been_read_by_them(versions: tuple[Path, Path]) -> None:
    """The cache is computed anew: log-probabilities after the switch are those of a full pass of the new policy."""
    request = a_request(max_tokens=40)
    chunks = []
    async with opened("torch") as engine:
        await load(engine, versions[0])
        async for chunk in engine.generate(request):
            chunks.append(chunk)
            if len(chunks) == 10:
                await load(engine, versions[1])
    config = MoEConfig.from_mapping(model_mapping())
    old, new = (model_from(config, folder / WEIGHTS_FILE, dtype=torch.float64) for folder in versions)
    switch = [chunk.version for chunk in chunks].index(2)
    by_old = recomputed(old, request.prompt, tokens_of(chunks))
    by_new = recomputed(new, request.prompt, tokens_of(chunks))
    assert logprobs_of(chunks) == pytest.approx(by_old[:switch] + by_new[switch:], abs=1e-12)
    assert by_old[switch:] != pytest.approx(by_new[switch:], abs=1e-3)


async def test_torch_log_probabilities_are_those_at_the_temperature(versions: tuple[Path, Path]) -> None:
    request = a_request(temperature=0.5)
    async with opened("torch") as engine:
        await load(engine, versions[0])
        chunks = await collect(engine, request)
    model = model_from(MoEConfig.from_mapping(model_mapping()), versions[0] / WEIGHTS_FILE, dtype=torch.float64)
    model.head.weight.data.mul_(2.0)
    assert logprobs_of(chunks) == pytest.approx(recomputed(model, request.prompt, tokens_of(chunks)), abs=1e-12)


async def test_torch_ends_at_the_end_token_and_does_not_go_on_after_it(tmp_path: Path) -> None:
    folder = publish_weights(tmp_path, 1, body=a_model_body(1), model=model_mapping() | {"end_token": 5})
    async with opened("torch") as engine:
        await load(engine, folder)
        ended = [await collect(engine, a_request(f"r{seed}", seed=seed, max_tokens=60)) for seed in range(8)]
        stopped = [chunks for chunks in ended if chunks[-1].finish_reason is FinishReason.STOP]
        assert stopped
        assert all(tokens_of(chunks).index(5) == len(tokens_of(chunks)) - 1 for chunks in stopped)
        (last,) = await collect(engine, a_request(prefix=tokens_of(stopped[0]), max_tokens=60))
        assert (last.tokens, last.finish_reason) == ((), FinishReason.STOP)


async def test_torch_samples_each_token_as_often_as_the_policy_says(versions: tuple[Path, Path]) -> None:
    """4000 first tokens against the policy: the largest deviation is below 4 standard errors."""
    count = 4000
    async with opened("torch", {"slots": "64"}) as engine:
        await load(engine, versions[0])
        requests = [a_request(f"r{seed}", seed=3 * seed, max_tokens=1) for seed in range(count)]
        done = await asyncio.gather(*(collect(engine, request) for request in requests))
    model = model_from(MoEConfig.from_mapping(model_mapping()), versions[0] / WEIGHTS_FILE, dtype=torch.float64)
    seen = torch.bincount(torch.tensor([tokens_of(chunks)[0] for chunks in done]), minlength=16) / count
    with torch.inference_mode():
        chances = torch.softmax(model(torch.tensor([[1, 2, 3]]), torch.arange(3)[None])[0, -1], dim=-1)
    errors = (seen - chances).abs() / (chances * (1 - chances) / count).sqrt()
    assert float(errors.max()) < 4.0


async def test_torch_refuses_a_unit_longer_than_its_model(versions: tuple[Path, Path]) -> None:
    async with opened("torch") as engine:
        await load(engine, versions[0])
        longest = await collect(engine, a_request("fits", max_tokens=MAX_LEN - 2))
        assert len(tokens_of(longest)) == MAX_LEN - 2
        with pytest.raises(UnitError, match="65 positions"):
            await collect(engine, a_request("long", max_tokens=MAX_LEN - 1))


@pytest.mark.parametrize(
    ("body", "model"),
    [
        pytest.param(b"no safetensors", None, id="no safetensors file"),
        pytest.param(None, {"dim": 32}, id="weights of another shape"),
        pytest.param(None, {"colour": 3}, id="an unknown architecture"),
    ],
)
async def test_torch_keeps_its_weights_where_new_ones_cannot_be_loaded(
    tmp_path: Path, versions: tuple[Path, Path], body: bytes | None, model: dict[str, int] | None
) -> None:
    folder = publish_weights(tmp_path, 2, body=body or a_model_body(2), model=model_mapping() | (model or {}))
    async with opened("torch") as engine:
        await load(engine, versions[0])
        with pytest.raises(EngineError, match=folder.name):
            await load(engine, folder)
        chunks = await collect(engine, a_request())
        assert {chunk.version for chunk in chunks} == {1}
        assert await engine.healthy()


async def test_torch_without_weights_is_infrastructure_trouble() -> None:
    async with opened("torch") as engine:
        assert engine.version() is None
        with pytest.raises(EngineError, match="no weights"):
            await collect(engine, a_request())


async def test_torch_paces_its_steps(versions: tuple[Path, Path]) -> None:
    clock = SystemClock()
    async with opened("torch", {"steps_per_s": "100"}) as engine:
        await load(engine, versions[0])
        start_s = clock.monotonic_s()
        await collect(engine, a_request(max_tokens=20))
        assert clock.monotonic_s() - start_s >= 20 / 100


@pytest.mark.parametrize("name", ["torch", "dry-run"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slots": "many"}, "slots='many': int expected"),
        ({"slots": "0"}, "at least 1"),
        ({"steps_per_s": "-1"}, "at least 0"),
        ({"colour": "red"}, "unknown engine option 'colour'"),
    ],
)
def test_a_wrong_option_is_named(name: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_engine(name, options, SystemClock())


def test_an_unknown_engine_is_answered_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="dry-run, torch"):
        open_engine("steam", {}, SystemClock())


def test_draws_are_even_and_depend_on_seed_and_position_alone() -> None:
    draws = [uniform(seed, position) for seed in (-5, 0, 2**63 + 1) for position in range(2000)]
    assert len(set(draws)) == len(draws)
    assert draws[:2] == [uniform(-5, 0), uniform(-5, 1)]
    tenths = [sum(tenth / 10 <= draw < (tenth + 1) / 10 for draw in draws) for tenth in range(10)]
    assert sum(tenths) == 6000
    assert all(500 < count < 700 for count in tenths)
