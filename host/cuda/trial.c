/* SPDX-License-Identifier: Apache-2.0
 * Runs a pass on numbers of the host's, for a comparison. */
#include <string.h>

#include "api.h"
#include "base/status.h"
#include "cuda/calls.h"
#include "cuda/driver.h"
#include "launch/list.h"

/* What is on the device. */
typedef struct trial {
    const wa_problem *problem;
    wa_cu_address start[WINATTN_TENSORS]; /* of what was allocated */
    winattn_memory at[WINATTN_TENSORS];
} trial;

/* `bytes`, unless NULL, behind `offset` others. */
static winattn_status put(trial *t, int id, uint64_t offset, const char *bytes,
                          uint64_t count)
{
    const wa_cuda *cuda = wa_cuda_driver();
    WA_TRY(wa_cuda_check(cuda->allocate(&t->start[id], offset + count),
                         "cuMemAlloc"));
    t->at[id] = (winattn_memory){t->start[id] + offset, count};
    return bytes ? wa_cuda_check(cuda->write(t->at[id].address, bytes, count),
                                 "cuMemcpyHtoD")
                 : WINATTN_SUCCESS;
}

static winattn_status put_all(trial *t, const wa_plan *plan, bool is_aligned,
                              char *const bytes[WA_TENSORS])
{
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++) {
        const wa_tensor *tensor = &t->problem->tensor[id];
        const uint32_t size = tensor->element_size;
        if (bytes[id])
            WA_TRY(put(t, (int)id, is_aligned || size == 4 ? 0 : size,
                       bytes[id], tensor->span * size));
    }
    if (plan->workspace.all)
        WA_TRY(put(t, WINATTN_TENSOR_WORKSPACE, 0, NULL, plan->workspace.all));
    /* copies are on a stream of their own */
    return wa_cuda_check(wa_cuda_driver()->synchronize(NULL),
                         "cuStreamSynchronize");
}

static winattn_status get_outputs(const trial *t, wa_pass pass,
                                  char *bytes[WA_TENSORS])
{
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++)
        if (bytes[id] && wa_tensor_role(id, pass) >= WA_OUTPUT)
            WA_TRY(wa_cuda_check(wa_cuda_driver()->read(bytes[id],
                                                        t->at[id].address,
                                                        t->at[id].bytes),
                                 "cuMemcpyDtoH"));
    return WINATTN_SUCCESS;
}

static winattn_status launch(const trial *t, const wa_cuda_place *place,
                             const wa_plan *plan, const wa_kernels *kernels,
                             const wa_table_buffers *table)
{
    winattn_cuda_call *call = NULL;
    wa_buffers buffers = {.table = *table};
    winattn_launch_list *list = wa_plan_begin_list(place->plan);
    WA_TRY_MEMORY(list);
    wa_list_place(list, t->problem, plan->workspace.all, t->at, &buffers);
    for (int id = 0; id < WA_TENSORS; id++)
        buffers.start[id] = t->at[id].address;
    winattn_status status =
        wa_list_launches(t->problem, plan, kernels, &buffers, 0, list);
    if (status != WINATTN_SUCCESS) {
        winattn_launch_list_destroy(list);
        return status;
    }
    WA_TRY(wa_cuda_call_of_list(place->ordinal, list, &call));
    status = winattn_cuda_call_launch(call, t->at, place->stream);
    WA_THEN(status, wa_cuda_check(wa_cuda_driver()->synchronize(place->stream),
                                  "cuStreamSynchronize"));
    winattn_cuda_call_destroy(call);
    return status;
}

winattn_status wa_cuda_try(void *data, const wa_problem *problem,
                           const wa_plan *plan, const wa_kernels *kernels,
                           const wa_table_buffers *table, bool is_aligned,
                           char *bytes[WA_TENSORS])
{
    trial t = {.problem = problem};
    winattn_status status = put_all(&t, plan, is_aligned, bytes);
    WA_THEN(status, launch(&t, data, plan, kernels, table));
    WA_THEN(status, get_outputs(&t, plan->pass, bytes));
    for (int id = 0; id < WINATTN_TENSORS; id++)
        if (t.start[id])
            wa_cuda_driver()->free(t.start[id]);
    return status;
}
