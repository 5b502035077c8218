# SPDX-License-Identifier: Apache-2.0
"""The names and signatures of three Triton projects, so that who uses one of
them changes an import:

    flash_swin_attn_func, WindowAttention    FlashWindowAttention (zzd1992)
    flash_win_attn_v2_func, WindowAttentionV2
                            Flash Window Attention V2 (emiledgl); the module
                            is called WindowAttention there
    attention               block sliding window attention (zankerx)

All take float32, float16 and bfloat16 tensors, with any strides, up to 256
channels a head and any number of tokens. Where the originals' gradients or
masked rows are wrong, these are right. Results are of the shape and type of q;
devices and errors are those of winattn.torch.window_attention."""
from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from ._functions import sliding_window_attention, window_attention
from ._layout import heads_of

__all__ = ["WindowAttention", "WindowAttentionV2", "attention",
           "flash_swin_attn_func", "flash_win_attn_v2_func"]


def flash_swin_attn_func(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None,
                         scale_qk: float) -> Tensor:
    """softmax(scale_qk Q K^T + bias) V for q, k, v [windows, heads, tokens, D]
    and bias [heads, tokens, tokens] or None. Gradients: of q, k, v, bias."""
    return window_attention(q, k, v, bias=bias, scale=scale_qk)


def flash_win_attn_v2_func(
        q: Tensor, k: Tensor, v: Tensor, logit_scale: Tensor | None = None,
        bias: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
    """Scaled cosine attention for q, k, v [batch windows, heads, tokens, D].

    logit_scale  [heads, 1, 1], a factor exp(min(logit_scale, ln 100)) of each
                 head; None: 1 / sqrt(D)
    bias         [heads, queries, keys] or None
    mask         [windows, queries, keys] or None, added; without a gradient

    Gradients: of q, k, v, logit_scale and bias."""
    return window_attention(q, k, v, cosine=True, logit_scale=logit_scale,
                            bias=bias, mask=mask)


def attention(q: Tensor, k: Tensor, v: Tensor, BS: int, WS: int,
              sm_scale: float) -> Tensor:
    """softmax(sm_scale Q K^T) V for q, k, v [batch, heads, tokens, D]. A query
    sees the WS blocks of BS tokens that end with its own. Gradients: of q, k
    and v."""
    return sliding_window_attention(q, k, v, BS, window_blocks=WS,
                                    scale=sm_scale)


# ---- Modules ----

def _relative_position_index(height: int, width: int) -> Tensor:
    """[tokens, tokens]: the entry of a table that a query and a key take."""
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width),
                                   indexing="ij")
    rows, columns = rows.flatten(), columns.flatten()
    down = rows[:, None] - rows + height - 1
    across = columns[:, None] - columns + width - 1
    return down * (2 * width - 1) + across


def _plain_attention(q: Tensor, k: Tensor, v: Tensor, factor: Tensor | float,
                     bias: Tensor, mask: Tensor | None) -> Tensor:
    """With PyTorch's own functions."""
    logits = q @ k.transpose(-2, -1) * factor + bias
    if mask is not None:
        logits = (logits.unflatten(0, (-1, len(mask))) + mask[:, None]
                  ).flatten(0, 1)
    return logits.softmax(-1) @ v


