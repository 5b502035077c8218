# SPDX-License-Identifier: Apache-2.0
"""Makes golden vectors with whole models of the libraries that people take
them from: small Swins of both generations with random weights.

    python3 make_models.py OUTPUT_FOLDER [CASE...]

Versions go to OUTPUT_FOLDER/../versions_models.txt. The vectors in models/
were made with the versions named in the file beside this script.

Of each case there are

    CASE.safetensors    the weights under the library's own names
    CASE_input.npy      pictures [batch, 3, height, width], normalised
    CASE_logits.npy     [batch, classes], computed in double precision
    CASE_stage0.npy...  the map after each stage's blocks, before the merging,
                        [batch, height, width, channels], of the same run;
                        written as fp32, which costs 6e-8 of each number
    CASE_errors.npy     [fp32, fp16, bf16][logits, stage 0, ...]: how far the
                        library itself is off in these types, in the 2-norm,
                        relative to the double precision
    CASE_picture.txt    what winattn-swin says of pictures/colour.png, resized
                        to 50 and cut to the case's size; of one case
    CASE_tables.npy     biases of all relative positions, of one block after
                        the other; generation 2 only
    CASE_shape.npy      what the files' tensors cannot say: generation, patch
                        [2], channels, stages, depths, heads and windows [2]
                        of each stage, and those of the pretraining [2]

fp32, fp16 and bf16 hold all weights and inputs exactly, so that errors are
those of the computation alone, and so that files of each type can be made:
torchvision's are fp32, timm's fp16, transformers' bf16.

Keys of the padding are 0 in generation 2, and normalize() divides them by
1e-12, which is 0 in fp16, so that the libraries' results in fp16 are NaN. Here
it divides by 1e-6 in fp16.
"""
import copy
import functools
import importlib.metadata
import pathlib
import sys
import tempfile

import numpy
import safetensors.torch
import torch
from PIL import Image
from timm.models.swin_transformer import SwinTransformer as TimmSwin
from timm.models.swin_transformer_v2 import SwinTransformerV2 as TimmSwinV2
from torchvision import transforms
from torchvision.models.swin_transformer import (PatchMerging, PatchMergingV2,
                                                 SwinTransformer,
                                                 SwinTransformerBlock,
                                                 SwinTransformerBlockV2)
from transformers import (PreTrainedModel, SwinConfig,
                          SwinForImageClassification, Swinv2Config,
                          Swinv2ForImageClassification)

PACKAGES = ("torch", "torchvision", "timm", "transformers", "safetensors",
            "numpy")
TYPES = (torch.float32, torch.float16, torch.bfloat16)
CLASSES = 64  # so many that their errors are no matter of luck
BATCH = 2


def held_by_all(x):
    """x rounded to numbers that bf16 and fp16 have in common."""
    x = x.detach().to(torch.bfloat16).double()
    x[x.abs() < 2.0 ** -14] = 0
    assert torch.equal(x.half().double(), x)
    return x


def draw(name, shape):
    """Random weights, such that no part of the model is without effect."""
    if "logit_scale" in name:
        values = torch.log(2 + 10 * torch.rand(shape))
    elif "relative_position_bias_table" in name:
        values = torch.randn(shape)
    elif "mlp.0.weight" in name and shape[-1] == 2:  # of positions
        values = torch.randn(shape) * 0.5
    elif "mlp.2.weight" in name and shape[-1] == 512:
        values = torch.randn(shape) * 0.05
    elif len(shape) == 1 and "weight" in name:  # of norms
        values = 1 + 0.2 * torch.randn(shape)
    elif len(shape) == 1:
        values = 0.2 * torch.randn(shape)
    else:
        fan_in = numpy.prod(shape[1:])
        values = torch.randn(shape) * (1.3 / fan_in ** 0.5)
    return held_by_all(values)


def run(model, stages, x):
    """Logits, and the maps after the parts that stages(model) lists."""
    maps = {}

    def keep(stage):
        def hook(_, inputs, output):
            maps[stage] = (output[0] if isinstance(output, tuple)
                           else output).detach()
        return hook

    hooks = [part.register_forward_hook(keep(i))
             for i, part in enumerate(stages(model))]
    normalize = torch.nn.functional.normalize
    if x.dtype == torch.float16:
        torch.nn.functional.normalize = functools.partial(normalize, eps=1e-6)
    with torch.no_grad():
        logits = model(x)
    torch.nn.functional.normalize = normalize
    for hook in hooks:
        hook.remove()
    return [getattr(logits, "logits", logits)] + [
        maps[i] for i in range(len(hooks))]


class Case:
    """A model, where its stages end, and what its file does not say."""

    def __init__(self, name, model, stages, size, file_type, shape,
                 tables=None):
        self.name, self.model, self.stages = name, model.eval(), stages
        self.size, self.file_type, self.shape = size, file_type, shape
        self.tables = tables

    def fill(self, seed):
        torch.manual_seed(seed)
        state = self.model.state_dict()
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(draw(name, tuple(parameter.shape)))
        assert all(name in state for name, _ in self.model.named_parameters())
        return held_by_all(torch.randn(BATCH, 3, *self.size))

    def run(self, model, x):
        return run(model, self.stages, x)


