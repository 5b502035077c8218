# SPDX-License-Identifier: Apache-2.0
"""winattn.torch's functions against plain loops in float64, as operators of
torch.library, and what they refuse."""
import unittest

import plain
import torch
import winattn
import winattn.torch

# of the largest number, forward and backward
ALLOWED = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def random(*shape, dtype=torch.float32, grad=True):
    return torch.randn(*shape).to(dtype).requires_grad_(grad)


def packed(windows, heads, tokens, channels, dtype):
    """q, k and v as a projection leaves them, and the tensor that they are
    views of."""
    qkv = random(windows, tokens, 3, heads, channels, dtype=dtype)
    return qkv, qkv.permute(2, 0, 3, 1, 4)


class Numbers(unittest.TestCase):
    """Results and all gradients, where a random sum of o and lse is what is
    differentiated."""

    def setUp(self):
        torch.manual_seed(1)

    def check(self, computed, wanted, leaves, dtype):
        """`computed` makes (o, lse) or o of leaves, `wanted` the same of
        these in float64."""
        made = computed(*leaves)
        doubles = [leaf.detach().double().requires_grad_()
                   for leaf in leaves]
        right = wanted(*doubles)
        made, right = ((x if isinstance(x, tuple) else (x,))
                       for x in (made, right))
        weights = [torch.randn_like(x) for x in right]
        for x, y in zip(made, right):
            self.near(x, y, dtype)
        gradients = torch.autograd.grad(
            sum((x.double() * w).sum() for x, w in zip(made, weights)),
            leaves)
        for x, y in zip(gradients, torch.autograd.grad(
                sum((x * w).sum() for x, w in zip(right, weights)), doubles)):
            self.near(x, y, dtype)

    def near(self, x, y, dtype):
        self.assertEqual(x.shape, y.shape)
        error = (x.detach().double() - y).abs().max()
        self.assertLess(error, ALLOWED[dtype] * max(1, y.abs().max()))

    def test_windows(self):
        mask = torch.zeros(2, 35, 35)
        mask[1, :, 20:] = -100
        for dtype in ALLOWED:
            with self.subTest(dtype=dtype):
                qkv, (q, k, v) = packed(4, 3, 35, 16, dtype)
                table = random(9 * 13, 3, dtype=dtype)
                self.check(
                    lambda qkv, table: winattn.torch.window_attention(
                        qkv, scale=0.3, table=table, table_window=(5, 7),
                        mask=mask, return_lse=True),
                    lambda qkv, table: plain.windows(
                        *qkv.permute(2, 0, 3, 1, 4), 0.3,
                        bias=plain.bias_of_table(table, (5, 7)), mask=mask),
                    [qkv, table], dtype)

    def test_grouped_heads(self):
        q, k, v = (random(2, heads, 20, 24) for heads in (4, 2, 2))
        bias = random(4, 20, 20)
        self.check(
            lambda q, k, v, bias: winattn.torch.window_attention(
                q, k, v, bias=bias),
            lambda q, k, v, bias: plain.windows(q, k, v, bias=bias)[0],
            [q, k, v, bias], torch.float32)

    def test_cosine(self):
        for dtype in ALLOWED:
            with self.subTest(dtype=dtype):
                q, k, v = (random(3, 2, 16, 32, dtype=dtype)
                           for _ in range(3))
                scale = random(2, 1, 1)
                self.check(
                    lambda q, k, v, scale:
                    winattn.torch.cosine_window_attention(
                        q, k, v, logit_scale=scale),
                    lambda q, k, v, scale: plain.windows(
                        q, k, v, logit_scale=scale)[0],
                    [q, k, v, scale], dtype)

    def test_grid(self):
        for size in ((14, 21), (13, 10), (7, 5)):
            with self.subTest(size=size):
                qkv = random(2, *size, 3, 2, 16)
                table = random(13 * 9, 2)
                pads = [random(2, 16) for _ in range(2)]
                self.check(
                    lambda qkv, table, *pads: winattn.torch.grid_attention(
                        qkv, window=(7, 5), shift=(3, 2), table=table,
                        pad_k=pads[0], pad_v=pads[1]),
                    lambda qkv, table, *pads: plain.grid(
                        qkv, (7, 5), (3, 2),
                        plain.bias_of_table(table, (7, 5)), pads),
                    [qkv, table, *pads], torch.float32)

    def test_sliding(self):
        q, k, v = (random(2, 2, 96, 32) for _ in range(3))
        self.check(
            lambda q, k, v: winattn.torch.sliding_window_attention(
                q, k, v, 12, window_blocks=3, sink=5),
            lambda q, k, v: plain.sliding(q, k, v, 12, 3, 5)[0],
            [q, k, v], torch.float32)

    def test_sums(self):
        """Whose gradients are one number for all of o and lse."""
        leaves = [random(2, 3, 20, 16) for _ in range(3)]
        doubles = [x.detach().double().requires_grad_() for x in leaves]
        for x, y in zip(*(torch.autograd.grad(o.sum() + lse.sum(), given)
                          for given, (o, lse) in (
                (leaves, winattn.torch.window_attention(
                    *leaves, return_lse=True)),
                (doubles, plain.windows(*doubles))))):
            self.near(x, y, torch.float32)

    def test_rows_that_see_nothing(self):
        mask = torch.zeros(1, 16, 16)
        mask[0, 3] = -torch.inf
        q, k, v = (random(2, 1, 16, 16) for _ in range(3))
        o = winattn.torch.window_attention(q, k, v, mask=mask)
        self.assertEqual(o[:, :, 3].abs().max(), 0)
        o.sum().backward()
        self.assertEqual(q.grad[:, :, 3].abs().max(), 0)
        self.assertTrue(k.grad.isfinite().all())


