# SPDX-License-Identifier: Apache-2.0
"""The cache of plans, threads, and the end of a program."""
import os
import subprocess
import sys
import threading
import unittest

import numpy
import winattn
from places import SHAPE, Case
from reference import attend, expect_close, random


class Plans(Case):
    def setUp(self):
        super().setUp()
        winattn.clear_plan_cache()
        self.addCleanup(winattn.set_plan_cache_size, 64)

    def counts(self, function):
        """How many plans a call found, made and drove out."""
        before = winattn.plan_cache_info()
        function()
        after = winattn.plan_cache_info()
        return (after.hits - before.hits, after.misses - before.misses,
                after.evicted - before.evicted)

    def call(self, windows=3, **options):
        return winattn.window_attention(
            *(array[:windows] for array in self.arrays), **options)

    def test_plans_are_kept(self):
        self.assertEqual(self.counts(self.call), (0, 1, 0))
        self.assertEqual(self.counts(self.call), (1, 0, 0))
        # where arrays lie does not matter to numpy's, what is computed does
        self.arrays[0] = numpy.asfortranarray(self.arrays[0])
        self.assertEqual(self.counts(self.call), (1, 0, 0))
        self.assertEqual(self.counts(lambda: self.call(2)), (0, 1, 0))
        self.assertEqual(self.counts(lambda: self.call(scale=2.0)), (0, 1, 0))
        self.assertEqual(winattn.plan_cache_info().size, 3)
        texts = winattn.describe_plans()
        self.assertEqual(len(texts), 3)
        self.assertIn("\nkernel: forward_", texts[0])

    def test_indices_are_told_apart(self):
        table, n = random(5, 27, 2), SHAPE[2]
        indices = [numpy.full((n, n), 3), numpy.zeros((n, n), int)]
        indices[1][0, 0] = 4
        for index in indices + indices:
            got = self.call(table=table, table_index=index)
            added = table[index].transpose(2, 0, 1)
            expect_close(self, got, attend(*self.arrays, added=added)[0])
        self.assertEqual(winattn.plan_cache_info().size, 2)

    def test_oldest_goes_first(self):
        winattn.set_plan_cache_size(2)
        for windows in (1, 2, 1):
            self.call(windows)
        self.assertEqual(self.counts(lambda: self.call(3)), (0, 1, 1))
        self.assertEqual(self.counts(lambda: self.call(1)), (1, 0, 0))
        self.assertEqual(self.counts(lambda: self.call(2)), (0, 1, 1))
        winattn.set_plan_cache_size(1)
        self.assertEqual(winattn.plan_cache_info().size, 1)
        winattn.set_plan_cache_size(0)
        expect_close(self, self.call(), attend(*self.arrays)[0])
        self.assertEqual(winattn.plan_cache_info().size, 0)
        with self.assertRaises(ValueError):
            winattn.set_plan_cache_size(-1)

    def test_threads(self):
        # fewer plans than threads want, so that they are made, found and
        # destroyed side by side
        winattn.set_plan_cache_size(2)
        wrong = []

        def work(number):
            try:
                for turn in range(12):
                    windows = 1 + (number + turn) % 3
                    arrays = [array[:windows] for array in self.arrays]
                    expect_close(self, winattn.window_attention(*arrays),
                                 attend(*arrays)[0])
                    # each thread has its own reason
                    wide = random(number, 1, 1, 2, 300 + number)
                    with self.assertRaisesRegex(winattn.Unsupported,
                                                f"is {300 + number},"):
                        winattn.window_attention(wide, wide, wide)
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(number,))
                   for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertLessEqual(winattn.plan_cache_info().size, 2)

    def run_program(self, text, **environment):
        return subprocess.run(
            [sys.executable, "-W", "ignore", "-c", text], capture_output=True,
            text=True, timeout=7200, env={**os.environ, **environment})

    def test_end_of_a_program(self):
        # plans, arrays and exceptions are alive when it ends
        done = self.run_program("""
import numpy, winattn
q = numpy.ones((3, 2, 10, 8), "float32")
keep = winattn.window_attention(q, q, q)
try:
    import pyopencl, pyopencl.array
    device = pyopencl.Device.from_int_ptr(winattn.default_device().id)
    queue = pyopencl.CommandQueue(pyopencl.Context([device]))
    p = pyopencl.array.to_device(queue, q)
    more = winattn.window_attention(p, p, p)
except ImportError:
    pass
print(keep[0, 0, 0, 0])
""")
        self.assertEqual((done.returncode, done.stdout.strip(), done.stderr),
                         (0, "1.0", ""))

    def test_processes(self):
        # PoCL waits for its threads, which a fork does not take along
        for before, wanted in (
                ("", "32.0"),
                ("winattn.default_device()", "fork"),
                ("device = winattn.default_device()", "fork"),
                ("winattn.window_attention(q, q, q)", "fork")):
            with self.subTest(before):
                done = self.run_program(f"""
import os, signal, sys
import numpy, winattn
q, device = numpy.ones((1, 1, 4, 8), "float32"), None
{before}
child = os.fork()
if not child:
    signal.alarm(3600)
    try:
        print(winattn.window_attention(q, q, q, device=device).sum())
    except RuntimeError as error:
        print(error)
    print(winattn.plan_cache_info().size >= 0)
    winattn.clear_plan_cache()
    sys.exit()
print(os.waitpid(child, 0)[1])
print(winattn.window_attention(q, q, q).sum())
""")
                first, *others = done.stdout.splitlines()
                self.assertIn(wanted, first, done.stderr)
                self.assertEqual("spawn" in first, wanted == "fork")
                self.assertEqual(others, ["True", "0", "32.0"], done.stderr)
        done = self.run_program("""
import multiprocessing
import numpy, winattn
q = numpy.ones((1, 1, 4, 8), "float32")
print(winattn.window_attention(q, q, q).sum())
for method in ("spawn", "forkserver"):
    with multiprocessing.get_context(method).Pool(1) as pool:
        print(pool.apply(winattn.window_attention, (q, q, q)).sum())
""")
        self.assertEqual(done.stdout.split(), ["32.0"] * 3, done.stderr)

    def test_without_opencl(self):
        done = self.run_program("""
import winattn
for attempt in range(2):
    try:
        winattn.devices()
    except winattn.OpenCLError as error:
        print(error)
""", WINATTN_OPENCL="no-such-library.so")
        self.assertEqual(done.stdout.splitlines(), [
            "CL_PLATFORM_NOT_FOUND_KHR: there is no OpenCL in "
            "no-such-library.so"] * 2, done.stderr)

    def test_device_by_name(self):
        done = self.run_program("""
import winattn
try:
    winattn.default_device()
except winattn.OpenCLError as error:
    print(error)
winattn.set_device(winattn.devices()[-1])
print(winattn.default_device() == winattn.devices()[-1])
""", WINATTN_DEVICE="No Such Device")
        self.assertEqual(done.stdout.splitlines(), [
            "CL_DEVICE_NOT_FOUND: no device has 'No Such Device' in its name "
            "(WINATTN_DEVICE)", "True"], done.stderr)


if __name__ == "__main__":
    unittest.main()
