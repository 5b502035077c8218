# SPDX-License-Identifier: Apache-2.0
"""The operators winattn::window_attention, ::grid_attention and
::sliding_attention, each with its gradient, ..._backward, as torch.library
knows them: what they take, the shapes of what they return, and which operator
computes their gradients. _run computes.

An operator takes q, k and v, or all three packed in q. It returns o, which
lies in memory as q does, and lse."""
from __future__ import annotations

from typing import Any, Callable

import torch

from . import _cuda, _run
from ._layout import (DIFFERENTIATED, empty_gradients, empty_like_tokens,
                      split)

# ---- Schemas ----

_TENSORS = "Tensor q, Tensor? k, Tensor? v"
_TERMS = ("Tensor? logit_scale, Tensor? bias, Tensor? mask, "
          "Tensor? query_regions, Tensor? key_regions, Tensor? table_index")
_TERM_OPTIONS = ("float? scale, bool cosine, int[] table_window, "
                 "bool table_sliced, float? region_value")
# kind: its tensors, its other arguments
_ARGUMENTS = {
    "window": (f"{_TENSORS}, {_TERMS}", _TERM_OPTIONS),
    "grid": (f"{_TENSORS}, {_TERMS}, Tensor? pad_k, Tensor? pad_v",
             f"{_TERM_OPTIONS}, int[] window, int[] shift, "
             "bool[] periodic, str padding, bool roll_first, bool shift_mask"),
    "sliding": (_TENSORS,
                "float? scale, int block, int first_block, int window_blocks, "
                "int sink, bool sink_in_window, int query_offset"),
}


def _names(arguments: str) -> list[str]:
    return [each.split()[-1] for each in arguments.split(",")]


# ---- Shapes ----

def _fake_forward(kind: str) -> Callable:
    def fake(q, k, v, *rest):
        q = split(kind, q, k, v)[0]
        return (empty_like_tokens(kind, q),
                q.new_empty(q.shape[:-1], dtype=torch.float32))
    return fake


def _fake_backward(kind: str) -> Callable:
    tensors = _names(_ARGUMENTS[kind][0])

    def fake(*given):
        wanted, given = given[-1], dict(zip(tensors, given))
        return empty_gradients(kind, given, wanted)
    return fake


# ---- Gradients ----

def _with_strides(gradient: torch.Tensor | None) -> torch.Tensor | None:
    """A gradient that may be one number for all, as that of a sum is."""
    if gradient is None or gradient.dim() == 0 or gradient.stride(-1) == 1:
        return gradient
    return gradient.contiguous()


class _Once(torch.autograd.Function):
    """What computes gradients, which have none themselves."""

    @staticmethod
    def forward(ctx, run, *given):
        return tuple(run(*given))

    @staticmethod
    def backward(ctx, *gradients):
        raise NotImplementedError(
            "winattn computes no second derivatives (create_graph=True, or a "
            "gradient of a gradient)")


def differentiable(kind: str, gradients: Callable) -> type:
    """An attention, and the operator `gradients` that computes its own."""
    tensors, options = map(_names, _ARGUMENTS[kind])
    count = len(tensors)

    class Attention(torch.autograd.Function):

        @staticmethod
        def forward(ctx, run, *given):
            for name, needs in zip(tensors, ctx.needs_input_grad[1:]):
                if needs and name not in DIFFERENTIATED:
                    raise NotImplementedError(
                        f"{name} requires a gradient, and winattn computes "
                        f"none: pass {name}.detach()")
            made = tuple(run(*given))
            ctx.set_materialize_grads(False)  # no zeros for an lse unused
            ctx.options = given[count:]
            ctx.save_for_backward(*given[:count], *made)
            return made

        @staticmethod
        def backward(ctx, d_o, d_lse):
            *given, o, lse = ctx.saved_tensors
            needs = ctx.needs_input_grad[1:count + 1]
            needed = dict(zip(tensors, needs))
            wanted = [needed.get(name, False) for name in DIFFERENTIATED]
            if d_o is None:
                d_o = torch.zeros_like(o)
            made = iter(gradients(*given, _with_strides(d_o), o, lse,
                                  _with_strides(d_lse), *ctx.options, wanted))
            return (None, *(next(made).to(each.dtype) if need else None
                            for each, need in zip(given, needs)),
                    *[None] * len(options))
    return Attention


# dispatch keys of a call that nothing but a kernel for CUDA is to see
_CUDA = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA).raw_repr()


def autograd(operator: Any, count: int, on_cuda: Callable, function: type
             ) -> Callable:
    """What is registered as an operator's "Autograd". It passes a function of
    autograd what computes the operator, and its arguments, the first `count`
    of which are tensors or None. torch.library.register_autograd does the
    same, but with it PyTorch reads the schema anew for each of the arguments
    in each call, which takes longer than all else (2.15: 80 us of 110).
    on_cuda: what is registered for "CUDA". It is called without another trip
    through PyTorch's dispatcher."""
    def compute(keyset, *given):
        keyset = keyset & torch._C._after_autograd_keyset

        def below(*given):
            with torch._C._AutoDispatchBelowAutograd():
                return operator.redispatch(keyset, *given)

        run = on_cuda if keyset.raw_repr() == _CUDA else below
        if torch.is_grad_enabled():
            for each in given[:count]:
                if each is not None and each.requires_grad:
                    return function.apply(run, *given)
        return run(*given)
    return compute


# ---- Registration ----

_library = torch.library.Library("winattn", "DEF")


def _define(kind: str, name: str, tensors: str, options: str, results: str,
            fake: Callable, function: type) -> Any:
    """An operator, and what computes it where."""
    _library.define(f"{name}({tensors}, {options}) -> {results}")
    operator = getattr(torch.ops.winattn, name).default
    names, more = _names(tensors), options.split(",")
    count = len(names)
    lists = [i - len(more) for i, each in enumerate(more) if "[]" in each]
    names += _names(options)
    on_cuda = _cuda.implementation(kind, names, count, lists)
    _library.impl(name, lambda *given: _run.compute(
        kind, dict(zip(names, given))), "CPU")
    _library.impl(name, on_cuda, "CUDA")
    _library.impl(name, autograd(operator, count, on_cuda, function),
                  "Autograd", with_keyset=True)
    torch.library.register_fake(operator, fake, lib=_library)
    return operator


def _register(kind: str) -> None:
    tensors, options = _ARGUMENTS[kind]
    name = f"{kind}_attention"
    gradients = _define(
        kind, f"{name}_backward",
        f"{tensors}, Tensor d_o, Tensor o, Tensor lse, Tensor? d_lse",
        f"{options}, bool[] wanted", "Tensor[]", _fake_backward(kind), _Once)
    _define(kind, name, tensors, options, "(Tensor, Tensor)",
            _fake_forward(kind), differentiable(kind, gradients))


for _kind in _ARGUMENTS:
    _register(_kind)
