# SPDX-License-Identifier: Apache-2.0
"""accelerate: window attention of models that others wrote, by winattn.

A module becomes one of a class derived from its own, whose forward computes
the same with winattn. So parameters, buffers, their names and what is known of
the module stay as they are."""
from __future__ import annotations

import dataclasses
import functools
from typing import Any, Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils import checkpoint

from ._functions import grid_attention, window_attention
from ._layout import heads_of

# Layers that make q, k and v of a token.
_PROJECTIONS = ("qkv", "query", "key", "value", "q_proj", "k_proj", "v_proj")
_KEPT = [torch.ops.winattn.window_attention.default,
         torch.ops.winattn.grid_attention.default]


# ---- What modules compute ----


def _swin_table(module: nn.Module) -> Tensor:
    return module.relative_position_bias_table


def _swin_v2_table(module: nn.Module) -> Tensor:
    """[entries, heads], as of Swin V2 (Liu et al. 2022, section 3.3)."""
    mlp = getattr(module, "cpb_mlp", None)
    if mlp is None:
        mlp = module.continuous_position_bias_mlp
    table = mlp(module.relative_coords_table)
    return 16 * table.view(-1, table.shape[-1]).sigmoid()


def _terms(module: nn.Module) -> dict[str, Any]:
    """Of window_attention."""
    window = list(module.window_size)
    if hasattr(module, "logit_scale"):
        return {"logit_scale": module.logit_scale, "table_window": window,
                "table": _swin_v2_table(module)}
    return {"table": _swin_table(module), "table_window": window,
            "scale": getattr(module, "scale", None)}


def _project(module: nn.Module, x: Tensor) -> Tensor:
    """[..., 3, heads, D], with a bias that may be of q and v alone. Without
    one the layer is called, which may be more than its weight (LoRA)."""
    if getattr(module, "q_bias", None) is None:
        qkv = module.qkv(x)
    else:
        bias, between = module.qkv.bias, getattr(module, "k_bias", None)
        if between is None:
            between = torch.zeros_like(module.v_bias)
        own = torch.cat((module.q_bias, between, module.v_bias))
        qkv = functional.linear(x, module.qkv.weight,
                                own if bias is None else bias + own)
    return heads_of(qkv, module.num_heads)


def _can_recompute(module: nn.Module) -> bool:
    """Do projections compute the same a second time, as far as one can see?"""
    layers = [getattr(module, name, None) for name in _PROJECTIONS]
    return all(type(each) is nn.Linear and not each._forward_hooks
               and not each._forward_pre_hooks
               for each in layers if each is not None)


def _attend(module: nn.Module, function: Callable, x: Tensor) -> Tensor:
    """function(x), which projects x and attends. Where the module recomputes,
    gradients project once more, so that q, k and v are not kept for them; what
    attention made is."""
    if not (getattr(module, "recomputes", False) and torch.is_grad_enabled()
            and _can_recompute(module)):
        return function(x)
    return checkpoint.checkpoint(
        function, x, use_reentrant=False, preserve_rng_state=False,
        context_fn=functools.partial(
            checkpoint.create_selective_checkpoint_contexts, _KEPT))


def _windows(module: nn.Module, x: Tensor, mask: Tensor | None = None
             ) -> Tensor:
    """WindowAttention of Microsoft and of timm."""
    o = _attend(module, lambda x: window_attention(
        _project(module, x), mask=mask, **_terms(module)), x)
    return module.proj_drop(module.proj(o.transpose(1, 2).flatten(2)))


def _map(module: nn.Module, x: Tensor) -> Tensor:
    """ShiftedWindowAttention and ShiftedWindowAttentionV2 of torchvision. What
    pads the map is projected there, to the bias."""
    weight, bias = module.qkv.weight, module.qkv.bias
    pads = None, None
    if bias is not None:
        of_q, of_k, of_v = bias.chunk(3)
        if hasattr(module, "logit_scale"):  # has none for k
            of_k = torch.zeros_like(of_k)
            bias = torch.cat((of_q, of_k, of_v))
        pads = [part.view(module.num_heads, -1) for part in (of_k, of_v)]
    o = _attend(module, lambda x: grid_attention(
        heads_of(functional.linear(x, weight, bias), module.num_heads),
        window=list(module.window_size), shift=list(module.shift_size),
        pad_k=pads[0], pad_v=pads[1], **_terms(module)), x)
    return functional.dropout(module.proj(o.flatten(3)), p=module.dropout,
                              training=module.training)


