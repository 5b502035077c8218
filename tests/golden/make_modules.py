# SPDX-License-Identifier: Apache-2.0
"""Makes golden vectors with the modules that people train: forward and
gradients of shifted-window attention, by the modules' own code.

    python3 make_modules.py OUTPUT_FOLDER [CASE...]

Versions go to OUTPUT_FOLDER/../versions_modules.txt. The vectors in modules/
were made with the versions named in the file beside this script.

Everything is computed in double precision, on inputs that fp32, fp16 and bf16
all hold exactly, so that one file serves every storage type. Inputs are
written as fp16, results as fp32: that costs 6e-8 of each number.

To see q, k, v and their gradients from outside, a module is three times as
wide as the heads that are tested: its input holds q, k and v side by side, its
projections only copy, and what its other heads do (nothing: their q, k and v
are 0) is left out. Layers around the attention are replaced by ones that do
nothing.
"""
import math
import pathlib
import sys

import numpy
import torch
from torch import nn

torch.set_default_dtype(torch.float64)

from aurora.model.swin3d import Swin3DTransformerBlock
from monai.networks.nets import swin_unetr
from spandrel.architectures.HAT.__arch import HAT as hat
from spandrel.architectures.SwinIR.__arch import SwinIR as swinir
from timm.models import swin_transformer as timm_v1
from timm.models import swin_transformer_v2 as timm_v2
from timm.models import swin_transformer_v2_cr as timm_cr
from torchvision.models.swin_transformer import (ShiftedWindowAttention,
                                                 ShiftedWindowAttentionV2)
from torchvision.models.video.swin_transformer import ShiftedWindowAttention3d
from transformers import SwinConfig, Swinv2Config
from transformers.models.swin.modeling_swin import SwinLayer
from transformers.models.swinv2.modeling_swinv2 import Swinv2Layer

from common import held_by_all, write_versions

PACKAGES = ("torch", "torchvision", "timm", "monai", "transformers",
            "spandrel", "microsoft-aurora", "numpy")


class Keep(nn.Module):
    """Stands for a layer behind the attention: keeps its first input."""

    def __init__(self):
        super().__init__()
        self.value = None

    def forward(self, x, *_):
        if self.value is None:
            self.value = x
        return x


class Terms(nn.Module):
    """Stands for the small network that makes biases, which a module then
    turns into 16 sigmoid(...), or takes as they are."""

    def __init__(self, values, sigmoid):
        super().__init__()
        self.values = nn.Parameter(values)
        self.sigmoid = sigmoid

    def forward(self, _):
        return torch.logit(self.values / 16) if self.sigmoid else self.values


