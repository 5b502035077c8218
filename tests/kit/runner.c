/* SPDX-License-Identifier: Apache-2.0
 * The main of test programs. */
#include "runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"

test_device device;
run_choice chosen = {.part = "all",
                     .pass = PASS_FORWARD,
                     .tier = WINATTN_TIER_AUTO,
                     .extent = "all",
                     .first = 1,
                     .count = 50};

bool part_is(const char *part) { return strcmp(chosen.part, part) == 0; }

bool row_is_chosen(size_t row)
{
    const size_t first = (size_t)chosen.first;
    return !chosen.has_first ||
           (row >= first && row - first < (size_t)chosen.count);
}

/* ---- Device ---- */

bool runner_open(void)
{
    char reason[256];
    if (!device_open(&device, reason)) {
        fprintf(stderr, "%s\n", reason);
        return false;
    }
    printf("device: %s\n", device.name);
    return true;
}

void runner_close(void) { device_close(&device); }

bool device_is_pocl(void)
{
    return strstr(device.name, "Portable Computing Language") != NULL;
}

bool keeps_barriers(void)
{
    static bool said;
    wa_device found;
    assert_int_equal(wa_device_query(device.id, &found), WINATTN_SUCCESS);
    if (found.breaks_barriers && !said)
        printf("the device breaks kernels with barriers in loops\n");
    said = found.breaks_barriers;
    return !found.breaks_barriers;
}

const wa_matrix_unit *device_unit(void)
{
    wa_device found;
    return wa_device_query(device.id, &found) == WINATTN_SUCCESS
               ? found.matrix_unit
               : NULL;
}

bool has_backward(void)
{
    const test_case c = parsed("pass=backward tier=cpu queries=1 dim=1");
    const winattn_desc desc = case_desc(&c);
    winattn_plan *plan;
    const winattn_status made =
        winattn_plan_create(device.context, device.id, &desc, &plan);
    winattn_plan_destroy(plan);
    return made != WINATTN_UNSUPPORTED_DEVICE;
}

bool make_parts(cl_device_id parts[2])
{
    const cl_device_partition_property one_each[] = {
        CL_DEVICE_PARTITION_BY_COUNTS, 1, 1,
        CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0};
    cl_uint most = 0;
    /* rusticl 22.3 lacks the other function itself */
    return clGetDeviceInfo(device.id, CL_DEVICE_PARTITION_MAX_SUB_DEVICES,
                           sizeof most, &most, NULL) == CL_SUCCESS &&
           most >= 2 &&
           clCreateSubDevices(device.id, one_each, 2, parts, NULL) ==
               CL_SUCCESS;
}

/* ---- Cases ---- */

void announce(const char *format, ...)
{
    va_list values;
    if (!getenv("WINATTN_TEST_VERBOSE"))
        return;
    va_start(values, format);
    vprintf(format, values);
    va_end(values);
    fflush(stdout);
}

bool is_excused(const case_result *result)
{
    if (!result->refused || device_is_pocl() ||
        strstr(result->failure, "self-test"))
        return false;
    printf("refused: %s\n", result->failure);
    return true;
}

/* ---- Program ---- */

int runner_run(const test_group *groups, size_t count)
{
    int failures = 0;
    bool found = false;
    for (size_t i = 0; i < count; i++)
        found = found || (groups[i].part && part_is(groups[i].part));
    for (size_t i = 0; i < count; i++)
        if (found ? groups[i].part && part_is(groups[i].part)
                  : !groups[i].part)
            failures += _cmocka_run_group_tests(chosen.part, groups[i].tests,
                                                groups[i].count, NULL, NULL);
    return failures;
}

/* False, and printed why, if the word is none of its kind. */
static bool read_word(run_word kind, const char *text)
{
    switch (kind) {
    case WORD_PART:
        chosen.part = text;
        break;
    case WORD_PASS:
        chosen.pass =
            strcmp(text, "backward") == 0 ? PASS_BACKWARD : PASS_FORWARD;
        break;
    case WORD_TIER:
        chosen.tier = case_tier(text);
        if (chosen.tier < 0)
            fprintf(stderr, "no tier is named %s\n", text);
        return chosen.tier >= 0;
    case WORD_TARGET:
        chosen.matrix_unit = wa_matrix_unit_named(text);
        chosen.has_own_unit = !chosen.matrix_unit;
        return read_word(WORD_TIER, chosen.matrix_unit ? "matrix" : text);
    case WORD_EXTENT:
        chosen.extent = text;
        break;
    case WORD_FIRST:
        chosen.first = atoi(text);
        chosen.has_first = true;
        break;
    case WORD_COUNT:
        chosen.count = atoi(text);
        break;
    case WORD_END:
        break;
    }
    return true;
}

bool runner_read(const run_word *words, int count, char **arguments)
{
    if (!chosen.matrix_unit)
        chosen.matrix_unit = wa_matrix_unit_named("mma");
    for (int i = 0; i + 1 < count && words[i] != WORD_END; i++)
        if (!read_word(words[i], arguments[i + 1]))
            return false;
    return true;
}

int runner_main(const test_program *program, int count, char **arguments)
{
    chosen.part = program->part;
    if (!runner_read(program->words, count, arguments) || !runner_open())
        return 1;
    int result = TEST_SKIPPED;
    const bool lacks_unit =
        chosen.tier == WINATTN_TIER_MATRIX && !device_unit();
    if (chosen.has_own_unit)
        chosen.matrix_unit = device_unit();
    if (lacks_unit)
        printf("skipped: the device has no matrix unit\n");
    else if (chosen.tier != WINATTN_TIER_LOCAL || keeps_barriers())
        result = runner_run(program->groups, program->group_count);
    runner_close();
    return result;
}
