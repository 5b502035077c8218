# SPDX-License-Identifier: Apache-2.0
"""accelerate: small models of others compute the same with winattn, forward
and backward. Libraries that are not installed are skipped."""
import copy
import importlib
import io
import pickle
import unittest

import plain
import torch
import winattn.torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset


def torchvision(v2):
    from torchvision.models import swin_transformer as swin
    more = {"block": swin.SwinTransformerBlock}
    if v2:
        more = {"block": swin.SwinTransformerBlockV2,
                "downsample_layer": swin.PatchMergingV2}
    return swin.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [7, 7],
                                num_classes=10, **more), (60, 72), 4


def timm(v2):
    import timm as library
    name, window = (("swinv2_tiny_window8_256", 8) if v2 else
                    ("swin_tiny_patch4_window7_224", 7))
    side = 8 * window
    return library.create_model(
        name, embed_dim=16, depths=(2, 2), num_heads=(2, 4), img_size=side,
        window_size=window, num_classes=10), (side, side), 4


def transformers(v2):
    import transformers as library
    config = {"image_size": 56, "embed_dim": 16, "depths": [2, 2],
              "num_heads": [2, 4], "window_size": 7, "num_labels": 10}
    if v2:
        model = library.Swinv2ForImageClassification(
            library.Swinv2Config(**config))
    else:
        model = library.SwinForImageClassification(
            library.SwinConfig(**config))
    return model, (56, 56), 4


class WindowAttention(nn.Module):
    """As Microsoft's code has it: attributes, parameters and forward."""

    def __init__(self, scale=0.3, attn_drop=0.0):
        super().__init__()
        self.window_size, self.num_heads, self.scale = (3, 5), 2, scale
        self.relative_position_bias_table = nn.Parameter(torch.randn(45, 2))
        rows, columns = torch.arange(15) // 5, torch.arange(15) % 5
        self.register_buffer(
            "relative_position_index",
            (rows[:, None] - rows + 2) * 9 + columns[:, None] - columns + 4)
        self.qkv, self.proj = nn.Linear(16, 48), nn.Linear(16, 16)
        self.attn_drop = nn.Dropout(attn_drop)
        self.proj_drop = nn.Dropout(0.0)

    def forward(self, x, mask=None):
        qkv = self.qkv(x).reshape(len(x), 15, 3, 2, 8).permute(2, 0, 3, 1, 4)
        logits = self.scale * qkv[0] @ qkv[1].transpose(-2, -1)
        logits = logits + self.relative_position_bias_table[
            self.relative_position_index].permute(2, 0, 1)
        if mask is not None:
            logits = (logits.view(-1, len(mask), 2, 15, 15)
                      + mask[:, None]).view(-1, 2, 15, 15)
        o = self.attn_drop(logits.softmax(-1)) @ qkv[2]
        return self.proj_drop(self.proj(o.transpose(1, 2).flatten(2)))


class Stranger(WindowAttention):
    pass


Stranger.__name__ = "WindowAttention"
Stranger.forward = lambda self, x, mask=None: WindowAttention.forward(
    self, x, mask) * 1.1


def result(model, x):
    made = model(x)
    return made if torch.is_tensor(made) else made.logits


