# SPDX-License-Identifier: Apache-2.0
"""Makes golden vectors of models as deep as real ones, four stages of few
channels, in files as each library writes them.

    python3 make_sources.py OUTPUT_FOLDER MICROSOFT [CASE...]

MICROSOFT is a checkout of Microsoft's repository Swin-Transformer. Versions go
to OUTPUT_FOLDER/../versions_sources.txt; the vectors in sources/ were made
with the versions named in the file beside this script.

Of each case there is a folder with the files that the library writes
(model.safetensors, config.json), and truth.safetensors, in which picture P has

    P.input       [1, 3, height, width], normalised
    P.logits      [1, classes], computed in double precision
    P.stage0...   [height, width, channels], the map after a stage's blocks;
                  of pictures but the first one, only the last map
    P.errors      [fp32, fp16, bf16][logits, stage 0, ...]: how far the library
                  itself is off in these types, in the 2-norm, relative to
                  the double precision

Pictures are of the size that the model was made for, which is no square, and
where the library takes others, of other sizes: with maps that are padded,
shifted along one axis, smaller than a window along one axis, and with pixels
left over behind the last whole patch.
"""
import copy
import functools
import pathlib
import sys

import safetensors.torch
import timm
import torch
from timm.models import save_for_hf
from torchvision.models.swin_transformer import (PatchMerging, PatchMergingV2,
                                                 SwinTransformer,
                                                 SwinTransformerBlock,
                                                 SwinTransformerBlockV2)
from transformers import (SwinConfig, SwinForImageClassification,
                          Swinv2Config, Swinv2ForImageClassification)

from common import held_by_all, write_versions
from make_models import PACKAGES, TYPES, draw, error, run

CLASSES = 32
CHANNELS, DEPTHS, HEADS, WINDOW, PATCH = 4, (2, 2, 2, 2), (1, 2, 2, 4), 4, 2
MADE_FOR = (64, 96)  # maps of 32 x 48 to 4 x 6
OTHERS = ((80, 56),  # maps of 40 x 28 to 5 x 4
          (24, 112))  # maps of 12 x 56 to 2 x 7


def torchvision_model(generation):
    merging = PatchMerging if generation == 1 else PatchMergingV2
    block = SwinTransformerBlock if generation == 1 else SwinTransformerBlockV2
    model = SwinTransformer([PATCH] * 2, CHANNELS, list(DEPTHS), list(HEADS),
                            [WINDOW] * 2, mlp_ratio=2, num_classes=CLASSES,
                            downsample_layer=merging, block=block)
    return model, lambda m: [m.features[i][-1] for i in (1, 3, 5, 7)]


def timm_model(generation):
    name = ("swin_tiny_patch4_window7_224" if generation == 1 else
            "swinv2_tiny_window8_256")
    # windows of 4 by 4 and, in the last stage, as high as its map
    model = timm.create_model(
        name, pretrained=False, img_size=MADE_FOR, patch_size=PATCH,
        num_classes=CLASSES, embed_dim=CHANNELS, depths=DEPTHS,
        num_heads=HEADS, window_size=(4, 4, 4, 8) if generation == 2 else 4,
        mlp_ratio=2.0, dynamic_img_size=True)
    return model, lambda m: [layer.blocks[-1] for layer in m.layers]


def microsoft_model(generation, size):
    from models.swin_transformer import SwinTransformer as Swin
    from models.swin_transformer_v2 import SwinTransformerV2
    kind = Swin if generation == 1 else SwinTransformerV2
    model = kind(img_size=size, patch_size=PATCH, num_classes=CLASSES,
                 embed_dim=CHANNELS, depths=DEPTHS, num_heads=HEADS,
                 window_size=WINDOW, mlp_ratio=2.0)
    return model, lambda m: [layer.blocks[-1] for layer in m.layers]