class Odd(unittest.TestCase):
    """What tensors may be like."""

    def setUp(self):
        torch.manual_seed(7)

    def near(self, *given, **named):
        o, right = winattn.torch.window_attention(*given, **named), (
            plain.windows(*given, **named)[0])
        torch.testing.assert_close(o, right, rtol=1e-5, atol=1e-5)
        leaves = [x for x in (*given, *named.values()) if x.requires_grad]
        for x, y in zip(*(torch.autograd.grad(each.square().sum(), leaves)
                          for each in (o, right))):
            torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-4)

    def test_strides(self):
        q, k = random(4, 16, 2, 32)[..., ::2].transpose(1, 2), random(
            1, 2, 16, 16).expand(4, -1, -1, -1)
        self.near(q, k, random(4, 2, 16, 1).expand(-1, -1, -1, 16))
        self.near(q, k, k, bias=random(16, 16, 2).permute(2, 0, 1))
        self.near(q, k, k, bias=random(1, 16, 16).expand(2, -1, -1))

    def test_one_gradient(self):
        q, k, v = (random(2, 2, 16, 16, grad=False) for _ in range(3))
        self.near(q, k, v, bias=random(2, 16, 16))

    def test_no_windows(self):
        qkv, table = random(0, 16, 3, 2, 16), random(49, 2)
        o = winattn.torch.window_attention(qkv, table=table,
                                           table_window=(4, 4))
        o.sum().backward()
        self.assertEqual((o.shape[0], table.grad.abs().max()), (0, 0))

    def test_meta(self):
        with torch.device("meta"):
            qkv, table = random(2, 16, 3, 2, 16), random(49, 2)
            index = torch.zeros(16, 16, dtype=torch.long)
            o = winattn.torch.window_attention(qkv, table=table,
                                               table_index=index)
        o.sum().backward()
        self.assertEqual((o.shape, table.grad.shape), (
            (2, 2, 16, 16), table.shape))

    def test_vmap(self):
        q, k, v = (random(3, 2, 2, 16, 16) for _ in range(3))
        o = torch.func.vmap(winattn.torch.window_attention)(q, k, v)
        right = torch.stack([plain.windows(*each)[0]
                             for each in zip(q, k, v)])
        torch.testing.assert_close(o, right, rtol=1e-5, atol=1e-5)


class Operators(unittest.TestCase):
    def refuse(self, kind, text, function, *arguments, **named):
        with self.assertRaisesRegex(kind, text):
            function(*arguments, **named)

    def cases(self):
        for dtype in (torch.float32, torch.float16):
            qkv, (q, k, v) = packed(2, 2, 16, 16, dtype)
            yield torch.ops.winattn.window_attention, (
                qkv, None, None, None, random(49, 2), None, None, None, None,
                None, False, [4, 4], False, None)
            yield torch.ops.winattn.window_attention, (
                q.detach().requires_grad_(), k, v, random(2), None, None,
                None, None, None, None, True, [], False, None)
        yield torch.ops.winattn.grid_attention, (
            random(1, 9, 8, 3, 2, 16), None, None, None, random(49, 2), None,
            None, None, None, random(2, 16), random(2, 16), None,
            False, [4, 4], False, None, [4, 4], [1, 2], [False, False],
            "values", False, True)
        yield torch.ops.winattn.sliding_attention, (
            random(1, 2, 32, 16), random(1, 2, 32, 16), random(1, 2, 32, 16),
            None, 8, 0, 2, 0, False, 0)

    def test_opcheck(self):
        for operator, arguments in self.cases():
            with self.subTest(operator=str(operator), q=arguments[0].dtype):
                torch.library.opcheck(operator, arguments)

    def test_autocast(self):
        q, k, v = (random(2, 2, 16, 16) for _ in range(3))
        with torch.autocast(plain.DEVICE, dtype=torch.bfloat16):
            o = winattn.torch.window_attention(q, k, v)
            self.refuse(TypeError, "float64", winattn.torch.window_attention,
                        *(x.double() for x in (q, k, v)))
        self.assertEqual(o.dtype, torch.bfloat16)
        o.float().sum().backward()
        self.assertEqual(q.grad.dtype, torch.float32)

    def test_same_every_time(self):
        qkv, table = random(64, 49, 3, 2, 16), random(169, 2)
        runs = []
        for _ in range(2):
            o = winattn.torch.window_attention(qkv, table=table,
                                               table_window=(7, 7))
            runs.append((o, *torch.autograd.grad(o.square().sum(),
                                                 (qkv, table))))
        for x, y in zip(*runs):
            self.assertTrue(torch.equal(x, y))

    def test_order_in_memory(self):
        """o lies as q does, so that no copy precedes the next projection."""
        _, (q, k, v) = packed(2, 3, 16, 16, torch.float32)
        o = winattn.torch.window_attention(q, k, v)
        self.assertTrue(o.transpose(1, 2).is_contiguous())
        o = winattn.torch.window_attention(q.contiguous(), k, v)
        self.assertTrue(o.is_contiguous())


