/* SPDX-License-Identifier: Apache-2.0
 * What was asked of the stand-in, and what was wrong with it. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

bool standin_quiet;

/* ---- Wrong ---- */

static struct {
    atomic_ulong count;
    char first[512]; /* written by whoever made the count 1 */
} mistakes;

void wrong(const char *format, ...)
{
    char text[sizeof mistakes.first];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    if (atomic_fetch_add(&mistakes.count, 1) == 0)
        memcpy(mistakes.first, text, sizeof text);
    if (!standin_quiet)
        fprintf(stderr, "stand-in: %s\n", text);
}

const char *standin_wrong(unsigned long *count)
{
    const unsigned long all = atomic_load(&mistakes.count);
    if (count)
        *count = all;
    return all ? mistakes.first : NULL;
}

/* ---- Builds and launches ---- */

shared_text *text_new(size_t size)
{
    shared_text *made = own_calloc(1, sizeof *made + size);
    atomic_init(&made->users, 1);
    return made;
}

void text_release(shared_text *text)
{
    if (text &&
        atomic_fetch_sub_explicit(&text->users, 1, memory_order_acq_rel) == 1)
        free(text);
}

static _Thread_local struct {
    standin_build *builds;
    shared_text **sources; /* of the builds */
    standin_launch *launches;
    size_t build_count, launch_count;
} done;

void record_build(cl_program program, cl_int result)
{
    shared_text *source = program->source;
    const kernel_list *kernels = &program->kernels;
    const standin_build build = {
        .source = source ? source->text : NULL,
        .options = program->options,
        .kernel = kernels->count ? kernels->all[0].name : NULL,
        .result = result};
    if (source)
        atomic_fetch_add_explicit(&source->users, 1, memory_order_relaxed);
    done.builds = own_grow(done.builds, done.build_count, sizeof build);
    done.sources =
        own_grow(done.sources, done.build_count, sizeof *done.sources);
    done.sources[done.build_count] = source;
    done.builds[done.build_count++] = build;
}

void record_launch(const standin_launch *launch)
{
    done.launches = own_grow(done.launches, done.launch_count, sizeof *launch);
    standin_launch *to = &done.launches[done.launch_count++];
    *to = *launch;
    for (cl_uint i = 0; i < to->argument_count; i++)
        if (to->arguments[i].bytes)
            to->arguments[i].bytes =
                own_copy(to->arguments[i].bytes, to->arguments[i].size);
}

size_t standin_builds(const standin_build **builds)
{
    if (builds)
        *builds = done.builds;
    return done.build_count;
}

size_t standin_launches(const standin_launch **launches)
{
    if (launches)
        *launches = done.launches;
    return done.launch_count;
}

void standin_forget(void)
{
    for (size_t i = 0; i < done.launch_count; i++)
        for (cl_uint a = 0; a < done.launches[i].argument_count; a++)
            free((void *)(size_t)done.launches[i].arguments[a].bytes);
    for (size_t i = 0; i < done.build_count; i++)
        text_release(done.sources[i]);
    free(done.launches);
    free(done.builds);
    free(done.sources);
    programs_forget();
    memset(&done, 0, sizeof done);
}

void standin_reset(void)
{
    static const standin_driver ordinary;
    standin_fail_nothing();
    standin_forget();
    compiled_forget();
    objects_forget();
    devices_forget();
    standin_drivers = ordinary;
    atomic_store(&mistakes.count, 0);
}
