/* SPDX-License-Identifier: Apache-2.0
 * CUDA's driver: the device, its one context, streams. */
#include "cuda_driver.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CURRENT = 64 };

struct CUctx_st {
    unsigned retained;
    CUresult failed; /* what a kernel did */
};

struct CUstream_st {
    cuda_object head;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Guarded by it, as the objects are: */
static bool is_initialized;
static struct CUctx_st primary;
static const wa_device *h200;
cuda_object *cuda_objects;

/* Each thread has its contexts, the last of which is current. */
static _Thread_local CUcontext stack[MOST_CURRENT];
static _Thread_local unsigned depth;

/* ---- State ---- */

int cuda_lock(void) { return pthread_mutex_lock(&lock); }

void cuda_unlock(const int *locked)
{
    if (*locked == 0)
        pthread_mutex_unlock(&lock);
}

CUresult cuda_begin(void)
{
    return is_initialized ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

static CUresult check_current(void)
{
    TRY(cuda_begin());
    NEED(depth > 0, CUDA_ERROR_INVALID_CONTEXT);
    NEED(primary.retained > 0, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    return CUDA_SUCCESS;
}

CUresult cuda_use(void)
{
    TRY(check_current());
    return primary.failed;
}

static bool captures(void)
{
    const char *set = getenv("EMULATOR_CUDA_CAPTURES");
    return set && strcmp(set, "1") == 0;
}

CUresult cuda_use_now(void)
{
    TRY(cuda_use());
    NEED(!captures(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return CUDA_SUCCESS;
}

const wa_device *cuda_device(void) { return h200; }

void cuda_fail(CUresult why) { primary.failed = why; }

/* ---- Objects ---- */

void *cuda_new(cuda_kind kind, size_t size, void (*clear)(cuda_object *))
{
    cuda_object *made = calloc(1, size);
    if (!made)
        return NULL;
    made->kind = kind;
    made->clear = clear;
    made->next = cuda_objects;
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

/* ---- The driver ---- */

CUresult cuInit(unsigned flags)
{
    ENTER(flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
    h200 = made_up_device("H200");
    is_initialized = true;
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
    NEED(version, CUDA_ERROR_INVALID_VALUE);
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

static const struct {
    CUresult result;
    const char *name, *text;
} results[] = {
#define ROW(name, number, text) {name, #name, text},
    CUDA_RESULTS(ROW)};
enum { RESULTS = sizeof results / sizeof *results };

static CUresult describe(CUresult error, bool by_name, const char **text)
{
    NEED(text, CUDA_ERROR_INVALID_VALUE);
    *text = NULL;
    for (int i = 0; i < RESULTS; i++)
        if (results[i].result == error)
            *text = by_name ? results[i].name : results[i].text;
    NEED(*text, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
    return describe(error, true, name);
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    return describe(error, false, text);
}

/* ---- Device ---- */

CUresult cuDeviceGetCount(int *count)
{
    ENTER(cuda_begin());
    NEED(count, CUDA_ERROR_INVALID_VALUE);
    *count = 1;
    return CUDA_SUCCESS;
}

static CUresult check_device(const void *answer, CUdevice device)
{
    TRY(cuda_begin());
    NEED(answer, CUDA_ERROR_INVALID_VALUE);
    NEED(device == 0, CUDA_ERROR_INVALID_DEVICE);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    ENTER(check_device(device, ordinal));
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    ENTER(check_device(uuid, device));
    memcpy(uuid, EMULATED_H200_UUID, EMULATED_UUID_BYTES);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute what,
                              CUdevice device)
{
    ENTER(check_device(value, device));
    switch (what) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = (int)h200->compute_capability / 10;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = (int)h200->compute_capability % 10;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        *value = (int)h200->local_bytes;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* ---- Context ---- */

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    ENTER(check_device(context, device));
    primary.retained++;
    *context = &primary;
    return CUDA_SUCCESS;
}

/* What the context has goes with it. */
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    cuda_object *next;
    ENTER(check_device(&primary, device));
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

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    ENTER(cuda_begin());
    NEED(context == &primary && primary.retained > 0,
         CUDA_ERROR_INVALID_CONTEXT);
    NEED(depth < MOST_CURRENT, CUDA_ERROR_OUT_OF_MEMORY);
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    ENTER(cuda_begin());
    NEED(depth > 0, CUDA_ERROR_INVALID_CONTEXT);
    depth--;
    if (context)
        *context = stack[depth];
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    ENTER(cuda_begin());
    NEED(context, CUDA_ERROR_INVALID_VALUE);
    *context = depth ? stack[depth - 1] : NULL;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    ENTER(check_current());
    NEED(device, CUDA_ERROR_INVALID_VALUE);
    *device = 0;
    return CUDA_SUCCESS;
}

/* All has happened when it was enqueued. */
CUresult cuCtxSynchronize(void)
{
    ENTER(cuda_use_now());
    return CUDA_SUCCESS;
}

/* ---- Streams ---- */

CUresult cuda_check_stream(CUstream stream)
{
    NEED(!stream || stream == CU_STREAM_LEGACY ||
             stream == CU_STREAM_PER_THREAD || cuda_is(stream, CUDA_STREAM),
         CUDA_ERROR_INVALID_HANDLE);
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    ENTER(cuda_use());
    NEED(stream && flags <= CU_STREAM_NON_BLOCKING, CUDA_ERROR_INVALID_VALUE);
    *stream = cuda_new(CUDA_STREAM, sizeof **stream, NULL);
    NEED(*stream, CUDA_ERROR_OUT_OF_MEMORY);
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    ENTER(cuda_use());
    NEED(cuda_is(stream, CUDA_STREAM), CUDA_ERROR_INVALID_HANDLE);
    cuda_free(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    ENTER(cuda_use_now());
    return cuda_check_stream(stream);
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    ENTER(cuda_use());
    NEED(status, CUDA_ERROR_INVALID_VALUE);
    TRY(cuda_check_stream(stream));
    *status = captures() ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                         : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}
