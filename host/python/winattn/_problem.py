# SPDX-License-Identifier: Apache-2.0
"""Arguments of a function -> what is computed: shapes and types are checked,
and the library's descriptor is filled in. Nothing here knows where an array
lies; of each one its shape, dtype and strides are asked.

An array is named as in winattn.h; `table` stands for a bias that is one, and
`out` for an `o` that is written."""
from __future__ import annotations

import hashlib
from ctypes import POINTER, c_int32, sizeof
from typing import Any, Mapping

import numpy

from . import _library
from ._arguments import choice, each, flag, real, several, size, whole
from ._library import invalid

_BF16 = "bfloat16"
_CODES = {"float32": "fp32", "float16": "fp16", _BF16: "bf16"}

# What each array's axes are in the library, in the order of its shape; GRID
# stands for the grid's axes. Arrays without strides must be contiguous.
_GRID = "grid"
_AXES = {
    "windows": {"tokens": ("window", "head", "row", "column"),
                "numbers": ("window", "head", "row")},
    "grid": {"tokens": ("window", _GRID, "head", "column"),
             "numbers": ("window", _GRID, "head")},
}
_TERMS = {
    "bias": ("bias_strides", ("head", "row", "column")),
    "table": ("bias_strides", ("row", "head")),
    "dbias": ("dbias_strides", ("head", "row", "column")),
    "dtable": ("dbias_strides", ("row", "head")),
    "mask": ("mask_strides", ("window", "row", "column")),
    "query_regions": ("query_region_strides", ("window", "row")),
    "key_regions": ("key_region_strides", ("window", "row")),
    "pad_k": ("pad_k", ("head", "column")),
    "pad_v": ("pad_v", ("head", "column")),
    "d_pad_k": ("d_pad_k", ("head", "column")),
    "d_pad_v": ("d_pad_v", ("head", "column")),
}
_OF_QUERIES = ("q", "o", "out", "d_o", "dq")
_OF_KEYS = ("k", "v", "dk", "dv")
_NUMBERS = ("lse", "d_lse")


def code_of(name: str, array: Any, dtype: str | None) -> str:
    """"fp32", "fp16" or "bf16". numpy itself knows no bfloat16: it is that of
    ml_dtypes, or uint16 where dtype="bfloat16" says so."""
    native = array.dtype.isnative
    kind = array.dtype.name if native else str(array.dtype)
    if kind == "uint16" and dtype == _BF16:
        return "bf16"
    if kind in _CODES:
        return _CODES[kind]
    raise TypeError(f"{name} is {kind}, and must be float32, float16 or "
                    "bfloat16 (uint16 with dtype=\"bfloat16\")"
                    + ("" if native else ", in this machine's byte order"))


