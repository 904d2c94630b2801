"""Continuous batching over the slots of a KV cache: several generations advance together, one token a step.

Invariants
* Before a step, the cache of a row holds every token of it but the last; the step feeds that one and samples the next.
* The token at generated position p is the inverse of the policy's distribution function at `uniform(seed, p)`, taken in
  float64. With weights in float64 too, what shares the batch and whether a token came by prefill or by decoding changes
  logits by some 1e-15, so that in practice it changes no token.
* New weights come between steps, and the cache of every row is computed anew under them, as AReaL does: the
  log-probabilities are those of the policy named with them, over the whole text before the token.

Synchronous and of one thread. Not its business: pace, streams, where weights are.
"""

from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

from rollout_worker.engines.base import EngineError, GenerateRequest, TokenChunk, UnitError
from rollout_worker.engines.keyed import uniform
from scaler.model.work import FinishReason
from trainer.moe import KVCache, TinyMoE


@dataclass(slots=True, kw_only=True)
class _Row:
    request: GenerateRequest
    slot: int
    tokens: list[int]
    """Prompt, prefix and what was sampled here."""

    @property
    def position(self) -> int:
        """Of the next token, counted from the end of the prompt."""
        return len(self.tokens) - len(self.request.prompt)


class DecodingBatch:
    """See the module's docstring."""

    def __init__(self, slots: int, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._free = deque(range(slots))
        self._slots = slots
        self._rows: dict[str, _Row] = {}
        self._waiting: deque[GenerateRequest] = deque()
        self._model: TinyMoE | None = None
        self._cache: KVCache | None = None
        self._version = 0

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._rows or self._waiting)

    @property
    def request_ids(self) -> tuple[str, ...]:
        """All generations, waiting ones too."""
        return (*self._rows, *(request.request_id for request in self._waiting))

    def load(self, model: TinyMoE, version: int) -> None:
        """Continue every row under `model`, in evaluation mode and in this batch's dtype.

        Raises:
            EngineError: another architecture, which the generations in flight may not fit.
        """
        if self.busy and model.config != self._require_model().config:
            raise EngineError("another architecture, while generations are in flight")
        self._model, self._version = model, version
        self._cache = KVCache.allocate(model.config, self._slots, dtype=self._dtype)
        self._prefill(list(self._rows.values()))

    def submit(self, request: GenerateRequest) -> TokenChunk | None:
        """Queue a generation for the next free slot; the last chunk at once where its prefix has ended it already.

        Raises:
            EngineError: no weights yet.
            UnitError: this model can never serve it.
        """
        model = self._require_model()
        _check(request, model)
        reason = _reason(request, request.prefix, model.config.end_token)
        if reason is not None:
            return TokenChunk(tokens=(), logprobs=(), version=self._version, finish_reason=reason)
        self._waiting.append(request)
        return None

    def drop(self, request_id: str) -> bool:
        """Stop a generation; False where it is not here."""
        row = self._rows.pop(request_id, None)
        if row is not None:
            self._free.append(row.slot)
            return True
        found = [request for request in self._waiting if request.request_id == request_id]
        for request in found:
            self._waiting.remove(request)
        return bool(found)

    def step(self) -> list[tuple[str, TokenChunk]]:
        """Fill free slots, then one token more for every row; rows that ended have left."""
        self._admit()
        rows = list(self._rows.values())
        return [(row.request.request_id, self._advance(row, *drawn)) for row, drawn in self._sample(rows)]

    def _admit(self) -> None:
        rows = []
        while self._free and self._waiting:
            request = self._waiting.popleft()
            row = _Row(request=request, slot=self._free.popleft(), tokens=[*request.prompt, *request.prefix])
            self._rows[request.request_id] = row
            rows.append(row)
        self._prefill(rows)

    def _prefill(self, rows: list[_Row]) -> None:
        """Fill the cache of `rows` in one padded pass; what stands at padding is overwritten before it is seen."""
        length = max((len(row.tokens) - 1 for row in rows), default=0)
        if length:
            padded = [(row.tokens[:-1] + [0] * length)[:length] for row in rows]
            self._forward(rows, torch.tensor(padded), torch.arange(length).expand(len(rows), -1))

    def _forward(self, rows: list[_Row], tokens: Tensor, positions: Tensor) -> Tensor:
        if self._cache is None:
            raise EngineError("no weights loaded")
        with torch.inference_mode():
            cache = self._cache.at(torch.tensor([row.slot for row in rows]))
            logits: Tensor = self._require_model()(tokens, positions, cache)
        return logits

    def _sample(self, rows: list[_Row]) -> list[tuple[_Row, tuple[int, float]]]:
        """The next token of each row, with its log-probability."""
        last = torch.tensor([[row.tokens[-1]] for row in rows])
        positions = torch.tensor([[len(row.tokens) - 1] for row in rows])
        logits = self._forward(rows, last, positions)[:, 0].double()
        temperatures = torch.tensor([[row.request.temperature] for row in rows], dtype=torch.float64)
        logprobs = torch.log_softmax(logits / temperatures, dim=-1)
        draws = torch.tensor([[uniform(row.request.seed, row.position)] for row in rows], dtype=torch.float64)
        cumulative = logprobs.exp().cumsum(dim=-1)
        chosen = torch.searchsorted(cumulative, draws * cumulative[:, -1:], right=True)
        chosen = chosen.clamp(max=logits.shape[-1] - 1)
        tokens, chances = chosen[:, 0].tolist(), logprobs.gather(1, chosen)[:, 0].tolist()
        return list(zip(rows, zip(tokens, chances, strict=True), strict=True))

    def _advance(self, row: _Row, token: int, logprob: float) -> TokenChunk:
        row.tokens.append(token)
        done = row.tokens[len(row.request.prompt) :]
        reason = _reason(row.request, done, self._require_model().config.end_token)
        if reason is not None:
            self.drop(row.request.request_id)
        return TokenChunk(tokens=(token,), logprobs=(logprob,), version=self._version, finish_reason=reason)

    def _require_model(self) -> TinyMoE:
        if self._model is None:
            raise EngineError("no weights loaded")
        return self._model


def _reason(request: GenerateRequest, done: list[int] | tuple[int, ...], end_token: int) -> FinishReason | None:
    if done and done[-1] == end_token:
        return FinishReason.STOP
    return FinishReason.TOKEN_BOUND if len(done) >= request.max_tokens else None


def _check(request: GenerateRequest, model: TinyMoE) -> None:
    config = model.config
    positions = len(request.prompt) + request.max_tokens - 1
    if not request.prompt or request.max_tokens < 1 or request.temperature <= 0:
        raise UnitError("a prompt, a token bound of at least 1 and a temperature above 0 are needed")
    if positions > config.max_len:
        raise UnitError(f"prompt and token bound need {positions} positions, the model has {config.max_len}")
    if not all(0 <= token < config.vocab for token in (*request.prompt, *request.prefix)):
        raise UnitError(f"a token is outside the vocabulary of {config.vocab}")
