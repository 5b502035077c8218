# SPDX-License-Identifier: Apache-2.0
"""winattn.torch's functions: what a caller gives, checked, as arguments of
the operators."""
from __future__ import annotations

from typing import Optional, Sequence, Tuple, Union

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .._library import invalid
from . import _operators  # noqa: F401, registers them

Regions = Union[Tensor, Tuple[Tensor, Tensor], None]
Sizes = Union[int, Sequence[int]]
Result = Union[Tensor, Tuple[Tensor, Tensor]]


_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def _each(name: str, value: Sizes, axes: int) -> list:
    """One number for each axis."""
    values = list(value) if hasattr(value, "__len__") else [value] * axes
    if len(values) != axes:
        raise invalid(f"{name} is {value}, and must have {axes} numbers")
    if any(isinstance(one, float) for one in values):
        raise TypeError(f"{name} is {value}, and must be whole numbers")
    return values


def _cast(tensor: Tensor | None) -> Tensor | None:
    """As autocast casts a factor of a product."""
    if tensor is None or tensor.dtype == torch.float64:
        return tensor
    kind = "cuda" if tensor.is_cuda else "cpu"
    if not torch.is_autocast_enabled(kind):
        return tensor
    return tensor.to(torch.get_autocast_dtype(kind))


def _check(**tensors: Tensor | None) -> None:
    """What only PyTorch's tensors can have wrong; the rest is the library's
    to judge."""
    q = tensors["q"]
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} is a {type(tensor).__name__}, and must "
                            "be a tensor of PyTorch")
        if tensor.layout is not torch.strided:
            raise TypeError(f"{name} is {tensor.layout}, and must be dense: "
                            f"{name}.to_dense()")
        if tensor.device != q.device:
            raise TypeError(f"{name} is on {tensor.device}, and q on "
                            f"{q.device}")
    if q.device.type not in ("cpu", "cuda", "meta"):
        raise TypeError(
            f"q is on {q.device}: winattn.torch computes on tensors in the "
            "host's memory and on GPUs of NVIDIA; on others, their own "
            "runtime would have to launch what winattn_launch_list says")
    if forward_ad._current_level >= 0 and any(
            forward_ad.unpack_dual(tensor).tangent is not None
            for tensor in tensors.values() if tensor is not None):
        raise NotImplementedError(
            "winattn has no derivatives in forward mode (jvp): PyTorch would "
            "take them for 0")


def _factors(q: Tensor, k: Tensor | None, v: Tensor | None,
             scale: float | None, packed: str = "") -> list[Tensor | None]:
    """q, k and v as they are multiplied."""
    if (k is None) != (v is None) or (k is None and not packed):
        raise TypeError("k and v must both be given" + (
            ", or neither where q has all three" if packed else ""))
    if k is None and (q.dim() < 5 or q.shape[-3] != 3):
        raise invalid(f"q has the shape {tuple(q.shape)}, and must be "
                      f"{packed} where k and v are not given")
    if isinstance(scale, Tensor) and scale.requires_grad:
        raise NotImplementedError(
            "scale requires a gradient, and winattn computes none: pass q * "
            "scale, and 1 for scale")
    factors = [_cast(each) for each in (q, k, v)]
    for name, each in zip("qkv", factors):
        if each is not None and each.dtype not in _DTYPES:
            raise TypeError(f"{name} is {each.dtype}, and must be float32, "
                            "float16 or bfloat16")
        if each is not None and each.dtype != factors[0].dtype:
            raise TypeError(f"{name} is {each.dtype}, and q is "
                            f"{factors[0].dtype}")
    return factors


def _regions(regions: Regions) -> list[Tensor | None]:
    """Those of queries and those of keys."""
    both = (list(regions) if isinstance(regions, (tuple, list))
            else [regions, None])
    for each in both:
        # to uint8, others would not stay as different as they are
        if each is not None and each.dtype not in (torch.uint8, torch.int8,
                                                   torch.bool):
            raise TypeError(f"regions is {each.dtype}, and must be uint8: "
                            "regions.to(torch.uint8), with numbers below 256")
    return [None if each is None else each.to(torch.uint8) for each in both]


def _terms(q: Tensor, k: Tensor | None, v: Tensor | None, packed: str, *,
           window: Sequence[int], scale: float | None, cosine: bool,
           logit_scale: Tensor | None, bias: Tensor | None,
           table: Tensor | None, table_window: Sequence[int] | None,
           table_index: Tensor | None, table_sliced: bool,
           mask: Tensor | None, regions: Regions,
           region_value: float | None) -> tuple[list, list]:
    """The tensors and the options that windows and grids have alike; `packed`
    is the shape of q without k and v, `window` that of a table."""
    if bias is not None and table is not None:
        raise invalid("bias and table exclude each other")
    if table_window is not None:
        window = list(table_window)
    elif table is None or table_index is not None:
        window = []
    elif not window:
        raise invalid("table needs table_window or table_index")
    term = table if bias is None else bias
    _check(q=q, k=k, v=v, **{"table" if bias is None else "bias": term},
           mask=mask, logit_scale=logit_scale)
    if mask is not None and mask.dtype == torch.bool:
        raise TypeError(
            "mask is bool, and is added to the logits: where True is what a "
            "query sees, pass "
            "torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)")
    both = _regions(regions)
    _check(q=q, regions=both[0])
    if logit_scale is not None:  # Swin V2's has the shape [heads, 1, 1]
        logit_scale = logit_scale.reshape(-1).float()
    if table_index is not None and q.is_meta:
        table_index = table_index.to("meta")
    q, k, v = _factors(q, k, v, scale, packed)
    pair = [each if each is None or each.dtype in (q.dtype, torch.float32)
            else each.to(q.dtype) for each in (term, mask)]
    return ([q, k, v, logit_scale, *pair, *both, table_index],
            [scale, cosine or logit_scale is not None, window, table_sliced,
             region_value])