def transformers_model(generation):
    config = (SwinConfig if generation == 1 else Swinv2Config)(
        image_size=list(MADE_FOR), patch_size=PATCH, embed_dim=CHANNELS,
        depths=list(DEPTHS), num_heads=list(HEADS), window_size=WINDOW,
        mlp_ratio=2.0, num_labels=CLASSES, layer_norm_eps=1e-3)
    model = (SwinForImageClassification if generation == 1 else
             Swinv2ForImageClassification)(config)
    return model, lambda m: [layer.blocks[-1] for layer in
                             m.base_model.encoder.layers]


def cases():
    for generation in (1, 2):
        tail = f"_v{generation}"
        yield ("torchvision" + tail,
               functools.partial(torchvision_model, generation),
               (MADE_FOR, *OTHERS, (67, 93)), torch.bfloat16)
        yield ("timm" + tail, functools.partial(timm_model, generation),
               (MADE_FOR, *OTHERS), torch.float16)
        # the last map but one is as high as a window, the last one lower
        size = (32, 128)
        yield ("microsoft" + tail,
               functools.partial(microsoft_model, generation, size), (size,),
               torch.float16)
        # its Swin fails where a map is smaller than a window
        sizes = ((80, 72), (67, 93)) if generation == 1 else (*OTHERS, (67, 93))
        yield ("transformers" + tail,
               functools.partial(transformers_model, generation),
               (MADE_FOR, *sizes), torch.bfloat16)


def fill(model):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(draw(name, tuple(parameter.shape)))


def run_anew(model, stages, x):
    """On a copy, as transformers' Swin keeps what it was shown."""
    return run(copy.deepcopy(model).to(x.dtype), stages, x)


def save_model(folder, name, model, file_type):
    """As the library does it; Microsoft's users save the state."""
    model = copy.deepcopy(model).to(file_type)
    if name.startswith("transformers"):
        model.save_pretrained(folder)
        return
    state = {key: value.contiguous() for key, value in
             model.state_dict().items()}
    if name.startswith("timm"):
        save_for_hf(model, folder, safe_serialization=True)
        (folder / "pytorch_model.bin").unlink(missing_ok=True)
    safetensors.torch.save_file(state, folder / "model.safetensors")


def map_sizes(name, size):
    pads = name.startswith("transformers")
    height, width = ((n + (PATCH - 1 if pads else 0)) // PATCH for n in size)
    for _ in DEPTHS:
        yield height, width
        height, width = (height + 1) // 2, (width + 1) // 2


def make(folder, name, model, stages, sizes, file_type):
    folder.mkdir(parents=True, exist_ok=True)
    model.eval()
    fill(model)
    save_model(folder, name, model, file_type)
    truth, worst = {}, 0.0
    for number, size in enumerate(sizes):
        x = held_by_all(torch.randn(1, 3, *size))
        wanted = run_anew(model, stages, x)
        errors = [[error(a, b) for a, b in
                   zip(run_anew(model, stages, x.to(dtype)), wanted)]
                  for dtype in TYPES]
        worst = max(worst, errors[0][0])
        truth[f"{number}.input"] = x.half()
        truth[f"{number}.logits"] = wanted[0].float()
        truth[f"{number}.errors"] = torch.tensor(errors).float()
        for i, (height, width) in enumerate(map_sizes(name, size)):
            if number > 0 and i < len(DEPTHS) - 1:
                continue
            truth[f"{number}.stage{i}"] = wanted[1 + i].reshape(
                height, width, -1).float()
    safetensors.torch.save_file(
        {key: value.contiguous() for key, value in truth.items()},
        folder / "truth.safetensors")
    print(name, f"{worst:.1e}", flush=True)


def main():
    folder = pathlib.Path(sys.argv[1])
    sys.path.insert(0, sys.argv[2])
    for seed, (name, make_model, sizes, file_type) in enumerate(cases()):
        torch.manual_seed(500 + seed)
        if not sys.argv[3:] or name in sys.argv[3:]:
            model, stages = make_model()
            make(folder / name, name, model, stages, sizes, file_type)
    write_versions(folder.parent / "versions_sources.txt", PACKAGES)


if __name__ == "__main__":
    main()