class Models(unittest.TestCase):
    def check(self, make):
        torch.manual_seed(4)
        try:
            model, size, count = make()
        except ImportError as missing:
            self.skipTest(str(missing))
        for parameter in model.parameters():
            if parameter.dim() == 1 or parameter.shape[0] > 100:
                nn.init.normal_(parameter, std=0.2)
        model.eval()
        other = copy.deepcopy(model)
        x = torch.randn(2, 3, *size)
        state = copy.deepcopy(model.state_dict())
        report = winattn.torch.accelerate(model)
        self.assertEqual(len(report.replaced), count, str(report))
        self.assertFalse(report.left, str(report))
        self.assertEqual(list(state), list(model.state_dict()))
        model.load_state_dict(state)
        one, two = result(model, x), result(other, x)
        self.near(one, two, "logits")
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        self.near(result(compiled, x), one, "logits of one graph")
        one.square().sum().backward()
        two.square().sum().backward()
        largest = max(p.grad.abs().max() for p in other.parameters()
                      if p.grad is not None)
        for (name, p), q in zip(model.named_parameters(),
                                other.parameters()):
            if q.grad is not None:
                self.near(p.grad, q.grad, name, 1e-5 * largest)
        again = pickle.loads(pickle.dumps(model))
        self.assertTrue(torch.equal(result(again, x), one))
        self.assertEqual(len(winattn.torch.accelerate(model).left), count)

    def near(self, x, y, name, least=0.0):
        error = (x - y).abs().max()
        self.assertLess(error, max(1e-3 * y.abs().max(), least, 1e-6), name)

    def test_torchvision(self):
        self.check(lambda: torchvision(False))

    def test_torchvision_v2(self):
        self.check(lambda: torchvision(True))

    def test_timm(self):
        self.check(lambda: timm(False))

    def test_timm_v2(self):
        self.check(lambda: timm(True))

    def test_transformers(self):
        self.check(lambda: transformers(False))

    def test_transformers_v2(self):
        self.check(lambda: transformers(True))

    def test_relatives_of_transformers(self):
        """Modules with the same forward as Swin's or Swin V2's."""
        torch.manual_seed(5)
        x, mask = torch.randn(4, 49, 16), torch.zeros(2, 49, 49)
        mask[1, :, 20:] = -100
        for path, config, name in (
                ("donut.modeling_donut_swin", "DonutSwinConfig", "DonutSwin"),
                ("maskformer.modeling_maskformer_swin", "SwinConfig",
                 "MaskFormerSwin"),
                ("swin2sr.modeling_swin2sr", "Swin2SRConfig", "Swin2SR"),
                ("clap.modeling_clap", "ClapAudioConfig", "ClapAudio")):
            try:
                import transformers as library
                module = getattr(importlib.import_module(
                    f"transformers.models.{path}"), f"{name}SelfAttention")(
                        getattr(library, config)(), 16, 2, 7).eval()
            except ImportError as missing:
                self.skipTest(str(missing))
            with self.subTest(name=name):
                right = module(x, mask)[0]
                report = winattn.torch.accelerate(module)
                self.assertEqual(list(report.replaced), [""], str(report))
                self.near(module(x, mask)[0], right, name)
                self.near(module(hidden_states=x, attention_mask=mask)[0],
                          right, name)
                self.assertEqual(
                    module(x, mask, output_attentions=True)[1].shape,
                    (4, 2, 49, 49))

    def test_torchvision_while_it_trains(self):
        """Dropout of weights is its own, that of results winattn's too."""
        try:
            from torchvision.models.swin_transformer import (
                ShiftedWindowAttention)
        except ImportError as missing:
            self.skipTest(str(missing))
        x = torch.randn(1, 8, 8, 16)
        module = ShiftedWindowAttention(16, [4, 4], [2, 2], 2,
                                        attention_dropout=0.5)
        runs = []
        for accelerates in (False, True):
            if accelerates:
                report = winattn.torch.accelerate(module)
            torch.manual_seed(6)
            runs.append(module(x))
        self.assertIn("drops weights (0.5)", str(report))
        self.assertTrue(torch.equal(*runs))
        module = ShiftedWindowAttention(16, [4, 4], [2, 2], 2, dropout=0.5)
        report = winattn.torch.accelerate(module)
        self.assertNotIn("drops weights", str(report))
        self.assertAlmostEqual((module(x) == 0).float().mean().item(), 0.5,
                               delta=0.1)


