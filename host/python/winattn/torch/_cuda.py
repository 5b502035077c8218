# SPDX-License-Identifier: Apache-2.0
"""An operator's arguments on an NVIDIA GPU -> launches on torch's stream.

OpenCL plans and compiles a call of a new kind once, on the same device. What
it would launch is written down (winattn_launch_list in winattn.h), and from
then on CUDA's driver launches that (host/cuda/cuda.h): on the tensors' own
memory, without OpenCL. Calls are of one kind where all but the numbers in
their tensors and the tensors' addresses is the same."""
from __future__ import annotations

import ctypes
import functools
import operator
import struct
import sys
import threading
from ctypes import byref, c_void_p
from typing import Any, Callable

import numpy
import torch
from torch.utils.weak import WeakTensorKeyDictionary

from .. import _calls, _library, _opencl
from .._driver import NVIDIA
from .._library import GRADIENTS, Unsupported, library
from .._plans import Plan
from .._problem import Problem
from . import _layout, _run

# In the order of winattn_tensor_name.
_NAMES = ("q", "k", "v", "bias", "mask", "query_regions", "key_regions",
          "logit_scale", "pad_k", "pad_v", "o", "lse", "d_o", "d_lse",
          *GRADIENTS, "workspace")
_ALIGNMENT = 16  # that kernels may want of addresses

_DTYPES = {torch.float32: numpy.dtype("float32"),
           torch.float16: numpy.dtype("float16"),
           torch.bfloat16: numpy.dtype("uint16"),
           torch.uint8: numpy.dtype("uint8")}


# ---- CUDA's driver ----

@functools.lru_cache(maxsize=None)
def _bind() -> None:
    """Gives the library the functions of CUDA's driver, once."""
    if torch.version.hip:
        raise Unsupported(-3020, "WINATTN_UNSUPPORTED_DEVICE",
                          "winattn.torch computes on GPUs of NVIDIA, and this "
                          "PyTorch is for AMD's: HIP would have to launch "
                          "what winattn_launch_list says")
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(name)
    except OSError as error:
        raise _failed(f"{name}: {error}") from None

    def find(name: bytes) -> int | None:
        function = getattr(driver, name.decode(), None)
        return ctypes.cast(function, c_void_p).value if function else None

    missing = library.winattn_cuda_bind(_library.FIND_FUNCTION(find))
    if missing:
        raise _failed(f"{name} has no {missing.decode()}")


def _failed(reason: str) -> _library.Error:
    return _library.Error(-3060, "WINATTN_DRIVER_FAILED", reason)


# ---- OpenCL on the same device ----

@functools.lru_cache(maxsize=None)
def _device(index: int) -> _opencl.Device:
    _bind()
    uuid = ctypes.create_string_buffer(16)
    _library.check(library.winattn_cuda_uuid(index, uuid))
    for device in (*_opencl.devices(), *_opencl.devices_of_driver(NVIDIA)):
        if _opencl.uuid_of(device) == uuid.raw:
            return device
    raise Unsupported(-3020, "WINATTN_UNSUPPORTED_DEVICE",
                      f"OpenCL does not know cuda:{index}, and winattn plans "
                      "and compiles with it: the driver's libnvidia-opencl is "
                      "missing (in containers: NVIDIA_DRIVER_CAPABILITIES "
                      "with compute)")


class _Planner:
    """A context of OpenCL, as long as calls of new kinds come."""

    _PATIENCE = 64  # calls of known kinds in a row, after which it goes

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sessions: dict[int, _opencl.Session] = {}
        self._known = 0

    def session(self, index: int) -> _opencl.Session:
        """With the lock held."""
        self._known = 0
        if index not in self.sessions:
            self.sessions[index] = _opencl.Session(_device(index))
        return self.sessions[index]

    def rest(self) -> None:
        """After a call of a known kind, where there are sessions."""
        self._known += 1
        if self._known < self._PATIENCE:
            return
        with self.lock:
            while self.sessions:
                self.sessions.popitem()[1].close()


_planner = _Planner()


# ---- What stands for a tensor ----

