"""Engines for tests: opened and loaded, collected to the end, and a dry-run engine whose every token a test allows."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rollout_worker.clock import SystemClock
from rollout_worker.engines.base import Engine, GenerateRequest, TokenChunk
from rollout_worker.engines.dry_run import DryRunEngine, DryRunOptions
from rollout_worker.engines.registry import open_engine
from scaler.model.weights import MANIFEST_FILE, WeightManifest
from tests.builders.worker import publish_weights

if TYPE_CHECKING:
    from trainer.moe import MoEConfig

VOCAB = 16
MAX_LEN = 64
NO_END = -1


def a_model_body(seed: int) -> bytes:
    """Weights that the torch engine takes; far from uniform, so that a wrong token would show."""
    from trainer.moe import TinyMoE, dump_weights

    model = TinyMoE(_config(), seed=seed)
    model.head.weight.data.mul_(20.0)
    return dump_weights(model)


def model_mapping() -> dict[str, int]:
    """The architecture that `a_model_body` fits."""
    return cast("dict[str, int]", _config().to_mapping())


def _config() -> "MoEConfig":
    from trainer.moe import MoEConfig

    return MoEConfig(
        vocab=VOCAB, dim=16, layers=2, heads=2, experts=4, top_k=2, hidden=16, max_len=MAX_LEN, end_token=NO_END
    )


def publish_model(root: Path, step: int, seed: int | None = None) -> Path:
    """A version that every engine takes."""
    return publish_weights(root, step, body=a_model_body(step if seed is None else seed), model=model_mapping())


async def load(engine: Engine, folder: Path) -> None:
    await engine.load_weights(WeightManifest.parse((folder / MANIFEST_FILE).read_text()), folder)


@asynccontextmanager
async def opened(name: str, options: Mapping[str, str] | None = None) -> AsyncIterator[Engine]:
    """Started, and closed at the end."""
    engine = open_engine(name, options or {}, SystemClock())
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


def a_request(
    name: str = "r", *, seed: int = 1, prefix: tuple[int, ...] = (), max_tokens: int = 24, temperature: float = 1.0
) -> GenerateRequest:
    return GenerateRequest(
        request_id=f"{name}@{len(prefix)}",
        prompt=(1 + seed % 3, 2, 3),
        prefix=prefix,
        max_tokens=max_tokens,
        seed=seed,
        temperature=temperature,
    )


async def collect(engine: Engine, request: GenerateRequest, *, at_most: int | None = None) -> list[TokenChunk]:
    """The whole stream, or until at least `at_most` tokens have come, then aborted."""
    chunks: list[TokenChunk] = []
    stream = cast("AsyncGenerator[TokenChunk, None]", engine.generate(request))
    async with aclosing(stream):
        async for chunk in stream:
            chunks.append(chunk)
            if at_most is not None and len(tokens_of(chunks)) >= at_most:
                await engine.abort(request.request_id)
                break
    return chunks


def tokens_of(chunks: list[TokenChunk]) -> tuple[int, ...]:
    return tuple(token for chunk in chunks for token in chunk.tokens)


def logprobs_of(chunks: list[TokenChunk]) -> tuple[float, ...]:
    return tuple(logprob for chunk in chunks for logprob in chunk.logprobs)


class GateClock(SystemClock):
    """A clock on which waiting needs a permit: an engine on it makes a token a permit."""

    def __init__(self, permits: int = 0) -> None:
        self._permits = asyncio.Semaphore(permits)
        self._open = False

    def allow(self, permits: int) -> None:
        for _ in range(permits):
            self._permits.release()

    def open(self) -> None:
        """No more permits are needed."""
        self._open = True
        self.allow(1000)

    async def sleep(self, seconds: float) -> None:
        if not self._open:
            await self._permits.acquire()
        await asyncio.sleep(0)


def gated_engine(gate: GateClock, *, slots: int = 8) -> DryRunEngine:
    """Generates a token for every permit of `gate`; vocabulary of 16, no end token."""
    return DryRunEngine(DryRunOptions(vocab=VOCAB, slots=slots), gate)
