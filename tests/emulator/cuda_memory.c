/* SPDX-License-Identifier: Apache-2.0
 * CUDA's driver: memory of the device, which is memory of the process. */
#include "cuda_driver.h"

#include <stdlib.h>
#include <string.h>

typedef struct memory {
    cuda_object head;
    ptx_range range;
} memory;

static bool is_memory(const cuda_object *one)
{
    return one->kind == CUDA_MEMORY || one->kind == CUDA_REGISTERED;
}

ptx_range *cuda_ranges(size_t *count)
{
    size_t most = 1;
    for (const cuda_object *one = cuda_objects; one; one = one->next)
        most += is_memory(one);
    ptx_range *all = malloc(most * sizeof *all);
    *count = 0;
    for (const cuda_object *one = cuda_objects; all && one; one = one->next)
        if (is_memory(one))
            all[(*count)++] = ((const memory *)one)->range;
    return all;
}

/* The memory that starts there; NULL: none of that kind does. */
static memory *find(const void *start, cuda_kind kind)
{
    for (cuda_object *one = cuda_objects; one; one = one->next)
        if (one->kind == kind && ((memory *)one)->range.start == start)
            return (memory *)one;
    return NULL;
}

static unsigned char *pointer(CUdeviceptr address)
{
    return (unsigned char *)(uintptr_t)address;
}

/* ---- Memory ---- */

static void clear(cuda_object *gone) { free(((memory *)gone)->range.start); }

static size_t allocated(void)
{
    size_t bytes = 0;
    for (const cuda_object *one = cuda_objects; one; one = one->next)
        if (one->kind == CUDA_MEMORY)
            bytes += ((const memory *)one)->range.bytes;
    return bytes;
}

CUresult cuMemAlloc_v2(CUdeviceptr *to, size_t size)
{
    ENTER(cuda_use_now());
    NEED(to && size > 0, CUDA_ERROR_INVALID_VALUE);
    NEED(size <= MEMORY_BYTES - allocated(), CUDA_ERROR_OUT_OF_MEMORY);
    memory *made = cuda_new(CUDA_MEMORY, sizeof *made, clear);
    NEED(made, CUDA_ERROR_OUT_OF_MEMORY);
    made->range = (ptx_range){emulated_memory(size), size};
    *to = (uintptr_t)made->range.start;
    if (!made->range.start)
        cuda_free(made);
    NEED(*to, CUDA_ERROR_OUT_OF_MEMORY);
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr at)
{
    ENTER(cuda_use_now());
    memory *gone = find(pointer(at), CUDA_MEMORY);
    NEED(gone, CUDA_ERROR_INVALID_VALUE);
    cuda_free(gone);
    return CUDA_SUCCESS;
}

CUresult emulator_cuda_register(void *start, size_t size)
{
    ENTER(CUDA_SUCCESS);
    NEED(start && size > 0 && !find(start, CUDA_REGISTERED),
         CUDA_ERROR_INVALID_VALUE);
    memory *made = cuda_new(CUDA_REGISTERED, sizeof *made, NULL);
    NEED(made, CUDA_ERROR_OUT_OF_MEMORY);
    made->range = (ptx_range){start, size};
    return CUDA_SUCCESS;
}

CUresult emulator_cuda_forget(void *start)
{
    ENTER(CUDA_SUCCESS);
    memory *gone = find(start, CUDA_REGISTERED);
    NEED(gone, CUDA_ERROR_INVALID_VALUE);
    cuda_free(gone);
    return CUDA_SUCCESS;
}

/* ---- Copies ---- */

static bool has(const memory *one, const unsigned char *at, size_t size)
{
    const ptx_range *range = &one->range;
    return at >= range->start && size <= range->bytes &&
           (size_t)(at - range->start) <= range->bytes - size;
}

/* All of it must be in one piece of memory. */
static CUresult check(CUdeviceptr address, size_t size)
{
    for (const cuda_object *one = cuda_objects; one; one = one->next)
        if (is_memory(one) && has((const memory *)one, pointer(address), size))
            return CUDA_SUCCESS;
    return size > 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* `on_device`: the end that must be there. */
static CUresult copy(CUdeviceptr on_device, void *to, const void *from,
                     size_t size)
{
    NEED(size == 0 || (to && from), CUDA_ERROR_INVALID_VALUE);
    TRY(check(on_device, size));
    if (size > 0)
        memmove(to, from, size);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size)
{
    ENTER(cuda_use_now());
    return copy(to, pointer(to), from, size);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size)
{
    ENTER(cuda_use_now());
    return copy(from, to, pointer(from), size);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size,
                              CUstream stream)
{
    ENTER(cuda_use());
    TRY(cuda_check_stream(stream));
    return copy(to, pointer(to), from, size);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t size,
                         CUstream stream)
{
    ENTER(cuda_use());
    TRY(cuda_check_stream(stream));
    TRY(check(to, size));
    if (size > 0)
        memset(pointer(to), value, size);
    return CUDA_SUCCESS;
}
