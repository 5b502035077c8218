# SPDX-License-Identifier: Apache-2.0
"""A call, from a function's arguments to its results: arrays, problem, plan,
launch."""
from __future__ import annotations

from ctypes import sizeof
from typing import Any, Mapping, NamedTuple

import numpy

from . import _library, _places
from ._arguments import names
from ._library import invalid
from ._plans import cache
from ._problem import Problem

# The arguments of the public functions that are arrays of the problem.
_INPUTS = ("q", "k", "v", "bias", "table", "mask", "logit_scale", "pad_k",
           "pad_v")
# Those that a kind lacks are as if they had not been given.
_ABSENT = {"cosine": False, "bias": None, "table": None, "table_window": None,
           "table_index": None, "table_sliced": False, "mask": None,
           "regions": None, "region_value": None, "logit_scale": None,
           "shift_mask": False}


class Gradients(NamedTuple):
    """What a backward function returns; None where it was not wanted, or where
    the input was not given. As large and of the same type as what they belong
    to, but for dbias and the last three, which are float32.

    dbias is the gradient of bias or of table."""
    dq: Any = None
    dk: Any = None
    dv: Any = None
    dbias: Any = None
    d_logit_scale: Any = None
    d_pad_k: Any = None
    d_pad_v: Any = None


def collect(arguments: Mapping[str, Any]) -> tuple[dict, dict]:
    """The arrays that were given, and all arguments with defaults for those
    that the function does not have."""
    given = {**_ABSENT, **arguments}
    if isinstance(given["mask"], str):
        if given["mask"] != "shift" or "shift" not in given:
            raise invalid(f"mask is {given['mask']!r}, and must be an array or"
                          " None, or of a grid also \"shift\"")
        given["shift_mask"], given["mask"] = True, None
    arrays = {name: given[name] for name in _INPUTS
              if given.get(name) is not None}
    if given["regions"] is not None:
        regions = given["regions"]
        both = regions if isinstance(regions, tuple) else (regions, regions)
        if len(both) != 2:
            raise invalid("regions must be an array, or two: those of queries "
                          "and those of keys")
        arrays["query_regions"], arrays["key_regions"] = both
        if given["shift_mask"]:
            given["shift_mask"] = False  # the default of a grid's mask
    for name in ("q", "k", "v"):
        if name not in arrays:
            raise TypeError(f"{name} must be an array, not None")
    return arrays, given


def make_problem(kind: str, arrays: Mapping[str, Any], more: Mapping[str, Any],
                 given: Mapping[str, Any], of_pass: int) -> Problem:
    """arrays: the library's inputs; more: what the pass has besides."""
    problem = Problem(kind, arrays, given)
    for name, array in more.items():
        problem.add(name, array)
    problem.desc.passes = of_pass
    return problem


def _layouts(place: Any, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name: place.layout(name, array) for name, array in arrays.items()}


def _fill(call: Any, place: Any, arrays: Mapping[str, Any]) -> None:
    for name, array in arrays.items():
        setattr(call, "bias" if name == "table" else name,
                place.load(name, array))


def _add_workspace(call: Any, place: Any, plan: Any) -> None:
    if plan.workspace:
        call.workspace = place.scratch(plan.workspace)


def forward(kind: str, arguments: Mapping[str, Any]) -> Any:
    """o, or (o, lse) where lse is asked for."""
    arrays, given = collect(arguments)
    outputs = {"out": given["out"]}
    lse = given["lse"]
    if not isinstance(lse, (bool, numpy.bool_, type(None))):
        outputs["lse"] = lse
    elif lse:
        outputs["lse"] = None  # an array is made
    named = {name: array for name, array in outputs.items()
             if array is not None}
    place = _places.place_of(arrays, named, given)
    problem = make_problem(kind, _layouts(place, arrays),
                           _layouts(place, named), given,
                           _library.PASS_FORWARD)
    plan = cache.get(place.context, place.device, problem)

    call = _library.Forward(struct_size=sizeof(_library.Forward))
    _fill(call, place, arrays)
    for name, array in outputs.items():
        setattr(call, "o" if name == "out" else name,
                place.make(name, problem.shape_of(name),
                           problem.dtype_of(name), array, False))
    _add_workspace(call, place, plan)
    place.enqueue(_library.library.winattn_enqueue_forward, plan.handle, call)
    results = tuple(place.take(name) for name in outputs)
    return results if "lse" in outputs else results[0]


# What a gradient is of; dq, dk and dv are always possible.
_NEEDS = {"dbias": ("bias", "table"), "d_logit_scale": ("logit_scale",),
          "d_pad_k": ("pad_k",), "d_pad_v": ("pad_v",)}


def _wanted(arrays: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """The gradients to compute, in the order of Gradients."""
    possible = [name for name in _library.GRADIENTS
                if name not in _NEEDS
                or any(need in arrays for need in _NEEDS[name])]
    if given["wanted"] is None:
        return possible
    wanted = names("wanted", given["wanted"])
    for name in wanted:
        if name not in _library.GRADIENTS:
            raise invalid(f"wanted has {name!r}, and must have names of "
                          f"{', '.join(_library.GRADIENTS)}")
        if name not in possible:
            raise invalid(f"{name} is wanted, but {_NEEDS[name][0]} was not "
                          "given")
    if not wanted:
        raise invalid("no gradient is wanted")
    return [name for name in possible if name in wanted]


def _accumulated(wanted: list[str], outputs: Mapping[str, Any],
                 given: Mapping[str, Any]) -> list[str]:
    accumulated = names("accumulate", given["accumulate"])
    for name in outputs:
        if name not in wanted:
            raise invalid(f"out has {name!r}, which is not computed")
    for name in accumulated:
        if outputs.get(name) is None:
            raise invalid(f"accumulate has {name!r}, but out has no such "
                          "array to add to")
    return accumulated


def backward(kind: str, arguments: Mapping[str, Any]) -> Gradients:
    arrays, given = collect(arguments)
    wanted = _wanted(arrays, given)
    outputs = {} if given["out"] is None else given["out"]
    if not isinstance(outputs, Mapping):
        raise TypeError("out must be a dictionary of arrays by the names of "
                        f"gradients, not {type(outputs).__name__}")
    accumulated = _accumulated(wanted, outputs, given)
    more = {name: given[name] for name in ("d_o", "o", "lse", "d_lse")
            if given[name] is not None}
    if "d_o" not in more:
        raise TypeError("d_o must be an array, not None")
    named = {name: array for name, array in outputs.items()
             if array is not None}
    place = _places.place_of({**arrays, **more}, named, given)
    problem = make_problem(kind, _layouts(place, arrays),
                           _layouts(place, {**more, **named}), given,
                           _library.PASS_BACKWARD)
    plan = cache.get(place.context, place.device, problem)

    call = _library.Backward(struct_size=sizeof(_library.Backward))
    _fill(call, place, {**arrays, **more})
    for name in wanted:
        setattr(call, name, place.make(
            name, problem.shape_of(name), problem.dtype_of(name),
            outputs.get(name), name in accumulated))
    for name in accumulated:
        call.accumulate |= 1 << _library.GRADIENTS.index(name)
    _add_workspace(call, place, plan)
    place.enqueue(_library.library.winattn_enqueue_backward, plan.handle, call)
    return Gradients(**{name: place.take(name) for name in wanted})