class WindowAttention(nn.Module):
    """Attention of a Swin block in windows that are there already.

    dim          channels of a token
    window_size  (height, width), in tokens
    num_heads    heads; each has dim / num_heads channels
    is_flash     compute with winattn; False: with PyTorch's own functions
    qkv_bias     the projection to q, k and v has a bias
    qk_scale     None: 1 / sqrt(channels of a head)
    proj_drop    dropout of the result

    Called with x [windows, tokens, dim], and a mask [masks, tokens, tokens]
    that is added, or None. Returns what is like x. The original ignores the
    mask where is_flash, and leaves out the last projection."""

    def __init__(self, dim: int, window_size: tuple[int, int],
                 num_heads: int, is_flash: bool = True, qkv_bias: bool = True,
                 qk_scale: float | None = None, proj_drop: float = 0.0
                 ) -> None:
        super().__init__()
        self.dim = dim
        self.window_size = window_size
        self.num_heads = num_heads
        self.scale = qk_scale or (dim // num_heads) ** -0.5
        self.is_flash = is_flash
        height, width = window_size
        self.relative_position_bias_table = nn.Parameter(
            torch.zeros((2 * height - 1) * (2 * width - 1), num_heads))
        self.register_buffer("relative_position_index",
                             _relative_position_index(height, width))
        self.qkv = nn.Linear(dim, dim * 3, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim)
        self.proj_drop = nn.Dropout(proj_drop)
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        qkv = heads_of(self.qkv(x), self.num_heads)
        table = self.relative_position_bias_table
        if self.is_flash:
            o = window_attention(qkv, scale=self.scale, table=table,
                                 table_window=self.window_size, mask=mask)
        else:
            bias = table[self.relative_position_index].permute(2, 0, 1)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            o = _plain_attention(q, k, v, self.scale, bias, mask)
        return self.proj_drop(self.proj(o.transpose(1, 2).flatten(2)))

    def extra_repr(self) -> str:
        return (f"dim={self.dim}, window_size={self.window_size}, "
                f"num_heads={self.num_heads}")


class WindowAttentionV2(nn.Module):
    """Attention of a Swin V2 block in windows that are there already. Called
    as WindowAttention is, and with its arguments, but for these:

    qkv_bias                the projections to q and v have a bias
    attn_drop               dropout of weights, 0 where is_flash
                            (NotImplementedError)
    pretrained_window_size  window that positions are scaled by; 0: its own"""

    def __init__(self, dim: int, window_size: tuple[int, int],
                 num_heads: int, is_flash: bool = True, qkv_bias: bool = True,
                 attn_drop: float = 0.0, proj_drop: float = 0.0,
                 pretrained_window_size: tuple[int, int] = (0, 0)) -> None:
        super().__init__()
        if is_flash and attn_drop != 0:
            raise NotImplementedError(
                f"attn_drop is {attn_drop}: winattn has no dropout of weights")
        self.dim = dim
        self.window_size = window_size
        self.pretrained_window_size = pretrained_window_size
        self.num_heads = num_heads
        self.is_flash = is_flash
        self.logit_scale = nn.Parameter(
            torch.full((num_heads, 1, 1), math.log(10)))
        self.cpb_mlp = nn.Sequential(
            nn.Linear(2, 512), nn.ReLU(inplace=True),
            nn.Linear(512, num_heads, bias=False))
        self.register_buffer("relative_coords_table", self._positions())
        self.register_buffer("relative_position_index",
                             _relative_position_index(*window_size))
        self.qkv = nn.Linear(dim, dim * 3, bias=False)
        self.q_bias = nn.Parameter(torch.zeros(dim)) if qkv_bias else None
        self.v_bias = nn.Parameter(torch.zeros(dim)) if qkv_bias else None
        self.attn_drop = nn.Dropout(attn_drop)
        self.proj = nn.Linear(dim, dim)
        self.proj_drop = nn.Dropout(proj_drop)

    def _positions(self) -> Tensor:
        """[1, 2 height - 1, 2 width - 1, 2]: relative positions on the
        logarithmic scale of Swin V2 (Liu et al. 2022, section 3.3)."""
        scales = [trained - 1 if trained else extent - 1 for extent, trained
                  in zip(self.window_size, self.pretrained_window_size)]
        axes = [torch.arange(1 - extent, extent, dtype=torch.float32)
                * (8 / max(scale, 1))
                for extent, scale in zip(self.window_size, scales)]
        positions = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1)
        return (positions.sign() * (positions.abs() + 1).log2() / 3)[None]

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        bias = None
        if self.q_bias is not None:
            bias = torch.cat((self.q_bias, torch.zeros_like(self.v_bias),
                              self.v_bias))
        qkv = heads_of(functional.linear(x, self.qkv.weight, bias),
                       self.num_heads)
        table = 16 * self.cpb_mlp(self.relative_coords_table).view(
            -1, self.num_heads).sigmoid()
        if self.is_flash:
            o = window_attention(qkv, logit_scale=self.logit_scale,
                                 table=table, table_window=self.window_size,
                                 mask=mask)
        else:
            factor = self.logit_scale.clamp(max=math.log(100)).exp()
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            q, k = functional.normalize(q, dim=-1), functional.normalize(
                k, dim=-1)
            o = _plain_attention(
                q, k, v, factor,
                table[self.relative_position_index].permute(2, 0, 1), mask)
        return self.proj_drop(self.proj(o.transpose(1, 2).flatten(2)))

    def extra_repr(self) -> str:
        return (f"dim={self.dim}, window_size={self.window_size}, "
                f"pretrained_window_size={self.pretrained_window_size}, "
                f"num_heads={self.num_heads}")
