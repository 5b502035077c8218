/* SPDX-License-Identifier: Apache-2.0
 * Worlds of the stand-in, and the steps that can be made in them. */
#define _POSIX_C_SOURCE 200809L
#include "world.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kit/cases.h"
#include "kit/devices.h"

/* ---- The cache's folder ---- */

static char cache_folder[1024];

/* Removes what is in the folder, or only counts. */
static unsigned visit_files(bool removes)
{
    DIR *folder = opendir(cache_folder);
    const struct dirent *item;
    unsigned count = 0;
    while (folder && (item = readdir(folder)) != NULL) {
        char path[2048];
        if (!strstr(item->d_name, ".winattn"))
            continue;
        snprintf(path, sizeof path, "%s/%s", cache_folder, item->d_name);
        if (removes)
            remove(path);
        count++;
    }
    if (folder)
        closedir(folder);
    return count;
}

unsigned world_files(void) { return visit_files(false); }

void world_set_folder(const char *folder)
{
    snprintf(cache_folder, sizeof cache_folder, "%s", folder);
}

/* ---- Worlds ---- */

static bool refuses(void *data, const char *options)
{
    return strstr(options, data) != NULL;
}

/* An index is one of zeros. */
static winattn_desc desc_of(const scenario *is)
{
    static const cl_int index[64 * 64];
    winattn_desc desc = case_desc_of(is->problem, is->passes);
    if (desc.table.entries)
        desc.table.index = index;
    return desc;
}

void world_open(world *w, const scenario *is)
{
    standin_reset();
    w->is = is;
    w->desc = desc_of(is);
    if (is->refused) {
        standin_drivers.refuses = refuses;
        standin_drivers.data = (void *)(size_t)is->refused;
    }
    winattn_set_cache_dir(is->has_cache ? cache_folder : "");
    if (!is->is_warm)
        visit_files(true);
    w->id = standin_device(made_up_device(is->device));
    w->context = standin_context(1, &w->id);
    w->queue = standin_queue(w->context, w->id, is->out_of_order);
    w->memory = standin_buffer(w->context, CL_MEM_READ_WRITE, (size_t)1 << 40);
    w->plan = NULL;
    w->programs = NULL;
}

void world_close(world *w)
{
    winattn_plan_destroy(w->plan);
    winattn_programs_destroy(w->programs);
    clReleaseMemObject(w->memory);
    clReleaseCommandQueue(w->queue);
    clReleaseContext(w->context);
}

size_t world_launches(const world *w)
{
    const standin_launch *all;
    const size_t count = standin_launches(&all);
    size_t own = 0;
    for (size_t i = 0; i < count; i++)
        own += all[i].queue == w->queue;
    return own;
}

/* ---- Steps ---- */

/* Where programs come from follows from what the cache has. */
static void drop_origin(char *text)
{
    char *line = strstr(text, "program: ");
    if (line)
        *line = 0;
}

winattn_status describe_plan(world *w)
{
    const winattn_status status =
        winattn_plan_describe(w->plan, sizeof w->outcome, w->outcome, NULL);
    if (status == WINATTN_SUCCESS && w->is->has_cache && !w->is->is_warm)
        drop_origin(w->outcome);
    return status;
}

static winattn_status make_plan(world *w, cl_uint more_channels)
{
    winattn_desc desc = w->desc;
    winattn_plan *plan = (void *)w;
    desc.head_dim += more_channels;
    const winattn_status status =
        winattn_plan_create(w->context, w->id, &desc, &plan);
    if ((status == WINATTN_SUCCESS) != (plan != NULL) ||
        (status == WINATTN_SUCCESS && winattn_last_reason()[0]))
        return WINATTN_INVALID_ARGUMENT; /* nobody expects that here */
    if (status != WINATTN_SUCCESS)
        return status;
    winattn_plan_destroy(w->plan);
    w->plan = plan;
    describe_plan(w);
    return status;
}

winattn_status create_plan(world *w) { return make_plan(w, 0); }

winattn_status create_other_plan(world *w) { return make_plan(w, 8); }

