/* SPDX-License-Identifier: Apache-2.0
 * Where the time of a model's call goes: by OpenCL's profiling events of its
 * launches. */
#include "unfused/parts.h"

#include <stdio.h>
#include <string.h>

#include "models/block.h"

#define MOST_LAUNCHES 4096
#define MOST_CALLS 100

typedef enum part {
    EMBEDDING,
    NORMS,
    QKV,
    ATTENTION,
    PROJ,
    FC1,
    FC2,
    MLP, /* where one launch does both */
    MERGE,
    HEAD,
    PARTS
} part;

static const char *const names[PARTS + 1] = {
    "embedding", "norms", "qkv",   "attention", "proj", "fc1",
    "fc2",       "mlp",   "merge", "head",      "all"};

/* ---- Times ---- */

typedef struct launch {
    cl_kernel kernel; /* each layer and norm of the model has its own */
    cl_event done;
    cl_ulong start, end; /* ns, of one call */
    double seconds;      /* mean of calls */
    part part;
    uint32_t stage;
    double bytes; /* of all launches of a layer, with the first */
} launch;

static struct {
    launch all[MOST_LAUNCHES];
    size_t count;
    double seconds; /* from the first one's start to the last one's end */
} seen;

static void note(cl_kernel kernel, cl_event done)
{
    if (seen.count == MOST_LAUNCHES)
        return;
    seen.all[seen.count].kernel = kernel;
    seen.all[seen.count++].done = done;
    clRetainEvent(done);
}

static bool read_times(launch *l)
{
    return clGetEventProfilingInfo(l->done, CL_PROFILING_COMMAND_START,
                                   sizeof l->start, &l->start,
                                   NULL) == CL_SUCCESS &&
           clGetEventProfilingInfo(l->done, CL_PROFILING_COMMAND_END,
                                   sizeof l->end, &l->end, NULL) == CL_SUCCESS;
}

/* One of so many calls. */
static bool time_call(const winattn_model *model, cl_command_queue queue,
                      const winattn_model_call *call, int calls)
{
    seen.count = 0;
    wa_chain_watcher = note;
    bool good = winattn_enqueue_model(model, queue, call, 0, NULL, NULL) == 0;
    wa_chain_watcher = NULL;
    good = clFinish(queue) == CL_SUCCESS && good;
    for (size_t i = 0; i < seen.count; i++) {
        launch *l = &seen.all[i];
        good = read_times(l) && good;
        l->seconds += 1e-9 * (double)(l->end - l->start) / calls;
        clReleaseEvent(l->done);
    }
    good = good && seen.count > 0 && seen.count < MOST_LAUNCHES;
    if (good)
        seen.seconds +=
            1e-9 * (double)(seen.all[seen.count - 1].end - seen.all[0].start) /
            calls;
    return good;
}

static bool time_calls(const winattn_model *model,
                       const winattn_model_call *call, int calls)
{
    const cl_command_queue queue = clCreateCommandQueue(
        wa_session_context(model->session),
        wa_session_device_id(model->session), CL_QUEUE_PROFILING_ENABLE, NULL);
    bool good = queue && time_call(model, queue, call, 1);
    memset(&seen, 0, sizeof seen); /* that call was the queue's first */
    for (int i = 0; good && i < calls; i++)
        good = time_call(model, queue, call, calls);
    if (queue)
        clReleaseCommandQueue(queue);
    return good;
}

/* ---- Parts ---- */

static bool has_kernel(const winattn_linear_plan *plan, cl_kernel kernel)
{
    bool has = false;
    for (int i = 0; plan && i < WA_LINEAR_KERNELS; i++)
        has = has || plan->kernels[i] == kernel;
    return has;
}

/* Is it the next launch of a layer, or an attention, that takes several? */
static bool goes_on(const launch *l)
{
    return l > seen.all && (l[-1].kernel == l->kernel ||
                            (l->part == ATTENTION && l[-1].part == ATTENTION));
}

/* What a part computes by kernels of its own: rows or a layer, of so many
 * rows. */
typedef struct piece {
    part part;
    const wa_row_plan *rows;
    const winattn_linear_plan *layer;
    uint64_t count;
} piece;

