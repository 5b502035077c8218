/* SPDX-License-Identifier: Apache-2.0
 * The table of measured shapes: what is built in, and what is loaded at run
 * time. */
#include "plan/tuning.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/status.h"
#include "base/text.h"

/* A row is worth having where it beats the model by 3% or more; winattn-tune
 * finds it. Rows that fit fewer problems stand behind those that fit more.
 * Measured on one H200, driver 580.159.04, November 2026 (bench/decisions):
 * tier matrix in fp16, with a bias in that type; local-backward in the variant
 * dot. Other devices from compute capability 8.0 on share its compute units'
 * balance of arithmetic and local memory. */
const char *const wa_built_in_rows[WA_BUILT_IN_ROWS + 1] = {
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
    NULL};

/* ---- Rows that were loaded ---- */

#define PATH_SIZE 4096

typedef struct row_list {
    wa_tuned_row *rows;
    size_t count;
} row_list;

/* All guarded by the tuning's lock. */
static row_list from_program, from_environment;
static bool environment_was_read;
static char environment_failure[WA_REASON_SIZE]; /* "": none */

/* Neither empty nor a remark. */
static bool has_row(const char *line, size_t length)
{
    size_t i = 0;
    while (i < length && strchr(" \t\r", line[i]))
        i++;
    return i < length && line[i] != '#';
}

static winattn_status append_row(row_list *list, const wa_tuned_row *row)
{
    /* full where the count is 0 or a power of two */
    if ((list->count & (list->count - 1)) == 0) {
        const size_t capacity = list->count ? 2 * list->count : 1;
        wa_tuned_row *longer = realloc(list->rows, capacity * sizeof *longer);
        WA_TRY_MEMORY(longer);
        list->rows = longer;
    }
    list->rows[list->count++] = *row;
    return WINATTN_SUCCESS;
}

/* All rows of a text, which are appended to a list that is to be freed, also
 * after a failure. */
static winattn_status read_rows(const char *text, size_t size, row_list *list)
{
    for (size_t number = 1, at = 0; at < size; number++) {
        const char *line = text + at;
        const char *end = memchr(line, '\n', size - at);
        const size_t length = end ? (size_t)(end - line) : size - at;
        at += length + 1;
        wa_tuned_row row;
        if (!has_row(line, length))
            continue;
        const char *wrong = wa_tuned_row_parse(line, length, &row);
        if (wrong)
            return WA_INVALID("line %llu: %s", (unsigned long long)number,
                              wrong);
        WA_TRY(append_row(list, &row));
    }
    return WINATTN_SUCCESS;
}

/* Of those for the same the later one last. */
static int compare_places(const void *a, const void *b)
{
    const wa_tuned_row *x = *(wa_tuned_row *const *)a;
    const wa_tuned_row *y = *(wa_tuned_row *const *)b;
    const int order = wa_tuned_rows_compare(x, y);
    return order ? order : (x > y) - (x < y);
}

/* Leaves of rows for the same the last one, in the order in which they are. */
static winattn_status drop_replaced(row_list *list)
{
    wa_tuned_row **sorted = malloc((list->count + 1) * sizeof *sorted);
    const size_t count = list->count;
    WA_TRY_MEMORY(sorted);
    for (size_t i = 0; i < count; i++)
        sorted[i] = &list->rows[i];
    qsort(sorted, count, sizeof *sorted, compare_places);
    for (size_t i = 1; i < count; i++)
        if (wa_tuned_rows_compare(sorted[i - 1], sorted[i]) == 0)
            sorted[i - 1]->kernel[0] = 0;
    free(sorted);
    list->count = 0;
    for (size_t i = 0; i < count; i++)
        if (list->rows[i].kernel[0])
            list->rows[list->count++] = list->rows[i];
    return WINATTN_SUCCESS;
}

/* The rows of `before` and then those of `more`, in a list to be freed. */
static winattn_status join_rows(const row_list *before, const row_list *more,
                                row_list *list)
{
    const size_t count = before->count + more->count;
    list->count = 0;
    list->rows = malloc((count + 1) * sizeof *list->rows);
    WA_TRY_MEMORY(list->rows);
    for (size_t i = 0; i < before->count; i++)
        list->rows[list->count++] = before->rows[i];
    for (size_t i = 0; i < more->count; i++)
        list->rows[list->count++] = more->rows[i];
    winattn_status status = drop_replaced(list);
    if (status == WINATTN_SUCCESS && list->count > WA_MOST_ROWS)
        status = WA_INVALID("there are more than %u rows", WA_MOST_ROWS);
    if (status != WINATTN_SUCCESS) {
        free(list->rows);
        *list = (row_list){NULL, 0};
    }
    return status;
}

/* With the lock held. The file's rows; what is wrong with it is no failure,
 * unless it may pass. */
static winattn_status read_file(const char *path)
{
    static const row_list none;
    row_list rows = none;
    unsigned char *bytes;
    size_t size;
    const wa_file_answer answer =
        wa_file_read(path, WA_MOST_TUNING_TEXT, &bytes, &size);
    if (answer == WA_FILE_NO_MEMORY)
        return wa_fail_memory();
    if (answer != WA_FILE_READ) {
        snprintf(environment_failure, sizeof environment_failure,
                 "it cannot be read, or has more than %u bytes",
                 WA_MOST_TUNING_TEXT);
        return WINATTN_SUCCESS;
    }
    winattn_status status = read_rows((const char *)bytes, size, &rows);
    WA_THEN(status, join_rows(&none, &rows, &from_environment));
    free(rows.rows);
    free(bytes);
    if (status == WINATTN_INVALID_ARGUMENT) {
        snprintf(environment_failure, sizeof environment_failure, "%.200s",
                 winattn_last_reason());
        return WINATTN_SUCCESS;
    }
    return status;
}

