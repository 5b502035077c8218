/* SPDX-License-Identifier: Apache-2.0
 * The level of winattn.h: its fields, plans and calls of both passes. */
#include "core_level.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "kit/plan_legal.h"
#include "session/session.h"

#define MOST_STEPS 1000000u /* of a planner */

/* ---- Fields ---- */

#define FIELD(name) FIELD_OF(winattn_desc, name, false)
#define THREE(name) FIELD(name[0]), FIELD(name[1]), FIELD(name[2])
#define STRIDES(name)                                                         \
    FIELD(name.window), FIELD(name.head), FIELD(name.row),                    \
        FIELD(name.column), THREE(name.axis)
static const field fields[] = {FIELD(variant),
                               FIELD(dtype),
                               FIELD(tier),
                               FIELD(allow_tf32),
                               FIELD(windows),
                               FIELD(heads),
                               FIELD(kv_heads),
                               FIELD(queries),
                               FIELD(keys),
                               FIELD(head_dim),
                               FIELD_OF(winattn_desc, scale, true),
                               FIELD(grid.axes),
                               THREE(grid.size),
                               THREE(grid.window),
                               THREE(grid.shift),
                               THREE(grid.periodic),
                               FIELD(grid.padding),
                               FIELD(grid.batch),
                               FIELD(grid_options),
                               FIELD(bias),
                               FIELD(bias_dtype),
                               FIELD(table.axes),
                               THREE(table.window),
                               FIELD(table.sliced),
                               FIELD(table.entries),
                               FIELD(mask),
                               FIELD(mask_dtype),
                               FIELD(mask_windows),
                               FIELD(has_region_value),
                               FIELD_OF(winattn_desc, region_value, true),
                               FIELD(block),
                               FIELD(first_block),
                               FIELD(window_blocks),
                               FIELD(sink),
                               FIELD(sink_in_window),
                               FIELD(query_offset),
                               FIELD(passes),
                               STRIDES(q),
                               STRIDES(k),
                               STRIDES(v),
                               STRIDES(o),
                               STRIDES(lse),
                               STRIDES(bias_strides),
                               STRIDES(mask_strides),
                               STRIDES(query_region_strides),
                               STRIDES(key_region_strides),
                               STRIDES(d_o),
                               STRIDES(d_lse),
                               STRIDES(dq),
                               STRIDES(dk),
                               STRIDES(dv),
                               STRIDES(dbias_strides),
                               STRIDES(pad_k),
                               STRIDES(pad_v),
                               STRIDES(d_pad_k),
                               STRIDES(d_pad_v)};
#define FIELDS (sizeof fields / sizeof *fields)
static const field_list all_fields = {fields, FIELDS - 19 * 7, FIELDS};

/* ---- Plans ---- */

PLAN_FUNCTIONS(winattn_plan)

static winattn_status create(const level_desc *desc, const void *given,
                             cl_context context, cl_device_id device,
                             void **made)
{
    winattn_plan *plan = *made;
    (void)desc;
    const winattn_status status =
        winattn_plan_create(context, device, given, &plan);
    *made = plan;
    return status;
}

static void check_tensors(const winattn_desc *desc)
{
    for (int id = 0; id < TENSORS; id++) {
        const tensor_meaning t = meaning_of(desc, (tensor_id)id);
        if (t.is_used && meaning_overlaps(&t))
            report("took strides that overlap:", tensor_names[id]);
    }
}

/* Checks the plan of a pass, if the problem has it. */
static void check_plan(const wa_problem *p, const wa_device *device,
                       wa_pass pass)
{
    static const wa_exclusions none;
    wa_plan plan;
    char steps[64];
    if (!p->passes[pass])
        return;
    const winattn_status status = wa_plan_make(p, device, pass, &none, &plan);
    snprintf(steps, sizeof steps, "%llu", (unsigned long long)plan.visited);
    if (plan.visited > MOST_STEPS)
        report("a planner took many steps:", steps);
    const char *broken =
        status == WINATTN_SUCCESS ? broken_plan(p, device, &plan) : NULL;
    if (broken)
        report("a plan is not legal:", broken);
}

/* Plans again without the device, since the library's interface says neither
 * how many shapes were looked at nor how a launch is cut; for its own matrix
 * unit and for each other that it could have. */
static void check_plans(const winattn_desc *desc, cl_context context,
                        cl_device_id id)
{
    wa_problem problem;
    wa_session *session;
    wa_device device;
    if (wa_problem_read(desc, &problem) != WINATTN_SUCCESS ||
        wa_session_acquire(context, id, &session) != WINATTN_SUCCESS) {
        report("what was planned cannot be planned again", "");
        return;
    }
    for (size_t u = 0;
         device_with_unit(wa_session_device(session), u, &device); u++)
        for (int pass = 0; pass < WA_PASSES; pass++)
            check_plan(&problem, &device, (wa_pass)pass);
    wa_session_release(session);
}

static void check(const level_desc *desc, const void *plan, cl_context context,
                  cl_device_id device)
{
    (void)plan;
    check_tensors(&desc->u.core);
    check_plans(&desc->u.core, context, device);
}

/* ---- Calls ---- */

static bool has_forward(const level_desc *desc)
{
    return desc->u.core.passes == 0 ||
           (desc->u.core.passes & WINATTN_PASS_FORWARD) != 0;
}

static bool has_backward(const level_desc *desc)
{
    return (desc->u.core.passes & WINATTN_PASS_BACKWARD) != 0;
}

