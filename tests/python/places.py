# SPDX-License-Identifier: Apache-2.0
"""Each test of numbers runs with numpy and with pyopencl, on one device: a
place moves arrays there and back."""
import os
import unittest
import warnings

import numpy
import winattn

from reference import random

SHAPE = (3, 2, 10, 8)  # windows, heads, tokens, D

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it says of itself
        import pyopencl
        import pyopencl.array
except ImportError:
    pyopencl = None


def device():
    """The device that WINATTN_DEVICE names."""
    try:
        return winattn.default_device()
    except winattn.OpenCLError as error:
        raise unittest.SkipTest(f"no OpenCL device: {error}")


class Numpy:
    def put(self, array):
        return array

    def get(self, array):
        return array


class PyOpenCL:
    """Arrays lie at an offset of a larger buffer, between NaNs; their axes,
    but for the last, in reverse order, and with gaps."""
    _queue = None

    def __init__(self):
        if not pyopencl:
            raise unittest.SkipTest("pyopencl is not installed")
        if not PyOpenCL._queue:
            wanted = device()
            PyOpenCL._queue = pyopencl.CommandQueue(pyopencl.Context(
                [pyopencl.Device.from_int_ptr(wanted.id)]))
        self.queue = PyOpenCL._queue

    def put(self, array):
        if array.ndim == 1:  # logit_scale must be contiguous
            order, lies = [0], array
        else:
            order = [*range(array.ndim - 2, -1, -1), array.ndim - 1]
            lies = array.transpose(order)
        gap = 8 if array.ndim > 1 else 0
        around = numpy.full((lies.shape[0] + 2, *lies.shape[1:-1],
                             lies.shape[-1] + gap) if gap else
                            lies.size + 16, 255, array.dtype)
        if array.dtype.kind == "f":
            around[:] = numpy.nan
        part = ((slice(1, -1), ..., slice(0, lies.shape[-1])) if gap
                else slice(8, -8))
        around[part] = lies
        there = pyopencl.array.to_device(self.queue, around)[part]
        return there.transpose(order) if gap else there

    def get(self, array):
        """pyopencl copies whole buffers only."""
        whole = array.base_data
        host = numpy.empty(whole.size, "uint8")
        for event in array.events:
            event.wait()
        pyopencl.enqueue_copy(self.queue, host, whole)
        return numpy.ndarray(array.shape, array.dtype, host, array.offset,
                             array.strides).copy()


class Case(unittest.TestCase):
    """A test on the device, of q, k and v."""

    def setUp(self):
        device()
        self.arrays = [random(i, *SHAPE) for i in range(3)]

    def expect(self, reason, function, *arguments, kind=ValueError, **options):
        """The call is refused, for that reason."""
        with self.subTest(reason):
            with self.assertRaisesRegex(kind, reason):
                function(*arguments, **options)


class EachPlace(Case):
    """A test of numbers: self.place in turn is each of the places."""
    place_class = None  # its subclasses have one

    def setUp(self):
        if self.place_class is None:
            self.skipTest("for subclasses")
        super().setUp()
        self.place = self.place_class()

    def call(self, function, *arrays, **options):
        """function of what self.place made of arrays; results of numpy."""
        def moved(value):
            if isinstance(value, numpy.ndarray):
                return self.place.put(value)
            if isinstance(value, dict):
                return {key: moved(each) for key, each in value.items()}
            if isinstance(value, tuple) and isinstance(value[0],
                                                       numpy.ndarray):
                return tuple(map(moved, value))
            return value

        kept = options.pop("host", {})
        results = function(
            *map(moved, arrays),
            **{name: moved(value) for name, value in options.items()}, **kept)
        if isinstance(results, tuple):
            got = [None if each is None else self.place.get(each)
                   for each in results]
            return (type(results)(*got) if hasattr(results, "_fields")
                    else tuple(got))
        return self.place.get(results)


def in_each_place(base):
    """Test cases with numpy and with pyopencl, for the module of `base`."""
    return [type(f"{base.__name__}{place.__name__}", (base,),
                 {"place_class": place, "__module__": base.__module__})
            for place in (Numpy, PyOpenCL)]


def load_places(loader, *bases):
    suite = unittest.TestSuite()
    for base in bases:
        for case in in_each_place(base):
            suite.addTests(loader.loadTestsFromTestCase(case))
    return suite


__all__ = ["Case", "EachPlace", "SHAPE", "device", "load_places", "pyopencl"]
os.environ.setdefault("PYOPENCL_NO_CACHE", "1")
