# SPDX-License-Identifier: Apache-2.0
"""The shared library: its structs, its functions, its failures as exceptions.

The structs are those of include/winattn.h, field by field;
tests/python/layout.c compares them with the header."""
from __future__ import annotations

import ctypes
import os
import pathlib
from ctypes import (POINTER, Structure, byref, c_char_p, c_float, c_int,
                    c_int32, c_size_t, c_uint32, c_uint64, c_void_p)

from . import _version

AXES = 3  # of a grid, at most

# enums of the header; the position is the number
VARIANTS = ("dot", "cosine", "sliding")
DTYPES = ("fp32", "fp16", "bf16")
TIERS = ("auto", "cpu", "local", "matrix")
PADDINGS = ("values", "hidden")
TERM_SAME, TERM_FP32 = 0, 1
BIAS_NONE, BIAS_FULL, BIAS_TABLE = 0, 1, 2
MASK_NONE, MASK_ADDITIVE, MASK_REGIONS, MASK_SHIFT = 0, 1, 2, 3
PASS_FORWARD, PASS_BACKWARD = 1, 2
GRID_ROLL_FIRST = 1
# outputs of the backward pass, in the order of their bits in accumulate
GRADIENTS = ("dq", "dk", "dv", "dbias", "d_logit_scale", "d_pad_k", "d_pad_v")


class Strides(Structure):
    __slots__ = ()  # what is no field cannot be set
    _fields_ = [("window", c_uint64), ("head", c_uint64), ("row", c_uint64),
                ("column", c_uint64), ("axis", c_uint64 * AXES)]


class Grid(Structure):
    __slots__ = ()
    _fields_ = [("axes", c_uint32), ("size", c_uint32 * AXES),
                ("window", c_uint32 * AXES), ("shift", c_uint32 * AXES),
                ("periodic", c_uint32 * AXES), ("padding", c_int),
                ("batch", c_uint64)]


class Table(Structure):
    __slots__ = ()
    _fields_ = [("axes", c_uint32), ("window", c_uint32 * AXES),
                ("sliced", c_uint32), ("index", POINTER(c_int32)),
                ("entries", c_uint32)]


class Desc(Structure):
    __slots__ = ()
    _fields_ = [
        ("struct_size", c_size_t), ("variant", c_int), ("dtype", c_int),
        ("tier", c_int), ("allow_tf32", c_uint32), ("windows", c_uint64),
        ("heads", c_uint32), ("kv_heads", c_uint32), ("queries", c_uint32),
        ("keys", c_uint32), ("head_dim", c_uint32), ("scale", c_float),
        ("q", Strides), ("k", Strides), ("v", Strides), ("o", Strides),
        ("lse", Strides), ("grid", Grid), ("bias", c_int),
        ("bias_dtype", c_int), ("bias_strides", Strides), ("table", Table),
        ("mask", c_int), ("mask_dtype", c_int), ("mask_windows", c_uint64),
        ("mask_strides", Strides), ("query_region_strides", Strides),
        ("key_region_strides", Strides), ("has_region_value", c_uint32),
        ("region_value", c_float), ("block", c_uint32),
        ("first_block", c_uint32), ("window_blocks", c_uint32),
        ("sink", c_uint32), ("sink_in_window", c_uint32),
        ("query_offset", c_uint32), ("passes", c_uint64), ("d_o", Strides),
        ("d_lse", Strides), ("dq", Strides), ("dk", Strides),
        ("dv", Strides), ("dbias_strides", Strides), ("pad_k", Strides),
        ("pad_v", Strides), ("d_pad_k", Strides), ("d_pad_v", Strides),
        ("build_options", c_char_p), ("grid_options", c_uint64)]


class Tensor(Structure):
    __slots__ = ()
    _fields_ = [("buffer", c_void_p), ("offset", c_uint64)]


def _tensors(*names: str) -> list:
    return [(name, Tensor) for name in names]


_INPUTS = _tensors("q", "k", "v", "bias", "mask", "query_regions",
                   "key_regions", "logit_scale", "pad_k", "pad_v")


class Forward(Structure):
    __slots__ = ()
    _fields_ = [("struct_size", c_size_t), *_INPUTS,
                *_tensors("o", "lse", "workspace")]


class Backward(Structure):
    __slots__ = ()
    _fields_ = [("struct_size", c_size_t), *_INPUTS,
                *_tensors("o", "lse", "d_o", "d_lse", *GRADIENTS),
                ("accumulate", c_uint64), *_tensors("workspace")]


# ---- Failures ----

class Error(RuntimeError):
    """A call that failed.

    status     the number, one of OpenCL's or of winattn's (-3000 and below)
    name       its name, such as "WINATTN_INVALID_LAYOUT"
    reason     what was wrong, with names and numbers
    build_log  what the compiler said, where a kernel did not build, else ""
    """

    def __init__(self, status: int, name: str, reason: str,
                 build_log: str = "") -> None:
        super().__init__(status, name, reason, build_log)
        self.status = status
        self.name = name
        self.reason = reason
        self.build_log = build_log

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class InvalidArgument(Error, ValueError):
    """A shape, stride, number or buffer that is not legal."""


class Unsupported(Error, NotImplementedError):
    """Nothing computes this problem, or not on this device."""


