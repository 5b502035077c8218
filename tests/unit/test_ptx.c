/* SPDX-License-Identifier: Apache-2.0
 * PTX whose comments become instructions: what is written, and that anything
 * else is refused, with a reason. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "kit/asserts.h"
#include "program/ptx.h"

#define HEAD ".version 9.0\n"
#define TARGET ".target sm_90, texmode_independent\n"
#define ENTRY "\n.entry attend(\n\t.param .u64 attend_param_0\n)\n"
#define SIZE ".reqntid 640, 1, 1\n"
#define BODY                                                                  \
    "{\n\t// begin inline asm\n\t//@! .maxnreg 96\n\t// end inline asm\n"     \
    "\t// begin inline asm\n\t//@ wgmma.fence.sync.aligned;\n"                \
    "\t// end inline asm\n\tret;\n}\n"

/* A copy of exactly its size, so that tools see who reads past its end. */
static winattn_status rewrite_bytes(const void *text, size_t size,
                                    unsigned char **result, size_t *written)
{
    unsigned char *copy = malloc(size ? size : 1);
    assert_non_null(copy);
    memcpy(copy, text, size);
    const winattn_status status =
        wa_ptx_rewrite(copy, size, NULL, result, written);
    free(copy);
    return status;
}

static void assert_refused(const char *text, const char *culprit)
{
    unsigned char *result;
    size_t size;
    assert_status(rewrite_bytes(text, strlen(text), &result, &size),
                  WINATTN_UNSUPPORTED_DEVICE, culprit);
    assert_null(result);
    assert_int_equal(size, 0);
}

static void assert_rewritten(const char *text, size_t size, const char *wanted)
{
    unsigned char *result;
    size_t written;
    assert_int_equal(rewrite_bytes(text, size, &result, &written),
                     WINATTN_SUCCESS);
    assert_string_equal((const char *)result, wanted);
    assert_int_equal(written, strlen(wanted));
    free(result);
}

static void marks_become_instructions(void **state)
{
    static const char text[] = HEAD TARGET ENTRY SIZE BODY;
    static const char wanted[] =
        HEAD ".target sm_90a, texmode_independent\n" ENTRY SIZE ".maxnreg 96\n"
             "{\n\t// begin inline asm\n\t// end inline asm\n"
             "\t// begin inline asm\nwgmma.fence.sync.aligned;\n"
             "\t// end inline asm\n\tret;\n}\n";
    (void)state;
    assert_rewritten(text, strlen(text), wanted);
    /* drivers count the 0 at the end of a text, or do not */
    assert_rewritten(text, sizeof text, wanted);
    /* a last line without an end gets one */
    assert_rewritten(text, strlen(text) - 1, wanted);
}

static void builds_are_named_in_a_last_comment(void **state)
{
    static const char text[] = HEAD TARGET ENTRY SIZE BODY;
    static const char ending[] = "}\n// build 0123abc\n";
    unsigned char *plain, *named;
    size_t plain_size, size;
    (void)state;
    assert_int_equal(wa_ptx_rewrite((const unsigned char *)text, sizeof text,
                                    NULL, &plain, &plain_size),
                     WINATTN_SUCCESS);
    assert_int_equal(wa_ptx_rewrite((const unsigned char *)text, sizeof text,
                                    "0123abc", &named, &size),
                     WINATTN_SUCCESS);
    assert_int_equal(size, plain_size + strlen(ending) - 2);
    assert_int_equal(strlen((const char *)named), size);
    assert_memory_equal(named, plain, plain_size);
    assert_string_equal((const char *)named + plain_size - 2, ending);
    free(plain);
    free(named);
}

static void only_lines_that_start_with_marks_change(void **state)
{
    static const char text[] = HEAD "//  .target sm_80\n" TARGET ENTRY SIZE
                                    "{\n\tret; //@ kept\n\t// @kept\n"
                                    "//@ mov.u32 %r1, 0; //@ kept\n}\n";
    static const char wanted[] =
        HEAD "//  .target sm_80\n"
             ".target sm_90a, texmode_independent\n" ENTRY SIZE
             "{\n\tret; //@ kept\n\t// @kept\n"
             "mov.u32 %r1, 0; //@ kept\n}\n";
    (void)state;
    assert_rewritten(text, strlen(text), wanted);
}