def _heads(tensor: Tensor, channels: int) -> Tensor:
    heads = tensor.shape[-1] // channels
    return heads_of(tensor, heads, 1).squeeze(-3).transpose(1, 2)


def _self_attention(module: nn.Module, x: Tensor, mask: Tensor | None = None,
                    *others: Any, **named: Any) -> tuple[Tensor]:
    """SwinSelfAttention of Transformers, and those of its relatives. Where
    there is a logit_scale, as in Swinv2SelfAttention, the mask is added
    twice."""
    terms = _terms(module)
    if mask is not None and "logit_scale" in terms:
        mask = 2 * mask

    def attend(x):
        return window_attention(
            *(_heads(layer(x), module.attention_head_size)
              for layer in (module.query, module.key, module.value)),
            mask=mask, **terms)

    o = _attend(module, attend, x)
    return (o.transpose(1, 2).flatten(2),)


def _attention(module: nn.Module, x: Tensor, mask: Tensor | None = None,
               **named: Any) -> tuple[Tensor, None]:
    """SwinAttention of Transformers from version 5 on."""
    bias = module.relative_position_bias

    def attend(x):
        return window_attention(
            *(_heads(layer(x), module.head_dim)
              for layer in (module.q_proj, module.k_proj, module.v_proj)),
            mask=mask, scale=module.scaling, table=_swin_table(bias),
            table_window=list(bias.window_size))

    o = _attend(module, attend, x)
    return module.o_proj(o.transpose(1, 2).flatten(2)), None


# ---- Which modules there are ----

@dataclasses.dataclass(frozen=True)
class _Kind:
    package: str
    names: tuple[str, ...]  # of its class
    has: tuple[str, ...]  # attributes that forward uses
    forward: Callable
    is_anyones: bool = False  # others have copies of it, to be compared


_KINDS = (
    _Kind("torchvision", ("ShiftedWindowAttention",
                          "ShiftedWindowAttentionV2"),
          ("qkv", "proj", "window_size", "shift_size", "num_heads"), _map),
    _Kind("transformers", ("SwinSelfAttention", "Swinv2SelfAttention",
                           "Swin2SRSelfAttention", "DonutSwinSelfAttention",
                           "MaskFormerSwinSelfAttention",
                           "ClapAudioSelfAttention"),
          ("query", "key", "value", "window_size", "attention_head_size"),
          _self_attention),
    _Kind("transformers", ("SwinAttention",),
          ("q_proj", "k_proj", "v_proj", "o_proj", "relative_position_bias",
           "scaling", "head_dim"), _attention),
    _Kind("timm", ("WindowAttention",),
          ("qkv", "proj", "proj_drop", "window_size", "num_heads",
           "relative_position_index"), _windows, True),
)


def _package(module: nn.Module) -> str:
    return type(module).__module__.partition(".")[0]


def _kind_of(module: nn.Module) -> _Kind | None:
    for kind in _KINDS:
        if ((kind.is_anyones or kind.package == _package(module))
                and type(module).__name__ in kind.names
                and all(hasattr(module, name) for name in kind.has)):
            return kind
    return None


def _dropout(module: nn.Module) -> float:
    """The probability with which it drops weights of attention."""
    for name in ("attn_drop", "attention_dropout", "dropout"):
        found = getattr(module, name, None)
        if name == "dropout" and not isinstance(found, nn.Dropout):
            continue  # torchvision's is that of the result
        if isinstance(found, (nn.Dropout, float, int)):
            return float(getattr(found, "p", found))
    return 0.0


def _wants_more(module: nn.Module, arguments: tuple, named: dict) -> bool:
    """Does the call want what winattn does not make: weights of attention, or
    a mask of heads?"""
    config = getattr(module, "config", None)
    return (any(each is not None and each is not False
                for each in arguments[2:])
            or bool(named.get("output_attentions"))
            or named.get("head_mask") is not None
            or bool(getattr(config, "output_attentions", False)))


def _is_known(device: torch.device) -> bool:
    return device.type == "cpu" or (device.type == "cuda"
                                    and not torch.version.hip)


# ---- Replacing them ----

