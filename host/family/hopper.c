/* SPDX-License-Identifier: Apache-2.0 */
#include "family/hopper.h"

/* The one that knows sm_90a: later ones have no wgmma. */
#define HOPPER 90u
/* Of q, k, v, o and the gradients. */
#define COPY_BYTES 16u

bool wa_has_wgmma(const wa_device *device)
{
    return device->vendor == WA_VENDOR_NVIDIA &&
           device->compute_capability == HOPPER;
}

bool wa_wgmma_copies(const wa_problem *problem, wa_pass pass)
{
    static const wa_tensor_id ids[] = {WA_Q,   WA_K,  WA_V,  WA_O,
                                       WA_D_O, WA_DQ, WA_DK, WA_DV};
    const size_t count = pass == WA_FORWARD ? 4 : sizeof ids / sizeof *ids;
    for (size_t i = 0; i < count; i++) {
        const wa_tensor *tensor = &problem->tensor[ids[i]];
        if (!wa_tensor_is_adjacent(tensor))
            return false;
        for (int axis = WA_WINDOW; axis <= WA_ROW; axis++)
            if (tensor->stride[axis] * tensor->element_size % COPY_BYTES != 0)
                return false;
    }
    return true;
}

const char *wa_wgmma_windows_refusal(const wa_problem *problem,
                                     const wa_device *device, wa_pass pass)
{
    const wa_table *table = &problem->table;
    if (!wa_has_wgmma(device))
        return "";
    if (problem->dtype == WINATTN_FP32)
        return "fp32 would be rounded";
    if (wa_problem_padding(problem) != 0)
        return "it knows no windows with padding";
    if (MASK_READS_ARRAY(problem->mask))
        return "it knows no masks but of regions";
    if (problem->bias != WINATTN_BIAS_NONE &&
        problem->bias_dtype != WINATTN_TERM_SAME)
        return "it knows no biases of another type";
    if (table->used &&
        table->entries > (uint64_t)problem->queries * problem->keys)
        return "it knows no tables of more entries than pairs";
    return wa_wgmma_copies(problem, pass) ? NULL
                                          : "rows are not copied in 16 bytes";
}

void wa_set_wgmma_access(wa_plan *plan)
{
    plan->access_elements = COPY_BYTES / 2;
    plan->access_bytes = COPY_BYTES;
}
