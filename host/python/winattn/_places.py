# SPDX-License-Identifier: Apache-2.0
"""Where the arrays of a call are: in the host's memory, with numpy, or on a
device, with pyopencl. Both places have the same methods:

    context, device, queue   handles of OpenCL
    check                    the caller's outputs, before anything is computed
    load                     an input -> its tensor
    make                     an output -> its tensor
    scratch                  a workspace -> its tensor
    enqueue                  calls the library
    take                     an output, as the caller gets it
"""
from __future__ import annotations

import ctypes
import sys
from ctypes import byref, c_void_p
from typing import Any, Callable, Iterable, Mapping

import numpy

from . import _library, _opencl
from ._host import Memory, lies_well
from ._library import Tensor, invalid


class NumpyPlace:
    """Arrays are copied to a device and back, or used where they are by a
    device that computes in the host's memory; calls wait for their results.
    """

    def __init__(self, device: _opencl.Device) -> None:
        self._session = _opencl.session_of(device)
        self.context = self._session.context
        self.device = self._session.device
        self.queue = self._session.queue
        # memory of this call; released when it is done
        self._buffers: dict[str, _opencl.Buffer] = {}
        self._memory = Memory(self._session)
        self._outputs: dict[str, numpy.ndarray] = {}

    def check(self, outputs: Mapping[str, numpy.ndarray],
              inputs: Mapping[str, numpy.ndarray]) -> None:
        """Inputs on which an output lies are copied before it is written."""
        for name, array in outputs.items():
            if not array.flags.writeable:
                raise invalid(f"{name} is read-only, and would be written")
        _keep_apart({name: (None, array) for name, array in outputs.items()},
                    {})
        if self._session.shares_memory:
            self._memory.add({
                name: array for name, array in {**inputs, **outputs}.items()
                if lies_well(array) and (name in outputs or not any(
                    numpy.may_share_memory(array, output)
                    for output in outputs.values()))})

    def _tensor(self, name: str, size: int,
                content: numpy.ndarray | None = None) -> Tensor:
        buffer = _opencl.Buffer(self._session, size, content)
        self._buffers[name] = buffer
        return Tensor(buffer.handle, 0)

    def load(self, name: str, array: numpy.ndarray) -> Tensor:
        if name in self._memory:
            return self._memory.tensor(name)
        content = numpy.ascontiguousarray(array)
        return self._tensor(name, content.nbytes, content)

    def make(self, name: str, shape: tuple[int, ...], dtype: numpy.dtype,
             given: numpy.ndarray | None, keep: bool) -> Tensor:
        if given is None:
            given = numpy.empty(shape, dtype)
            if self._session.shares_memory and lies_well(given):
                self._memory.add({name: given})
        self._outputs[name] = given
        if keep or name in self._memory:
            return self.load(name, given)
        return self._tensor(name, given.nbytes)

    def scratch(self, size: int) -> Tensor:
        return self._tensor("workspace", size)

    def enqueue(self, function: Callable, plan: c_void_p,
                call: ctypes.Structure) -> None:
        _library.check(function(plan, self.queue, byref(call), 0, None, None))
        if self._session.shares_memory:  # with arrays that may go then
            self._session.finish()

    def take(self, name: str) -> numpy.ndarray:
        to = self._outputs[name]
        if name in self._memory:
            self._memory.read(name)
            return to
        if to.flags.c_contiguous:
            self._session.read(self._buffers[name], to)
            return to
        read = numpy.empty(to.shape, to.dtype)
        self._session.read(self._buffers[name], read)
        numpy.copyto(to, read)
        return to

    def layout(self, name: str, array: numpy.ndarray) -> Any:
        return array if name in self._memory else _Contiguous(array)


class _Contiguous:
    """An array as it will lie on the device."""

    def __init__(self, array: numpy.ndarray) -> None:
        self.shape = array.shape
        self.dtype = array.dtype
        strides: list[int] = []
        step = array.dtype.itemsize
        for extent in reversed(array.shape):
            strides.insert(0, step)
            step *= extent
        self.strides = tuple(strides)


