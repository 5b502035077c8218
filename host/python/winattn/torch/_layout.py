# SPDX-License-Identifier: Apache-2.0
"""What tensors look like: q, k and v in one tensor or three, and memory for
results."""
from __future__ import annotations

from typing import Any

import torch

# What is differentiated, in the order in which gradients are returned; k and
# v are not where q has all three.
DIFFERENTIATED = ("q", "k", "v", "logit_scale", "bias", "pad_k", "pad_v")


def is_token_major(kind: str, q: torch.Tensor) -> bool:
    """Do the heads of a token lie side by side, as in what a projection makes?
    (On a grid they always do.)"""
    return kind != "grid" and q.stride(2) > q.stride(1)


def empty_like_tokens(kind: str, q: torch.Tensor) -> torch.Tensor:
    """Memory for o, in the order of q."""
    if is_token_major(kind, q):
        windows, heads, tokens, channels = q.shape
        return q.new_empty((windows, tokens, heads, channels)).transpose(1, 2)
    return q.new_empty(q.shape)


def split(kind: str, q: torch.Tensor, k: torch.Tensor | None,
          v: torch.Tensor | None) -> list[torch.Tensor]:
    """q, k and v, as views where they are packed."""
    if k is not None and v is not None:
        return [q, k, v]
    parts = list(q.unbind(-3))
    if kind != "grid":
        parts = [part.transpose(1, 2) for part in parts]
    return parts


def heads_of(x: torch.Tensor, heads: int, parts: int = 3) -> torch.Tensor:
    """[..., parts, heads, D] of what a projection made. (Not by unflatten,
    which PyTorch 2.11 does not compile where there is a default device.)"""
    channels = x.shape[-1] // (parts * heads)
    return x.view(*x.shape[:-1], parts, heads, channels)


def empty_gradients(kind: str, given: dict[str, Any], wanted: list[bool]
                    ) -> list[torch.Tensor]:
    """Memory for the gradients that are wanted, of DIFFERENTIATED. Sums are
    float32, whatever type the input has."""
    made = []
    for name, is_wanted in zip(DIFFERENTIATED, wanted):
        if not is_wanted:
            continue
        like = given[name]
        if name in ("q", "k", "v"):
            made.append(like.new_empty(like.shape) if given["k"] is None
                        else empty_like_tokens(kind, like))
        else:
            made.append(like.new_empty(like.shape, dtype=torch.float32))
    return made
