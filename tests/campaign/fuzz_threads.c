/* SPDX-License-Identifier: Apache-2.0
 * Eight threads make, use, describe, hand over and destroy plans, share some,
 * export and import programs, load rows and move the cache. For a build with
 * ThreadSanitizer; what it finds ends the program.
 *
 *   fuzz_threads [options]
 *     --seed N     of the first round; the next rounds have the next seeds
 *     --rounds N   at most; in a round each thread does so many things
 *     --seconds N  at most; 0: as long as it takes
 *     --folder F   for caches, made if it is missing; without, none
 *
 * Each round starts and ends with no thread, no plan and no object. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "descriptors.h"
#include "kit/devices.h"
#include "options.h"
#include "standin.h"

#define THREADS 8
#define THINGS 30 /* that a thread does in a round */
#define PLACES 4  /* where plans are handed over */

static campaign_options wanted = {
    .count_option = "--rounds", .seed = 1, .count = 3, .folder = ""};

/* What all threads use. */
static const char *const device_names[] = {"PoCL", "H200", "gfx90a (MI210)"};
#define DEVICES 3
static struct {
    cl_device_id id;
    cl_context context;
    cl_mem memory;
    winattn_plan *plan;
    winattn_desc desc;
} shared[DEVICES];
/* Of shared[0]; whoever takes a plan from here owns it. */
static _Atomic(winattn_plan *) places[PLACES];
static unsigned long seed;
static atomic_ulong plans, calls, refusals, handed, blobs, findings;

static void report(const char *what, const char *detail)
{
    atomic_fetch_add(&findings, 1);
    printf(
        "FINDING %s %s\n  again: fuzz_threads --seed %lu --rounds 1 --folder "
        "%s\n",
        what, detail, seed, wanted.folder);
    fflush(stdout);
}

/* ---- Plans and calls ---- */

static winattn_desc draw_problem(random_state *r)
{
    winattn_desc d = {.struct_size = sizeof d,
                      .variant = (winattn_variant)below(r, 2),
                      .dtype = (winattn_dtype)below(r, 3),
                      .windows = 5,
                      .heads = 2,
                      .queries = 16 + below(r, 3),
                      .keys = 16,
                      .head_dim = 16,
                      .bias = (winattn_bias)below(r, 2),
                      .passes = 1 + below(r, 3),
                      .build_options = chance(r, 30) ? "-DX=1" : NULL};
    return d;
}

/* All tensors in one buffer that is large enough for them. */
static winattn_status call(const winattn_plan *plan, const winattn_desc *desc,
                           int device, int pass, bool is_wrong,
                           cl_command_queue queue)
{
    union {
        winattn_forward forward;
        winattn_backward backward;
        unsigned char bytes[sizeof(winattn_backward)];
    } given;
    const winattn_tensor at = {shared[device].memory, 0};
    cl_event event = NULL;
    memset(&given, 0, sizeof given);
    for (int id = 0; id < TENSORS; id++) {
        const size_t place = tensor_traits[id].in_call[pass];
        if (place != NOWHERE && meaning_of(desc, (tensor_id)id).is_used)
            memcpy(given.bytes + place, &at, sizeof at);
    }
    if (pass) {
        given.backward.struct_size = sizeof given.backward;
        given.backward.workspace = at;
    } else {
        given.forward.struct_size = sizeof given.forward;
        given.forward.workspace = at;
    }
    if (is_wrong && pass)
        given.backward.q.buffer = NULL;
    else if (is_wrong)
        given.forward.q.buffer = NULL;
    const winattn_status status =
        pass ? winattn_enqueue_backward(plan, queue, &given.backward, 0, NULL,
                                        &event)
             : winattn_enqueue_forward(plan, queue, &given.forward, 0, NULL,
                                       &event);
    if (event)
        clReleaseEvent(event);
    return status;
}

static void use(random_state *r, const winattn_plan *plan,
                const winattn_desc *desc, int device)
{
    const cl_command_queue queue = standin_queue(
        shared[device].context, shared[device].id, chance(r, 50));
    char text[512];
    size_t size;
    for (int pass = 0; pass < 2; pass++) {
        if ((desc->passes & (1u << pass)) == 0)
            continue;
        const bool is_wrong = chance(r, 25);
        const winattn_status status =
            call(plan, desc, device, pass, is_wrong, queue);
        atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
        if (status == WINATTN_SUCCESS && winattn_last_reason()[0])
            report("success with a reason:", winattn_last_reason());
        if (is_wrong != (status != WINATTN_SUCCESS))
            report("a right call fails, or a wrong one does not:",
                   winattn_last_reason());
        /* the reason of this thread, whatever the others do */
        if (is_wrong && strcmp(winattn_last_reason(), "q is NULL") != 0)
            report("a wrong reason:", winattn_last_reason());
    }
    if (winattn_plan_describe(plan, sizeof text, text, &size) ||
        winattn_plan_workspace_size(plan, &size))
        report("describe:", winattn_last_reason());
    clReleaseCommandQueue(queue);
}

