/* SPDX-License-Identifier: Apache-2.0
 * That the interpreter notices what hardware forgives only sometimes: each
 * body must fail, and its mended twin pass. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ptx_test.h"

/* The neighbour's word, of the same wave; the other wave's. */
#define PUT "st.shared.u32 [%r4], %r1;\n"
#define NEIGHBOUR "xor.b32 %r10, %r4, 4;\n"
#define OTHER_WAVE "xor.b32 %r10, %r4, 128;\n"
#define TAKE "ld.shared.u32 %r11, [%r10];\nst.global.u32 [%rd2], %r11;\n"
#define LOOK "ld.shared.u32 %r11, [%r10];\n"
#define SYNC_WAVE "bar.warp.sync 0xffffffff;\n"
#define SYNC "bar.sync 0;\n"
#define SHUFFLE "shfl.sync.bfly.b32 %r12, %r1, 1, 31, 0xffffffff;\n"
/* A barrier in local memory for so many, behind %r13. */
#define MAKE(count)                                                           \
    "add.s32 %r13, %r2, 8192;\nsetp.eq.u32 %p1, %r1, 0;\n"                    \
    "@%p1 mbarrier.init.shared::cta.b64 [%r13], " count ";\n"
#define ARRIVE "mbarrier.arrive.shared::cta.b64 _, [%r13];\n"
#define AWAIT                                                                 \
    "again:\nmbarrier.try_wait.parity.shared::cta.b64 %p2, [%r13], 0;\n"      \
    "@!%p2 bra again;\n"
#define IF_FIRST "and.b32 %r14, %r1, 31;\nsetp.eq.u32 %p3, %r14, 0;\n@%p3 "
#define COPY                                                                  \
    "shl.b32 %r15, %r1, 4;\nadd.s32 %r16, %r2, %r15;\n"                       \
    "cvt.u64.u32 %rd5, %r15;\nadd.s64 %rd6, %rd0, %rd5;\n"                    \
    "cp.async.cg.shared.global [%r16], [%rd6], 16;\n"
#define TAKE_COPY                                                             \
    "xor.b32 %r10, %r16, 16;\nld.shared.u32 %r11, [%r10];\n"                  \
    "st.global.u32 [%rd2+8192], %r11;\n"

/* Two waves of fewer than 32 lanes, of which the second has met by itself
 * before: when both have met, the first reads what the second writes later. */
#define NARROW(lanes, bytes, sync)                                            \
    "setp.lt.u32 %p4, %r1, " lanes ";\n@%p4 bra met;\n" SYNC_WAVE SYNC_WAVE   \
    "met:\n" PUT SYNC "@!%p4 bra late;\nxor.b32 %r10, %r4, " bytes ";\n" LOOK \
    "late:\nmov.u32 %r20, 2000;\nagain:\nsub.s32 %r20, %r20, 1;\n"            \
    "setp.ne.u32 %p5, %r20, 0;\n@%p5 bra again;\n" sync                       \
    "@!%p4 st.shared.u32 [%r4], %r1;\n"

