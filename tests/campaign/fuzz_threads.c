/* SPDX-License-Identifier: Apache-2.0
 * Eight threads make, use, describe, hand over and destroy plans, share some,
 * export and import programs, load rows and move the cache: fuzz_threads for
 * winattn.h, fuzz_models_threads for winattn_models.h, of weights that they
 * share. For a build with ThreadSanitizer; what it finds ends the program.
 *
 *   fuzz_..._threads [options]
 *     --seed N     of the first round; the next rounds have the next seeds
 *     --rounds N   how many; in a round each thread does so many things
 *     --folder F   for caches, made if it is missing; without, none
 *
 * Each round starts and ends with no thread, no plan and no object. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/devices.h"
#include "levels.h"
#include "standin.h"

#define THREADS 8
#define THINGS 30 /* that a thread does in a round */

static campaign_options wanted = {
    .count_option = "--rounds", .seed = 1, .count = 3, .folder = ""};

/* What all threads use. */
static const char *const device_names[] = {"PoCL", "H200", "gfx90a (MI210)"};
#define DEVICES 3
static struct {
    cl_device_id id;
    cl_context context;
    cl_mem memory;
    void *plans[LEVELS];
} shared[DEVICES];
static level_desc descs[LEVELS]; /* of the shared plans */
/* Of shared[0]; whoever takes a plan from here owns it. */
static _Atomic(void *) places[LEVELS];
static const char *program;
static unsigned long seed;
static atomic_ulong plans, calls, handed, blobs, findings;

void report(const char *what, const char *detail)
{
    atomic_fetch_add(&findings, 1);
    printf("FINDING %s %s\n  again: %s --seed %lu --rounds 1 --folder %s\n",
           what, detail, program, seed, wanted.folder);
    fflush(stdout);
}

/* ---- Plans and calls ---- */

static void call(random_state *r, const level_desc *desc,
                 const call_kind *kind, const void *plan, int device,
                 cl_command_queue queue)
{
    level_call given;
    cl_event event = NULL;
    const bool is_wrong = chance(r, 25);
    memset(&given, 0, sizeof given);
    if (kind->draw_small)
        kind->draw_small(r, &given);
    const size_t first =
        level_give_tensors(r, desc, kind, shared[device].memory, &given);
    if (is_wrong)
        memset(given.bytes + first, 0, sizeof(winattn_tensor));
    standin_forget();
    const winattn_status status =
        kind->enqueue(plan, queue, given.bytes, 0, NULL, &event);
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
    const char *fault = is_wrong ? NULL : kind->fault(desc, &given, false);
    if (fault)
        report(fault, desc->of->name);
}

static void use(random_state *r, const level_desc *desc, const void *plan,
                int device)
{
    const cl_command_queue queue = standin_queue(
        shared[device].context, shared[device].id, chance(r, 50));
    const level_call nothing = {.linear = {.rows = 10}};
    char text[512];
    size_t size;
    for (size_t i = 0; i < desc->of->kind_count; i++) {
        const call_kind *kind = &desc->of->kinds[i];
        bool is_sure;
        if (kind->applies && !kind->applies(desc))
            continue;
        call(r, desc, kind, plan, device, queue);
        kind->workspace_size(desc, plan, &nothing, &size, &is_sure);
    }
    if (desc->of->describe(plan, sizeof text, text, &size))
        report("describe:", winattn_last_reason());
    clReleaseCommandQueue(queue);
}

static void *make(const level_desc *desc, int device)
{
    void *plan = NULL;
    if (desc->of->create(desc, desc->u.bytes, shared[device].context,
                         shared[device].id, &plan) != WINATTN_SUCCESS)
        report("a plan was refused:", winattn_last_reason());
    return plan;
}

static void make_and_use(random_state *r, size_t number)
{
    const int device = (int)below(r, DEVICES);
    level_desc desc = descs[number]; /* and weights that are shared */
    desc.of->draw_small(r, &desc);
    void *plan = make(&desc, device);
    if (!plan)
        return;
    atomic_fetch_add_explicit(&plans, 1, memory_order_relaxed);
    use(r, &desc, plan, device);
    if (device == 0 && chance(r, 50)) {
        plan = atomic_exchange(&places[number], plan);
        atomic_fetch_add_explicit(&handed, plan != NULL, memory_order_relaxed);
    }
    desc.of->destroy(plan);
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
        const size_t which = below(r, (cl_uint)level_count);
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
            use(r, &descs[which], shared[device].plans[which], device);
            break;
        default:
            make_and_use(r, which);
        }
        standin_forget();
    }
    return NULL;
}

/* ---- Rounds ---- */

static void make_descs(void)
{
    random_state r = random_seeded(seed);
    for (size_t i = 0; i < level_count; i++) {
        memset(&descs[i], 0, sizeof descs[i]);
        descs[i].of = &levels[i];
        levels[i].draw_small(&r, &descs[i]);
        if (levels[i].prepare &&
            levels[i].prepare(&r, &descs[i]) != WINATTN_SUCCESS) {
            report("weights:", winattn_last_reason());
            exit(1);
        }
    }
}

static void open_round(void)
{
    standin_reset();
    standin_drivers.yields = true;
    make_descs();
    for (int i = 0; i < DEVICES; i++) {
        shared[i].id = standin_device(made_up_device(device_names[i]));
        shared[i].context = standin_context(1, &shared[i].id);
        shared[i].memory = standin_buffer(shared[i].context, CL_MEM_READ_WRITE,
                                          (size_t)1 << 40);
        for (size_t which = 0; which < level_count; which++) {
            shared[i].plans[which] = make(&descs[which], i);
            if (!shared[i].plans[which])
                exit(1);
        }
    }
    standin_forget();
}

static void close_round(void)
{
    for (size_t which = 0; which < level_count; which++) {
        levels[which].destroy(atomic_exchange(&places[which], NULL));
        if (levels[which].release)
            levels[which].release(&descs[which]);
        for (int i = 0; i < DEVICES; i++)
            levels[which].destroy(shared[i].plans[which]);
    }
    for (int i = 0; i < DEVICES; i++) {
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
    program = arguments[0];
    options_read(&wanted, argument_count, arguments);
    winattn_set_cache_dir(wanted.folder);
    unsigned long rounds = 0;
    for (seed = wanted.seed; rounds < wanted.count; seed++, rounds++)
        run_round();
    printf("rounds %lu from seed %lu on, of %d threads: plans %lu, of them "
           "handed over %lu; calls %lu; blobs %lu; findings %lu\n",
           rounds, wanted.seed, THREADS, atomic_load(&plans),
           atomic_load(&handed), atomic_load(&calls), atomic_load(&blobs),
           atomic_load(&findings));
    standin_reset();
    return atomic_load(&findings) != 0;
}
