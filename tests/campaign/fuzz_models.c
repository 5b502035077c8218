/* SPDX-License-Identifier: Apache-2.0
 * Random descriptors and argument sets for the library of models, on made-up
 * devices. No call crashes; each refusal has a reason; nothing is enqueued on
 * a refusal; every launch is legal on its device, and stays inside its
 * buffers; planning is bounded; nothing leaks.
 *
 *   fuzz_models [options]
 *     --seed N     of the first case; the next cases have the next seeds
 *     --cases N    at most
 *     --seconds N  at most; 0: as long as it takes
 *
 * What is wrong is printed with the line that runs its case again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "drawn_device.h"
#include "models/linear_plan.h"
#include "models_calls.h"
#include "options.h"
#include "standin.h"

/* Weights of more bytes are refused, which costs no time. */
#define MOST_BYTES ((size_t)16 << 20)
/* Bounds of a plan: launches, plans of linear layers, and seconds of processor
 * time, which a sanitizer multiplies. */
#define MOST_LAUNCHES 200
#define MOST_LINEAR_PLANS 400u
#define MOST_SECONDS 20.0

static campaign_options wanted = {
    .count_option = "--cases", .seed = 1, .count = 1000};

static struct {
    unsigned long cases, right, plans, refused, findings;
    unsigned long of_level[LEVELS]; /* plans */
    double slowest;                 /* seconds to make a plan */
    unsigned long slowest_seed, most_linear;
    call_counts calls;
} counted;

/* The case at hand. */
static unsigned long seed, linear_plans;
static const wa_device *device;
static level_desc made;

/* How often shapes of linear layers are searched. */
winattn_status __real_wa_linear_plan_make(
    const wa_linear_problem *problem, const wa_device *on,
    char excluded[WA_TIERS][WA_REASON_SIZE], wa_linear_layout *layout);
winattn_status __wrap_wa_linear_plan_make(
    const wa_linear_problem *problem, const wa_device *on,
    char excluded[WA_TIERS][WA_REASON_SIZE], wa_linear_layout *layout);
winattn_status __wrap_wa_linear_plan_make(
    const wa_linear_problem *problem, const wa_device *on,
    char excluded[WA_TIERS][WA_REASON_SIZE], wa_linear_layout *layout)
{
    linear_plans++;
    return __real_wa_linear_plan_make(problem, on, excluded, layout);
}

