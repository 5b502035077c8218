/* SPDX-License-Identifier: Apache-2.0 */
#include "ptx_test.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ptx.h"

#define HEAD                                                                  \
    ".version 8.5\n.target sm_90a\n.address_size 64\n"                        \
    ".entry k(.param .u64 .ptr .global .align 4 k_0, .param .u32 k_1)\n"      \
    "{\n.reg .b32 %r<40>;\n.reg .f32 %f<40>;\n.reg .b64 %rd<9>;\n"            \
    ".reg .pred %p<9>;\n.reg .b16 %h<9>;\n.local .align 4 .b8 "               \
    "own[16];\n.shared .align 1024 .b8 memory[16384];\n"                      \
    "ld.param.u64 %rd0, [k_0];\nld.param.u32 %r0, [k_1];\n"                   \
    "mov.u32 %r1, %tid.x;\nmul.wide.u32 %rd1, %r1, 4;\n"                      \
    "add.s64 %rd2, %rd0, %rd1;\n"                                             \
    "mov.u64 %rd3, memory;\ncvt.u32.u64 %r2, %rd3;\n"                         \
    "shl.b32 %r3, %r1, 2;\nadd.s32 %r4, %r2, %r3;\n"
#define TAIL "ret;\n}\n"

const char *run_waves(const char *body, size_t groups, size_t items,
                      size_t lanes, uint32_t number, uint32_t *words,
                      unsigned seed)
{
    static char reason[512];
    static char text[1 << 16];
    snprintf(text, sizeof text, "%s%s%s", HEAD, body, TAIL);
    reason[0] = 0;
    ptx_module *module = ptx_read(text, reason, sizeof reason);
    if (!module)
        return reason;
    unsigned char parameters[16] = {0};
    assert_int_equal(module->kernels[0].parameter_bytes, 12);
    memcpy(parameters, &words, sizeof words);
    memcpy(parameters + 8, &number, sizeof number);
    const ptx_range range = {(unsigned char *)words,
                             MOST_WORDS * sizeof *words};
    const ptx_launch launch = {.parameters = parameters,
                               .groups = groups,
                               .items = items,
                               .wave_lanes = lanes,
                               .ranges = &range,
                               .range_count = 1,
                               .seed = seed};
    if (ptx_run(&module->kernels[0], &launch, reason, sizeof reason))
        reason[0] = 0;
    ptx_free(module);
    return reason;
}

const char *run(const char *body, size_t items, uint32_t number,
                uint32_t *words, unsigned seed)
{
    return run_waves(body, 1, items, 32, number, words, seed);
}

void assert_fails(const char *body, size_t items, const char *why)
{
    static uint32_t words[MOST_WORDS];
    const char *reason = run(body, items, 0, words, 1);
    if (!strstr(reason, why))
        fail_msg("\"%s\" in place of \"%s\"", reason, why);
}
