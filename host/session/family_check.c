/* SPDX-License-Identifier: Apache-2.0 */
#include "session/family_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/status.h"
#include "device/buffer.h"
#include "plan/family.h"
#include "problem/read.h"
#include "session/build.h"

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

/* A few windows of two heads, of as many tokens as the problem's, contiguous
 * or on one shifted grid; in the sliding variant one, of more tokens than a
 * work tile has, with blocks and a sink such that tiles are seen entirely,
 * partly and not at all. */
static winattn_status make_check_problem(const wa_problem *problem,
                                         wa_pass pass, wa_problem *small)
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

/* Operands are n times a power of two. Queries and biases of the second head
 * are larger, so that weights need other bases. */
#define MOST_N 8

static float scale_of(wa_tensor_id id, uint32_t head)
{
    switch (id) {
    case WA_Q:
        return head == 0 ? 0.25f : 4.0f;
    case WA_BIAS:
        return head == 0 ? 0.25f : 2.0f;
    default:
        return 0.125f;
    }
}

int wa_pick_check_number(uint32_t *random)
{
    *random = *random * 1664525u + 1013904223u;
    return (int)((*random >> 16) % (2 * MOST_N + 1)) - MOST_N;
}

static uint32_t head_of(const wa_tensor *tensor, uint64_t i)
{
    const uint64_t stride = tensor->stride[WA_HEAD];
    return stride ? (uint32_t)(i / stride % tensor->extent[WA_HEAD]) : 0;
}

/* Fills in an input, the same whenever it is asked for. */
static void make_check_numbers(const wa_problem *small, wa_tensor_id id,
                               void *bytes)
{
    const wa_tensor *tensor = &small->tensor[id];
    uint32_t random = (uint32_t)id + 1;
    for (uint64_t i = 0; i < tensor->span; i++) {
        const int n = wa_pick_check_number(&random);
        const uint32_t head = head_of(tensor, i);
        if (tensor->element_size == 1) /* every other window has regions */
            ((uint8_t *)bytes)[i] =
                i < tensor->stride[WA_WINDOW] ? 0 : (uint8_t)(i / 5 % 3);
        else if (tensor->element_size == sizeof(float))
            ((float *)bytes)[i] =
                id == WA_LOGIT_SCALE ? 1.5f + (float)head : (float)n / 8.0f;
        else
            ((uint16_t *)bytes)[i] = wa_half_of(small->dtype == WINATTN_FP16,
                                                (float)n * scale_of(id, head));
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

static double number_at(const wa_tensor *tensor, winattn_dtype dtype,
                        const void *bytes, uint64_t i)
{
    return tensor->element_size == sizeof(float)
               ? (double)((const float *)bytes)[i]
               : (double)wa_half_value(dtype == WINATTN_FP16,
                                       ((const uint16_t *)bytes)[i]);
}

winattn_status wa_compare_check_numbers(const wa_tensor *tensor,
                                        winattn_dtype dtype, wa_tensor_id like,
                                        const char *name, const void *is,
                                        const void *right)
{
    const double part = OF_ONE * promised(dtype, like);
    double largest[HEADS] = {0};
    for (uint64_t i = 0; i < tensor->span; i++) {
        double *most = &largest[head_of(tensor, i)];
        const double size = fabs(number_at(tensor, dtype, right, i));
        *most = size > *most ? size : *most;
    }
    for (uint64_t i = 0; i < tensor->span; i++) {
        const double a = number_at(tensor, dtype, is, i);
        const double b = number_at(tensor, dtype, right, i);
        if (!(fabs(a - b) <= part * largest[head_of(tensor, i)]))
            return WA_BAD_DEVICE(
                "self-test failed: %s, element %llu, is %g, not %g", name,
                (unsigned long long)i, a, b);
    }
    return WINATTN_SUCCESS;
}

/* ---- A pass ---- */

typedef struct comparison {
    wa_session *session;
    wa_problem problem; /* the small one */
    const wa_table_buffers *table;
    cl_command_queue queue;
    wa_runner *runner; /* of the kernels in question; NULL: OpenCL */
    void *data;
} comparison;

/* What it read and wrote; NULL: it has no such tensor. */
typedef struct tensors {
    char *bytes[WA_TENSORS];
} tensors;

static void tensors_free(tensors *t)
{
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++)
        free(t->bytes[id]);
}

static size_t bytes_of(const wa_problem *problem, wa_tensor_id id)
{
    return (size_t)problem->tensor[id].span * problem->tensor[id].element_size;
}

static bool is_output(wa_tensor_id id, wa_pass pass)
{
    return wa_tensor_role(id, pass) >= WA_OUTPUT;
}

/* Has the pass the tensor? o and lse are given to gradients, or not. */
static bool takes(const wa_problem *problem, wa_tensor_id id, wa_pass pass,
                  const tensors *given)
{
    const bool is_given = given && given->bytes[id];
    return problem->tensor[id].used && id != WA_D_LSE &&
           wa_tensor_role(id, pass) != WA_ABSENT &&
           (is_given || pass == WA_FORWARD || (id != WA_O && id != WA_LSE));
}

/* What no kernel writes is no number. */
static winattn_status make_tensors(const wa_problem *problem, wa_pass pass,
                                   const tensors *given, tensors *t)
{
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++) {
        const size_t bytes = bytes_of(problem, id);
        if (!takes(problem, id, pass, given))
            continue;
        t->bytes[id] = malloc(bytes);
        if (!t->bytes[id])
            return wa_fail_memory();
        memset(t->bytes[id], 0xff, bytes);
        if (given && given->bytes[id])
            memcpy(t->bytes[id], given->bytes[id], bytes);
        else if (!is_output(id, pass))
            make_check_numbers(problem, id, t->bytes[id]);
    }
    return WINATTN_SUCCESS;
}

