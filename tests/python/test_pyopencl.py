# SPDX-License-Identifier: Apache-2.0
"""Arrays of pyopencl: where they lie, on which queue, after which events."""
import time
import unittest

import numpy
import winattn
from places import PyOpenCL, pyopencl
from reference import attend, expect_close, random

SHAPE = (3, 2, 10, 8)


class Arrays(unittest.TestCase):
    def setUp(self):
        self.queue = PyOpenCL().queue  # or skips
        self.numbers = [random(i, *SHAPE) for i in range(3)]
        self.want = attend(*self.numbers)[0]

    def put(self, array, queue=None, **options):
        return pyopencl.array.to_device(queue or self.queue, array, **options)

    def test_strides(self):
        # q: every other window; k: axes in another order; v: packed with more
        q, k, v = self.numbers
        spread = numpy.full((6, *SHAPE[1:]), numpy.nan, "float32")
        spread[::2] = q
        turned = numpy.ascontiguousarray(k.transpose(2, 0, 3, 1))
        packed = numpy.full((3, 10, 3, 2, 8), numpy.nan, "float32")
        packed[:, :, 2] = v.transpose(0, 2, 1, 3)
        got = winattn.window_attention(
            self.put(spread)[::2],
            self.put(turned).transpose((1, 3, 0, 2)),
            winattn.split_qkv(self.put(packed))[2])
        expect_close(self, got.get(), self.want)

    def test_output_with_strides(self):
        around = self.put(numpy.full((3, 10, 3, 2, 8), 7, "float32"))
        out = winattn.split_qkv(around)[1]
        got = winattn.window_attention(*map(self.put, self.numbers), out=out)
        self.assertIs(got, out)
        whole = around.get()
        expect_close(self, whole[:, :, 1].transpose(0, 2, 1, 3), self.want)
        self.assertTrue((whole[:, :, ::2] == 7).all())  # nothing else

    def test_broadcast(self):
        # one q for all windows, by a stride of 0
        q, k, v = self.numbers
        one = self.put(q[0])
        same = pyopencl.array.Array(
            self.queue, SHAPE, "float32", data=one.base_data,
            strides=(0, *one.strides))
        got = winattn.window_attention(same, self.put(k), self.put(v))
        expect_close(self, got.get(),
                     attend(numpy.broadcast_to(q[0], SHAPE), k, v)[0])
        number = pyopencl.array.Array(self.queue, SHAPE, "float32",
                                      data=one.base_data,
                                      strides=(0, 0, 0, 0))
        with self.assertRaisesRegex(winattn.InvalidArgument,
                                    "q repeats one number"):
            winattn.window_attention(number, self.put(k), self.put(v))
        with self.assertRaisesRegex(winattn.InvalidArgument,
                                    "out has the strides"):
            winattn.window_attention(*map(self.put, self.numbers), out=same)

    def test_output_over_another_array(self):
        whole = numpy.zeros((4, 3, 10, 3, 2, 8), "float32")
        for each, numbers in zip(winattn.split_qkv(whole[0]), self.numbers):
            each[...] = numbers
        memory = self.put(whole)
        q, k, v = winattn.split_qkv(memory[0])
        dq, dk, dv = winattn.split_qkv(memory[1])
        line = memory[2].reshape(-1)
        part = pyopencl.array.Array(  # by a buffer within the buffer
            self.queue, SHAPE, "float32", data=memory.base_data[:4096])
        for name, other, outputs in (
                ("dq", "q", {"dq": q}), ("dk", "dv", {"dk": dv, "dv": dv}),
                ("dv", "k", {"dv": part}),
                ("dq", "dv", {"dq": line[:480].reshape(SHAPE),
                              "dv": line[80:560].reshape(SHAPE)})):
            with self.subTest(f"{name} over {other}"):
                with self.assertRaisesRegex(
                        winattn.InvalidArgument,
                        f"{name} overlaps .*, and would be written"):
                    winattn.window_attention_backward(
                        line[600:1080].reshape(SHAPE), q, k, v, out=outputs)
        numpy.testing.assert_array_equal(memory.get(), whole)
        # beside each other, and all else, they may lie
        o = line[:480].reshape(SHAPE)
        winattn.window_attention(q, k, v, out=o)
        expect_close(self, o.get(), self.want)
        winattn.window_attention_backward(
            o, q, k, v, out={"dq": dq, "dk": dk, "dv": dv})
        _, _, want = attend(*self.numbers, d_o=self.want)
        whole = memory.get()
        for each, name in zip(winattn.split_qkv(whole[1]), want):
            expect_close(self, each, want[name], gradient=True, name=name)

    def test_memory_of_other_kinds(self):
        q, k, v = map(self.put, self.numbers)
        flags = pyopencl.mem_flags
        for flag, name in ((flags.READ_ONLY, "out"), (flags.WRITE_ONLY, "q")):
            buffer = pyopencl.Buffer(self.queue.context, flag, q.nbytes)
            array = pyopencl.array.Array(self.queue, SHAPE, "float32",
                                         data=buffer)
            with self.subTest(name):
                with self.assertRaises(winattn.InvalidArgument) as caught:
                    winattn.window_attention(
                        array if name == "q" else q, k, v,
                        out=array if name == "out" else None)
                self.assertEqual(caught.exception.name,
                                 "WINATTN_INVALID_BUFFER")
        try:
            from pyopencl.tools import SVMAllocator
            shared = self.put(self.numbers[0], allocator=SVMAllocator(
                self.queue.context, queue=self.queue))
        except (ImportError, pyopencl.Error) as error:
            self.skipTest(f"no shared virtual memory: {error}")
        for arrays, out in (((shared, k, v), None), ((q, k, v), shared)):
            with self.assertRaisesRegex(TypeError, "shared virtual memory"):
                winattn.window_attention(*arrays, out=out)

    def test_what_cannot_be(self):
        q, k, v = map(self.put, self.numbers)
        backwards = pyopencl.array.Array(
            self.queue, SHAPE, "float32", data=q.base_data,
            offset=q.strides[0] * 2, strides=(-q.strides[0], *q.strides[1:]))
        for wrong, reason in ((q[:2], "k has the shape"),
                              (q[..., :4], "k has the shape"),
                              (backwards, "q has a stride of -640 bytes along "
                               "axis 0, and must not run backwards")):
            with self.subTest(reason):
                with self.assertRaisesRegex(winattn.InvalidArgument, reason):
                    winattn.window_attention(wrong, k, v)
        short = pyopencl.array.Array(self.queue, (4, *SHAPE[1:]), "float32",
                                     data=q.base_data)
        with self.assertRaises(winattn.InvalidArgument) as caught:
            winattn.window_attention(short, short, short)
        self.assertEqual(caught.exception.name, "WINATTN_BUFFER_TOO_SMALL")
        scales = self.put(numpy.zeros(4, "float32"))[::2]
        with self.assertRaisesRegex(winattn.InvalidArgument,
                                    "logit_scale must be contiguous"):
            winattn.window_attention(q, k, v, logit_scale=scales)
        with self.assertRaisesRegex(TypeError, "k one of numpy"):
            winattn.window_attention(q, self.numbers[1], v)
        with self.assertRaisesRegex(TypeError, "device belongs to"):
            winattn.window_attention(q, k, v, device=winattn.default_device())
        gate = pyopencl.UserEvent(self.queue.context)
        for wrong in (gate, [gate, 1], 1):
            with self.assertRaisesRegex(TypeError, "wait_for must be a list"):
                winattn.window_attention(q, k, v, wait_for=wrong)
        with self.assertRaisesRegex(TypeError, "queue must be"):
            winattn.window_attention(q, k, v, queue=1)
        with self.assertRaisesRegex(winattn.InvalidArgument, "has no queue"):
            winattn.window_attention(q.with_queue(None), k, v)
        other = pyopencl.CommandQueue(pyopencl.Context([self.queue.device]))
        with self.assertRaises(winattn.InvalidArgument) as caught:
            winattn.window_attention(self.put(self.numbers[0], other), k, v)
        self.assertEqual(caught.exception.name, "WINATTN_INVALID_BUFFER")

    def test_events(self):
        # out of order, the calls wait for what goes before them and nothing
        # is read too early: q is written when a user's event says so
        properties = pyopencl.command_queue_properties
        queue = pyopencl.CommandQueue(
            self.queue.context,
            properties=properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)
        q, k, v = (self.put(array, queue) for array in self.numbers)
        late = pyopencl.array.zeros(queue, SHAPE, "float32")
        gate = pyopencl.UserEvent(queue.context)
        late.add_event(pyopencl.enqueue_copy(queue, late.base_data,
                                             q.base_data, wait_for=[gate]))
        o = winattn.window_attention(late, k, v)
        again = winattn.window_attention(o, k, v)
        got = winattn.window_attention_backward(again, o, k, v)
        self.assertTrue(o.events and again.events and got.dq.events)
        states = pyopencl.command_execution_status
        self.assertNotEqual(again.events[-1].command_execution_status,
                            states.COMPLETE)
        gate.set_status(states.COMPLETE)
        expect_close(self, o.get(), self.want)
        want, _, gradients = attend(self.want, *self.numbers[1:],
                                    d_o=attend(self.want,
                                               *self.numbers[1:])[0])
        expect_close(self, again.get(), want)
        expect_close(self, got.dq.get(), gradients["dq"], gradient=True)

    def test_wait_for(self):
        # q is written on another queue, behind a user's event
        q, k, v = map(self.put, self.numbers)
        late = pyopencl.array.zeros(self.queue, SHAPE, "float32")
        late.finish()
        gate = pyopencl.UserEvent(self.queue.context)
        other = pyopencl.CommandQueue(self.queue.context)
        written = pyopencl.enqueue_copy(other, late.base_data, q.base_data,
                                        wait_for=[gate])
        o = winattn.window_attention(late, k, v, wait_for=[written])
        self.queue.flush()
        other.flush()
        time.sleep(0.1)  # what does not wait is done by then
        gate.set_status(pyopencl.command_execution_status.COMPLETE)
        expect_close(self, o.get(), self.want)

    def test_pool(self):
        from pyopencl.tools import ImmediateAllocator, MemoryPool
        pool = MemoryPool(ImmediateAllocator(self.queue))
        arrays = [self.put(array, allocator=pool) for array in self.numbers]
        active = pool.active_blocks
        o = winattn.window_attention(*arrays)
        self.assertGreater(pool.active_blocks, active)  # o is from it
        got = winattn.window_attention_backward(o, *arrays)
        _, _, want = attend(*self.numbers, d_o=self.want)
        expect_close(self, got.dk.get(), want["dk"], gradient=True)


if __name__ == "__main__":
    unittest.main()
