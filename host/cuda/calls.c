/* SPDX-License-Identifier: Apache-2.0
 * A launch list on a device of CUDA's. */
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "base/status.h"
#include "cuda/calls.h"
#include "cuda/modules.h"
#include "launch/list.h"

#define MOST_ARGUMENTS 32
#define MOST_PROGRAMS 16
#define MOST_TABLES 4
#define MOST_GROUPS 0x7fffffffu

/* A launch, ready but for the tensors. */
typedef struct ready_launch {
    wa_cu_function function;
    uint32_t local_bytes;
} ready_launch;

struct winattn_cuda_call {
    winattn_launch_list *list;
    wa_cu_device device;
    wa_cu_context context; /* retained */
    wa_module *modules[MOST_PROGRAMS];
    wa_cu_address tables[MOST_TABLES];
    ready_launch *launches;
};

/* ---- In the call's context ---- */

static winattn_status load_programs(winattn_cuda_call *call)
{
    const winattn_launch_program *program;
    for (size_t i = 0; (program = winattn_launch_list_program(call->list, i));
         i++) {
        if (i == MOST_PROGRAMS)
            return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                           "the list has too many programs");
        WA_TRY(wa_module_acquire(call->device, program, &call->modules[i]));
    }
    return WINATTN_SUCCESS;
}

static winattn_status copy_tables(winattn_cuda_call *call)
{
    const wa_cuda *cuda = wa_cuda_driver();
    const winattn_launch_table *table;
    for (size_t i = 0; (table = winattn_launch_list_table(call->list, i));
         i++) {
        if (i == MOST_TABLES)
            return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                           "the list has too many tables");
        WA_TRY(wa_cuda_check(cuda->allocate(&call->tables[i], table->size),
                             "cuMemAlloc"));
        WA_TRY(wa_cuda_check(
            cuda->write(call->tables[i], table->bytes, table->size),
            "cuMemcpyHtoD"));
    }
    /* copies are on a stream of their own */
    return wa_cuda_check(cuda->synchronize(NULL), "cuStreamSynchronize");
}

static winattn_status make_launches(winattn_cuda_call *call)
{
    const winattn_launch *launch;
    size_t count = 0;
    while (winattn_launch_list_launch(call->list, count))
        count++;
    call->launches = calloc(count + 1, sizeof *call->launches);
    WA_TRY_MEMORY(call->launches);
    for (size_t i = 0; i < count; i++) {
        launch = winattn_launch_list_launch(call->list, i);
        if (launch->argument_count > MOST_ARGUMENTS ||
            launch->groups > MOST_GROUPS)
            return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                           "a launch of %s is too large for CUDA",
                           launch->kernel);
        WA_TRY(wa_module_function(call->modules[launch->program],
                                  launch->kernel, &call->launches[i].function,
                                  &call->launches[i].local_bytes));
    }
    return WINATTN_SUCCESS;
}

static winattn_status prepare(winattn_cuda_call *call)
{
    WA_TRY(load_programs(call));
    WA_TRY(copy_tables(call));
    return make_launches(call);
}

static void let_go(winattn_cuda_call *call)
{
    for (size_t i = 0; i < MOST_TABLES; i++)
        if (call->tables[i])
            wa_cuda_driver()->free(call->tables[i]);
    for (size_t i = 0; i < MOST_PROGRAMS; i++)
        wa_module_release(call->modules[i]);
}

/* ---- Calls ---- */

static winattn_status enter(const winattn_cuda_call *call)
{
    return wa_cuda_check(wa_cuda_driver()->push(call->context),
                         "cuCtxPushCurrent");
}

static void leave(void)
{
    wa_cu_context before;
    wa_cuda_driver()->pop(&before);
}

/* Which context it is in. */
static winattn_status find_context(winattn_cuda_call *call, int ordinal)
{
    const wa_cuda *cuda = wa_cuda_driver();
    if (!cuda)
        return wa_fail(WINATTN_DRIVER_FAILED, "CUDA's driver is not there");
    WA_TRY(wa_cuda_check(cuda->init(0), "cuInit"));
    WA_TRY(wa_cuda_check(cuda->device(&call->device, ordinal), "cuDeviceGet"));
    return wa_cuda_check(cuda->retain(&call->context, call->device),
                         "cuDevicePrimaryCtxRetain");
}

winattn_status winattn_cuda_check_stream(int ordinal, void *stream)
{
    winattn_cuda_call call = {.list = NULL};
    int is_captured = 0;
    wa_forget_failure();
    WA_TRY(find_context(&call, ordinal));
    winattn_status status = enter(&call);
    if (status == WINATTN_SUCCESS) {
        status =
            wa_cuda_check(wa_cuda_driver()->is_capturing(stream, &is_captured),
                          "cuStreamIsCapturing");
        leave();
    }
    wa_cuda_driver()->release(call.device);
    if (status == WINATTN_SUCCESS && is_captured)
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                       "the first call of its kind compiles, which cannot be "
                       "captured: call it once before");
    return status;
}