def element_strides(name: str, array: Any) -> list[int] | None:
    """Strides in elements, None: contiguous, which the library computes
    itself. Those of axes of extent 1 are 0, as they do not matter, so that
    the same tensor has the same plan."""
    bytes_each = array.dtype.itemsize
    strides: list[int] = []
    contiguous, step = True, bytes_each
    for axis in reversed(range(len(array.shape))):
        extent, stride = array.shape[axis], array.strides[axis]
        contiguous &= extent <= 1 or stride == step
        step *= extent
        strides.insert(0, 0 if extent == 1 else stride // bytes_each)
        if extent > 1 and (stride < 0 or stride % bytes_each):
            raise invalid(
                f"{name} has a stride of {stride} bytes along axis {axis}, "
                + (f"which is no multiple of its elements' {bytes_each}"
                   if stride > 0 else
                   "and must not run backwards: pass a copy"))
    if contiguous or 0 in array.shape:
        return None
    if not any(strides):
        # zeros would mean contiguous; a stride that does not matter tells it
        # from a broadcast
        if 1 not in array.shape:
            raise invalid(f"{name} repeats one number along all its axes")
        strides[array.shape.index(1)] = 1
    return strides


class Problem:
    """A descriptor, and the shapes of all arrays that belong to it.

    arrays  name -> array, of those that were given: the library's inputs
    given   the other arguments of winattn.window_attention and so on
    kind    "windows", "grid" or "sliding\""""

    def __init__(self, kind: str, arrays: Mapping[str, Any],
                 given: Mapping[str, Any]) -> None:
        self.kind = kind
        self.arrays = dict(arrays)
        self.desc = _library.Desc(struct_size=sizeof(_library.Desc))
        self.index: numpy.ndarray | None = None
        self.dtype = arrays["q"].dtype  # of what is computed
        self._named_dtype = given["dtype"]
        if self._named_dtype not in (None, _BF16):
            raise invalid(f"dtype is {self._named_dtype!r}; only uint16 needs "
                          "to be told what it holds: \"bfloat16\"")
        self.code = code_of("q", arrays["q"], self._named_dtype)
        if self._named_dtype and self.code != "bf16":
            raise TypeError(f"q is {self.dtype}, and dtype says \"bfloat16\"")
        desc = self.desc
        desc.dtype = _library.DTYPES.index(self.code)
        desc.tier = choice("tier", given["tier"], _library.TIERS)
        desc.allow_tf32 = flag("allow_tf32", given["allow_tf32"])
        if given["scale"] is not None:
            desc.scale = real("scale", given["scale"])
            if not desc.scale:
                raise invalid(f"scale is {given['scale']}, and must not be 0 "
                              "in float32; None means 1 / sqrt(D)")
        self._read_extents()
        self._settle(given)
        for name in arrays:
            self._set_strides(name, arrays[name])

    # ---- Extents ----

    def _read_extents(self) -> None:
        """From the shapes of q and k, which must have the right axes."""
        q, k = self.arrays["q"].shape, self.arrays["k"].shape
        if self.kind == "grid":
            if not 4 <= len(q) <= 3 + _library.AXES:
                raise invalid(f"q has the shape {q}, and must be [batch, one "
                              "to three axes of the grid, heads, D]")
            self.batch, self.size = q[0], q[1:-2]
            self.heads, self.dim = q[-2:]
            self.kv_heads = k[-2] if len(k) == len(q) else 0
        else:
            for name, shape in (("q", q), ("k", k)):
                if len(shape) != 4:
                    raise invalid(f"{name} has the shape {shape}, and must be "
                                  "[windows, heads, tokens, D]")
            self.batch, self.heads, self.queries, self.dim = q
            self.kv_heads, self.keys = k[1:3]
        if not self.heads or not self.kv_heads or self.heads % self.kv_heads:
            raise invalid(f"q has the shape {q} and k {k}: the heads of k "
                          "must divide those of q")

    def _settle(self, given: Mapping[str, Any]) -> None:
        desc = self.desc
        desc.heads, desc.kv_heads = self.heads, self.kv_heads
        desc.head_dim = whole("D, the last axis of q,", self.dim)
        if self.kind == "grid":
            self._settle_grid(given)
        else:
            desc.windows = self.batch
            desc.queries = whole("the number of queries", self.queries)
            desc.keys = whole("the number of keys", self.keys)
        if self.kind == "sliding":
            self._settle_sliding(given)
            return
        cosine = (flag("cosine", given["cosine"])
                  or "logit_scale" in self.arrays)
        desc.variant = _library.VARIANTS.index("cosine" if cosine else "dot")
        self._settle_bias(given)
        self._settle_mask(given)

    def _settle_grid(self, given: Mapping[str, Any]) -> None:
        grid, axes = self.desc.grid, len(self.size)
        grid.axes, grid.batch = axes, self.batch
        window = each("window", given["window"], axes, size)
        shift = each("shift", given["shift"], axes, whole)
        periodic = each("periodic", given["periodic"], axes, flag)
        for axis in range(axes):
            grid.size[axis] = whole("the grid's size", self.size[axis])
            grid.window[axis] = window[axis]
            grid.shift[axis] = shift[axis]
            grid.periodic[axis] = periodic[axis]
        grid.padding = choice("padding", given["padding"], _library.PADDINGS)
        if flag("roll_first", given["roll_first"]):
            self.desc.grid_options = _library.GRID_ROLL_FIRST
        for name in ("pad_k", "pad_v"):
            if name in self.arrays and given["padding"] != "values":
                raise invalid(f"{name} needs padding=\"values\"")
        self.queries = self.keys = int(numpy.prod(window, dtype=object))
        self._table_window = window

    def _settle_sliding(self, given: Mapping[str, Any]) -> None:
        desc = self.desc
        desc.variant = _library.VARIANTS.index("sliding")
        desc.block = size("block", given["block"])
        for name in ("first_block", "window_blocks"):
            if given[name] is not None:
                setattr(desc, name, size(name, given[name]))
        for name in ("sink", "query_offset"):
            setattr(desc, name, whole(name, given[name]))
        desc.sink_in_window = flag("sink_in_window", given["sink_in_window"])

    def _term(self, name: str) -> int:
        """How a bias or a mask is stored: as q is, or in fp32."""
        code = code_of(name, self.arrays[name], self._named_dtype)
        if code == self.code:
            return _library.TERM_SAME
        if code == "fp32":
            return _library.TERM_FP32
        raise TypeError(f"{name} is {code}, and must be {self.code}, as q is, "
                        "or fp32")

    def _settle_bias(self, given: Mapping[str, Any]) -> None:
        desc, table = self.desc, self.desc.table
        if "bias" in self.arrays and "table" in self.arrays:
            raise invalid("bias and table exclude each other")
        if "bias" in self.arrays:
            desc.bias = _library.BIAS_FULL
            desc.bias_dtype = self._term("bias")
        sliced = flag("table_sliced", given["table_sliced"])
        if "table" not in self.arrays:
            alone = [name for name in ("table_window", "table_index")
                     if given[name] is not None] + ["table_sliced"] * sliced
            if alone:
                raise invalid(f"{alone[0]} needs a table")
            return
        desc.bias = _library.BIAS_TABLE
        desc.bias_dtype = self._term("table")
        table.sliced = sliced
        if given["table_index"] is not None:
            self._set_index(given["table_index"])
            if given["table_window"] is not None:
                raise invalid("table_window and table_index exclude each "
                              "other")
            return
        window = given["table_window"]
        if window is not None:
            window = [size("table_window", extent) for extent in
                      (window if several(window) else [window])]
            if not 1 <= len(window) <= _library.AXES:
                raise invalid(f"table_window has {len(window)} axes, and must "
                              f"have 1 to {_library.AXES}")
            table.axes = len(window)
            for axis, extent in enumerate(window):
                table.window[axis] = extent
        elif self.kind == "grid":
            window = self._table_window
        else:
            raise invalid("a table needs table_window or table_index")
        self.entries = int(numpy.prod([2 * extent - 1 for extent in window],
                                      dtype=object))

    def _set_index(self, given: Any) -> None:
        if isinstance(given, numpy.ma.MaskedArray):
            raise TypeError("table_index is a masked array, whose mask would "
                            "be ignored")
        index = numpy.asarray(given)
        if index.dtype.kind not in "iu":
            raise TypeError("table_index must hold whole numbers, not "
                            f"{index.dtype}")
        if index.shape != (self.queries, self.keys):
            raise invalid(f"table_index has the shape {index.shape}, and must "
                          f"be [queries, keys], {(self.queries, self.keys)}")
        shape = self.arrays["table"].shape
        if len(shape) != 2:
            raise invalid(f"table has the shape {shape}, and must be [entries,"
                          " heads]")
        self.entries = whole("the table's length", shape[0])
        if index.size and not (0 <= index.min()
                               and index.max() < self.entries):
            raise invalid("table_index must be 0 to the table's length less 1,"
                          f" {self.entries - 1}")
        self.index = numpy.ascontiguousarray(index, numpy.int32)
        self.desc.table.entries = self.entries

    def _settle_mask(self, given: Mapping[str, Any]) -> None:
        desc = self.desc
        regions = "query_regions" in self.arrays
        # without a shift there is nothing to mask
        shifted = given["shift_mask"] and any(desc.grid.shift)
        kinds = [kind for kind, wanted in (
            (_library.MASK_ADDITIVE, "mask" in self.arrays),
            (_library.MASK_REGIONS, regions),
            (_library.MASK_SHIFT, shifted)) if wanted]
        if len(kinds) > 1:
            raise invalid("mask and regions exclude each other")
        desc.mask = kinds[0] if kinds else _library.MASK_NONE
        if "mask" in self.arrays:
            desc.mask_dtype = self._term("mask")
            self._mask_windows("mask")
        if regions:
            self._mask_windows("query_regions")
        if given["region_value"] is not None:
            desc.has_region_value = 1
            desc.region_value = real("region_value", given["region_value"])

    def _mask_windows(self, name: str) -> None:
        shape = self.arrays[name].shape
        self.desc.mask_windows = self.masks = shape[0] if shape else 0
        if len(shape) != (3 if name == "mask" else 2):
            raise invalid(f"{name} has the shape {shape}, and must be [masks, "
                          + ("queries, keys]" if name == "mask" else
                             "tokens]"))

    # ---- Arrays ----

    def shape_of(self, name: str) -> tuple[int, ...]:
        """That an array of this name must have."""
        if name in _OF_QUERIES + _OF_KEYS + _NUMBERS:
            heads = self.kv_heads if name in _OF_KEYS else self.heads
            last = () if name in _NUMBERS else (self.dim,)
            if self.kind == "grid":
                return (self.batch, *self.size, heads, *last)
            tokens = self.keys if name in _OF_KEYS else self.queries
            return (self.batch, heads, tokens, *last)
        if name == "dbias":
            name = "table" if self.desc.bias == _library.BIAS_TABLE else "bias"
        if name == "table":
            return (self.entries, self.heads)
        if name == "bias":
            return (self.heads, self.queries, self.keys)
        if name == "mask":
            return (self.masks, self.queries, self.keys)
        if name.endswith("_regions"):
            return (self.masks, self.queries if name[0] == "q" else self.keys)
        if name.endswith("logit_scale"):
            return (self.heads,)
        return (self.kv_heads, self.dim)  # of the padding

    def dtype_of(self, name: str) -> numpy.dtype:
        """Of an output."""
        shared = ("lse", "dbias", "d_logit_scale", "d_pad_k", "d_pad_v")
        return numpy.dtype("float32") if name in shared else self.dtype

    def check(self, name: str, array: Any) -> None:
        wanted = self.shape_of(name)
        if tuple(array.shape) != wanted:
            raise invalid(f"{name} has the shape {tuple(array.shape)}, and "
                          f"must be {wanted}")
        if name in ("bias", "table", "mask"):
            return  # _term has checked it
        if name.endswith("_regions"):
            wanted_type: numpy.dtype = numpy.dtype("uint8")
        elif name in ("pad_k", "pad_v"):
            wanted_type = self.dtype
        elif name in ("logit_scale", "d_lse"):
            wanted_type = numpy.dtype("float32")
        else:
            wanted_type = self.dtype_of(name)
        if array.dtype != wanted_type:
            raise TypeError(f"{name} is {array.dtype}, and must be "
                            f"{wanted_type}")

    def add(self, name: str, array: Any) -> None:
        """An array that the call brings besides the problem's own: an output
        of the caller's, or the backward pass's d_o, o, lse, d_lse."""
        self.arrays[name] = array
        self._set_strides(name, array)

    def _set_strides(self, name: str, array: Any) -> None:
        self.check(name, array)
        strides = element_strides(name, array)
        if strides is None:
            return
        if name.endswith("logit_scale"):
            raise invalid(f"{name} must be contiguous")
        if name == "dbias" and self.desc.bias == _library.BIAS_TABLE:
            name = "dtable"
        if name in _TERMS:
            field, axes = _TERMS[name]
        else:
            field = "o" if name == "out" else name
            on = "grid" if self.kind == "grid" else "windows"
            axes = _AXES[on]["numbers" if name in _NUMBERS else "tokens"]
        target = getattr(self.desc, field)
        for axis in axes:
            if axis == _GRID:
                for number in range(len(self.size)):
                    target.axis[number] = strides.pop(0)
            else:
                setattr(target, axis, strides.pop(0))

    # ---- For the plan ----

    def key(self) -> bytes:
        """What tells this problem from others: an index by its content, not
        by its address, which the descriptor has from complete_desc only."""
        digest = (hashlib.blake2b(self.index.tobytes(), digest_size=32)
                  .digest() if self.index is not None else b"")
        return bytes(self.desc) + digest

    def complete_desc(self) -> _library.Desc:
        """With the address of the index; to be used while this object
        lives."""
        desc = _library.Desc.from_buffer_copy(self.desc)
        if self.index is not None:
            desc.table.index = self.index.ctypes.data_as(POINTER(c_int32))
        return desc
