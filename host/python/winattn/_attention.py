# SPDX-License-Identifier: Apache-2.0
"""The public functions: what they take, what they compute, what they return.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Mapping, Sequence, Union

from . import _calls
from ._arguments import flag
from ._calls import Gradients
from ._library import invalid

if TYPE_CHECKING:
    import numpy
    import pyopencl
    import pyopencl.array

    from ._opencl import Device

    Array = Union[numpy.ndarray, pyopencl.array.Array]
    Mask = Union[Array, str, None]
    Regions = Union[Array, "tuple[Array, Array]", None]
    Queue = pyopencl.CommandQueue
    Events = Iterable[pyopencl.Event]

# locals(), at the start of a function, is its arguments by name.


def window_attention(
        q: Array, k: Array, v: Array, *, scale: float | None = None,
        cosine: bool = False, logit_scale: Array | None = None,
        bias: Array | None = None, table: Array | None = None,
        table_window: Sequence[int] | None = None,
        table_index: numpy.ndarray | None = None, table_sliced: bool = False,
        mask: Array | None = None, regions: Regions = None,
        region_value: float | None = None, lse: bool | Array = False,
        out: Array | None = None, dtype: str | None = None,
        tier: str = "auto", allow_tf32: bool = False,
        device: Device | None = None, queue: Queue | None = None,
        wait_for: Events = ()) -> Any:
    """softmax(scale Q K^T + bias + mask) V, in each window by itself.

    All arrays are numpy's, or all are pyopencl's. Arrays of numpy are copied
    to a device, and results are there on return. Arrays of pyopencl are read
    and written where they are, with any strides that are not negative; the
    call returns at once, after what was enqueued for its arrays before (their
    events), and results have its event.

    float32, float16 or bfloat16: ml_dtypes.bfloat16, or uint16 with
    dtype="bfloat16". q, k, v, pads and results are of one type. Sums and the
    softmax are computed in float32.

    q             [windows, heads, queries, D], D up to 256
    k, v          [windows, kv_heads, keys, D]; kv_heads divides heads, and
                  query head h reads key head h // (heads // kv_heads)
    scale         factor of Q K^T; None: 1 / sqrt(D)
    cosine        rows of Q and K are divided by their length (Swin V2)
    logit_scale   float32 [heads]; with it cosine is meant, and the factor is
                  exp(min(logit_scale, ln 100)) instead of scale
    bias          [heads, queries, keys], of q's type or float32
    table         [entries, heads], of q's type or float32, instead of a bias:
                  the relative position of query and key chooses the entry
    table_window  window that the table was made for, one to three extents;
                  entries is the product of (2 extent - 1)
    table_sliced  token n has the position that it would have in table_window,
                  also where the window has fewer tokens
    table_index   whole numbers [queries, keys], of numpy: the entry to take,
                  instead of table_window
    mask          [masks, queries, keys], of q's type or float32, added; window
                  w takes mask w mod masks. -infinity is legal: a query that
                  sees nothing gives 0.
    regions       uint8 [masks, tokens], or a pair, [masks, queries] and
                  [masks, keys]: region_value is added between different ones
    region_value  -100 unless it is given; -infinity is legal
    lse           True: also return the logarithms of the softmax's
                  denominators, float32 [windows, heads, queries]; or an array
                  for them
    out           array for the result. What is written must not be read-only
                  nor overlap itself or another array of the call; of numpy it
                  may lie on an input, as inputs are copied first.
    tier          "auto", or the kind of kernels to take: "cpu", "local",
                  "matrix"
    allow_tf32    float32 may be rounded to TF32 for products on matrix units
    device        numpy only: one of devices(); None: default_device()
    queue         pyopencl only; None: that of q
    wait_for      pyopencl only: more events to wait for

    Returns o, like q, or (o, lse).

    TypeError        an array of another kind or type
    InvalidArgument  (a ValueError) shapes that do not fit, and all that
                     contradicts itself
    Unsupported      (a NotImplementedError) no kernel computes it there
    OpenCLError      OpenCL fails, or there is no device"""
    return _calls.forward("windows", locals())


def window_attention_backward(
        d_o: Array, q: Array, k: Array, v: Array, *,
        scale: float | None = None, cosine: bool = False,
        logit_scale: Array | None = None, bias: Array | None = None,
        table: Array | None = None,
        table_window: Sequence[int] | None = None,
        table_index: numpy.ndarray | None = None, table_sliced: bool = False,
        mask: Array | None = None, regions: Regions = None,
        region_value: float | None = None, o: Array | None = None,
        lse: Array | None = None, d_lse: Array | None = None,
        wanted: Iterable[str] | None = None,
        out: Mapping[str, Array] | None = None,
        accumulate: Iterable[str] = (), dtype: str | None = None,
        tier: str = "auto", allow_tf32: bool = False,
        device: Device | None = None, queue: Queue | None = None,
        wait_for: Events = ()) -> Gradients:
    """Gradients of a loss with respect to the inputs of window_attention,
    given that with respect to its result. Arguments that window_attention has
    must be those of its call.

    d_o         like o: the loss's gradient with respect to o
    o, lse      what window_attention returned; not needed, but some kernels
                are faster with both
    d_lse       float32 [windows, heads, queries]: the gradient with respect to
                lse, if the loss depends on it
    wanted      names of Gradients; None: all whose inputs are given
    out         arrays for gradients, by name
    accumulate  names of gradients that are added to what `out` has; the
                others are overwritten

    Returns Gradients(dq, dk, dv, dbias, d_logit_scale, d_pad_k, d_pad_v): dq
    like q, dk like k, dv like v; dbias, float32, like bias or table;
    d_logit_scale float32 [heads]. What was not wanted is None.

    Errors are those of window_attention."""
    return _calls.backward("windows", locals())


def grid_attention(
        q: Array, k: Array, v: Array, window: int | Sequence[int], *,
        shift: int | Sequence[int] = 0,
        periodic: bool | Sequence[bool] = False, padding: str = "values",
        roll_first: bool = False,
        pad_k: Array | None = None, pad_v: Array | None = None,
        scale: float | None = None, cosine: bool = False,
        logit_scale: Array | None = None, bias: Array | None = None,
        table: Array | None = None,
        table_window: Sequence[int] | None = None,
        table_index: numpy.ndarray | None = None, table_sliced: bool = False,
        mask: Mask = "shift", regions: Regions = None,
        region_value: float | None = None, lse: bool | Array = False,
        out: Array | None = None, dtype: str | None = None,
        tier: str = "auto", allow_tf32: bool = False,
        device: Device | None = None, queue: Queue | None = None,
        wait_for: Events = ()) -> Any:
    """Attention in the windows of a grid, such as a feature map: what a Swin
    block does between its projections. Padding, roll, partition into windows
    and their inverses are not made but computed with: tokens stay where they
    are. Order and mask are those of torchvision.

    q         [batch, height, width, heads, D], or with one or three axes for
              height and width
    k, v      likewise, with kv_heads
    window    tokens of a window along each axis; one number for all axes
    shift     the grid is rolled by so many tokens, less than the window; one
              number for all axes. An axis that one window covers is not
              shifted.
    periodic  the axis is a circle: what the shift brings together belongs
              together
    padding   where windows do not divide the grid: "values", padding takes
              part, as pad_k and pad_v; "hidden", nothing sees it
    roll_first  the grid is rolled first and padded then, as timm does it; each
              axis is shifted as shift says, also one that one window covers
    pad_k, pad_v  [kv_heads, D], of q's type: keys and values of the padding;
              None: zeros
    table     as for window_attention; table_window is the window unless it is
              given
    mask      "shift": region_value, -100, is added between tokens that the
              shift brought together from opposite ends of an axis, as in
              Swin; None; or as for window_attention, [masks, queries, keys],
              windows of a grid counted row by row, grid after grid
    regions   as for window_attention, instead of "shift"

    All else as for window_attention; lse is float32 [batch, height, width,
    heads]. Returns o, like q, or (o, lse), and raises the same errors.

    Of qkv [batch, height, width, 3, heads, D], split_qkv(qkv, grid=True) gives
    q, k and v without a copy."""
    return _calls.forward("grid", locals())


def grid_attention_backward(
        d_o: Array, q: Array, k: Array, v: Array,
        window: int | Sequence[int], *, shift: int | Sequence[int] = 0,
        periodic: bool | Sequence[bool] = False, padding: str = "values",
        roll_first: bool = False,
        pad_k: Array | None = None, pad_v: Array | None = None,
        scale: float | None = None, cosine: bool = False,
        logit_scale: Array | None = None, bias: Array | None = None,
        table: Array | None = None,
        table_window: Sequence[int] | None = None,
        table_index: numpy.ndarray | None = None, table_sliced: bool = False,
        mask: Mask = "shift", regions: Regions = None,
        region_value: float | None = None, o: Array | None = None,
        lse: Array | None = None, d_lse: Array | None = None,
        wanted: Iterable[str] | None = None,
        out: Mapping[str, Array] | None = None,
        accumulate: Iterable[str] = (), dtype: str | None = None,
        tier: str = "auto", allow_tf32: bool = False,
        device: Device | None = None, queue: Queue | None = None,
        wait_for: Events = ()) -> Gradients:
    """Gradients of grid_attention; see window_attention_backward, and
    grid_attention for the arguments that both have. d_pad_k and d_pad_v are
    float32 [kv_heads, D], the sums over all tokens of the padding."""
    return _calls.backward("grid", locals())


def sliding_attention(
        q: Array, k: Array, v: Array, block: int, *,
        first_block: int | None = None, window_blocks: int | None = None,
        sink: int = 0, sink_in_window: bool = False, query_offset: int = 0,
        scale: float | None = None, lse: bool | Array = False,
        out: Array | None = None, dtype: str | None = None,
        tier: str = "auto", allow_tf32: bool = False,
        device: Device | None = None, queue: Queue | None = None,
        wait_for: Events = ()) -> Any:
    """softmax(scale Q K^T) V where a query sees its own block of tokens and
    those before it, as autoregressive video models attend.

    q               [batch, heads, queries, D]
    k, v            [batch, kv_heads, keys, D]
    block           tokens of a block
    first_block     tokens of the first block, such as a prompt; None: block
    window_blocks   blocks that a query sees, its own among them; None: all
                    before it
    sink            tokens at the start that all see besides
    sink_in_window  the blocks that the sink touches count among window_blocks
    query_offset    query i is the token i + query_offset, as with a cache of
                    keys; another number of keys compiles nothing

    All else as for window_attention; there is no bias, mask or cosine.
    Returns o, like q, or (o, lse), and raises the same errors."""
    return _calls.forward("sliding", locals())


def sliding_attention_backward(
        d_o: Array, q: Array, k: Array, v: Array, block: int, *,
        first_block: int | None = None, window_blocks: int | None = None,
        sink: int = 0, sink_in_window: bool = False, query_offset: int = 0,
        scale: float | None = None, o: Array | None = None,
        lse: Array | None = None, d_lse: Array | None = None,
        wanted: Iterable[str] | None = None,
        out: Mapping[str, Array] | None = None,
        accumulate: Iterable[str] = (), dtype: str | None = None,
        tier: str = "auto", allow_tf32: bool = False,
        device: Device | None = None, queue: Queue | None = None,
        wait_for: Events = ()) -> Gradients:
    """Gradients of sliding_attention; see window_attention_backward, and
    sliding_attention for the arguments that both have."""
    return _calls.backward("sliding", locals())


def split_qkv(qkv: Array, grid: bool = False) -> tuple[Array, Array, Array]:
    """q, k and v of what one projection gives, as views of it: no copy.

    grid=False  [windows, tokens, 3, heads, D] -> three of [windows, heads,
                tokens, D]
    grid=True   [batch, height, width, 3, heads, D], or with one or three axes
                for height and width -> three of [batch, height, width, heads,
                D]

    So a gradient can be written in place: out={"dq": dq, "dk": dk, "dv": dv}
    with dq, dk, dv = split_qkv(dqkv).

    InvalidArgument: qkv has another shape."""
    grid = flag("grid", grid)
    if not hasattr(qkv, "shape"):
        raise TypeError("qkv must be an array of numpy or pyopencl, not "
                        f"{type(qkv).__name__}")
    axes = len(qkv.shape)
    if not (5 <= axes <= 7 if grid else axes == 5) or qkv.shape[-3] != 3:
        raise invalid(f"qkv has the shape {tuple(qkv.shape)}, and must be "
                      + ("[batch, one to three axes of the grid, 3, heads, D]"
                         if grid else "[windows, tokens, 3, heads, D]"))
    parts = [qkv[..., part, :, :] for part in range(3)]
    if not grid:
        parts = [part.transpose((0, 2, 1, 3)) for part in parts]
    return parts[0], parts[1], parts[2]