static const struct {
    const char *name;
    size_t items, groups, lanes; /* of a wave */
    const char *bad, *why, *good;
} twins[] = {
    /* ---- Local memory ---- */
    {"another lane's word is read", 32, 1, 32, PUT NEIGHBOUR TAKE,
     "nothing orders these", PUT SYNC_WAVE NEIGHBOUR TAKE},
    {"a shuffle does not show words", 32, 1, 32, PUT SHUFFLE NEIGHBOUR TAKE,
     "nothing orders these", PUT SHUFFLE SYNC_WAVE NEIGHBOUR TAKE},
    {"another wave's word is read", 64, 1, 32, PUT SYNC_WAVE OTHER_WAVE LOOK,
     "nothing orders these", PUT SYNC OTHER_WAVE LOOK},
    {"a word that another lane reads is written", 32, 1, 32,
     PUT SYNC_WAVE NEIGHBOUR TAKE PUT, "may still read",
     PUT SYNC_WAVE NEIGHBOUR TAKE SYNC_WAVE PUT},
    {"a word that another wave reads is written", 64, 1, 32,
     PUT SYNC OTHER_WAVE LOOK SYNC_WAVE PUT, "nothing orders these",
     PUT SYNC OTHER_WAVE LOOK SYNC PUT},
    {"two lanes write", 32, 1, 32, "st.shared.u32 [%r2], %r1;\n",
     "nothing orders these", "mov.b32 %r10, 5;\nst.shared.u32 [%r2], %r10;\n"},
    {"waves write, not the same", 64, 1, 32,
     IF_FIRST "st.shared.u32 [%r2], %r1;\n", "nothing orders these",
     "mov.b32 %r10, 5;\nst.shared.u32 [%r2], %r10;\n"},
    {"halves of a word are different places", 32, 1, 32,
     "shr.u32 %r10, %r3, 1;\nadd.s32 %r10, %r10, %r2;\ncvt.u16.u32 %h0, %r1;\n"
     "st.shared.u16 [%r10], %h0;\nxor.b32 %r10, %r10, 2;\n"
     "ld.shared.u16 %h1, [%r10];\n",
     "nothing orders these",
     "shr.u32 %r10, %r3, 1;\nadd.s32 %r10, %r10, %r2;\ncvt.u16.u32 %h0, %r1;\n"
     "st.shared.u16 [%r10], %h0;\nld.shared.u16 %h1, [%r10];\n"},
    {"a barrier of other waves", 64, 1, 32,
     PUT "shr.u32 %r14, %r1, 5;\nadd.s32 %r14, %r14, 1;\n"
         "bar.sync %r14, 32;\n" OTHER_WAVE LOOK,
     "nothing orders these", PUT "bar.sync 1, 64;\n" OTHER_WAVE LOOK},
    {"an arrival before the word", 64, 1, 32,
     MAKE("64") SYNC ARRIVE PUT AWAIT OTHER_WAVE LOOK, "nothing orders these",
     MAKE("64") SYNC PUT ARRIVE AWAIT OTHER_WAVE LOOK},
    {"an arrival for lanes that it does not know of", 64, 1, 32,
     MAKE("2") SYNC PUT IF_FIRST ARRIVE AWAIT OTHER_WAVE LOOK,
     "nothing orders these",
     MAKE("2") SYNC PUT SYNC_WAVE IF_FIRST ARRIVE AWAIT OTHER_WAVE LOOK},
    {"nobody waits", 64, 1, 32, MAKE("64") SYNC PUT ARRIVE OTHER_WAVE LOOK,
     "nothing orders these", MAKE("64") SYNC PUT ARRIVE AWAIT OTHER_WAVE LOOK},
    {"a barrier that may not be made yet", 64, 1, 32,
     MAKE("64") SYNC_WAVE ARRIVE, "barrier", MAKE("64") SYNC ARRIVE AWAIT},
    {"atomics and a reader", 64, 1, 32, IF_FIRST "st.shared.u32 [%r2], %r1;\n",
     "nothing orders these",
     "setp.eq.u32 %p1, %r1, 0;\n@%p1 st.shared.u32 [%r2], %r1;\n" SYNC
     "atom.shared.max.u32 %r10, [%r2], %r1;\n" SYNC
     "ld.shared.u32 %r11, [%r2];\nst.global.u32 [%rd2], %r11;\n"},
    {"an atomic is read", 64, 1, 32,
     "setp.eq.u32 %p1, %r1, 0;\n@%p1 st.shared.u32 [%r2], %r1;\n" SYNC
     "atom.shared.max.u32 %r10, [%r2], %r1;\n"
     "ld.shared.u32 %r11, [%r2];\n",
     "nothing orders these",
     "setp.eq.u32 %p1, %r1, 0;\n@%p1 st.shared.u32 [%r2], %r1;\n" SYNC
     "atom.shared.max.u32 %r10, [%r2], %r1;\n"},
    /* ---- Copies ---- */
    {"a copy that nobody has waited for", 32, 1, 32, COPY SYNC TAKE_COPY,
     "nothing orders these", COPY "cp.async.wait_all;\n" SYNC TAKE_COPY},
    {"others' copies need a barrier, too", 32, 1, 32,
     COPY "cp.async.wait_all;\n" TAKE_COPY, "nothing orders these",
     COPY "cp.async.wait_all;\n" SYNC_WAVE TAKE_COPY},
    {"one's own copy", 32, 1, 32, COPY "ld.shared.u32 %r11, [%r16];\n",
     "nothing orders these",
     COPY "cp.async.commit_group;\ncp.async.wait_group 0;\n"
          "ld.shared.u32 %r11, [%r16];\n"},
    {"a group that is too new", 32, 1, 32,
     COPY "cp.async.commit_group;\ncp.async.wait_group 1;\n"
          "ld.shared.u32 %r11, [%r16];\n",
     "nothing orders these",
     COPY "cp.async.commit_group;\ncp.async.commit_group;\n"
          "cp.async.wait_group 1;\nld.shared.u32 %r11, [%r16];\n"},
    {"a copy that a barrier is told of", 64, 1, 32,
     MAKE("64") SYNC COPY ARRIVE AWAIT TAKE_COPY, "nothing orders these",
     MAKE("64") SYNC COPY "cp.async.mbarrier.arrive.noinc.shared::cta.b64 "
                          "[%r13];\n" AWAIT TAKE_COPY},
    {"a copy over what is read", 32, 1, 32,
     "add.s32 %r10, %r2, %r3;\n" PUT SYNC_WAVE NEIGHBOUR
     "ld.shared.u32 %r11, [%r10];\n" COPY,
     "may still read",
     PUT SYNC_WAVE NEIGHBOUR "ld.shared.u32 %r11, [%r10];\n" SYNC COPY},
    /* ---- Global memory ---- */
    {"work-groups write the same place", 32, 2, 32,
     "st.global.u32 [%rd2], %r1;\n", "another work-group",
     "atom.global.add.u32 %r10, [%rd2], %r1;\n"},
    {"one work-group reads what another writes", 1, 2, 32,
     "mov.u32 %r10, %ctaid.x;\nmul.wide.u32 %rd5, %r10, 4;\n"
     "add.s64 %rd5, %rd0, %rd5;\nst.global.u32 [%rd5], %r1;\n"
     "ld.global.u32 %r11, [%rd0];\n",
     "another work-group",
     "mov.u32 %r10, %ctaid.x;\nmul.wide.u32 %rd5, %r10, 4;\n"
     "add.s64 %rd5, %rd0, %rd5;\nst.global.u32 [%rd5], %r1;\n"
     "ld.global.u32 %r11, [%rd5];\nld.global.u32 %r11, [%rd0+64];\n"},
    {"one work-group writes what another has read", 1, 2, 32,
     "mov.u32 %r10, %ctaid.x;\nsetp.eq.u32 %p1, %r10, 0;\n"
     "@%p1 ld.global.u32 %r11, [%rd0];\n@!%p1 st.global.u32 [%rd0], %r1;\n",
     "another work-group",
     "mov.u32 %r10, %ctaid.x;\nsetp.eq.u32 %p1, %r10, 0;\n"
     "@%p1 ld.global.u32 %r11, [%rd0];\n@!%p1 st.global.u32 [%rd0+4], %r1;\n"},
    {"waves of a work-group", 64, 1, 32,
     "xor.b32 %r10, %r3, 128;\ncvt.u64.u32 %rd5, %r10;\n"
     "add.s64 %rd5, %rd0, %rd5;\nst.global.u32 [%rd2], %r1;\n"
     "ld.global.u32 %r11, [%rd5];\n",
     "nothing orders these",
     "xor.b32 %r10, %r3, 128;\ncvt.u64.u32 %rd5, %r10;\n"
     "add.s64 %rd5, %rd0, %rd5;\nst.global.u32 [%rd2], %r1;\n" SYNC
     "ld.global.u32 %r11, [%rd5];\n"},
    /* ---- What nobody has set ---- */
    {"local memory", 32, 1, 32,
     "ld.shared.u32 %r11, [%r4];\nst.global.u32 [%rd2], %r11;\n",
     "stores a value that nobody has set",
     "ld.shared.u32 %r11, [%r4];\nsetp.eq.u32 %p1, %r1, %r1;\n"
     "selp.b32 %r11, 0, %r11, %p1;\nst.global.u32 [%rd2], %r11;\n"},
    {"local memory of another work-group", 32, 2, 32,
     "mov.u32 %r10, %ctaid.x;\nsetp.eq.u32 %p1, %r10, 0;\n"
     "@%p1 st.shared.u32 [%r4], %r1;\nld.shared.u32 %r11, [%r4];\n"
     "@!%p1 st.global.u32 [%rd2], %r11;\n",
     "stores a value that nobody has set",
     "st.shared.u32 [%r4], %r1;\nld.shared.u32 %r11, [%r4];\n"},
    {"by way of local memory", 32, 1, 32,
     "add.s32 %r11, %r12, 1;\nst.shared.u32 [%r4], %r11;\n"
     "ld.shared.u32 %r11, [%r4];\nst.global.u32 [%rd2], %r11;\n",
     "stores a value that nobody has set",
     "mov.u32 %r12, 1;\nadd.s32 %r11, %r12, 1;\nst.shared.u32 [%r4], %r11;\n"
     "ld.shared.u32 %r11, [%r4];\nst.global.u32 [%rd2], %r11;\n"},
    {"a branch", 32, 1, 32,
     "setp.eq.u32 %p1, %r12, 0;\n@%p1 bra done;\ndone:\n",
     "goes on by a value that nobody has set",
     "setp.eq.u32 %p1, %r1, 0;\n@%p1 bra done;\ndone:\n"},
    {"an address", 32, 1, 32, "ld.shared.u32 %r11, [%r12];\n",
     "an address that nobody has set", "ld.param.u32 %r11, [k_1];\n"},
    {"a lane that does not set it", 32, 1, 32,
     "setp.eq.u32 %p1, %r1, 0;\n@%p1 mov.u32 %r12, 1;\n"
     "st.global.u32 [%rd2], %r12;\n",
     "work-item 1: stores a value that nobody has set",
     "setp.eq.u32 %p1, %r1, 0;\n@%p1 mov.u32 %r12, 1;\n"
     "@%p1 st.global.u32 [%rd2], %r12;\n"},
    {"another lane's register", 32, 1, 32,
     "setp.eq.u32 %p1, %r1, 0;\n@%p1 mov.u32 %r12, 1;\n"
     "shfl.sync.idx.b32 %r11, %r12, 1, 31, 0xffffffff;\n"
     "st.global.u32 [%rd2], %r11;\n",
     "stores a value that nobody has set",
     "setp.eq.u32 %p1, %r1, 0;\n@%p1 mov.u32 %r12, 1;\n"
     "shfl.sync.idx.b32 %r11, %r12, 0, 31, 0xffffffff;\n"
     "st.global.u32 [%rd2], %r11;\n"},
    {"half of a register", 32, 1, 32,
     "cvt.u16.u32 %h0, %r1;\nmov.b32 %r11, {%h0, %h1};\n"
     "st.global.u32 [%rd2], %r11;\n",
     "stores a value that nobody has set",
     "cvt.u16.u32 %h0, %r1;\nmov.b32 %r11, {%h0, %h1};\n"
     "mov.b32 {%h2, %h3}, %r11;\nst.global.u16 [%rd2], %h2;\n"},
    {"private memory", 32, 1, 32,
     "ld.local.u32 %r11, [own+4];\nst.global.u32 [%rd2], %r11;\n",
     "stores a value that nobody has set",
     "st.local.u32 [own+4], %r1;\nld.local.u32 %r11, [own+4];\n"
     "st.global.u32 [%rd2], %r11;\n"},
    /* ---- Barriers ---- */
    {"work-items that have ended", 64, 1, 32,
     "and.b32 %r10, %r1, 31;\nsetp.eq.u32 %p1, %r10, 3;\n@%p1 ret;\n" SYNC,
     "has ended", SYNC},
    {"waves that have ended", 64, 1, 32,
     "setp.lt.u32 %p1, %r1, 32;\n@%p1 ret;\n" SYNC, "waves wait for ever",
     "setp.lt.u32 %p1, %r1, 32;\n@%p1 ret;\nbar.sync 1, 32;\n"},
    {"lanes at different barriers", 32, 1, 32,
     "setp.lt.u32 %p1, %r1, 16;\n@%p1 bra first;\nbar.sync 0;\nbra.uni done;\n"
     "first:\nbar.sync 0;\ndone:\n",
     "lanes of a wave wait at different instructions",
     "setp.lt.u32 %p1, %r1, 16;\n@%p1 bra first;\n"
     "first:\nbar.sync 0;\n"},
    /* ---- Waves of fewer lanes ---- */
    {"waves of 8", 16, 1, 8, NARROW("8", "32", ""), "nothing orders these",
     NARROW("8", "32", SYNC)},
    {"waves of 16", 32, 1, 16, NARROW("16", "64", ""), "nothing orders these",
     NARROW("16", "64", SYNC)},
};

static void races_are_noticed(void **state)
{
    static uint32_t words[MOST_WORDS];
    (void)state;
    for (size_t i = 0; i < sizeof twins / sizeof *twins; i++)
        for (unsigned seed = 1; seed <= 5; seed++) {
            const char *said =
                run_waves(twins[i].bad, twins[i].groups, twins[i].items,
                          twins[i].lanes, 0, words, seed);
            if (!strstr(said, twins[i].why))
                fail_msg("%s: \"%s\" in place of \"%s\"", twins[i].name, said,
                         twins[i].why);
            said = run_waves(twins[i].good, twins[i].groups, twins[i].items,
                             twins[i].lanes, 0, words, seed);
            if (*said)
                fail_msg("%s, mended: \"%s\"", twins[i].name, said);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(races_are_noticed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
