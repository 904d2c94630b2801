"""A small decoder-only mixture-of-experts language model in plain torch.

Policy: as plain as a model can be that still has what a rollout fleet meets: a KV cache, routed experts, weights that
change under generations in flight. The trainer runs it in float32; a sampler that wants the same tokens whatever shares
its batch runs it in float64, where a draw is not decided by the rounding of a sum.

Invariants
* A row's logits depend on that row alone (no expert capacity, nothing dropped), up to rounding.
* The key and value of position p lie at index p of the row's cache, and a query at position p sees indices 0..p only.
  So rows of different lengths share a step, right padding is harmless (it is overwritten before it is seen), and a slot
  is reused without cleaning.

Non-goals: speed on accelerators, expert parallelism (see `trainer.expert_parallel`), sampling.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True, kw_only=True)
class MoEConfig:
    """The architecture: what `WeightManifest.model` carries."""

    vocab: int
    dim: int = 48
    layers: int = 2
    heads: int = 4
    experts: int = 4
    top_k: int = 2
    hidden: int = 96
    """Width of one expert."""
    max_len: int = 96
    """Positions a row may have, prompt included."""
    end_token: int = 0
    """A row that has sampled it is done (finish reason `stop`); it is part of the sample."""

    def __post_init__(self) -> None:
        if self.dim % self.heads:
            raise ValueError(f"dim {self.dim} is not a multiple of heads {self.heads}")
        if not 1 <= self.top_k <= self.experts:
            raise ValueError(f"top_k {self.top_k} is not between 1 and experts {self.experts}")

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.dim // self.heads

    def to_mapping(self) -> dict[str, int | float | str]:
        """The plain mapping of a weight manifest."""
        return asdict(self)

    @staticmethod
    def from_mapping(model: Mapping[str, int | float | str]) -> "MoEConfig":
        """The configuration in a manifest; `ValueError` where a key is missing, unknown or no number."""
        names = {field.name for field in fields(MoEConfig)}
        if set(model) != names:
            raise ValueError(f"no TinyMoE architecture: keys {sorted(set(model) ^ names)} are missing or unknown")
        return MoEConfig(**{name: int(value) for name, value in model.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCache:
    """Keys and values of many rows ("slots"); `at` picks the ones that a step works on.

    Shapes: `keys`, `values` [layers, slots, heads, max_len, head_dim]; `rows` [B], the slots of this view.
    Views share storage: what a forward pass writes through one is seen by all.
    """

    keys: Tensor
    values: Tensor
    rows: Tensor

    @staticmethod
    def allocate(config: MoEConfig, slots: int, *, dtype: torch.dtype = torch.float32) -> "KVCache":
        """An empty cache of `slots` rows, viewed whole."""
        shape = (config.layers, slots, config.heads, config.max_len, config.head_dim)
        return KVCache(
            keys=torch.zeros(shape, dtype=dtype), values=torch.zeros(shape, dtype=dtype), rows=torch.arange(slots)
        )

    @property
    def slots(self) -> int:
        """Rows allocated."""
        return self.keys.shape[1]

    def at(self, rows: Tensor) -> "KVCache":
        """The view whose row i is slot `rows[i]`; slots must not repeat."""
        return KVCache(keys=self.keys, values=self.values, rows=rows)

    def update(self, layer: int, positions: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write [B, T, heads, head_dim] at `positions` [B, T]; return all up to the furthest, [B, heads, extent, head_dim]."""
        where = (self.rows[:, None], slice(None), positions)
        self.keys[layer][where] = keys
        self.values[layer][where] = values
        extent = int(positions.max()) + 1
        return self.keys[layer][self.rows, :, :extent], self.values[layer][self.rows, :, :extent]


class Attention(nn.Module):
    """Causal multi-head attention over a row's own positions."""

    def __init__(self, config: MoEConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.dim, 3 * config.dim, bias=False)
        self.out = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x: Tensor, positions: Tensor, layer: int, cache: KVCache | None) -> Tensor:
        """[B, T, dim] -> [B, T, dim]."""
        batch, length, dim = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, dim // self.heads).unbind(2)
        if cache is None:
            keys, values, key_positions = k.transpose(1, 2), v.transpose(1, 2), positions
        else:
            keys, values = cache.update(layer, positions, k, v)
            key_positions = torch.arange(keys.shape[2]).expand(batch, -1)
        mask = key_positions[:, None, None, :] <= positions[:, None, :, None]
        y = functional.scaled_dot_product_attention(q.transpose(1, 2), keys, values, attn_mask=mask)
        return torch.as_tensor(self.out(y.transpose(1, 2).reshape(batch, length, dim)))


