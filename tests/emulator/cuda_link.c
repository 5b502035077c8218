/* SPDX-License-Identifier: Apache-2.0
 * CUDA's driver: from PTX to what it calls a cubin, which is PTX with a head,
 * known to be one that runs. */
#include "cuda_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "emulated"
enum { MAGIC_BYTES = 8, NEWEST_PTX = 900 /* 9.0 */ };

/* Where the caller wants what the linker says. */
typedef struct message {
    char *text;
    size_t size;
    void **used; /* the value of the option of its size; NULL: none */
} message;

struct CUlinkState_st {
    cuda_object head;
    message info, error;
    bool is_verbose;
    unsigned target;     /* 0: nobody said */
    unsigned registers;  /* of a work-item, at most; 0: any number */
    struct cubin *cubin; /* NULL: nothing was added */
};

typedef struct cubin {
    char magic[MAGIC_BYTES];
    uint32_t driver, registers;
    uint64_t bytes; /* of the text, with a zero behind it */
    char text[];
} cubin;

/* ---- PTX ---- */

/* sm_90a, and what is for all later devices, too. */
static bool is_target(const char *ptx, unsigned target)
{
    const unsigned ours = cuda_device()->compute_capability;
    const char *line = strstr(ptx, ".target");
    unsigned is = 0;
    char suffix = 0;
    if (!line || sscanf(line, ".target sm_%u%c", &is, &suffix) < 1)
        return false;
    return suffix == 'a' ? is == ours && target != CU_TARGET_COMPUTE_90
                         : is <= ours && suffix != 'f';
}

