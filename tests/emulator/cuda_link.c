/* SPDX-License-Identifier: Apache-2.0
 * CUDA's driver: from PTX to what it calls a cubin, which is PTX with a head,
 * known to be one that runs. */
#include "cuda_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "emulated"
enum { MAGIC_BYTES = 8, NEWEST_PTX = 900 /* 9.0 */ };

typedef struct cubin {
    char magic[MAGIC_BYTES];
    uint32_t driver;
    uint64_t bytes; /* of the text, with a zero behind it */
    char text[];
} cubin;

struct wa_cu_link_st {
    cuda_object head;
    void *options[WA_CUDA_VERBOSE + 1];
    cubin *cubin; /* NULL: nothing was added */
};

/* log: the option of its text, which that of its size follows. */
static void say(const struct wa_cu_link_st *link, int log, const char *text)
{
    snprintf(link->options[log], (uintptr_t)link->options[log + 1], "%s",
             text);
}

/* ---- PTX ---- */

/* What is for this device alone is taken if the linker was told so. */
static bool is_target(const char *ptx, const void *told)
{
    const unsigned ours = cuda_device()->compute_capability;
    const char *line = strstr(ptx, ".target");
    unsigned is = 0;
    char suffix = 0;
    if (!line || sscanf(line, ".target sm_%u%c", &is, &suffix) < 1)
        return false;
    return suffix == 'a' ? is == ours && (uintptr_t)told == WA_CUDA_TARGET_90A
                         : is <= ours && suffix != 'f';
}

static const char *why_not(const char *ptx, const void *target)
{
    unsigned major, minor;
    if (!emulated_is_ptx(ptx) ||
        sscanf(strstr(ptx, ".version"), ".version %u.%u", &major, &minor) != 2)
        return "error   : this is no PTX\n";
    if (100 * major + minor > NEWEST_PTX)
        return "error   : the version is of a later driver\n";
    if (!is_target(ptx, target))
        return "error   : the target is another device\n";
    if (strstr(ptx, "%envreg")) /* NVIDIA's takes it */
        return "error   : only OpenCL's driver sets %envreg\n";
    return NULL;
}

/* Does the driver take it? If not, the log says why. */
static bool compiles(const struct wa_cu_link_st *link, const char *ptx)
{
    const emulated_limits most = {USUAL_SHARED_BYTES, EMULATED_PARAMETER_BYTES,
                                  cuda_device()->max_work_group};
    char reason[EMULATED_REASON];
    const char *why = why_not(ptx, link->options[WA_CUDA_TARGET]);
    ptx_module *made = why ? NULL : ptx_read(ptx, reason, sizeof reason);
    bool fits = made != NULL;
    for (size_t i = 0; fits && i < made->kernel_count; i++)
        fits = emulated_fits(&made->kernels[i], &most, reason, sizeof reason);
    if (!fits)
        say(link, WA_CUDA_ERROR_LOG, why ? why : reason);
    if (made)
        ptx_free(made);
    return fits;
}

ptx_module *cuda_read_image(const void *image, wa_cu_result *result)
{
    const cubin *binary = image;
    char reason[EMULATED_REASON];
    *result = CUDA_ERROR_INVALID_IMAGE;
    /* a shorter text is different before it ends */
    if (strncmp(image, MAGIC, MAGIC_BYTES) != 0 || binary->bytes == 0 ||
        binary->text[binary->bytes - 1])
        return NULL;
    if (binary->driver == CUDA_VERSION)
        return ptx_read(binary->text, reason, sizeof reason);
    *result = CUDA_ERROR_NO_BINARY_FOR_GPU;
    return NULL;
}

/* ---- Links ---- */

static void clear(cuda_object *gone)
{
    free(((struct wa_cu_link_st *)gone)->cubin);
}

wa_cu_result cuLinkCreate_v2(unsigned count, const int *options, void **values,
                             wa_cu_link *link)
{
    ENTER(cuda_use());
    for (unsigned i = 0; i < count; i++)
        NEED((unsigned)options[i] <= WA_CUDA_VERBOSE,
             CUDA_ERROR_INVALID_VALUE);
    *link = cuda_new(CUDA_LINK, sizeof **link, clear);
    for (unsigned i = 0; i < count; i++)
        (*link)->options[options[i]] = values[i];
    return CUDA_SUCCESS;
}

wa_cu_result cuLinkAddData_v2(wa_cu_link link, int type, void *data,
                              size_t size, const char *name, unsigned count,
                              const int *options, void **values)
{
    const char *planted = getenv("EMULATOR_CUDA_LOG");
    (void)name; /* of messages, to which it adds nothing */
    (void)options;
    (void)values;
    ENTER(cuda_use());
    NEED(cuda_is(link, CUDA_LINK), CUDA_ERROR_INVALID_HANDLE);
    /* its end is where a zero is */
    NEED(type == WA_CUDA_PTX && memchr(data, 0, size),
         CUDA_ERROR_INVALID_VALUE);
    NEED(!link->cubin && count == 0, CUDA_ERROR_NOT_SUPPORTED);
    NEED(compiles(link, data), CUDA_ERROR_INVALID_PTX);
    if (planted && link->options[WA_CUDA_VERBOSE])
        say(link, WA_CUDA_INFO_LOG, planted);
    const size_t bytes = strlen(data) + 1;
    link->cubin = cuda_zeros(sizeof *link->cubin + bytes);
    *link->cubin = (cubin){.driver = CUDA_VERSION, .bytes = bytes};
    memcpy(link->cubin->magic, MAGIC, MAGIC_BYTES);
    memcpy(link->cubin->text, data, bytes);
    return CUDA_SUCCESS;
}

wa_cu_result cuLinkComplete(wa_cu_link link, void **binary, size_t *size)
{
    ENTER(cuda_use());
    NEED(cuda_is(link, CUDA_LINK), CUDA_ERROR_INVALID_HANDLE);
    NEED(link->cubin, CUDA_ERROR_INVALID_VALUE);
    *binary = link->cubin;
    *size = sizeof *link->cubin + link->cubin->bytes;
    return CUDA_SUCCESS;
}

wa_cu_result cuLinkDestroy(wa_cu_link link)
{
    ENTER(cuda_use());
    NEED(cuda_is(link, CUDA_LINK), CUDA_ERROR_INVALID_HANDLE);
    cuda_free(link);
    return CUDA_SUCCESS;
}
