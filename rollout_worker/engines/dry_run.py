"""The dry-run engine: samples uniformly from a vocabulary, at a given speed, without a model.

For trying out ledger, drains, pools and policies where no accelerator and no torch is. Everything but the text is real:
keyed sampling, true log-probabilities (of the uniform policy), versions of the weights that the agent verified, slots.
"""

import math
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rollout_worker.engines.base import Engine, EngineError, EngineLoad, GenerateRequest, TokenChunk, UnitError
from rollout_worker.engines.keyed import uniform
from rollout_worker.engines.options import read_options
from scaler.model.clock import Clock
from scaler.model.weights import WeightManifest
from scaler.model.work import FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunOptions:
    """Options of the engine."""

    vocab: int = 16
    stop_token: int = -1
    """Ends a generation; -1: none does."""
    steps_per_s: float = 40.0
    """Tokens a second of each generation; 0: as fast as it goes."""
    slots: int = 8

    def __post_init__(self) -> None:
        if self.vocab < 1 or self.slots < 1 or self.steps_per_s < 0:
            raise ValueError("engine options: vocab and slots must be at least 1, steps_per_s at least 0")


class DryRunEngine:
    """See the module's docstring. Runs in the event loop; a generation beyond the slots waits for its turn."""

    keyed_sampling = True

    def __init__(self, options: DryRunOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._version: int | None = None
        self._order: deque[str] = deque()
        self._closed = False

    async def start(self) -> None:
        """Nothing to bring up."""

    async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenChunk]:
        """Stream one generation, a token a chunk."""
        if request.max_tokens < 1 or any(not 0 <= token < self._options.vocab for token in request.prefix):
            raise UnitError(f"{request.request_id}: no token bound, or a prefix outside the vocabulary")
        self._order.append(request.request_id)
        try:
            async for chunk in self._stream(request):
                yield chunk
        finally:
            if request.request_id in self._order:
                self._order.remove(request.request_id)

    async def _stream(self, request: GenerateRequest) -> AsyncIterator[TokenChunk]:
        done = list(request.prefix)
        reason = self._reason(done, request)
        if reason is not None:
            yield TokenChunk(tokens=(), logprobs=(), version=self._require_version(), finish_reason=reason)
        while reason is None:
            await self._clock.sleep(1 / self._options.steps_per_s if self._options.steps_per_s else 0.0)
            if request.request_id not in self._order:
                return
            if self._order.index(request.request_id) >= self._options.slots:
                continue
            done.append(int(uniform(request.seed, len(done)) * self._options.vocab))
            reason = self._reason(done, request)
            yield self._chunk(done[-1], reason)

    def _chunk(self, token: int, reason: FinishReason | None) -> TokenChunk:
        logprob = -math.log(self._options.vocab)
        return TokenChunk(tokens=(token,), logprobs=(logprob,), version=self._require_version(), finish_reason=reason)

    def _reason(self, done: list[int], request: GenerateRequest) -> FinishReason | None:
        if done and done[-1] == self._options.stop_token:
            return FinishReason.STOP
        return FinishReason.TOKEN_BOUND if len(done) >= request.max_tokens else None

    def _require_version(self) -> int:
        if self._closed or self._version is None:
            raise EngineError("closed" if self._closed else "no weights loaded")
        return self._version

    async def abort(self, request_id: str) -> None:
        """Stop a generation."""
        if request_id in self._order:
            self._order.remove(request_id)

    async def load_weights(self, manifest: WeightManifest, folder: Path) -> None:
        """Only the version is taken."""
        self._version = manifest.version.step

    def version(self) -> int | None:
        """The policy version in use."""
        return self._version

    def load(self) -> EngineLoad:
        """Busy and total slots."""
        return EngineLoad(running=min(len(self._order), self._options.slots), capacity=self._options.slots)

    async def healthy(self) -> bool:
        """Until it is closed."""
        return not self._closed

    async def close(self) -> None:
        """Generations in flight end with an error at their next token."""
        self._closed = True


def open_engine(options: Mapping[str, str], clock: Clock) -> Engine:
    """For the registry."""
    return DryRunEngine(read_options(DryRunOptions, options), clock)
