/* SPDX-License-Identifier: Apache-2.0
 * A CUDA driver (libcuda.so.1) whose device is the emulated H200 of driver.h,
 * for programs that look for it when they run, by its folder in a build:
 *
 *   LD_LIBRARY_PATH=$PWD/tests/emulator/cuda PROGRAM
 *
 * Names, numbers and meanings are those of NVIDIA's "CUDA Driver API", as far
 * as somebody here calls them. What it is linked from is PTX, which is also
 * what its binaries have inside.
 *
 * Kernels run in the thread that launches them, one at a time. They reach what
 * cuMemAlloc gave, and memory of the process that emulator_cuda_register was
 * told of. One that fails says why on standard error; its launch succeeds, and
 * all later calls of the context fail: with CUDA_ERROR_ILLEGAL_ADDRESS if it
 * went out of its memory, else with CUDA_ERROR_LAUNCH_FAILED.
 *
 * Environment variables, read when they matter:
 *   EMULATOR_CUDA_LOG         what the linker's log says beside its own
 *   EMULATOR_CUDA_CAPTURES=1  all streams are captured: what may not be called
 *                             then fails, and kernels run nevertheless */
#ifndef TESTS_EMULATOR_CUDA_H
#define TESTS_EMULATOR_CUDA_H

#include <stddef.h>

#define CUDA_RESULTS(X)                                                       \
    X(CUDA_SUCCESS, 0, "no error")                                            \
    X(CUDA_ERROR_INVALID_VALUE, 1, "an argument is not valid")                \
    X(CUDA_ERROR_OUT_OF_MEMORY, 2, "there is no memory")                      \
    X(CUDA_ERROR_NOT_INITIALIZED, 3, "cuInit was not called")                 \
    X(CUDA_ERROR_INVALID_DEVICE, 101, "there is no such device")              \
    X(CUDA_ERROR_INVALID_IMAGE, 200, "this is no program")                    \
    X(CUDA_ERROR_INVALID_CONTEXT, 201, "no context is current, or not one")   \
    X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209, "a program of another driver")       \
    X(CUDA_ERROR_INVALID_PTX, 218, "PTX does not compile")                    \
    X(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222, "PTX of a later version")      \
    X(CUDA_ERROR_INVALID_HANDLE, 400, "a handle is not valid")                \
    X(CUDA_ERROR_NOT_FOUND, 500, "there is nothing of this name")             \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, 700, "a kernel left its memory")            \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709, "the context is gone")            \
    X(CUDA_ERROR_LAUNCH_FAILED, 719, "a kernel failed")                       \
    X(CUDA_ERROR_NOT_SUPPORTED, 801, "not supported")                         \
    X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900,                             \
      "not while a stream is captured")

#define CUDA_ENUMERATOR(name, number, text) name = number,
typedef enum CUresult { CUDA_RESULTS(CUDA_ENUMERATOR) } CUresult;

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUlinkState_st *CUlinkState;
typedef struct CUuuid {
    char bytes[16];
} CUuuid;

typedef enum CUdevice_attribute {
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97
} CUdevice_attribute;

typedef enum CUjit_option {
    CU_JIT_MAX_REGISTERS = 0,
    CU_JIT_INFO_LOG_BUFFER = 3,
    CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES = 4,
    CU_JIT_ERROR_LOG_BUFFER = 5,
    CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
    CU_JIT_TARGET = 9,
    CU_JIT_LOG_VERBOSE = 12
} CUjit_option;

/* Values of CU_JIT_TARGET. */
enum { CU_TARGET_COMPUTE_90 = 90, CU_TARGET_COMPUTE_90A = 0x10000 + 90 };

typedef enum CUjitInputType { CU_JIT_INPUT_PTX = 1 } CUjitInputType;

typedef enum CUfunction_attribute {
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
    CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
} CUfunction_attribute;

typedef enum CUstreamCaptureStatus {
    CU_STREAM_CAPTURE_STATUS_NONE = 0,
    CU_STREAM_CAPTURE_STATUS_ACTIVE = 1
} CUstreamCaptureStatus;

enum { CU_STREAM_NON_BLOCKING = 1 };
/* Streams that are always there, beside NULL. */
#define CU_STREAM_LEGACY ((CUstream)1)
#define CU_STREAM_PER_THREAD ((CUstream)2)

#pragma GCC visibility push(default)

CUresult cuInit(unsigned flags);
CUresult cuDriverGetVersion(int *version);
CUresult cuGetErrorName(CUresult error, const char **name);
CUresult cuGetErrorString(CUresult error, const char **text);

CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device);
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute what,
                              CUdevice device);

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
CUresult cuCtxPushCurrent_v2(CUcontext context);
CUresult cuCtxPopCurrent_v2(CUcontext *context);
CUresult cuCtxGetCurrent(CUcontext *context);
CUresult cuCtxGetDevice(CUdevice *device);
CUresult cuCtxSynchronize(void);

CUresult cuStreamCreate(CUstream *stream, unsigned flags);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuStreamSynchronize(CUstream stream);
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status);

CUresult cuMemAlloc_v2(CUdeviceptr *memory, size_t size);
CUresult cuMemFree_v2(CUdeviceptr memory);
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size);
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size,
                              CUstream stream);
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t size,
                         CUstream stream);

CUresult cuLinkCreate_v2(unsigned count, CUjit_option *options, void **values,
                         CUlinkState *link);
CUresult cuLinkAddData_v2(CUlinkState link, CUjitInputType type, void *data,
                          size_t size, const char *name, unsigned count,
                          CUjit_option *options, void **values);
CUresult cuLinkComplete(CUlinkState link, void **cubin, size_t *size);
CUresult cuLinkDestroy(CUlinkState link);

CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleUnload(CUmodule module);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module,
                             const char *name);
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute what,
                            int value);
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute what,
                            CUfunction function);
CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                        unsigned grid_z, unsigned block_x, unsigned block_y,
                        unsigned block_z, unsigned dynamic_bytes,
                        CUstream stream, void **parameters, void **extra);

/* Not CUDA's: memory of the process that kernels may touch, too, until it is
 * forgotten. */
CUresult emulator_cuda_register(void *memory, size_t size);
CUresult emulator_cuda_forget(void *memory);

#pragma GCC visibility pop

#endif
