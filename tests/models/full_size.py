# SPDX-License-Identifier: Apache-2.0
"""swin_t and swin_v2_t at full size, by winattn-swin and by torchvision, with
the same weights and pictures.

    python3 full_size.py WINATTN_SWIN FOLDER [DEVICE]

torchvision runs on the GPU where torch has one, else on the CPU. Weights are
random, as in golden/make_models.py. In fp32 logits and maps are at
most 2e-5 off fp64, in fp16 and bf16 1.5 times as far as torchvision's in that
type. Ends with 77 where torch, torchvision or safetensors is not installed.
"""
import copy
import functools
import pathlib
import subprocess
import sys

try:
    import numpy
    import safetensors.torch
    import torch
    import torchvision
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

BATCH = 2
FP32_MOST = 2e-5
FACTOR = 1.5
TYPES = (("fp32", torch.float32), ("fp16", torch.float16),
         ("bf16", torch.bfloat16))
GPU = "cuda" if torch.cuda.is_available() else "cpu"
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def draw(name, shape):
    """Weights that fp32, fp16 and bf16 hold, so that errors are those of the
    computation alone."""
    if "logit_scale" in name:
        values = torch.log(2 + 10 * torch.rand(shape))
    elif "relative_position_bias_table" in name:
        values = torch.randn(shape)
    elif "cpb_mlp.0.weight" in name:
        values = torch.randn(shape) * 0.5
    elif "cpb_mlp.2.weight" in name:
        values = torch.randn(shape) * 0.05
    elif len(shape) == 1 and "weight" in name:
        values = 1 + 0.2 * torch.randn(shape)
    elif len(shape) == 1:
        values = 0.2 * torch.randn(shape)
    else:
        values = torch.randn(shape) * (numpy.prod(shape[1:]) ** -0.5)
    values = values.to(torch.bfloat16).double()
    values[values.abs() < 2.0 ** -14] = 0
    return values


def run_torch(model, x):
    """Logits and the maps of all stages."""
    maps = []
    hooks = [model.features[i].register_forward_hook(
        lambda _, __, out: maps.append(out.double().cpu())) for i in (1, 3, 5, 7)]
    normalize = torch.nn.functional.normalize
    if x.dtype == torch.float16:  # 1e-12 is 0 there
        torch.nn.functional.normalize = functools.partial(normalize, eps=1e-6)
    with torch.no_grad():
        logits = model.to(GPU)(x.to(GPU)).double().cpu()
    torch.nn.functional.normalize = normalize
    for hook in hooks:
        hook.remove()
    return [logits] + maps


def run_winattn(tool, folder, dtype, size, device):
    pictures = [str(folder / f"{i}.ppm") for i in range(BATCH)]
    command = [tool, "--weights", str(folder / "weights.safetensors"),
               "--dtype", dtype, "--resize", str(size), "--crop", str(size),
               "--stages", str(folder), "--logits", str(folder / "logits.npy")]
    subprocess.run(command + device + pictures, check=True,
                   stdout=subprocess.DEVNULL)
    maps = [numpy.stack([numpy.load(folder / f"{i}_stage{stage}.npy")
                         for i in range(BATCH)]) for stage in range(4)]
    return [torch.from_numpy(a).double() for a in
            [numpy.load(folder / "logits.npy")] + maps]


def error(result, truth):
    return float((result - truth).norm() / truth.norm())


def check(tool, folder, name, size, device):
    torch.manual_seed(27)
    model = getattr(torchvision.models, name)().eval()
    with torch.no_grad():
        for part, parameter in model.named_parameters():
            parameter.copy_(draw(part, tuple(parameter.shape)))
    safetensors.torch.save_file(model.state_dict(),
                                str(folder / "weights.safetensors"))
    pixels = torch.randint(0, 256, (BATCH, size, size, 3), dtype=torch.uint8)
    for i in range(BATCH):
        (folder / f"{i}.ppm").write_bytes(
            b"P6 %d %d 255\n" % (size, size) + pixels[i].numpy().tobytes())
    x = pixels.permute(0, 3, 1, 2).double() / 255
    x = ((x - torch.tensor(MEAN).view(3, 1, 1)) /
         torch.tensor(DEVIATION).view(3, 1, 1))
    truth = run_torch(copy.deepcopy(model).double(), x)
    good = True
    for dtype, torch_type in TYPES:
        theirs = run_torch(copy.deepcopy(model).to(torch_type),
                           x.to(torch_type))
        ours = run_winattn(tool, folder, dtype, size, device)
        for i, wanted in enumerate(truth):
            own, other = error(ours[i], wanted), error(theirs[i], wanted)
            most = FP32_MOST if dtype == "fp32" else FACTOR * other
            part = "logits" if i == 0 else f"stage {i - 1}"
            passes = own <= most
            good = good and passes
            print(f"{name} {dtype} {part}: {own:.2e}, torchvision "
                  f"{other:.2e}{'' if passes else ': TOO FAR'}", flush=True)
    return good


def main():
    folder = pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    device = ["--device", sys.argv[3]] if len(sys.argv) > 3 else []
    results = [check(sys.argv[1], folder, name, size, device)
               for name, size in (("swin_t", 224), ("swin_v2_t", 256))]
    sys.exit(0 if all(results) else 1)


main()