class OpenCLError(Error):
    """OpenCL failed, or there is none; `status` is its code."""


INVALID_ARGUMENT = -3000


def invalid(reason: str) -> InvalidArgument:
    return InvalidArgument(INVALID_ARGUMENT, "WINATTN_INVALID_ARGUMENT",
                           reason)


def _text(pointer: bytes | None) -> str:
    return (pointer or b"").decode("utf-8", "replace")


def opencl_error(status: int, what: str) -> OpenCLError:
    return OpenCLError(status, _text(library.winattn_status_name(status)),
                       what)


def check(status: int) -> None:
    """Raises what a status of the library says. In the thread that made the
    call, as the reason is kept for each thread."""
    if status == 0:
        return
    # -3005: a process that was forked
    kind: type[Error] = (InvalidArgument if status <= -3000
                         and status != -3005 else OpenCLError)
    if status == -3060:
        kind = Error
    if status in (-3010, -3020):
        kind = Unsupported
    reason = (_text(library.winattn_last_reason())
              or _text(library.winattn_status_message(status)))
    raise kind(status, _text(library.winattn_status_name(status)), reason,
               _text(library.winattn_last_build_log()))


# ---- Functions ----

FIND_FUNCTION = ctypes.CFUNCTYPE(c_void_p, c_char_p)

# name: result, arguments
_FUNCTIONS = {
    "winattn_version": (c_int, ()),
    "winattn_status_name": (c_char_p, (c_int32,)),
    "winattn_status_message": (c_char_p, (c_int32,)),
    "winattn_last_reason": (c_char_p, ()),
    "winattn_last_build_log": (c_char_p, ()),
    "winattn_load_tuning": (c_int32, (c_char_p,)),
    "winattn_set_cache_dir": (c_int32, (c_char_p,)),
    "winattn_bind_opencl": (c_char_p, (FIND_FUNCTION,)),
    "winattn_plan_create": (c_int32, (c_void_p, c_void_p, POINTER(Desc),
                                      POINTER(c_void_p))),
    "winattn_plan_destroy": (None, (c_void_p,)),
    "winattn_plan_workspace_size": (c_int32, (c_void_p, POINTER(c_size_t))),
    "winattn_plan_describe": (c_int32, (c_void_p, c_size_t, c_char_p,
                                        POINTER(c_size_t))),
    "winattn_cuda_bind": (c_char_p, (FIND_FUNCTION,)),
    "winattn_cuda_uuid": (c_int32, (c_int, c_char_p)),
    "winattn_cuda_check_stream": (c_int32, (c_int, c_void_p)),
    "winattn_cuda_call_create": (c_int32, (
        c_int, c_void_p, c_uint64, c_char_p, c_uint64, c_void_p,
        POINTER(c_void_p))),
    "winattn_cuda_call_launch": (c_int32, (c_void_p, c_char_p, c_void_p)),
    "winattn_enqueue_forward": (c_int32, (
        c_void_p, c_void_p, POINTER(Forward), c_uint32, POINTER(c_void_p),
        POINTER(c_void_p))),
    "winattn_enqueue_backward": (c_int32, (
        c_void_p, c_void_p, POINTER(Backward), c_uint32, POINTER(c_void_p),
        POINTER(c_void_p))),
}


def _load() -> ctypes.CDLL:
    """The library beside this file. It takes structs of older packages, not
    of newer ones (struct_size), so it must not be older than the package, and
    programs run with later versions of the same minor version only."""
    loaded = ctypes.CDLL(
        str(pathlib.Path(__file__).with_name(_version.LIBRARY)))
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype = result
        function.argtypes = arguments
    number = loaded.winattn_version()
    has = (number // 10000, number // 100 % 100, number % 100)
    wants = tuple(map(int, _version.VERSION.split(".")))
    if has[:2] != wants[:2] or has < wants:
        raise ImportError("winattn {} found a library of version {}.{}.{}"
                          .format(_version.VERSION, *has))
    return loaded


library = _load()


def _whole(name: str, text: bytes) -> bytes:
    """To C a string ends at its first NUL."""
    if b"\0" in text:
        raise invalid(f"{name} has a character NUL")
    return text


def load_tuning(text: str | None) -> None:
    """Adds measured shapes of kernels, as winattn-tune writes them, for plans
    that are made from now on; those that are cached stay, see
    clear_plan_cache. None forgets what was added.

    InvalidArgument: a line is wrong, its number is in the reason."""
    if not isinstance(text, (str, type(None))):
        raise TypeError("text must be the rows, as a str, or None, not "
                        f"{text!r}")
    check(library.winattn_load_tuning(
        None if text is None else _whole("text", text.encode())))


def set_cache_dir(folder: str | os.PathLike | None) -> None:
    """Where compiled kernels are kept, for plans that are made from now on:
    a folder; "": nowhere; None: as at the start, where WINATTN_CACHE_DIR
    says or in the user's cache folder."""
    if not isinstance(folder, (str, bytes, os.PathLike, type(None))):
        raise TypeError(f"folder must be a path or None, not {folder!r}")
    check(library.winattn_set_cache_dir(
        None if folder is None else _whole("folder", os.fsencode(folder))))


__all__ = ["Error", "InvalidArgument", "OpenCLError", "Unsupported", "byref",
           "check", "library"]
