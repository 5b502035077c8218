# SPDX-License-Identifier: Apache-2.0
"""What the scripts share that make golden vectors."""
import importlib.metadata
import sys

import torch


def held_by_all(x):
    """x rounded to numbers that bf16 and fp16 have in common."""
    x = x.detach().to(torch.bfloat16).double()
    x[x.abs() < 2.0 ** -14] = 0
    assert torch.equal(x.half().double(), x)
    return x


def write_versions(path, packages):
    """What the vectors were made with."""
    path.write_text(f"python {sys.version.split()[0]}\n" + "".join(
        f"{name} {importlib.metadata.version(name)}\n" for name in packages))