class Case:
    """Data of one case, and where its module keeps what it learns."""

    def __init__(self, name, size, heads, dim, seed, batch=1, k_mean=0.0,
                 v_mean=0.0, dominant=0):
        torch.manual_seed(seed)
        self.name, self.size, self.batch = name, tuple(size), batch
        self.heads, self.dim, self.channels = heads, dim, heads * dim
        self.wide, self.wide_heads = 3 * self.channels, 3 * heads
        qkv = torch.randn(batch, *size, 3, self.channels)
        if dominant:  # of every so many tokens, one that all queries look at
            tokens = qkv.view(batch, -1, 3, self.channels)
            tokens[:, dominant // 2::dominant, 1] *= 6
        qkv[..., 1, :] += k_mean
        qkv[..., 2, :] += v_mean
        self.qkv = held_by_all(qkv).requires_grad_()
        self.d_o = held_by_all(torch.randn(batch, *size, self.channels))
        # of tokens that a model adds before its projections
        pads = torch.randn(3, self.channels)
        pads[1] += k_mean
        pads[2] += v_mean
        self.pads = held_by_all(pads)
        self.biases = None
        self.learned = []

    def copying(self, weights, biases):
        """Lets three projections copy the parts of the input. biases: of the
        three, None where one has none."""
        with torch.no_grad():
            for part in range(3):
                first = part * self.channels
                weights[part].zero_()
                weights[part][:self.channels, first:first + self.channels] = (
                    torch.eye(self.channels))
                if biases[part] is None:
                    self.pads[part] = 0
                    continue
                biases[part].zero_()
                biases[part][:self.channels] = self.pads[part]
        self.biases = biases

    def copying_packed(self, linear):
        """The same, of one projection to all three."""
        self.copying(linear.weight.data.chunk(3),
                     linear.bias.data.chunk(3))
        self.biases = linear

    def learns(self, name, parameter, values, axis):
        """A parameter that has heads along an axis gets values for the heads
        that are tested, the others ones. It is saved with its gradient."""
        with torch.no_grad():
            parameter.fill_(1)
            parameter.narrow(axis, 0, self.heads).copy_(
                values.reshape(parameter.narrow(axis, 0, self.heads).shape))
        self.learned.append((name, parameter, axis))

    def table(self, parameter):
        values = torch.randn(parameter.shape[0], self.heads)
        self.learns("table", parameter, held_by_all(values), 1)

    def terms(self, entries):
        """For version 2: a table of 16 sigmoid(...)."""
        made = Terms(torch.zeros(entries, self.wide_heads), True)
        values = 16 * torch.sigmoid(torch.randn(entries, self.heads))
        self.learns("table", made.values, held_by_all(values), 1)
        return made

    def logit_scale(self, parameter, scales):
        values = torch.tensor(scales).float().double()
        self.learns("logit_scale", parameter, values, 0)

    def input(self):
        x = self.qkv - self.pads.view(3, self.channels)
        return x.reshape(self.batch, *self.size, self.wide)

    def save(self, tensor, name, kind):
        array = tensor.detach().numpy().astype(kind)
        if kind != numpy.float32:
            assert (array == tensor.detach().numpy()).all(), name
        numpy.save(out / f"{self.name}_{name}.npy",
                   numpy.ascontiguousarray(array))

    def d_pads(self):
        """A bias has its gradient from all tokens; the rest of it is the
        padding's."""
        if isinstance(self.biases, nn.Linear):
            grads = self.biases.bias.grad.chunk(3)
        else:
            grads = [None if b is None else b.grad for b in self.biases]
        tokens = self.qkv.grad.view(-1, 3, self.channels).sum(0)
        return [None if grad is None else
                grad[:self.channels] - tokens[part]
                for part, grad in enumerate(grads)]

    def finish(self, o):
        """o: what the module made of input(), [..., wide]."""
        o = o.reshape(self.batch, *self.size, self.wide)[..., :self.channels]
        assert o.dtype == torch.float64
        o.backward(self.d_o)
        heads = (self.heads, self.dim)
        grid = (self.batch, *self.size)
        self.save(self.qkv.view(*grid, 3, *heads), "qkv", numpy.float16)
        self.save(self.d_o.view(*grid, *heads), "d_o", numpy.float16)
        self.save(o.reshape(*grid, *heads), "o", numpy.float32)
        self.save(self.qkv.grad.view(*grid, 3, *heads), "dqkv", numpy.float32)
        for name, parameter, axis in self.learned:
            own = parameter.narrow(axis, 0, self.heads).squeeze()
            grad = parameter.grad.narrow(axis, 0, self.heads).squeeze()
            if name == "pairs":  # to [queries, heads, keys]
                name, n = "table", math.isqrt(own.shape[0])
                own, grad = (x.view(n, n, self.heads).transpose(1, 2)
                             for x in (own, grad))
            self.save(own, name, numpy.float32 if name == "logit_scale" else
                      numpy.float16)
            self.save(grad, "d" + name, numpy.float32)
        for name, pad, d_pad in zip("qkv", self.pads, self.d_pads()):
            padded = d_pad is not None and d_pad.abs().max() > 1e-9
            if name == "q":  # nobody keeps its results
                assert not padded
            elif padded and pad.any():
                self.save(pad.view(heads), f"pad_{name}", numpy.float16)
                self.save(d_pad.view(heads), f"d_pad_{name}", numpy.float32)


def identity(linear):
    with torch.no_grad():
        linear.weight.copy_(torch.eye(linear.weight.shape[0]))
        linear.bias.zero_()


# ---- torchvision ----

def torchvision(case, window, shift):
    kind = (ShiftedWindowAttention if len(window) == 2 else
            ShiftedWindowAttention3d)
    module = kind(case.wide, list(window), list(shift), case.wide_heads)
    case.copying_packed(module.qkv)
    identity(module.proj)
    case.table(module.relative_position_bias_table)
    case.finish(module(case.input()))


def torchvision_v2(case, window, shift, scales):
    module = ShiftedWindowAttentionV2(case.wide, list(window), list(shift),
                                      case.wide_heads).double()
    case.copying_packed(module.qkv)
    identity(module.proj)
    case.pads[1] = 0  # it drops the bias of the keys
    module.cpb_mlp = case.terms((2 * window[0] - 1) * (2 * window[1] - 1))
    case.logit_scale(module.logit_scale, scales)
    case.finish(module(case.input()))


# ---- timm ----

def timm(case, window, shift, **options):
    block = timm_v1.SwinTransformerBlock(
        case.wide, case.size, case.wide_heads, window_size=window,
        shift_size=shift, **options)
    case.copying_packed(block.attn.qkv)
    identity(block.attn.proj)
    case.table(block.attn.relative_position_bias_table)
    case.finish(block._attn(case.input()))


def timm_v2_block(case, window, shift, scales, **options):
    block = timm_v2.SwinTransformerV2Block(
        case.wide, case.size, case.wide_heads, window_size=window,
        shift_size=shift, **options)
    attn = block.attn
    case.copying(attn.qkv.weight.data.chunk(3),
                 [attn.q_bias, None, attn.v_bias])
    identity(attn.proj)
    attn.cpb_mlp = case.terms((2 * window - 1) ** 2)
    case.logit_scale(attn.logit_scale, scales)
    case.finish(block._attn(case.input()))


def timm_partition(case, window, shift):
    timm(case, window, shift, always_partition=True)


def timm_v2_dynamic(case, window, shift, scales):
    timm_v2_block(case, window, shift, scales, dynamic_mask=True)


def timm_v2_cr_block(case, window, shift, scales):
    block = timm_cr.SwinTransformerV2CrBlock(
        case.wide, case.wide_heads, case.size, (window, window),
        shift_size=(shift, shift))
    attn = block.attn
    case.copying_packed(attn.qkv)
    identity(attn.proj)
    # it makes a bias for each pair of tokens
    pairs = window ** 4
    attn.meta_mlp = Terms(torch.zeros(pairs, case.wide_heads), False)
    case.learns("pairs", attn.meta_mlp.values,
                held_by_all(torch.randn(pairs, case.heads)), 1)
    case.logit_scale(attn.logit_scale, scales)
    case.finish(block._shifted_window_attn(case.input()))


# ---- Hugging Face ----

def hugging_face(case, window, shift):
    # the other way to compute it takes the softmax in fp32
    config = SwinConfig(window_size=window, attn_implementation="sdpa")
    layer = SwinLayer(config, case.wide, case.size, case.wide_heads,
                      shift_size=shift).double().eval()
    attn = layer.attention
    parts = [attn.q_proj, attn.k_proj, attn.v_proj]
    case.copying([p.weight.data for p in parts], [p.bias for p in parts])
    identity(attn.o_proj)
    case.table(attn.relative_position_bias.relative_position_bias_table)
    layer.layernorm_before = nn.Identity()
    layer.drop_path = Keep()
    layer(case.input().flatten(1, 2), case.size)
    case.finish(layer.drop_path.value)


def hugging_face_v2(case, window, shift, scales):
    config = Swinv2Config(window_size=window)
    layer = Swinv2Layer(config, case.wide, case.size, case.wide_heads,
                        shift_size=shift).double().eval()
    attn = layer.attention.self
    parts = [attn.query, attn.key, attn.value]
    case.copying([p.weight.data for p in parts], [p.bias for p in parts])
    identity(layer.attention.output.dense)
    attn.continuous_position_bias_mlp = case.terms((2 * window - 1) ** 2)
    case.logit_scale(attn.logit_scale, scales)
    layer.layernorm_before = Keep()
    layer(case.input().flatten(1, 2), case.size)
    case.finish(layer.layernorm_before.value)


# ---- Others ----

def monai(case, window, shift):
    block = swin_unetr.SwinTransformerBlock(case.wide, case.wide_heads,
                                            window, shift)
    block.norm1 = nn.Identity()
    case.copying_packed(block.attn.qkv)
    identity(block.attn.proj)
    case.table(block.attn.relative_position_bias_table)
    # as its layers call it
    own, own_shift = swin_unetr.get_window_size(case.size, window, shift)
    padded = [math.ceil(n / w) * w for n, w in zip(case.size, own)]
    mask = swin_unetr.compute_mask(padded, own, own_shift, "cpu")
    case.finish(block.forward_part1(case.input(), mask))


def swin_ir(case, window, shift):
    block = swinir.SwinTransformerBlock(
        case.wide, case.size, case.wide_heads, window_size=window,
        shift_size=shift)
    block.norm1 = nn.Identity()
    case.copying_packed(block.attn.qkv)
    identity(block.attn.proj)
    case.table(block.attn.relative_position_bias_table)
    block.drop_path = Keep()
    block(case.input().flatten(1, 2), case.size)
    case.finish(block.drop_path.value)


def hat_ocab(case, window):
    block = hat.OCAB(case.wide, case.size, window, 0.5, case.wide_heads)
    block.norm1 = nn.Identity()
    case.copying_packed(block.qkv)
    # what it unfolds beyond the map is 0, whatever the projection's bias
    block.proj = Keep()
    case.table(block.relative_position_bias_table)

    class Model:  # all that makes the index
        window_size, overlap_ratio = window, 0.5
    index = hat.HAT.calculate_rpi_oca(Model)
    block(case.input().flatten(1, 2), case.size, index)
    case.finish(block.proj.value)


def aurora(case, window, shift):
    block = Swin3DTransformerBlock(
        case.wide, case.wide_heads, 4, window_size=window, shift_size=shift)
    case.copying_packed(block.attn.qkv)
    identity(block.attn.proj)
    block.norm1 = Keep()
    block(case.input().flatten(1, 3), torch.zeros(case.batch, 4), case.size, 0)
    case.finish(block.norm1.value)


CASES = (
    # padding, sizes that are odd, a common part in k and v
    (torchvision, dict(name="torchvision_v1", size=(10, 16), heads=1, dim=32,
                       seed=101, k_mean=3, v_mean=3), (7, 7), (3, 3)),
    (torchvision_v2, dict(name="torchvision_v2", size=(11, 16), heads=2,
                          dim=16, seed=102, v_mean=3), (7, 7), (3, 3),
     (2.5, 4.25)),
    # its last window holds one token and 191 of the padding
    (torchvision, dict(name="torchvision_3d", size=(4, 9, 9), heads=1, dim=16,
                       seed=103, k_mean=3, v_mean=3), (3, 8, 8), (0, 0, 0)),
    (monai, dict(name="monai_7x7x7", size=(7, 7, 8), heads=1, dim=16,
                 seed=104, k_mean=3, v_mean=3), (7, 7, 7), (3, 3, 3)),
    # windows of 7 x 7 x 7 where the map has 5 and 7
    (monai, dict(name="monai_clipped", size=(5, 14, 7), heads=1, dim=16,
                 seed=105, k_mean=3, v_mean=3), (7, 7, 7), (3, 3, 3)),
    (timm, dict(name="timm_v1_padded", size=(10, 16), heads=2, dim=16,
                seed=106), 7, 0),
    (timm, dict(name="timm_v1_shifted", size=(14, 14), heads=1, dim=32,
                seed=107, v_mean=3), 7, 3),
    # rolled, then padded
    (timm, dict(name="timm_v1_rolled", size=(10, 16), heads=1, dim=16,
                seed=116, k_mean=3, v_mean=3), 7, 3),
    # and by more than one axis has tokens
    (timm_partition, dict(name="timm_v1_partition", size=(2, 10), heads=2,
                          dim=16, seed=117), 7, 3),
    (timm_v2_dynamic, dict(name="timm_v2_rolled", size=(11, 13), heads=1,
                           dim=16, seed=118, v_mean=3), 8, 4,
     (math.log(10),)),
    # large logits
    (timm_v2_block, dict(name="timm_v2", size=(16, 16), heads=2, dim=16,
                         seed=108), 8, 4, (math.log(10), math.log(33))),
    (timm_v2_block, dict(name="timm_v2_w24", size=(24, 24), heads=1, dim=16,
                         seed=109, v_mean=3), 24, 0, (math.log(10),)),
    (timm_v2_cr_block, dict(name="timm_v2_cr", size=(14, 14), heads=2, dim=16,
                            seed=110, v_mean=3), 7, 3, (math.log(10), 5.0)),
    (hugging_face, dict(name="hf_swin", size=(9, 17), heads=1, dim=32,
                        seed=111, k_mean=3, v_mean=3), 7, 3),
    # fp32's ln 100 is above ln 100
    (hugging_face_v2, dict(name="hf_swinv2", size=(9, 13), heads=2, dim=16,
                           seed=112), 8, 4, (math.log(100), math.log(33))),
    # a few keys dominate
    (swin_ir, dict(name="swinir", size=(16, 16), heads=1, dim=30, seed=113,
                   dominant=29), 8, 4),
    (hat_ocab, dict(name="hat_ocab", size=(32, 16), heads=1, dim=16, seed=114,
                    k_mean=3, v_mean=3), 16),
    (aurora, dict(name="aurora", size=(4, 6, 24), heads=1, dim=16, seed=115,
                  k_mean=3, v_mean=3), (2, 6, 12), (1, 3, 6)),
)

out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
for make, data, *arguments in CASES:
    if len(sys.argv) < 3 or data["name"] in sys.argv[2:]:
        make(Case(**data), *arguments)
write_versions(out.parent / "versions_modules.txt", PACKAGES)
