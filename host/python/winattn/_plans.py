# SPDX-License-Identifier: Apache-2.0
"""Plans of the library, kept by what they compute."""
from __future__ import annotations

import atexit
import collections
import ctypes
import sys
import threading
from ctypes import byref, c_size_t, c_void_p

from . import _library, _opencl
from ._arguments import whole
from ._problem import Problem

CacheInfo = collections.namedtuple(
    "CacheInfo", "hits misses size most evicted")
CacheInfo.__doc__ = "What the cache of plans has done; see plan_cache_info."


class Plan:
    """A plan of the library. It is destroyed with the last reference, so never
    beside a call of another thread that still uses it."""

    def __init__(self, context: int, device: int,
                 desc: _library.Desc) -> None:
        self.handle = c_void_p()
        self._destroy = _library.library.winattn_plan_destroy
        _library.check(_library.library.winattn_plan_create(
            context, device, byref(desc), byref(self.handle)))
        size = c_size_t()
        _library.check(_library.library.winattn_plan_workspace_size(
            self.handle, byref(size)))
        self.workspace = size.value

    def __del__(self) -> None:
        if _opencl.is_usable():
            self._destroy(self.handle)

    def describe(self) -> str:
        describe = _library.library.winattn_plan_describe
        needed = c_size_t()
        _library.check(describe(self.handle, 0, None, byref(needed)))
        text = ctypes.create_string_buffer(needed.value)
        _library.check(describe(self.handle, needed, text, None))
        return text.value.decode()


class Cache:
    """The plans that were used last. A key names a context by its handle,
    which nothing else can have as long as the plan lives: the plan retains
    the context."""

    def __init__(self, most: int) -> None:
        self._lock = threading.Lock()
        self._plans: collections.OrderedDict = collections.OrderedDict()
        self._most = most
        self._hits = self._misses = self._evicted = 0

    def get(self, context: int, device: int, problem: Problem) -> Plan:
        key = (context, device, problem.key())
        with self._lock:
            plan = self._plans.get(key)
            if plan:
                self._plans.move_to_end(key)
                self._hits += 1
                return plan
            self._misses += 1
        # Compiling takes seconds, in which other threads go on. One that makes
        # the same plan meanwhile shares the kernels, and keeps its own plan.
        plan = Plan(context, device, problem.complete_desc())
        with self._lock:
            dropped = [self._plans.pop(key, None)]
            self._plans[key] = plan
            dropped += self._shrink()
        del dropped  # plans are destroyed here, outside the lock
        return plan

    def _shrink(self) -> list[Plan]:
        dropped = []
        while len(self._plans) > self._most:
            dropped.append(self._plans.popitem(last=False)[1])
            self._evicted += 1
        return dropped

    def resize(self, most: int) -> None:
        with self._lock:
            self._most = most
            dropped = self._shrink()
        del dropped

    def clear(self) -> None:
        with self._lock:
            dropped, self._plans = self._plans, collections.OrderedDict()
        del dropped

    def info(self) -> CacheInfo:
        with self._lock:
            return CacheInfo(self._hits, self._misses, len(self._plans),
                             self._most, self._evicted)

    def describe(self) -> list[str]:
        _opencl.check_process()
        with self._lock:
            plans = list(self._plans.values())
        return [plan.describe() for plan in plans]


cache = Cache(64)


def _close() -> None:
    """At the end of the program: plans first, then what they were made for."""
    if not _opencl.is_usable():
        return
    cache.resize(0)
    _opencl.close_sessions()


atexit.register(_close)


def set_plan_cache_size(most: int) -> None:
    """Keeps at most so many plans, 64 at the start; those that were used last
    stay. With 0 each call makes its plan anew; compiled kernels stay on disk
    all the same (set_cache_dir)."""
    cache.resize(whole("most", most, most=sys.maxsize))


def clear_plan_cache() -> None:
    """Destroys all plans that are kept, with the contexts that they retain."""
    cache.clear()


def plan_cache_info() -> CacheInfo:
    """(hits, misses, size, most, evicted): calls that found their plan and
    calls that did not, plans that are kept, how many may be, and how many had
    to go."""
    return cache.info()


def describe_plans() -> list[str]:
    """For each plan that is kept, the one used last at the end: lines "name:
    value" that say which kernel it took, and why."""
    return cache.describe()
