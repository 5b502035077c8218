# SPDX-License-Identifier: Apache-2.0
"""Attention as it is written, in float64, with PyTorch's own functions. Tests
that import this compute on DEVICE."""
import itertools
import math
import os

import torch

DEVICE = os.environ.get("WINATTN_TORCH_DEVICE", "cpu")
if DEVICE != "cpu":  # it makes every call of PyTorch slower
    torch.set_default_device(DEVICE)


def positions(*window):
    """[tokens, axes] of the tokens of a window."""
    return torch.tensor(list(itertools.product(*map(range, window))))


def bias_of_table(table, window):
    """[heads, tokens, tokens] from [entries, heads]."""
    at = positions(*window)
    step = torch.tensor([2 * extent - 1 for extent in window])
    relative = at[:, None] - at[None] + torch.tensor(window) - 1
    index = torch.zeros(relative.shape[:2], dtype=torch.long)
    for axis in range(len(window)):
        index = index * step[axis] + relative[..., axis]
    return table[index].permute(2, 0, 1)


def windows(q, k, v, scale=None, logit_scale=None, cosine=False, bias=None,
            mask=None):
    """[windows, heads, tokens, D]; a mask [masks, tokens, tokens]."""
    repeat = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(repeat, 1) for x in (k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if cosine or logit_scale is not None:
        q, k = (x / x.norm(dim=-1, keepdim=True).clamp(min=1e-12)
                for x in (q, k))
    if logit_scale is not None:
        scale = logit_scale.reshape(-1, 1, 1).clamp(max=math.log(100)).exp()
    logits = q @ k.transpose(-2, -1) * scale
    if bias is not None:
        logits = logits + bias
    if mask is not None:
        logits = (logits.unflatten(0, (-1, len(mask))) + mask[:, None]
                  ).flatten(0, 1)
    lse = logits.logsumexp(-1)
    weights = torch.where(lse[..., None] == -math.inf, 0.0,
                          (logits - lse[..., None]).exp())
    return weights @ v, lse


def sliding(q, k, v, block, window_blocks=None, sink=0, scale=None):
    query, key = (torch.arange(x.shape[2]) for x in (q, k))
    ahead = query[:, None] // block - key // block
    seen = ahead >= 0
    if window_blocks is not None:
        seen &= (ahead < window_blocks) | (key < sink)
    mask = torch.zeros(seen.shape, dtype=q.dtype).masked_fill(~seen,
                                                               -math.inf)
    return windows(q, k, v, scale, mask=mask[None])


def grid(qkv, window, shift, bias=None, pads=None):
    """[batch, height, width, 3, heads, D], padded as torchvision does it."""
    batch, height, width, _, heads, channels = qkv.shape
    if pads is None:
        pads = [qkv.new_zeros(heads, channels)] * 2
    size = [-(-extent // part) * part
            for extent, part in zip((height, width), window)]
    shift = [0 if part >= extent else by
             for extent, part, by in zip(size, window, shift)]
    back = [-by for by in shift]
    cut = [size[0] // window[0], window[0], size[1] // window[1], window[1]]
    around = torch.stack([torch.zeros_like(pads[0]), *pads])
    padded = around.expand(batch, *size, -1, -1, -1).clone()
    padded[:, :height, :width] = qkv

    region = torch.zeros(size)
    for axis, (extent, part, by) in enumerate(zip(size, window, shift)):
        along = torch.zeros(extent)
        if by:
            along[extent - part:] = 1
            along[extent - by:] = 2
        region += along.unsqueeze(1 - axis) * 3 ** axis
    region = region.view(cut).transpose(1, 2).reshape(-1,
                                                      window[0] * window[1])
    mask = -100.0 * (region[:, :, None] != region[:, None])

    parts = padded.roll(back, (1, 2)).view(batch, *cut, 3, heads, channels)
    q, k, v = parts.permute(5, 0, 1, 3, 6, 2, 4, 7).reshape(
        3, -1, heads, window[0] * window[1], channels)
    o, _ = windows(q, k, v, bias=bias, mask=mask.to(q.dtype))
    o = o.view(batch, cut[0], cut[2], heads, window[0], window[1], channels)
    o = o.permute(0, 1, 4, 2, 5, 3, 6).reshape(batch, *size, heads, channels)
    return o.roll(shift, (1, 2))[:, :height, :width]
