# SPDX-License-Identifier: Apache-2.0
"""Training steps of Swin models in PyTorch, as they are and accelerated, and
what a call of winattn.torch costs the host.

    python3 train_torch.py [--seconds S] [--side N] [--batch N] [--model NAME]
                           [--way TEXT] [--recompute]

winattn's package for Python must be installed. On torch's GPU where it has one,
else on the CPU, for which --side and --batch make the models smaller. A step is
forward, cross entropy and backward, in fp16 on a GPU and fp32 on a CPU. Times
are medians of steps with the device idle before and after; `graph`: the step
was recorded as a CUDA graph, so that it costs the host nothing. Tables in
Markdown go to the standard output.
"""
import argparse
import copy
import statistics
import sys
import time

import torch
import winattn.torch
from swin_torch import DEVICE, GPU, graph_of, make, median_of, wait

DTYPE = torch.float16 if GPU else torch.float32
# model, side of a picture, batch
CASES = (("swin_t", 224, 64), ("swin_v2_t", 256, 64),
         ("swin_v2_t_p2_w16", 256, 16))


def step_of(model, x, classes):
    def step():
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(x).float(), classes).backward()
    return step


def ways(model, x, classes, recompute=False):
    """Name -> step, made when it is asked for."""
    ours = copy.deepcopy(model)
    report = winattn.torch.accelerate(ours, recompute)
    if not report.replaced:
        sys.exit(str(report))
    for of, each in (("", model), ("accelerated, ", ours)):
        eager = step_of(each, x, classes)
        yield f"{of}eager", lambda: eager
        if GPU:
            yield f"{of}graph", lambda: graph_of(eager)
        compiled = step_of(torch.compile(each), x, classes)
        yield f"{of}compiled", lambda: compiled
        if GPU:
            yield f"{of}compiled, graph", lambda: graph_of(compiled)


def compare_steps(options):
    print("| model, batch | way | ms | MiB |\n| --- | --- | --- | --- |")
    for name, side, batch in CASES:
        if options.model not in (None, name):
            continue
        side, batch = options.side or side, options.batch or batch
        model = make(name).to(DEVICE, DTYPE)
        model.train()
        x = torch.rand(batch, 3, side, side, device=DEVICE, dtype=DTYPE)
        classes = torch.randint(0, 1000, (batch,), device=DEVICE)
        for way, prepare in ways(model, x, classes, options.recompute):
            if options.way not in way:
                continue
            if GPU:
                torch.cuda.reset_peak_memory_stats()
            took = median_of(prepare(), options.seconds)
            memory = torch.cuda.max_memory_allocated() / 2 ** 20 if GPU else 0
            print(f"| {name} {side}, {batch} | {way} | {took:.2f} | "
                  f"{memory:.0f} |", flush=True)


def register_nothing():
    """An operator with the arguments and the gradients of ours that returns
    memory."""
    from winattn.torch import _operators

    tensors, options = _operators._ARGUMENTS["window"]
    library = torch.library.Library("nothing", "DEF")
    library.define(f"window({tensors}, {options}) -> (Tensor, Tensor)")

    def compute(q, *rest):
        return (q.new_empty(q.shape),
                q.new_empty(q.shape[:-1], dtype=torch.float32))

    library.impl("window", compute, DEVICE.upper())
    library.impl("window", _operators.autograd(
        torch.ops.nothing.window.default, tensors.count("Tensor"), compute,
        _operators.differentiable("window", None)),
        "Autograd", with_keyset=True)
    return library


def microseconds(*calls):
    """Of the host's time for each, in turns, with a device that has little to
    do."""
    times = [[] for _ in calls]
    for _ in range(20):
        for call, taken in zip(calls, times):
            wait()
            start = time.perf_counter()
            for _ in range(50):
                call()
            taken.append((time.perf_counter() - start) / 50)
    return [1e6 * statistics.median(taken) for taken in times]


def compare_calls():
    library = register_nothing()
    q, k, v = torch.randn(3, 4, 3, 49, 32, device=DEVICE, dtype=DTYPE)
    bias = torch.randn(3, 49, 49, device=DEVICE, dtype=DTYPE)
    given = (q, k, v, None, bias, None, None, None, None, None, False, [],
             False, None)
    print("\n| a call | operator without work, us | window_attention, us |\n"
          "| --- | --- | --- |")
    for differentiates in (False, True):
        for tensor in (q, k, v, bias):
            tensor.requires_grad_(differentiates)
        empty, ours = microseconds(
            lambda: torch.ops.nothing.window(*given),
            lambda: torch.ops.winattn.window_attention(*given))
        print(f"| {'with' if differentiates else 'without'} gradients | "
              f"{empty:.1f} | {ours:.1f} |")
    del library


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--side", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--model", choices=[case[0] for case in CASES])
    parser.add_argument("--way", default="", help="those with this in the name")
    parser.add_argument("--recompute", action="store_true",
                        help="as accelerate has it")
    options = parser.parse_args()
    print(f"torch {torch.__version__}"
          + (f", {torch.cuda.get_device_name()}" if GPU else ""))
    compare_calls()
    print()
    compare_steps(options)


if __name__ == "__main__":
    main()
