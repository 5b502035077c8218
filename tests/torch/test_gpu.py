# SPDX-License-Identifier: Apache-2.0
"""winattn.torch among the streams, graphs and memory of a GPU of NVIDIA.
WINATTN_TORCH_DEVICE=cuda: the other tests here compute there as well."""
import copy
import threading
import unittest

import plain
import torch
import winattn
import winattn.torch
from test_models import WindowAttention
from torch import nn

WAIT = 50_000_000  # cycles, some 30 ms


def setUpModule():
    if plain.DEVICE == "cpu":
        raise unittest.SkipTest("WINATTN_TORCH_DEVICE is not a GPU")


def step(model, x):
    """The loss, its gradients, and gradients of the parameters."""
    o = model(x)
    loss = o.float().square().mean()
    return [o, *torch.autograd.grad(loss, [x, *model.parameters()])]


class Gpu(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(8)
        self.model = nn.Sequential(WindowAttention(), WindowAttention()).half()
        winattn.torch.accelerate(self.model)

    def input(self, windows=64):
        return torch.randn(windows, 15, 16, dtype=torch.float16,
                           requires_grad=True)

    def same(self, made, right):
        torch.cuda.synchronize()
        for x, y in zip(made, right):
            self.assertTrue(torch.equal(x, y))

    def test_stream(self):
        """What the current stream does before a call is done, and nothing is
        waited for."""
        x, late = self.input(), self.input()
        right = step(self.model, late)
        side, done = torch.cuda.Stream(), torch.cuda.Event()
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(WAIT)
            with torch.no_grad():
                x.copy_(late)
            made = step(self.model, x)
            done.record()
        self.assertFalse(done.query())
        self.same(made, right)

    def test_memory_that_goes(self):
        """Tensors freed while their launch is still to come: their memory is
        given to what comes after it on the same stream alone."""
        x = self.input()
        right = step(self.model, x)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(WAIT)
            made = []
            for _ in range(4):
                given = x.detach().clone().requires_grad_()
                made.append(step(self.model, given))
                del given
                for _ in range(8):
                    torch.full(x.shape, torch.nan, dtype=torch.float16)
        for each in made:
            self.same(each, right)

    def test_graph(self):
        """Forward and backward, recorded once, of tensors that change."""
        x = self.input()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step(self.model, x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = step(self.model, x)
        for _ in range(3):
            new = self.input()
            with torch.no_grad():
                x.copy_(new)
            graph.replay()
            self.same(made, step(self.model, new))

    def test_new_kind_in_a_graph(self):
        """Refused, and works afterwards."""
        x, graph = self.input(37), torch.cuda.CUDAGraph()
        with self.assertRaisesRegex(winattn.Unsupported, "captured"):
            with torch.cuda.graph(graph):
                self.model(x)
        torch.cuda.synchronize()
        self.assertTrue(self.model(x).isfinite().all())

    def test_reduced_overhead(self):
        """torch.compile records graphs by itself."""
        x = self.input()
        right = step(self.model, x)
        compiled = torch.compile(self.model, mode="reduce-overhead")
        for _ in range(4):
            torch.compiler.cudagraph_mark_step_begin()
            made = [each.clone() for each in step(compiled, x)]
        torch.testing.assert_close(made, right, rtol=2e-2, atol=2e-3)

    def test_threads(self):
        """Two models, two streams; autograd has threads of its own."""
        models = [self.model, copy.deepcopy(self.model)]
        inputs = [self.input(windows) for windows in (64, 96)]
        rights = [step(*each) for each in zip(models, inputs)]
        torch.cuda.synchronize()
        wrong = []

        def work(model, x, right):
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(20):
                    made = step(model, x)
                    torch.cuda.current_stream().synchronize()
                    wrong.extend(not torch.equal(*each)
                                 for each in zip(made, right))

        threads = [threading.Thread(target=work, args=each)
                   for each in zip(models, inputs, rights)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(wrong), 2 * 20 * len(rights[0]))
        self.assertFalse(any(wrong))


if __name__ == "__main__":
    unittest.main()
