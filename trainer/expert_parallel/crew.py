"""The lead's learner and what the other ranks do: the lead runs the trainer's loop, the others follow its orders.

Only the lead knows the ledger, the checkpoints and the published weights. Every rank holds what is shared and its own
experts; the whole state is collected at the lead for a checkpoint, and sent from there after a start. A follower that
loses its lead, or hears nothing from it for `mesh.TIMEOUT_S`, ends with torch's error: the crew starts again together. So the
lead is heard from while it waits, too (`trainer.expert_parallel.start.BeatingClock`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from trainer.batching import TokenBatch
from trainer.checkpoint import json_tensor, optimiser_tensors, prefixed, restore_optimiser, tensor_json, within
from trainer.expert_parallel.channel import Channel, Order
from trainer.expert_parallel.dispatch import Dispatcher
from trainer.expert_parallel.experts import shard, share, whole
from trainer.expert_parallel.mesh import Mesh
from trainer.expert_parallel.update import update_in_crew
from trainer.grpo import LossParts, LossSettings
from trainer.moe import MoEConfig, TinyMoE
from trainer.update import UpdateSettings, make_optimiser


class Shard:
    """One rank's part of the model and of its optimiser."""

    def __init__(self, config: MoEConfig, seed: int, settings: UpdateSettings, mesh: Mesh, by: Dispatcher) -> None:
        self._mesh = mesh
        self._settings = settings
        self._model = shard(TinyMoE(config, seed=seed), mesh, by)
        self._optimiser = make_optimiser(self._model, settings)
        self._names = [name for name, _ in self._model.named_parameters()]

    def update(self, tensors: Mapping[str, Tensor]) -> list[LossParts]:
        """What `update_order` packed."""
        there = {name: value.to(self._mesh.device) for name, value in tensors.items()}
        batch = TokenBatch(**{field.name: there[field.name] for field in fields(TokenBatch)})
        minibatches = torch.split(there["rows"], tensors["sizes"].tolist())
        return update_in_crew(self._model, self._optimiser, batch, self._settings, minibatches, self._mesh)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Whole states, as `restore_order` packed them."""
        self._model.load_state_dict(share(within("model/", tensors), self._mesh))
        by_name = {self._named(key): value for key, value in within("optimiser/", tensors).items()}
        restore_optimiser(self._optimiser, self.keyed(self._shared_out(by_name)))

    def model_state(self) -> dict[str, Tensor]:
        """This rank's part."""
        return dict(self._model.state_dict())

    def optimiser_state(self) -> dict[str, Tensor]:
        """This rank's part, keyed "<name of the tensor>/<name of the parameter>", which says whether it is divided."""
        return {self._named(key): value for key, value in optimiser_tensors(self._optimiser).items()}

    def keyed(self, by_name: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The optimiser's own keys again."""
        return {self._keyed(name): value for name, value in by_name.items()}

    def _shared_out(self, by_name: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Counters (no dimension) are the same everywhere; the rest is divided as its parameter is."""
        parts = share({n: v for n, v in by_name.items() if v.dim()}, self._mesh)
        return {name: parts.get(name, value) for name, value in by_name.items()}

    def _named(self, key: str) -> str:
        index, tensor = key.split(".", 1)
        return f"{tensor}/{self._names[int(index)]}"

    def _keyed(self, name: str) -> str:
        tensor, parameter = name.split("/", 1)
        return f"{self._names.index(parameter)}.{tensor}"


class CrewLearner:
    """`trainer.learner.Learner` at rank 0; tells the others, and does its own part."""

    def __init__(self, mine: Shard, channel: Channel, manifest: Mapping[str, str]) -> None:
        self._mine = mine
        self._channel = channel
        self._whole: Mapping[str, Tensor] | None = None
        """The model as collected last, until it changes: a step's checkpoint and its publication want the same."""
        self.manifest = manifest

    def restore(self, model: Mapping[str, Tensor], optimiser: Mapping[str, Tensor]) -> None:
        """Everybody goes on from these."""
        self._whole = None
        tensors = prefixed("model/", model) | prefixed("optimiser/", optimiser)
        self._channel.tell(Order.RESTORE, tensors)
        self._mine.restore(tensors)

    def update(self, batch: TokenBatch, minibatches: Sequence[Tensor]) -> list[LossParts]:
        """Together."""
        self._whole = None
        tensors = {field.name: getattr(batch, field.name) for field in fields(TokenBatch)}
        tensors |= {"rows": torch.cat(list(minibatches)), "sizes": torch.tensor([len(rows) for rows in minibatches])}
        self._channel.tell(Order.UPDATE, tensors)
        return self._mine.update(tensors)

    def model_state(self) -> Mapping[str, Tensor]:
        """Everybody's parts put together, on the host."""
        if self._whole is None:
            self._channel.tell(Order.COLLECT_MODEL)
            self._whole = whole(self._channel.collect(self._mine.model_state()))
        return self._whole

    def optimiser_state(self) -> Mapping[str, Tensor]:
        """Everybody's parts put together, on the host."""
        self._channel.tell(Order.COLLECT_OPTIMISER)
        parts = self._channel.collect(self._mine.optimiser_state())
        counters = {name: value for name, value in parts[0].items() if not value.dim()}
        tensors = whole([{n: v for n, v in part.items() if v.dim()} for part in parts])
        return self._mine.keyed(counters | tensors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """What every rank has to begin with alike: the lead's, whatever the others were told."""

    config: MoEConfig
    seed: int
    settings: UpdateSettings

    def pack(self) -> dict[str, Tensor]:
        """As tensors, for `Channel.tell`."""
        update = {f.name: getattr(self.settings, f.name) for f in fields(UpdateSettings) if f.name != "loss"}
        loss = {f.name: getattr(self.settings.loss, f.name) for f in fields(LossSettings)}
        return {"json": json_tensor([self.config.to_mapping(), self.seed, update, loss])}

    @staticmethod
    def unpack(tensors: Mapping[str, Tensor]) -> "Beginning":
        """The same again."""
        config, seed, update, loss = tensor_json(tensors["json"])
        settings = UpdateSettings(**update, loss=LossSettings(**loss))
        return Beginning(config=MoEConfig.from_mapping(config), seed=seed, settings=settings)


def follow(channel: Channel, begin: Callable[[Beginning], Shard]) -> None:
    """Do what the lead asks until it says that it is over."""
    mine: Shard | None = None
    while True:
        order, tensors = channel.hear()
        if order is Order.END:
            return
        if order is Order.BEGIN:
            mine = begin(Beginning.unpack(tensors))
        elif mine is not None:
            _obey(mine, channel, order, tensors)


def _obey(mine: Shard, channel: Channel, order: Order, tensors: Mapping[str, Tensor]) -> None:
    match order:
        case Order.UPDATE:
            mine.update(tensors)
        case Order.RESTORE:
            mine.restore(tensors)
        case Order.COLLECT_MODEL:
            channel.collect(mine.model_state())
        case Order.COLLECT_OPTIMISER:
            channel.collect(mine.optimiser_state())
        case _:
            pass  # the lead is there