class Refusals(unittest.TestCase):
    refuse = Operators.refuse

    def test_each(self):
        attend = winattn.torch.window_attention
        q, k, v = (random(2, 2, 16, 16) for _ in range(3))
        self.refuse(TypeError, "float64", attend, q.double(), k.double(),
                    v.double())
        self.refuse(TypeError, "k is", attend, q, k.half(), v)
        self.refuse(TypeError, "k and v", attend, q, k)
        self.refuse(winattn.InvalidArgument, "shape", attend, q, k[:, :, :3],
                    v)
        self.refuse(winattn.InvalidArgument, "exclude", attend, q, k, v,
                    bias=random(2, 16, 16), table=random(49, 2))
        self.refuse(winattn.InvalidArgument, "table_window", attend, q, k, v,
                    table=random(49, 2))
        self.refuse(winattn.InvalidArgument, "mask", winattn.torch.
                    grid_attention, random(1, 8, 8, 3, 2, 16), window=4,
                    mask="shfit")
        self.refuse(winattn.InvalidArgument, "window_blocks",
                    winattn.torch.sliding_window_attention, q, k, v, 4,
                    window_blocks=0)
        self.refuse(TypeError, "k is on meta", attend, q, k.to("meta"), v)
        self.refuse(TypeError, "q is a ndarray", attend, q.detach().cpu().numpy(),
                    k, v)
        self.refuse(TypeError, "to_dense", attend, q.detach().to_sparse(),
                    k.detach(), v.detach())
        self.refuse(TypeError, "must both be given",
                    winattn.torch.sliding_window_attention, q, None, None, 4)
        for packed in (random(2, 16, 4, 2, 16), random(16, 48)):
            self.refuse(winattn.InvalidArgument, "tokens, 3, heads", attend,
                        packed)
        self.refuse(winattn.InvalidArgument, "map, 3, heads",
                    winattn.torch.grid_attention, random(1, 9, 9, 2, 2, 8),
                    window=3)
        self.refuse(TypeError, "whole numbers", winattn.torch.grid_attention,
                    random(1, 8, 8, 3, 2, 16), window=4.0)

    def test_what_would_be_something_else(self):
        """A mask that is added, regions that are bytes."""
        q, k, v = (random(2, 2, 16, 16) for _ in range(3))
        attend = winattn.torch.window_attention
        self.refuse(TypeError, "mask is bool", attend, q, k, v,
                    mask=torch.ones(1, 16, 16, dtype=torch.bool))
        for regions in (torch.zeros(1, 16), torch.full((1, 16), 256)):
            self.refuse(TypeError, "must be uint8", attend, q, k, v,
                        regions=regions)
        regions = (torch.arange(16)[None] > 7).to(torch.int8) * -1
        mask = -100.0 * (regions[:, :, None] != regions[:, None])
        for given in (regions, [regions, regions]):
            self.assertTrue(torch.equal(attend(q, k, v, regions=given),
                                        attend(q, k, v, mask=mask)))

    def test_gradients_that_would_be_lost(self):
        q, k, v = (random(2, 2, 16, 16) for _ in range(3))
        attend = winattn.torch.window_attention
        self.refuse(NotImplementedError, "scale requires a gradient", attend,
                    q, k, v, scale=torch.tensor(0.3, requires_grad=True))
        self.refuse(NotImplementedError, "forward mode", torch.func.jvp,
                    lambda q: attend(q, k, v), (q.detach(),), (q.detach(),))

    def test_mask_with_gradient(self):
        q, k, v = (random(2, 2, 16, 16) for _ in range(3))
        self.refuse(NotImplementedError, "mask requires a gradient",
                    winattn.torch.window_attention, q, k, v,
                    mask=random(1, 16, 16))

    def test_second_derivative(self):
        q, k, v = (random(2, 2, 16, 16) for _ in range(3))
        o = winattn.torch.window_attention(q, k, v)
        gradient, = torch.autograd.grad(o.sum(), q, create_graph=True)
        with self.assertRaisesRegex(NotImplementedError, "second"):
            gradient.sum().backward()


if __name__ == "__main__":
    unittest.main()
