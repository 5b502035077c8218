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
    size_t most = 0;
    for (const cuda_object *one = cuda_objects; one; one = one->next)
        most += is_memory(one);
    ptx_range *all = cuda_zeros(most * sizeof *all);
    *count = 0;
    for (const cuda_object *one = cuda_objects; one; one = one->next)
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

static unsigned char *pointer(wa_cu_address address)
{
    return (unsigned char *)(uintptr_t)address;
}

/* ---- Memory ---- */

static void clear(cuda_object *gone) { free(((memory *)gone)->range.start); }

wa_cu_result cuMemAlloc_v2(wa_cu_address *address, size_t size)
{
    ENTER(cuda_use_now());
    NEED(size > 0, CUDA_ERROR_INVALID_VALUE);
    NEED(size <= MEMORY_BYTES, CUDA_ERROR_OUT_OF_MEMORY);
    unsigned char *start = emulated_memory(size);
    NEED(start, CUDA_ERROR_OUT_OF_MEMORY);
    memory *made = cuda_new(CUDA_MEMORY, sizeof *made, clear);
    made->range = (ptx_range){start, size};
    *address = (uintptr_t)start;
    return CUDA_SUCCESS;
}

wa_cu_result cuMemFree_v2(wa_cu_address address)
{
    ENTER(cuda_use_now());
    memory *gone = find(pointer(address), CUDA_MEMORY);
    NEED(gone, CUDA_ERROR_INVALID_VALUE);
    cuda_free(gone);
    return CUDA_SUCCESS;
}

void emulator_cuda_register(void *start, size_t size)
{
    LOCK;
    if (find(start, CUDA_REGISTERED))
        return;
    memory *made = cuda_new(CUDA_REGISTERED, sizeof *made, NULL);
    made->range = (ptx_range){start, size};
}

void emulator_cuda_forget(void *start)
{
    LOCK;
    memory *gone = find(start, CUDA_REGISTERED);
    if (gone)
        cuda_free(gone);
}

/* ---- Copies ---- */

/* All of it must be in one piece of memory. */
static wa_cu_result check(wa_cu_address address, size_t size)
{
    for (cuda_object *one = cuda_objects; one; one = one->next) {
        const ptx_range *range = &((memory *)one)->range;
        if (is_memory(one) && pointer(address) >= range->start &&
            size <= range->bytes &&
            (size_t)(pointer(address) - range->start) <= range->bytes - size)
            return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

wa_cu_result cuMemcpyHtoD_v2(wa_cu_address to, const void *from, size_t size)
{
    ENTER(cuda_use_now());
    TRY(check(to, size));
    memmove(pointer(to), from, size);
    return CUDA_SUCCESS;
}

wa_cu_result cuMemcpyDtoH_v2(void *to, wa_cu_address from, size_t size)
{
    ENTER(cuda_use_now());
    TRY(check(from, size));
    memmove(to, pointer(from), size);
    return CUDA_SUCCESS;
}
