/* SPDX-License-Identifier: Apache-2.0
 * Writes down what the library does on made-up devices, for some thousand
 * problems: whether it takes them, the plan that it describes, what it builds,
 * and each launch with its arguments. tests/gate/compare holds that of two
 * commits side by side.
 *
 *   gate_record [--seeds N] [--programs FOLDER]
 *
 *   --seeds N     so many random descriptors for each device, 100 by default
 *   --programs F  also leaves each program there, as KERNEL.HASH.cl, with its
 *                 options in KERNEL.HASH.options
 *
 * A problem starts with a line "problem DEVICE: WHAT". Lines that follow have
 * a word for their kind first: status, plan, build, launch, argument. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "campaign/levels.h"
#include "kit/devices.h"
#include "kit/workloads.h"
#include "standin.h"

/* Rows of workloads that a device sees with each tier; the others it sees with
 * the planner's choice of one alone. */
#define EACH_TIER 4
/* Of a call, besides the last. */
#define MOST_LAUNCHES 6

static const char *program_folder;

/* ---- Programs ---- */

static unsigned long long hash_of(const char *text)
{
    unsigned long long hash = 14695981039346656037ull;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211ull;
    return hash;
}

static void write_file(const char *name, const char *ending, const char *text)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.%s", program_folder, name, ending);
    FILE *file = fopen(path, "w");
    if (!file || fputs(text, file) < 0 || fclose(file) != 0) {
        fprintf(stderr, "cannot write %s\n", path);
        exit(1);
    }
}

/* A program has the names of its kernel and options, which a change of form
 * keeps. */
static void keep_program(const standin_build *build)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%016llx", build->kernel,
             hash_of(build->options));
    write_file(name, "cl", build->source);
    write_file(name, "options", build->options);
}

/* ---- What was asked ---- */

static void print_builds(void)
{
    const standin_build *builds;
    const size_t count = standin_builds(&builds);
    for (size_t i = 0; i < count; i++) {
        printf("build %d %s\n", (int)builds[i].result, builds[i].options);
        if (program_folder && builds[i].source && builds[i].kernel)
            keep_program(&builds[i]);
    }
}

/* What a call was given, of a pass. */
typedef struct call_tensors {
    cl_mem buffer[TENSORS];
    cl_mem workspace;
} call_tensors;

static const char *name_of(const call_tensors *call, cl_mem buffer)
{
    for (int id = 0; id < TENSORS; id++)
        if (call->buffer[id] == buffer)
            return tensor_names[id];
    return buffer == call->workspace ? "workspace" : "of the plan";
}

static void print_argument(const call_tensors *call, cl_uint number,
                           const standin_argument *argument)
{
    printf("argument %u ", number);
    if (!argument->bytes)
        printf("%s",
               argument->buffer ? name_of(call, argument->buffer) : "nothing");
    else
        for (size_t i = 0; i < argument->size; i++)
            printf("%02x", argument->bytes[i]);
    printf("\n");
}

static void print_launch(const call_tensors *call, const standin_launch *l)
{
    printf("launch %s %zu of %zu, local bytes %zu\n", l->kernel, l->global,
           l->local, l->local_bytes);
    for (cl_uint a = 0; a < l->argument_count; a++)
        print_argument(call, a, &l->arguments[a]);
}

/* Of many the first, which differ in kind, and the last. */
static void print_launches(const call_tensors *call)
{
    const standin_launch *launches;
    const size_t count = standin_launches(&launches);
    printf("launch %zu in all\n", count);
    for (size_t i = 0; i < count; i++)
        if (i < MOST_LAUNCHES || i + 2 > count)
            print_launch(call, &launches[i]);
}

/* ---- Calls ---- */

/* Buffers for what the plan names, at offset 0; of what may be NULL nothing
 * but outputs if `least`. False: a tensor is too large for a buffer. */
static bool fill_call(const winattn_desc *desc, int pass, bool least,
                      cl_context context, void *call, call_tensors *made)
{
    memset(made, 0, sizeof *made);
    for (int id = 0; id < TENSORS; id++) {
        const tensor_meaning t = meaning_of(desc, (tensor_id)id);
        const tensor_role role = tensor_traits[id].role[pass];
        winattn_tensor tensor = {NULL, 0};
        if (!t.is_used || role == ROLE_NONE ||
            (least && role == ROLE_INPUT_OR_NULL))
            continue;
        const wide bytes = t.is_empty ? 1 : (t.last + 1) * t.element_bytes;
        if (bytes > SIZE_MAX / 2)
            return false;
        made->buffer[id] =
            standin_buffer(context, CL_MEM_READ_WRITE, (size_t)bytes);
        tensor.buffer = made->buffer[id];
        memcpy((char *)call + tensor_place((tensor_id)id), &tensor,
               sizeof tensor);
    }
    return true;
}

static void release_call(call_tensors *made)
{
    for (int id = 0; id < TENSORS; id++)
        if (made->buffer[id])
            clReleaseMemObject(made->buffer[id]);
    if (made->workspace)
        clReleaseMemObject(made->workspace);
}

