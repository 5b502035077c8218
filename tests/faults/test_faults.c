/* SPDX-License-Identifier: Apache-2.0
 * Every allocation and every OpenCL call fails once in each public function.
 * The call must then fail with that very status, or go as if nothing had been,
 * and what comes after it must be as if it had never been made. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "subjects.h"

/* The levels call it where something is wrong, which nobody expects here. */
void report(const char *what, const char *detail)
{
    fprintf(stderr, "%s %s\n", what, detail);
    abort();
}

/* What drivers may say for a while. */
static const cl_int codes[] = {CL_OUT_OF_HOST_MEMORY, CL_OUT_OF_RESOURCES,
                               CL_MEM_OBJECT_ALLOCATION_FAILURE,
                               CL_DEVICE_NOT_AVAILABLE};
static size_t used_codes;   /* of them */
static unsigned long every; /* failure is tried: 1 all, 2 each second */
static size_t which;        /* of the levels the subject is of */

/* What is to fail: the n-th allocation, or the n-th call with this error. */
typedef struct injection {
    unsigned long n;
    cl_int error; /* 0: an allocation */
} injection;

/* What a run without any failure gave. */
typedef struct reference {
    winattn_status status;
    char outcome[MOST_OUTCOME];
    size_t launches; /* on the caller's queue */
    /* then, of the scenario's plan and another one of the same session */
    char plan[MOST_OUTCOME], other[MOST_OUTCOME];
    unsigned files;
} reference;

static struct {
    unsigned long tried, failed, undisturbed, wrong;
} counts;

/* A failure of the library under test, with all that is needed to see it
 * again; the first few are told. */
static void complain(const world *w, const subject *of,
                     const injection *failing, const char *failed,
                     const char *what, const char *more)
{
    if (++counts.wrong <= 20)
        printf("%s: %s of %s: %s %lu (%s), %s: %s: %s\n", w->is->name,
               of->name, levels[which].name,
               failing->error ? "call" : "allocation", failing->n,
               failed ? failed : "none", winattn_status_name(failing->error),
               what, more);
}

static void prepare(world *w, const scenario *is, const subject *of)
{
    world_open(w, is);
    w->level = which;
    for (int i = 0; i < MOST_PREPARED && of->prepare[i]; i++)
        if (of->prepare[i](w) != WINATTN_SUCCESS)
            fail_msg("%s: %s of %s: %s", is->name, of->name,
                     levels[which].name, winattn_last_reason());
    standin_forget();
}

static void finish(world *w)
{
    subjects_end(w);
    world_close(w);
}

/* ---- What should be ---- */

static void copy_outcome(char to[MOST_OUTCOME], const world *w)
{
    memcpy(to, w->outcome, MOST_OUTCOME);
}

static void find_reference(world *w, const scenario *is, const subject *of,
                           reference *good)
{
    prepare(w, is, of);
    good->status = of->call(w);
    copy_outcome(good->outcome, w);
    good->launches = world_launches(w);
    if (create_plan(w) != WINATTN_SUCCESS)
        fail_msg("%s: %s", is->name, winattn_last_reason());
    copy_outcome(good->plan, w);
    if (create_other_plan(w) != WINATTN_SUCCESS)
        fail_msg("%s: %s", is->name, winattn_last_reason());
    copy_outcome(good->other, w);
    good->files = world_files();
    finish(w);
    assert_int_equal(good->status, WINATTN_SUCCESS);
}

/* The blob of all that the scenario builds. */
static void make_blob(world *w, const scenario *is)
{
    prepare(w, is, &subject_of_blob);
    if (export_blob(w) != WINATTN_SUCCESS)
        fail_msg("%s: %s", is->name, winattn_last_reason());
    finish(w);
}

/* ---- What is ---- */

/* The same step again, then the plans, must be as if nothing had been. */
static const char *go_on(world *w, const subject *of, winattn_status status,
                         const reference *good)
{
    if (of->call(w) != good->status)
        return "it does not work afterwards";
    if (strcmp(w->outcome, good->outcome) != 0)
        return "it works otherwise afterwards";
    if (create_plan(w) != WINATTN_SUCCESS)
        return "no plan afterwards";
    if (strcmp(w->outcome, good->plan) != 0)
        return "another plan afterwards";
    if (create_other_plan(w) != WINATTN_SUCCESS)
        return "no other plan afterwards";
    if (strcmp(w->outcome, good->other) != 0)
        return "another other plan afterwards";
    /* what was built for itself, as a probe or a self-test is, and could not
     * be stored, is not built again */
    return world_files() + (status == good->status) >= good->files
               ? NULL
               : "files are missing";
}

/* What is wrong with how it went at once; NULL: nothing. failed: the function
 * that did. */
