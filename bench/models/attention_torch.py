# SPDX-License-Identifier: Apache-2.0
"""Attention in PyTorch: winattn.torch.compat beside the three Triton projects
whose names it has, and beside torch.compile.

    python3 attention_torch.py [FOLDER ...]

FOLDERs are checkouts of FlashWindowAttention (zzd1992), of Flash Window
Attention V2 (emiledgl) and of block sliding window attention (zankerx); those
that are not given are left out. winattn's package for Python must be
installed, torch have a GPU of NVIDIA. Each time is of one of ten calls that lie
ready on the stream, the median of several turns; all gradients, fp16. A table
in Markdown goes to the standard output.
"""
import importlib
import statistics
import sys

import torch
import winattn.torch
from torch.nn import functional
from winattn.torch import compat

CALLS, TURNS = 10, 12
WAIT = 30_000_000  # cycles, in which the host gets ahead of the device


def random(*shape):
    return torch.randn(shape, device="cuda", dtype=torch.float16,
                       requires_grad=True)


def of_projects(folders):
    """Name -> function, of the projects that are there."""
    sys.path += folders
    found = {}
    for module, name in (("flash_swin_attn", "flash_swin_attn_func"),
                         ("flash_win_attn_v2", "flash_win_attn_v2_func"),
                         ("kernel.SWBA", "attention")):
        try:
            found[name] = getattr(importlib.import_module(module), name)
        except ImportError as missing:
            print(missing, file=sys.stderr)
    return found


# ---- With PyTorch's own functions ----

def attend(q, k, v, bias, scale):
    return functional.scaled_dot_product_attention(q, k, v, bias, scale=scale)


def attend_cosine(q, k, v, logit_scale, bias, mask):
    q, k = functional.normalize(q, dim=-1), functional.normalize(k, dim=-1)
    logits = q @ k.transpose(-2, -1) * logit_scale.clamp(max=4.6).exp() + bias
    logits = logits.unflatten(0, (-1, len(mask))) + mask[:, None]
    return logits.flatten(0, 1).softmax(-1) @ v


def slide(q, k, v, block, blocks, scale):
    ahead = torch.arange(q.shape[2], device="cuda") // block
    ahead = ahead[:, None] - ahead
    return functional.scaled_dot_product_attention(
        q, k, v, (ahead >= 0) & (ahead < blocks), scale=scale)


def attend_map(qkv, bias, mask, window, shift):
    """Roll, cut, attend, join, roll back; qkv: [batch, height, width, 3, heads,
    channels]."""
    batch, side, _, _, heads, channels = qkv.shape
    count = side // window
    x = qkv.roll((-shift, -shift), (1, 2))
    x = x.view(batch, count, window, count, window, 3, heads, channels)
    q, k, v = x.permute(5, 0, 1, 3, 6, 2, 4, 7).reshape(
        3, batch, count ** 2, heads, window ** 2, channels).unbind()
    x = functional.scaled_dot_product_attention(q, k, v, mask[:, None] + bias)
    x = x.view(batch, count, count, heads, window, window, channels)
    x = x.permute(0, 1, 4, 2, 5, 3, 6).reshape(batch, side, side, heads,
                                               channels)
    return x.roll((shift, shift), (1, 2))


def accelerated_map(qkv, bias, mask, window, shift):
    return winattn.torch.grid_attention(qkv, window=window, shift=shift,
                                        bias=bias)


# ---- What is compared ----

def windows(count, heads, tokens, channels):
    q, k, v = (random(count, heads, tokens, channels) for _ in range(3))
    return ("flash_swin_attn_func", attend,
            (q, k, v, random(heads, tokens, tokens), channels ** -0.5))


def cosine(count, heads, tokens):
    q, k, v = (random(count, heads, tokens, 32) for _ in range(3))
    mask = torch.zeros(16, tokens, tokens, device="cuda", dtype=q.dtype)
    mask[-1, :, tokens // 2:] = -100
    return ("flash_win_attn_v2_func", attend_cosine,
            (q, k, v, random(heads, 1, 1), random(heads, tokens, tokens),
             mask))


def sliding(batch, tokens, blocks):
    q, k, v = (random(batch, 12, tokens, 64) for _ in range(3))
    return "attention", slide, (q, k, v, 256, blocks, 0.125)


def shift_mask(side, window, shift):
    """[windows, tokens, tokens]: -100 between parts that the roll brought
    together."""
    line = torch.arange(side, device="cuda")
    part = (line >= side - window).int() + (line >= side - shift).int()
    parts = (3 * part[:, None] + part).view(
        side // window, window, side // window, window)
    parts = parts.transpose(1, 2).reshape(-1, window ** 2)
    return -100 * (parts[:, :, None] != parts[:, None]).half()


def maps(batch, side, window, shift, heads):
    return (accelerated_map, attend_map,
            (random(batch, side, side, 3, heads, 32),
             random(heads, window ** 2, window ** 2),
             shift_mask(side, window, shift), window, shift))


# As in bench/results/peers_h200.csv; the mask of dot attention is left out,
# which its project does not have.
ROWS = (("4096 windows, 3 heads, 49 x 32", windows, (4096, 3, 49, 32)),
        ("64 maps of 56 x 56, 3 heads, 7 x 7, shift 3", maps,
         (64, 56, 7, 3, 3)),
        ("1024 windows, 4 heads, 64 x 64", windows, (1024, 4, 64, 64)),
        ("1024 windows, 4 heads, 144 x 32", windows, (1024, 4, 144, 32)),
        ("cosine, 4096 windows, 6 heads, 64 x 32", cosine, (4096, 6, 64)),
        ("cosine, 1024 windows, 6 heads, 256 x 32", cosine, (1024, 6, 256)),
        ("sliding, 4 x 12 heads, 4096 x 64, 4 blocks", sliding,
         (4, 4096, 4)),
        ("sliding, 12 heads, 16384 x 64, 16 blocks", sliding,
         (1, 16384, 16)))


def milliseconds(call):
    """Of one call, with its launches ready when the device comes to them."""
    for _ in range(3):
        call()
    times = []
    for _ in range(TURNS):
        torch.cuda.synchronize()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(WAIT)
        start.record()
        for _ in range(CALLS):
            call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / CALLS)
    return statistics.median(times)


def times_of(function, given):
    """Forward, and forward and backward."""
    leaves = [x for x in given if getattr(x, "requires_grad", False)]
    weight = torch.randn_like(function(*given))

    def forward():
        with torch.no_grad():
            function(*given)

    def step():
        torch.autograd.grad(function(*given), leaves, weight)

    return milliseconds(forward), milliseconds(step)


def main():
    projects = of_projects(sys.argv[1:])
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}\n\n"
          "| | | forward, ms | and backward, ms |\n| --- | --- | --- | --- |")
    for label, make, sizes in ROWS:
        torch.manual_seed(1)
        torch._dynamo.reset()
        name, plain, given = make(*sizes)
        ways = {"winattn": (getattr(compat, name) if isinstance(name, str)
                            else name),
                "original": projects.get(name),
                "torch.compile": torch.compile(plain)}
        if name == "attention" and sizes[1] > 4096:
            del ways["torch.compile"]  # its mask has 16384^2 elements
        for way, function in ways.items():
            if function is not None:
                try:
                    forward, step = times_of(function, given)
                    print(f"| {label} | {way} | {forward:.4f} | {step:.4f} |",
                          flush=True)
                except Exception as error:  # the others' own
                    print(f"{label}, {way}: {error}", file=sys.stderr)


main()