def last_blocks(layers):
    return [layer.blocks[-1] for layer in layers]


def shape_of(generation, patch, channels, depths, heads, windows,
             pretrained=None):
    pretrained = pretrained or [(0, 0)] * len(depths)
    return [generation, *patch, channels, len(depths), *depths, *heads,
            *(x for pair in windows for x in pair),
            *(x for pair in pretrained for x in pair)]


def torchvision_v1():
    """Maps of 9 x 12 and 5 x 6, windows of 4 x 5: both are padded, and the
    merging too."""
    model = SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 5], mlp_ratio=3,
                            num_classes=CLASSES, downsample_layer=PatchMerging,
                            block=SwinTransformerBlock)
    return Case("torchvision_v1", model,
                lambda m: [m.features[1][-1], m.features[3][-1]], (38, 51),
                torch.float32,
                shape_of(1, (4, 4), 16, (2, 2), (2, 4), [(4, 5)] * 2))


def torchvision_v2():
    """Patches of 2 x 3; maps of 11 x 9 and 6 x 5."""
    model = SwinTransformer([2, 3], 16, [2, 2], [2, 2], [5, 3], mlp_ratio=2,
                            num_classes=CLASSES,
                            downsample_layer=PatchMergingV2,
                            block=SwinTransformerBlockV2)
    return Case("torchvision_v2", model,
                lambda m: [m.features[1][-1], m.features[3][-1]], (22, 29),
                torch.float32,
                shape_of(2, (2, 3), 16, (2, 2), (2, 2), [(5, 3)] * 2),
                lambda m: [block.attn.get_relative_position_bias()
                           for i in (1, 3) for block in m.features[i]])


# timm rolls maps before it pads them, other libraries after that: its maps
# are not both here.

def timm_v1():
    """Maps of 7 x 15, padded; 4 x 8, shifted along one axis; 2 x 4, one window
    of that size."""
    model = TimmSwin((28, 60), 4, 3, CLASSES, embed_dim=8, depths=(1, 2, 1),
                     num_heads=(1, 2, 4), window_size=4)
    return Case("timm_v1", model, lambda m: last_blocks(m.layers),
                (28, 60), torch.float16,
                shape_of(1, (4, 4), 8, (1, 2, 1), (1, 2, 4),
                         [(4, 4), (4, 4), (2, 4)]))


def timm_biases(model):
    """Per block, as WindowAttention.forward makes them."""
    biases = []
    for layer in model.layers:
        for block in layer.blocks:
            attn = block.attn
            area = attn.window_size[0] * attn.window_size[1]
            table = attn.cpb_mlp(attn.relative_coords_table)
            table = table.view(-1, attn.num_heads)
            index = attn.relative_position_index.view(-1)
            bias = table[index].view(area, area, -1).permute(2, 0, 1)
            biases.append(16 * torch.sigmoid(bias))
    return biases


def timm_v2():
    """Maps of 8 x 16 and 4 x 8, windows of 4: the second map is shifted along
    one axis only. Positions count in windows of 3 and 4."""
    model = TimmSwinV2((32, 64), 4, 3, CLASSES, embed_dim=16, depths=(2, 2),
                       num_heads=(2, 4), window_size=4, mlp_ratio=2,
                       pretrained_window_sizes=(3, 4))
    return Case("timm_v2", model, lambda m: last_blocks(m.layers),
                (32, 64), torch.float16,
                shape_of(2, (4, 4), 16, (2, 2), (2, 4), [(4, 4)] * 2,
                         [(3, 3), (4, 4)]), timm_biases)


def transformers_v1():
    """Maps of 11 x 9 and 6 x 5, windows of 4."""
    config = SwinConfig(image_size=[44, 36], patch_size=4, embed_dim=16,
                        depths=[2, 2], num_heads=[2, 4], window_size=4,
                        mlp_ratio=2.0, num_labels=CLASSES)
    return Case("transformers_v1", SwinForImageClassification(config),
                lambda m: last_blocks(m.swin.encoder.layers), (44, 36),
                torch.bfloat16,
                shape_of(1, (4, 4), 16, (2, 2), (2, 4), [(4, 4)] * 2))


def transformers_biases(model):
    biases = []
    for layer in model.swinv2.encoder.layers:
        for block in layer.blocks:
            attn = block.attention.self
            area = attn.window_size[0] * attn.window_size[1]
            table = attn.continuous_position_bias_mlp(
                attn.relative_coords_table)
            table = table.view(-1, attn.num_attention_heads)
            index = attn.relative_position_index.view(-1)
            bias = table[index].view(area, area, -1).permute(2, 0, 1)
            biases.append(16 * torch.sigmoid(bias))
    return biases


