# SPDX-License-Identifier: Apache-2.0
"""winattn.torch's functions: what a caller gives, checked, as arguments of
the operators."""
from __future__ import annotations

from typing import Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

from .._library import invalid
from . import _operators  # noqa: F401, registers them

Sizes = Union[int, Sequence[int]]
Result = Union[Tensor, Tuple[Tensor, Tensor]]


def _each(name: str, value: Sizes, axes: int) -> list:
    """One number for each axis."""
    if isinstance(value, (int, bool)):
        return [value] * axes
    if len(value) != axes:
        raise invalid(f"{name} is {value}, and must have {axes} numbers")
    return list(value)


def _cast(q: Tensor, k: Tensor | None, v: Tensor | None
          ) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """As autocast casts the factors of a product."""
    kind = "cuda" if q.is_cuda else "cpu"
    if not torch.is_autocast_enabled(kind):
        return q, k, v
    dtype = torch.get_autocast_dtype(kind)
    return (q.to(dtype), None if k is None else k.to(dtype),
            None if v is None else v.to(dtype))


def _check(q: Tensor, **others: Tensor | None) -> None:
    if q.device.type not in ("cpu", "cuda", "meta"):
        raise TypeError(
            f"q is on {q.device}: winattn.torch computes on tensors in the "
            "host's memory and on GPUs of NVIDIA; on others, their own "
            "runtime would have to launch what winattn_launch_list says")
    for name, tensor in others.items():
        if tensor is not None and tensor.device != q.device:
            raise TypeError(f"{name} is on {tensor.device}, and q on "
                            f"{q.device}")


def _terms(q: Tensor, k: Tensor | None, v: Tensor | None, terms: dict
           ) -> tuple[list, list]:
    """The tensors and the options that windows and grids have alike."""
    if (k is None) != (v is None):
        raise TypeError("k and v must both be given, or neither where q has "
                        "all three")
    bias, table = terms["bias"], terms["table"]
    if bias is not None and table is not None:
        raise invalid("bias and table exclude each other")
    window = list(terms["table_window"] or ())
    if table is not None and not window and terms["table_index"] is None:
        window = list(terms["window"])
        if not window:
            raise invalid("table needs table_window or table_index")
    regions = terms["regions"]
    both = (regions if isinstance(regions, tuple) else (regions, None))
    both = [None if each is None else each.to(torch.uint8) for each in both]
    logit_scale, mask = terms["logit_scale"], terms["mask"]
    if logit_scale is not None:  # Swin V2's has the shape [heads, 1, 1]
        logit_scale = logit_scale.reshape(-1).float()
    term = table if bias is None else bias
    _check(q, k=k, v=v, bias=term, mask=mask, logit_scale=logit_scale,
           regions=both[0])
    q, k, v = _cast(q, k, v)
    pair = [each if each is None or each.dtype in (q.dtype, torch.float32)
            else each.to(q.dtype) for each in (term, mask)]
    return ([q, k, v, logit_scale, *pair, *both, terms["table_index"]],
            [terms["scale"], terms["cosine"] or logit_scale is not None,
             window, terms["table_sliced"], terms["region_value"]])


def window_attention(
        q: Tensor, k: Optional[Tensor] = None, v: Optional[Tensor] = None, *,
        scale: Optional[float] = None, cosine: bool = False,
        logit_scale: Optional[Tensor] = None, bias: Optional[Tensor] = None,
        table: Optional[Tensor] = None,
        table_window: Optional[Sequence[int]] = None,
        table_index: Optional[Tensor] = None, table_sliced: bool = False,
        mask: Optional[Tensor] = None,
        regions: Union[Tensor, Tuple[Tensor, Tensor], None] = None,
        region_value: Optional[float] = None, return_lse: bool = False
        ) -> Result:
    """softmax(scale Q K^T + bias + mask) V, in each window by itself.

    q             [windows, heads, queries, D], D up to 256; or, without k and
                  v, all three packed: [windows, tokens, 3, heads, D]
    k, v          [windows, kv_heads, keys, D]; kv_heads divides heads
    scale         factor of Q K^T; None: 1 / sqrt(D)
    cosine        rows of Q and K are divided by their length
    logit_scale   heads numbers, in any shape; with it cosine is meant, and the
                  factor is exp(min(logit_scale, ln 100)), as in Swin V2
    bias          [heads, queries, keys]
    table         [entries, heads], instead of a bias: the relative position of
                  query and key chooses the entry
    table_window  the window of the table, one to three extents; entries is the
                  product of (2 extent - 1)
    table_index   [queries, keys], whole numbers: the entry to take, instead of
                  table_window
    table_sliced  token n has the position that it would have in table_window
    mask          [masks, queries, keys], added; window w takes mask w mod
                  masks. -infinity is legal: a query that sees nothing gives 0.
    regions       [masks, tokens], or a pair, [masks, queries] and [masks,
                  keys]: region_value is added between different ones
    region_value  None: -100
    return_lse    the logarithms of the softmax's denominators, too

    float32, float16 or bfloat16. Sums and the softmax are computed in float32.
    Gradients: of q, k, v, bias or table, logit_scale; and through lse.

    Returns o, like q, or (o, lse), lse float32 [windows, heads, queries]."""
    tensors, options = _terms(q, k, v, {**locals(), "window": ()})
    o, lse = torch.ops.winattn.window_attention(*tensors, *options)
    return (o, lse) if return_lse else o


