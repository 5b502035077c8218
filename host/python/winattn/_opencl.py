# SPDX-License-Identifier: Apache-2.0
"""OpenCL as far as numpy arrays need it, and which OpenCL that is.

A handle of OpenCL (a buffer, a queue) belongs to the loader that made it, and
pyopencl's wheels bring a loader of their own. So the library, which is linked
to none, is given the functions that pyopencl calls, where it is installed,
even if only arrays of numpy come first; else the system's. WINATTN_OPENCL
names another library instead. The choice is made once, at the first use of
OpenCL."""
from __future__ import annotations

import ctypes
import dataclasses
import importlib
import os
import pathlib
import sys
import threading
from ctypes import (POINTER, byref, c_int32, c_size_t, c_uint32, c_uint64,
                    c_void_p)
from typing import Any, Iterator

import numpy

from . import _library
from ._driver import NVIDIA, Driver

# From the headers of OpenCL.
_PLATFORM_NAME = 0x0902
_DEVICE_TYPE, _DEVICE_NAME = 0x1000, 0x102B
_DEVICE_VERSION, _DEVICE_MEMORY = 0x102F, 0x101F
_DEVICE_UUID = 0x106A
_TYPES = {1 << 1: "cpu", 1 << 2: "gpu", 1 << 3: "accelerator"}
_ALL_TYPES = 0xFFFFFFFF
_CONTEXT_PLATFORM = 0x1084
_READ_WRITE, _USE_HOST, _COPY_HOST = 1 << 0, 1 << 3, 1 << 5
_MAP_READ = 1 << 0
_DEVICE_NOT_FOUND, _INVALID_CONTEXT, _NO_PLATFORM = -1, -34, -1001

# name: arguments; those that make an object return it, the others a status
_FUNCTIONS = {
    "clGetPlatformIDs": (c_uint32, POINTER(c_void_p), POINTER(c_uint32)),
    "clGetPlatformInfo": (c_void_p, c_uint32, c_size_t, c_void_p,
                          POINTER(c_size_t)),
    "clGetDeviceIDs": (c_void_p, c_uint64, c_uint32, POINTER(c_void_p),
                       POINTER(c_uint32)),
    "clGetDeviceInfo": (c_void_p, c_uint32, c_size_t, c_void_p,
                        POINTER(c_size_t)),
    "clCreateContext": (POINTER(c_void_p), c_uint32, POINTER(c_void_p),
                        c_void_p, c_void_p, POINTER(c_int32)),
    "clCreateCommandQueue": (c_void_p, c_void_p, c_uint64, POINTER(c_int32)),
    "clCreateBuffer": (c_void_p, c_uint64, c_size_t, c_void_p,
                       POINTER(c_int32)),
    "clEnqueueReadBuffer": (c_void_p, c_void_p, c_uint32, c_size_t, c_size_t,
                            c_void_p, c_uint32, c_void_p, c_void_p),
    "clEnqueueMapBuffer": (c_void_p, c_void_p, c_uint32, c_uint64, c_size_t,
                           c_size_t, c_uint32, c_void_p, c_void_p,
                           POINTER(c_int32)),
    "clEnqueueUnmapMemObject": (c_void_p, c_void_p, c_void_p, c_uint32,
                                c_void_p, c_void_p),
    "clFinish": (c_void_p,),
    "clReleaseMemObject": (c_void_p,),
    "clReleaseCommandQueue": (c_void_p,),
    "clReleaseContext": (c_void_p,),
}


# ---- Which OpenCL ----

def _of_pyopencl() -> Iterator[str]:
    """Libraries in which the functions are found that pyopencl calls."""
    try:
        # The loader in its wheels crashes before this import, which sets the
        # environment variables that it reads.
        module = importlib.import_module("pyopencl._cl").__file__
    except Exception:  # it may be installed and fail in its own ways
        return
    if not module:
        return
    if sys.platform == "win32":
        # a module shows its own functions only, so the loader that its wheel
        # brings is looked for by its name
        beside = pathlib.Path(module).parent.with_name("pyopencl.libs")
        yield from map(str, sorted(beside.glob("opencl*.dll")))
    else:
        # a name is looked up in what the module is linked to as well
        yield module


def _of_system() -> Iterator[str]:
    if sys.platform == "win32":
        yield "OpenCL.dll"
    elif sys.platform == "darwin":
        yield "/System/Library/Frameworks/OpenCL.framework/OpenCL"
    else:
        yield "libOpenCL.so.1"
        yield "libOpenCL.so"
        yield NVIDIA


def _open(path: str) -> Any:
    """A loader, or a driver.

    OSError: it is neither."""
    loaded = ctypes.CDLL(path)
    return loaded if hasattr(loaded, "clGetDeviceIDs") else Driver(path)


def _load_first(paths: Iterator[str]) -> tuple[Any, str] | None:
    for path in paths:
        try:
            return _open(path), path
        except OSError:
            continue
    return None