winattn_status create_programs(world *w)
{
    winattn_programs *programs = (void *)w;
    const winattn_status status =
        winattn_programs_create(w->context, w->id, &programs);
    if ((status == WINATTN_SUCCESS) != (programs != NULL))
        return WINATTN_INVALID_ARGUMENT;
    snprintf(w->outcome, sizeof w->outcome, "programs");
    if (status != WINATTN_SUCCESS)
        return status;
    winattn_programs_destroy(w->programs);
    w->programs = programs;
    return status;
}

winattn_status import_blob(world *w)
{
    snprintf(w->outcome, sizeof w->outcome, "imported");
    return winattn_programs_import(w->programs, w->blob_size, w->blob);
}

winattn_status export_blob(world *w)
{
    size_t needed = 0, written = 0;
    winattn_status status =
        winattn_programs_export(w->programs, 0, NULL, &needed);
    if (status != WINATTN_SUCCESS)
        return status;
    status =
        winattn_programs_export(w->programs, MOST_BLOB, w->blob, &written);
    w->blob_size = written;
    unsigned long sum = 0;
    for (size_t i = 0; status == WINATTN_SUCCESS && i < written; i++)
        sum = sum * 31 + w->blob[i];
    snprintf(w->outcome, sizeof w->outcome, "%zu bytes, %zu, %lx", needed,
             written, sum);
    return status;
}

winattn_status load_rows(world *w)
{
    snprintf(w->outcome, sizeof w->outcome, "loaded");
    return winattn_load_tuning(
        "local-forward NVIDIA 80 any any any 49 49 32 "
        "49:49:64:1:49:32:7:7:7:1\n"
        "matrix-forward NVIDIA 90 any half any 49 49 32 49:49:4:2:2:64:1\n"
        "local-forward NVIDIA 80 any any any 49 49 32 "
        "49:49:64:1:49:32:7:7:7:2\n");
}

winattn_status forget_rows(world *w)
{
    snprintf(w->outcome, sizeof w->outcome, "forgotten");
    return winattn_load_tuning(NULL);
}

winattn_status set_folder(world *w)
{
    snprintf(w->outcome, sizeof w->outcome, "set");
    return winattn_set_cache_dir(w->is->has_cache ? cache_folder : "");
}

winattn_status workspace_size(world *w)
{
    size_t size = 0;
    const winattn_status status = winattn_plan_workspace_size(w->plan, &size);
    snprintf(w->outcome, sizeof w->outcome, "%zu bytes", size);
    return status;
}

/* ---- Calls ---- */

/* It draws what calls leave out. */
#define CALL_SEED 1

/* Kernels, sizes and arguments that are no buffers. */
static unsigned long sum_of_launches(void)
{
    const standin_launch *all;
    const size_t count = standin_launches(&all);
    unsigned long sum = 5381;
    for (size_t i = 0; i < count; i++) {
        const standin_launch *l = &all[i];
        for (const char *at = l->kernel; *at; at++)
            sum = sum * 31 + (unsigned char)*at;
        sum = (sum * 31 + l->global) * 31 + l->local;
        for (cl_uint k = 0; k < l->argument_count; k++)
            for (size_t b = 0;
                 l->arguments[k].bytes && b < l->arguments[k].size; b++)
                sum = sum * 31 + l->arguments[k].bytes[b];
    }
    return sum;
}

winattn_status world_call(world *w, const level_desc *desc, const void *plan,
                          const call_kind *kind)
{
    random_state r = random_seeded(CALL_SEED);
    level_call call;
    cl_event event = NULL;
    memset(&call, 0, sizeof call);
    if (kind->draw_small)
        kind->draw_small(&r, &call);
    level_give_tensors(&r, desc, kind, w->memory, &call);
    standin_forget();
    const winattn_status status =
        kind->enqueue(plan, w->queue, call.bytes, 0, NULL, &event);
    if ((status == WINATTN_SUCCESS) != (event != NULL))
        return WINATTN_INVALID_ARGUMENT;
    if (event)
        clReleaseEvent(event);
    snprintf(w->outcome, sizeof w->outcome, "%zu launches, %lx",
             world_launches(w), sum_of_launches());
    return status;
}
