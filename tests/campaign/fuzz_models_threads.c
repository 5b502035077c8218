/* SPDX-License-Identifier: Apache-2.0
 * Eight threads share plans of every level of the library of models, and make,
 * use, describe and destroy some of their own, of weights that they share. For
 * a build with ThreadSanitizer; what it finds ends the program.
 *
 *   fuzz_models_threads [options]
 *     --seed N     of the first round; the next rounds have the next seeds
 *     --rounds N   at most; in a round each thread does so many things
 *     --seconds N  at most; 0: as long as it takes
 *
 * Each round starts and ends with no thread, no plan and no object. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/devices.h"
#include "models_coverage.h"
#include "models_levels.h"
#include "options.h"
#include "standin.h"

#define THREADS 8
#define THINGS 16 /* that a thread does in a round */

static campaign_options wanted = {
    .count_option = "--rounds", .seed = 1, .count = 3};

/* What all threads use. */
static const char *const device_names[] = {"PoCL", "H200", "gfx90a (MI210)"};
#define DEVICES 3
static struct {
    cl_device_id id;
    cl_context context;
    cl_mem memory;
    void *plans[LEVELS];
} shared[DEVICES];
static winattn_swin_weights *weights;
static level_desc descs[LEVELS];
static unsigned long seed;
static atomic_ulong plans, calls, findings;

static void report(const char *what, const char *detail)
{
    atomic_fetch_add(&findings, 1);
    printf("FINDING %s %s\n  again: fuzz_models_threads --seed %lu --rounds "
           "1\n",
           what, detail, seed);
    fflush(stdout);
}

/* ---- Descriptors ---- */

static winattn_linear_desc linear_desc(void)
{
    const winattn_linear_desc d = {.struct_size = sizeof d,
                                   .in_features = 96,
                                   .out_features = 100,
                                   .layer_norm = CL_TRUE,
                                   .has_bias = CL_TRUE};
    return d;
}

static winattn_window_attention_desc attention_desc(void)
{
    const winattn_window_attention_desc d = {.struct_size = sizeof d,
                                             .windows = 5,
                                             .window = {4, 4},
                                             .channels = 32,
                                             .heads = 2};
    return d;
}

static winattn_block_desc block_desc(void)
{
    const winattn_block_desc d = {.struct_size = sizeof d,
                                  .batch = 2,
                                  .height = 9,
                                  .width = 12,
                                  .window = {4, 4},
                                  .shift = {2, 2},
                                  .channels = 32,
                                  .heads = 2,
                                  .hidden = 64};
    return d;
}

static void set_descs(void)
{
    const winattn_model_desc model = {
        .struct_size = sizeof model, .batch = 2, .height = 33, .width = 40};
    const winattn_swin_config config = {.struct_size = sizeof config,
                                        .generation = 2,
                                        .in_channels = 3,
                                        .patch = {4, 4},
                                        .channels = 16,
                                        .stages = 2,
                                        .depths = {2, 1},
                                        .heads = {1, 2},
                                        .window = {{4, 4}, {4, 4}},
                                        .hidden = {32, 64},
                                        .classes = 5};
    for (int level = 0; level < LEVELS; level++) {
        memset(&descs[level], 0, sizeof descs[level]);
        descs[level].level = (level_id)level;
    }
    descs[LEVEL_LINEAR].u.linear = linear_desc();
    descs[LEVEL_ATTENTION].u.attention = attention_desc();
    descs[LEVEL_BLOCK].u.block = block_desc();
    descs[LEVEL_MODEL].u.model = model;
    descs[LEVEL_MODEL].config = config;
}

/* ---- Plans and calls ---- */

/* All tensors in one buffer that is large enough for them, each in a place of
 * its own. */
static void give_tensors(random_state *r, const level_desc *desc,
                         cl_mem memory, level_call *given)
{
    const slot_list slots = level_slots(r, desc, given);
    const size_t size = level_call_size(desc->level);
    winattn_tensor at = {memory, 0};
    for (size_t i = 0; i < slots.count; i++) {
        at.offset = (cl_ulong)i << 24;
        if (slots.all[i].is_wanted)
            memcpy(given->bytes + slots.all[i].place, &at, sizeof at);
    }
    at.offset = (cl_ulong)MOST_SLOTS << 24;
    switch (desc->level) {
    case LEVEL_LINEAR:
        given->linear.workspace = at;
        break;
    case LEVEL_ATTENTION:
        given->attention.workspace = at;
        break;
    case LEVEL_BLOCK:
        given->block.workspace = at;
        break;
    default:
        given->model.workspace = at;
    }
    memcpy(given->bytes, &size, sizeof size);
}