def _bind(loaded: Any, path: str) -> None:
    """Gives the library its functions of OpenCL."""
    def find(name: bytes) -> int | None:
        function = getattr(loaded, name.decode(), None)
        return ctypes.cast(function, c_void_p).value if function else None

    missing = _library.library.winattn_bind_opencl(
        _library.FIND_FUNCTION(find))
    if missing:
        raise _library.opencl_error(_NO_PLATFORM,
                                    f"{path} has no {missing.decode()}")


_lock = threading.Lock()
_chosen: tuple[Any, str] | None = None
_user: int | None = None  # the process that uses OpenCL


def is_usable() -> bool:
    """Not so in a process that was forked since OpenCL was used: a driver's
    threads do not come along, so that a call may wait for ever."""
    return _user in (None, os.getpid())


def check_process() -> None:
    if not is_usable():
        raise _library.opencl_error(
            _INVALID_CONTEXT, "OpenCL was used before this process was forked,"
            " and does not survive that: start processes by the method "
            "\"spawn\" or \"forkserver\" of multiprocessing")


def load() -> Any:
    """OpenCL, after the library has its functions too."""
    return _choose()[0]


def _choose() -> tuple[Any, str]:
    global _chosen, _user
    check_process()  # first, as a fork keeps locks that others held
    with _lock:
        if _chosen:
            return _chosen
        _user = os.getpid()
        named = os.environ.get("WINATTN_OPENCL")
        if named:
            chosen = _load_first(iter([named]))
        else:
            chosen = _load_first(_of_pyopencl()) or _load_first(_of_system())
        if not chosen:
            _user = None
            raise _library.opencl_error(
                _NO_PLATFORM, f"there is no OpenCL in {named}" if named else
                f"OpenCL is not installed: there is no "
                f"{' nor '.join(_of_system())}, which comes with the device's "
                "driver, or with PoCL for CPUs")
        # each CDLL has declarations of its own, so nobody else's count here
        for name, arguments in _FUNCTIONS.items():
            function = getattr(chosen[0], name, None)
            if function is None:
                continue  # of what this driver's devices do not need
            function.argtypes = arguments
            makes = name.startswith(("clCreate", "clEnqueueMap"))
            function.restype = c_void_p if makes else c_int32
        _bind(*chosen)
        _chosen = chosen
        return chosen


def loader_path() -> str:
    """The library from which the functions of OpenCL are taken: that of
    WINATTN_OPENCL, pyopencl's module (which is linked to its loader), or the
    system's loader."""
    return _choose()[1]


def _check(status: int, what: str) -> None:
    if status != 0:
        raise _library.opencl_error(status, f"{what} failed")


# ---- Devices ----

@dataclasses.dataclass(frozen=True)
class Device:
    """A device of OpenCL."""
    platform: str
    name: str
    type: str  # "gpu", "cpu", "accelerator" or "other"
    version: str  # of OpenCL, as the device says it
    memory: int  # bytes
    id: int = dataclasses.field(repr=False)  # cl_device_id
    platform_id: int = dataclasses.field(repr=False)  # 0: unknown

    def __str__(self) -> str:
        return f"{self.platform} / {self.name}"


def _info(function, handle: int, name: int) -> bytes:
    size = c_size_t()
    _check(function(handle, name, 0, None, byref(size)), "a query")
    value = ctypes.create_string_buffer(size.value)
    _check(function(handle, name, size, value, None), "a query")
    return value.raw


def _string(function, handle: int, name: int) -> str:
    return (_info(function, handle, name).rstrip(b"\0").decode(
        "utf-8", "replace").strip())


def _number(function, handle: int, name: int) -> int:
    return int.from_bytes(_info(function, handle, name), sys.byteorder)


def _handles(function, *where) -> list[int]:
    count = c_uint32()
    status = function(*where, 0, None, byref(count))
    if status in (_DEVICE_NOT_FOUND, _NO_PLATFORM) or not count.value:
        return []
    _check(status, "the list of devices")
    handles = (c_void_p * count.value)()
    _check(function(*where, count, handles, None), "the list of devices")
    return list(handles)


def devices() -> list[Device]:
    """All devices that OpenCL has, platform by platform.

    OpenCLError: there is no OpenCL on this machine."""
    return _devices_of(_handles(load().clGetPlatformIDs))


def devices_of_driver(path: str) -> list[Device]:
    """Those that the loader may not know of, [] where there is no driver."""
    try:
        found = _devices_of(Driver(path).platforms())
    except OSError:
        return []
    # a loader may refuse the handle of a platform that it did not give
    return [dataclasses.replace(device, platform_id=0) for device in found]


def _devices_of(platforms: list[int]) -> list[Device]:
    cl = load()
    found = []
    for platform in platforms:
        platform_name = _string(cl.clGetPlatformInfo, platform, _PLATFORM_NAME)
        for device in _handles(cl.clGetDeviceIDs, platform, _ALL_TYPES):
            kind = _number(cl.clGetDeviceInfo, device, _DEVICE_TYPE)
            found.append(Device(
                platform_name,
                _string(cl.clGetDeviceInfo, device, _DEVICE_NAME),
                next((name for bit, name in _TYPES.items() if kind & bit),
                     "other"),
                _string(cl.clGetDeviceInfo, device, _DEVICE_VERSION),
                _number(cl.clGetDeviceInfo, device, _DEVICE_MEMORY),
                device, platform))
    return found


