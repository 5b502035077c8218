# SPDX-License-Identifier: Apache-2.0
"""A driver of OpenCL that is opened by its name, where no loader knows it: in
most containers for NVIDIA's GPUs there is the driver, but no loader, or no
file that tells the loader of it.

Objects of OpenCL begin with the address of their driver's table of functions
(cl_khr_icd). So any loader takes a driver's objects, and without a loader the
table has the functions."""
from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, byref, c_int32, c_uint32, c_void_p

NVIDIA = "libnvidia-opencl.so.1"

# Places in the table, as CL/cl_icd.h has them.
_PLACES = {
    "clGetPlatformInfo": 1, "clGetDeviceIDs": 2, "clGetDeviceInfo": 3,
    "clCreateContext": 4, "clRetainContext": 6, "clReleaseContext": 7,
    "clGetContextInfo": 8, "clCreateCommandQueue": 9,
    "clReleaseCommandQueue": 11, "clGetCommandQueueInfo": 12,
    "clCreateBuffer": 14, "clReleaseMemObject": 18, "clGetMemObjectInfo": 20,
    "clCreateProgramWithSource": 26, "clCreateProgramWithBinary": 27,
    "clReleaseProgram": 29, "clBuildProgram": 30, "clGetProgramInfo": 32,
    "clGetProgramBuildInfo": 33, "clCreateKernel": 34, "clReleaseKernel": 37,
    "clSetKernelArg": 38, "clGetKernelInfo": 39,
    "clGetKernelWorkGroupInfo": 40, "clReleaseEvent": 44, "clFinish": 47,
    "clEnqueueReadBuffer": 48, "clEnqueueMapBuffer": 56,
    "clEnqueueUnmapMemObject": 58, "clEnqueueNDRangeKernel": 59,
    "clRetainDevice": 94, "clReleaseDevice": 95,
    "clEnqueueMarkerWithWaitList": 105,
}

_GET_PLATFORMS = CFUNCTYPE(c_int32, c_uint32, POINTER(c_void_p),
                           POINTER(c_uint32))


class Driver:
    """Has the functions of OpenCL as attributes, like a loader's library.

    OSError: there is no driver of that name."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        try:
            find = self._library.clGetExtensionFunctionAddress
        except AttributeError:
            raise OSError(f"{path} is no driver of OpenCL") from None
        find.restype = c_void_p
        address = find(b"clIcdGetPlatformIDsKHR")
        if not address:
            raise OSError(f"{path} is no driver of OpenCL")
        self.clGetPlatformIDs = _GET_PLATFORMS(address)
        platforms = self.platforms()
        if not platforms:
            raise OSError(f"{path} has no device")
        table = ctypes.cast(platforms[0], POINTER(POINTER(c_void_p)))[0]
        for name, place in _PLACES.items():
            if table[place]:
                setattr(self, name, CFUNCTYPE(c_int32)(table[place]))

    def platforms(self) -> list[int]:
        count = c_uint32()
        if self.clGetPlatformIDs(0, None, byref(count)) or not count.value:
            return []
        handles = (c_void_p * count.value)()
        self.clGetPlatformIDs(count, handles, None)
        return list(handles)