def cosine_window_attention(
        q: Tensor, k: Optional[Tensor] = None, v: Optional[Tensor] = None, *,
        logit_scale: Tensor, **others) -> Result:
    """Swin V2's attention: window_attention with rows of Q and K of length 1
    and the factor exp(min(logit_scale, ln 100)) of each head."""
    return window_attention(q, k, v, logit_scale=logit_scale, **others)


def grid_attention(
        q: Tensor, k: Optional[Tensor] = None, v: Optional[Tensor] = None, *,
        window: Sizes, shift: Sizes = 0,
        periodic: Union[bool, Sequence[bool]] = False,
        padding: str = "values", roll_first: bool = False,
        pad_k: Optional[Tensor] = None, pad_v: Optional[Tensor] = None,
        scale: Optional[float] = None, cosine: bool = False,
        logit_scale: Optional[Tensor] = None, bias: Optional[Tensor] = None,
        table: Optional[Tensor] = None,
        table_window: Optional[Sequence[int]] = None,
        table_index: Optional[Tensor] = None, table_sliced: bool = False,
        mask: Union[Tensor, str, None] = "shift",
        regions: Union[Tensor, Tuple[Tensor, Tensor], None] = None,
        region_value: Optional[float] = None, return_lse: bool = False
        ) -> Result:
    """Attention in the windows of a map: what a Swin block does between its
    projections. Padding, roll, partition into windows and their inverses are
    not made but computed with: tokens stay where they are.

    q         [batch, height, width, heads, D], with one to three axes for the
              map; or, without k and v, all three packed: [batch, height,
              width, 3, heads, D]
    k, v      [batch, height, width, kv_heads, D]
    window    tokens of a window along each axis; one number for all axes
    shift     the map is rolled by so many tokens; one number for all axes
    periodic  the axis is a circle: nothing is masked where it is closed
    padding   where windows do not divide the map: "values", padding takes
              part, as pad_k and pad_v; "hidden", nothing sees it
    roll_first  the map is rolled first and padded then, as timm does it
    pad_k, pad_v  [kv_heads, D]: keys and values of the padding; None: zeros
    table     as for window_attention; table_window is the window unless given
    mask      "shift": region_value, -100, is added between tokens that the
              shift brought together from opposite ends; None; or as for
              window_attention

    All else as for window_attention; lse is float32 [batch, height, width,
    heads]. Gradients: also of pad_k and pad_v."""
    axes = q.dim() - (4 if k is None else 3)
    sizes = _each("window", window, axes)
    terms = {**locals(), "window": sizes}
    shifts = mask == "shift" if isinstance(mask, str) else False
    if isinstance(mask, str):
        if not shifts:
            raise invalid(f'mask is {mask!r}, and must be a tensor, None or '
                          '"shift"')
        terms["mask"] = None
    shifts = shifts and regions is None
    tensors, options = _terms(q, k, v, terms)
    pads = [each if each is None else each.to(tensors[0].dtype)
            for each in (pad_k, pad_v)]
    _check(q, pad_k=pad_k, pad_v=pad_v)
    o, lse = torch.ops.winattn.grid_attention(
        *tensors, *pads, *options, sizes, _each("shift", shift, axes),
        _each("periodic", periodic, axes), padding, roll_first, shifts)
    return (o, lse) if return_lse else o


def sliding_window_attention(
        q: Tensor, k: Tensor, v: Tensor, block: int, *,
        first_block: Optional[int] = None,
        window_blocks: Optional[int] = None, sink: int = 0,
        sink_in_window: bool = False, query_offset: int = 0,
        scale: Optional[float] = None, return_lse: bool = False) -> Result:
    """softmax(scale Q K^T) V where a query sees its own block of tokens and
    those before it, as autoregressive video models attend.

    q               [batch, heads, queries, D]
    k, v            [batch, kv_heads, keys, D]; kv_heads divides heads
    block           tokens of a block
    first_block     tokens of the first block, such as a prompt; None: block
    window_blocks   blocks that a query sees, its own among them; None: all
                    before it
    sink            tokens at the start that all see besides
    sink_in_window  the blocks that the sink touches count among window_blocks
    query_offset    query i is the token i + query_offset, as with a cache of
                    keys

    Types, lse and gradients as for window_attention."""
    _check(q, k=k, v=v)
    q, k, v = _cast(q, k, v)
    for name, number in (("first_block", first_block),
                         ("window_blocks", window_blocks)):
        if number is not None and number < 1:
            raise invalid(f"{name} is {number}, and must be at least 1")
    o, lse = torch.ops.winattn.sliding_attention(
        q, k, v, scale, block, first_block or 0,
        window_blocks or 0, sink, sink_in_window, query_offset)
    return (o, lse) if return_lse else o