class PyOpenCLPlace:
    """Arrays of pyopencl stay where they are; calls return at once. What was
    enqueued for an array before is waited for, on the device, and the outputs
    get the call's event (pyopencl.array.Array.events)."""

    def __init__(self, queue: Any, arrays: Iterable[Any],
                 wait_for: Iterable[Any], allocator: Any) -> None:
        import pyopencl
        import pyopencl.array

        self._cl = pyopencl
        self._array = pyopencl.array
        self._queue = queue
        self._context = queue.context
        self.context = self._context.int_ptr
        self.device = queue.device.int_ptr
        self.queue = queue.int_ptr
        self._allocator = allocator
        self._held: list[Any] = []  # until the call is enqueued
        self._outputs: dict[str, Any] = {}
        self._events = list(wait_for)
        for array in arrays:
            self._events += array.events

    def check(self, outputs: Mapping[str, Any],
              inputs: Mapping[str, Any]) -> None:
        if not outputs:
            return
        _keep_apart(*({name: self._lies(name, array)
                       for name, array in arrays.items() if array.size}
                      for arrays in (outputs, inputs)))

    def _lies(self, name: str, array: Any) -> tuple[int, numpy.ndarray]:
        """The buffer of an array, not its part of one; and an array of numpy
        whose addresses lie as those in the buffer. It is never read."""
        memory, start = self._buffer(name, array), array.offset
        whole = memory.get_info(self._cl.mem_info.ASSOCIATED_MEMOBJECT)
        if whole is not None:
            start += memory.get_info(self._cl.mem_info.OFFSET)
            memory = whole
        return memory.int_ptr, numpy.asarray(_Addresses(array, start))

    def _memory(self, size: int) -> Any:
        """From the allocator of q, such as a pool, unless the queue is out of
        order: then the memory could serve another call too early."""
        out_of_order = (self._queue.properties & self._cl.
                        command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)
        memory = None
        if self._allocator is not None and not out_of_order:
            memory = self._allocator(size)
        if not isinstance(memory, self._cl.MemoryObjectHolder):
            memory = self._cl.Buffer(self._context,
                                     self._cl.mem_flags.READ_WRITE, size)
        self._held.append(memory)
        return memory

    def load(self, name: str, array: Any) -> Tensor:
        if not array.size:
            # nothing of it is read, but there must be a buffer
            return Tensor(self._memory(1).int_ptr, 0)
        return Tensor(self._buffer(name, array).int_ptr, array.offset)

    def _buffer(self, name: str, array: Any) -> Any:
        memory = array.base_data
        if not isinstance(memory, self._cl.MemoryObjectHolder):
            raise TypeError(f"{name} is in {type(memory).__name__}, and must "
                            "be in a buffer: shared virtual memory is not "
                            "supported")
        return memory

    def make(self, name: str, shape: tuple[int, ...], dtype: numpy.dtype,
             given: Any, keep: bool) -> Tensor:
        if given is None:
            given = self._array.empty(self._queue, shape, dtype,
                                      allocator=self._allocator)
        self._outputs[name] = given
        return self.load(name, given)

    def scratch(self, size: int) -> Tensor:
        return Tensor(self._memory(size).int_ptr, 0)

    def enqueue(self, function: Callable, plan: c_void_p,
                call: ctypes.Structure) -> None:
        events = list(dict.fromkeys(event.int_ptr for event in self._events))
        waits = (c_void_p * max(len(events), 1))(*events)
        made = c_void_p()
        _library.check(function(plan, self.queue, byref(call), len(events),
                                waits if events else None,
                                byref(made)))
        event = self._cl.Event.from_int_ptr(made.value or 0, retain=False)
        for output in self._outputs.values():
            output.add_event(event)

    def take(self, name: str) -> Any:
        return self._outputs[name]

    @staticmethod
    def layout(name: str, array: Any) -> Any:
        return array


class _Addresses:
    """What numpy.asarray makes an array of without memory of its own."""

    def __init__(self, array: Any, start: int) -> None:
        self.__array_interface__ = {
            "version": 3, "typestr": f"|V{array.dtype.itemsize}",
            "shape": array.shape, "strides": array.strides,
            "data": ((1 << 40) + start, True)}


