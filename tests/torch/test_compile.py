# SPDX-License-Identifier: Apache-2.0
"""torch.compile and torch.export: one graph, of any batch, that computes what
the functions do without it."""
import io
import unittest

import torch
from test_models import WindowAttention
from torch import nn
from winattn.torch import (accelerate, cosine_window_attention,
                           grid_attention, sliding_window_attention,
                           window_attention)


def window(qkv, table):
    o = window_attention(2 * qkv, table=table, table_window=(4, 4))
    return o.transpose(1, 2).flatten(2).relu()


def cosine(q, k, v, logit_scale):
    return cosine_window_attention(q, k, v, logit_scale=logit_scale).sin()


def grid(qkv, table):
    o = grid_attention(qkv + 1, window=4, shift=2, table=table)
    return o.flatten(3).relu()


def sliding(q, k, v):
    o, lse = sliding_window_attention(q, k, v, 8, window_blocks=2,
                                      return_lse=True)
    return o.relu() * lse[..., None]


# function: shapes of its tensors, of which `of_batch` have the batch first
CASES = {
    window: (lambda n: [(n, 16, 3, 2, 16), (49, 2)], 1),
    cosine: (lambda n: [(n, 2, 16, 32)] * 3 + [(2, 1, 1)], 3),
    grid: (lambda n: [(n, 9, 8, 3, 2, 16), (49, 2)], 1),
    sliding: (lambda n: [(n, 2, 32, 16)] * 3, 3),
}


def tensors(function, batch):
    return [torch.randn(shape).requires_grad_()
            for shape in CASES[function][0](batch)]


class Compiled(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(6)

    def same(self, function, other, given, leaves):
        one, two = function(*given), other(*given)
        self.assertEqual(one.stride(), two.stride())
        torch.testing.assert_close(two, one)
        for x, y in zip(*(torch.autograd.grad(o.square().sum(), leaves)
                          for o in (one, two))):
            torch.testing.assert_close(y, x, rtol=1e-4, atol=1e-4)

    def test_inductor(self):
        """Two batches, and one graph for both."""
        for function in CASES:
            with self.subTest(function=function.__name__), \
                    torch._dynamo.config.patch(error_on_recompile=True):
                compiled = torch.compile(function, fullgraph=True,
                                         dynamic=True)
                for batch in (5, 7):  # no other extent
                    given = tensors(function, batch)
                    self.same(function, compiled, given, given)

    def test_accelerated_model(self):
        model = nn.Sequential(WindowAttention(), nn.ReLU(), WindowAttention())
        accelerate(model)
        x = torch.randn(4, 15, 16, requires_grad=True)
        self.same(model, torch.compile(model, fullgraph=True), [x],
                  [x, *model.parameters()])

    def test_export(self):
        """Of any batch; also from a file."""
        batch = torch.export.Dim("batch", min=2, max=64)
        for function, (_, of_batch) in CASES.items():
            class Module(nn.Module):
                def forward(self, *given):
                    return function(*given)

            given, more = (tensors(function, n) for n in (5, 7))
            dims = tuple({0: batch} if i < of_batch else None
                         for i in range(len(given)))
            with self.subTest(function=function.__name__), torch.no_grad():
                file = io.BytesIO()
                torch.export.save(torch.export.export(
                    Module(), tuple(given), dynamic_shapes=(dims,)), file)
                file.seek(0)
                module = torch.export.load(file).module()
                for each in (given, more):
                    self.assertTrue(torch.equal(module(*each),
                                                function(*each)))


if __name__ == "__main__":
    unittest.main()