static void call(random_state *r, const level_desc *desc, const void *plan,
                 int device, cl_command_queue queue)
{
    level_call given;
    cl_event event = NULL;
    const bool is_wrong = chance(r, 25);
    memset(&given, 0, sizeof given);
    if (desc->level == LEVEL_LINEAR)
        given.linear.rows = 1 + below(r, 300);
    give_tensors(r, desc, shared[device].memory, &given);
    if (is_wrong) /* the first tensor of every level */
        memset(given.bytes + level_slots(r, desc, &given).all[0].place, 0,
               sizeof(winattn_tensor));
    standin_forget();
    const winattn_status status =
        level_enqueue(desc->level, plan, queue, given.bytes, 0, NULL, &event);
    atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    if (event)
        clReleaseEvent(event);
    if (status == WINATTN_SUCCESS && winattn_last_reason()[0])
        report("success with a reason:", winattn_last_reason());
    if (is_wrong != (status != WINATTN_SUCCESS))
        report("a right call fails, or a wrong one does not:",
               winattn_last_reason());
    /* the reason of this thread, whatever the others do */
    if (is_wrong && !strstr(winattn_last_reason(), " is NULL"))
        report("a wrong reason:", winattn_last_reason());
    /* arguments that another thread has set would show here */
    const char *fault = is_wrong ? NULL : models_coverage_fault(false);
    if (fault)
        report(fault, level_name(desc->level));
}

static void use(random_state *r, const level_desc *desc, const void *plan,
                int device)
{
    char text[512];
    size_t size;
    const level_call rows = {.linear = {.rows = 10}};
    const cl_command_queue queue = standin_queue(
        shared[device].context, shared[device].id, chance(r, 50));
    call(r, desc, plan, device, queue);
    if (level_describe(desc->level, plan, sizeof text, text, &size) ||
        level_workspace(desc->level, plan, &rows, &size))
        report("describe:", winattn_last_reason());
    clReleaseCommandQueue(queue);
}

static void *make(const level_desc *desc, int device)
{
    void *plan = NULL;
    if (level_create(desc, desc->u.bytes, shared[device].context,
                     shared[device].id, weights, &plan) != WINATTN_SUCCESS)
        report("a plan was refused:", winattn_last_reason());
    return plan;
}

static void make_and_use(random_state *r, level_desc desc, int device)
{
    /* other sizes, which may compile something */
    if (desc.level == LEVEL_LINEAR)
        desc.u.linear.out_features += 8 * below(r, 4);
    else if (desc.level == LEVEL_BLOCK)
        desc.u.block.hidden += 8 * below(r, 4);
    void *plan = make(&desc, device);
    if (!plan)
        return;
    atomic_fetch_add_explicit(&plans, 1, memory_order_relaxed);
    use(r, &desc, plan, device);
    level_destroy(desc.level, plan);
}

static void *run_thread(void *number)
{
    random_state state = random_seeded(seed * THREADS + (size_t)number);
    random_state *r = &state;
    for (int i = 0; i < THINGS; i++) {
        const int device = (int)below(r, DEVICES);
        const level_id level = (level_id)below(r, LEVELS);
        if (chance(r, 75))
            use(r, &descs[level], shared[device].plans[level], device);
        else
            make_and_use(r, descs[level], device);
        standin_forget();
    }
    return NULL;
}

/* ---- Rounds ---- */

static void open_round(void)
{
    standin_reset();
    standin_drivers.yields = true;
    if (winattn_swin_weights_random(&descs[LEVEL_MODEL].config, seed,
                                    &weights) != WINATTN_SUCCESS) {
        report("weights:", winattn_last_reason());
        exit(1);
    }
    for (int i = 0; i < DEVICES; i++) {
        shared[i].id = standin_device(made_up_device(device_names[i]));
        shared[i].context = standin_context(1, &shared[i].id);
        shared[i].memory = standin_buffer(shared[i].context, CL_MEM_READ_WRITE,
                                          (size_t)1 << 30);
        for (int level = 0; level < LEVELS; level++) {
            shared[i].plans[level] = make(&descs[level], i);
            if (!shared[i].plans[level])
                exit(1);
        }
    }
    standin_forget();
}

static void close_round(void)
{
    winattn_swin_weights_destroy(weights);
    for (int i = 0; i < DEVICES; i++) {
        for (int level = 0; level < LEVELS; level++)
            level_destroy((level_id)level, shared[i].plans[level]);
        clReleaseMemObject(shared[i].memory);
        clReleaseContext(shared[i].context);
    }
    if (standin_alive())
        report("still alive:", standin_alive());
    if (standin_wrong(NULL))
        report("stand-in:", standin_wrong(NULL));
}

static void run_round(void)
{
    pthread_t threads[THREADS];
    open_round();
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, run_thread, (void *)i) != 0) {
            report("no thread", "");
            exit(1);
        }
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    close_round();
}

int main(int argument_count, char **arguments)
{
    options_read(&wanted, argument_count, arguments);
    winattn_set_cache_dir("");
    set_descs();
    unsigned long rounds = 0;
    for (seed = wanted.seed; options_allow(&wanted, rounds); seed++, rounds++)
        run_round();
    printf("rounds %lu from seed %lu on, of %d threads: plans %lu; calls %lu; "
           "findings %lu\n",
           rounds, wanted.seed, THREADS, atomic_load(&plans),
           atomic_load(&calls), atomic_load(&findings));
    standin_reset();
    return atomic_load(&findings) != 0;
}