class _View:
    """Of a tensor what a problem asks of an array. whole: the tensor of which
    it is a part."""

    def __init__(self, tensor: torch.Tensor,
                 whole: torch.Tensor | None = None) -> None:
        if tensor.dtype not in _DTYPES:
            raise TypeError(f"a tensor is {tensor.dtype}, and must be float32,"
                            " float16 or bfloat16")
        self.dtype = _DTYPES[tensor.dtype]
        self.shape = tuple(tensor.shape)
        self.strides = tuple(stride * self.dtype.itemsize
                             for stride in tensor.stride())
        self.whole = tensor if whole is None else whole
        self.offset = tensor.data_ptr() - self.whole.data_ptr()  # bytes

    def span(self) -> int:
        return self.dtype.itemsize + sum(
            stride * (extent - 1)
            for stride, extent in zip(self.strides, self.shape))


_indices: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def _content(index: torch.Tensor) -> bytes:
    """What a plan is made with of a table_index. It is read once, unless
    somebody has written to it since."""
    version = 0 if index.is_inference() else index._version
    known = _indices.get(index)
    if known is None or known[0] != version:
        known = version, index.to("cpu", torch.int32).numpy().tobytes()
        _indices[index] = known
    return known[1]


def _index(tensor: torch.Tensor) -> int:
    """Of the tensor's device."""
    return tensor.get_device()


# the stream that is current on a device; a PyTorch for CPUs lacks it
_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)


# ---- Calls ----

