/* SPDX-License-Identifier: Apache-2.0
 * What the files of CUDA's driver share. */
#ifndef TESTS_EMULATOR_CUDA_DRIVER_H
#define TESTS_EMULATOR_CUDA_DRIVER_H

#include "common.h"
#include "cuda.h"
#include "kit/devices.h"

#define CUDA_VERSION 13000
/* Local memory of a work-group, unless its function was given more. */
#define USUAL_SHARED_BYTES (48u << 10)

/* ---- State (cuda_context.c) ---- */

/* Each function begins so, but for what asks for nothing: with a lock, and
 * with what must be. */
#define ENTER(check)                                                          \
    LOCK;                                                                     \
    TRY(check)
#define LOCK                                                                  \
    __attribute__((cleanup(cuda_unlock))) const int locked_ = cuda_lock()
#define TRY(call)                                                             \
    do {                                                                      \
        const wa_cu_result result_ = (call);                                  \
        if (result_)                                                          \
            return result_;                                                   \
    } while (0)
#define NEED(condition, result) TRY((condition) ? CUDA_SUCCESS : (result))

int cuda_lock(void);
void cuda_unlock(const int *locked);
/* A context is current, and no kernel of it has failed; also, no stream is
 * captured. */
wa_cu_result cuda_use(void);
wa_cu_result cuda_use_now(void);

const wa_device *cuda_device(void);
/* All fail from now on. */
void cuda_fail(wa_cu_result why);

/* ---- Objects (cuda_context.c) ---- */

typedef enum cuda_kind {
    CUDA_MODULE,
    CUDA_MEMORY,
    CUDA_REGISTERED /* memory that is another's */
} cuda_kind;

/* The first member of each, in a list of all. */
typedef struct cuda_object {
    struct cuda_object *next;
    cuda_kind kind;
    void (*clear)(struct cuda_object *self); /* frees what it has; or NULL */
} cuda_object;
extern cuda_object *cuda_objects;

/* Zeros; without memory for them the process ends. */
void *cuda_zeros(size_t size);
/* Zeros but for its head, in front of all others. */
void *cuda_new(cuda_kind kind, size_t size, void (*clear)(cuda_object *));
bool cuda_is(const void *any, cuda_kind kind);
void cuda_free(void *any);

/* There are none but the default ones. */
wa_cu_result cuda_check_stream(wa_cu_stream stream);

/* ---- Programs (cuda_compiler.c) ---- */

/* told: values of options, by their numbers. NULL: the error log says why. */
ptx_module *cuda_compile(const char *ptx, void *const *told);

/* ---- Memory (cuda_memory.c) ---- */

/* What kernels may touch now, to be freed. */
ptx_range *cuda_ranges(size_t *count);

#endif
