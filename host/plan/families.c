/* SPDX-License-Identifier: Apache-2.0
 * The table of kernel families, and the loop over the engines that they are
 * for. */
#include <stdio.h>

#include "base/status.h"
#include "plan/family.h"

/* CL_DEVICE_MAX_PARAMETER_SIZE of the full profile, at least */
#define LEAST_PARAMETER_BYTES 1024u

/* Tuned shapes are looked for in the first that has them. */
const wa_family *const wa_families[] = {
#ifdef WINATTN_HOPPER
    &wa_hopper_sliding, &wa_hopper_window, &wa_hopper_sliding_maps,
    &wa_hopper_sliding_pair, &wa_hopper_gradients,
#endif
    /* forward */
    &wa_matrix_sliding, &wa_matrix_window, &wa_local_forward, &wa_cpu_forward,
    /* backward */
    &wa_matrix_sliding_pair, &wa_matrix_pair, &wa_matrix_whole,
    &wa_local_whole, &wa_local_pair, &wa_cpu_backward, NULL};

/* ---- What no tier computes ---- */

/* Fails if the device lacks what kernels of every tier need. */
static winattn_status check_device(const wa_device *device)
{
    if (!device->compiles)
        return WA_BAD_DEVICE("%s has no compiler for OpenCL C", device->name);
    if (!device->has_int64)
        return WA_BAD_DEVICE("%s has no 64-bit integers", device->name);
    if (device->opencl < 102)
        return WA_BAD_DEVICE("%s has an OpenCL below 1.2", device->name);
    /* a backward kernel has nearly as many; an embedded profile has 256 */
    if (device->max_parameter_bytes < LEAST_PARAMETER_BYTES)
        return WA_BAD_DEVICE("%s takes %u bytes of kernel arguments, fewer "
                             "than the %u of OpenCL's full profile",
                             device->name, device->max_parameter_bytes,
                             LEAST_PARAMETER_BYTES);
    return WINATTN_SUCCESS;
}

/* Kernels number groups of SUM_ELEMENTS logits of a bias with 32 bits. */
#define MOST_LOGITS ((uint64_t)1 << 40)
#define MOST_BIASES ((uint64_t)1 << 35)

static winattn_status check_logits(const wa_problem *problem)
{
    const uint64_t logits =
        (uint64_t)problem->heads * problem->queries * problem->keys;
    if (logits > MOST_LOGITS)
        return WA_UNSUPPORTED("heads x queries x keys is above 2^40");
    if (problem->bias != WINATTN_BIAS_NONE && logits > MOST_BIASES)
        return WA_UNSUPPORTED(
            "heads x queries x keys of a bias is above 2^35");
    return WINATTN_SUCCESS;
}

/* A device that limits loops is a graphics pipeline on a CPU. */
static winattn_status check_backward(const wa_problem *problem,
                                     const wa_device *device)
{
    if (device->loop_limit)
        return WA_BAD_DEVICE("%s ends a work-item's loops after %u rounds, "
                             "too few for a backward pass",
                             device->name, device->loop_limit);
    return check_logits(problem);
}

/* ---- The loop over engines ---- */

winattn_tier wa_engine_tier(wa_engine engine)
{
    return engine < WA_ENGINE_MATRIX ? (winattn_tier)engine
                                     : WINATTN_TIER_MATRIX;
}

const char *wa_engine_name(wa_engine engine)
{
    for (size_t i = 0; wa_families[i]; i++)
        if (wa_families[i]->engine == engine && wa_families[i]->name)
            return wa_families[i]->name;
    return "";
}

const char *wa_tier_refusal(const wa_device *device, winattn_tier tier)
{
    return device->breaks_barriers && tier != WINATTN_TIER_CPU
               ? "the device's compiler breaks kernels with barriers in loops"
               : NULL;
}