static void what_is_no_such_ptx_is_refused(void **state)
{
    unsigned char *result;
    size_t size;
    (void)state;
    assert_refused("", "no PTX");
    assert_refused("\n\n\n", "no PTX");
    assert_refused(HEAD ENTRY SIZE BODY, "no PTX");
    assert_refused(TARGET ENTRY SIZE BODY, "no PTX");
    assert_refused(HEAD HEAD TARGET ENTRY SIZE BODY, "no PTX");
    assert_refused(HEAD TARGET TARGET ENTRY SIZE BODY, "no PTX");
    assert_refused(HEAD ".target sm_100\n" ENTRY SIZE BODY, "not sm_90");
    assert_refused(HEAD ".target sm_90a\n" ENTRY SIZE BODY, "not sm_90");
    assert_refused(HEAD ".target sm_9\n" ENTRY SIZE BODY, "not sm_90");
    assert_refused(HEAD TARGET SIZE BODY, "one kernel");
    assert_refused(HEAD TARGET ENTRY ENTRY SIZE BODY, "one kernel");
    assert_refused(HEAD TARGET ENTRY SIZE SIZE BODY, "size of its");
    assert_refused(HEAD TARGET ENTRY "{\n//@ ret;\n}\n", "size of its");
    assert_refused(HEAD TARGET ENTRY SIZE "{\n\tret;\n}\n", "lost its marks");
    assert_refused(HEAD TARGET ENTRY SIZE "{\n//@ ret;\n//@ret;\n}\n",
                   "not known");
    assert_refused(HEAD TARGET ENTRY SIZE "{\n//@ ret;\n//@", "not known");
    /* a program for the machine */
    assert_int_equal(rewrite_bytes("\177ELF\0\1\2", 7, &result, &size),
                     WINATTN_UNSUPPORTED_DEVICE);
    assert_non_null(strstr(winattn_last_reason(), "no text"));
}

static void directives_are_a_word_and_a_number(void **state)
{
    static const char *const wrong[] = {
        "",          ".",           ".maxnreg",      ".maxnreg ",
        "maxnreg 9", ".maxnreg 9 ", ".maxnreg 9; x", ".maxnreg  9",
        ". 9",       ".max//@ 9",   ".maxnreg 0x9",  ".maxnreg 9\r"};
    char text[400];
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(text, sizeof text,
                 HEAD TARGET ENTRY SIZE "{\n//@! %s\n//@ ret;\n}\n", wrong[i]);
        assert_refused(text, "is none");
    }
    assert_refused(HEAD TARGET "//@! .maxnreg 9\n" ENTRY SIZE "//@ ret;\n",
                   "in front of");
    assert_refused(HEAD TARGET ENTRY SIZE
                   "//@! .maxnreg 1\n//@! .maxnreg 2\n//@! .maxnreg 3\n"
                   "//@! .maxnreg 4\n//@! .maxnreg 5\n//@ ret;\n",
                   "too many");
}

/* Every part of a text, and texts with bytes changed, are read within their
 * bounds. */
static void damaged_texts_end(void **state)
{
    static const char text[] = HEAD TARGET ENTRY SIZE BODY;
    static const char bytes[] = "\n\0/@! .a9\t\377";
    unsigned char *result;
    size_t written;
    (void)state;
    for (size_t size = 0; size < sizeof text; size++)
        if (rewrite_bytes(text, size, &result, &written) == WINATTN_SUCCESS)
            free(result);
    for (size_t i = 0; i < sizeof text - 1; i++)
        for (size_t j = 0; j < sizeof bytes; j++) {
            char damaged[sizeof text];
            memcpy(damaged, text, sizeof text);
            damaged[i] = bytes[j];
            if (rewrite_bytes(damaged, sizeof text - 1, &result, &written) !=
                WINATTN_SUCCESS)
                continue;
            assert_int_equal(strlen((const char *)result), written);
            assert_null(strstr((const char *)result, "\n\t//@!"));
            free(result);
        }
}

static void kernels_say_it_by_their_names(void **state)
{
    (void)state;
    assert_true(wa_ptx_is_marked("sliding_forward_wgmma"));
    assert_false(wa_ptx_is_marked("forward_local"));
    assert_false(wa_ptx_is_marked("wgmma_forward"));
    assert_false(wa_ptx_is_marked(""));
    assert_false(wa_ptx_is_marked("mma"));
}

static void logs_with_complaints_are_failures(void **state)
{
    (void)state;
    assert_int_equal(wa_ptx_check_log(""), WINATTN_SUCCESS);
    assert_int_equal(
        wa_ptx_check_log("ptxas info    : Used 96 registers, used 1 barriers\n"
                         "ptxas info    : (C7600) something else\n"),
        WINATTN_SUCCESS);
    assert_status(
        wa_ptx_check_log("ptxas info    : Used 96 registers\n"
                         "ptxas info    : (C7510) Potential Performance "
                         "Loss: wgmma.mma_async instructions wait\nmore"),
        WINATTN_UNSUPPORTED_DEVICE, "(C7510) Potential Performance Loss");
    assert_null(strstr(winattn_last_reason(), "more"));
    assert_status(wa_ptx_check_log("(C7508) 'setmaxnreg' ignored"),
                  WINATTN_UNSUPPORTED_DEVICE, "setmaxnreg");
    assert_status(wa_ptx_check_log("wgmma instructions are serialized"),
                  WINATTN_UNSUPPORTED_DEVICE, "serialized");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marks_become_instructions),
        cmocka_unit_test(builds_are_named_in_a_last_comment),
        cmocka_unit_test(only_lines_that_start_with_marks_change),
        cmocka_unit_test(what_is_no_such_ptx_is_refused),
        cmocka_unit_test(directives_are_a_word_and_a_number),
        cmocka_unit_test(damaged_texts_end),
        cmocka_unit_test(kernels_say_it_by_their_names),
        cmocka_unit_test(logs_with_complaints_are_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
