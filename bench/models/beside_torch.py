# SPDX-License-Identifier: Apache-2.0
"""Swin models and their linear layers: winattn beside torchvision and torch.

    python3 beside_torch.py BUILD [--device NAME] [--compile] [--seconds S]
                            [--part models|layers]

BUILD is the folder that winattn was built in; its winattn-swin and
winattn-tune are run on the OpenCL device that has NAME in its name or
its platform's, torch on its GPU where it has one, else on the CPU. Weights are
random, pictures noise. Times are medians of calls with the device idle before
and after each; those of layers of many calls in a row. A table in Markdown goes
to the standard output, what is under way to the error output.

`graph` is torch's eager model as a CUDA graph; --compile adds torch.compile,
which takes minutes.
"""
import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import time

import torch
import torchvision
from torchvision.models import swin_transformer

TYPES = {"fp32": torch.float32, "fp16": torch.float16,
         "bf16": torch.bfloat16}
# model, side of a picture, batch, type
CASES = (("swin_t", 224, 64, "fp16"), ("swin_t", 224, 1, "fp16"),
         ("swin_v2_t", 256, 64, "fp16"), ("swin_v2_t", 256, 1, "fp16"),
         ("swin_v2_t_p2_w16", 256, 16, "fp16"),
         ("swin_t", 224, 64, "bf16"), ("swin_t", 224, 64, "fp32"))
# batch 64: rows, in, out, further words of winattn-tune
LAYERS = [(64 * side * side, inside, outside, words)
          for side, channels in ((56, 96), (28, 192), (14, 384), (7, 768))
          for inside, outside, words in (
              (channels, 3 * channels, ":bias"),
              (channels, channels, ":bias:residual"),
              (channels, 4 * channels, ":bias:gelu"),
              (4 * channels, channels, ":bias:residual"))]


def on_gpu():
    return torch.cuda.is_available()


def wait():
    if on_gpu():
        torch.cuda.synchronize()


def make_torch(name, dtype):
    if name == "swin_v2_t_p2_w16":
        model = swin_transformer.SwinTransformer(
            patch_size=[2, 2], embed_dim=96, depths=[2, 2, 6, 2],
            num_heads=[3, 6, 12, 24], window_size=[16, 16],
            block=swin_transformer.SwinTransformerBlockV2,
            downsample_layer=swin_transformer.PatchMergingV2)
    else:
        model = getattr(torchvision.models, name)()
    return model.eval().to("cuda" if on_gpu() else "cpu", TYPES[dtype])


def median_of(call, seconds):
    """Milliseconds of a call, each with the device idle before and after."""
    for _ in range(3):
        call()
    wait()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        wait()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def graph_of(model, x):
    """The eager model, recorded once."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(x)
    return graph.replay


def time_torch(case, options):
    name, size, batch, dtype = case
    model = make_torch(name, dtype)
    x = torch.rand(batch, 3, size, size, dtype=TYPES[dtype],
                   device="cuda" if on_gpu() else "cpu")
    with torch.inference_mode():
        if on_gpu():
            torch.cuda.reset_peak_memory_stats()
        eager = median_of(lambda: model(x), options.seconds)
        memory = (torch.cuda.max_memory_allocated() / 2 ** 20 if on_gpu()
                  else None)
        graph = (median_of(graph_of(model, x), options.seconds) if on_gpu()
                 else None)
        compiled = None
        if options.compile:
            # a batch of 1 waits for launches unless they are recorded
            mode = "reduce-overhead" if batch == 1 and on_gpu() else "default"
            torch._dynamo.reset()
            inner = torch.compile(model, mode=mode)
            compiled = median_of(lambda: inner(x), options.seconds)
    return eager, graph, compiled, memory


def time_winattn(case, options):
    """Milliseconds and MiB."""
    name, _, batch, dtype = case
    own = {"swin_v2_t_p2_w16": ["swin_v2_t", "--patch", "2", "--window",
                                "16"]}.get(name, [name])
    command = [str(options.build / "host/swin/winattn-swin"), "--random", "1",
               "--model", *own, "--dtype", dtype, "--bench", "--batch",
               str(batch), "--seconds", str(options.seconds)]
    if options.device:
        command += ["--device", options.device]
    text = subprocess.run(command, check=True, capture_output=True,
                          text=True).stdout
    found = re.search(rf"^batch {batch}: ([\d.]+) ms.*\n  memory: ([\d.]+)",
                      text, re.MULTILINE)
    return float(found[1]), float(found[2])


def cell(value, form="{:.2f}"):
    return "" if value is None else form.format(value)


def compare_models(options):
    print("| model, batch, type | winattn, ms | eager, ms | graph, ms | "
          "torch.compile, ms | winattn, MiB | eager, MiB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for case in CASES:
        print(case, file=sys.stderr, flush=True)
        ours, memory = time_winattn(case, options)
        eager, graph, compiled, theirs = time_torch(case, options)
        print(f"| {case[0]} {case[1]}, {case[2]}, {case[3]} | {ours:.2f} | "
              f"{cell(eager)} | {cell(graph)} | {cell(compiled)} | "
              f"{memory:.0f} | {cell(theirs, '{:.0f}')} |", flush=True)


def time_linear(rows, inside, outside, options):
    """Microseconds of torch's product with bias alone, fp16."""
    where = "cuda" if on_gpu() else "cpu"
    x = torch.rand(rows, inside, dtype=torch.float16, device=where) - 0.5
    w = torch.rand(outside, inside, dtype=torch.float16, device=where) - 0.5
    b = torch.rand(outside, dtype=torch.float16, device=where)
    calls = 20

    def call():
        for _ in range(calls):
            torch.nn.functional.linear(x, w, b)
    with torch.inference_mode():
        return 1e3 * median_of(call, options.seconds / 4) / calls


def time_own_linear(options):
    words = [f"{r}x{i}x{o}{words}" for r, i, o, words in LAYERS]
    command = [str(options.build / "bench/winattn-tune"), "--own", "--dtype",
               "fp16", "--seconds", str(10 * options.seconds * len(words))]
    if options.device:
        command += ["--device", options.device]
    text = subprocess.run(command + words, check=True, capture_output=True,
                          text=True).stdout
    found = re.findall(r"([\d.]+) us +plan's own choice +([\d.]+) TFLOP/s "
                       r"copy ([\d.]+)", text)
    assert len(found) == len(LAYERS), text
    return found


def compare_layers(options):
    print("| rows x in x out, fp16 | winattn, us | TFLOP/s | of copy | "
          "torch's product and bias, us |")
    print("| --- | --- | --- | --- | --- |")
    for layer, own in zip(LAYERS, time_own_linear(options)):
        theirs = time_linear(*layer[:3], options)
        what = layer[3].replace(":bias", "").replace(":", ", ")
        print(f"| {layer[0]} x {layer[1]} x {layer[2]}{what} | {own[0]} | "
              f"{own[1]} | {own[2]} | {theirs:.1f} |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--device")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--part", choices=("models", "layers"))
    options = parser.parse_args()
    print(f"torch {torch.__version__}, torchvision {torchvision.__version__}"
          + (f", {torch.cuda.get_device_name()}" if on_gpu() else ""))
    if options.part != "layers":
        compare_models(options)
    if options.part != "models":
        compare_layers(options)


main()
