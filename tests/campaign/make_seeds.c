/* SPDX-License-Identifier: Apache-2.0
 * First inputs for the drivers for libFuzzer: small ones that are right.
 *
 *   make_seeds FOLDER */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "kit/cases.h"
#include "kit/devices.h"
#include "kit/workloads.h"
#include "plan/tuning.h"
#include "standin.h"

static const char *folder;

/* Into FOLDER/driver/number. */
static void write_seed(const char *driver, int number, const void *bytes,
                       size_t size)
{
    char path[2048];
    snprintf(path, sizeof path, "%s/%s", folder, driver);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s/%d", folder, driver, number);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}

static void write_text(const char *driver, int number, const char *text)
{
    write_seed(driver, number, text, strlen(text));
}

static void make_rows(void)
{
    static const char *const more[] = {
        "# a comment\n\nlocal-forward \"H200\" any any any any any 32 "
        "49:49:64:1:49:32:7:7:7:1\n",
        "local-backward AMD 0 dot half bias 49 49 32 "
        "49:49:64:32:4:4:2:1:1:2\n",
        "matrix-backward NVIDIA 80 any any none any any 32 "
        "16:4:2:2:64:1:1:16:16:16:4:2:2:64:0\n"};
    for (int i = 0; i < WA_BUILT_IN_ROWS; i++)
        write_text("text", i, wa_built_in_rows[i]);
    for (int i = 0; i < 3; i++)
        write_text("text", 100 + i, more[i]);
}

/* With the byte that says what the driver puts right. */
static void make_blobs(void)
{
    static unsigned char blob[65536];
    const cl_device_id id = standin_device(made_up_device("PoCL"));
    const cl_context context = standin_context(1, &id);
    const winattn_desc desc = {.struct_size = sizeof desc,
                               .windows = 5,
                               .heads = 2,
                               .queries = 49,
                               .keys = 49,
                               .head_dim = 32,
                               .passes = 3};
    winattn_programs *programs;
    winattn_plan *plan;
    size_t size;
    if (winattn_programs_create(context, id, &programs) ||
        winattn_plan_create(context, id, &desc, &plan) ||
        winattn_programs_export(programs, sizeof blob - 1, blob, &size)) {
        fprintf(stderr, "%s\n", winattn_last_reason());
        exit(1);
    }
    for (int i = 0; i < 3; i++) {
        blob[size] = (unsigned char)i;
        write_seed("blob", i, blob, size + 1);
    }
    winattn_plan_destroy(plan);
    winattn_programs_destroy(programs);
    clReleaseContext(context);
}

static void make_cases(void)
{
    char text[1024];
    for (size_t i = 0; i < workload_count; i += 4)
        write_text("cases", (int)i, workload_rows[i].text);
    for (int seed = 1; seed <= 20; seed++) {
        const test_case c = seed % 2 ? case_random_grid(seed, 0, seed / 2 % 2)
                                     : case_random_backward(seed, 0);
        case_print(&c, text, sizeof text);
        write_text("cases", 100 + seed, text);
    }
    write_text("cases", 200,
               "# a comment\nswinir-720p\n\nwindows=4 variant=cosine\n");
}

int main(int count, char **arguments)
{
    if (count != 2)
        return 2;
    folder = arguments[1];
    setenv("WINATTN_CACHE", "0", 1);
    mkdir(folder, 0700);
    make_rows();
    make_blobs();
    make_cases();
    standin_reset();
    return 0;
}
