"""Checkpoints: everything the trainer needs to go on as if it had never stopped, and the batches it contains.

One safetensors file a checkpoint, `step<step, 8 digits>-<first 16 hex of its sha256>.safetensors`: its name proves its
content, so a torn or rotten file is skipped for the one before. Never pickle.

Invariant: a batch id is in a checkpoint exactly when the batch's gradient is. Ids are kept for the last `RECENT_BATCHES`
batches; the ledger hands out one batch at a time, so no more than the last one can be unacknowledged.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from torch import Tensor

from trainer.files import sync_folder, write_durably

RECENT_BATCHES = 256
_STATE, _MANIFEST = "state.json", "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerState:
    """The small part of a checkpoint."""

    step: int = 0
    """Updates done; the policy version that the weights are."""
    next_prompt: int = 0
    """Index of the next prompt to put. Prompts after it may be known to the ledger already; putting them again is harmless."""
    batches_through: int = 0
    """Every batch up to this id is consumed; kept for people, acknowledged long ago."""
    recent_batches: tuple[int, ...] = ()
    """Ids of the last batches consumed, ascending: acknowledged again on start."""
    architecture: Mapping[str, int | float | str] = field(default_factory=dict)

    def consumed(self, batch_id: int, next_prompt: int) -> "TrainerState":
        """The state after one more update, on this batch."""
        recent = (*self.recent_batches, batch_id)
        gone, kept = recent[:-RECENT_BATCHES], recent[-RECENT_BATCHES:]
        return TrainerState(
            step=self.step + 1,
            next_prompt=next_prompt,
            batches_through=gone[-1] if gone else self.batches_through,
            recent_batches=kept,
            architecture=self.architecture,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """State and tensors. `optimiser` is keyed by "<parameter index>.<name>"; `generator` is a torch RNG state."""

    state: TrainerState
    model: Mapping[str, Tensor]
    optimiser: Mapping[str, Tensor]
    generator: Tensor
    manifest: Mapping[str, str] = field(default_factory=dict)
    """What the trainer was built from and ran on (`trainer.expert_parallel.manifest`); empty where nothing was declared."""


class CheckpointStore:
    """A folder of checkpoints."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write it; when this returns it survives a crash of the machine."""
        data = _encode(checkpoint)
        name = f"step{checkpoint.state.step:08d}-{hashlib.sha256(data).hexdigest()[:16]}.safetensors"
        path = self._folder / name
        write_durably(path, data)
        return path

    def load_newest(self) -> Checkpoint | None:
        """The complete checkpoint of the highest step, or None where there is none."""
        for path in reversed(self._paths()):
            checkpoint = _read(path)
            if checkpoint is not None:
                return checkpoint
        return None

    def prune(self, keep: int) -> None:
        """Remove all but the newest `keep` files, and what crashed writers left."""
        for path in [*self._paths()[:-keep], *self._folder.glob(".step*.tmp")]:
            path.unlink(missing_ok=True)
        sync_folder(self._folder)

    def _paths(self) -> list[Path]:
        return sorted(self._folder.glob("step*.safetensors"))


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """An optimiser's state, flat."""
    state: Mapping[int, Mapping[str, Tensor]] = optimiser.state_dict()["state"]
    return {f"{index}.{name}": value for index, values in state.items() for name, value in values.items()}


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put a copy of a flat state back; hyper-parameters stay those of `optimiser`."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = value.clone()
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def _encode(checkpoint: Checkpoint) -> bytes:
    tensors = {
        _STATE: json_tensor(asdict(checkpoint.state)),
        _MANIFEST: json_tensor(dict(checkpoint.manifest)),
        "generator": checkpoint.generator,
        **prefixed("model/", checkpoint.model),
        **prefixed("optimiser/", checkpoint.optimiser),
    }
    data: bytes = save_safetensors(tensors)
    return data


def json_tensor(value: object) -> Tensor:
    """A value as the bytes of its JSON, so that it travels with tensors; `tensor_json` reads it."""
    return torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)


def tensor_json(tensor: Tensor) -> Any:
    """What `json_tensor` was given; `ValueError` where it is no JSON."""
    return json.loads(bytes(tensor.tolist()))


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their names with a prefix, so that several mappings travel as one; `within` takes them apart."""
    return {prefix + name: value.detach().contiguous() for name, value in tensors.items()}


def _read(path: Path) -> Checkpoint | None:
    """The checkpoint in a file, or None where its content is not what its name says."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if hashlib.sha256(data).hexdigest()[:16] != path.stem.partition("-")[2]:
        return None
    try:
        return _decode(load_safetensors(data))
    except (SafetensorError, KeyError, TypeError, ValueError):
        return None


def _decode(tensors: Mapping[str, Tensor]) -> Checkpoint:
    raw = tensor_json(tensors[_STATE])
    return Checkpoint(
        state=TrainerState(**{**raw, "recent_batches": tuple(raw["recent_batches"])}),
        model=within("model/", tensors),
        optimiser=within("optimiser/", tensors),
        generator=tensors["generator"],
        manifest=tensor_json(tensors[_MANIFEST]) if _MANIFEST in tensors else {},
    )


def within(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those whose name has the prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