def uuid_of(device: Device) -> bytes | None:
    """16 bytes by which other runtimes know it, too; None: it has none."""
    try:
        return _info(load().clGetDeviceInfo, device.id, _DEVICE_UUID)
    except _library.OpenCLError:
        return None


_default: Device | None = None


def default_device() -> Device:
    """The device for numpy arrays, chosen at the first call: that of
    set_device; else the first whose "platform / name" contains what the
    environment variable WINATTN_DEVICE says; else the first GPU, the first
    accelerator, the first device.

    OpenCLError: there is none."""
    global _default
    check_process()
    if _default is None:
        found = devices()
        wanted = os.environ.get("WINATTN_DEVICE", "")
        found = [device for device in found if wanted in str(device)]
        if not found:
            raise _library.opencl_error(
                _DEVICE_NOT_FOUND,
                f"no device has {wanted!r} in its name (WINATTN_DEVICE)"
                if wanted else "OpenCL has no device: install the driver of "
                "yours, or PoCL for CPUs")
        order = {"gpu": 0, "accelerator": 1}
        _default = min(found, key=lambda device: order.get(device.type, 2))
    return _default


def set_device(device: Device | None) -> None:
    """Chooses the device for numpy arrays, one of devices(). None: as
    default_device says."""
    global _default
    if device is not None and not isinstance(device, Device):
        raise TypeError("device must be one of winattn.devices(), "
                        f"not {type(device).__name__}")
    _default = device


# ---- Context, queue and buffers of a device ----

class Buffer:
    """Device memory that is released with this object; OpenCL keeps it as
    long as something is enqueued that needs it. With an address `at`, it is
    the host's memory there, which must be there as long."""

    def __init__(self, session: Session, size: int,
                 content: numpy.ndarray | None = None,
                 at: int | None = None) -> None:
        self.handle = None
        self.size = max(size, 1)  # OpenCL has no empty buffers
        error = c_int32()
        source, flags = at, _USE_HOST if at else 0
        if content is not None and content.nbytes:
            source, flags = content.ctypes.data, _COPY_HOST
        self.handle = session.cl.clCreateBuffer(
            session.context, _READ_WRITE | flags, self.size, source,
            byref(error))
        self._release = session.cl.clReleaseMemObject
        _check(error.value, f"a buffer of {self.size} bytes")

    def __del__(self) -> None:
        if self.handle and is_usable():
            self._release(self.handle)


class Session:
    """One context and one queue in order, for all numpy arrays of a device.
    They live until the end of the program."""

    def __init__(self, device: Device) -> None:
        self.cl = load()
        self.device = device.id
        self.shares_memory = device.type == "cpu"  # with the host
        properties = (c_void_p * 3)(
            _CONTEXT_PLATFORM, device.platform_id,
            0) if device.platform_id else None
        error = c_int32()
        self.context = self.cl.clCreateContext(
            properties, 1, (c_void_p * 1)(device.id), None, None,
            byref(error))
        _check(error.value, f"a context for {device}")
        self.queue = self.cl.clCreateCommandQueue(self.context, device.id, 0,
                                                  byref(error))
        if error.value:
            self.cl.clReleaseContext(self.context)
        _check(error.value, f"a queue for {device}")

    def read(self, buffer: Buffer, to: numpy.ndarray) -> None:
        """Waits for all that was enqueued, then copies to `to`."""
        if to.nbytes:
            _check(self.cl.clEnqueueReadBuffer(
                self.queue, buffer.handle, 1, 0, to.nbytes, to.ctypes.data, 0,
                None, None), "reading a result")

    def finish(self) -> None:
        _check(self.cl.clFinish(self.queue), "waiting for a result")

    def show(self, buffer: Buffer) -> None:
        """Waits for all that was enqueued; then the host's memory has what a
        buffer on it holds."""
        error = c_int32()
        pointer = self.cl.clEnqueueMapBuffer(
            self.queue, buffer.handle, 1, _MAP_READ, 0, buffer.size, 0, None,
            None, byref(error))
        _check(error.value, "reading a result")
        _check(self.cl.clEnqueueUnmapMemObject(
            self.queue, buffer.handle, pointer, 0, None, None),
            "reading a result")

    def close(self) -> None:
        self.cl.clReleaseCommandQueue(self.queue)
        self.cl.clReleaseContext(self.context)


_sessions: dict[int, Session] = {}
_sessions_lock = threading.Lock()


def session_of(device: Device) -> Session:
    check_process()
    with _sessions_lock:
        if device.id not in _sessions:
            # one of another process has handles that mean nothing here
            if device not in devices():
                raise _library.invalid(
                    f"device is {device}, but none of winattn.devices() of "
                    "this process")
            _sessions[device.id] = Session(device)
        return _sessions[device.id]


def close_sessions() -> None:
    with _sessions_lock:
        while _sessions:
            _sessions.popitem()[1].close()