/* With the lock held. The file of WINATTN_TUNING, once. */
static winattn_status read_environment(void)
{
    char path[PATH_SIZE];
    if (environment_was_read)
        return WINATTN_SUCCESS;
    const wa_setting set = wa_environment("WINATTN_TUNING", path, sizeof path);
    if (set == WA_TOO_LONG)
        snprintf(environment_failure, sizeof environment_failure,
                 "its name has more than %d bytes", PATH_SIZE - 1);
    else if (set == WA_SET && path[0])
        WA_TRY(read_file(path));
    environment_was_read = true;
    return WINATTN_SUCCESS;
}

winattn_status wa_read_tuning(void)
{
    wa_tuning_lock_take();
    const winattn_status status = read_environment();
    wa_tuning_lock_release();
    return status;
}

winattn_status wa_load_tuning(const char *text)
{
    row_list rows = {NULL, 0}, joined = {NULL, 0};
    if (text && !memchr(text, 0, WA_MOST_TUNING_TEXT + 1))
        return WA_INVALID("the text has more than %u bytes",
                          WA_MOST_TUNING_TEXT);
    /* what takes long goes without the lock */
    winattn_status status =
        text ? read_rows(text, strlen(text), &rows) : WINATTN_SUCCESS;
    wa_tuning_lock_take();
    if (status == WINATTN_SUCCESS && text)
        status = join_rows(&from_program, &rows, &joined);
    if (status == WINATTN_SUCCESS) {
        free(from_program.rows);
        from_program = joined;
    }
    wa_tuning_lock_release();
    free(rows.rows);
    return status;
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

static const char by_caller[] = "measured best, says a row that was loaded";
static const char by_us[] = "measured best on devices of this kind";

static bool offer_loaded(const row_list *list, const char *kernel,
                         const wa_device *device, wa_row_taker *take,
                         void *data)
{
    for (size_t i = list->count; i-- > 0;)
        if (wa_tuned_row_fits(&list->rows[i], kernel, device) &&
            take(data, list->rows[i].words, by_caller))
            return true;
    return false;
}

bool wa_offer_rows(const char *kernel, const wa_device *device,
                   const char *const *built_in, wa_row_taker *take, void *data)
{
    size_t count = 0;
    if (device->ignores_tuning)
        return false;
    wa_tuning_lock_take();
    read_environment();
    bool taken = offer_loaded(&from_environment, kernel, device, take, data) ||
                 offer_loaded(&from_program, kernel, device, take, data);
    wa_tuning_lock_release();
    while (built_in[count])
        count++;
    for (size_t i = count; i-- > 0 && !taken;) {
        wa_tuned_row row;
        taken = !wa_tuned_row_parse(built_in[i], strlen(built_in[i]), &row) &&
                wa_tuned_row_fits(&row, kernel, device) &&
                take(data, row.words, by_us);
    }
    return taken;
}

typedef struct lookup {
    wa_tuned_kernel kernel;
    const wa_problem *problem;
    size_t passed_over; /* still to be */
    wa_tuned *found;
} lookup;

static bool take_next(void *data, const char *words, const char *reason)
{
    lookup *l = data;
    if (!wa_tuned_words_fit(words, l->problem) || l->passed_over-- > 0)
        return false;
    l->found->reason = reason;
    return wa_tuned_shape_parse(l->kernel, strrchr(words, ' ') + 1,
                                &l->found->shape);
}

/* Where a shape keeps bias and mask follows from which the problem has. */
static void suit_problem(wa_tuned_kernel kernel, const wa_problem *problem,
                         wa_tuned_shape *shape)
{
    if (kernel == WA_MATRIX_FORWARD) {
        wa_matrix_shape *s = &shape->matrix_forward;
        if (!wa_problem_has_score_bias(problem))
            s->bias_cache = WA_BIAS_CACHE_NONE;
        else if (s->bias_cache == WA_BIAS_CACHE_LOCAL &&
                 MASK_FOLLOWS_GRID(problem->mask))
            s->bias_cache = WA_BIAS_CACHE_LOCAL_AND_REGIONS; /* which it has no
                                                        sum with a bias for */
    } else if (kernel == WA_MATRIX_BACKWARD) {
        wa_matrix_gradient_shape *s = &shape->matrix_backward;
        if (!wa_problem_has_score_bias(problem))
            s->rows.bias_cache = s->keys.bias_cache = WA_BIAS_CACHE_NONE;
        if (problem->bias == WINATTN_BIAS_NONE)
            s->keeps_dbias = WA_DBIAS_WORKSPACE;
    }
}

bool wa_find_tuned(wa_tuned_kernel kernel, const wa_problem *problem,
                   const wa_device *device, size_t passed_over,
                   wa_tuned *found)
{
    lookup l = {kernel, problem, passed_over, found};
    if (!wa_offer_rows(wa_tuned_kernel_name(kernel), device, wa_built_in_rows,
                       take_next, &l))
        return false;
    suit_problem(kernel, problem, &found->shape);
    return true;
}