static bool place(launch *l, const piece *pieces, size_t count)
{
    for (const piece *p = pieces; p < pieces + count; p++) {
        if (p->rows ? p->rows->kernel != l->kernel
                    : !has_kernel(p->layer, l->kernel))
            continue;
        l->part = p->part;
        if (!goes_on(l))
            l->bytes = (double)(p->rows ? wa_row_bytes(p->rows, p->count)
                                        : wa_linear_bytes(p->layer, p->count));
        return true;
    }
    return false;
}

/* False: it is a launch of a block. */
static bool place_outside(const winattn_model *model, launch *l)
{
    const wa_model_stage *stage = &model->stages[l->stage];
    const wa_merger *m = &stage->merger;
    const uint64_t rows = stage->tokens,
                   next = m->linear ? stage[1].tokens : 0;
    const piece all[] = {{EMBEDDING, &model->embed, NULL, rows},
                         {EMBEDDING, NULL, model->patch, rows},
                         {EMBEDDING, &model->embed_norm, NULL, rows},
                         {MERGE, &m->neighbours, NULL, next},
                         {MERGE, NULL, m->linear, next},
                         {MERGE, &m->norm, NULL, next},
                         {HEAD, &model->pool, NULL, rows},
                         {HEAD, NULL, model->head, model->desc.batch}};
    return place(l, all, sizeof all / sizeof *all);
}

/* What no layer or norm has is attention's. */
static bool place_inside(const winattn_block_plan *block, launch *l)
{
    if (!block)
        return false;
    const uint64_t rows = block->attention.rows;
    const piece all[] = {{NORMS, &block->norm, NULL, rows},
                         {NORMS, &block->statistics, NULL, rows},
                         {QKV, NULL, block->attention.qkv, rows},
                         {PROJ, NULL, block->attention.proj, rows},
                         {FC1, NULL, block->fc1, rows},
                         {block->fc1 ? FC2 : MLP, NULL, block->fc2, rows}};
    l->part = ATTENTION;
    l->bytes = goes_on(l) ? 0 : (double)block->attention.core_moves;
    return place(l, all, sizeof all / sizeof *all);
}

static void place_all(const winattn_model *model)
{
    uint32_t number = 0;
    for (size_t i = 0; i < seen.count; i++) {
        launch *l = &seen.all[i];
        l->stage = number;
        if (place_outside(model, l))
            continue;
        if (i > 0 && l[-1].part == MERGE)
            l->stage = ++number;
        if (!place_inside(model->stages[number].shifted, l))
            place_inside(model->stages[number].plain, l);
    }
}

/* ---- Table ---- */

typedef struct row {
    unsigned launches;
    double stage[WA_SWIN_STAGES], all; /* seconds */
    double bytes;
} row;

static void add(row *to, const launch *l)
{
    to->launches++;
    to->stage[l->stage] += l->seconds;
    to->all += l->seconds;
    to->bytes += l->bytes;
}

static void print_row(const char *name, const row *of, uint32_t stages)
{
    printf("  %-9s %8u", name, of->launches);
    for (uint32_t i = 0; i < stages; i++)
        if (of->stage[i] > 0)
            printf(" %7.3f", 1e3 * of->stage[i]);
        else
            printf(" %7s", "");
    printf(" %7.3f %5.1f %% %8.1f %6.1f\n", 1e3 * of->all,
           100 * of->all / seen.seconds, 1e-6 * of->bytes,
           of->all > 0 ? 1e-9 * of->bytes / of->all : 0);
}

void print_parts(const winattn_model *model, const winattn_model_call *call,
                 double calls)
{
    const uint32_t stages = model->config.stages;
    row rows[PARTS + 1] = {{0}};
    if (!time_calls(model, call,
                    calls < MOST_CALLS ? 1 + (int)calls : MOST_CALLS)) {
        printf("  parts: not measured: the device does not time launches\n");
        return;
    }
    place_all(model);
    for (size_t i = 0; i < seen.count; i++) {
        add(&rows[seen.all[i].part], &seen.all[i]);
        add(&rows[PARTS], &seen.all[i]);
    }
    printf("  %-9s %8s", "part", "launches");
    for (uint32_t i = 0; i < stages; i++)
        printf(" stage %u", i);
    printf(" %7s %7s %8s %6s\n", "all, ms", "share", "MB", "GB/s");
    for (int i = 0; i <= PARTS; i++)
        if (rows[i].launches)
            print_row(names[i], &rows[i], stages);
}