class Experts(nn.Module):
    """Top-k routed experts: router, dispatch by expert, combine in the order of the token's own choices."""

    def __init__(self, config: MoEConfig) -> None:
        super().__init__()
        self.top_k = config.top_k
        self.router = nn.Linear(config.dim, config.experts, bias=False)
        self.w_in = nn.Parameter(torch.empty(config.experts, config.dim, config.hidden))
        self.w_out = nn.Parameter(torch.empty(config.experts, config.hidden, config.dim))

    def forward(self, x: Tensor) -> Tensor:
        """[N, dim] -> [N, dim]."""
        weights, chosen = self.route(x)
        rows = torch.arange(x.shape[0], device=x.device).repeat_interleave(self.top_k)
        outputs = self.through(x[rows], chosen.flatten()).view(*chosen.shape, -1)
        return (outputs * weights[..., None]).sum(dim=1)

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """A token's experts: weights that sum to 1, and indices; [N, dim] -> [N, k] each, the second int64."""
        weights, chosen = torch.softmax(self.router(x), dim=-1).topk(self.top_k, dim=-1)
        return weights / weights.sum(dim=-1, keepdim=True), chosen

    def through(self, x: Tensor, expert: Tensor) -> Tensor:
        """Each row through one of the experts held here: [M, dim], int64 [M] -> [M, dim]."""
        order = expert.argsort(stable=True)
        counts = torch.bincount(expert, minlength=self.w_in.shape[0]).tolist()
        parts = torch.split(x[order], counts)
        done = [functional.silu(part @ self.w_in[e]) @ self.w_out[e] for e, part in enumerate(parts)]
        return torch.cat(done)[order.argsort()]


class Block(nn.Module):
    """Pre-norm attention and experts, each with its residual."""

    def __init__(self, config: MoEConfig) -> None:
        super().__init__()
        self.norm_attention = nn.RMSNorm(config.dim, eps=1e-6)
        self.attention = Attention(config)
        self.norm_experts = nn.RMSNorm(config.dim, eps=1e-6)
        self.experts = Experts(config)

    def forward(self, x: Tensor, positions: Tensor, layer: int, cache: KVCache | None) -> Tensor:
        """[B, T, dim] -> [B, T, dim]."""
        x = x + self.attention(self.norm_attention(x), positions, layer, cache)
        y: Tensor = self.experts(self.norm_experts(x).flatten(0, 1))
        return x + y.view_as(x)


class TinyMoE(nn.Module):
    """See the module's docstring. Weights are drawn from `seed` alone."""

    def __init__(self, config: MoEConfig, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab, config.dim)
        self.position = nn.Embedding(config.max_len, config.dim)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.dim, eps=1e-6)
        self.head = nn.Linear(config.dim, config.vocab, bias=False)
        self._reset(torch.Generator().manual_seed(seed))

    def forward(self, tokens: Tensor, positions: Tensor, cache: KVCache | None = None) -> Tensor:
        """Logits of the next token.

        Args:
            tokens: int64 [B, T]; rows shorter than T are padded on the right with any token id.
            positions: int64 [B, T], each row's own, from 0 (prompt included), below `max_len`.
            cache: None attends within `tokens` alone; else keys and values before `positions` come from its rows
                (B of them), and those of `tokens` are written there.

        Returns:
            [B, T, vocab] in the weights' dtype; what stands at padding means nothing.
        """
        x = self.embed(tokens) + self.position(positions)
        for layer, block in enumerate(self.blocks):
            x = block(x, positions, layer, cache)
        logits: Tensor = self.head(self.norm(x))
        return logits

    def _reset(self, generator: torch.Generator) -> None:
        """Normal(0, 1/sqrt(fan in)); a head ten times smaller, so that the first policy is close to uniform."""
        for name, parameter in self.named_parameters():
            if parameter.dim() == 1:
                continue
            fan_in = parameter.shape[-2] if parameter.dim() == 3 else parameter.shape[-1]
            scale = {"head.weight": 0.1}.get(name, 1.0) / math.sqrt(fan_in)
            nn.init.normal_(parameter, std=scale, generator=generator)


def dump_weights(model: TinyMoE) -> bytes:
    """The weights as a safetensors file in float32; the same weights give the same bytes."""
    return dump_state(model.state_dict())


def dump_state(state: Mapping[str, Tensor]) -> bytes:
    """`dump_weights` of a model that is a mapping of its tensors, wherever they are."""
    data: bytes = save_safetensors(
        {name: value.detach().to("cpu", torch.float32).contiguous() for name, value in state.items()}
    )
    return data


def load_weights(model: TinyMoE, source: bytes | Path) -> None:
    """Copy a safetensors file into `model`, in the model's dtype.

    Raises:
        RuntimeError: names or shapes do not fit.
        safetensors.SafetensorError: not a safetensors file.
    """
    data = source.read_bytes() if isinstance(source, Path) else source
    model.load_state_dict(load_safetensors(data))


def model_from(config: MoEConfig, source: bytes | Path, *, dtype: torch.dtype = torch.float32) -> TinyMoE:
    """A model with the weights of a safetensors file, in evaluation mode; errors as in `load_weights`."""
    model = TinyMoE(config).to(dtype)
    load_weights(model, source)
    return model.eval()
