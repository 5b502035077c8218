# SPDX-License-Identifier: Apache-2.0
"""Arrays of pyopencl: where they lie, on which queue, after which events."""
import time
import unittest

import numpy
import winattn
from places import SHAPE, Case, PyOpenCL, pyopencl
from reference import attend, expect_close


class Arrays(Case):
    def setUp(self):
        super().setUp()
        self.queue = PyOpenCL().queue  # or skips
        self.want = attend(*self.arrays)[0]

    def put(self, array, queue=None, **options):
        return pyopencl.array.to_device(queue or self.queue, array, **options)

    def lay(self, memory, strides, shape=SHAPE, **options):
        """An array in that memory."""
        return pyopencl.array.Array(self.queue, shape, "float32", data=memory,
                                    strides=strides, **options)

    def refused(self, reason, *arrays, kind=winattn.InvalidArgument,
                **options):
        self.expect(reason, winattn.window_attention, *arrays, kind=kind,
                    **options)

    def test_strides(self):
        # q: every other window; k: axes in another order; v: packed with more
        q, k, v = self.arrays
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
        got = winattn.window_attention(*map(self.put, self.arrays), out=out)
        self.assertIs(got, out)
        whole = around.get()
        expect_close(self, whole[:, :, 1].transpose(0, 2, 1, 3), self.want)
        self.assertTrue((whole[:, :, ::2] == 7).all())  # nothing else

    def test_broadcast(self):
        # one q for all windows, by a stride of 0
        q, k, v = self.arrays
        one = self.put(q[0])
        same = self.lay(one.base_data, (0, *one.strides))
        got = winattn.window_attention(same, self.put(k), self.put(v))
        expect_close(self, got.get(),
                     attend(numpy.broadcast_to(q[0], SHAPE), k, v)[0])
        number = self.lay(one.base_data, (0, 0, 0, 0))
        self.refused("q repeats one number", number, self.put(k), self.put(v))
        self.refused("out has the strides", *map(self.put, self.arrays),
                     out=same)

    def test_output_over_another_array(self):
        whole = numpy.zeros((4, 3, 10, 3, 2, 8), "float32")
        for each, numbers in zip(winattn.split_qkv(whole[0]), self.arrays):
            each[...] = numbers
        memory = self.put(whole)
        q, k, v = winattn.split_qkv(memory[0])
        dq, dk, dv = winattn.split_qkv(memory[1])
        line = memory[2].reshape(-1)
        # by a buffer within the buffer
        part = self.lay(memory.base_data[:4096], None)
        for name, outputs in (
                ("dq", {"dq": q}), ("dk", {"dk": dv, "dv": dv}),
                ("dv", {"dv": part}),
                ("dq", {"dq": line[:480].reshape(SHAPE),
                        "dv": line[80:560].reshape(SHAPE)})):
            self.expect(f"{name} overlaps .*, and would be written",
                        winattn.window_attention_backward,
                        line[600:1080].reshape(SHAPE), q, k, v,
                        kind=winattn.InvalidArgument, out=outputs)
        numpy.testing.assert_array_equal(memory.get(), whole)
        # beside each other, and all else, they may lie
        o = line[:480].reshape(SHAPE)
        winattn.window_attention(q, k, v, out=o)
        expect_close(self, o.get(), self.want)
        winattn.window_attention_backward(
            o, q, k, v, out={"dq": dq, "dk": dk, "dv": dv})
        _, _, want = attend(*self.arrays, d_o=self.want)
        whole = memory.get()
        for each, name in zip(winattn.split_qkv(whole[1]), want):
            expect_close(self, each, want[name], gradient=True, name=name)

    def test_memory_of_other_kinds(self):
        q, k, v = map(self.put, self.arrays)
        flags = pyopencl.mem_flags
        for flag, name in ((flags.READ_ONLY, "out"), (flags.WRITE_ONLY, "q")):
            array = self.lay(pyopencl.Buffer(self.queue.context, flag,
                                             q.nbytes), None)
            self.refused("WINATTN_INVALID_BUFFER",
                         array if name == "q" else q, k, v,
                         out=array if name == "out" else None)
        try:
            from pyopencl.tools import SVMAllocator
            shared = self.put(self.arrays[0], allocator=SVMAllocator(
                self.queue.context, queue=self.queue))
        except (ImportError, pyopencl.Error) as error:
            self.skipTest(f"no shared virtual memory: {error}")
        for arrays, out in (((shared, k, v), None), ((q, k, v), shared)):
            self.refused("shared virtual memory", *arrays, kind=TypeError,
                         out=out)

    def test_what_cannot_be(self):
        q, k, v = map(self.put, self.arrays)
        backwards = self.lay(q.base_data, (-q.strides[0], *q.strides[1:]),
                             offset=q.strides[0] * 2)
        self.refused("k has the shape", q[:2], k, v)
        self.refused("k has the shape", q[..., :4], k, v)
        self.refused("q has a stride of -640 bytes along axis 0, and must not "
                     "run backwards", backwards, k, v)
        short = self.lay(q.base_data, None, (4, *SHAPE[1:]))
        self.refused("WINATTN_BUFFER_TOO_SMALL", short, short, short)
        scales = self.put(numpy.zeros(4, "float32"))[::2]
        self.refused("logit_scale must be contiguous", q, k, v,
                     logit_scale=scales)
        self.refused("k one of numpy", q, self.arrays[1], v, kind=TypeError)
        self.refused("device belongs to", q, k, v, kind=TypeError,
                     device=winattn.default_device())
        gate = pyopencl.UserEvent(self.queue.context)
        for wrong in (gate, [gate, 1], 1):
            self.refused("wait_for must be a list", q, k, v, kind=TypeError,
                         wait_for=wrong)
        self.refused("queue must be", q, k, v, kind=TypeError, queue=1)
        self.refused("has no queue", q.with_queue(None), k, v)
        other = pyopencl.CommandQueue(pyopencl.Context([self.queue.device]))
        self.refused("WINATTN_INVALID_BUFFER",
                     self.put(self.arrays[0], other), k, v)

    def test_events(self):
        # out of order, the calls wait for what goes before them and nothing
        # is read too early: q is written when a user's event says so
        properties = pyopencl.command_queue_properties
        queue = pyopencl.CommandQueue(
            self.queue.context,
            properties=properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)
        q, k, v = (self.put(array, queue) for array in self.arrays)
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
        want, _, gradients = attend(self.want, *self.arrays[1:],
                                    d_o=attend(self.want,
                                               *self.arrays[1:])[0])
        expect_close(self, again.get(), want)
        expect_close(self, got.dq.get(), gradients["dq"], gradient=True)

    def test_wait_for(self):
        # q is written on another queue, behind a user's event
        q, k, v = map(self.put, self.arrays)
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
        arrays = [self.put(array, allocator=pool) for array in self.arrays]
        active = pool.active_blocks
        o = winattn.window_attention(*arrays)
        self.assertGreater(pool.active_blocks, active)  # o is from it
        got = winattn.window_attention_backward(o, *arrays)
        _, _, want = attend(*self.arrays, d_o=self.want)
        expect_close(self, got.dk.get(), want["dk"], gradient=True)


if __name__ == "__main__":
    unittest.main()
