/* SPDX-License-Identifier: Apache-2.0
 * Texts of cases, as tests and bench take them, and the bench's files of
 * cases: taken or refused, and what is printed of a case is that case. */
#include <string.h>
#include <unistd.h>

#include "command/options.h"
#include "fuzz.h"
#include "kit/workloads.h"
#include "problem/problem.h"

#define SCRATCH_SIZE 64

void add_first_inputs(void)
{
    char text[1024];
    for (size_t i = 0; i < workload_count; i += 4)
        add_text(workload_rows[i].text);
    for (int seed = 1; seed <= 20; seed++) {
        const test_case c = seed % 2 ? case_random_grid(seed, 0, seed / 2 % 2)
                                     : case_random_backward(seed, 0);
        case_print(&c, text, sizeof text);
        add_text(text);
    }
    add_text("# a comment\nswinir-720p\n\nwindows=4 variant=cosine\n");
}

static void check_text(const char *text)
{
    char bad[64], first[1024], second[1024];
    test_case c = case_default(), again = case_default();
    if (!case_parse(text, &c, bad)) {
        EXPECT(memchr(bad, 0, sizeof bad), "a word that does not end");
        return;
    }
    case_print(&c, first, sizeof first);
    if (strlen(first) + 1 < sizeof first) {
        EXPECT(case_parse(first, &again, bad), first);
        case_print(&again, second, sizeof second);
        EXPECT(strcmp(first, second) == 0, first);
    }
}

/* Which names a file only. */
static void check_file(const uint8_t *data, size_t size)
{
    char path[SCRATCH_SIZE], reason[CASELIST_REASON_SIZE] = "";
    caselist list = {NULL, 0, 0};
    snprintf(path, sizeof path, "fuzz_cases.%ld", (long)getpid());
    FILE *file = fopen(path, "wb");
    EXPECT(file && fwrite(data, 1, size, file) == size, path);
    EXPECT(fclose(file) == 0, path);
    const bool taken = caselist_add_file(&list, path, reason);
    EXPECT(taken || reason[0], "a refusal without a reason");
    for (size_t i = 0; taken && i < list.count; i++) {
        test_case c = list.all[i].c;
        case_derive(&c);
        wa_problem problem;
        const winattn_desc desc = case_desc(&c);
        if (wa_problem_read(&desc, &problem) != WINATTN_SUCCESS)
            EXPECT(winattn_last_reason()[0], "a refusal without a reason");
    }
    caselist_free(&list);
    unlink(path);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    EXPECT(text, "memory");
    memcpy(text, data, size);
    text[size] = 0;
    check_text(text);
    check_file(data, size);
    free(text);
}