def transformers_v2():
    """Maps of 11 x 9 and 6 x 5, windows of 4."""
    config = Swinv2Config(image_size=[44, 36], patch_size=4, embed_dim=16,
                          depths=[2, 2], num_heads=[2, 4], window_size=4,
                          mlp_ratio=2.0, num_labels=CLASSES)
    return Case("transformers_v2", Swinv2ForImageClassification(config),
                lambda m: last_blocks(m.swinv2.encoder.layers), (44, 36),
                torch.bfloat16,
                shape_of(2, (4, 4), 16, (2, 2), (2, 4), [(4, 4)] * 2),
                transformers_biases)


CASES = (torchvision_v1, torchvision_v2, timm_v1, timm_v2, transformers_v1,
         transformers_v2)


def save(folder, name, array):
    numpy.save(folder / (name + ".npy"), numpy.ascontiguousarray(array))


def error(result, truth):
    difference = result.double().flatten() - truth.flatten()
    return float(difference.norm() / truth.norm())


def weights_of(case):
    """The file's bytes: in its type, but for what is no number of that kind;
    buffers that follow from the shape stay in, where a library keeps them.
    transformers writes other names than its modules have."""
    model = copy.deepcopy(case.model).to(case.file_type)
    if isinstance(model, PreTrainedModel):
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            return (pathlib.Path(folder) / "model.safetensors").read_bytes()
    return safetensors.torch.save(model.state_dict())


def picture_lines(folder, case):
    """The best five classes of a picture."""
    prepare = transforms.Compose([
        transforms.Resize(50, transforms.InterpolationMode.BICUBIC),
        transforms.CenterCrop(case.size), transforms.PILToTensor(),
        transforms.ConvertImageDtype(torch.float64),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
    picture = Image.open(folder.parent / "pictures" / "colour.png")
    with torch.no_grad():
        logits = copy.deepcopy(case.model).double()(prepare(picture)[None])[0]
    best = torch.softmax(logits, 0).topk(5)
    return "".join(f"  {100 * p:6.2f} %  class {i}\n" for p, i in
                   zip(best.values.tolist(), best.indices.tolist()))


def make(folder, case, seed):
    x = case.fill(seed)
    (folder / (case.name + ".safetensors")).write_bytes(weights_of(case))
    truth = case.run(copy.deepcopy(case.model).double(), x)
    errors = [[error(a, b) for a, b in
               zip(case.run(copy.deepcopy(case.model).to(dtype), x.to(dtype)),
                   truth)] for dtype in TYPES]
    save(folder, case.name + "_input", x.half().numpy())
    save(folder, case.name + "_logits", truth[0].numpy())
    height, width = (case.size[i] // case.shape[1 + i] for i in range(2))
    for stage, values in enumerate(truth[1:]):
        values = values.reshape(BATCH, height, width, -1)
        save(folder, f"{case.name}_stage{stage}", values.float().numpy())
        height, width = (height + 1) // 2, (width + 1) // 2
    save(folder, case.name + "_errors", numpy.array(errors))
    save(folder, case.name + "_shape", numpy.array(case.shape))
    if case.name == "torchvision_v1":
        (folder / (case.name + "_picture.txt")).write_text(
            picture_lines(folder, case))
    if case.tables:
        with torch.no_grad():
            tables = case.tables(copy.deepcopy(case.model).double())
        save(folder, case.name + "_tables", torch.cat(
            [positions(t, case.shape, i) for i, t in
             enumerate(tables)]).float().numpy())
    print(case.name, *(f"{row[0]:.1e} {row[-1]:.1e}" for row in errors))


def positions(bias, shape, block):
    """[heads, tokens, tokens] to the table [positions, heads], which the bias
    was taken from, as one row of numbers."""
    stages, at = shape[4], 5
    depths = shape[at:at + stages]
    stage = 0
    while block >= depths[stage]:
        block -= depths[stage]
        stage += 1
    window = shape[at + 2 * stages + 2 * stage:][:2]
    rows, columns = 2 * window[0] - 1, 2 * window[1] - 1
    bias = bias.reshape(-1, *window, *window)
    table = torch.zeros(rows, columns, bias.shape[0], dtype=torch.float64)
    for y in range(rows):
        for x in range(columns):
            dy, dx = y - window[0] + 1, x - window[1] + 1
            table[y, x] = bias[:, max(dy, 0), max(dx, 0), max(-dy, 0),
                               max(-dx, 0)]
    return table.flatten()


def write_versions(path):
    """What the vectors were made with."""
    with open(path, "w", encoding="ascii") as versions:
        versions.write("python " + sys.version.split()[0] + "\n")
        for package in PACKAGES:
            versions.write(f"{package} "
                           f"{importlib.metadata.version(package)}\n")


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for seed, make_case in enumerate(CASES):
        torch.manual_seed(seed)
        if not sys.argv[2:] or make_case.__name__ in sys.argv[2:]:
            make(folder, make_case(), 100 + seed)
    write_versions(folder.parent / "versions_models.txt")


if __name__ == "__main__":
    main()
