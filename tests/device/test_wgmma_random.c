/* SPDX-License-Identifier: Apache-2.0
 * Random cases of the sizes that kernels with wgmma compute, on a device that
 * has them, be it emulated; elsewhere skipped. Most must be computed by one
 * of these, and of many cases some by each; none is left to others because a
 * compiler let products wait for each other, or because tensor maps failed.
 *
 *   test_wgmma_random forward|backward [FIRST [COUNT]] */
#include <string.h>

#include "kit/fixture.h"

static const char *const kernels[][4] = {
    {"sliding_forward_wgmma", "window_forward_wgmma"},
    {"sliding_rows_wgmma", "sliding_keys_wgmma", "window_rows_wgmma",
     "window_gradients_wgmma"}};
#define KERNELS (sizeof *kernels / sizeof **kernels)
#define MANY 30 /* cases */

static void random_cases(void **state)
{
    (void)state;
    int taken = 0;
    bool seen[KERNELS] = {false};
    for (int i = 0; i < chosen.count; i++) {
        const test_case c = case_random_wgmma(chosen.first + i, chosen.pass);
        fixture f = set_up_case(&c);
        char text[4096];
        plan_text(f.plan, text);
        tear_down(&f);
        if (!strstr(text, "wgmma")) { /* nor why not */
            print_message("this device has no kernels with wgmma\n");
            skip();
        }
        if (strstr(text, "the compiler says") ||
            strstr(text, "tensor maps not used"))
            fail_msg("case %d: %s", chosen.first + i, text);
        if (strstr(text, "_wgmma"))
            taken++;
        else
            announce("no wgmma: %s", text);
        for (size_t k = 0; k < KERNELS; k++)
            seen[k] |= kernels[chosen.pass][k] &&
                       strstr(text, kernels[chosen.pass][k]);
        run_case(&c, 0);
    }
    if (taken < chosen.count * 9 / 10)
        fail_msg("only %d of %d cases by wgmma", taken, chosen.count);
    for (size_t k = 0; k < (chosen.count < MANY ? 0 : KERNELS); k++)
        if (kernels[chosen.pass][k] && !seen[k])
            fail_msg("no case by %s", kernels[chosen.pass][k]);
}

int main(int count, char **arguments)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(random_cases)};
    static const test_group groups[] = {TEST_GROUP(NULL, tests)};
    const test_program program = {.words = {WORD_PASS, WORD_FIRST, WORD_COUNT},
                                  TEST_GROUPS(groups)};
    return runner_main(&program, count, arguments);
}
