# SPDX-License-Identifier: Apache-2.0
"""Arrays of numpy as they come: in any order and anywhere in memory. What may
not be written is not."""
import dataclasses
import pathlib
import tempfile
import unittest

import numpy
import winattn
from numpy.lib.stride_tricks import as_strided
from places import SHAPE, Case
from reference import random


class Named(numpy.ndarray):
    """A subclass, as memmap and matrix are some."""


class Computed(Case):
    def setUp(self):
        super().setUp()
        self.want, self.lse = winattn.window_attention(*self.arrays, lse=True)


class Orders(Computed):
    def test_inputs(self):
        q, k, v = self.arrays
        fields = numpy.zeros(SHAPE, [("a", "u1"), ("b", "f4")])
        fields["b"] = v
        for each in ([numpy.asfortranarray(array) for array in self.arrays],
                     [q[::-1].copy()[::-1], k[:, :, ::-1].copy()[:, :, ::-1],
                      fields["b"]],  # at odd addresses
                     [q.view(Named), k, v]):
            o = winattn.window_attention(*each)
            self.assertIs(type(o), numpy.ndarray)
            numpy.testing.assert_array_equal(o, self.want)

    def test_outputs(self):
        line = numpy.zeros(SHAPE, [("a", "u1"), ("b", "f4")])
        for out in (numpy.empty(SHAPE, "f4", order="F"), line["b"],
                    numpy.empty(SHAPE, "f4")[::-1, :, ::-1],
                    numpy.empty(SHAPE, "f4").view(Named)):
            got = winattn.window_attention(*self.arrays, out=out)
            self.assertIs(got, out)
            numpy.testing.assert_array_equal(out, self.want)

    def test_tables(self):
        # numpy's matrix, which warns when it is made, has two axes
        table = random(5, 27, 2)
        want = winattn.window_attention_backward(
            self.want, *self.arrays, table=table, table_window=(2, 5))
        got = winattn.window_attention_backward(
            self.want, *self.arrays, table=table.view(Named),
            table_window=(2, 5),
            out={"dbias": numpy.empty_like(table, order="F").view(Named)})
        numpy.testing.assert_array_equal(got.dbias, want.dbias)

    def test_output_over_input(self):
        """Inputs are copied before outputs are written."""
        q, k, v = self.arrays
        for shift in (0, 80):
            memory = numpy.zeros(q.size + shift, "float32")
            memory[:q.size] = q.ravel()
            winattn.window_attention(
                memory[:q.size].reshape(SHAPE), k, v,
                out=memory[shift:].reshape(SHAPE))
            numpy.testing.assert_array_equal(
                memory[shift:].reshape(SHAPE), self.want)

    def test_other_orders_of_bytes(self):
        q, k, v = self.arrays
        swap = q.dtype.newbyteorder()
        table, index = random(5, 27, 2), numpy.full((10, 10), 3)
        for name, arrays, options in (
                ("q", (q.astype(swap), k, v), {}),
                ("v", (q, k, v.astype(swap)), {}),
                ("out", self.arrays, {"out": q.astype(swap)}),
                ("lse", self.arrays, {"lse": self.lse.astype(swap)}),
                ("table", self.arrays, {"table": table.astype(swap),
                                        "table_window": (2, 5)})):
            self.expect(f"{name} is [<>]f4, and must be",
                        winattn.window_attention, *arrays, kind=TypeError,
                        **options)
        results = [winattn.window_attention(*self.arrays, table=table,
                                            table_index=each)
                   for each in (index, index.astype(
                       index.dtype.newbyteorder()))]
        numpy.testing.assert_array_equal(*results)


class Unwritten(Computed):
    """An output that must not be written is refused, and keeps its bytes."""

    def refused(self, reason, memory, **outputs):
        before = bytes(memory)
        if outputs.keys() <= {"out", "lse"}:
            self.expect(reason, winattn.window_attention, *self.arrays,
                        **outputs)
        else:
            self.expect(reason, winattn.window_attention_backward, self.want,
                        *self.arrays, out=outputs)
        self.assertEqual(bytes(memory), before)

    def test_read_only(self):
        for name in ("out", "dq", "dk", "dv"):
            marked = numpy.zeros(SHAPE, "float32")
            marked.flags.writeable = False
            constant = bytes(marked.nbytes)
            viewed = numpy.broadcast_to(numpy.zeros(SHAPE, "float32"), SHAPE)
            for array in (marked, viewed, numpy.frombuffer(
                    constant, "float32").reshape(SHAPE)):
                self.refused(f"{name} is read-only", array, **{name: array})
        marked = self.lse.copy()
        marked.flags.writeable = False
        self.refused("lse is read-only", marked, lse=marked)

    def test_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "file")
            numpy.zeros(SHAPE, "float32").tofile(path)
            array = numpy.memmap(path, "float32", "r", shape=SHAPE)
            self.refused("out is read-only", array, out=array)
            # a copy on write, and the file itself
            for mode in ("c", "r+"):
                array = numpy.memmap(path, "float32", mode, shape=SHAPE)
                winattn.window_attention(*self.arrays, out=array)
                numpy.testing.assert_array_equal(array, self.want)
            del array

    def test_elements_that_overlap(self):
        memory = numpy.zeros(numpy.prod(SHAPE), "float32")
        for strides in ((0, 320, 32, 4), (640, 320, 16, 4), (640, 320, 32, 0),
                        (640, 320, 32, 2), (-320, 320, 32, 4), (4, 4, 4, 4)):
            start = memory[80 * 3:] if min(strides) < 0 else memory
            self.refused("out has the strides .* overlap", memory,
                         out=as_strided(start, SHAPE, strides))
        self.refused("lse has the strides", memory,
                     lse=as_strided(memory, SHAPE[:3], (0, 40, 4)))
        self.refused("dk has the strides", memory,
                     dk=as_strided(memory, SHAPE, (0, 320, 32, 4)))

    def test_outputs_that_overlap(self):
        memory = numpy.zeros((4, *SHAPE[1:]), "float32")
        self.refused("dq overlaps dv", memory, dq=memory[:3], dv=memory[:3])
        self.refused("dq overlaps dv", memory, dq=memory[:3], dv=memory[1:])
        line = memory.reshape(-1)
        self.refused("out overlaps lse", memory, out=memory[:3],
                     lse=line[420:480].reshape(SHAPE[:3]))
        # side by side they do not
        packed = numpy.empty((3, 10, 3, 2, 8), "float32")
        winattn.window_attention_backward(
            self.want, *self.arrays, out=dict(zip(
                ("dq", "dk", "dv"), winattn.split_qkv(packed))))
        want = winattn.window_attention_backward(self.want, *self.arrays)
        numpy.testing.assert_array_equal(winattn.split_qkv(packed)[1], want.dk)

    def test_masked(self):
        array = numpy.ma.masked_array(self.arrays[0].copy(),
                                      self.arrays[0] > 0)
        self.expect("q is a masked array", winattn.window_attention, array,
                    *self.arrays[1:], kind=TypeError)
        self.expect("out is a masked array", winattn.window_attention,
                    *self.arrays, kind=TypeError, out=array)
        self.expect("table_index is a masked", winattn.window_attention,
                    *self.arrays, kind=TypeError, table=random(5, 27, 2),
                    table_index=numpy.ma.zeros((10, 10), int))

    def test_device_of_another_process(self):
        here = winattn.default_device()
        self.expect("none of winattn.devices", winattn.window_attention,
                    *self.arrays,
                    device=dataclasses.replace(here, id=here.id + 8))


if __name__ == "__main__":
    unittest.main()