static const char *judge(world *w, const injection *failing,
                         const char *failed, winattn_status status,
                         const reference *good)
{
    const cl_int want =
        failing->error ? failing->error : CL_OUT_OF_HOST_MEMORY;
    const size_t launches = world_launches(w);
    if (status == good->status) {
        counts.undisturbed++;
        if (winattn_last_reason()[0])
            return "it went well, with a reason";
        return strcmp(w->outcome, good->outcome) == 0
                   ? NULL
                   : "it went otherwise, but said nothing";
    }
    if (status != want)
        return "another status";
    counts.failed++;
    if (!winattn_last_reason()[0])
        return "no reason";
    /* what was enqueued before the failure cannot be taken back; a marker may
     * come behind all of it */
    return launches == 0 || launches < good->launches ||
                   strcmp(failed, "clEnqueueMarkerWithWaitList") == 0
               ? NULL
               : "all was enqueued, and yet it failed";
}

/* False if fewer than n calls or allocations are made. */
static bool inject(world *w, const scenario *is, const subject *of,
                   const injection *failing, const reference *good)
{
    char reason[512];
    prepare(w, is, of);
    if (failing->error)
        standin_fail_call(NULL, failing->n, failing->error);
    else
        standin_fail_allocation(failing->n);
    const winattn_status status = of->call(w);
    const char *failed = standin_failed();
    standin_fail_nothing();
    if (failed) {
        counts.tried++;
        snprintf(reason, sizeof reason, "%s, %s", winattn_status_name(status),
                 winattn_last_reason());
        const char *wrong = judge(w, failing, failed, status, good);
        if (wrong)
            complain(w, of, failing, failed, wrong, reason);
        wrong = go_on(w, of, status, good);
        if (wrong)
            complain(w, of, failing, failed, wrong, winattn_last_reason());
    }
    finish(w);
    if (standin_alive())
        complain(w, of, failing, failed, "not released", standin_alive());
    if (standin_wrong(NULL))
        complain(w, of, failing, failed, "misuse", standin_wrong(NULL));
    return failed != NULL;
}

static void fail_each(world *w, const scenario *is, const subject *of)
{
    static reference good;
    if (!subject_applies(is, of))
        return;
    find_reference(w, is, of, &good);
    for (size_t code = 0; code <= used_codes; code++) {
        const unsigned long first =
            ((size_t)(of - subjects) + which) % every + 1;
        injection failing = {first, code ? codes[code - 1] : 0};
        while (inject(w, is, of, &failing, &good))
            failing.n += every;
    }
}

static void test_faults(void **state)
{
    static world w;
    const scenario *is = *state;
    make_blob(&w, is);
    memset(&counts, 0, sizeof counts);
    for (size_t i = 0; i < subject_count; i++)
        for (which = 0; which < subjects[i].levels; which++) {
            const unsigned long before = counts.undisturbed;
            fail_each(&w, is, &subjects[i]);
            if (used_codes == 1 && subject_needs_all(&w, &subjects[i]) &&
                counts.undisturbed != before)
                complain(&w, &subjects[i], &(injection){0, 0}, NULL,
                         "it did without", "");
        }
    printf("%s: %lu failures, %lu with their status, %lu undisturbed, %lu "
           "wrong\n",
           is->name, counts.tried, counts.failed, counts.undisturbed,
           counts.wrong);
    assert_int_equal(counts.wrong, 0);
    assert_true(counts.failed > 0);
}

/* EVERY: 1 for all failures, n for each n-th; CODES: how many errors of calls
 * are tried; FOLDER: for the cache. */
int main(int count, char **arguments)
{
    struct CMUnitTest tests[64] = {{NULL, NULL, NULL, NULL, NULL}};
    const size_t most_codes = sizeof codes / sizeof *codes;
    if (count != 4 || scenario_count > 64) {
        fputs("test_faults EVERY CODES FOLDER\n", stderr);
        return EXIT_FAILURE;
    }
    every = strtoul(arguments[1], NULL, 10);
    used_codes = strtoul(arguments[2], NULL, 10);
    every = every ? every : 1;
    used_codes = used_codes < most_codes ? used_codes : most_codes;
    unsetenv("WINATTN_CACHE");
    mkdir(arguments[3], 0700);
    world_set_folder(arguments[3]);
    subjects_begin(arguments[3]);
    for (size_t i = 0; i < scenario_count; i++) {
        tests[i].name = scenarios[i].name;
        tests[i].test_func = test_faults;
        tests[i].initial_state = (void *)(size_t)&scenarios[i];
    }
    return _cmocka_run_group_tests("faults", tests, scenario_count, NULL,
                                   NULL);
}