class _Call:
    """Calls of a kind. views: of the arrays of a call, by their names in the
    library; tensors: those that have memory, in the order in which they come
    later; results: those among them that the call makes."""

    def __init__(self, index: int, problem: Problem, views: dict[str, _View],
                 tensors: list[torch.Tensor], results: list[torch.Tensor]
                 ) -> None:
        self._index = index
        self._count = len(results)
        self._handle = c_void_p()
        _bind()
        _library.check(library.winattn_cuda_check_stream(
            index, _stream(index)))
        with _planner.lock:
            session = _planner.session(index)
            plan = Plan(session.context, session.device,
                        problem.complete_desc())
            if plan.workspace:
                like = tensors[0]
                workspace = like.new_empty(-(-plan.workspace // like.itemsize))
                tensors, results = ([*each, workspace]
                                    for each in (tensors, results))
                views = {**views, "workspace": _View(workspace)}
            memory = self._place(views, tensors)
            _library.check(library.winattn_cuda_call_create(
                index, plan.handle, problem.desc.passes,
                struct.pack(f"{len(memory)}Q", *memory), 0, _stream(index),
                byref(self._handle)))
        self._likes = _without_memory(results)

    def _place(self, views: dict[str, _View], tensors: list[torch.Tensor]
               ) -> list[int]:
        """An address and bytes of each array of the library, 0 where there is
        none."""
        memory, form, numbers = [], "", []
        self._parts = []  # of tensors: a tensor's number, bytes behind it
        for view in map(views.get, _NAMES):
            if view is None:
                memory += (0, 0)
                form += "16x"
                continue
            number = next(i for i, tensor in enumerate(tensors)
                          if tensor is view.whole)
            if view.offset:
                self._parts.append((number, view.offset))
                number = len(tensors) + len(self._parts) - 1
            numbers.append(number)
            memory += (view.whole.data_ptr() + view.offset, view.span())
            form += "Q8x"
        self._arrays = operator.itemgetter(*numbers)
        self._pack = struct.Struct(form).pack
        return memory

    def launch(self, at: list[int]) -> list[torch.Tensor]:
        """The results, on torch's current stream. at: where the tensors that
        are given start. What comes next on the stream waits for the launch, so
        that torch may have the memory of its workspace back at once."""
        made = list(map(torch.empty_like, self._likes))
        at += map(torch.Tensor.data_ptr, made)
        if self._parts:
            at += [at[number] + offset for number, offset in self._parts]
        status = library.winattn_cuda_call_launch(
            self._handle, self._pack(*self._arrays(at)), _stream(self._index))
        if status:
            _library.check(status)
        del made[self._count:]
        return made


class _Nothing:
    """Calls that have no tokens."""

    def __init__(self, results: list[torch.Tensor]) -> None:
        self._likes = _without_memory(results)

    def launch(self, at: list[int]) -> list[torch.Tensor]:
        return [torch.zeros_like(each) for each in self._likes]


def _without_memory(results: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same, of which others are to be made."""
    for each in results:
        each.untyped_storage().resize_(0)
    return results


# of arguments that operators lack, in winattn's functions
_DEFAULTS = {"scale": None, "dtype": None, "tier": "auto",
             "allow_tf32": False, "first_block": None, "window_blocks": None}
_MORE = ("d_o", "o", "lse", "d_lse")


def _describe(kind: str, given: dict[str, Any], outputs: dict[str, _View],
              of_pass: int) -> tuple[Problem, dict[str, _View]]:
    """What is computed, and what lies where."""
    devices = {value.device for name, value in given.items()
               if isinstance(value, torch.Tensor) and name != "table_index"}
    if len(devices) > 1:
        raise TypeError("tensors are on " + " and ".join(
            sorted(map(str, devices))))
    made = _run.arguments(kind, given, _View)
    index = given.get("table_index")
    if index is not None:
        made["table_index"] = numpy.frombuffer(
            _content(index), numpy.int32).reshape(tuple(index.shape))
    more = {name: made.pop(name) for name in _MORE if name in made}
    mask = "shift" if kind == "grid" else None
    arrays, options = _calls.collect({**_DEFAULTS, "mask": mask, **made})
    problem = _calls.make_problem("windows" if kind == "window" else kind,
                                  arrays, {**more, **outputs}, options,
                                  of_pass)
    renamed = {"table": "bias", "out": "o"}
    return problem, {renamed.get(name, name): view for name, view in
                     {**arrays, **more, **outputs}.items()}


def _prepare(kind: str, given: dict[str, Any]) -> _Call | _Nothing:
    if "wanted" not in given:
        results = list(_run.empty_results(kind, given))
        of_pass = _library.PASS_FORWARD
        outputs = dict(zip(("out", "lse"), map(_View, results)))
    else:
        wanted = given["wanted"]
        results = _layout.empty_gradients(kind, given, wanted)
        of_pass = _library.PASS_BACKWARD
        outputs = _run.outputs(kind, given, wanted, results, _View)
    tensors = [value for value in given.values()
               if isinstance(value, torch.Tensor)] + results
    if given["q"].numel() == 0:
        return _Nothing(results)
    return _Call(_index(given["q"]),
                 *_describe(kind, given, outputs, of_pass), tensors, results)


# By all of a call but the numbers in its tensors and most of their addresses.
# Kept until the program ends: a captured graph may launch them.
_kinds: dict[tuple, _Call | _Nothing] = {}


def implementation(kind: str, names: list[str], count: int, lists: list[int]
                   ) -> Callable[..., list[torch.Tensor]]:
    """What computes the operator that has arguments of these names, the first
    `count` of which are tensors or None, and those at `lists`, from the end,
    lists."""
    index = names.index("table_index") if "table_index" in names else None

    def compute(*given: Any) -> list[torch.Tensor]:
        """This is in the way of every call, so that it does little where a
        kind is known. Strides of a tensor without gaps follow from its shape,
        but for axes of length 1, whose strides are of no use."""
        at, parts = [], [kind, *given]
        for place, each in enumerate(given[:count], 1):
            if each is not None:
                start = each.data_ptr()
                at.append(start)
                parts[place] = (each.dtype, each.shape,
                                each.is_contiguous() or each.stride(),
                                each.get_device(), start % _ALIGNMENT)
        for place in lists:
            parts[place] = tuple(parts[place])
        if index is not None and given[index] is not None:
            parts.append(_content(given[index]))
        key = tuple(parts)
        call = _kinds.get(key)
        if call is None:
            call = _kinds[key] = _prepare(kind, dict(zip(names, given)))
        elif _planner.sessions:
            _planner.rest()
        return call.launch(at)
    return compute
