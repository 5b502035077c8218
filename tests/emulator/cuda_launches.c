/* SPDX-License-Identifier: Apache-2.0
 * CUDA's driver: modules, functions and their launches. */
#include "cuda_driver.h"

#include <stdlib.h>
#include <string.h>

struct wa_cu_function_st {
    const ptx_kernel *code;
    size_t dynamic_bytes; /* that a launch may ask for */
};

struct wa_cu_module_st {
    cuda_object head;
    ptx_module *program;
    struct wa_cu_function_st functions[]; /* one of each kernel */
};

/* ---- Modules ---- */

static void clear(cuda_object *gone)
{
    ptx_free(((struct wa_cu_module_st *)gone)->program);
}

wa_cu_result cuModuleLoadDataEx(wa_cu_module *module, const void *image,
                                unsigned count, const int *options,
                                void **values)
{
    void *told[WA_CUDA_VERBOSE + 1] = {NULL};
    ENTER(cuda_use());
    for (unsigned i = 0; i < count; i++) {
        NEED((unsigned)options[i] <= WA_CUDA_VERBOSE,
             CUDA_ERROR_INVALID_VALUE);
        told[options[i]] = values[i];
    }
    ptx_module *program = cuda_compile(image, told);
    NEED(program, CUDA_ERROR_INVALID_PTX);
    const size_t functions =
        program->kernel_count * sizeof(struct wa_cu_function_st);
    struct wa_cu_module_st *made =
        cuda_new(CUDA_MODULE, sizeof *made + functions, clear);
    made->program = program;
    for (size_t i = 0; i < program->kernel_count; i++) {
        const ptx_kernel *code = &program->kernels[i];
        made->functions[i] = (struct wa_cu_function_st){
            code, USUAL_SHARED_BYTES - code->shared_bytes};
    }
    *module = made;
    return CUDA_SUCCESS;
}

wa_cu_result cuModuleUnload(wa_cu_module module)
{
    ENTER(cuda_use());
    NEED(cuda_is(module, CUDA_MODULE), CUDA_ERROR_INVALID_HANDLE);
    cuda_free(module);
    return CUDA_SUCCESS;
}

wa_cu_result cuModuleGetFunction(wa_cu_function *function, wa_cu_module module,
                                 const char *name)
{
    ENTER(cuda_use());
    NEED(cuda_is(module, CUDA_MODULE), CUDA_ERROR_INVALID_HANDLE);
    const ptx_kernel *code = emulated_kernel(module->program, name);
    NEED(code, CUDA_ERROR_NOT_FOUND);
    *function = &module->functions[code - module->program->kernels];
    return CUDA_SUCCESS;
}

/* ---- Functions ---- */

/* Is it one of a module that is loaded? */
static wa_cu_result check_function(wa_cu_function function)
{
    TRY(cuda_use());
    for (cuda_object *one = cuda_objects; one; one = one->next) {
        const struct wa_cu_module_st *module = (struct wa_cu_module_st *)one;
        if (one->kind != CUDA_MODULE)
            continue;
        for (size_t i = 0; i < module->program->kernel_count; i++)
            if (function == &module->functions[i])
                return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_HANDLE;
}

wa_cu_result cuFuncSetAttribute(wa_cu_function function, int attribute,
                                int value)
{
    ENTER(check_function(function));
    NEED(attribute == WA_CUDA_LOCAL_BYTES && value >= 0 &&
             (size_t)value + function->code->shared_bytes <=
                 cuda_device()->local_bytes,
         CUDA_ERROR_INVALID_VALUE);
    function->dynamic_bytes = (size_t)value;
    return CUDA_SUCCESS;
}

/* ---- Launches ---- */

static void run(const ptx_kernel *code, ptx_launch what, void **arguments)
{
    char reason[EMULATED_REASON];
    unsigned char *block = cuda_zeros(code->parameter_bytes);
    ptx_range *ranges = cuda_ranges(&what.range_count);
    for (size_t i = 0; i < code->parameter_count; i++)
        memcpy(block + code->parameters[i].offset, arguments[i],
               code->parameters[i].size);
    what.parameters = block;
    what.ranges = ranges;
    what.wave_lanes = cuda_device()->wave;
    if (!emulated_launch(EMULATED_H200, code, what, reason))
        cuda_fail(strstr(reason, "outside of") ? CUDA_ERROR_ILLEGAL_ADDRESS
                                               : CUDA_ERROR_LAUNCH_FAILED);
    free(ranges);
    free(block);
}

wa_cu_result cuLaunchKernel(wa_cu_function function, unsigned groups,
                            unsigned groups_y, unsigned groups_z,
                            unsigned items, unsigned items_y, unsigned items_z,
                            unsigned local_bytes, wa_cu_stream stream,
                            void **arguments, void **extra)
{
    ENTER(check_function(function));
    TRY(cuda_check_stream(stream));
    NEED(groups_y == 1 && groups_z == 1 && items_y == 1 && items_z == 1 &&
             arguments && !extra,
         CUDA_ERROR_NOT_SUPPORTED);
    const ptx_kernel *code = function->code;
    NEED(groups > 0 && groups <= INT32_MAX && items > 0 &&
             items <= cuda_device()->max_work_group &&
             (!code->required_items || items == code->required_items) &&
             local_bytes <= function->dynamic_bytes,
         CUDA_ERROR_INVALID_VALUE);
    run(code,
        (ptx_launch){
            .groups = groups, .items = items, .dynamic_bytes = local_bytes},
        arguments);
    return CUDA_SUCCESS;
}
