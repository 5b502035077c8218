# SPDX-License-Identifier: Apache-2.0
"""What a caller may give as a number, a flag, a choice or a list of names.
What is something else, such as 4.0 for a size, or None for a flag, is refused
by the argument's name: nothing is guessed."""
from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Callable

import numpy

from ._library import invalid


def whole(name: str, number: Any, least: int = 0, most: int = 2**32 - 1
          ) -> int:
    """Of Python, of numpy or of others that count (__index__)."""
    try:
        if isinstance(number, (bool, numpy.bool_)):
            raise TypeError
        count = operator.index(number)
    except TypeError:
        raise TypeError(
            f"{name} must be a whole number, not {number!r}") from None
    if not least <= count <= most:
        raise invalid(f"{name} is {count}, and must be {least} to {most}")
    return count


def size(name: str, number: Any) -> int:
    return whole(name, number, 1)


def real(name: str, number: Any) -> float:
    try:
        # float() would take these, too
        if numpy.ndim(number) or numpy.asarray(number).dtype.kind in "bcmMSU":
            raise TypeError
        return float(number)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{name} must be a number, not {number!r}") from None


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, numpy.bool_)) and not (
            isinstance(value, numpy.ndarray) and value.ndim == 0
            and value.dtype == bool):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    return bool(value)


def several(value: Any) -> bool:
    """A sequence, or an array of one axis; not one value."""
    return (isinstance(value, Sequence) and not isinstance(value, (str, bytes))
            or getattr(value, "ndim", 0) == 1)


def each(name: str, value: Any, count: int, read: Callable[[str, Any], Any]
         ) -> list:
    """`count` values, or one for all axes of a grid."""
    values = list(value) if several(value) else [value] * count
    if len(values) != count:
        raise invalid(f"{name} has {len(values)} values, and the grid {count} "
                      "axes")
    return [read(name, one) for one in values]


def choice(name: str, value: Any, values: tuple[str, ...]) -> int:
    if not isinstance(value, str) or value not in values:
        raise invalid(f"{name} is {value!r}, and must be one of "
                      f"{', '.join(map(repr, values))}")
    return values.index(value)


def names(name: str, value: Any) -> list:
    """One name, or several."""
    try:
        return [value] if isinstance(value, str) else list(value)
    except TypeError:
        raise TypeError(f"{name} must be names of gradients, not {value!r}"
                        ) from None
