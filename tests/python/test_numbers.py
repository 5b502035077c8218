# SPDX-License-Identifier: Apache-2.0
"""Results and gradients of all functions against float64."""
import pathlib
import unittest

import numpy
import winattn
from places import SHAPE, EachPlace, load_places
from reference import (attend, expect_close, from_bf16, grid_tokens, random,
                       relative_index, sliding_mask, to_bf16)

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden" / "modules"


class Windows(EachPlace):
    def check(self, options, added, reduce=None, arrays=None, **expected):
        """Forward and backward, all gradients that there are."""
        q, k, v = arrays or self.arrays
        o, lse = self.call(winattn.window_attention, q, k, v, lse=True,
                           **options)
        d_o, d_lse = random(8, *o.shape), random(9, *lse.shape)
        want_o, want_lse, want = attend(q, k, v, added=added, d_o=d_o,
                                        d_lse=d_lse, **expected)
        expect_close(self, o, want_o, name="o")
        expect_close(self, lse, want_lse, name="lse")
        got = self.call(winattn.window_attention_backward, d_o, q, k, v, o=o,
                        lse=lse, d_lse=d_lse, **options)
        if reduce:
            want["dbias"] = reduce(want["added"])
        for name in got._fields:
            if getattr(got, name) is not None:
                expect_close(self, getattr(got, name), want[name],
                             gradient=True, name=name)
        return got

    def test_dot(self):
        got = self.check({"scale": 0.25}, 0, scale=0.25)
        self.assertIsNone(got.dbias)

    def test_bias_and_mask_and_shared_heads(self):
        w, h, n, d = SHAPE
        bias, mask = random(3, h, n, 7), random(4, 2, n, 7)
        mask[0, 0] = -numpy.inf  # a query that sees nothing
        mask[1, :, 5] = -numpy.inf
        q, k, v = random(0, *SHAPE), *(random(i, w, 1, 7, d)
                                            for i in (1, 2))
        added = bias + mask[numpy.arange(w) % 2, None]
        with self.subTest("o is 0"):
            o, lse = self.call(winattn.window_attention, q, k, v, bias=bias,
                               mask=mask, lse=True)
            self.assertFalse(o[0, :, 0].any())
            self.assertTrue((lse[0, :, 0] == -numpy.inf).all())
        mask[0, 0] = 0
        added = bias + mask[numpy.arange(w) % 2, None]
        got = self.check({"bias": bias, "mask": mask}, added,
                         lambda ds: ds.sum(0), (q, k, v))
        self.assertEqual(got.dbias.dtype, numpy.float32)
        before = random(5, *bias.shape)
        d_o = random(8, *SHAPE)
        again = self.call(winattn.window_attention_backward, d_o, q, k, v,
                          bias=bias, mask=mask, out={"dbias": before.copy()},
                          host={"wanted": "dbias", "accumulate": "dbias"})
        want = attend(q, k, v, added=added, d_o=d_o)[2]["added"].sum(0)
        expect_close(self, again.dbias, want + before, gradient=True)

    def test_cosine_and_regions(self):
        w, h, n, d = SHAPE
        regions = (numpy.arange(2 * n).reshape(2, n) // 7 % 3).astype("uint8")
        logit_scale = numpy.array([1.5, 5], "float32")  # the latter is cut
        differ = regions[:, :, None] != regions[:, None]
        self.check({"logit_scale": logit_scale, "regions": regions,
                    "region_value": -2.5},
                   -2.5 * differ[numpy.arange(w) % 2, None],
                   logit_scale=logit_scale)
        keys = 1 - regions
        o = self.call(winattn.window_attention, *self.arrays,
                      cosine=True, scale=3.0, regions=(regions, keys))
        differ = regions[:, :, None] != keys[:, None]
        want, _ = attend(*self.arrays, cosine=True, scale=3.0,
                         added=-100.0 * differ[numpy.arange(w) % 2, None])
        expect_close(self, o, want)

    def test_tables(self):
        w, h, n, d = SHAPE
        index = relative_index((2, 5))
        table = random(5, 27, h)

        def to_table(ds):
            sums = numpy.zeros((27, h))
            numpy.add.at(sums, index, ds.sum(0).transpose(1, 2, 0))
            return sums

        added = table[index].transpose(2, 0, 1)
        for host in ({"table_window": (2, 5)}, {"table_index": index}):
            with self.subTest(host):
                self.check({"table": table, "host": host}, added, to_table)

    def test_half_types(self):
        d_o, bias = random(3, *SHAPE), random(4, 2, 10, 10)
        want_o, _, want = attend(*self.arrays, added=bias, d_o=d_o)
        half = [array.astype("float16") for array in (d_o, *self.arrays)]
        bits = [to_bf16(array) for array in (d_o, *self.arrays)]
        # a bias like q, and one of float32
        for name, inputs, bias_, host, widen in (
                ("float16", half, bias.astype("float16"), {}, numpy.float64),
                ("bfloat16", bits, bias, {"dtype": "bfloat16"}, from_bf16)):
            with self.subTest(name):
                o = self.call(winattn.window_attention, *inputs[1:],
                              bias=bias_, host=host)
                self.assertEqual(o.dtype, inputs[0].dtype)
                expect_close(self, widen(o), want_o, name)
                if name == "float16":
                    continue  # compiling takes most of this test's time
                got = self.call(winattn.window_attention_backward, *inputs,
                                bias=bias_, host=host)
                for each in ("dq", "dk", "dv"):
                    expect_close(self, widen(getattr(got, each)), want[each],
                                 name, True, each)
                expect_close(self, got.dbias, want["added"].sum(0), name, True)

    def test_ml_dtypes(self):
        try:
            from ml_dtypes import bfloat16
        except ImportError:
            self.skipTest("ml_dtypes is not installed")
        o = self.call(winattn.window_attention,
                      *(array.astype(bfloat16) for array in self.arrays))
        self.assertEqual(o.dtype, bfloat16)
        expect_close(self, o, attend(*self.arrays)[0], "bfloat16")

    def test_outputs_of_the_caller(self):
        d_o = random(3, *SHAPE)
        _, _, want = attend(*self.arrays, d_o=d_o)
        before = random(4, *SHAPE)
        got = self.call(winattn.window_attention_backward, d_o, *self.arrays,
                        out={"dk": before.copy(), "dq": before.copy()},
                        host={"wanted": ["dq", "dk"], "accumulate": "dk"})
        self.assertIsNone(got.dv)
        expect_close(self, got.dk, want["dk"] + before, gradient=True)
        expect_close(self, got.dq, want["dq"], gradient=True)

    def test_no_windows(self):
        nothing = numpy.empty((0, 2, 10, 8), "float32")
        o, lse = winattn.window_attention(nothing, nothing, nothing, lse=True)
        self.assertEqual((o.shape, lse.shape), ((0, 2, 10, 8), (0, 2, 10)))
        got = winattn.window_attention_backward(
            nothing, nothing, nothing, nothing, table=random(0, 27, 2),
            table_window=(2, 5))
        self.assertFalse(got.dbias.any())
        self.assertEqual(got.dq.shape, nothing.shape)


class Grids(EachPlace):
    def test_line_with_hidden_padding(self):
        """Against the same windows, cut out."""
        for roll_first in (False, True):
            with self.subTest(roll_first=roll_first):
                self.check_line(roll_first)

    def check_line(self, roll_first):
        batch, size, heads, dim = 2, 13, 2, 4
        number, region = grid_tokens((size,), (5,), (2,), roll_first)
        q, k, v, d_o = (random(i, batch, size, heads, dim) for i in range(4))

        def to_windows(array):
            taken = array[:, number] * (number >= 0)[..., None, None]
            return taken.reshape(-1, 5, heads, dim).transpose(0, 2, 1, 3)

        def to_grid(windows):
            tokens = windows.transpose(0, 2, 1, 3).reshape(
                batch, *number.shape, heads, dim)
            array = numpy.zeros((batch, size, heads, dim))
            array[:, number[number >= 0]] = tokens[:, number >= 0]
            return array

        added = (region[:, :, None] != region[:, None]) * -100.0
        added = numpy.where(number[:, None] < 0, -numpy.inf, added)
        want_o, _, want = attend(
            *map(to_windows, (q, k, v)), d_o=to_windows(d_o),
            added=numpy.tile(added, (batch, 1, 1))[:, None])
        host = {"window": 5, "shift": (2,), "padding": "hidden",
                "roll_first": roll_first}
        o = self.call(winattn.grid_attention, q, k, v, host=host)
        expect_close(self, o, to_grid(want_o))
        got = self.call(winattn.grid_attention_backward, d_o, q, k, v,
                        host=host)
        for name in ("dq", "dk", "dv"):
            expect_close(self, getattr(got, name), to_grid(want[name]),
                         gradient=True, name=name)

    def check_module(self, case, host, names):
        """Packed qkv, as modules of libraries have it."""
        def read(name):
            array = numpy.load(GOLDEN / f"{case}_{name}.npy")
            if name.endswith("table"):  # of one head, it has one axis
                array = array.reshape(-1, qkv.shape[-2])
            return array.astype("float32")

        qkv = read("qkv")
        d_o, want = read("d_o"), read("dqkv")
        inputs = {name: read(name) for name in names}
        packed = self.place.put(qkv)
        gradient = self.place.put(numpy.empty_like(qkv))
        parts = winattn.split_qkv(packed, grid=True)
        inputs = {name: self.place.put(array)
                  for name, array in inputs.items()}
        o = winattn.grid_attention(*parts, **host, **inputs)
        expect_close(self, self.place.get(o), read("o"))
        outputs = dict(zip(("dq", "dk", "dv"),
                           winattn.split_qkv(gradient, grid=True)))
        got = winattn.grid_attention_backward(
            self.place.put(d_o), *parts, out=outputs, **host, **inputs)
        expect_close(self, self.place.get(gradient), want, gradient=True)
        expect_close(self, self.place.get(got.dbias), read("dtable"),
                     gradient=True)
        for name in ("d_pad_k", "d_pad_v"):
            if getattr(got, name) is not None:
                expect_close(self, self.place.get(getattr(got, name)),
                             read(name), gradient=True)

    def test_monai(self):
        self.check_module("monai_7x7x7", {"window": 7, "shift": (3, 3, 3)},
                          ("table", "pad_k", "pad_v"))
        self.check_module(
            "monai_clipped", {"window": (5, 7, 7), "shift": (3, 3, 3),
                              "table_window": (7, 7, 7), "table_sliced": True},
            ("table",))

    def check_windows(self, shift, options, **expected):
        """Four windows of 3 x 3 tokens, against the same, cut out."""
        q, k, v = (random(i, 1, 6, 6, 1, 4) for i in range(3))
        number, _ = grid_tokens((6, 6), (3, 3), (shift, shift))

        def to_windows(array):
            return array.reshape(36, 1, 4)[number].transpose(0, 2, 1, 3)

        want = attend(*map(to_windows, (q, k, v)), **expected)[0]
        with self.subTest(options):
            o = self.call(winattn.grid_attention, q, k, v, **options)
            expect_close(self, to_windows(o), want)

    def test_sliced_table(self):
        table = random(3, 5 * 7, 1)
        self.check_windows(
            0, {"table": table, "host": {"window": 3, "table_window": (3, 4),
                                         "table_sliced": True}},
            added=table[relative_index((3, 4))[:9, :9], 0])

    def test_mask_none_and_periodic(self):
        # without a mask, and on a torus, all tokens of a window see another
        for options in ({"mask": None}, {"periodic": True}):
            self.check_windows(
                1, {"host": {"window": 3, "shift": 1, **options}})


class Sliding(EachPlace):
    def test_cache_of_keys(self):
        queries, keys, heads, dim = 7, 27, 2, 8
        options = {"block": 4, "first_block": 3, "window_blocks": 2,
                   "sink": 2, "query_offset": 20}
        q, d_o = (random(i, 2, heads, queries, dim) for i in (0, 3))
        k, v = (random(i, 2, 1, keys, dim) for i in (1, 2))
        want_o, want_lse, want = attend(
            q, k, v, added=sliding_mask(queries, keys, **options), d_o=d_o)
        o, lse = self.call(winattn.sliding_attention, q, k, v, lse=True,
                           host=options)
        expect_close(self, o, want_o)
        expect_close(self, lse, want_lse)
        got = self.call(winattn.sliding_attention_backward, d_o, q, k, v, o=o,
                        lse=lse, host=options)
        for name in ("dq", "dk", "dv"):
            expect_close(self, getattr(got, name), want[name], gradient=True,
                         name=name)

    def test_sink_in_window(self):
        q, k, v = (random(i, 1, 1, 16, 4) for i in range(3))
        o = self.call(winattn.sliding_attention, q, k, v,
                      host={"block": 4, "window_blocks": 2, "sink": 4,
                            "sink_in_window": True})
        # the sink takes the place of one block
        mask = numpy.full((16, 16), -numpy.inf)
        for i in range(16):
            mask[i, i // 4 * 4:i // 4 * 4 + 4] = 0
        mask[:, :4] = 0
        expect_close(self, o, attend(q, k, v, added=mask)[0])


def load_tests(loader, tests, pattern):
    return load_places(loader, Windows, Grids, Sliding)


if __name__ == "__main__":
    unittest.main()
