# SPDX-License-Identifier: Apache-2.0
"""What is wrong is refused with a reason, before anything is computed."""
import unittest

import numpy
import winattn
from places import SHAPE, Case
from reference import random

GRID = (1, 6, 6, 2, 8)


class Refusals(Case):
    def window(self, **options):
        q = random(0, *SHAPE)
        return winattn.window_attention(q, q, q, **options)

    def table(self, **options):
        return self.window(table=random(1, 27, 2),
                           **{"table_window": (2, 5), **options})

    def regions(self, **options):
        return self.window(regions=numpy.arange(10, dtype="uint8")[None] // 4,
                           **options)

    def grid(self, **options):
        q = random(0, *GRID)
        return winattn.grid_attention(q, q, q, **{"window": 3, "shift": 1,
                                                  **options})

    def sliding(self, **options):
        q = random(0, *SHAPE)
        return winattn.sliding_attention(q, q, q, **{"block": 4, **options})

    def test_numbers_of_all_kinds(self):
        """What counts is a whole number, also of numpy; all that only looks
        like one is refused by name."""
        for function, names in (
                (self.sliding, ("block", "first_block", "window_blocks",
                                "sink", "query_offset")),
                (self.grid, ("window", "shift"))):
            for name in names:
                want = function(**{name: 2})
                for number in (numpy.int64(2), numpy.uint8(2),
                               numpy.array(2)):
                    numpy.testing.assert_array_equal(
                        function(**{name: number}), want)
                for wrong in (4.0, numpy.float64(4), False, numpy.True_,
                              numpy.array(True), "4", "", 0.0, {2, 3}, 2j,
                              numpy.array(2.0), [[2], 2]):
                    self.expect(f"^{name} must be a whole number, not",
                                function, kind=TypeError, **{name: wrong})
                if name not in ("first_block", "window_blocks"):
                    self.expect(f"^{name} must be a whole number, not None",
                                function, kind=TypeError, **{name: None})
                self.expect(f"{name} is -1", function, **{name: -1})
        for wrong in (2.0, True, numpy.array(2.0), "25", (2, 5.0)):
            self.expect("table_window must be a whole", self.table,
                        kind=TypeError, table_window=wrong)
        self.expect("table_window is 0", self.table, table_window=0)
        want = self.table(table_window=14, table_sliced=True)
        for number in (numpy.int64(14), numpy.array(14), [14]):
            numpy.testing.assert_array_equal(
                self.table(table_window=number, table_sliced=True), want)
        for wrong in (None, 2.5, True, "3", numpy.nan):
            self.expect("most must be a whole", winattn.set_plan_cache_size,
                        wrong, kind=TypeError)
        for name, function in (("scale", self.window),
                               ("region_value", self.regions)):
            want = function(**{name: 0.5})
            for number in (numpy.float32(0.5), numpy.float16(0.5),
                           numpy.array(0.5)):
                numpy.testing.assert_array_equal(
                    function(**{name: number}), want)
            for wrong in (True, numpy.False_, "2", 1j, [0.5],
                          numpy.array([0.5]), numpy.complex64(1)):
                self.expect(f"{name} must be a number, not", function,
                            kind=TypeError, **{name: wrong})

    def test_flags(self):
        for name, function in (
                ("cosine", self.window), ("allow_tf32", self.window),
                ("table_sliced", self.table), ("periodic", self.grid),
                ("sink_in_window", self.sliding)):
            want = function(**{name: True})
            for flag in (numpy.True_, numpy.array(True)):
                numpy.testing.assert_array_equal(function(**{name: flag}),
                                                 want)
            for wrong in (None, 0, 1, "no", 0.5, {}):
                self.expect(f"{name} must be True or False, not", function,
                            kind=TypeError, **{name: wrong})
        self.expect("grid must be True or False", winattn.split_qkv,
                    random(0, 1, 2, 3, 4, 5), "no", kind=TypeError)
        self.assertEqual(len(self.window(lse=numpy.True_)), 2)
        for wrong in (0, 1, "no"):
            self.expect("lse must be an array", self.window, kind=TypeError,
                        lse=wrong)

    def test_false_is_not_missing(self):
        for name, reason, kind in (
                ("table_window", "needs a table", ValueError),
                ("table_index", "needs a table", ValueError),
                ("device", "must be one of winattn.devices", TypeError),
                ("queue", "belong to arrays of pyopencl", TypeError),
                ("bias", "must be an array", TypeError),
                ("logit_scale", "must be an array", TypeError)):
            for wrong in (0, False, ""):
                self.expect(reason, self.window, kind=kind, **{name: wrong})

    def test_windows(self):
        q, square = random(0, *SHAPE), numpy.zeros((10, 10), int)
        for reason, options in (
                (r"bias has the shape \(2, 10, 9\).*\(2, 10, 10\)",
                 {"bias": random(1, 2, 10, 9)}),
                ("query_regions has the shape",
                 {"regions": numpy.zeros((2, 9), "uint8")}),
                ("exclude each other",
                 {"mask": random(1, 1, 10, 10),
                  "regions": numpy.zeros((2, 10), "uint8")}),
                ("bias and table exclude",
                 {"bias": random(1, 2, 10, 10), "table": random(1, 27, 2)}),
                ("needs table_window", {"table": random(1, 27, 2)}),
                ("needs a table", {"table_window": (2, 5)}),
                (r"table has the shape \(26, 2\), and must be \(27, 2\)",
                 {"table": random(1, 26, 2), "table_window": (2, 5)}),
                ("0 to the table's length",
                 {"table": random(1, 27, 2),
                  "table_index": numpy.full((10, 10), 27)}),
                (r"must be \[queries, keys\]",
                 {"table": random(1, 27, 2), "table_index": [1, 2]}),
                ("logit_scale has the shape", {"logit_scale": random(1, 3)}),
                ("scale is 0,", {"scale": 0}),
                # which means something else to the library
                ("scale is 1e-50", {"scale": 1e-50}),
                ("scale is not finite", {"scale": numpy.nan}),
                ("region_value is NaN",
                 {"region_value": 1e300,
                  "regions": numpy.zeros((1, 10), "uint8")}),
                (r"mask has the shape \(10, 10\), and must be \[masks",
                 {"mask": random(1, 10, 10)}),
                (r"query_regions has .* \(\), and must be \[masks",
                 {"regions": numpy.zeros((), "uint8")}),
                (r"table has the shape \(\), and must be \[entries",
                 {"table": numpy.zeros((), "float32"), "table_index": square}),
                ("tier is 'gpu'", {"tier": "gpu"}),
                ("dtype is 'half'", {"dtype": "half"}),
                ("mask is 'shift'", {"mask": "shift"}),
                ("out has the shape", {"out": random(1, 3, 2, 10, 9)})):
            self.expect(reason, winattn.window_attention, q, q, q, **options)
        self.expect("heads of k must divide", winattn.window_attention, q,
                    random(0, 3, 3, 10, 8), random(0, 3, 3, 10, 8))
        self.expect(r"must be \[windows, heads", winattn.window_attention,
                    q[0], q[0], q[0])
        self.expect("v has the shape", winattn.window_attention, q, q, q[:2])

    def test_types(self):
        q = random(0, *SHAPE)

        def expect(reason, *arrays, **options):
            self.expect(reason, winattn.window_attention, *arrays,
                        kind=TypeError, **options)

        expect("q is float64, and must be", q.astype(float), q, q)
        expect("q is uint16, and must be", *[q.astype("uint16")] * 3)
        expect("q is float32, and dtype", q, q, q, dtype="bfloat16")
        expect("bias is float64", q, q, q, bias=numpy.zeros((2, 10, 10)))
        expect("k is float16, and must be float32", q, q.astype("f2"), q)
        expect("k must be an array of numpy or pyopencl", q, q.tolist(), q)
        expect("q must be an array, not None", None, q, q)
        expect("bias is fp16", q, q, q, bias=random(0, 2, 10, 10).astype("f2"))
        expect("query_regions is int64", q, q, q,
               regions=numpy.zeros((1, 10), "int64"))
        expect("queue and wait_for belong", q, q, q, queue=1)
        expect("must be one of winattn.devices", q, q, q, device="GPU")
        expect("table_index must hold", q, q, q, table=random(0, 27, 2),
               table_index=numpy.zeros((10, 10)))
        expect("wait_for must be a list", q, q, q, wait_for=0)
        expect("out must be an array", q, q, q, out=0)
        for function in (winattn.set_device, winattn.split_qkv,
                         winattn.load_tuning, winattn.set_cache_dir):
            self.expect("must be .*, not", function, 0, kind=TypeError)
        self.expect("folder has a character NUL", winattn.set_cache_dir,
                    "a\0b")
        self.expect("text has a character NUL", winattn.load_tuning, "#\0")

    def test_grids(self):
        q = random(0, *GRID)
        for reason, window, options in (
                ("window has 3 values", (3, 3, 3), {}),
                ("periodic has 1", 3, {"periodic": [True]}),
                ("shift", 3, {"shift": 3}),
                ("shift is -1", 3, {"shift": -1}),
                ("window is 0", (3, 0), {}),
                ("padding is 'none'", 3, {"padding": "none"}),
                ("pad_k has the shape", 4, {"pad_k": random(0, 8)}),
                ("pad_k needs padding=", 4,
                 {"pad_k": random(0, 2, 8), "padding": "hidden"}),
                ("mask is 'roll'", 3, {"mask": "roll"})):
            self.expect(reason, winattn.grid_attention, q, q, q, window,
                        **options)
        self.expect("shape", winattn.grid_attention, q[0, 0], q[0, 0],
                    q[0, 0], 3)
        for shape, grid in ((GRID, True), (SHAPE, False)):
            self.expect("qkv has the shape", winattn.split_qkv,
                        random(0, *shape), grid)

    def test_gradients(self):
        q = random(0, *SHAPE)
        for reason, options in (
                ("bias was not given", {"wanted": "dbias"}),
                ("wanted has 'do'", {"wanted": ["do"]}),
                ("no gradient is wanted", {"wanted": []}),
                ("out has no such array", {"accumulate": "dq"}),
                ("out has 'dk'", {"out": {"dk": q}, "wanted": "dq"}),
                ("dq has the shape", {"out": {"dq": q[:2]}}),
                ("lse has the shape", {"lse": random(0, 3, 2, 9)})):
            self.expect(reason, winattn.window_attention_backward, q, q, q, q,
                        **options)
        self.expect("d_o must be an array", winattn.window_attention_backward,
                    None, q, q, q, kind=TypeError)
        for reason, options in (
                ("wanted must be names", {"wanted": True}),
                ("accumulate must be names", {"accumulate": None}),
                ("out must be a dictionary", {"out": q}),
                ("out must be a dictionary", {"out": 0})):
            self.expect(reason, winattn.window_attention_backward, q, q, q, q,
                        kind=TypeError, **options)

    def test_sliding(self):
        q = random(0, *SHAPE)
        for name in ("block", "first_block", "window_blocks"):
            self.expect(f"{name} is 0, and must be 1", self.sliding,
                        **{name: 0})

    def test_what_nothing_computes(self):
        q, wide = random(0, *SHAPE), random(0, 1, 1, 4, 257)
        self.expect("head_dim is 257", winattn.window_attention, wide, wide,
                    wide, kind=winattn.Unsupported)
        with self.assertRaises(winattn.Unsupported) as caught:
            # matrix units compute no fp32 unless TF32 is allowed
            winattn.window_attention(q, q, q, tier="matrix")
        self.assertIsInstance(caught.exception, NotImplementedError)
        self.assertTrue(caught.exception.name.startswith("WINATTN_UNSUPP"))
        self.assertTrue(caught.exception.reason)


if __name__ == "__main__":
    unittest.main()