static void make_and_use(random_state *r)
{
    const int device = (int)below(r, DEVICES);
    const winattn_desc desc = draw_problem(r);
    winattn_plan *plan;
    if (winattn_plan_create(shared[device].context, shared[device].id, &desc,
                            &plan) != WINATTN_SUCCESS) {
        atomic_fetch_add_explicit(&refusals, 1, memory_order_relaxed);
        report("a plan was refused:", winattn_last_reason());
        return;
    }
    atomic_fetch_add_explicit(&plans, 1, memory_order_relaxed);
    use(r, plan, &desc, device);
    if (device == 0 && chance(r, 50)) {
        plan = atomic_exchange(&places[below(r, PLACES)], plan);
        atomic_fetch_add_explicit(&handed, plan != NULL, memory_order_relaxed);
    }
    winattn_plan_destroy(plan);
}

/* ---- The other things ---- */

static void move_programs(random_state *r)
{
    const int device = (int)below(r, DEVICES);
    const size_t most = (size_t)1 << 20; /* for what others add meanwhile */
    winattn_programs *programs;
    size_t size = 0;
    if (winattn_programs_create(shared[device].context, shared[device].id,
                                &programs) != WINATTN_SUCCESS) {
        report("programs:", winattn_last_reason());
        return;
    }
    unsigned char *blob = malloc(most);
    if (blob && winattn_programs_export(programs, most, blob, &size) !=
                    WINATTN_SUCCESS)
        report("export:", winattn_last_reason());
    else if (blob &&
             winattn_programs_import(programs, size, blob) != WINATTN_SUCCESS)
        report("import:", winattn_last_reason());
    atomic_fetch_add_explicit(&blobs, 1, memory_order_relaxed);
    free(blob);
    winattn_programs_destroy(programs);
}

static void load_rows(random_state *r)
{
    static const char *const rows[] = {
        NULL,
        "local-forward NVIDIA 80 any any any 16 16 16 "
        "16:16:32:1:16:16:4:4:4:1\n",
        "matrix-forward NVIDIA 80 any half any 16 16 16 16:16:1:4:1:16:0\n",
        "this is no row\n"};
    const cl_uint row = below(r, 4);
    if ((winattn_load_tuning(rows[row]) == WINATTN_SUCCESS) == (row == 3))
        report("load_tuning:", winattn_last_reason());
}

static void move_cache(random_state *r)
{
    char other[1024];
    snprintf(other, sizeof other, "%s/other", wanted.folder);
    const char *folders[] = {wanted.folder, other, "", NULL};
    if (winattn_set_cache_dir(folders[below(r, 4)]) != WINATTN_SUCCESS)
        report("set_cache_dir:", winattn_last_reason());
}

static void *run_thread(void *number)
{
    random_state state = random_seeded(seed * THREADS + (size_t)number);
    random_state *r = &state;
    for (int i = 0; i < THINGS; i++) {
        const int device = (int)below(r, DEVICES);
        switch (below(r, 10)) {
        case 0:
            move_programs(r);
            break;
        case 1:
            load_rows(r);
            break;
        case 2:
            if (wanted.folder[0])
                move_cache(r);
            break;
        case 3:
        case 4:
        case 5:
            use(r, shared[device].plan, &shared[device].desc, device);
            break;
        default:
            make_and_use(r);
        }
        standin_forget();
    }
    return NULL;
}

/* ---- Rounds ---- */

static void open_round(void)
{
    standin_reset();
    standin_drivers.yields = true;
    for (int i = 0; i < DEVICES; i++) {
        const winattn_desc desc = {.struct_size = sizeof desc,
                                   .windows = 5,
                                   .heads = 2,
                                   .queries = 49,
                                   .keys = 49,
                                   .head_dim = 32,
                                   .passes = 3};
        shared[i].id = standin_device(made_up_device(device_names[i]));
        shared[i].context = standin_context(1, &shared[i].id);
        shared[i].memory = standin_buffer(shared[i].context, CL_MEM_READ_WRITE,
                                          (size_t)1 << 30);
        shared[i].desc = desc;
        if (winattn_plan_create(shared[i].context, shared[i].id, &desc,
                                &shared[i].plan) != WINATTN_SUCCESS) {
            report("a shared plan:", winattn_last_reason());
            exit(1);
        }
    }
}

static void close_round(void)
{
    for (int i = 0; i < PLACES; i++)
        winattn_plan_destroy(atomic_exchange(&places[i], NULL));
    for (int i = 0; i < DEVICES; i++) {
        winattn_plan_destroy(shared[i].plan);
        clReleaseMemObject(shared[i].memory);
        clReleaseContext(shared[i].context);
    }
    winattn_load_tuning(NULL);
    if (standin_alive())
        report("still alive:", standin_alive());
    if (standin_wrong(NULL))
        report("stand-in:", standin_wrong(NULL));
    if (standin_binaries_given().damaged)
        report("a damaged binary", "");
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
    winattn_set_cache_dir(wanted.folder);
    unsigned long rounds = 0;
    for (seed = wanted.seed; options_allow(&wanted, rounds); seed++, rounds++)
        run_round();
    printf("rounds %lu from seed %lu on, of %d threads: plans %lu, of them "
           "handed over %lu; calls %lu; blobs %lu; refused plans %lu; "
           "findings %lu\n",
           rounds, wanted.seed, THREADS, atomic_load(&plans),
           atomic_load(&handed), atomic_load(&calls), atomic_load(&blobs),
           atomic_load(&refusals), atomic_load(&findings));
    standin_reset();
    return atomic_load(&findings) != 0;
}
