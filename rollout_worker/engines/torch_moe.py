"""The torch engine: samples from the tiny MoE of `trainer.moe`, on the CPU, in one thread of its own.

That thread alone touches torch, which is imported in it: the worker's event loop is never blocked by a step, and several
workers share a few cores. Commands reach it between steps, so that aborts and new weights act at token boundaries.
`steps_per_s` makes it a device of fixed speed: it sleeps the rest of each step, whatever the batch holds.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, TypeAlias

from rollout_worker.engines.base import Engine, EngineError, EngineLoad, GenerateRequest, TokenChunk, UnitError
from rollout_worker.engines.options import read_options
from scaler.model.clock import Clock
from scaler.model.weights import WEIGHTS_FILE, WeightManifest

if TYPE_CHECKING:
    from rollout_worker.engines.torch_batch import DecodingBatch

_DTYPES = ("float32", "float64")

_Command: TypeAlias = "Callable[[DecodingBatch], None]"
_Output: TypeAlias = TokenChunk | EngineError | UnitError | None
"""What a stream carries; None is the end of one that was aborted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchOptions:
    """Options of the engine."""

    slots: int = 8
    """Generations at a time; more wait for their turn."""
    dtype: str = "float64"
    """Of weights and computation; float64 keeps tokens independent of the batch, float32 is closer to the trainer."""
    steps_per_s: float = 0.0
    """Decoding steps a second at most; 0: as fast as it goes."""

    def __post_init__(self) -> None:
        if self.slots < 1 or self.dtype not in _DTYPES or self.steps_per_s < 0:
            raise ValueError("engine options: slots at least 1, dtype float32 or float64, steps_per_s at least 0")


class TorchEngine:
    """See the module's docstring."""

    def __init__(self, options: TorchOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self.keyed_sampling = options.dtype == "float64"
        self._commands: SimpleQueue[_Command] = SimpleQueue()
        self._streams: dict[str, asyncio.Queue[_Output]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._serve, name="torch", daemon=True)
        self._stopping = threading.Event()
        self._broken: EngineError | None = None
        self._version: int | None = None

    # In the event loop.

    async def start(self) -> None:
        """Start the thread; returns when torch is there."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        await self._ask(lambda _batch: None)

    async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenChunk]:
        """Stream one generation, a token a chunk."""
        self._require_running()
        stream = self._streams[request.request_id] = asyncio.Queue()
        self._commands.put(lambda batch: self._submit(batch, request))
        try:
            while (output := await stream.get()) is not None:
                if not isinstance(output, TokenChunk):
                    raise output
                yield output
                if output.finish_reason is not None:
                    return
        finally:
            del self._streams[request.request_id]
            self._commands.put(lambda batch: self._drop(batch, request.request_id))

    async def abort(self, request_id: str) -> None:
        """Stop a generation at the next token boundary."""
        self._commands.put(lambda batch: self._drop(batch, request_id))

    async def load_weights(self, manifest: WeightManifest, folder: Path) -> None:
        """Take new weights between two steps; the KV cache of generations in flight is computed anew under them.

        Raises:
            EngineError: they cannot be read, or fit no model of this engine; the ones in use stay.
        """
        await self._ask(lambda batch: self._load(batch, manifest, folder))
        self._version = manifest.version.step

    def version(self) -> int | None:
        """The policy version in use."""
        return self._version

    def load(self) -> EngineLoad:
        """Busy and total slots."""
        return EngineLoad(running=min(len(self._streams), self._options.slots), capacity=self._options.slots)

    async def healthy(self) -> bool:
        """Whether its thread lives."""
        return self._broken is None and self._thread.is_alive() and not self._stopping.is_set()

    async def close(self) -> None:
        """End the thread at the next token boundary; generations in flight end with an error."""
        self._stopping.set()
        self._commands.put(lambda _batch: None)
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)
        self._deliver([(request_id, EngineError("closed")) for request_id in self._streams])

    def _require_running(self) -> None:
        if self._broken is not None:
            raise self._broken
        if self._stopping.is_set() or not self._thread.is_alive():
            raise EngineError("not running")

    async def _ask(self, command: _Command) -> None:
        """Run a command between steps; raises what it raises."""
        self._require_running()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[None] = loop.create_future()

        def run(batch: "DecodingBatch") -> None:
            try:
                command(batch)
            except EngineError as error:
                loop.call_soon_threadsafe(_settle, answer, error)
            else:
                loop.call_soon_threadsafe(_settle, answer, None)

        self._commands.put(run)
        while not answer.done():
            await asyncio.wait([answer], timeout=1.0)
            if not answer.done():
                self._require_running()
        answer.result()

    def _deliver(self, outputs: list[tuple[str, _Output]]) -> None:
        for request_id, output in outputs:
            stream = self._streams.get(request_id)
            if stream is not None:
                stream.put_nowait(output)

    # In the thread.

    def _serve(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 (whatever broke it, every generation must hear of it)
            self._broken = EngineError(f"the torch thread ended: {error!r}")
            self._hand_over([(request_id, self._broken) for request_id in list(self._streams)])

    def _work(self) -> None:
        import torch

        from rollout_worker.engines.torch_batch import DecodingBatch

        torch.set_num_threads(1)
        batch = DecodingBatch(self._options.slots, getattr(torch, self._options.dtype))
        while not self._stopping.is_set():
            self._run_commands(batch)
            if batch.busy:
                self._hand_over(self._paced_step(batch))

    def _paced_step(self, batch: "DecodingBatch") -> list[tuple[str, _Output]]:
        """A step that takes at least its share of a second."""
        started_at_s = self._clock.monotonic_s()
        outputs = batch.step()
        if self._options.steps_per_s:
            self._stopping.wait(max(0.0, started_at_s + 1 / self._options.steps_per_s - self._clock.monotonic_s()))
        return [*outputs]

    def _run_commands(self, batch: "DecodingBatch") -> None:
        """All commands there are; waits for one while there is nothing to generate."""
        with suppress(Empty):
            while True:
                self._commands.get(block=not batch.busy and not self._stopping.is_set())(batch)

    def _submit(self, batch: "DecodingBatch", request: GenerateRequest) -> None:
        try:
            ended = batch.submit(request)
        except (EngineError, UnitError) as error:
            self._hand_over([(request.request_id, error)])
        else:
            if ended is not None:
                self._hand_over([(request.request_id, ended)])

    def _drop(self, batch: "DecodingBatch", request_id: str) -> None:
        if batch.drop(request_id):
            self._hand_over([(request_id, None)])

    def _load(self, batch: "DecodingBatch", manifest: WeightManifest, folder: Path) -> None:
        import torch
        from safetensors import SafetensorError

        from trainer.moe import MoEConfig, model_from

        try:
            config = MoEConfig.from_mapping(manifest.model)
            model = model_from(config, folder / WEIGHTS_FILE, dtype=getattr(torch, self._options.dtype))
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise EngineError(f"weights {folder.name}: {error}") from error
        batch.load(model, manifest.version.step)

    def _hand_over(self, outputs: list[tuple[str, _Output]]) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody listens any more
                self._loop.call_soon_threadsafe(self._deliver, outputs)


def _settle(answer: "asyncio.Future[None]", error: EngineError | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(None)
    else:
        answer.set_exception(error)


def open_engine(options: Mapping[str, str], clock: Clock) -> Engine:
    """For the registry."""
    return TorchEngine(read_options(TorchOptions, options), clock)
