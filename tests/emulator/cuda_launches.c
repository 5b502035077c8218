/* SPDX-License-Identifier: Apache-2.0
 * CUDA's driver: modules, functions and their launches. */
#include "cuda_driver.h"

#include <stdlib.h>
#include <string.h>

/* A work-item's, of 32 bits; they are given in steps. */
enum { MOST_REGISTERS = 255, REGISTER_STEP = 8 };

struct CUfunc_st {
    const ptx_kernel *code;
    unsigned registers;   /* that the linker was told, or 0 */
    size_t dynamic_bytes; /* that a launch may ask for */
};

struct CUmod_st {
    cuda_object head;
    ptx_module *program;
    struct CUfunc_st *functions; /* one of each kernel */
};

/* ---- Modules ---- */

static void clear(cuda_object *gone)
{
    struct CUmod_st *module = (struct CUmod_st *)gone;
    ptx_free(module->program);
    free(module->functions);
}

CUresult cuModuleLoadData(CUmodule *to, const void *image)
{
    ENTER(cuda_use());
    NEED(to && image, CUDA_ERROR_INVALID_VALUE);
    unsigned registers;
    CUresult result;
    char log[LOG_BYTES];
    const char *ptx = cuda_read_image(image, &registers, &result);
    ptx_module *program = ptx ? cuda_compile(ptx, 0, &result, log) : NULL;
    if (!program)
        return result;
    struct CUmod_st *made = cuda_new(CUDA_MODULE, sizeof *made, clear);
    if (!made) {
        ptx_free(program);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->program = program;
    made->functions =
        calloc(program->kernel_count + 1, sizeof *made->functions);
    if (!made->functions) {
        cuda_free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < program->kernel_count; i++) {
        const ptx_kernel *code = &program->kernels[i];
        made->functions[i] = (struct CUfunc_st){
            code, registers, USUAL_SHARED_BYTES - code->shared_bytes};
    }
    *to = made;
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module)
{
    ENTER(cuda_use());
    NEED(cuda_is(module, CUDA_MODULE), CUDA_ERROR_INVALID_HANDLE);
    cuda_free(module);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module,
                             const char *name)
{
    ENTER(cuda_use());
    NEED(function && name, CUDA_ERROR_INVALID_VALUE);
    NEED(cuda_is(module, CUDA_MODULE), CUDA_ERROR_INVALID_HANDLE);
    const ptx_kernel *code = emulated_kernel(module->program, name);
    NEED(code, CUDA_ERROR_NOT_FOUND);
    *function = &module->functions[code - module->program->kernels];
    return CUDA_SUCCESS;
}

/* ---- Functions ---- */

static bool is_function(const struct CUfunc_st *function)
{
    for (cuda_object *one = cuda_objects; one; one = one->next) {
        const struct CUmod_st *module = (const struct CUmod_st *)one;
        if (one->kind != CUDA_MODULE)
            continue;
        for (size_t i = 0; i < module->program->kernel_count; i++)
            if (function == &module->functions[i])
                return true;
    }
    return false;
}

static CUresult check_function(CUfunction function)
{
    TRY(cuda_use());
    NEED(is_function(function), CUDA_ERROR_INVALID_HANDLE);
    return CUDA_SUCCESS;
}

/* The compiler may use so many; how many it would is not known. */
static size_t registers_of(const struct CUfunc_st *function)
{
    const ptx_kernel *code = function->code;
    size_t most = MOST_REGISTERS;
    if (code->required_items) {
        const size_t share =
            cuda_device()->register_words / code->required_items;
        most = share < most ? share / REGISTER_STEP * REGISTER_STEP : most;
    }
    const size_t told =
        code->most_registers ? code->most_registers : function->registers;
    return told && told < most ? told : most;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute what,
                            CUfunction function)
{
    ENTER(check_function(function));
    NEED(value, CUDA_ERROR_INVALID_VALUE);
    switch (what) {
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = (int)function->code->shared_bytes;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = (int)function->code->private_bytes;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = (int)registers_of(function);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute what,
                            int value)
{
    ENTER(check_function(function));
    NEED(what == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES &&
             value >= 0 &&
             (size_t)value + function->code->shared_bytes <=
                 cuda_device()->local_bytes,
         CUDA_ERROR_INVALID_VALUE);
    function->dynamic_bytes = (size_t)value;
    return CUDA_SUCCESS;
}

/* ---- Launches ---- */

/* The block of all parameters, to be freed. */
static unsigned char *pack(const ptx_kernel *code, void **parameters)
{
    unsigned char *block = calloc(code->parameter_bytes + 1, 1);
    for (size_t i = 0; block && i < code->parameter_count; i++)
        memcpy(block + code->parameters[i].offset, parameters[i],
               code->parameters[i].size);
    return block;
}

static CUresult launch(const struct CUfunc_st *function, ptx_launch what,
                       void **parameters)
{
    char reason[EMULATED_REASON];
    unsigned char *block = pack(function->code, parameters);
    ptx_range *ranges = cuda_ranges(&what.range_count);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (block && ranges) {
        what.parameters = block;
        what.ranges = ranges;
        what.wave_lanes = cuda_device()->wave;
        result = CUDA_SUCCESS;
        if (!emulated_launch(EMULATED_H200, function->code, what, reason))
            cuda_fail(strstr(reason, "outside of") ? CUDA_ERROR_ILLEGAL_ADDRESS
                                                   : CUDA_ERROR_LAUNCH_FAILED);
    }
    free(ranges);
    free(block);
    return result;
}

static CUresult check(const struct CUfunc_st *function, const ptx_launch *what,
                      void **parameters)
{
    const ptx_kernel *code = function->code;
    NEED(what->groups > 0 && what->groups <= INT32_MAX && what->items > 0 &&
             what->items <= cuda_device()->max_work_group &&
             (!code->required_items || what->items == code->required_items) &&
             what->dynamic_bytes <= function->dynamic_bytes,
         CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < code->parameter_count; i++)
        NEED(parameters && parameters[i], CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                        unsigned grid_z, unsigned block_x, unsigned block_y,
                        unsigned block_z, unsigned dynamic_bytes,
                        CUstream stream, void **parameters, void **extra)
{
    const ptx_launch what = {
        .groups = grid_x, .items = block_x, .dynamic_bytes = dynamic_bytes};
    ENTER(check_function(function));
    TRY(cuda_check_stream(stream));
    NEED(grid_y && grid_z && block_y && block_z, CUDA_ERROR_INVALID_VALUE);
    NEED(grid_y == 1 && grid_z == 1 && block_y == 1 && block_z == 1 && !extra,
         CUDA_ERROR_NOT_SUPPORTED);
    TRY(check(function, &what, parameters));
    return launch(function, what, parameters);
}