static void report(const char *what, const char *detail)
{
    static char text[4096];
    counted.findings++;
    level_print(&made, text, sizeof text);
    printf("FINDING %s %s\n  device %s: %s\n  again: fuzz_models --seed %lu "
           "--cases 1\n",
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

/* ---- Weights ---- */

static void check_refusal(winattn_status status, const char *reason,
                          bool may_be_refused)
{
    counted.refused++;
    if (!reason[0])
        report("a refusal without a reason:", winattn_status_name(status));
    if (strcmp(winattn_status_name(status), "unknown status") == 0)
        report("an unknown status:", reason);
    if (!may_be_refused && status != CL_OUT_OF_HOST_MEMORY)
        report("a right descriptor was refused:", reason);
}

/* NULL if the shape is refused. What may be 0 in it becomes what it is. */
static winattn_swin_weights *draw_weights(random_state *r)
{
    winattn_swin_weights *weights = NULL;
    const winattn_status status =
        winattn_swin_weights_random(&made.config, special_number(r), &weights);
    if ((status == WINATTN_SUCCESS) != (weights != NULL))
        report("status and weights contradict each other", "");
    if (status != WINATTN_SUCCESS) {
        check_refusal(status, winattn_last_reason(), made.is_spoilt);
        return NULL;
    }
    if (winattn_swin_weights_config(weights, &made.config) != WINATTN_SUCCESS)
        report("weights without a shape:", winattn_last_reason());
    return weights;
}

/* ---- Plans ---- */

/* A struct of any size, and nothing behind it. */
static void *write_desc(random_state *r, bool *is_wrong)
{
    const size_t full = level_desc_size(made.level);
    size_t size = full;
    *is_wrong = false;
    if (chance(r, 5)) {
        size = (size_t)ONE_OF(r, 0, 8, full - 8, full + 16);
        *is_wrong = size < level_desc_least(made.level);
    }
    unsigned char *raw = calloc(1, size > 8 ? size : 8);
    if (!raw)
        abort();
    memcpy(raw, made.u.bytes, size < full ? size : full);
    memcpy(raw, &size, sizeof size);
    return raw;
}

static void check_description(const void *plan)
{
    static char text[1 << 18];
    static const char label[] = "ocal bytes";
    size_t needed = 0;
    if (level_describe(made.level, plan, sizeof text, text, &needed) !=
            WINATTN_SUCCESS ||
        needed != strlen(text) + 1)
        report("describe:", winattn_last_reason());
    if (text[0] && text[needed - 2] != '\n')
        report("the description is cut", "");
    for (const char *at = text; (at = strstr(at, label)) != NULL;) {
        at += sizeof label - 1;
        if (strtoull(at + strspn(at, ": "), NULL, 10) > device->local_bytes)
            report("more local memory than there is:", at);
    }
}

static void check_map_shapes(const void *plan)
{
    cl_uint shape[4];
    for (cl_uint i = 0; i <= WINATTN_SWIN_STAGES; i++) {
        const winattn_status status = winattn_model_map_shape(plan, i, shape);
        if ((status == WINATTN_SUCCESS) != (i < made.config.stages))
            report("a map of a stage that is none, or none of one:",
                   winattn_last_reason());
    }
}

/* Without a cache, only probes and self-tests run while a plan is made. */
static void check_launches_of_plan(void)
{
    const standin_launch *all;
    const size_t count = standin_launches(&all);
    if (count == MOST_LAUNCHES)
        report("a plan does not stop to launch", all[0].kernel);
    for (size_t i = 0; i < count; i++)
        if (strcmp(all[i].kernel, "probe") != 0 &&
            strncmp(all[i].kernel, "check_matrix_", 13) != 0)
            report("a plan launches", all[i].kernel);
}

static void check_cost(double seconds)
{
    if (seconds > counted.slowest) {
        counted.slowest = seconds;
        counted.slowest_seed = seed;
    }
    if (linear_plans > counted.most_linear)
        counted.most_linear = linear_plans;
    if (seconds > MOST_SECONDS || linear_plans > MOST_LINEAR_PLANS)
        report("a plan takes long", "");
}

static void call(random_state *r, void *plan, cl_context context,
                 cl_context other_context)
{
    const level_site site = {
        &made,   plan,         standin_device(device), device->address_bits,
        context, other_context};
    counted.plans++;
    counted.of_level[made.level]++;
    check_description(plan);
    if (made.level == LEVEL_MODEL)
        check_map_shapes(plan);
    for (int i = 0; i < 2; i++)
        level_call_and_check(r, &site, &counted.calls, report);
    level_destroy(made.level, plan);
}

static void make_and_call(random_state *r, cl_context context,
                          cl_context other_context, bool is_odd)
{
    void *plan = NULL;
    bool is_wrong;
    char reason[512];
    winattn_swin_weights *weights = NULL;
    if (made.level == LEVEL_MODEL && !(weights = draw_weights(r)))
        return;
    void *raw = write_desc(r, &is_wrong);
    const bool is_null = chance(r, 1);
    standin_forget();
    standin_drivers.most_launches = MOST_LAUNCHES;
    linear_plans = 0;
    const double start = processor_seconds();
    const winattn_status status =
        level_create(&made, is_null ? NULL : raw, context,
                     standin_device(device), weights, &plan);
    check_cost(processor_seconds() - start);
    snprintf(reason, sizeof reason, "%s", winattn_last_reason());
    free(raw);
    winattn_swin_weights_destroy(weights);
    check_launches_of_plan();
    if ((status == WINATTN_SUCCESS) != (plan != NULL))
        report("status and plan contradict each other", "");
    if (status != WINATTN_SUCCESS) {
        check_refusal(status, reason,
                      is_wrong || is_null || is_odd || made.is_spoilt ||
                          made.u.model.tier != WINATTN_TIER_AUTO);
        return;
    }
    if (reason[0])
        report("a plan with a reason:", reason);
    if (is_wrong || is_null)
        report("took a struct that is too short", "");
    call(r, plan, context, other_context);
}

static void run_case(void)
{
    random_state state = random_seeded(seed), *r = &state;
    const wa_device *other = draw_device(r);
    device = draw_device(r);
    made = level_draw(r);
    counted.cases++;
    counted.right += !made.is_spoilt;
    const bool is_odd = draw_driver(r) || device->loop_limit != 0 ||
                        (device >= standin_odd_devices &&
                         device < standin_odd_devices + standin_odd_count);
    const cl_device_id ids[2] = {standin_device(device),
                                 standin_device(other)};
    const cl_context context = standin_context(other == device ? 1 : 2, ids);
    const cl_context other_context = standin_context(1, ids);
    make_and_call(r, context, other_context, is_odd);
    clReleaseContext(context);
    clReleaseContext(other_context);
    if (standin_alive())
        report("still alive:", standin_alive());
    if (standin_wrong(NULL))
        report("stand-in:", standin_wrong(NULL));
    standin_reset();
}

/* ---- The run ---- */

int main(int argument_count, char **arguments)
{
    setenv("WINATTN_CACHE", "0", 1);
    standin_most_bytes = MOST_BYTES;
    options_read(&wanted, argument_count, arguments);
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(on_death);
    for (seed = wanted.seed; options_allow(&wanted, counted.cases); seed++)
        run_case();
    printf("cases %lu from seed %lu on (%lu of them right): plans %lu (linear "
           "%lu, attention %lu, block %lu, model %lu), refused %lu; calls "
           "%lu, refused %lu; launches %lu, tensors checked %lu; slowest plan "
           "%.3f s (seed %lu), at most %lu plans of linear layers in one; "
           "findings %lu\n",
           counted.cases, wanted.seed, counted.right, counted.plans,
           counted.of_level[LEVEL_LINEAR], counted.of_level[LEVEL_ATTENTION],
           counted.of_level[LEVEL_BLOCK], counted.of_level[LEVEL_MODEL],
           counted.refused, counted.calls.calls, counted.calls.refused,
           counted.calls.launches, counted.calls.tensors, counted.slowest,
           counted.slowest_seed, counted.most_linear, counted.findings);
    return counted.findings != 0;
}
