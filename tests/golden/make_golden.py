# SPDX-License-Identifier: Apache-2.0
"""Makes the golden vectors that the oracle is checked against.

    python3 make_golden.py OUTPUT_FOLDER

Everything is computed by PyTorch in double precision. Versions go to
OUTPUT_FOLDER/versions.txt. The vectors in this folder were made
with the versions named there.
"""
import math
import pathlib
import sys

import numpy
import torch
import torch.nn.functional as F

from common import write_versions

out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
torch.set_default_dtype(torch.float64)


def save(case, name, tensor):
    array = tensor.detach().cpu().numpy()
    numpy.save(out / f"{case}_{name}.npy", numpy.ascontiguousarray(array))


def sliding(case, queries, keys, block, window, offset, seed, scale):
    """Plain attention under a block-causal mask."""
    torch.manual_seed(seed)
    heads, dim = 2, 16
    q = torch.randn(1, heads, queries, dim)
    k = torch.randn(1, heads, keys, dim)
    v = torch.randn(1, heads, keys, dim)
    here = (torch.arange(queries) + offset)[:, None] // block
    there = torch.arange(keys)[None, :] // block
    seen = (there <= here) & (there > here - window)
    o = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scale)
    logits = scale * q @ k.transpose(-1, -2)
    lse = torch.logsumexp(logits.masked_fill(~seen, -math.inf), -1)
    for name, tensor in (("q", q), ("k", k), ("v", v), ("o", o),
                         ("lse", lse)):
        save(case, name, tensor)
    save(case, "shape", torch.tensor([block, window, offset], dtype=torch.int64))
    save(case, "scale", torch.tensor([scale]))


def gradients(case, variant, seed):
    """PyTorch's autograd through the formulas of the papers, with a gradient
    for the logarithm of the softmax's denominator as well."""
    torch.manual_seed(seed)
    windows, masks, heads, dim, scale = 3, 2, 2, 6, 0.7
    tokens, block, window = (27, 8, 2) if variant == "sliding" else (10, 0, 0)
    leaves = {name: torch.randn(windows, heads, tokens, dim)
              for name in ("q", "k", "v")}
    if variant != "sliding":
        leaves["bias"] = torch.randn(heads, tokens, tokens)
        regions = torch.randint(0, 2, (masks, tokens))
        save(case, "regions", regions.to(torch.uint8))
    if variant == "cosine":  # one below and one above the clamp
        leaves["logit_scale"] = torch.tensor([2.25, 5.0])
    for leaf in leaves.values():
        leaf.requires_grad_()
    q, k = leaves["q"], leaves["k"]
    factor = scale
    if variant == "cosine":
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        factor = leaves["logit_scale"].clamp(max=math.log(100)).exp()
        factor = factor[:, None, None]
    logits = factor * (q @ k.transpose(-1, -2))
    if variant == "sliding":
        here = torch.arange(tokens) // block
        seen = (here[None, :] <= here[:, None]) & (
            here[None, :] > here[:, None] - window)
        logits = logits.masked_fill(~seen, -math.inf)
        save(case, "shape", torch.tensor([block, window], dtype=torch.int64))
    else:
        other = (regions[:, :, None] != regions[:, None, :])[:, None]
        mask = torch.where(other, -2.5, 0.0)
        logits = logits + leaves["bias"] + mask[torch.arange(windows) % masks]
    o = torch.softmax(logits, -1) @ leaves["v"]
    lse = torch.logsumexp(logits, -1)
    d_o, d_lse = torch.randn_like(o), torch.randn_like(lse)
    torch.autograd.backward([o, lse], [d_o, d_lse])
    save(case, "d_o", d_o)
    save(case, "d_lse", d_lse)
    for name, leaf in leaves.items():
        save(case, name, leaf.float() if name == "logit_scale" else leaf)
        save(case, "d" + name, leaf.grad)


CASES = (
    (gradients, "gradients_dot", "dot", 5),
    (gradients, "gradients_cosine", "cosine", 6),
    (gradients, "gradients_sliding", "sliding", 7),
    (sliding, "sliding", 75, 75, 16, 2, 0, 3, 0.3),
    (sliding, "sliding_cache", 20, 75, 16, 3, 55, 4, 0.25),
)
for make, case, *arguments in CASES:
    make(case, *arguments)
write_versions(out / "versions.txt", ("torch", "numpy"))