static void draw_backward(random_state *r, const level_desc *desc,
                          level_call *call)
{
    (void)desc;
    if (chance(r, 50))
        call->backward.accumulate = below(r, 128);
}

static void spoil_backward(random_state *r, level_call *call)
{
    call->backward.accumulate = special_number(r);
}

/* A forward pass of no windows looks at nothing. */
static bool is_empty(const level_desc *desc, const level_call *call)
{
    (void)call;
    return size_of(&desc->u.core).windows == 0;
}

/* Channels of the padding must be as far apart as those of k and v. */
static bool fits_tokens(const winattn_desc *desc, tensor_id id)
{
    const tensor_id tokens = id == T_PAD_K ? T_K : T_V;
    const tensor_meaning t = meaning_of(desc, id);
    return (id != T_PAD_K && id != T_PAD_V) || t.extent[AXIS_COLUMN] <= 1 ||
           t.stride[AXIS_COLUMN] ==
               meaning_of(desc, tokens).stride[AXIS_COLUMN];
}

/* Outputs that are added to are read, too; their bits are in this order. */
static bool is_added_to(const level_call *call, int pass, int id)
{
    return pass && id >= T_DQ &&
           (call->backward.accumulate >> (id - T_DQ) & 1) != 0;
}

static void list_tensors(random_state *r, const winattn_desc *desc,
                         const level_call *call, int pass, slot_list *slots)
{
    bool has_scale = false;
    for (int id = 0; id < TENSORS; id++) {
        const tensor_trait *trait = &tensor_traits[id];
        const tensor_role role = trait->role[pass];
        const tensor_meaning t = meaning_of(desc, (tensor_id)id);
        const bool is_output = role >= ROLE_OUTPUT;
        const bool is_optional =
            role == ROLE_INPUT_OR_NULL || role == ROLE_OUTPUT_OR_NULL;
        bool is_wanted = t.is_used && !(is_optional && chance(r, 30)) &&
                         fits_tokens(desc, (tensor_id)id);
        if (role == ROLE_NONE)
            continue;
        if (id == T_LOGIT_SCALE)
            has_scale = is_wanted;
        else if (id == T_D_LOGIT_SCALE)
            is_wanted = is_wanted && has_scale;
        const slot made = {
            .name = tensor_names[id],
            .place = tensor_place((tensor_id)id),
            .bytes = t.is_empty ? 0 : (t.last + 1) * t.element_bytes,
            .element_bytes = t.element_bytes,
            .aligned = t.element_bytes,
            .is_used = t.is_used,
            .is_wanted = is_wanted,
            .is_optional = is_optional,
            .is_read = !is_output || is_added_to(call, pass, id),
            .is_written = is_output};
        slots->all[slots->count++] = made;
    }
}

static void list_forward(random_state *r, const level_desc *desc,
                         const level_call *call, slot_list *slots)
{
    list_tensors(r, &desc->u.core, call, 0, slots);
}

static void list_backward(random_state *r, const level_desc *desc,
                          const level_call *call, slot_list *slots)
{
    list_tensors(r, &desc->u.core, call, 1, slots);
}

/* Of a plan with both passes, only one may need it. */
static winattn_status workspace_size(const level_desc *desc, const void *plan,
                                     const level_call *call, size_t *size,
                                     bool *is_sure)
{
    (void)call;
    *is_sure = desc->u.core.passes != 3 && size_of(&desc->u.core).windows != 0;
    return winattn_plan_workspace_size(plan, size);
}

static const char *fault(const level_desc *desc, const level_call *call,
                         bool is_cut)
{
    (void)call;
    return core_launches_fault(desc, is_cut);
}

static const char *backward_fault(const level_desc *desc,
                                  const level_call *call, bool is_cut)
{
    return call->backward.accumulate > 127 ? "took a wrong bit of accumulate"
                                           : fault(desc, call, is_cut);
}

ENQUEUE_FUNCTION(forward)
ENQUEUE_FUNCTION(backward)

static const call_kind kinds[] = {
    {.size = sizeof(winattn_forward),
     .least = offsetof(winattn_forward, lse),
     .workspace = offsetof(winattn_forward, workspace),
     .workspace_aligned = 16,
     .most_launches = 40,
     .applies = has_forward,
     .is_empty = is_empty,
     .list = list_forward,
     .workspace_size = workspace_size,
     .enqueue = enqueue_forward,
     .fault = fault},
    {.size = sizeof(winattn_backward),
     .least = offsetof(winattn_backward, d_lse),
     .workspace = offsetof(winattn_backward, workspace),
     .workspace_aligned = 16,
     .most_launches = 40,
     .applies = has_backward,
     .draw = draw_backward,
     .spoil = spoil_backward,
     .list = list_backward,
     .workspace_size = workspace_size,
     .enqueue = enqueue_backward,
     .fault = backward_fault},
};

/* build_options and what came later may be missing in a descriptor */
const level levels[] = {
    {.name = "attention",
     .weight = 1,
     .desc_size = sizeof(winattn_desc),
     .desc_least = offsetof(winattn_desc, build_options),
     .tier = offsetof(winattn_desc, tier),
     .fields = &all_fields,
     .draw = core_draw,
     .draw_small = core_draw_small,
     .finish = core_finish,
     .release = core_release,
     .create = create,
     .destroy = destroy_winattn_plan,
     .describe = describe_winattn_plan,
     .check = check,
     .kinds = kinds,
     .kind_count = sizeof kinds / sizeof *kinds},
};
const size_t level_count = sizeof levels / sizeof *levels;
