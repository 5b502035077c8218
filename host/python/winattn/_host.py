# SPDX-License-Identifier: Apache-2.0
"""Arrays of the host's memory on a device that computes in it, a CPU: kernels
read and write them where they are."""
from __future__ import annotations

from typing import Mapping

import numpy

from . import _opencl
from ._library import Tensor

# Where a buffer starts, so that an address in it is aligned as its offset is.
_ALIGNMENT = 64


def lies_well(array: numpy.ndarray) -> bool:
    """Can kernels access it where it is, and do neighbours on its last axis
    lie side by side, as kernels want it? Others are copied."""
    size = array.dtype.itemsize
    return (array.ndim > 0 and array.size > 0 and array.flags.aligned
            and array.ctypes.data % size == 0
            and array.strides[-1] == size
            and all(stride >= 0 and stride % size == 0
                    for stride in array.strides))


def _span(array: numpy.ndarray) -> tuple[int, int]:
    """The addresses of its first byte and behind its last."""
    first = array.ctypes.data
    last = sum(stride * (extent - 1)
               for stride, extent in zip(array.strides, array.shape))
    return first, first + last + array.dtype.itemsize


class Memory:
    """Buffers on the memory of arrays, until the call is done."""

    def __init__(self, session: _opencl.Session) -> None:
        self._session = session
        self._places: dict[str, tuple[_opencl.Buffer, int]] = {}

    def add(self, arrays: Mapping[str, numpy.ndarray]) -> None:
        """One buffer for all that overlap: OpenCL leaves open what two buffers
        on the same memory hold."""
        spans = sorted((*_span(array), name) for name, array in arrays.items())
        while spans:
            start, end, _ = spans[0]
            count = 1
            while count < len(spans) and spans[count][0] < end:
                end = max(end, spans[count][1])
                count += 1
            start -= start % _ALIGNMENT
            buffer = _opencl.Buffer(self._session, end - start, at=start)
            for first, _, name in spans[:count]:
                self._places[name] = buffer, first - start
            del spans[:count]

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def tensor(self, name: str) -> Tensor:
        buffer, offset = self._places[name]
        return Tensor(buffer.handle, offset)

    def read(self, name: str) -> None:
        """Waits for all that was enqueued; then the array has its content."""
        self._session.show(self._places[name][0])
