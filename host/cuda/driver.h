/* SPDX-License-Identifier: Apache-2.0
 * CUDA's driver, as far as launch lists need it. Nothing is linked to it: who
 * calls the library finds its functions. Their declarations follow the
 * documentation of CUDA's driver API. */
#ifndef WINATTN_CUDA_DRIVER_H
#define WINATTN_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "winattn.h"

#if defined(_WIN32)
#define WA_CUDA_CALL __stdcall
#else
#define WA_CUDA_CALL
#endif

typedef int wa_cu_result;
typedef int wa_cu_device;
typedef struct wa_cu_context_st *wa_cu_context;
typedef struct wa_cu_function_st *wa_cu_function;
typedef struct wa_cu_module_st *wa_cu_module;
typedef struct wa_cu_stream_st *wa_cu_stream;
typedef uint64_t wa_cu_address;

/* X(name in wa_cuda, its name in the library, parameters) */
#define WA_CUDA_FUNCTIONS(X)                                                  \
    X(init, cuInit, (unsigned flags))                                         \
    X(error_name, cuGetErrorName, (wa_cu_result error, const char **name))    \
    X(version, cuDriverGetVersion, (int *version))                            \
    X(device, cuDeviceGet, (wa_cu_device * device, int ordinal))              \
    X(uuid, cuDeviceGetUuid_v2,                                               \
      (unsigned char uuid[16], wa_cu_device device))                          \
    X(attribute, cuDeviceGetAttribute,                                        \
      (int *value, int attribute, wa_cu_device device))                       \
    X(retain, cuDevicePrimaryCtxRetain,                                       \
      (wa_cu_context * context, wa_cu_device device))                         \
    X(release, cuDevicePrimaryCtxRelease_v2, (wa_cu_device device))           \
    X(push, cuCtxPushCurrent_v2, (wa_cu_context context))                     \
    X(pop, cuCtxPopCurrent_v2, (wa_cu_context * context))                     \
    X(load, cuModuleLoadDataEx,                                               \
      (wa_cu_module * module, const void *image, unsigned count,              \
       const int *options, void **values))                                    \
    X(unload, cuModuleUnload, (wa_cu_module module))                          \
    X(function, cuModuleGetFunction,                                          \
      (wa_cu_function * function, wa_cu_module module, const char *name))     \
    X(set_attribute, cuFuncSetAttribute,                                      \
      (wa_cu_function function, int attribute, int value))                    \
    X(allocate, cuMemAlloc_v2, (wa_cu_address * address, size_t size))        \
    X(free, cuMemFree_v2, (wa_cu_address address))                            \
    X(write, cuMemcpyHtoD_v2,                                                 \
      (wa_cu_address to, const void *from, size_t size))                      \
    X(read, cuMemcpyDtoH_v2, (void *to, wa_cu_address from, size_t size))     \
    X(is_capturing, cuStreamIsCapturing, (wa_cu_stream stream, int *is))      \
    X(synchronize, cuStreamSynchronize, (wa_cu_stream stream))                \
    X(launch, cuLaunchKernel,                                                 \
      (wa_cu_function function, unsigned groups, unsigned groups_y,           \
       unsigned groups_z, unsigned items, unsigned items_y, unsigned items_z, \
       unsigned local_bytes, wa_cu_stream stream, void **arguments,           \
       void **extra))

#define WA_CUDA_MEMBER(name, symbol, parameters)                              \
    wa_cu_result(WA_CUDA_CALL *name) parameters;
typedef struct wa_cuda {
    WA_CUDA_FUNCTIONS(WA_CUDA_MEMBER)
} wa_cuda;
#undef WA_CUDA_MEMBER

/* The driver, NULL before winattn_cuda_bind. */
const wa_cuda *wa_cuda_driver(void);

/* What a function of the driver returned, as a status. */
winattn_status wa_cuda_check(wa_cu_result result, const char *function);

/* Attributes of devices and functions, and options of the compiler. */
enum {
    WA_CUDA_MAJOR = 75, /* of a device's compute capability */
    WA_CUDA_MINOR = 76,
    WA_CUDA_LOCAL_BYTES = 8, /* of a function: shared memory of a launch */
    WA_CUDA_MOST_REGISTERS = 0,
    WA_CUDA_INFO_LOG = 3,
    WA_CUDA_INFO_LOG_SIZE = 4,
    WA_CUDA_ERROR_LOG = 5,
    WA_CUDA_ERROR_LOG_SIZE = 6,
    WA_CUDA_TARGET = 9,
    WA_CUDA_VERBOSE = 12,
    WA_CUDA_TARGET_90A = 0x10000 + 90
};

#endif
