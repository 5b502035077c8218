# SPDX-License-Identifier: Apache-2.0
"""Makes the small model that winattn-swin classifies a picture with.

    python3 make_models.py OUTPUT_FOLDER

    torchvision_v1.safetensors  weights under torchvision's own names; maps of
                                9 x 12 and 5 x 6, windows of 4 x 5: both are
                                padded, and the merging too
    torchvision_v1_picture.txt  what winattn-swin says of
                                pictures/colour.png, resized to 50 and cut to
                                38 x 51, by torchvision in double precision

make_sources.py, whose models are those that others are compared with, and
tests/models/full_size.py take from here how weights are drawn and models are
run. fp32, fp16 and bf16 hold
all weights exactly, so that errors are those of the computation alone, and so
that files of each type can be made.

Keys of the padding are 0 in generation 2, and normalize() divides them by
1e-12, which is 0 in fp16, so that the libraries' results in fp16 are NaN. Here
it divides by 1e-6 in fp16.
"""
import copy
import functools
import pathlib
import sys

import numpy
import safetensors.torch
import torch
from PIL import Image
from torchvision import transforms
from torchvision.models.swin_transformer import (PatchMerging, SwinTransformer,
                                                 SwinTransformerBlock)

from common import held_by_all, write_versions

PACKAGES = ("torch", "torchvision", "timm", "transformers", "safetensors",
            "numpy")
TYPES = (torch.float32, torch.float16, torch.bfloat16)
SIZE, CLASSES = (38, 51), 64


def draw(name, shape, gain=1.3):
    """Random weights, such that no part of the model is without effect. gain:
    of what a matrix makes of numbers of deviation 1."""
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
        values = torch.randn(shape) * (gain / fan_in ** 0.5)
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


def error(result, truth):
    difference = result.double().flatten() - truth.flatten()
    return float(difference.norm() / truth.norm())


def picture_lines(model, picture):
    """The best five classes of a picture."""
    prepare = transforms.Compose([
        transforms.Resize(50, transforms.InterpolationMode.BICUBIC),
        transforms.CenterCrop(SIZE), transforms.PILToTensor(),
        transforms.ConvertImageDtype(torch.float64),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
    with torch.no_grad():
        logits = copy.deepcopy(model).double()(
            prepare(Image.open(picture))[None])[0]
    best = torch.softmax(logits, 0).topk(5)
    return "".join(f"  {100 * p:6.2f} %  class {i}\n" for p, i in
                   zip(best.values.tolist(), best.indices.tolist()))


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    model = SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 5], mlp_ratio=3,
                            num_classes=CLASSES, downsample_layer=PatchMerging,
                            block=SwinTransformerBlock).eval()
    torch.manual_seed(100)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(draw(name, tuple(parameter.shape)))
    (folder / "torchvision_v1.safetensors").write_bytes(
        safetensors.torch.save(model.state_dict()))
    (folder / "torchvision_v1_picture.txt").write_text(
        picture_lines(model, folder.parent / "pictures" / "colour.png"))
    write_versions(folder.parent / "versions_models.txt", PACKAGES)


if __name__ == "__main__":
    main()
