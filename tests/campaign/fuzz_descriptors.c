/* SPDX-License-Identifier: Apache-2.0
 * Random descriptors and argument sets on made-up devices. No call crashes;
 * each refusal has a reason; nothing is enqueued on a refusal; every launch is
 * legal on its device; nothing leaks.
 *
 *   fuzz_descriptors [options]
 *     --seed N     of the first case; the next cases have the next seeds
 *     --cases N    at most
 *     --seconds N  at most; 0: as long as it takes
 *
 * What is wrong is printed with the line that runs its case again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "calls.h"
#include "drawn_device.h"
#include "options.h"
#include "plan/planner.h"
#include "session/session.h"
#include "standin.h"

#define MOST_STEPS 1000000u

#define MOST_LAUNCHES 200 /* while a plan is made */

static campaign_options wanted = {
    .count_option = "--cases", .seed = 1, .count = 1000};

static struct {
    unsigned long cases, right, plans, refused, findings;
    double slowest;      /* seconds of processor time to make a plan */
    uint64_t most_steps; /* that a planner took */
    unsigned long slowest_seed, most_steps_seed;
    call_counts calls;
} counted;

/* The case at hand. */
static unsigned long seed;
static const wa_device *device;
static made_desc made;

static void report(const char *what, const char *detail)
{
    static char text[8192];
    counted.findings++;
    desc_print(&made.desc, text, sizeof text);
    printf("FINDING %s %s\n  device %s:%s\n  again: fuzz_descriptors --seed "
           "%lu --cases 1\n",
           what, detail, device->name, text, seed);
    fflush(stdout);
}

/* A sanitizer calls this before it ends the program. */
void __sanitizer_set_death_callback(void (*callback)(void))
    __attribute__((weak));
static void on_death(void)
{
    report("a sanitizer ended this case, see above", "");
}

static double processor_seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

/* ---- Rows of tuning ---- */

/* Measured shapes that nobody measured. */
static bool draw_tuning(random_state *r)
{
    static const struct {
        const char *name;
        int numbers;
    } kernels[] = {{"local-forward", 10},  {"matrix-forward", 7},
                   {"local-backward", 9},  {"local-backward", 10},
                   {"matrix-backward", 7}, {"matrix-backward", 15}};
    static const char *const vendors[] = {"NVIDIA 75", "AMD 0", "Intel 0"};
    char text[2048];
    size_t used = 0;
    if (!chance(r, 10))
        return false;
    const cl_uint kernel = below(r, 6);
    for (int row = 0; row < 8; row++) {
        static const cl_ulong dims[] = {8, 16, 24, 32, 32, 64, 80, 128};
        used += (size_t)snprintf(
            text + used, sizeof text - used, "%s %s any any any any any %u ",
            kernels[kernel].name, vendors[below(r, 3)],
            (unsigned)one_of(r, dims, sizeof dims / sizeof *dims));
        for (int i = 0; i < kernels[kernel].numbers; i++)
            used += (size_t)snprintf(
                text + used, sizeof text - used, "%s%u", i ? ":" : "",
                (unsigned)ONE_OF(r, 0, 1, 1, 2, 2, 4, 7, 16, 32, 49, 64, 128));
        used += (size_t)snprintf(text + used, sizeof text - used, "\n");
    }
    winattn_load_tuning(text); /* or it is refused, with a reason */
    return true;
}

/* ---- Plans ---- */

/* A struct of any size, and nothing behind it. */
static void *write_desc(random_state *r, bool *is_wrong)
{
    size_t size = sizeof made.desc;
    bool has_tail = false;
    *is_wrong = false;
    if (chance(r, 5)) {
        size = (size_t)ONE_OF(r, 0, 8, sizeof made.desc - 24,
                              sizeof made.desc - 16, sizeof made.desc - 8,
                              sizeof made.desc + 16);
        has_tail = size > sizeof made.desc && chance(r, 50);
        /* build_options and what came later may be missing */
        *is_wrong = has_tail || size < offsetof(winattn_desc, build_options);
    }
    if (size < sizeof made.desc) /* as what is planned lacks it */
        made.desc.grid_options = 0;
    unsigned char *raw = calloc(1, size > 8 ? size : 8);
    if (!raw)
        abort();
    memcpy(raw, &made.desc, size < sizeof made.desc ? size : sizeof made.desc);
    memcpy(raw, &size, sizeof size);
    if (has_tail)
        raw[size - 1] = 7;
    return raw;
}

