# SPDX-License-Identifier: Apache-2.0
"""Windowed attention on every OpenCL device.

    window_attention   windows that are there already (Swin, Swin V2, HAT)
    grid_attention     windows of a map, shifted or not, where its tokens are
    sliding_attention  blocks of tokens, each seeing those before it

and the gradients of each, ..._backward. Arrays are numpy's or pyopencl's.

Every function may be called from any thread. Failures are exceptions, see
Error; nothing is computed then."""
from ._attention import (grid_attention, grid_attention_backward,
                         sliding_attention, sliding_attention_backward,
                         split_qkv, window_attention,
                         window_attention_backward)
from ._calls import Gradients
from ._library import (Error, InvalidArgument, OpenCLError, Unsupported,
                       load_tuning, set_cache_dir)
from ._opencl import (Device, default_device, devices, loader_path,
                      set_device)
from ._plans import (CacheInfo, clear_plan_cache, describe_plans,
                     plan_cache_info, set_plan_cache_size)
from ._version import VERSION as __version__

__all__ = [
    "CacheInfo", "Device", "Error", "Gradients", "InvalidArgument",
    "OpenCLError", "Unsupported", "__version__", "clear_plan_cache",
    "default_device", "describe_plans", "devices", "grid_attention",
    "grid_attention_backward", "load_tuning", "loader_path",
    "plan_cache_info", "set_cache_dir", "set_device", "set_plan_cache_size",
    "sliding_attention", "sliding_attention_backward", "split_qkv",
    "window_attention", "window_attention_backward",
]
