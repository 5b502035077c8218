/* SPDX-License-Identifier: Apache-2.0 */
#include "session/family_check.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "device/buffer.h"
#include "plan/family.h"
#include "session/build.h"
#include "session/check_numbers.h"

typedef struct comparison {
    wa_session *session;
    wa_problem problem; /* the small one */
    const wa_table_buffers *table;
    cl_command_queue queue;
} comparison;

/* ---- A pass ---- */

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
            wa_make_check_numbers(problem, id, t->bytes[id]);
    }
    return WINATTN_SUCCESS;
}

/* Of so many bytes behind `offset` others. */
static winattn_status make_buffer(const comparison *c, size_t offset,
                                  const char *bytes, size_t count,
                                  cl_mem *buffer)
{
    char *all = malloc(offset + count);
    if (!all)
        return wa_fail_memory();
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
        if (buffers->tensor[id].buffer)
            clReleaseMemObject(buffers->tensor[id].buffer);
    if (buffers->workspace.buffer)
        clReleaseMemObject(buffers->workspace.buffer);
}

static winattn_status read_outputs(const comparison *c, wa_pass pass,
                                   const wa_buffers *buffers, tensors *t)
{
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++) {
        const winattn_tensor *from = &buffers->tensor[id];
        if (!from->buffer || !is_output(id, pass))
            continue;
        const cl_int error = clEnqueueReadBuffer(
            c->queue, from->buffer, CL_TRUE, from->offset,
            bytes_of(&c->problem, id), t->bytes[id], 0, NULL, NULL);
        if (error != CL_SUCCESS)
            return wa_fail_cl(error, "clEnqueueReadBuffer");
    }
    return WINATTN_SUCCESS;
}

/* t: to be freed, also after a failure. */
static winattn_status run(const comparison *c, const wa_plan *plan,
                          const wa_kernels *kernels, const tensors *given,
                          bool is_aligned, tensors *t)
{
    wa_buffers buffers;
    memset(&buffers, 0, sizeof buffers);
    memset(t, 0, sizeof *t);
    winattn_status status = make_tensors(&c->problem, plan->pass, given, t);
    if (status == WINATTN_SUCCESS)
        status = make_buffers(c, plan, t, is_aligned, &buffers);
    if (status == WINATTN_SUCCESS)
        status = wa_launch(&c->problem, plan, kernels, c->queue, &buffers, 0,
                           0, NULL, NULL);
    if (status == WINATTN_SUCCESS)
        status = read_outputs(c, plan->pass, &buffers, t);
    release_buffers(&buffers);
    return status;
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
    if (status == WINATTN_SUCCESS)
        status =
            wa_build_steps(c->session, &c->problem, &plan, &kernels, NULL);
    if (status == WINATTN_SUCCESS)
        status = run(c, &plan, &kernels, NULL, true, t);
    if (status == WINATTN_SUCCESS)
        status = keep_binaries(c, &kernels);
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
    WA_TRY(wa_plan_finish(p, &device, small));
    if (s->groups) { /* one for each block of rows, or fewer if they go on */
        const uint32_t all = s->row_blocks * p->heads;
        s->persistent_multi_block = plan->schedule.persistent_multi_block;
        s->groups = s->persistent_multi_block && all > 2 ? all - 1 : all;
    }
    return WINATTN_SUCCESS;
}

static winattn_status compare(const comparison *c, wa_pass pass,
                              const tensors *is, const tensors *right)
{
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++)
        if (is->bytes[id] && is_output(id, pass))
            WA_TRY(wa_compare_check_numbers(&c->problem, id, is->bytes[id],
                                            right->bytes[id]));
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
            run(c, &small, kernels, is_aligned ? given : NULL, is_aligned, &t);
        if (status == WINATTN_SUCCESS)
            status = compare(c, plan->pass, &t, right);
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
    if (status == WINATTN_SUCCESS)
        status = run_plainly(c, plan->pass, &right);
    if (status == WINATTN_SUCCESS)
        status = check(c, plan, kernels, &given, &right);
    tensors_free(&given);
    tensors_free(&right);
    return status;
}

winattn_status wa_check_family(wa_session *session, const wa_problem *problem,
                               const wa_plan *plan, const wa_kernels *kernels,
                               const wa_table_buffers *table)
{
    comparison c = {.session = session, .table = table};
    cl_int error;
    WA_TRY(wa_make_check_problem(problem, plan->pass, &c.problem));
    c.queue = clCreateCommandQueue(wa_session_context(session),
                                   wa_session_device_id(session), 0, &error);
    if (error != CL_SUCCESS)
        return wa_fail_cl(error, "clCreateCommandQueue");
    const winattn_status status = compare_passes(&c, plan, kernels);
    clReleaseCommandQueue(c.queue);
    return status;
}
