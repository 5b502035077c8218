# SPDX-License-Identifier: Apache-2.0
"""swin_t and swin_v2_t at full size, by winattn-swin and by torchvision, timm
and transformers, in files as these write them, with the same pictures.

    python3 full_size.py WINATTN_SWIN FOLDER [DEVICE]

The libraries run on the GPU where torch has one, else on the CPU. Weights are
random, as in golden/make_models.py. In fp32 logits and maps are at most 2e-5
off fp64, in fp16, bf16 and TF32 1.5 times as far as the library's in that type.
Microsoft's files are timm's under Microsoft's names, with its buffers, as its
code is in no package; what it computes with them is the same for pictures of
these sizes. Libraries that are not installed are left out; ends with 77
without torch, torchvision or safetensors.
"""
import copy
import pathlib
import subprocess
import sys

try:
    import numpy
    import safetensors.torch
    import torch
    import torchvision
    sys.dont_write_bytecode = True
    sys.path.append(str(pathlib.Path(__file__).parent.parent / "golden"))
    from make_models import draw, error, run
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

try:
    import timm
    from timm.models import save_for_hf
except ImportError as missing:
    print(f"without timm: {missing}")
    timm = None
try:
    import transformers
except ImportError as missing:
    print(f"without transformers: {missing}")
    transformers = None

BATCH = 2
FP32_MOST = 2e-5
FACTOR = 1.5
TYPES = (("fp32", torch.float32), ("tf32", torch.float32),
         ("fp16", torch.float16), ("bf16", torch.bfloat16))
TYPE_OPTIONS = {"tf32": ("--dtype", "fp32", "--tf32")}
GPU = "cuda" if torch.cuda.is_available() else "cpu"
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def save(folder, state):
    safetensors.torch.save_file(
        {name: values.contiguous() for name, values in state.items()},
        str(folder / "model.safetensors"))


def torchvision_case(name):
    model = getattr(torchvision.models, name)()
    return (model, lambda m: [m.features[i] for i in (1, 3, 5, 7)],
            lambda folder: save(folder, model.state_dict()))


def timm_case(name):
    model = timm.create_model(name, pretrained=False)
    return (model, lambda m: [layer.blocks[-1] for layer in m.layers],
            lambda folder: save_for_hf(model, folder, safe_serialization=True))


def microsoft_name(name):
    """Mergers stand with the stage before; the head is one layer."""
    parts = name.replace("head.fc.", "head.").split(".")
    if "downsample" in parts:
        parts[1] = str(int(parts[1]) - 1)
    return ".".join(parts)


def microsoft_case(name):
    model, stages, _ = timm_case(name)
    state = {microsoft_name(key): values
             for key, values in model.state_dict().items()}
    for key, values in model.named_buffers():  # timm's are not saved
        if "k_bias" not in key and values is not None:
            state[microsoft_name(key)] = values

    def save_state(folder):
        state.update((microsoft_name(key), values)
                     for key, values in model.state_dict().items())
        save(folder, state)
    return model, stages, save_state


def transformers_case(generation):
    if generation == 1:
        config = transformers.SwinConfig(num_labels=1000)
        model = transformers.SwinForImageClassification(config)
    else:
        config = transformers.Swinv2Config(image_size=256, window_size=8,
                                           num_labels=1000)
        model = transformers.Swinv2ForImageClassification(config)
    return (model, lambda m: [layer.blocks[-1] for layer in
                              m.base_model.encoder.layers],
            model.save_pretrained)


def cases():
    yield "torchvision's swin_t", 224, lambda: torchvision_case("swin_t")
    yield "torchvision's swin_v2_t", 256, lambda: torchvision_case("swin_v2_t")
    for make in (timm_case, microsoft_case) if timm else ():
        origin = "timm's" if make is timm_case else "Microsoft's"
        yield (origin + " Swin", 224,
               lambda make=make: make("swin_tiny_patch4_window7_224"))
        yield (origin + " Swin V2", 256,
               lambda make=make: make("swinv2_tiny_window8_256"))
    if transformers:
        yield "transformers' Swin", 224, lambda: transformers_case(1)
        yield "transformers' Swin V2", 256, lambda: transformers_case(2)


def run_torch(model, stages, x, dtype="fp64"):
    """Logits and the maps of all stages."""
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    return [result.double().cpu()
            for result in run(model.to(GPU), stages, x.to(GPU))]


def run_winattn(tool, folder, dtype, size, device):
    pictures = [str(folder / f"{i}.ppm") for i in range(BATCH)]
    command = [tool, "--weights", str(folder / "model.safetensors"),
               *TYPE_OPTIONS.get(dtype, ("--dtype", dtype)),
               "--resize", str(size), "--crop", str(size),
               "--stages", str(folder), "--logits", str(folder / "logits.npy")]
    subprocess.run(command + device + pictures, check=True,
                   stdout=subprocess.DEVNULL)
    maps = [numpy.stack([numpy.load(folder / f"{i}_stage{stage}.npy")
                         for i in range(BATCH)]) for stage in range(4)]
    return [torch.from_numpy(a).double() for a in
            [numpy.load(folder / "logits.npy")] + maps]


def check(tool, folder, name, size, make, device):
    torch.manual_seed(27)
    model, stages, save_model = make()
    model.eval()
    with torch.no_grad():
        for part, parameter in model.named_parameters():
            parameter.copy_(draw(part, tuple(parameter.shape), gain=1))
    for old in folder.glob("*config.json"):
        old.unlink()
    save_model(folder)
    pixels = torch.randint(0, 256, (BATCH, size, size, 3), dtype=torch.uint8)
    for i in range(BATCH):
        (folder / f"{i}.ppm").write_bytes(
            b"P6 %d %d 255\n" % (size, size) + pixels[i].numpy().tobytes())
    x = pixels.permute(0, 3, 1, 2).double() / 255
    x = ((x - torch.tensor(MEAN).view(3, 1, 1)) /
         torch.tensor(DEVIATION).view(3, 1, 1))
    truth = run_torch(copy.deepcopy(model).double(), stages, x)
    good = True
    for dtype, torch_type in TYPES:
        if dtype == "tf32" and GPU == "cpu":  # torch has none to compare with
            continue
        theirs = run_torch(copy.deepcopy(model).to(torch_type), stages,
                           x.to(torch_type), dtype)
        ours = run_winattn(tool, folder, dtype, size, device)
        for i, wanted in enumerate(truth):
            own, other = error(ours[i], wanted), error(theirs[i], wanted)
            most = FP32_MOST if dtype == "fp32" else FACTOR * other
            part = "logits" if i == 0 else f"stage {i - 1}"
            passes = own <= most
            good = good and passes
            print(f"{name} {dtype} {part}: {own:.2e}, the library's "
                  f"{other:.2e}{'' if passes else ': TOO FAR'}", flush=True)
    return good


def main():
    folder = pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    device = ["--device", sys.argv[3]] if len(sys.argv) > 3 else []
    results = [check(sys.argv[1], folder, name, size, make, device)
               for name, size, make in cases()]
    sys.exit(0 if all(results) else 1)


main()