static void check_description(const winattn_plan *plan)
{
    static char text[16384];
    size_t needed = 0;
    static const char label[] = "ocal bytes";
    if (winattn_plan_describe(plan, sizeof text, text, &needed) !=
            WINATTN_SUCCESS ||
        needed != strlen(text) + 1)
        report("describe:", winattn_last_reason());
    if (needed >= 8192)
        report("the description is cut", "");
    for (const char *at = text; (at = strstr(at, label)) != NULL;) {
        at += sizeof label - 1;
        if (strtoull(at + strspn(at, ": "), NULL, 10) > device->local_bytes)
            report("more local memory than there is:", at);
    }
}

static void check_tensors(void)
{
    for (int id = 0; id < TENSORS; id++) {
        const tensor_meaning t = meaning_of(&made.desc, (tensor_id)id);
        if (t.is_used && meaning_overlaps(&t))
            report("took strides that overlap:", tensor_traits[id].name);
    }
}

static void note_steps(const char *pass, uint64_t steps)
{
    char text[64];
    if (steps > counted.most_steps) {
        counted.most_steps = steps;
        counted.most_steps_seed = seed;
    }
    snprintf(text, sizeof text, "%s, %llu", pass, (unsigned long long)steps);
    if (steps > MOST_STEPS)
        report("a planner took many steps:", text);
}

/* Plans again without the device, since the library's interface does not say
 * how many shapes were looked at. */
static void check_steps(cl_context context, cl_device_id id)
{
    static const wa_exclusions none;
    wa_problem problem;
    wa_session *session;
    wa_plan plan;
    wa_plan backward;
    if (wa_problem_read(&made.desc, &problem) != WINATTN_SUCCESS ||
        wa_session_acquire(context, id, &session) != WINATTN_SUCCESS) {
        report("what was planned cannot be planned again", "");
        return;
    }
    const wa_device *found = wa_session_device(session);
    if (problem.passes[WA_FORWARD]) {
        wa_plan_make(&problem, found, WA_FORWARD, &none, &plan);
        note_steps("forward", plan.visited);
    }
    if (problem.passes[WA_BACKWARD]) {
        wa_plan_make(&problem, found, WA_BACKWARD, &none, &backward);
        note_steps("backward", backward.visited);
    }
    wa_session_release(session);
}

/* The reasons for which a right problem may be refused on a good device. */
static bool is_excused(const char *reason)
{
    static const char *const known[] = {
        "table.index", "the sink touches", "spans more than 2^31 elements",
        "spans more than 2^32 elements", "is above 2^32"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(reason, known[i]))
            return true;
    return false;
}

static void check_refusal(winattn_status status, const char *reason,
                          bool may_be_refused)
{
    counted.refused++;
    if (!reason[0])
        report("a refusal without a reason:", winattn_status_name(status));
    if (strcmp(winattn_status_name(status), "unknown status") == 0)
        report("an unknown status:", reason);
    if (!may_be_refused && !is_excused(reason))
        report("a right descriptor was refused:", reason);
}

/* Without a cache, only probes and self-tests run while a plan is made. */
static void check_launches_of_plan(bool has_programs)
{
    const standin_launch *all;
    const size_t count = standin_launches(&all);
    if (count == MOST_LAUNCHES)
        report("a plan does not stop to launch", all[0].kernel);
    for (size_t i = 0; i < count && !has_programs; i++)
        if (strcmp(all[i].kernel, "probe") != 0 &&
            strncmp(all[i].kernel, "check_matrix_", 13) != 0)
            report("a plan launches", all[i].kernel);
}

/* With them, new kernels run once while a plan is made. NULL mostly; also
 * where the compiler may refuse probes. */
static winattn_programs *draw_programs(random_state *r, cl_context context)
{
    winattn_programs *programs = NULL;
    if (chance(r, 10) &&
        winattn_programs_create(context, standin_device(device), &programs) !=
            WINATTN_SUCCESS &&
        !standin_drivers.refuses)
        report("no programs:", winattn_last_reason());
    return programs;
}

