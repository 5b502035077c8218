/* SPDX-License-Identifier: Apache-2.0
 * Chooses family and shape: a measured one, or of all that families list the
 * cheapest. */
#include <stdio.h>

#include "base/text.h"
#include "plan/family.h"
#include "plan/tuning.h"

/* Families of one engine and pass, at most. */
#define MOST_OPEN 4

/* ---- Rows ---- */

bool wa_family_suits(const wa_family *family, const wa_problem *problem)
{
    const bool slides = problem->variant == WINATTN_SLIDING;
    return family->engine < WA_ENGINE_MATRIX || family->slides == slides;
}

bool wa_family_has_shape(const wa_family *family, const wa_tuned_shape *shape)
{
    return !family->has_shape || family->has_shape(shape);
}

bool wa_take_shape(const wa_family *family, const wa_problem *problem,
                   const wa_device *device, const wa_tuned_shape *shape,
                   wa_plan *plan)
{
    plan->family = family;
    plan->tier = wa_engine_tier(family->engine);
    const char *why = family->take(problem, device, shape, plan);
    snprintf(plan->refusals[family->engine], WA_REASON_SIZE, "%s",
             why ? why : "");
    return !why;
}

static void start_reason(const wa_family *family, wa_plan *plan)
{
    snprintf(plan->reason, WA_REASON_SIZE, "%s",
             family->what ? family->what : "");
}

/* ---- The search ---- */

static void keep_best(void *data, const wa_tuned_shape *shape, double cost)
{
    wa_best_shape *best = data;
    if (best->cost == 0 || cost < best->cost) {
        best->cost = cost;
        best->shape = *shape;
    }
}

wa_best_shape wa_find_best(const wa_family *family, wa_search *find)
{
    wa_best_shape all = {.cost = 0};
    bool complete = true, fit = true;
    for (int i = 0; i < WA_MOST_KERNELS && family->visit[i]; i++) {
        wa_best_shape best = {.cost = 0, .shape = all.shape};
        find->visit = keep_best;
        find->data = &best;
        find->shape = all.shape;
        find->fits = false;
        family->visit[i](find);
        fit = fit && find->fits;
        complete = complete && best.cost > 0;
        all.costs[i] = best.cost;
        all.cost += best.cost;
        all.shape = best.shape;
    }
    find->fits = fit;
    if (!complete)
        all.cost = 0;
    return all;
}

static bool search(const wa_family *const *open, size_t count,
                   const wa_problem *problem, const wa_device *device,
                   wa_plan *plan)
{
    wa_search find = {.problem = problem, .device = device};
    const wa_family *family = open[0];
    wa_best_shape best = {.cost = 0};
    bool fits = false;
    for (size_t i = 0; i < count; i++) {
        const wa_best_shape own = wa_find_best(open[i], &find);
        fits = fits || find.fits;
        if (own.cost > 0 && (best.cost == 0 || own.cost < best.cost)) {
            best = own;
            family = open[i];
        }
    }
    plan->visited += find.visited;
    if (best.cost == 0) {
        if (family->say_none)
            family->say_none(device, fits, plan->refusals[family->engine]);
        return false;
    }
    start_reason(family, plan);
    if (family->explain)
        family->explain(problem, device, &best.shape, plan->reason);
    return wa_take_shape(family, problem, device, &best.shape, plan);
}

/* ---- Measured shapes ---- */

void wa_note_untuned(char untuned[WA_REASON_SIZE], winattn_tier tier,
                     const char *why)
{
    if (why[0] && !untuned[0])
        snprintf(untuned, WA_REASON_SIZE, "tier %s: %.220s",
                 wa_tier_name(tier), why);
}

static bool take_tuned(const wa_family *const *open, size_t count,
                       const wa_problem *problem, const wa_device *device,
                       wa_plan *plan)
{
    const wa_engine engine = open[0]->engine;
    wa_tuned tuned;
    for (size_t i = 0;
         wa_find_tuned(open[0]->tuned, problem, device, i, &tuned); i++) {
        const wa_family *family = open[0];
        for (size_t n = 1;
             n < count && !wa_family_has_shape(family, &tuned.shape); n++)
            family = open[n];
        plan->tuned =
            wa_take_shape(family, problem, device, &tuned.shape, plan);
        wa_note_untuned(plan->untuned, wa_engine_tier(engine),
                        plan->refusals[engine]);
        start_reason(family, plan);
        wa_append(plan->reason, WA_REASON_SIZE, "%s", tuned.reason);
        if (plan->tuned)
            return true;
    }
    return false;
}

/* ---- An engine ---- */

/* Families that may be chosen; if there are none, the first reason why is
 * left. */
static size_t find_open(const wa_problem *problem, const wa_device *device,
                        wa_engine engine, wa_plan *plan,
                        const wa_family *open[MOST_OPEN])
{
    size_t count = 0;
    const char *first = "";
    for (size_t i = 0; wa_families[i]; i++) {
        const wa_family *family = wa_families[i];
        if (family->engine != engine || family->pass != plan->pass ||
            !wa_family_suits(family, problem))
            continue;
        const char *why = family->refusal
                              ? family->refusal(problem, device, plan->pass)
                              : NULL;
        if (!why)
            open[count++] = family;
        else if (!first[0])
            first = why;
    }
    if (count == 0)
        snprintf(plan->refusals[engine], WA_REASON_SIZE, "%s", first);
    return count;
}

bool wa_plan_engine(const wa_problem *problem, const wa_device *device,
                    wa_engine engine, wa_plan *plan)
{
    const wa_family *open[MOST_OPEN];
    const size_t count = find_open(problem, device, engine, plan, open);
    if (count == 0)
        return false;
    if (!open[0]->visit[0])
        return wa_take_shape(open[0], problem, device, NULL, plan);
    return (open[0]->tuned != WA_TUNED_KERNELS &&
            take_tuned(open, count, problem, device, plan)) ||
           search(open, count, problem, device, plan);
}