def window_attention(
        q: Tensor, k: Optional[Tensor] = None, v: Optional[Tensor] = None, *,
        scale: Optional[float] = None, cosine: bool = False,
        logit_scale: Optional[Tensor] = None, bias: Optional[Tensor] = None,
        table: Optional[Tensor] = None,
        table_window: Optional[Sequence[int]] = None,
        table_index: Optional[Tensor] = None, table_sliced: bool = False,
        mask: Optional[Tensor] = None,
        regions: Regions = None,
        region_value: Optional[float] = None, return_lse: bool = False
        ) -> Result:
    """softmax(scale Q K^T + bias + mask) V, in each window by itself.

    q             [windows, heads, queries, D], D up to 256; or, without k and
                  v, all three packed: [windows, tokens, 3, heads, D]
    k, v          [windows, kv_heads, keys, D]; kv_heads divides heads
    scale         factor of Q K^T; None: 1 / sqrt(D)
    cosine        rows of Q and K are divided by their length
    logit_scale   heads numbers, in any shape; with it cosine is meant, and the
                  factor is exp(min(logit_scale, ln 100)) instead of scale, as
                  in Swin V2
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
    regions       uint8 [masks, tokens], or a pair, [masks, queries] and
                  [masks, keys]: region_value is added between different ones
    region_value  None: -100
    return_lse    the logarithms of the softmax's denominators, too

    q, k and v are all float32, float16 or bfloat16; bias, table and mask may
    be float32 beside them, and what is neither is cast. Sums and the softmax
    are computed in float32. Gradients: of q, k, v, bias or table, logit_scale;
    and through lse.

    Returns o [windows, heads, queries, D], in memory as q is, or (o, lse), lse
    float32 [windows, heads, queries].

    TypeError: a device, a type or a kind of tensor that is not taken.
    InvalidArgument (a ValueError): a wrong shape, or arguments that exclude
    each other. Unsupported (a NotImplementedError): D above 256.
    NotImplementedError: a derivative that winattn does not compute (of mask or
    scale, a second one, or in forward mode). OpenCLError: no device, or one
    that fails. Nothing is computed then."""
    tensors, options = _terms(
        q, k, v, "[windows, tokens, 3, heads, D]", window=(), scale=scale,
        cosine=cosine, logit_scale=logit_scale, bias=bias, table=table,
        table_window=table_window, table_index=table_index,
        table_sliced=table_sliced, mask=mask, regions=regions,
        region_value=region_value)
    o, lse = torch.ops.winattn.window_attention(*tensors, *options)
    return (o, lse) if return_lse else o


def cosine_window_attention(
        q: Tensor, k: Optional[Tensor] = None, v: Optional[Tensor] = None, *,
        logit_scale: Tensor, **others) -> Result:
    """Swin V2's attention: window_attention with rows of Q and K of length 1
    and the factor exp(min(logit_scale, ln 100)) of each head.

    logit_scale  heads numbers, in any shape, such as [heads, 1, 1]

    All else, results and errors as for window_attention."""
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
        regions: Regions = None,
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

    All else and errors as for window_attention. Gradients: also of pad_k and
    pad_v.

    Returns o [batch, height, width, heads, D], or (o, lse), lse float32
    [batch, height, width, heads]."""
    _check(q=q, k=k, v=v, pad_k=pad_k, pad_v=pad_v)
    axes = q.dim() - (4 if k is None else 3)
    sizes = _each("window", window, axes)
    shifts = isinstance(mask, str) and mask == "shift"
    if isinstance(mask, str) and not shifts:
        raise invalid(f'mask is {mask!r}, and must be a tensor, None or '
                      '"shift"')
    tensors, options = _terms(
        q, k, v, "[batch, one to three axes of the map, 3, heads, D]",
        window=sizes, scale=scale, cosine=cosine, logit_scale=logit_scale,
        bias=bias, table=table, table_window=table_window,
        table_index=table_index, table_sliced=table_sliced,
        mask=None if shifts else mask, regions=regions,
        region_value=region_value)
    pads = [each if each is None else each.to(tensors[0].dtype)
            for each in (pad_k, pad_v)]
    o, lse = torch.ops.winattn.grid_attention(
        *tensors, *pads, *options, sizes, _each("shift", shift, axes),
        _each("periodic", periodic, axes), padding, roll_first,
        shifts and regions is None)
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

    Types, scale, lse and errors as for window_attention. Gradients: of q, k
    and v, and through lse. Returns o, like q, or (o, lse), lse float32 [batch,
    heads, queries]."""
    _check(q=q, k=k, v=v)
    q, k, v = _factors(q, k, v, scale)
    for name, number in (("first_block", first_block),
                         ("window_blocks", window_blocks)):
        if number is not None and number < 1:
            raise invalid(f"{name} is {number}, and must be at least 1")
    o, lse = torch.ops.winattn.sliding_attention(
        q, k, v, scale, block, first_block or 0,
        window_blocks or 0, sink, sink_in_window, query_offset)
    return (o, lse) if return_lse else o
