/* SPDX-License-Identifier: Apache-2.0
 * Reads the arguments of launches as kernels do. */
#include "core_level.h"

#include <stdlib.h>
#include <string.h>

#include "../../cl/common/args.h"
#include "standin.h"

#define MOST_KERNELS 8

/* How far a kernel's launches have come, in its units or windows. Two kernels
 * may have the same name and other options. */
typedef struct progress {
    const char *kernel, *options;
    wide next, end;
} progress;

static cl_ulong option(const char *options, const char *name,
                       cl_ulong otherwise)
{
    const char *at = strstr(options, name);
    return at ? strtoull(at + strlen(name), NULL, 10) : otherwise;
}

/* Units that are taken one after the other must have a team each. */
static bool has_teams(const standin_launch *launch, cl_uint units)
{
    const cl_ulong teams = option(launch->options, "-DTEAMS=", 1);
    const cl_ulong groups = launch->global / launch->local;
    return groups * teams >= units && (groups - 1) * teams < units;
}

static progress *find(progress *all, size_t *count,
                      const standin_launch *launch)
{
    for (size_t i = 0; i < *count; i++)
        if (strcmp(all[i].kernel, launch->kernel) == 0 &&
            strcmp(all[i].options, launch->options) == 0)
            return &all[i];
    if (*count == MOST_KERNELS)
        return NULL;
    progress *made = &all[(*count)++];
    memset(made, 0, sizeof *made);
    made->kernel = launch->kernel;
    made->options = launch->options;
    return made;
}

static const char *take(progress *all, size_t *count, wide windows,
                        const standin_launch *launch)
{
    forward_args args; /* with which those of a backward pass begin */
    if (launch->arguments[0].size < sizeof args)
        return "a kernel of attention without its arguments";
    memcpy(&args, launch->arguments[0].bytes, sizeof args);
    const bool in_work_tiles = args.work_tiles != 0;
    const wide per_window =
        in_work_tiles ? (wide)args.row_blocks * args.heads : 1;
    const wide first = args.first_window * per_window + args.first_work_tile;
    progress *p = find(all, count, launch);
    if (!p)
        return "too many kernels";
    if (first != p->next)
        return "a launch that does not go on where the last one ended";
    if (in_work_tiles && !has_teams(launch, args.work_tiles))
        return "more or fewer work-groups than units";
    p->next += in_work_tiles ? args.work_tiles : args.windows;
    p->end = windows * per_window;
    return p->next > p->end ? "a launch beyond the last window" : NULL;
}

const char *core_launches_fault(const level_desc *desc, bool is_cut)
{
    progress all[MOST_KERNELS];
    size_t kernels = 0;
    const standin_launch *launches;
    const size_t count = standin_launches(&launches);
    const wide windows = size_of(&desc->u.core).windows;
    for (size_t i = 0; i < count; i++) {
        /* that kernels number in 32 bits */
        if (launches[i].global / launches[i].local > UINT32_MAX)
            return "more work-groups than kernels can number";
        if (!text_starts(launches[i].kernel, "forward_") &&
            !text_starts(launches[i].kernel, "backward_"))
            continue;
        const char *fault = take(all, &kernels, windows, &launches[i]);
        if (fault)
            return fault;
    }
    for (size_t i = 0; i < kernels && !is_cut; i++)
        if (all[i].next != all[i].end)
            return "windows that no launch computes";
    return NULL;
}
