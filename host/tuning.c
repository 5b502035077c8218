/* SPDX-License-Identifier: Apache-2.0
 * The table of measured shapes: what is built in, and what is loaded at run
 * time. */
#include "tuning.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "matrix_shape.h"
#include "os.h"
#include "status.h"

/* A row is worth having where it beats the model by 3% or more; winattn-tune
 * finds it. Rows that fit fewer problems stand behind those that fit more.
 * Measured on one H200, driver 580.159.04, November 2026 (bench/notes.md):
 * tier matrix in fp16, with a bias in that type; local-backward in the variant
 * dot. Other devices from compute capability 8.0 on share its compute units'
 * balance of arithmetic and local memory. */
const char *const wa_built_in_rows[WA_BUILT_IN_ROWS] = {
    "local-forward NVIDIA 80 any any any 49 49 32 49:49:64:1:49:32:7:7:7:1",
    "local-forward NVIDIA 80 any any any 64 64 64 64:64:128:1:64:64:4:8:8:2",
    "local-forward NVIDIA 80 any any any 196 196 32 "
    "98:196:128:1:100:32:7:7:7:1",
    "local-forward NVIDIA 80 any any any 256 256 32 "
    "64:256:128:1:256:32:8:8:4:2",
    "local-forward NVIDIA 80 sliding any none any any 64 "
    "64:128:128:1:128:64:8:8:8:2",
    "matrix-forward NVIDIA 90 any half any 49 49 32 49:49:4:4:2:64:2",
    "matrix-forward NVIDIA 90 cosine half any 64 64 32 64:64:4:4:2:64:2",
    "matrix-forward NVIDIA 90 any half any 64 64 64 64:64:4:2:3:64:2",
    "matrix-forward NVIDIA 90 any half any 64 64 256 64:64:4:1:2:64:2",
    "matrix-forward NVIDIA 90 any half any 144 144 32 48:144:3:4:2:48:1",
    "matrix-forward NVIDIA 90 any half any 256 256 32 256:256:16:1:2:32:1",
    "matrix-forward NVIDIA 90 any half any 576 576 32 64:192:4:4:1:32:1",
    /* the sum of a bias and regions finds no room */
    "matrix-forward NVIDIA 90 any half regions 256 256 32 128:256:8:2:1:64:3",
    "matrix-forward NVIDIA 90 any half regions 576 576 32 64:192:4:4:1:32:3",
    "local-backward NVIDIA 80 dot any any 49 49 32 49:49:128:32:7:4:4:1:1:4",
    "local-backward NVIDIA 80 dot any any 64 64 64 64:64:256:64:4:4:4:1:1:2",
    "local-backward NVIDIA 80 dot any any 144 144 32 "
    "72:144:192:32:8:8:3:2:1:2",
    "matrix-backward NVIDIA 90 dot half any 64 64 64 64:4:2:2:64:1:1",
    "matrix-backward NVIDIA 90 dot half any 144 144 32 144:9:1:2:16:1:1",
    "matrix-backward NVIDIA 90 cosine half regions 256 256 32 "
    "128:8:1:2:64:3:1:256:128:64:4:4:1:32:1",
};

/* ---- Rows that were loaded ---- */

#define MOST_ROWS 4096u
#define MOST_FILE_BYTES (1024u * 1024u)
#define PATH_SIZE 4096

typedef struct row_list {
    wa_tuned_row *rows;
    size_t count;
} row_list;

/* All guarded by the tuning's lock. */
static row_list from_program, from_environment;
static bool environment_was_read;
static char environment_failure[WA_REASON_SIZE]; /* "": none */

/* In place of a row for the same. */
static void append_row(row_list *list, const wa_tuned_row *row)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++)
        if (!wa_tuned_rows_meet(&list->rows[i], row))
            list->rows[kept++] = list->rows[i];
    list->rows[kept] = *row;
    list->count = kept + 1;
}

static size_t count_lines(const char *text, size_t size)
{
    size_t lines = 1;
    for (size_t i = 0; i < size; i++)
        lines += text[i] == '\n';
    return lines;
}

/* Neither empty nor a remark. */
static bool has_row(const char *line, size_t length)
{
    size_t i = 0;
    while (i < length && strchr(" \t\r", line[i]))
        i++;
    return i < length && line[i] != '#';
}

/* All rows of a text, behind those of `before`, in a list to be freed; on
 * failure none, with the line and why. */
static winattn_status read_rows(const char *text, size_t size,
                                const row_list *before, row_list *list,
                                char why[WA_REASON_SIZE])
{
    const size_t lines = count_lines(text, size);
    list->count = 0;
    list->rows = malloc((before->count + lines) * sizeof *list->rows);
    if (!list->rows) {
        snprintf(why, WA_REASON_SIZE, "out of host memory");
        return CL_OUT_OF_HOST_MEMORY;
    }
    for (size_t i = 0; i < before->count; i++)
        list->rows[list->count++] = before->rows[i];
    for (size_t number = 1, at = 0; at < size; number++) {
        const char *line = text + at;
        size_t length = 0;
        while (at + length < size && line[length] != '\n')
            length++;
        at += length + 1;
        wa_tuned_row row;
        if (!has_row(line, length))
            continue;
        const char *wrong = wa_tuned_row_parse(line, length, &row);
        if (!wrong)
            append_row(list, &row);
        if (list->count > MOST_ROWS)
            wrong = "there are too many rows";
        if (wrong) {
            snprintf(why, WA_REASON_SIZE, "line %llu: %s",
                     (unsigned long long)number, wrong);
            free(list->rows);
            *list = (row_list){NULL, 0};
            return WINATTN_INVALID_ARGUMENT;
        }
    }
    return WINATTN_SUCCESS;
}

