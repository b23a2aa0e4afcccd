"""The three layouts attention libraries take, and the one the arithmetic here is written in."""

from enum import StrEnum

import torch


class Layout(StrEnum):
    """The order of a tensor's dimensions: batch, sequence, heads, head_dim; or tokens, heads, head_dim."""

    BSHD = "bshd"
    SBHD = "sbhd"
    THD = "thd"

    @property
    def token_dim(self) -> int:
        """The dimension that is dealt to the ranks."""
        return {Layout.BSHD: 1, Layout.SBHD: 0, Layout.THD: 0}[self]


def to_heads_first(tensor: torch.Tensor, layout: Layout) -> torch.Tensor:
    """From ``layout`` to ``[batch, heads, tokens, head_dim]``; a packed batch becomes a batch of one."""
    if layout is Layout.THD:
        return tensor.unsqueeze(0).transpose(1, 2)
    return tensor.transpose(1, 2) if layout is Layout.BSHD else tensor.permute(1, 2, 0, 3)


def from_heads_first(tensor: torch.Tensor, layout: Layout) -> torch.Tensor:
    """From ``[batch, heads, tokens, head_dim]`` to ``layout``, contiguous."""
    if layout is Layout.THD:
        tensor = tensor.transpose(1, 2).squeeze(0)
    else:
        tensor = tensor.transpose(1, 2) if layout is Layout.BSHD else tensor.permute(2, 0, 1, 3)
    return tensor.contiguous()
