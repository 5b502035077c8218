/* SPDX-License-Identifier: Apache-2.0
 * CUDA's driver: the compiler, which takes PTX as it is. Of what it compiled
 * before it says nothing, as NVIDIA's, which has a cache. */
#include "cuda_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NEWEST_PTX = 900 /* 9.0 */ };

/* What was compiled. */
typedef struct known {
    struct known *next;
    char text[];
} known;
static known *all_known;

/* log: the option of its text, which that of its size follows. */
static void say(void *const *told, int log, const char *text)
{
    if (told[log])
        snprintf(told[log], (uintptr_t)told[log + 1], "%s", text);
}

/* Is it new? Then it is known from now on. */
static bool add(const char *ptx)
{
    for (known *each = all_known; each; each = each->next)
        if (strcmp(each->text, ptx) == 0)
            return false;
    known *added = cuda_zeros(sizeof *added + strlen(ptx) + 1);
    strcpy(added->text, ptx);
    added->next = all_known;
    all_known = added;
    return true;
}

/* ---- PTX ---- */

/* What is for this device alone is taken if the compiler was told so. */
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

ptx_module *cuda_compile(const char *ptx, void *const *told)
{
    const emulated_limits most = {USUAL_SHARED_BYTES, EMULATED_PARAMETER_BYTES,
                                  cuda_device()->max_work_group};
    const char *planted = getenv("EMULATOR_CUDA_LOG");
    char reason[EMULATED_REASON];
    const char *why = why_not(ptx, told[WA_CUDA_TARGET]);
    ptx_module *made = why ? NULL : ptx_read(ptx, reason, sizeof reason);
    bool fits = made != NULL;
    for (size_t i = 0; fits && i < made->kernel_count; i++)
        fits = emulated_fits(&made->kernels[i], &most, reason, sizeof reason);
    if (!fits) {
        say(told, WA_CUDA_ERROR_LOG, why ? why : reason);
        if (made)
            ptx_free(made);
        return NULL;
    }
    if (add(ptx) && planted && told[WA_CUDA_VERBOSE])
        say(told, WA_CUDA_INFO_LOG, planted);
    return made;
}
