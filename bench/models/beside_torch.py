# SPDX-License-Identifier: Apache-2.0
"""Swin models: winattn beside torchvision.

    python3 beside_torch.py BUILD [--device NAME] [--compile] [--seconds S]

BUILD is the folder that winattn was built in; its winattn-swin is run on the
OpenCL device that has NAME in its name or its platform's, torch on its GPU where
it has one, else on the CPU. Weights are random, pictures noise. Times are medians
of calls with the device idle before and after each. A table in Markdown goes to
the standard output, what is under way to the error output.

`graph` is torch's eager model as a CUDA graph; --compile adds torch.compile,
which takes minutes.
"""
import argparse
import pathlib
import re
import subprocess
import sys

import torch
import torchvision
from swin_torch import DEVICE, GPU, graph_of, make, median_of

TYPES = {"fp32": torch.float32, "fp16": torch.float16,
         "bf16": torch.bfloat16}
# model, side of a picture, batch, type
CASES = (("swin_t", 224, 64, "fp16"), ("swin_t", 224, 1, "fp16"),
         ("swin_v2_t", 256, 64, "fp16"), ("swin_v2_t", 256, 1, "fp16"),
         ("swin_v2_t_p2_w16", 256, 16, "fp16"),
         ("swin_t", 224, 64, "bf16"), ("swin_t", 224, 64, "fp32"))


def time_torch(case, options):
    name, size, batch, dtype = case
    model = make(name).eval().to(DEVICE, TYPES[dtype])
    x = torch.rand(batch, 3, size, size, dtype=TYPES[dtype], device=DEVICE)
    with torch.inference_mode():
        if GPU:
            torch.cuda.reset_peak_memory_stats()
        eager = median_of(lambda: model(x), options.seconds)
        memory = torch.cuda.max_memory_allocated() / 2 ** 20 if GPU else None
        graph = (median_of(graph_of(lambda: model(x)), options.seconds)
                 if GPU else None)
        compiled = None
        if options.compile:
            # a batch of 1 waits for launches unless they are recorded
            mode = "reduce-overhead" if batch == 1 and GPU else "default"
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--device")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--seconds", type=float, default=1)
    options = parser.parse_args()
    print(f"torch {torch.__version__}, torchvision {torchvision.__version__}"
          + (f", {torch.cuda.get_device_name()}" if GPU else ""))
    compare_models(options)


main()
