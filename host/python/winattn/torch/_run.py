# SPDX-License-Identifier: Apache-2.0
"""An operator's arguments -> winattn's own functions: tensors of the host's
memory become arrays of numpy that lie on them, and an OpenCL device that
computes there reads and writes them where they are."""
from __future__ import annotations

import functools
import warnings
from typing import Any, Callable, Sequence

import numpy
import torch

from .. import _attention, _opencl
from . import _layout

_FORWARD = {"window": _attention.window_attention,
            "grid": _attention.grid_attention,
            "sliding": _attention.sliding_attention}
_BACKWARD = {"window": _attention.window_attention_backward,
             "grid": _attention.grid_attention_backward,
             "sliding": _attention.sliding_attention_backward}
# gradients of _layout.DIFFERENTIATED as winattn's functions call them
_GRADIENTS = dict(zip(_layout.DIFFERENTIATED,
                      ("dq", "dk", "dv", "d_logit_scale", "dbias", "d_pad_k",
                       "d_pad_v")))


@functools.lru_cache(maxsize=None)
def _device() -> _opencl.Device:
    """The device for tensors in the host's memory."""
    devices = [device for device in (_opencl.default_device(),
                                     *_opencl.devices())
               if device.type == "cpu"]
    if devices:
        return devices[0]
    device = _opencl.default_device()
    warnings.warn(f"OpenCL has no CPU here (PoCL would be one): winattn copies"
                  f" tensors to {device} and back", stacklevel=2)
    return device


def _array(tensor: torch.Tensor, whole: Any = None) -> numpy.ndarray:
    """On the tensor's memory. numpy knows no bfloat16, so its bits."""
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.uint16)
    return tensor.numpy()


def arguments(kind: str, given: dict[str, Any], array: Callable
              ) -> dict[str, Any]:
    """Of winattn's function of that kind, but for outputs. array: what stands
    for a tensor, and of a packed one for its part."""
    made = {name: array(value) if isinstance(value, torch.Tensor)
            and name not in ("q", "k", "v", "table_index") else value
            for name, value in given.items()
            if value is not None and name != "wanted"}
    q, k, v = given["q"], given["k"], given["v"]
    for name, part, whole in zip("qkv", _layout.split(kind, q, k, v),
                                 (q, q if k is None else k,
                                  q if v is None else v)):
        made[name] = array(part, whole)
    if q.dtype == torch.bfloat16:
        made["dtype"] = "bfloat16"
    queries, keys = (made.pop(f"{name}_regions", None)
                     for name in ("query", "key"))
    if queries is not None:
        made["regions"] = queries if keys is None else (queries, keys)
    window = made.pop("table_window", None)
    if window or "table_index" in made:
        made["table"] = made.pop("bias")
        if window:
            made["table_window"] = window
    if kind == "grid":
        is_masked = "mask" in made or "regions" in made
        if not made.pop("shift_mask") and not is_masked:
            made["mask"] = None
    for name in ("first_block", "window_blocks"):
        if not made.get(name, 1):
            del made[name]  # none was given
    return made


def empty_results(kind: str, given: dict[str, Any]
                  ) -> tuple[torch.Tensor, torch.Tensor]:
    """Memory for o and lse."""
    q = _layout.split(kind, given["q"], given["k"], given["v"])[0]
    return (_layout.empty_like_tokens(kind, q),
            q.new_empty(q.shape[:-1], dtype=torch.float32))


def outputs(kind: str, given: dict[str, Any], wanted: list[bool],
            gradients: list[torch.Tensor], array: Callable) -> dict[str, Any]:
    """Arrays for gradients, as winattn's functions call them."""
    names = [name for name, is_wanted in
             zip(_layout.DIFFERENTIATED, wanted) if is_wanted]
    made = {}
    for name, gradient in zip(names, gradients):
        if name == "q" and given["k"] is None:
            parts = _layout.split(kind, gradient, None, None)
            made.update({f"d{part_name}": array(part, gradient)
                         for part_name, part in zip("qkv", parts)})
        else:
            made[_GRADIENTS[name]] = array(gradient)
    return made


def _host_arguments(kind: str, given: dict[str, Any]) -> dict[str, Any]:
    made = arguments(kind, given, _array)
    if "table_index" in made:
        made["table_index"] = made["table_index"].to(
            "cpu", torch.int32).numpy()
    return {**made, "device": _device()}


def _forward(kind: str, given: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    o, lse = empty_results(kind, given)
    _FORWARD[kind](**_host_arguments(kind, given), out=_array(o),
                   lse=_array(lse))
    return o, lse


def _backward(kind: str, given: dict[str, Any]) -> list[torch.Tensor]:
    wanted = given["wanted"]
    gradients = _layout.empty_gradients(kind, given, wanted)
    out = outputs(kind, given, wanted, gradients, _array)
    _BACKWARD[kind](**_host_arguments(kind, given), wanted=tuple(out),
                    out=out)
    return gradients


def compute(kind: str, given: dict[str, Any]) -> Sequence[torch.Tensor]:
    """The results of an operator with these arguments."""
    return (_backward if "wanted" in given else _forward)(kind, given)