static void record_call(const winattn_desc *desc, const winattn_plan *plan,
                        int pass, bool least, cl_context context,
                        cl_command_queue queue)
{
    call_tensors made;
    winattn_forward forward;
    winattn_backward backward;
    size_t bytes = 0;
    memset(&forward, 0, sizeof forward);
    memset(&backward, 0, sizeof backward);
    forward.struct_size = sizeof forward;
    backward.struct_size = sizeof backward;
    void *call = pass ? (void *)&backward : (void *)&forward;
    if (!fill_call(desc, pass, least, context, call, &made)) {
        release_call(&made);
        return;
    }
    /* without a logit_scale it has no gradient */
    if (!made.buffer[T_LOGIT_SCALE])
        backward.d_logit_scale.buffer = NULL;
    winattn_plan_workspace_size(plan, &bytes);
    if (bytes)
        made.workspace = standin_buffer(context, CL_MEM_READ_WRITE, bytes);
    forward.workspace.buffer = backward.workspace.buffer = made.workspace;
    standin_forget();
    const winattn_status status =
        pass ? winattn_enqueue_backward(plan, queue, &backward, 0, NULL, NULL)
             : winattn_enqueue_forward(plan, queue, &forward, 0, NULL, NULL);
    printf("status %s%s %s %s\n", pass ? "backward" : "forward",
           least ? " with the least" : "", winattn_status_name(status),
           winattn_last_reason());
    print_launches(&made);
    release_call(&made);
}

/* ---- Problems ---- */

typedef struct place {
    const wa_device *device;
    cl_device_id id;
    cl_context context;
    cl_command_queue queue;
} place;

static void print_plan(const winattn_plan *plan)
{
    char text[16384];
    if (winattn_plan_describe(plan, sizeof text, text, NULL) !=
        WINATTN_SUCCESS)
        return;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        printf("plan %s\n", line);
}

static void record(const place *at, const winattn_desc *desc, const char *what)
{
    winattn_plan *plan = NULL;
    printf("problem %s: %s\n", at->device->name, what);
    standin_forget();
    const winattn_status status =
        winattn_plan_create(at->context, at->id, desc, &plan);
    printf("status plan %s %s\n", winattn_status_name(status),
           winattn_last_reason());
    print_builds();
    if (!plan)
        return;
    print_plan(plan);
    /* a plan is for the forward pass unless it says what it is for */
    const cl_bitfield passes =
        desc->passes ? desc->passes : WINATTN_PASS_FORWARD;
    for (int pass = 0; pass < 2; pass++)
        for (int least = 0; least < 2 && (passes >> pass & 1u); least++)
            record_call(desc, plan, pass, least, at->context, at->queue);
    winattn_plan_destroy(plan);
}

static void record_row(const place *at, const workload_row *row, int dtype,
                       int tier)
{
    test_case c = case_default();
    char what[512];
    if (!case_parse(row->text, &c, NULL)) {
        fprintf(stderr, "%s: %s\n", row->name, row->text);
        exit(1);
    }
    c.dtype = dtype;
    c.tier = tier;
    for (int pass = 0; pass < 2; pass++) {
        c.pass = pass ? PASS_BACKWARD : PASS_FORWARD;
        const winattn_desc desc = case_desc(&c);
        case_print(&c, what, sizeof what);
        record(at, &desc, what);
    }
}

static void record_rows(const place *at, const workload_row *rows,
                        size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (int dtype = 0; dtype < 3; dtype++)
            for (int tier = WINATTN_TIER_AUTO;
                 tier <= (i % EACH_TIER == 0 ? (int)WINATTN_TIER_MATRIX
                                             : (int)WINATTN_TIER_AUTO);
                 tier++)
                record_row(at, &rows[i], dtype, tier);
}

void report(const char *what, const char *detail)
{
    fprintf(stderr, "%s %s\n", what, detail);
}

/* Right ones and such as are refused. */
static void record_random(const place *at, unsigned long seeds)
{
    static char what[8192];
    for (unsigned long seed = 1; seed <= seeds; seed++) {
        random_state r = random_seeded(seed);
        level_desc made = level_make(&r, &levels[0]);
        size_t used = (size_t)snprintf(what, sizeof what, "seed %lu", seed);
        used += print_fields(levels[0].fields, made.u.bytes, what + used,
                             sizeof what - used);
        if (made.index)
            snprintf(what + used, sizeof what - used, " table.index=...");
        record(at, &made.u.core, what);
        levels[0].release(&made);
    }
}

static void record_device(const wa_device *device, unsigned long seeds)
{
    place at = {.device = device, .id = standin_device(device)};
    at.context = standin_context(1, &at.id);
    at.queue = standin_queue(at.context, at.id, false);
    record_rows(&at, workload_rows, workload_count);
    record_rows(&at, map_rows, map_count);
    record_random(&at, seeds);
    clReleaseCommandQueue(at.queue);
    clReleaseContext(at.context);
}

int main(int count, char **arguments)
{
    unsigned long seeds = 100;
    for (int i = 1; i < count; i++) {
        if (strcmp(arguments[i], "--seeds") == 0 && i + 1 < count) {
            seeds = strtoul(arguments[++i], NULL, 10);
        } else if (strcmp(arguments[i], "--programs") == 0 && i + 1 < count) {
            program_folder = arguments[++i];
        } else {
            fprintf(stderr, "gate_record [--seeds N] [--programs FOLDER]\n");
            return 2;
        }
    }
    for (size_t i = 0; i < made_up_count; i++)
        record_device(&made_up_devices[i], seeds);
    if (standin_wrong(NULL)) {
        fprintf(stderr, "%s\n", standin_wrong(NULL));
        return 1;
    }
    return 0;
}
