/* SPDX-License-Identifier: Apache-2.0
 * The n-th call or allocation of a thread fails. Allocations pass through here
 * because the linker is told to wrap them (CMakeLists.txt). */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#ifdef _WIN32
#include <windows.h>
#endif

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);

size_t standin_most_bytes = (size_t)256 << 20;

/* What is to fail, counted from when it was said. */
typedef struct failure_plan {
    char function[64]; /* "": any */
    unsigned long call, allocation;
    cl_int error;
    unsigned long calls, allocations;
    const char *failed;
} failure_plan;

/* The calling thread's. MinGW's _Thread_local allocates, through here. */
#ifdef _WIN32
static DWORD slot;

static void __attribute__((constructor)) get_slot(void) { slot = TlsAlloc(); }

static failure_plan *plan(void)
{
    failure_plan *own = TlsGetValue(slot);
    if (!own) {
        own = HeapAlloc(GetProcessHeap(),
                        HEAP_ZERO_MEMORY | HEAP_GENERATE_EXCEPTIONS,
                        sizeof *own);
        TlsSetValue(slot, own);
    }
    return own;
}
#else
static failure_plan *plan(void)
{
    static _Thread_local failure_plan own;
    return &own;
}
#endif

static void start_plan(const char *function, unsigned long call,
                       unsigned long allocation, cl_int error)
{
    memset(plan(), 0, sizeof *plan());
    if (function)
        snprintf(plan()->function, sizeof plan()->function, "%s", function);
    plan()->call = call;
    plan()->allocation = allocation;
    plan()->error = error;
}

void standin_fail_call(const char *function, unsigned long n, cl_int error)
{
    start_plan(function, n, 0, error);
}

void standin_fail_allocation(unsigned long n) { start_plan(NULL, 0, n, 0); }

void standin_fail_nothing(void) { start_plan(NULL, 0, 0, 0); }

unsigned long standin_allocations(void) { return plan()->allocations; }

const char *standin_failed(void) { return plan()->failed; }

bool call_fails(const char *function, cl_int usual, cl_int *error)
{
    if (plan()->function[0] && strcmp(plan()->function, function) != 0)
        return false;
    if (++plan()->calls != plan()->call)
        return false;
    plan()->failed = function;
    *error = plan()->error ? plan()->error : usual;
    return true;
}

/* ---- Allocations ---- */

static bool allocation_fails(const char *function, size_t size)
{
    if (++plan()->allocations == plan()->allocation) {
        plan()->failed = function;
        return true;
    }
    return size > standin_most_bytes;
}

void *__wrap_malloc(size_t size)
{
    return allocation_fails("malloc", size) ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    const bool is_huge = size != 0 && count > standin_most_bytes / size;
    return allocation_fails("calloc", is_huge ? SIZE_MAX : count * size)
               ? NULL
               : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return allocation_fails("realloc", size) ? NULL
                                             : __real_realloc(old, size);
}

/* ---- The stand-in's own ---- */

static void *or_end(void *memory)
{
    if (memory)
        return memory;
    fputs("stand-in: no memory left\n", stderr);
    exit(EXIT_FAILURE);
}

void *own_calloc(size_t count, size_t size)
{
    return or_end(__real_calloc(count, size));
}

void *own_copy(const void *bytes, size_t size)
{
    void *copy = or_end(__real_malloc(size + 1));
    if (size != 0)
        memcpy(copy, bytes, size);
    return copy;
}

void *own_grow(void *all, size_t count, size_t size)
{
    /* at 0, 16, 32, 64, ... */
    if (count % 16 != 0 || (count & (count - 1)) != 0)
        return all;
    return or_end(__real_realloc(all, (count ? count * 2 : 16) * size));
}
