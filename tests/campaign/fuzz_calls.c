/* SPDX-License-Identifier: Apache-2.0
 * Random descriptors and argument sets on made-up devices: fuzz_descriptors
 * for winattn.h, fuzz_models for winattn_models.h. No call crashes; each
 * refusal has a reason; nothing is enqueued on a refusal; every launch is
 * legal on its device, and computes what it should; planning is bounded;
 * nothing leaks.
 *
 *   fuzz_... [options]
 *     --seed N     of the first case; the next cases have the next seeds
 *     --cases N    how many
 *
 * What is wrong is printed with the line that runs its case again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "calls.h"
#include "kit/devices.h"
#include "standin.h"

/* Weights of more bytes are refused, which costs no time. */
#define MOST_BYTES ((size_t)16 << 20)
/* Bounds of a plan: launches, and seconds of processor time, which a sanitizer
 * multiplies. */
#define MOST_LAUNCHES 200
#define MOST_SECONDS 20.0

static campaign_options wanted = {
    .count_option = "--cases", .seed = 1, .count = 1000};

static struct {
    unsigned long cases, right, plans, refused, findings;
    double slowest; /* seconds of processor time to make a plan */
    unsigned long slowest_seed;
    call_counts calls;
} counted;

/* The case at hand. */
static const char *program;
static unsigned long seed;
static const wa_device *device;
static level_desc made;

