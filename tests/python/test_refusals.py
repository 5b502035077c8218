# SPDX-License-Identifier: Apache-2.0
"""What is wrong is refused with a reason, before anything is computed."""
import unittest

import numpy
import winattn
from places import device
from reference import random

WINDOWS = (3, 2, 10, 8)
GRID = (1, 6, 6, 2, 8)


class Refusals(unittest.TestCase):
    def setUp(self):
        device()

    def expect(self, reason, function, *arguments, kind=ValueError, **options):
        with self.subTest(reason):
            with self.assertRaisesRegex(kind, reason):
                function(*arguments, **options)

    def test_windows(self):
        q = random(0, *WINDOWS)
        for reason, options in (
                (r"bias has the shape \(2, 10, 9\).*\(2, 10, 10\)",
                 {"bias": random(1, 2, 10, 9)}),
                ("mask has the shape", {"mask": random(1, 10, 10)}),
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
                ("scale is 0", {"scale": 0}),
                ("tier is 'gpu'", {"tier": "gpu"}),
                ("dtype is 'half'", {"dtype": "half"}),
                ("mask is 'shift'", {"mask": "shift"}),
                ("o has the shape", {"out": random(1, 3, 2, 10, 9)})):
            self.expect(reason, winattn.window_attention, q, q, q, **options)
        self.expect("heads of k must divide", winattn.window_attention, q,
                    random(0, 3, 3, 10, 8), random(0, 3, 3, 10, 8))
        self.expect(r"must be \[windows, heads", winattn.window_attention,
                    q[0], q[0], q[0])
        self.expect("v has the shape", winattn.window_attention, q, q, q[:2])

    def test_types(self):
        q = random(0, *WINDOWS)

        def expect(reason, *arrays, **options):
            self.expect(reason, winattn.window_attention, *arrays,
                        kind=TypeError, **options)

        expect("float64 are not computed", q.astype(float), q, q)
        expect("uint16 are not", *[q.astype("uint16")] * 3)
        expect(">f4 are not", *[q.astype(">f4")] * 3)
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
        with self.assertRaises(TypeError):
            winattn.set_device("GPU")

    def test_grids(self):
        q = random(0, *GRID)
        for reason, window, options in (
                ("window has 3 numbers", (3, 3, 3), {}),
                ("periodic has 1", 3, {"periodic": [True]}),
                ("shift", 3, {"shift": 3}),
                ("shift is -1", 3, {"shift": -1}),
                ("padding is 'none'", 3, {"padding": "none"}),
                ("pad_k has the shape", 4, {"pad_k": random(0, 8)}),
                ("pad_k needs padding=", 4,
                 {"pad_k": random(0, 2, 8), "padding": "hidden"}),
                ("mask is 'roll'", 3, {"mask": "roll"})):
            self.expect(reason, winattn.grid_attention, q, q, q, window,
                        **options)
        self.expect("shape", winattn.grid_attention, q[0, 0], q[0, 0],
                    q[0, 0], 3)
        self.expect("window must be a whole", winattn.grid_attention, q, q, q,
                    (3, 1.5), kind=TypeError)
        for shape, grid in ((GRID, True), (WINDOWS, False)):
            self.expect("qkv has the shape", winattn.split_qkv,
                        random(0, *shape), grid)

    def test_gradients(self):
        q = random(0, *WINDOWS)
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

    def test_sliding(self):
        q = random(0, *WINDOWS)
        self.expect("block", winattn.sliding_attention, q, q, q, 0)
        self.expect("sink must be a whole", winattn.sliding_attention, q, q, q,
                    4, sink=1.0, kind=TypeError)

    def test_what_nothing_computes(self):
        q, wide = random(0, *WINDOWS), random(0, 1, 1, 4, 257)
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
