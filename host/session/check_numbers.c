/* SPDX-License-Identifier: Apache-2.0 */
#include "session/check_numbers.h"

#include <math.h>
#include <string.h>

#include "base/status.h"
#include "problem/read.h"
#include "session/stored_numbers.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))

#define HEADS 2u
/* So many that work-groups go from one to the next. */
#define WINDOWS 2u

/* ---- The problem ---- */

/* Windows side by side on one grid, shifted by half of a window along each
 * axis that has room. */
static void shrink_grid(const wa_problem *small, wa_grid *grid)
{
    const uint32_t windows = (uint32_t)small->windows;
    grid->batch = 1;
    grid->shift_boundaries = 0;
    grid->windows[0] = 1;
    grid->windows[1] = windows % 2 == 0 ? 2 : 1;
    grid->windows[2] = windows / grid->windows[1];
    for (int axis = 0; axis < WINATTN_AXES; axis++) {
        grid->size[axis] = grid->windows[axis] * grid->window[axis];
        grid->shift[axis] = grid->window[axis] / 2;
        if (MASK_FOLLOWS_GRID(small->mask) && grid->shift[axis] > 0)
            grid->shift_boundaries |= 1u << axis;
    }
}

static void shrink_sliding(wa_problem *small)
{
    small->windows = 1;
    small->queries = small->keys = 290;
    small->block = 80;
    small->first_block = 60;
    small->window_blocks = 2;
    small->sink = 9;
    small->query_offset = 0;
}

static bool has_wide_mask(const wa_problem *problem)
{
    return problem->tensor[WA_MASK].element_size == sizeof(float);
}

winattn_status wa_make_check_problem(const wa_problem *problem, wa_pass pass,
                                     wa_problem *small)
{
    const winattn_desc desc = {.variant = problem->variant,
                               .bias = problem->bias,
                               .bias_dtype = problem->bias_dtype,
                               .mask_dtype = has_wide_mask(problem)
                                                 ? WINATTN_TERM_FP32
                                                 : WINATTN_TERM_SAME};
    *small = *problem;
    small->windows = WINDOWS;
    if (problem->variant == WINATTN_SLIDING)
        shrink_sliding(small);
    small->heads = HEADS;
    /* heads share keys, but where gradients of windows are wanted */
    small->kv_heads =
        pass == WA_BACKWARD && problem->variant != WINATTN_SLIDING ? HEADS : 1;
    small->mask_windows = MIN(problem->mask_windows, 2);
    if (problem->variant != WINATTN_COSINE)
        small->scale = 0.5f;
    if (problem->grid.used)
        shrink_grid(small, &small->grid);
    small->passes[pass] = true;
    memset(small->tensor, 0, sizeof small->tensor);
    return wa_read_tensors(&desc, small);
}

/* ---- Its numbers ---- */

/* Operands are n times a power of two, |n| <= 8, which both types hold
 * exactly. Queries and biases of the second head are larger, so that weights
 * need other bases. */
#define MOST_N 8

static int power_of(wa_tensor_id id, uint32_t head)
{
    switch (id) {
    case WA_Q:
        return head == 0 ? -2 : 2;
    case WA_BIAS:
        return head == 0 ? -2 : 1;
    default:
        return -3;
    }
}

static int pick(uint32_t *random)
{
    *random = *random * 1664525u + 1013904223u;
    return (int)((*random >> 16) % (2 * MOST_N + 1)) - MOST_N;
}

static uint32_t head_of(const wa_tensor *tensor, uint64_t i)
{
    const uint64_t stride = tensor->stride[WA_HEAD];
    return stride ? (uint32_t)(i / stride % tensor->extent[WA_HEAD]) : 0;
}

void wa_make_check_numbers(const wa_problem *small, wa_tensor_id id,
                           void *bytes)
{
    const wa_tensor *tensor = &small->tensor[id];
    uint32_t random = (uint32_t)id + 1;
    for (uint64_t i = 0; i < tensor->span; i++) {
        const int n = pick(&random);
        const uint32_t head = head_of(tensor, i);
        if (tensor->element_size == 1) /* every other window has regions */
            ((uint8_t *)bytes)[i] =
                i < tensor->stride[WA_WINDOW] ? 0 : (uint8_t)(i / 5 % 3);
        else if (tensor->element_size == sizeof(float))
            ((float *)bytes)[i] =
                id == WA_LOGIT_SCALE ? 1.5f + (float)head : (float)n / 8.0f;
        else
            ((uint16_t *)bytes)[i] =
                wa_stored_bits(small->dtype, n, power_of(id, head));
    }
}

/* ---- Comparison ---- */

/* What is promised is an error's 2-norm; a single number may be so many times
 * farther off, as a part of a head's largest. */
#define OF_ONE 8.0

static double promised(winattn_dtype dtype, wa_tensor_id id)
{
    switch (id) {
    case WA_LSE:
        return 1e-5;
    case WA_O:
        return dtype == WINATTN_FP16 ? 5e-4 : 4e-3;
    default:
        return dtype == WINATTN_FP16 ? 1e-3 : 6e-3;
    }
}

static double number_at(const wa_problem *small, const wa_tensor *tensor,
                        const void *bytes, uint64_t i)
{
    return tensor->element_size == sizeof(float)
               ? (double)((const float *)bytes)[i]
               : wa_stored_value(small->dtype, ((const uint16_t *)bytes)[i]);
}

winattn_status wa_compare_check_numbers(const wa_problem *small,
                                        wa_tensor_id id, const void *is,
                                        const void *right)
{
    const wa_tensor *tensor = &small->tensor[id];
    const double part = OF_ONE * promised(small->dtype, id);
    double largest[HEADS] = {0};
    for (uint64_t i = 0; i < tensor->span; i++) {
        double *most = &largest[head_of(tensor, i)];
        const double size = fabs(number_at(small, tensor, right, i));
        *most = size > *most ? size : *most;
    }
    for (uint64_t i = 0; i < tensor->span; i++) {
        const uint32_t head = head_of(tensor, i);
        const double a = number_at(small, tensor, is, i);
        const double b = number_at(small, tensor, right, i);
        if (!(fabs(a - b) <= part * largest[head]))
            return wa_fail(WINATTN_UNSUPPORTED_DEVICE,
                           "self-test failed: %s of head %u, element %llu, is "
                           "%g, not %g",
                           wa_tensor_name(id), head, (unsigned long long)i, a,
                           b);
    }
    return WINATTN_SUCCESS;
}