def _overlaps_itself(array: numpy.ndarray) -> bool:
    """By the library's rule: each stride exceeds what the smaller ones span.
    """
    end = 0
    for stride, extent in sorted(zip(map(abs, array.strides), array.shape)):
        if extent > 1 and stride < end + array.itemsize:
            return True
        end += stride * (extent - 1)
    return False


def _share(one: numpy.ndarray, other: numpy.ndarray) -> bool:
    try:
        return numpy.shares_memory(one, other, max_work=100000)
    except RuntimeError:  # too hard a question, of strides that nobody has
        return True


def _keep_apart(outputs: Mapping[str, tuple], inputs: Mapping[str, tuple]
                ) -> None:
    """An output must lie neither on itself nor on another array: the values
    there would be left to chance. Arrays come with the memory they are in."""
    others = {**outputs, **inputs}
    for name, (memory, array) in outputs.items():
        del others[name]
        if array.size and _overlaps_itself(array):
            raise invalid(f"{name} has the strides {array.strides}, with which"
                          " its elements overlap, and would be written")
        for other, (its_memory, its_array) in others.items():
            if memory == its_memory and _share(array, its_array):
                raise invalid(f"{name} overlaps {other}, and would be written")


def place_of(inputs: Mapping[str, Any], outputs: Mapping[str, Any],
             given: Mapping[str, Any]) -> Any:
    """Where all the arrays of a call are: `outputs` are those that the caller
    brings."""
    arrays = {**inputs, **outputs}
    module = sys.modules.get("pyopencl.array")
    kinds = {}
    for name, array in arrays.items():
        if isinstance(array, numpy.ma.MaskedArray):
            raise TypeError(f"{name} is a masked array, whose mask would be "
                            f"ignored: pass {name}.filled(...)")
        if isinstance(array, numpy.ndarray):
            kinds[name] = "numpy"
        elif module and isinstance(array, module.Array):
            kinds[name] = "pyopencl"
        else:
            raise TypeError(f"{name} must be an array of numpy or pyopencl, "
                            f"not {type(array).__name__}")
    for name, kind in kinds.items():
        if kind != kinds["q"]:
            raise TypeError(f"q is an array of {kinds['q']}, and {name} one of"
                            f" {kind}")
    place = (_numpy_place(given) if kinds["q"] == "numpy" else
             _pyopencl_place(arrays, given))
    place.check(outputs, inputs)
    return place


def _numpy_place(given: Mapping[str, Any]) -> NumpyPlace:
    if given["queue"] is not None or _events(given["wait_for"]):
        raise TypeError("queue and wait_for belong to arrays of pyopencl")
    device = given["device"]
    if device is None:
        device = _opencl.default_device()
    if not isinstance(device, _opencl.Device):
        raise TypeError("device must be one of winattn.devices(), not "
                        f"{type(device).__name__}")
    return NumpyPlace(device)


def _pyopencl_place(arrays: Mapping[str, Any], given: Mapping[str, Any]
                    ) -> PyOpenCLPlace:
    if given["device"] is not None:
        raise TypeError("device belongs to arrays of numpy; those of pyopencl "
                        "are where their queue is")
    _opencl.load()
    q = arrays["q"]
    queue = given["queue"] if given["queue"] is not None else q.queue
    if queue is None:
        raise invalid("q has no queue, so the call must be given one")
    if not isinstance(queue, sys.modules["pyopencl"].CommandQueue):
        raise TypeError("queue must be a pyopencl.CommandQueue, not "
                        f"{type(queue).__name__}")
    events = _events(given["wait_for"])
    for event in events:
        if not isinstance(event, sys.modules["pyopencl"].Event):
            raise TypeError("wait_for must be a list of pyopencl.Event, not of"
                            f" {type(event).__name__}")
    return PyOpenCLPlace(queue, arrays.values(), events, q.allocator)


def _events(wait_for: Any) -> list:
    try:
        return [] if wait_for is None else list(wait_for)
    except TypeError:
        raise TypeError("wait_for must be a list of pyopencl.Event, not "
                        f"{wait_for!r}") from None