/* With the lock held. The file of WINATTN_TUNING, once. */
static void read_environment(void)
{
    static const row_list none;
    char path[PATH_SIZE], why[WA_REASON_SIZE];
    unsigned char *bytes;
    size_t size;
    if (environment_was_read)
        return;
    environment_was_read = true;
    if (wa_environment("WINATTN_TUNING", path, sizeof path) != WA_SET ||
        !path[0])
        return;
    if (wa_file_read(path, MOST_FILE_BYTES, &bytes, &size) != WA_FILE_READ) {
        snprintf(environment_failure, sizeof environment_failure,
                 "it cannot be read");
        return;
    }
    if (read_rows((const char *)bytes, size, &none, &from_environment, why) !=
        WINATTN_SUCCESS)
        snprintf(environment_failure, sizeof environment_failure, "%s", why);
    free(bytes);
}

winattn_status wa_load_tuning(const char *text)
{
    char why[WA_REASON_SIZE];
    row_list longer = {NULL, 0};
    winattn_status status = WINATTN_SUCCESS;
    wa_tuning_lock_take();
    if (text)
        status = read_rows(text, strlen(text), &from_program, &longer, why);
    if (status == WINATTN_SUCCESS) {
        free(from_program.rows);
        from_program = longer;
    }
    wa_tuning_lock_release();
    return status == WINATTN_SUCCESS ? status : wa_fail(status, "%s", why);
}

void wa_describe_tuning(char *text, size_t size)
{
    wa_tuning_lock_take();
    read_environment();
    if (environment_failure[0])
        wa_append(text, size,
                  "tuning: the file of WINATTN_TUNING is not "
                  "used: %s\n",
                  environment_failure);
    wa_tuning_lock_release();
}

/* ---- Looking up ---- */

typedef struct lookup {
    wa_tuned_kernel kernel;
    const wa_problem *problem;
    const wa_device *device;
    size_t passed_over; /* still to be */
} lookup;

/* Is it the row that is looked for? */
static bool is_next(lookup *find, const wa_tuned_row *row)
{
    return wa_tuned_row_fits(row, find->kernel, find->problem, find->device) &&
           find->passed_over-- == 0;
}

static bool find_loaded(lookup *find, const row_list *list,
                        wa_tuned_shape *shape)
{
    for (size_t i = list->count; i-- > 0;)
        if (is_next(find, &list->rows[i])) {
            *shape = list->rows[i].shape;
            return true;
        }
    return false;
}

static bool find_built_in(lookup *find, wa_tuned_shape *shape)
{
    for (size_t i = WA_BUILT_IN_ROWS; i-- > 0;) {
        const char *text = wa_built_in_rows[i];
        wa_tuned_row row;
        if (!wa_tuned_row_parse(text, strlen(text), &row) &&
            is_next(find, &row)) {
            *shape = row.shape;
            return true;
        }
    }
    return false;
}

/* Where a shape keeps terms follows from what the problem has of them. */
static void suit_problem(wa_tuned_kernel kernel, const wa_problem *problem,
                         wa_tuned_shape *shape)
{
    if (kernel == WA_MATRIX_FORWARD) {
        wa_matrix_shape *s = &shape->matrix_forward;
        if (!wa_matrix_has_terms(problem))
            s->keeps_terms = 0;
        else if (s->keeps_terms == 1 && problem->mask == WINATTN_MASK_SHIFT)
            s->keeps_terms = 3; /* which it has no sum with a bias for */
    } else if (kernel == WA_MATRIX_BACKWARD) {
        wa_matrix_gradient_shape *s = &shape->matrix_backward;
        s->keeps_terms = wa_matrix_has_terms(problem) ? s->keeps_terms : 0;
        s->keys.keeps_terms =
            wa_matrix_has_terms(problem) ? s->keys.keeps_terms : 0;
        if (problem->bias == WINATTN_BIAS_NONE)
            s->keeps_dbias = 0;
    }
}

bool wa_find_tuned(wa_tuned_kernel kernel, const wa_problem *problem,
                   const wa_device *device, size_t passed_over,
                   wa_tuned *found)
{
    lookup find = {kernel, problem, device, passed_over};
    if (device->ignores_tuning)
        return false;
    found->reason = "measured best, says a row that was loaded";
    wa_tuning_lock_take();
    read_environment();
    bool any = find_loaded(&find, &from_environment, &found->shape) ||
               find_loaded(&find, &from_program, &found->shape);
    wa_tuning_lock_release();
    if (!any) {
        found->reason = "measured best on devices of this kind";
        any = find_built_in(&find, &found->shape);
    }
    if (any)
        suit_problem(kernel, problem, &found->shape);
    return any;
}
