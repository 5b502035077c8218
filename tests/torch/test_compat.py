# SPDX-License-Identifier: Apache-2.0
"""The originals' functions and modules against plain loops in float64."""
import unittest

import plain
import torch
from winattn.torch import compat


def near(test, x, y, allowed=2e-5):
    error = (x.detach().double() - y).abs().max()
    test.assertLess(error, allowed * max(1, y.abs().max()))


class Functions(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(2)
        self.q, self.k, self.v = (
            torch.randn(4, 2, 16, 20, requires_grad=True) for _ in range(3))
        self.doubles = [x.detach().double().requires_grad_()
                        for x in (self.q, self.k, self.v)]

    def check(self, o, right):
        near(self, o, right)
        weight = torch.randn_like(o)
        leaves = (self.q, self.k, self.v)
        for x, y in zip(torch.autograd.grad(o, leaves, weight),
                        torch.autograd.grad(right, self.doubles,
                                            weight.double())):
            near(self, x, y)

    def test_flash_swin(self):
        """Also the scale in the gradients of q and k."""
        bias = torch.randn(2, 16, 16)
        self.check(compat.flash_swin_attn_func(self.q, self.k, self.v, bias,
                                               0.4),
                   plain.windows(*self.doubles, 0.4, bias=bias)[0])
        self.check(compat.flash_swin_attn_func(self.q, self.k, self.v, None,
                                               1.0),
                   plain.windows(*self.doubles, 1.0)[0])

    def test_flash_win_v2(self):
        """Also rows whose first keys are hidden."""
        mask = torch.zeros(2, 16, 16)
        mask[1, :, :8] = -torch.inf
        scale = torch.randn(2, 1, 1)
        self.check(compat.flash_win_attn_v2_func(
            self.q, self.k, self.v, scale, None, mask),
            plain.windows(*self.doubles, logit_scale=scale, mask=mask)[0])
        self.check(compat.flash_win_attn_v2_func(self.q, self.k, self.v),
                   plain.windows(*self.doubles, cosine=True)[0])

    def test_block_sliding(self):
        """Also blocks that do not divide the tokens."""
        self.check(compat.attention(self.q, self.k, self.v, 6, 2, 0.3),
                   plain.sliding(*self.doubles, 6, 2, scale=0.3)[0])


class Modules(unittest.TestCase):
    """With winattn and without it, from one state."""

    def check(self, kind, **named):
        torch.manual_seed(3)
        ours = kind(32, (5, 3), 2, **named)
        other = kind(32, (5, 3), 2, is_flash=False, **named).double()
        other.load_state_dict(ours.state_dict())
        x = torch.randn(4, 15, 32, requires_grad=True)
        double = x.detach().double().requires_grad_()
        mask = torch.zeros(2, 15, 15)
        mask[1, 4:, :4] = -100
        for given in (None, mask):
            o, right = ours(x, given), other(double, given)
            near(self, o, right, 1e-4)
            parameters = [x, *ours.parameters()]
            others = [double, *other.parameters()]
            for one, two in zip(
                    torch.autograd.grad(o.square().sum(), parameters),
                    torch.autograd.grad(right.square().sum(), others)):
                near(self, one, two, 1e-3)

    def test_swin(self):
        self.check(compat.WindowAttention)

    def test_swin_v2(self):
        self.check(compat.WindowAttentionV2)
        with self.assertRaisesRegex(NotImplementedError, "attn_drop"):
            compat.WindowAttentionV2(32, (4, 4), 2, attn_drop=0.1)


if __name__ == "__main__":
    unittest.main()