static winattn_status make(winattn_cuda_call *call, int ordinal)
{
    WA_TRY(find_context(call, ordinal));
    WA_TRY(enter(call));
    const winattn_status status = prepare(call);
    leave();
    return status;
}

winattn_status wa_cuda_call_of_list(int ordinal, winattn_launch_list *list,
                                    winattn_cuda_call **result)
{
    *result = NULL;
    winattn_cuda_call *call = calloc(1, sizeof *call);
    if (!call) {
        winattn_launch_list_destroy(list);
        return wa_fail_memory();
    }
    call->list = list;
    const winattn_status status = make(call, ordinal);
    wa_list_drop_bulk(list);
    if (status != WINATTN_SUCCESS)
        winattn_cuda_call_destroy(call);
    else
        *result = call;
    return status;
}

/* Compares kernels that are not trusted unseen, once for each program. */
static winattn_status check(const winattn_cuda_call *call, int ordinal,
                            const winattn_plan *plan, wa_pass pass,
                            void *stream)
{
    wa_cuda_place place = {plan, ordinal, stream};
    bool is_trusted = true;
    for (int i = 0; i < MOST_PROGRAMS && call->modules[i]; i++)
        is_trusted = is_trusted && wa_module_is_trusted(call->modules[i]);
    if (is_trusted || !wa_plan_is_checked(plan, pass))
        return WINATTN_SUCCESS;
    WA_TRY(enter(call));
    const winattn_status status =
        wa_plan_check(plan, pass, wa_cuda_try, &place);
    leave();
    for (int i = 0;
         status == WINATTN_SUCCESS && i < MOST_PROGRAMS && call->modules[i];
         i++)
        wa_module_trust(call->modules[i]);
    return status;
}

winattn_status winattn_cuda_call_create(int ordinal, const winattn_plan *plan,
                                        cl_bitfield passes,
                                        const winattn_memory *memory,
                                        cl_bitfield accumulate, void *stream,
                                        winattn_cuda_call **result)
{
    const wa_pass pass =
        passes == WINATTN_PASS_FORWARD ? WA_FORWARD : WA_BACKWARD;
    winattn_launch_list *list;
    *result = NULL;
    WA_TRY(winattn_cuda_check_stream(ordinal, stream));
    WA_TRY(
        winattn_launch_list_create(plan, passes, memory, accumulate, &list));
    WA_TRY(wa_cuda_call_of_list(ordinal, list, result));
    const winattn_status status = check(*result, ordinal, plan, pass, stream);
    if (status != WINATTN_SUCCESS) {
        winattn_cuda_call_destroy(*result);
        *result = NULL;
    }
    return status;
}

void winattn_cuda_call_destroy(winattn_cuda_call *call)
{
    if (!call)
        return;
    if (call->context) {
        if (enter(call) == WINATTN_SUCCESS) {
            let_go(call);
            leave();
        }
        wa_cuda_driver()->release(call->device);
    }
    winattn_launch_list_destroy(call->list);
    free(call->launches);
    free(call);
}

static winattn_status launch(const winattn_cuda_call *call, size_t i,
                             const winattn_memory *memory, void *stream)
{
    const winattn_launch *from = winattn_launch_list_launch(call->list, i);
    const ready_launch *ready = &call->launches[i];
    void *values[MOST_ARGUMENTS];
    for (cl_uint n = 0; n < from->argument_count; n++) {
        const winattn_argument *argument = &from->arguments[n];
        const void *value =
            argument->kind == WINATTN_ARGUMENT_BYTES ? argument->bytes
            : argument->kind == WINATTN_ARGUMENT_TENSOR
                ? (const void *)&memory[argument->index].address
                : (const void *)&call->tables[argument->index];
        values[n] = (void *)(uintptr_t)value; /* the driver only reads it */
    }
    return wa_cuda_check(
        wa_cuda_driver()->launch(ready->function, (unsigned)from->groups, 1, 1,
                                 from->work_group, 1, 1, ready->local_bytes,
                                 stream, values, NULL),
        "cuLaunchKernel");
}

winattn_status winattn_cuda_call_launch(const winattn_cuda_call *call,
                                        const winattn_memory *memory,
                                        void *stream)
{
    WA_TRY(enter(call));
    winattn_status status = WINATTN_SUCCESS;
    for (size_t i = 0; status == WINATTN_SUCCESS &&
                       winattn_launch_list_launch(call->list, i);
         i++)
        status = launch(call, i, memory, stream);
    leave();
    return status;
}
