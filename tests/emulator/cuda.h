/* SPDX-License-Identifier: Apache-2.0
 * A CUDA driver (libcuda.so.1) whose device is the emulated H200 of driver.h,
 * for programs that look for it when they run, by its folder in a build:
 *
 *   LD_LIBRARY_PATH=$PWD/tests/emulator/cuda PROGRAM
 *
 * It has the functions that host/cuda calls, with the meanings of NVIDIA's
 * "CUDA Driver API", and refuses what host/cuda could get wrong. Programs are
 * PTX.
 *
 * Kernels run in the thread that launches them, one at a time. They reach what
 * cuMemAlloc gave, and memory of the process that emulator_cuda_register was
 * told of. One that fails says why on standard error; its launch succeeds, and
 * all later calls of the context fail: with CUDA_ERROR_ILLEGAL_ADDRESS if it
 * went out of its memory, else with CUDA_ERROR_LAUNCH_FAILED.
 *
 * Environment variables, read when they matter:
 *   EMULATOR_CUDA_LOG         what the compiler says of a new program, if it
 * is verbose EMULATOR_CUDA_CAPTURES=1  all streams are captured: what may not
 * be called then fails, and kernels run nevertheless */
#ifndef TESTS_EMULATOR_CUDA_H
#define TESTS_EMULATOR_CUDA_H

#include "cuda/driver.h"

#define CUDA_RESULTS(X)                                                       \
    X(CUDA_SUCCESS, 0)                                                        \
    X(CUDA_ERROR_INVALID_VALUE, 1)                                            \
    X(CUDA_ERROR_OUT_OF_MEMORY, 2)                                            \
    X(CUDA_ERROR_NOT_INITIALIZED, 3)                                          \
    X(CUDA_ERROR_INVALID_DEVICE, 101)                                         \
    X(CUDA_ERROR_INVALID_CONTEXT, 201)                                        \
    X(CUDA_ERROR_INVALID_PTX, 218)                                            \
    X(CUDA_ERROR_INVALID_HANDLE, 400)                                         \
    X(CUDA_ERROR_NOT_FOUND, 500)                                              \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, 700)                                        \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709)                                   \
    X(CUDA_ERROR_LAUNCH_FAILED, 719)                                          \
    X(CUDA_ERROR_NOT_SUPPORTED, 801)                                          \
    X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900)

#define CUDA_ENUMERATOR(name, number) name = number,
enum { CUDA_RESULTS(CUDA_ENUMERATOR) };

#pragma GCC visibility push(default)

#define CUDA_DECLARATION(name, symbol, parameters)                            \
    wa_cu_result symbol parameters;
WA_CUDA_FUNCTIONS(CUDA_DECLARATION)

/* Not CUDA's: memory of the process that kernels may touch, too, until it is
 * forgotten. Nothing happens to what is known, or not, already. */
void emulator_cuda_register(void *memory, size_t size);
void emulator_cuda_forget(void *memory);

#pragma GCC visibility pop

#endif