# of arguments, in Transformers and here
_NAMES = {"hidden_states": "x", "attention_mask": "mask"}


@functools.lru_cache(maxsize=None)
def _class_of(base: type, kind: _Kind) -> type:
    def forward(self, *arguments: Any, **named: Any) -> Any:
        ours = {_NAMES.get(name, name): value for name, value in named.items()}
        x = arguments[0] if arguments else ours.get("x")
        if (x is None or not _is_known(x.device) or x.dtype == torch.float64
                or self.training and _dropout(self) > 0
                or _wants_more(self, arguments, named)):
            return base.forward(self, *arguments, **named)
        return kind.forward(self, *arguments, **ours)

    def reduce(self, protocol: int) -> tuple:
        return _restore, (base,), self.__dict__

    return type(base.__name__, (base,), {
        "forward": forward, "__reduce_ex__": reduce, "is_accelerated": True,
        "__module__": base.__module__, "__doc__": base.__doc__})


def _restore(base: type) -> nn.Module:
    """An accelerated module that was pickled, before it has its state."""
    module = base.__new__(base)
    for kind in _KINDS:
        if base.__name__ in kind.names:
            module.__class__ = _class_of(base, kind)
            break
    return module


def _disagrees(module: nn.Module, kind: _Kind) -> str:
    """Of a class that winattn knows by its name only: why it computes
    something else, "" if it does not."""
    was_training = module.training
    module.eval()
    try:
        tokens = module.window_size[0] * module.window_size[1]
        weight = module.qkv.weight
        width = (weight() if callable(weight) else weight).shape[1]
        like = _terms(module)["table"].new_empty
        x = like(4, tokens, width).normal_()
        mask = like(2, tokens, tokens).zero_()
        mask[1, :, : tokens // 2] = -100
        with torch.no_grad():
            for arguments in ((x,), (x, mask)):
                wanted = module(*arguments).float()
                made = kind.forward(module, *arguments).float()
                error = (wanted - made).abs().max() / wanted.abs().max()
                if not error < 0.02:
                    return (f"it computes something else (by {error:.2g} of "
                            "the largest result)")
    except Exception as failure:  # of code that nobody here knows
        return f"it does not compute what was expected: {failure}"
    finally:
        module.train(was_training)
    return ""


@dataclasses.dataclass
class Report:
    """What accelerate did: names of modules, and a note for each."""
    replaced: dict[str, str]
    left: dict[str, str]

    def __str__(self) -> str:
        lines = [f"{len(self.replaced)} replaced, {len(self.left)} left"]
        lines += [f"  {name}: {note}" for notes in (self.replaced, self.left)
                  for name, note in notes.items()]
        return "\n".join(lines)


def accelerate(model: nn.Module, recompute: bool = False) -> Report:
    """Makes winattn compute the window attention of a Swin or Swin V2 of
    torchvision, timm, Transformers or Microsoft: in place, whatever model it
    is part of. Parameters keep their names, so that a checkpoint loads as
    before.

    A module that drops weights of attention (attn_drop) computes as before
    while it trains. So does a call with tensors of a GPU that is not NVIDIA's
    or in float64, or one that wants attention's weights.

    recompute: gradients compute q, k and v of a module once more, instead of
    keeping them: less memory for one more product. Where its projections are
    more than plain layers (LoRA, hooks), they are kept.

    Returns what was replaced, and what was left and why. TypeError: model is
    no module."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}, and must be a "
                        "module of PyTorch")
    report = Report({}, {})
    for name, module in list(model.named_modules()):
        if getattr(module, "is_accelerated", False):
            report.left[name] = "was replaced before"
            continue
        kind = _kind_of(module)
        if kind is None:
            own = type(module).__name__
            if "Attention" in own and (
                    "Window" in own
                    or hasattr(module, "relative_position_index")):
                report.left[name] = (
                    f"{type(module).__module__}.{own} is not known")
            continue
        reason = ("" if kind.package == _package(module)
                  else _disagrees(module, kind))
        if reason:
            report.left[name] = reason
            continue
        module.__class__ = _class_of(type(module), kind)
        module.recomputes = bool(recompute)
        chance = _dropout(module)
        report.replaced[name] = kind.forward.__doc__.split(".")[0] if (
            not chance) else (f"computes as before while it trains, as it "
                              f"drops weights ({chance})")
    return report