/* Of so many bytes behind `offset` others. */
static winattn_status make_buffer(const comparison *c, size_t offset,
                                  const char *bytes, size_t count,
                                  cl_mem *buffer)
{
    char *all = malloc(offset + count);
    WA_TRY_MEMORY(all);
    memset(all, 0xff, offset + count);
    if (bytes)
        memcpy(all + offset, bytes, count);
    const winattn_status status =
        wa_make_buffer(wa_session_context(c->session), CL_MEM_READ_WRITE,
                       offset + count, all, buffer);
    free(all);
    return status;
}

static winattn_status make_buffers(const comparison *c, const wa_plan *plan,
                                   const tensors *t, bool is_aligned,
                                   wa_buffers *buffers)
{
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++) {
        winattn_tensor *to = &buffers->tensor[id];
        const uint32_t size = c->problem.tensor[id].element_size;
        if (!t->bytes[id])
            continue;
        to->offset = is_aligned || size == sizeof(float) ? 0 : size;
        WA_TRY(make_buffer(c, to->offset, t->bytes[id],
                           bytes_of(&c->problem, id), &to->buffer));
    }
    buffers->table = *c->table;
    return plan->workspace.all
               ? make_buffer(c, 0, NULL, (size_t)plan->workspace.all,
                             &buffers->workspace.buffer)
               : WINATTN_SUCCESS;
}

static void release_buffers(wa_buffers *buffers)
{
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++)
        wa_release_buffer(buffers->tensor[id].buffer);
    wa_release_buffer(buffers->workspace.buffer);
}

static winattn_status read_outputs(const comparison *c, wa_pass pass,
                                   const wa_buffers *buffers, tensors *t)
{
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++) {
        const winattn_tensor *from = &buffers->tensor[id];
        if (!from->buffer || !is_output(id, pass))
            continue;
        WA_TRY(WA_CL(clEnqueueReadBuffer, c->queue, from->buffer, CL_TRUE,
                     from->offset, bytes_of(&c->problem, id), t->bytes[id], 0,
                     NULL, NULL));
    }
    return WINATTN_SUCCESS;
}

static winattn_status run_by_opencl(const comparison *c, const wa_plan *plan,
                                    const wa_kernels *kernels, bool is_aligned,
                                    tensors *t)
{
    wa_buffers buffers;
    memset(&buffers, 0, sizeof buffers);
    winattn_status status = make_buffers(c, plan, t, is_aligned, &buffers);
    WA_THEN(status, wa_launch(&c->problem, plan, kernels, c->queue, &buffers,
                              0, 0, NULL, NULL));
    WA_THEN(status, read_outputs(c, plan->pass, &buffers, t));
    release_buffers(&buffers);
    return status;
}

/* t: to be freed, also after a failure. */
static winattn_status run(const comparison *c, const wa_plan *plan,
                          const wa_kernels *kernels, const tensors *given,
                          bool is_aligned, wa_runner *runner, tensors *t)
{
    memset(t, 0, sizeof *t);
    WA_TRY(make_tensors(&c->problem, plan->pass, given, t));
    return runner ? runner(c->data, &c->problem, plan, kernels, c->table,
                           is_aligned, t->bytes)
                  : run_by_opencl(c, plan, kernels, is_aligned, t);
}

/* ---- What is right ---- */

/* The binaries of plain kernels are complete after their launch. */
static winattn_status keep_binaries(const comparison *c,
                                    const wa_kernels *kernels)
{
    wa_program_set *programs = wa_session_programs(c->session);
    for (int i = 0; i < WA_STEPS; i++) {
        bool keeps = false;
        if (kernels->step[i])
            WA_TRY(wa_program_set_keeps(programs, kernels->step[i], &keeps));
        if (keeps)
            wa_program_set_keep(programs, kernels->step[i]);
    }
    return WINATTN_SUCCESS;
}

