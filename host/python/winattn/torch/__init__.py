# SPDX-License-Identifier: Apache-2.0
"""winattn for PyTorch: windowed attention as operators with gradients.

    window_attention          windows that are there already (Swin, HAT)
    cosine_window_attention   the same as Swin V2 computes it
    grid_attention            windows of a map, shifted or not, in place
    sliding_window_attention  blocks of tokens, each seeing those before it
    accelerate                models of others compute with these
    compat                    names and signatures of Triton's projects

torch.compile and torch.export take them without a graph break. Under autocast
q, k and v are cast as those of a matrix product are. Results and gradients
are the same in every run. Second derivatives are not computed, and refused.

Tensors must be in the host's memory. An OpenCL device that is a CPU computes
on them where they are; if there is none, they are copied to the device that
there is, with a warning. Tensors on GPUs are refused.

Errors are those of winattn: TypeError, winattn.InvalidArgument,
winattn.Unsupported, winattn.OpenCLError."""
from . import compat
from ._functions import (cosine_window_attention, grid_attention,
                         sliding_window_attention, window_attention)
from ._models import Report, accelerate

__all__ = ["Report", "accelerate", "compat", "cosine_window_attention",
           "grid_attention", "sliding_window_attention", "window_attention"]
