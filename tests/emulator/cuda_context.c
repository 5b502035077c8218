/* SPDX-License-Identifier: Apache-2.0
 * CUDA's driver: the device, its one context, its streams. */
#include "cuda_driver.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct wa_cu_context_st {
    unsigned retained;
    wa_cu_result failed; /* what a kernel did */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Guarded by it, as the objects are: */
static struct wa_cu_context_st primary;
static const wa_device *h200; /* NULL before cuInit */
cuda_object *cuda_objects;

/* How often the one context was made the thread's current one. */
static _Thread_local unsigned depth;

/* ---- State ---- */

int cuda_lock(void) { return pthread_mutex_lock(&lock); }

void cuda_unlock(const int *locked)
{
    if (*locked == 0)
        pthread_mutex_unlock(&lock);
}

static wa_cu_result begin(void)
{
    return h200 ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

wa_cu_result cuda_use(void)
{
    TRY(begin());
    NEED(depth > 0, CUDA_ERROR_INVALID_CONTEXT);
    NEED(primary.retained > 0, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    return primary.failed;
}

static bool captures(void)
{
    const char *set = getenv("EMULATOR_CUDA_CAPTURES");
    return set && strcmp(set, "1") == 0;
}

wa_cu_result cuda_use_now(void)
{
    TRY(cuda_use());
    NEED(!captures(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return CUDA_SUCCESS;
}

const wa_device *cuda_device(void) { return h200; }

void cuda_fail(wa_cu_result why) { primary.failed = why; }

/* ---- Objects ---- */

void *cuda_zeros(size_t size)
{
    void *made = calloc(size + 1, 1);
    if (!made)
        abort();
    return made;
}

void *cuda_new(cuda_kind kind, size_t size, void (*clear)(cuda_object *))
{
    cuda_object *made = cuda_zeros(size);
    *made = (cuda_object){cuda_objects, kind, clear};
    cuda_objects = made;
    return made;
}

bool cuda_is(const void *any, cuda_kind kind)
{
    for (const cuda_object *one = cuda_objects; one; one = one->next)
        if (one == any)
            return one->kind == kind;
    return false;
}

void cuda_free(void *any)
{
    cuda_object *gone = any, **at = &cuda_objects;
    while (*at != gone)
        at = &(*at)->next;
    *at = gone->next;
    if (gone->clear)
        gone->clear(gone);
    free(gone);
}

/* ---- The driver and its device ---- */

wa_cu_result cuInit(unsigned flags)
{
    ENTER(flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
    h200 = made_up_device("H200");
    return CUDA_SUCCESS;
}

wa_cu_result cuDriverGetVersion(int *version)
{
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

wa_cu_result cuGetErrorName(wa_cu_result error, const char **name)
{
    *name = NULL;
#define FIND(result, number)                                                  \
    if (error == number)                                                      \
        *name = #result;
    CUDA_RESULTS(FIND)
    NEED(*name, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

static wa_cu_result check_device(wa_cu_device device)
{
    TRY(begin());
    NEED(device == 0, CUDA_ERROR_INVALID_DEVICE);
    return CUDA_SUCCESS;
}

wa_cu_result cuDeviceGet(wa_cu_device *device, int ordinal)
{
    ENTER(check_device(ordinal));
    *device = ordinal;
    return CUDA_SUCCESS;
}

wa_cu_result cuDeviceGetUuid_v2(unsigned char uuid[16], wa_cu_device device)
{
    ENTER(check_device(device));
    memcpy(uuid, EMULATED_H200_UUID, EMULATED_UUID_BYTES);
    return CUDA_SUCCESS;
}

wa_cu_result cuDeviceGetAttribute(int *value, int attribute,
                                  wa_cu_device device)
{
    ENTER(check_device(device));
    NEED(attribute == WA_CUDA_MAJOR || attribute == WA_CUDA_MINOR,
         CUDA_ERROR_INVALID_VALUE);
    const int capability = (int)h200->compute_capability;
    *value = attribute == WA_CUDA_MAJOR ? capability / 10 : capability % 10;
    return CUDA_SUCCESS;
}

/* ---- Context ---- */

wa_cu_result cuDevicePrimaryCtxRetain(wa_cu_context *context,
                                      wa_cu_device device)
{
    ENTER(check_device(device));
    primary.retained++;
    *context = &primary;
    return CUDA_SUCCESS;
}

/* What the context has goes with it. */
wa_cu_result cuDevicePrimaryCtxRelease_v2(wa_cu_device device)
{
    cuda_object *next;
    ENTER(check_device(device));
    NEED(primary.retained > 0, CUDA_ERROR_INVALID_CONTEXT);
    if (--primary.retained > 0)
        return CUDA_SUCCESS;
    for (cuda_object *one = cuda_objects; one; one = next) {
        next = one->next;
        if (one->kind != CUDA_REGISTERED)
            cuda_free(one);
    }
    primary.failed = CUDA_SUCCESS;
    return CUDA_SUCCESS;
}

wa_cu_result cuCtxPushCurrent_v2(wa_cu_context context)
{
    ENTER(begin());
    NEED(context == &primary && primary.retained > 0,
         CUDA_ERROR_INVALID_CONTEXT);
    depth++;
    return CUDA_SUCCESS;
}

wa_cu_result cuCtxPopCurrent_v2(wa_cu_context *context)
{
    ENTER(begin());
    NEED(depth > 0, CUDA_ERROR_INVALID_CONTEXT);
    depth--;
    *context = &primary;
    return CUDA_SUCCESS;
}

/* ---- Streams ---- */

wa_cu_result cuda_check_stream(wa_cu_stream stream)
{
    const uintptr_t number = (uintptr_t)stream; /* of the default ones: 0..2 */
    NEED(number <= 2, CUDA_ERROR_INVALID_HANDLE);
    return CUDA_SUCCESS;
}

/* All has happened when it was enqueued. */
wa_cu_result cuStreamSynchronize(wa_cu_stream stream)
{
    ENTER(cuda_use_now());
    return cuda_check_stream(stream);
}

wa_cu_result cuStreamIsCapturing(wa_cu_stream stream, int *is)
{
    ENTER(cuda_use());
    TRY(cuda_check_stream(stream));
    *is = captures();
    return CUDA_SUCCESS;
}