class Modules(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)
        self.x = torch.randn(4, 15, 16)

    def test_microsoft(self):
        model = nn.Sequential(WindowAttention())
        right = model(self.x)
        report = winattn.torch.accelerate(model)
        self.assertEqual(list(report.replaced), ["0"])
        self.assertLess((model(self.x) - right).abs().max(), 1e-5)

    def test_layers_are_called(self):
        """A layer may be more than its weight, as an adapter is."""
        model = nn.Sequential(WindowAttention())
        model[0].qkv.register_forward_hook(lambda layer, x, made: 1.5 * made)
        right = model(self.x)
        winattn.torch.accelerate(model)
        self.assertLess((model(self.x) - right).abs().max(), 1e-5)

    def test_names_of_arguments(self):
        module = WindowAttention()
        mask = torch.randn(2, 15, 15)
        right = module(self.x, mask)
        winattn.torch.accelerate(module)
        self.assertLess((module(mask=mask, x=self.x) - right).abs().max(),
                        1e-5)

    def test_float64(self):
        """Computes as before."""
        model = nn.Sequential(WindowAttention())
        winattn.torch.accelerate(model)
        right = model(self.x)
        made = model.double()(self.x.double())
        self.assertEqual(made.dtype, torch.float64)
        self.assertLess((made - right).abs().max(), 1e-5)

    def test_strangers_are_left(self):
        """One that has the names and computes something else; and one that
        nobody knows."""
        class WindowAttention3D(nn.Module):
            pass

        model = nn.Sequential(Stranger(), WindowAttention3D())
        report = winattn.torch.accelerate(model)
        self.assertFalse(report.replaced)
        self.assertRegex(report.left["0"], "something else")
        self.assertRegex(report.left["1"], "WindowAttention3D is not known")
        with self.assertRaisesRegex(TypeError, "model is a function"):
            winattn.torch.accelerate(lambda x: x)

    def test_dropout_of_weights(self):
        """Named, and as before while it trains."""
        model = nn.Sequential(WindowAttention(attn_drop=0.5))
        report = winattn.torch.accelerate(model)
        self.assertRegex(report.replaced["0"], "drops weights")
        one, two = model(self.x), model(self.x)
        self.assertFalse(torch.equal(one, two))
        model.eval()
        self.assertTrue(torch.equal(model(self.x), model(self.x)))

    def accelerated(self):
        model = nn.Sequential(WindowAttention(), WindowAttention())
        winattn.torch.accelerate(model)
        return model

    def test_checkpointing(self):
        model = self.accelerated()
        gradients = []
        for run in (model, lambda x: checkpoint(model, x,
                                                use_reentrant=False)):
            model.zero_grad()
            run(self.x).square().sum().backward()
            gradients.append([p.grad.clone() for p in model.parameters()])
        for one, two in zip(*gradients):
            self.assertTrue(torch.equal(one, two))

    def test_recompute(self):
        """The same gradients, also compiled, and q, k and v are not kept."""
        kept, gradients = [], []
        for recompute in (False, True):
            torch.manual_seed(8)
            model = nn.Sequential(WindowAttention(), WindowAttention())
            winattn.torch.accelerate(model, recompute=recompute)
            shapes = []
            with torch.autograd.graph.saved_tensors_hooks(
                    lambda x: shapes.append(x.shape) or x, lambda x: x):
                o = model(self.x).square().sum()
            kept.append(sum(shape[-3:] == (3, 2, 8) for shape in shapes))
            o.backward()
            for run in (model, torch.compile(model, backend="aot_eager")):
                o = run(self.x).square().sum()
                gradients.append(torch.autograd.grad(o, model.parameters()))
        self.assertEqual(kept, [2, 0])
        for others in gradients[1:]:
            for one, two in zip(gradients[0], others):
                torch.testing.assert_close(one, two)

    def test_hooks_that_draw(self):
        """A layer with them is not computed once more."""
        hooks = {"register_forward_hook": lambda layer, x, made:
                 nn.functional.dropout(made),
                 "register_forward_pre_hook": lambda layer, x:
                 nn.functional.dropout(x[0])}
        for name, hook in hooks.items():
            gradients = []
            for recompute in (False, True):
                torch.manual_seed(8)
                module = WindowAttention()
                winattn.torch.accelerate(module, recompute=recompute)
                getattr(module.qkv, name)(hook)
                o = module(self.x).square().sum()
                gradients.append(torch.autograd.grad(o, module.parameters()))
            with self.subTest(name=name):
                for one, two in zip(*gradients):
                    torch.testing.assert_close(one, two)

    def test_scaled_steps(self):
        """GradScaler and autocast."""
        model = self.accelerated()
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        scaler = torch.amp.GradScaler(plain.DEVICE, init_scale=16.0)
        losses = []
        for _ in range(5):
            optimizer.zero_grad()
            with torch.autocast(plain.DEVICE, dtype=torch.bfloat16):
                loss = model(self.x).float().square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        self.assertLess(losses[-1], losses[0])

    def test_workers_that_fork(self):
        """They load while this process has used OpenCL, and end."""
        model = self.accelerated()
        model(self.x)
        data = torch.randn(8, 15, 16, device="cpu")
        loader = DataLoader(TensorDataset(data), batch_size=4, num_workers=2,
                            multiprocessing_context="fork")
        for x, in loader:
            self.assertEqual(model(x.to(plain.DEVICE)).shape, (4, 15, 16))

    def test_saved(self):
        file = io.BytesIO()
        model = self.accelerated()
        torch.save(model.state_dict(), file)
        file.seek(0)
        other = nn.Sequential(WindowAttention(), WindowAttention())
        other.load_state_dict(torch.load(file))
        self.assertLess((other(self.x) - model(self.x)).abs().max(), 1e-5)


if __name__ == "__main__":
    unittest.main()