/* What is exported can be imported. */
static void check_programs(winattn_programs *programs)
{
    size_t size = 0;
    if (winattn_programs_export(programs, 0, NULL, &size) != WINATTN_SUCCESS)
        report("no size of a blob:", winattn_last_reason());
    void *blob = malloc(size + 1);
    if (!blob)
        abort();
    if (winattn_programs_export(programs, size, blob, NULL) !=
            WINATTN_SUCCESS ||
        winattn_programs_import(programs, size, blob) != WINATTN_SUCCESS)
        report("a blob:", winattn_last_reason());
    free(blob);
    winattn_programs_destroy(programs);
}

static void make_and_call(random_state *r, cl_context context,
                          cl_context other_context, bool is_odd)
{
    winattn_plan *plan = NULL;
    bool is_wrong;
    void *raw = write_desc(r, &is_wrong);
    const cl_device_id id = standin_device(device);
    winattn_programs *programs = draw_programs(r, context);
    const bool is_null = chance(r, 1);
    standin_drivers.most_launches = MOST_LAUNCHES;
    const double start = processor_seconds();
    const winattn_status status =
        winattn_plan_create(context, id, is_null ? NULL : raw, &plan);
    const double seconds = processor_seconds() - start;
    char reason[512];
    snprintf(reason, sizeof reason, "%s", winattn_last_reason());
    free(raw);
    if (seconds > counted.slowest) {
        counted.slowest = seconds;
        counted.slowest_seed = seed;
    }
    check_launches_of_plan(programs != NULL);
    if (programs)
        check_programs(programs);
    if ((status == WINATTN_SUCCESS) != (plan != NULL))
        report("status and plan contradict each other", "");
    if (status != WINATTN_SUCCESS) {
        check_refusal(status, reason,
                      is_wrong || is_null || is_odd || made.is_spoilt ||
                          made.desc.tier != WINATTN_TIER_AUTO);
        return;
    }
    counted.plans++;
    if (is_wrong || is_null)
        report("took a struct that is too short or too long", "");
    check_description(plan);
    check_tensors();
    check_steps(context, id);
    const call_site site = {plan,    &made.desc,   id, device->address_bits,
                            context, other_context};
    for (int pass = 0; pass < 2; pass++)
        if (((made.desc.passes ? made.desc.passes : 1) & (1u << pass)) != 0)
            call_and_check(r, &site, pass, true, &counted.calls, report);
    winattn_plan_destroy(plan);
}

static void run_case(void)
{
    random_state state = random_seeded(seed), *r = &state;
    const wa_device *other = draw_device(r);
    device = draw_device(r);
    made = desc_make(r);
    counted.cases++;
    counted.right += !made.is_spoilt;
    const bool is_odd = draw_driver(r) || device->loop_limit != 0 ||
                        (device >= standin_odd_devices &&
                         device < standin_odd_devices + standin_odd_count);
    const bool is_tuned = draw_tuning(r);
    const cl_device_id ids[2] = {standin_device(device),
                                 standin_device(other)};
    const cl_context context = standin_context(other == device ? 1 : 2, ids);
    const cl_context other_context = standin_context(1, ids);
    make_and_call(r, context, other_context, is_odd);
    if (is_tuned)
        winattn_load_tuning(NULL);
    clReleaseContext(context);
    clReleaseContext(other_context);
    if (standin_alive())
        report("still alive:", standin_alive());
    if (standin_wrong(NULL))
        report("stand-in:", standin_wrong(NULL));
    desc_free(&made);
    standin_reset();
}

/* ---- The run ---- */

int main(int argument_count, char **arguments)
{
    setenv("WINATTN_CACHE", "0", 1);
    options_read(&wanted, argument_count, arguments);
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(on_death);
    for (seed = wanted.seed; options_allow(&wanted, counted.cases); seed++)
        run_case();
    printf(
        "cases %lu from seed %lu on (%lu of them right): plans %lu, "
        "refused %lu; calls %lu, refused %lu; launches %lu, tensors "
        "checked %lu; slowest plan %.3f s (seed %lu), most steps %llu (seed "
        "%lu); findings %lu\n",
        counted.cases, wanted.seed, counted.right, counted.plans,
        counted.refused, counted.calls.calls, counted.calls.refused,
        counted.calls.launches, counted.calls.tensors, counted.slowest,
        counted.slowest_seed, (unsigned long long)counted.most_steps,
        counted.most_steps_seed, counted.findings);
    return counted.findings != 0;
}
