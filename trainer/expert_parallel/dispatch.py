"""How tokens reach their experts and come back: what every transport does, in the words of DeepEP's first interface.

A token is sent once to each rank that holds one of its experts, with its routing weights. That rank runs it through
those experts and adds up what they say, each times its weight; `combine` brings the ranks' sums back and adds them,
without weights. Both carry gradients: the way back of `dispatch` is `combine`, and the other way round.

Every rank of the group calls both, in the same order, whether it has tokens or not.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """Tokens that came to this rank: M rows, one for each token that has an expert here."""

    x: Tensor
    """[M, dim], in the dtype that was sent or lower."""
    expert: Tensor
    """int64 [M, k]: index among this rank's experts, -1 where the token's choice lives elsewhere."""
    weight: Tensor
    """float32 [M, k]: of those choices; what stands at -1 means nothing."""
    handle: Any
    """What `combine` needs."""


class Dispatcher(Protocol):
    """See the module's docstring."""

    def dispatch(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Received:
        """Send [N, dim] to where `chosen` (int64 [N, k], of all experts) lives; weights [N, k]."""
        ...

    def combine(self, y: Tensor, handle: Any) -> Tensor:
        """[M, dim] back to who sent it, summed over ranks: [N, dim]."""
        ...

    def close(self) -> None:
        """Give back what the transport holds."""
        ...