static winattn_status run_plainly(const comparison *c, wa_pass pass,
                                  tensors *t)
{
    wa_plan plan;
    wa_kernels kernels;
    memset(&kernels, 0, sizeof kernels);
    winattn_status status = wa_plan_plainly(
        &c->problem, wa_session_device(c->session), pass, &plan);
    WA_THEN(status,
            wa_build_steps(c->session, &c->problem, &plan, &kernels, NULL));
    WA_THEN(status, run(c, &plan, &kernels, NULL, true, NULL, t));
    WA_THEN(status, keep_binaries(c, &kernels));
    wa_kernels_release(&kernels);
    return status;
}

/* ---- The kernels in question ---- */

static uint32_t blocks_of(uint32_t tokens, uint32_t block)
{
    return block ? tokens / block + (tokens % block != 0) : 0;
}

/* The plan of these kernels for the small problem, on a device of one compute
 * unit, so that work-groups compute one thing after the other. */
static winattn_status shrink_plan(const comparison *c, const wa_plan *plan,
                                  wa_plan *small)
{
    const wa_problem *p = &c->problem;
    wa_schedule *s = &small->schedule;
    wa_device device = *wa_session_device(c->session);
    device.compute_units = 1;
    *small = *plan;
    memset(&small->workspace, 0, sizeof small->workspace);
    if (p->variant == WINATTN_SLIDING && plan->pass == WA_BACKWARD) {
        const wa_step *step = plan->step;
        s->row_blocks = blocks_of(p->queries, step[WA_STEP_ROWS].block_rows);
        s->key_blocks = blocks_of(p->keys, step[WA_STEP_KEYS].block_keys);
        s->bound_blocks =
            blocks_of(p->queries, step[WA_STEP_STATISTICS].block_rows);
    }
    s->sharing_groups = s->sharing_groups ? 1 : 0;
    s->busy_groups = s->busy_groups ? 1 : 0;
    s->row_groups = s->row_groups ? 1 : 0;
    if (s->groups) { /* one for each block of rows, or fewer if they go on */
        const uint32_t all =
            p->heads *
            blocks_of(p->queries, plan->step[WA_STEP_FORWARD].block_rows);
        s->groups = s->persistent_multi_block && all > 2 ? all - 1 : all;
    }
    return wa_plan_finish(p, &device, small);
}

static winattn_status compare(const comparison *c, wa_pass pass,
                              const tensors *is, const tensors *right)
{
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++)
        if (is->bytes[id] && is_output(id, pass))
            WA_TRY(wa_compare_check_numbers(
                &c->problem.tensor[id], c->problem.dtype, id,
                wa_tensor_name(id), is->bytes[id], right->bytes[id]));
    return WINATTN_SUCCESS;
}

static winattn_status check(const comparison *c, const wa_plan *plan,
                            const wa_kernels *kernels, const tensors *given,
                            const tensors *right)
{
    wa_plan small;
    WA_TRY(shrink_plan(c, plan, &small));
    for (int is_aligned = 1; is_aligned >= 0; is_aligned--) {
        tensors t;
        winattn_status status =
            run(c, &small, kernels, is_aligned ? given : NULL, is_aligned,
                c->runner, &t);
        WA_THEN(status, compare(c, plan->pass, &t, right));
        tensors_free(&t);
        WA_TRY(status);
    }
    return WINATTN_SUCCESS;
}

/* Gradients of windows are given o and lse. Those of the sliding variant have
 * a kernel for that in which nothing is new (cl/matrix/sliding_given.cl). */
static bool is_given(const wa_problem *problem, wa_pass pass)
{
    return pass == WA_BACKWARD && problem->variant != WINATTN_SLIDING;
}

static void keep_o_and_lse(tensors *t)
{
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++)
        if (id != WA_O && id != WA_LSE) {
            free(t->bytes[id]);
            t->bytes[id] = NULL;
        }
}

static winattn_status compare_passes(const comparison *c, const wa_plan *plan,
                                     const wa_kernels *kernels)
{
    tensors given, right;
    winattn_status status = WINATTN_SUCCESS;
    memset(&given, 0, sizeof given);
    memset(&right, 0, sizeof right);
    if (is_given(&c->problem, plan->pass)) {
        status = run_plainly(c, WA_FORWARD, &given);
        keep_o_and_lse(&given);
    }
    WA_THEN(status, run_plainly(c, plan->pass, &right));
    WA_THEN(status, check(c, plan, kernels, &given, &right));
    tensors_free(&given);
    tensors_free(&right);
    return status;
}

winattn_status wa_check_family(wa_session *session, const wa_problem *problem,
                               const wa_plan *plan, const wa_kernels *kernels,
                               const wa_table_buffers *table,
                               wa_runner *runner, void *data)
{
    comparison c = {
        .session = session, .table = table, .runner = runner, .data = data};
    cl_int error;
    WA_TRY(make_check_problem(problem, plan->pass, &c.problem));
    c.queue = clCreateCommandQueue(wa_session_context(session),
                                   wa_session_device_id(session), 0, &error);
    WA_TRY(wa_cl_status(error, "clCreateCommandQueue"));
    const winattn_status status = compare_passes(&c, plan, kernels);
    clReleaseCommandQueue(c.queue);
    return status;
}