void report(const char *what, const char *detail)
{
    static char text[8192];
    counted.findings++;
    level_print(&made, text, sizeof text);
    printf("FINDING %s %s\n  device %s: %s\n  again: %s --seed %lu --cases "
           "1\n",
           what, detail, device->name, text, program, seed);
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

/* ---- The device, and what its driver is like ---- */

/* Mostly one that there is, else one of odd numbers. */
static const wa_device *draw_device(random_state *r)
{
    return chance(r, 85)
               ? &made_up_devices[below(r, (cl_uint)made_up_count)]
               : &standin_odd_devices[below(r, (cl_uint)standin_odd_count)];
}

/* By the options alone, so that the same program is refused again. */
static bool refuses(void *data, const char *options)
{
    unsigned sum = 2166136261u;
    for (; *options; options++)
        sum = (sum ^ (unsigned char)*options) * 16777619u;
    return sum / 64 % 100 < *(unsigned *)data;
}

/* Sets standin_drivers. Is there something about it that may make a right
 * problem impossible? */
static bool draw_driver(random_state *r)
{
    static unsigned percent;
    if (!chance(r, 30))
        return false;
    percent = (unsigned)ONE_OF(r, 0, 0, 30, 100);
    standin_drivers.refuses = refuses;
    standin_drivers.data = &percent;
    standin_drivers.kernel_work_group = (size_t)ONE_OF(r, 0, 0, 64, 128, 1);
    standin_drivers.private_bytes = ONE_OF(r, 0, 0, 64, 200, 5000);
    standin_drivers.gives_no_binaries = chance(r, 20);
    standin_drivers.unit_is_wrong = chance(r, 20);
    return true;
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

/* A struct of any size, and nothing behind it; what it lacks is 0. */
static void *write_desc(random_state *r, bool *is_wrong)
{
    const size_t full = made.of->desc_size;
    size_t size = full;
    bool has_tail = false;
    *is_wrong = false;
    if (chance(r, 5)) {
        size =
            (size_t)ONE_OF(r, 0, 8, full - 24, full - 16, full - 8, full + 16);
        has_tail = size > full && chance(r, 50);
        *is_wrong = has_tail || size < made.of->desc_least;
    }
    if (size < full)
        memset(made.u.bytes + size, 0, full - size);
    unsigned char *raw = calloc(1, size > 8 ? size : 8);
    if (!raw)
        abort();
    memcpy(raw, made.u.bytes, size < full ? size : full);
    memcpy(raw, &size, sizeof size);
    if (has_tail)
        raw[size - 1] = 7;
    return raw;
}

static void check_description(const void *plan)
{
    static char text[1 << 18];
    static const char label[] = "ocal bytes";
    char own[64];
    size_t needed = 0;
    if (made.of->describe(plan, sizeof text, text, &needed) !=
            WINATTN_SUCCESS ||
        needed != strlen(text) + 1)
        report("describe:", winattn_last_reason());
    snprintf(own, sizeof own, "device: %.8s", device->name);
    wa_make_plain(own, "");
    if (text_starts(text, "device: ") && !text_starts(text, own))
        report("a plan for another device:", text);
    if (text[0] && text[needed - 2] != '\n')
        report("the description is cut", "");
    for (const char *at = text; (at = strstr(at, label)) != NULL;) {
        at += sizeof label - 1;
        if (strtoull(at + strspn(at, ": "), NULL, 10) > device->local_bytes)
            report("more local memory than there is:", at);
    }
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
    if (!may_be_refused && status != CL_OUT_OF_HOST_MEMORY &&
        !is_excused(reason))
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

static void check_time(double seconds)
{
    if (seconds > counted.slowest) {
        counted.slowest = seconds;
        counted.slowest_seed = seed;
    }
    if (seconds > MOST_SECONDS)
        report("a plan takes long", "");
}

static bool demands_tier(void)
{
    winattn_tier tier;
    memcpy(&tier, made.u.bytes + made.of->tier, sizeof tier);
    return tier != WINATTN_TIER_AUTO;
}

/* NULL: it is refused, for which there must be a reason. */
static void *make_plan(random_state *r, cl_context context, bool is_odd)
{
    void *plan = NULL;
    bool is_wrong;
    char reason[512];
    void *raw = write_desc(r, &is_wrong);
    winattn_programs *programs = draw_programs(r, context);
    const bool is_null = chance(r, 1);
    is_wrong = is_wrong || is_null;
    standin_forget();
    standin_drivers.most_launches = MOST_LAUNCHES;
    const double start = processor_seconds();
    const winattn_status status = made.of->create(
        &made, is_null ? NULL : raw, context, standin_device(device), &plan);
    check_time(processor_seconds() - start);
    snprintf(reason, sizeof reason, "%s", winattn_last_reason());
    free(raw);
    check_launches_of_plan(programs != NULL);
    if (programs)
        check_programs(programs);
    if ((status == WINATTN_SUCCESS) != (plan != NULL))
        report("status and plan contradict each other", "");
    if (status != WINATTN_SUCCESS)
        check_refusal(status, reason,
                      is_wrong || is_odd || made.is_spoilt || demands_tier());
    else if (reason[0])
        report("a plan with a reason:", reason);
    else if (is_wrong)
        report("took a struct that is too short or too long", "");
    return plan;
}

static void make_and_call(random_state *r, cl_context context,
                          cl_context other_context, bool is_odd)
{
    const level *of = made.of;
    const cl_device_id id = standin_device(device);
    if (of->prepare) {
        const winattn_status status = of->prepare(r, &made);
        if (status != WINATTN_SUCCESS) {
            check_refusal(status, winattn_last_reason(), made.is_spoilt);
            return;
        }
    }
    void *plan = make_plan(r, context, is_odd);
    if (of->prepare) /* a plan does without */
        of->release(&made);
    if (!plan)
        return;
    const call_site site = {&made,   plan,         id, device->address_bits,
                            context, other_context};
    counted.plans++;
    check_description(plan);
    if (of->check)
        of->check(&made, plan, context, id);
    for (size_t i = 0; i < 2; i++) {
        const call_kind *kind = &of->kinds[i % of->kind_count];
        if (!kind->applies || kind->applies(&made))
            call_and_check(r, &site, kind, &counted.calls);
    }
    of->destroy(plan);
}

static void run_case(void)
{
    random_state state = random_seeded(seed), *r = &state;
    const wa_device *other = draw_device(r);
    device = draw_device(r);
    made = level_make(r, level_draw(r));
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
    if (made.of->release)
        made.of->release(&made);
    standin_reset();
}

/* ---- The run ---- */

int main(int argument_count, char **arguments)
{
    setenv("WINATTN_CACHE", "0", 1);
    program = arguments[0];
    standin_most_bytes = MOST_BYTES;
    options_read(&wanted, argument_count, arguments);
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(on_death);
    for (seed = wanted.seed; counted.cases < wanted.count; seed++)
        run_case();
    printf(
        "cases %lu from seed %lu on (%lu of them right): plans %lu, refused "
        "%lu; calls %lu, refused %lu; launches %lu, tensors checked %lu; "
        "slowest plan %.3f s (seed %lu); findings %lu\n",
        counted.cases, wanted.seed, counted.right, counted.plans,
        counted.refused, counted.calls.calls, counted.calls.refused,
        counted.calls.launches, counted.calls.tensors, counted.slowest,
        counted.slowest_seed, counted.findings);
    return counted.findings != 0;
}
