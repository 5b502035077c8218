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

Tensors are computed on where they are: in the host's memory by an OpenCL
device that is a CPU (if there is none, they are copied to the device that
there is, with a warning), and on GPUs of NVIDIA through CUDA's driver, on
PyTorch's current stream. A call whose kind is new compiles and cannot be
captured by a graph; later ones can. Tensors on other GPUs are refused.

Errors are those of winattn: TypeError, winattn.InvalidArgument,
winattn.Unsupported, winattn.OpenCLError, winattn.Error."""
from . import compat
from ._functions import (cosine_window_attention, grid_attention,
                         sliding_window_attention, window_attention)
from ._models import Report, accelerate

__all__ = ["Report", "accelerate", "compat", "cosine_window_attention",
           "grid_attention", "sliding_window_attention", "window_attention"]