/* May the engine's tier be tried? If not, `refusal` says why. */
static bool is_tier_open(const wa_problem *problem, const wa_device *device,
                         const wa_exclusions *exclusions, winattn_tier tier,
                         char refusal[WA_REASON_SIZE])
{
    const char *why = wa_tier_refusal(device, tier);
    if (problem->tier != WINATTN_TIER_AUTO && problem->tier != tier)
        snprintf(refusal, WA_REASON_SIZE, "the caller demands tier %s",
                 wa_tier_name(problem->tier));
    else
        snprintf(refusal, WA_REASON_SIZE, "%s",
                 why ? why : exclusions->reason[tier]);
    return refusal[0] == 0;
}

/* May the engine be? Its own refusal is left in the plan. */
static bool is_open(const wa_problem *problem, const wa_device *device,
                    const wa_exclusions *exclusions, wa_engine engine,
                    wa_plan *plan)
{
    const winattn_tier tier = wa_engine_tier(engine);
    char refusal[WA_REASON_SIZE];
    bool may = is_tier_open(problem, device, exclusions, tier, refusal) &&
               (engine == (wa_engine)tier || !device->ignores_special);
    for (int i = (int)tier + 1; i <= (int)engine; i++)
        may = may && exclusions->reason[i][0] == 0;
    snprintf(plan->refusals[engine], WA_REASON_SIZE, "%s",
             engine == (wa_engine)tier ? refusal : exclusions->reason[engine]);
    return may;
}

/* The device as families of an engine see it after what was learnt. */
static wa_device device_for_engine(const wa_device *device,
                                   const wa_exclusions *exclusions,
                                   wa_engine engine)
{
    wa_device seen = *device;
    if (exclusions->most_items[engine])
        seen.max_work_group = exclusions->most_items[engine];
    seen.ignores_tuning = exclusions->untuned[engine][0] != 0;
    return seen;
}

/* Is the simplest engine the best? Where a device limits loops, work-items are
 * lanes of vectors, and the tier for GPUs was 8 times as fast on llvmpipe. */
static bool prefers_simple(const wa_device *device)
{
    return device->is_cpu && device->loop_limit == 0;
}

/* Fails with the refusal of the demanded tier, else of the best. */
static winattn_status fail_no_tier(const wa_problem *problem,
                                   const wa_device *device,
                                   const wa_plan *plan)
{
    const bool demanded = problem->tier != WINATTN_TIER_AUTO;
    /* what tier matrix refuses, others mostly take */
    const winattn_tier wanted = demanded                 ? problem->tier
                                : prefers_simple(device) ? WINATTN_TIER_CPU
                                                         : WINATTN_TIER_LOCAL;
    return wa_fail(demanded ? WINATTN_UNSUPPORTED_PROBLEM
                            : WINATTN_UNSUPPORTED_DEVICE,
                   "no %skernel fits %s; tier %s: %s",
                   plan->pass == WA_BACKWARD ? "backward " : "", device->name,
                   wa_tier_name(wanted), plan->refusals[wanted]);
}

winattn_status wa_plan_make(const wa_problem *problem, const wa_device *device,
                            wa_pass pass, const wa_exclusions *exclusions,
                            wa_plan *plan)
{
    wa_plan_begin(pass, plan);
    WA_TRY(check_device(device));
    if (pass == WA_BACKWARD)
        WA_TRY(check_backward(problem, device));
    for (int i = WA_ENGINE_CPU; i < WA_ENGINES; i++) {
        const wa_engine engine =
            (wa_engine)(prefers_simple(device) ? i : WA_ENGINES - i);
        const wa_device seen = device_for_engine(device, exclusions, engine);
        wa_note_untuned(plan->untuned, wa_engine_tier(engine),
                        exclusions->untuned[engine]);
        if (is_open(problem, device, exclusions, engine, plan) &&
            wa_plan_engine(problem, &seen, engine, plan))
            return wa_plan_finish(problem, device, plan);
    }
    return fail_no_tier(problem, device, plan);
}
