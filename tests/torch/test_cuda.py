# SPDX-License-Identifier: Apache-2.0
"""What winattn.torch does with tensors on a GPU, through drivers in software
(tests/emulator): CUDA's, EMULATED_CUDA, and OpenCL's of the same device,
EMULATED_OPENCL, which no loader knows. They know no PyTorch, so that tensors
in the host's memory stand for those on the device."""
import contextlib
import ctypes
import os
import struct
import subprocess
import sys
import threading
import unittest

import plain
import test_operators
import torch
import winattn
import winattn.torch
from torch.utils._python_dispatch import TorchDispatchMode
from winattn._library import library
from winattn.torch import _cuda, _operators, _run

DRIVER = os.environ.get("EMULATED_CUDA")
of_host = _run.compute, _operators._CUDA
create, launch = (library.winattn_cuda_call_create,
                  library.winattn_cuda_call_launch)
sizes = {}  # of a call's arrays


def _create(*given):
    """Of a call whose arrays are to be known to the driver."""
    status = create(*given)
    memory = given[3]
    sizes[given[-1]._obj.value] = struct.unpack(
        f"{len(memory) // 8}Q", memory)[1::2]
    return status


def _launch(call, memory, stream):
    starts = struct.unpack(f"{len(memory) // 8}Q", memory)[::2]
    with lock:
        for start, size in zip(starts, sizes[call.value]):
            if start:
                driver.emulator_cuda_register(start, size)
        status = launch(call, memory, stream)
        for start in starts:
            driver.emulator_cuda_forget(start)
    return status


def _compute(kind, given):
    values = list(given.values())
    lists = [i - len(values) for i, each in enumerate(values)
             if isinstance(each, list)]
    return _cuda.implementation(kind, list(given), list(given).index("scale"),
                                lists)(*values)


def setUpModule():
    global driver, lock
    if not DRIVER:
        raise unittest.SkipTest("EMULATED_CUDA names no driver")
    _cuda.NVIDIA = os.environ["EMULATED_OPENCL"]
    driver = ctypes.CDLL(DRIVER)  # which is found by its name from now on
    driver.emulator_cuda_register.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    driver.emulator_cuda_forget.argtypes = [ctypes.c_void_p]
    lock = threading.Lock()  # the driver has no streams
    _cuda._index = lambda tensor: 0
    _cuda._stream = lambda index: 0
    library.winattn_cuda_call_create = _create
    library.winattn_cuda_call_launch = _launch
    _run.compute = _compute
    _operators._CUDA = torch._C.DispatchKeySet(
        torch._C.DispatchKey.CPU).raw_repr()


def tearDownModule():
    _run.compute, _operators._CUDA = of_host


class Numbers(test_operators.Numbers):
    """The same numbers as on CPUs."""


@contextlib.contextmanager
def variable(name, value):
    os.environ[name] = value
    ctypes.CDLL(None).setenv(name.encode(), value.encode(), 1)
    yield
    del os.environ[name]
    ctypes.CDLL(None).unsetenv(name.encode())


class Calls(unittest.TestCase):

    def setUp(self):
        torch.manual_seed(2)
        self.qkv = torch.randn(2, 20, 3, 2, 16)
        self.index = torch.randint(0, 7, (20, 20))
        self.table = torch.randn(7, 2)

    def check(self, qkv, **given):
        index = given.get("table_index")
        bias = None if index is None else self.table[index].permute(2, 0, 1)
        o = winattn.torch.window_attention(qkv, **given)
        right, _ = plain.windows(*qkv.permute(2, 0, 3, 1, 4).double(),
                                 bias=bias)
        self.assertLess((o - right).abs().max(), 1e-5)

    def count(self, *args, **given):
        """How many kinds of calls it adds."""
        before = len(_cuda._kinds)
        self.check(*args, **given)
        return len(_cuda._kinds) - before

    def test_kinds(self):
        self.qkv = torch.randn(2, 21, 3, 2, 16)
        self.assertEqual(self.count(self.qkv), 1)
        self.assertEqual(self.count(self.qkv.clone()), 0)
        # a start that kernels read in another way
        shifted = torch.empty(self.qkv.numel() + 1)[1:].view(self.qkv.shape)
        self.assertEqual(self.count(shifted.copy_(self.qkv)), 1)
        self.assertEqual(self.count(self.qkv[:1]), 1)

    def test_index_that_changes(self):
        given = {"table": self.table, "table_index": self.index}
        self.assertEqual(self.count(self.qkv, **given), 1)
        self.assertEqual(self.count(self.qkv, **given), 0)
        self.index[3, 4] = (self.index[3, 4] + 1) % 7
        self.assertEqual(self.count(self.qkv, **given), 1)

    def test_capture(self):
        """A kind that is new cannot be captured, and known ones can."""
        self.check(self.qkv)
        odd = torch.randn(1, 11, 3, 2, 16)
        with variable("EMULATOR_CUDA_CAPTURES", "1"):
            winattn.torch.window_attention(self.qkv)
            with self.assertRaisesRegex(winattn.Unsupported, "captured"):
                winattn.torch.window_attention(odd)
        self.check(odd)

    def test_mode(self):
        """What watches operators sees the call, which else goes straight to
        the kernels."""
        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, operator, types, args=(), kwargs={}):
                seen.append(operator._opname)
                return operator(*args, **kwargs)

        seen = []
        with Mode():
            winattn.torch.window_attention(self.qkv)
        self.assertIn("window_attention", seen)

    def test_nothing(self):
        o = winattn.torch.window_attention(self.qkv[:0])
        self.assertEqual(o.shape, (0, 2, 20, 16))
        q, k, v = (torch.zeros(0, 2, 20, 16, requires_grad=True)
                   for _ in range(3))
        bias = torch.zeros(2, 20, 20, requires_grad=True)
        winattn.torch.window_attention(q, k, v, bias=bias).sum().backward()
        self.assertEqual(bias.grad.abs().max(), 0)

    def test_threads(self):
        def work():
            for _ in range(3):
                self.check(self.qkv[:, :13])

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def test_opencl_goes(self):
        """Its context does not stay once calls are known."""
        self.check(self.qkv)
        for _ in range(_cuda._planner._PATIENCE):
            winattn.torch.window_attention(self.qkv)
        self.assertFalse(_cuda._planner.sessions)
        self.check(self.qkv[:, :9])


class WithoutLoader(unittest.TestCase):

    def test_driver_by_its_name(self):
        """A driver's own table has the functions."""
        code = """
import numpy, winattn
q, v = numpy.ones((2, 1, 2, 9, 8), numpy.float32)
v[:, 1] = 2
o = winattn.window_attention(q, q, v, tier="local")
assert numpy.allclose(o, v, atol=1e-5), o
print(winattn.default_device())"""
        made = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True,
            env={**os.environ, "WINATTN_OPENCL": os.environ["EMULATED_OPENCL"],
                 "WINATTN_DEVICE": "H200"})
        self.assertIn("H200", made.stdout, made.stderr)


if __name__ == "__main__":
    unittest.main()