static CUresult check_text(const char *ptx, unsigned target, const char **why)
{
    unsigned major, minor;
    *why = "this is no PTX";
    NEED(emulated_is_ptx(ptx) && sscanf(strstr(ptx, ".version"),
                                        ".version %u.%u", &major, &minor) == 2,
         CUDA_ERROR_INVALID_PTX);
    *why = "the version is of a later driver";
    NEED(100 * major + minor <= NEWEST_PTX,
         CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    *why = "the target is another device";
    NEED(is_target(ptx, target), CUDA_ERROR_INVALID_PTX);
    *why = "only OpenCL's driver sets %envreg"; /* NVIDIA's takes it */
    NEED(!strstr(ptx, "%envreg"), CUDA_ERROR_INVALID_PTX);
    return CUDA_SUCCESS;
}

ptx_module *cuda_compile(const char *ptx, unsigned target, CUresult *result,
                         char log[LOG_BYTES])
{
    const emulated_limits most = {USUAL_SHARED_BYTES, EMULATED_PARAMETER_BYTES,
                                  cuda_device()->max_work_group};
    char reason[EMULATED_REASON] = "";
    const char *why = reason;
    ptx_module *made = NULL;
    *result = check_text(ptx, target, &why);
    if (!*result) {
        why = reason;
        made = ptx_read(ptx, reason, sizeof reason);
        *result = made ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
    }
    if (*result)
        snprintf(log, LOG_BYTES, "error   : %s\n", why);
    for (size_t i = 0; made && i < made->kernel_count; i++)
        if (!emulated_fits(&made->kernels[i], &most, log, LOG_BYTES)) {
            ptx_free(made);
            made = NULL;
            *result = CUDA_ERROR_INVALID_PTX;
        }
    return made;
}

const char *cuda_read_image(const void *image, unsigned *registers,
                            CUresult *result)
{
    const cubin *binary = image;
    *result = CUDA_ERROR_INVALID_IMAGE;
    *registers = 0;
    /* a shorter text is different before it ends */
    if (strncmp(image, MAGIC, MAGIC_BYTES) != 0)
        return emulated_is_ptx(image) ? image : NULL;
    if (binary->bytes == 0 || binary->text[binary->bytes - 1])
        return NULL;
    *result = CUDA_ERROR_NO_BINARY_FOR_GPU;
    *registers = binary->registers;
    return binary->driver == CUDA_VERSION ? binary->text : NULL;
}

/* ---- Logs ---- */

static void say(message *to, const char *text)
{
    const size_t before = to->size ? strlen(to->text) : 0;
    if (to->size)
        snprintf(to->text + before, to->size - before, "%s", text);
    if (to->used)
        *to->used = (void *)(uintptr_t)(to->size ? strlen(to->text) : 0);
}

static void say_sizes(struct CUlinkState_st *link, const ptx_module *module)
{
    for (size_t i = 0; i < module->kernel_count; i++) {
        const ptx_kernel *kernel = &module->kernels[i];
        char line[LOG_BYTES];
        snprintf(line, sizeof line,
                 "info    : Function '%s': %zu bytes of shared memory, %zu "
                 "bytes of local memory\n",
                 kernel->name, kernel->shared_bytes, kernel->private_bytes);
        say(&link->info, line);
    }
}

/* ---- Options ---- */

static void set_option(struct CUlinkState_st *link, CUjit_option option,
                       void **value)
{
    const size_t number = (uintptr_t)*value;
    message *log =
        option < CU_JIT_ERROR_LOG_BUFFER ? &link->info : &link->error;
    switch (option) {
    case CU_JIT_MAX_REGISTERS:
        link->registers = (unsigned)number;
        break;
    case CU_JIT_TARGET:
        link->target = (unsigned)number;
        break;
    case CU_JIT_LOG_VERBOSE:
        link->is_verbose = number != 0;
        break;
    case CU_JIT_INFO_LOG_BUFFER:
    case CU_JIT_ERROR_LOG_BUFFER:
        log->text = *value;
        break;
    default:
        log->size = number;
        log->used = value;
    }
}

static bool is_good(CUjit_option option, const void *value)
{
    return option == CU_JIT_TARGET
               ? (uintptr_t)value == CU_TARGET_COMPUTE_90 ||
                     (uintptr_t)value == CU_TARGET_COMPUTE_90A
               : option == CU_JIT_MAX_REGISTERS ||
                     option == CU_JIT_LOG_VERBOSE ||
                     (option >= CU_JIT_INFO_LOG_BUFFER &&
                      option <= CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
}

static CUresult set_options(struct CUlinkState_st *link, unsigned count,
                            const CUjit_option *options, void **values)
{
    NEED(count == 0 || (options && values), CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < count; i++)
        NEED(is_good(options[i], values[i]), CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < count; i++)
        set_option(link, options[i], &values[i]);
    return CUDA_SUCCESS;
}

/* False: a place without a size, or a size without a place. */
static bool begin(message *one)
{
    if (!one->size != !one->text)
        return false;
    if (one->size)
        one->text[0] = 0;
    say(one, "");
    return true;
}

/* ---- Links ---- */

static void clear(cuda_object *gone)
{
    free(((struct CUlinkState_st *)gone)->cubin);
}

static cubin *pack(const char *ptx, unsigned registers)
{
    const size_t bytes = strlen(ptx) + 1;
    cubin *made = calloc(1, sizeof *made + bytes);
    if (!made)
        return NULL;
    *made = (cubin){
        .driver = CUDA_VERSION, .registers = registers, .bytes = bytes};
    memcpy(made->magic, MAGIC, MAGIC_BYTES);
    memcpy(made->text, ptx, bytes);
    return made;
}

CUresult cuLinkCreate_v2(unsigned count, CUjit_option *options, void **values,
                         CUlinkState *link)
{
    ENTER(cuda_use());
    NEED(link, CUDA_ERROR_INVALID_VALUE);
    struct CUlinkState_st *made = cuda_new(CUDA_LINK, sizeof *made, clear);
    NEED(made, CUDA_ERROR_OUT_OF_MEMORY);
    if (set_options(made, count, options, values) || !begin(&made->info) ||
        !begin(&made->error)) {
        cuda_free(made);
        return CUDA_ERROR_INVALID_VALUE;
    }
    *link = made;
    return CUDA_SUCCESS;
}

CUresult cuLinkAddData_v2(CUlinkState link, CUjitInputType type, void *data,
                          size_t size, const char *name, unsigned count,
                          CUjit_option *options, void **values)
{
    const char *planted = getenv("EMULATOR_CUDA_LOG");
    char text[LOG_BYTES];
    CUresult result;
    (void)name; /* of messages, to which it adds nothing */
    (void)options;
    (void)values;
    ENTER(cuda_use());
    NEED(cuda_is(link, CUDA_LINK), CUDA_ERROR_INVALID_HANDLE);
    /* its end is where a zero is */
    NEED(type == CU_JIT_INPUT_PTX && data && memchr(data, 0, size) &&
             count == 0,
         CUDA_ERROR_INVALID_VALUE);
    NEED(!link->cubin, CUDA_ERROR_NOT_SUPPORTED); /* several inputs */
    ptx_module *module = cuda_compile(data, link->target, &result, text);
    if (!module) {
        say(&link->error, text);
        return result;
    }
    if (link->is_verbose)
        say_sizes(link, module);
    say(&link->info, planted ? planted : "");
    ptx_free(module);
    link->cubin = pack(data, link->registers);
    NEED(link->cubin, CUDA_ERROR_OUT_OF_MEMORY);
    return CUDA_SUCCESS;
}

CUresult cuLinkComplete(CUlinkState link, void **image, size_t *size)
{
    ENTER(cuda_use());
    NEED(cuda_is(link, CUDA_LINK), CUDA_ERROR_INVALID_HANDLE);
    NEED(image && link->cubin, CUDA_ERROR_INVALID_VALUE);
    *image = link->cubin;
    if (size)
        *size = sizeof *link->cubin + link->cubin->bytes;
    return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState link)
{
    ENTER(cuda_begin());
    NEED(cuda_is(link, CUDA_LINK), CUDA_ERROR_INVALID_HANDLE);
    cuda_free(link);
    return CUDA_SUCCESS;
}
