/* SPDX-License-Identifier: Apache-2.0
 * Parent and child of the measurement. */
#include "compare/startup.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "command/options.h"
#include "measure/measure.h"
#include "measure/process.h"
#include "measure/workload.h"

#define COMMAND_SIZE 4096
#define WARM_STARTS 3

/* ---- Child ---- */

static cl_mem zeros(const bench_device *device, double count, size_t size)
{
    cl_int error;
    const cl_uint zero = 0;
    const size_t bytes = ((size_t)count * size + 3) / 4 * 4;
    cl_mem mem = clCreateBuffer(device->context, CL_MEM_READ_WRITE, bytes,
                                NULL, &error);
    if (error != CL_SUCCESS ||
        clEnqueueFillBuffer(device->queue, mem, &zero, sizeof zero, 0, bytes,
                            0, NULL, NULL) != CL_SUCCESS)
        return NULL;
    return mem;
}

bool startup_first_result(cl_device_id id, const test_case *whole)
{
    bench_device device;
    winattn_plan *plan;
    winattn_forward f;
    unsigned char first[2];
    test_case c = *whole;
    /* few windows compile the same kernel as many */
    if (c.grid) {
        c.batch = 1;
        case_derive(&c);
    } else {
        c.windows = c.windows > 16 ? 16 : c.windows;
    }
    if (c.mask != TERM_NONE && c.mask_windows > c.windows)
        c.mask_windows = c.windows;
    if (!bench_device_open(id, &device))
        return false;
    const winattn_desc desc = workload_desc(&c);
    if (winattn_plan_create(device.context, id, &desc, &plan) !=
        WINATTN_SUCCESS) {
        fprintf(stderr, "%s\n", winattn_last_reason());
        return false;
    }
    const size_t size = c.dtype == WINATTN_FP32 ? 4 : 2;
    /* with what padding adds to a grid */
    const double queries = (double)c.windows * c.heads * c.queries * c.dim;
    const double keys = (double)c.windows * c.kv_heads * c.keys * c.dim;
    const double plane = (double)c.queries * c.keys;
    const double bias = case_has_table(&c) ? case_table_entries(&c) : plane;
    const bool packs = workload_place_of(&c, T_K).first > 0;
    size_t workspace = 0;
    memset(&f, 0, sizeof f);
    f.struct_size = sizeof f;
    f.q.buffer = zeros(&device, queries + (packs ? 2 * keys : 0), size);
    f.k.buffer = packs ? f.q.buffer : zeros(&device, keys, size);
    f.v.buffer = packs ? f.q.buffer : zeros(&device, keys, size);
    f.k.offset = workload_place_of(&c, T_K).first * size;
    f.v.offset = workload_place_of(&c, T_V).first * size;
    f.o.buffer = zeros(&device, queries, size);
    if (c.bias != TERM_NONE)
        f.bias.buffer = zeros(&device, c.heads * bias, 4);
    if (c.mask == TERM_REGIONS) {
        f.query_regions.buffer =
            zeros(&device, (double)c.mask_windows * c.queries, 1);
        f.key_regions.buffer =
            zeros(&device, (double)c.mask_windows * c.keys, 1);
    } else if (case_mask_is_array(&c)) {
        f.mask.buffer = zeros(&device, c.mask_windows * plane, 4);
    }
    winattn_plan_workspace_size(plan, &workspace);
    if (workspace > 0)
        f.workspace.buffer = zeros(&device, (double)workspace, 1);
    /* the system frees what this process holds */
    return winattn_enqueue_forward(plan, device.queue, &f, 0, NULL, NULL) ==
               WINATTN_SUCCESS &&
           clEnqueueReadBuffer(device.queue, f.o.buffer, CL_TRUE, 0,
                               sizeof first, first, 0, NULL,
                               NULL) == CL_SUCCESS;
}

/* ---- Parent ---- */

/* Sets what says where winattn and drivers keep what they compiled; none of
 * them minds the others' files. */
static bool add_folder(char *command, const char *folder)
{
    static const char *const variables[] = {
        "WINATTN_CACHE_DIR",     "XDG_CACHE_HOME",      "POCL_CACHE_DIR",
        "MESA_SHADER_CACHE_DIR", "MESA_GLSL_CACHE_DIR", "CUDA_CACHE_PATH",
        "AMD_COMGR_CACHE_DIR",   "NEO_CACHE_DIR",       "cl_cache_dir",
    };
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        char word[640];
        snprintf(word, sizeof word, "%s=%s%s", variables[i], folder,
                 i == 0 ? "/winattn" : "");
        if (!process_append_word(command, COMMAND_SIZE, word))
            return false;
    }
    return true;
}

static bool time_start(const char *command, double *seconds)
{
    char line[64];
    return process_first_line(command, line, sizeof line, seconds) &&
           strcmp(line, STARTUP_LINE) == 0;
}

bool startup_measure(const char *program, const char *device_name,
                     const test_case *c, double most, double *cold,
                     double *warm)
{
    char command[COMMAND_SIZE] = "env", folder[512], text[256];
    char seconds[32];
    double again, total = 0;
    if (!process_make_folder(folder, sizeof folder))
        return false;
    case_print(c, text, sizeof text);
    snprintf(seconds, sizeof seconds, "%.0f", ceil(most));
    const char *words[] = {program,     "--first-result",
                           "--device",  device_name,
                           "--seconds", seconds,
                           "--dtype",   option_dtypes[c->dtype],
                           "--tier",    option_tiers[c->tier],
                           "--case",    text};
    bool good = add_folder(command, folder);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        good = good && process_append_word(command, sizeof command, words[i]);
    good = good && time_start(command, cold);
    /* the fastest: what slows a start is other work of the machine */
    *warm = 0;
    for (int i = 0; good && i < WARM_STARTS && total < most / 2; i++) {
        good = time_start(command, &again);
        *warm = i == 0 || again < *warm ? again : *warm;
        total += again;
    }
    process_remove_folder(folder);
    return good;
}
