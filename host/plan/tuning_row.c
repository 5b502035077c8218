/* SPDX-License-Identifier: Apache-2.0
 * Rows of the tuning table from text and to text. */
#include "plan/tuning_row.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "program/cache_record.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define MOST_NUMBERS 15 /* of a shape */
#define ANY "any"

static const char *const kernels[WA_TUNED_KERNELS] = {
    "local-forward", "matrix-forward", "local-backward", "matrix-backward",
    "linear-cpu",    "linear-local",   "linear-matrix"};
static const char *const variants[WA_ROW_VARIANTS] = {ANY, "dot", "cosine",
                                                      "sliding"};
static const char *const types[WA_ROW_TYPES] = {ANY, "fp32", "half"};
static const char *const score_biases[WA_ROW_SCORE_BIASES] = {
    ANY, "none", "bias", "mask", "regions"};
static const char *const calls[] = {"many", "few"};
/* by their bits */
static const char *const terms[] = {
    "plain",    "norm",          "gelu",          "norm+gelu",
    "residual", "norm+residual", "gelu+residual", "norm+gelu+residual",
    ANY};

/* ---- Shapes ---- */

/* A number without sign and its end; false if there is none. */
static bool read_number(const char **text, uint32_t most, uint32_t *number)
{
    char *end;
    if (**text < '0' || **text > '9')
        return false;
    const unsigned long value = strtoul(*text, &end, 10);
    *text = end;
    *number = (uint32_t)value;
    return value <= most;
}

static size_t read_numbers(const char *text, uint32_t numbers[MOST_NUMBERS])
{
    size_t count = 0;
    for (; count < MOST_NUMBERS; text++) {
        if (!read_number(&text, WA_LARGEST_NUMBER, &numbers[count++]))
            return 0;
        if (*text != ':')
            return *text ? 0 : count;
    }
    return 0;
}

#define NUMBER(field, option, least, most)                                    \
    {#field, option, least, most, offsetof(wa_tuned_shape, MEMBER.field)},
#define NUMBER_OF_KEYS(field, option, least, most)                            \
    {"keys." #field, option, least, most,                                     \
     offsetof(wa_tuned_shape, matrix_backward.keys.field)},

#define MEMBER local_forward
static const wa_shape_field local_forward[] = {WA_LOCAL_SHAPE(NUMBER)};
#undef MEMBER
#define MEMBER matrix_forward
static const wa_shape_field matrix_forward[] = {WA_MATRIX_SHAPE(NUMBER)};
#undef MEMBER
#define MEMBER local_backward.fused
static const wa_shape_field local_backward[] = {WA_GRADIENT_SHAPE(NUMBER){
    "resident", WA_NO_SWITCH, 0, WA_LARGEST_NUMBER,
    offsetof(wa_tuned_shape, local_backward.resident)}};
#undef MEMBER
#define MEMBER matrix_backward
static const wa_shape_field matrix_backward[] = {
    WA_MATRIX_GRADIENT_SHAPE(NUMBER) WA_MATRIX_SHAPE(NUMBER_OF_KEYS)};
#undef MEMBER

#define LINEAR(field, least, most)                                            \
    {                                                                         \
#field, WA_NO_SWITCH, least, most,                                    \
            offsetof(wa_tuned_shape, linear.field)                            \
    }
static const wa_shape_field linear_cpu[] = {
    LINEAR(block_rows, 1, WA_LARGEST_NUMBER),
    LINEAR(block_columns, 1, WA_LARGEST_NUMBER),
    LINEAR(stage_dims, 1, WA_LARGEST_NUMBER),
    LINEAR(lanes, LEAST_LANES, MOST_LANES),
    LINEAR(tile_rows, LEAST_TILE_ROWS, MOST_TILE_ROWS),
    LINEAR(tile_vecs, LEAST_TILE_VECS, MOST_TILE_VECS)};
static const wa_shape_field linear_local[] = {
    LINEAR(block_rows, 1, WA_LARGEST_NUMBER),
    LINEAR(block_columns, 1, WA_LARGEST_NUMBER),
    LINEAR(stage_dims, 1, WA_LARGEST_NUMBER),
    LINEAR(item_rows, LEAST_ITEM_ROWS, MOST_ITEM_ROWS),
    LINEAR(item_columns, LEAST_ITEM_COLUMNS, MOST_ITEM_COLUMNS)};
static const wa_shape_field linear_matrix[] = {
    LINEAR(block_rows, 1, WA_LARGEST_NUMBER),
    LINEAR(block_columns, 1, WA_LARGEST_NUMBER),
    LINEAR(stage_dims, 1, WA_LARGEST_NUMBER),
    LINEAR(stages, LEAST_STAGES, MOST_STAGES),
    LINEAR(row_waves, LEAST_ROW_WAVES, MOST_ROW_WAVES),
    LINEAR(column_waves, LEAST_COLUMN_WAVES, MOST_COLUMN_WAVES),
    LINEAR(dim_waves, LEAST_DIM_WAVES, MOST_DIM_WAVES),
    LINEAR(keeps_weight, 0, 1)};

/* The numbers of a text, in their order; those from `least` on may be missing
 * together, and are 0 then. */
static const struct {
    wa_shape_list list;
    size_t least;
} texts[WA_TUNED_KERNELS] = {
    [WA_LOCAL_FORWARD] = {{local_forward, COUNT(local_forward)},
                          COUNT(local_forward)},
    [WA_MATRIX_FORWARD] = {{matrix_forward, COUNT(matrix_forward)},
                           COUNT(matrix_forward)},
    [WA_LOCAL_BACKWARD] = {{local_backward, COUNT(local_backward)},
                           COUNT(local_backward) - 1},
    [WA_MATRIX_BACKWARD] = {{matrix_backward, COUNT(matrix_backward)},
                            COUNT(matrix_backward) - COUNT(matrix_forward) -
                                1},
    [WA_LINEAR_CPU] = {{linear_cpu, COUNT(linear_cpu)}, COUNT(linear_cpu)},
    [WA_LINEAR_LOCAL] = {{linear_local, COUNT(linear_local)},
                         COUNT(linear_local)},
    [WA_LINEAR_MATRIX] = {{linear_matrix, COUNT(linear_matrix)},
                          COUNT(linear_matrix) - 1},
};
_Static_assert(COUNT(matrix_backward) <= MOST_NUMBERS, "too many numbers");

/* What is of two kernels is there if there are two, what is of weights that
 * stay if they do. */
static bool has_all(wa_tuned_kernel kernel, const wa_tuned_shape *shape)
{
    if (kernel == WA_LINEAR_MATRIX)
        return shape->linear.keeps_weight != 0;
    return kernel != WA_MATRIX_BACKWARD ||
           shape->matrix_backward.block_keys != 0;
}

bool wa_tuned_shape_parse(wa_tuned_kernel kernel, const char *text,
                          wa_tuned_shape *shape)
{
    uint32_t n[MOST_NUMBERS] = {0};
    const wa_shape_list *list = &texts[kernel].list;
    const size_t count = read_numbers(text, n);
    memset(shape, 0, sizeof *shape);
    for (size_t i = 0; i < list->count; i++)
        wa_shape_set_number(list, i, n[i], shape);
    return count == texts[kernel].least ||
           (count == list->count && has_all(kernel, shape));
}

void wa_tuned_shape_print(wa_tuned_kernel kernel, const wa_tuned_shape *shape,
                          char *text, size_t size)
{
    const wa_shape_list *list = &texts[kernel].list;
    const size_t count =
        has_all(kernel, shape) ? list->count : texts[kernel].least;
    text[0] = 0;
    for (size_t i = 0; i < count; i++)
        wa_append(text, size, "%s%u", i ? ":" : "",
                  wa_shape_number(list, i, shape));
}

/* ---- Rows ---- */

/* What is left of a line, and the word before it. */
typedef struct reader {
    const char *text, *end;
    char word[WA_ROW_DEVICE_SIZE];
} reader;

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/* False if there is no word, or one that is too long. Names of devices stand
 * in quotes, which become no part of the word. */
static bool next_word(reader *from, bool *quoted)
{
    while (from->text < from->end && is_space(*from->text))
        from->text++;
    *quoted = from->text < from->end && *from->text == '"';
    const char *start = from->text += *quoted;
    while (from->text < from->end &&
           (*quoted ? *from->text != '"' : !is_space(*from->text)))
        from->text++;
    const size_t length = (size_t)(from->text - start);
    if (length == 0 || length >= sizeof from->word ||
        (*quoted && from->text == from->end))
        return false;
    memcpy(from->word, start, length);
    from->word[length] = 0;
    from->text += *quoted;
    return true;
}

static bool read_name(reader *from, const char *const *names, size_t count,
                      uint32_t *index)
{
    bool quoted;
    if (!next_word(from, &quoted) || quoted)
        return false;
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], from->word) == 0) {
            *index = (uint32_t)i;
            return true;
        }
    return false;
}

/* 0: "any". */
static bool read_size(reader *from, bool may_be_any, uint32_t *number)
{
    bool quoted;
    const char *text = from->word;
    if (!next_word(from, &quoted) || quoted)
        return false;
    *number = 0;
    if (may_be_any && strcmp(text, ANY) == 0)
        return true;
    return read_number(&text, 0x7fffffff, number) && !*text && *number > 0;
}

/* A vendor and a capability, or a name in quotes. */
static bool read_device(reader *from, wa_tuned_row *row)
{
    bool quoted;
    const char *text = from->word;
    if (!next_word(from, &quoted))
        return false;
    if (quoted) {
        memcpy(row->device, from->word, sizeof row->device);
        return true;
    }
    row->vendor = WA_VENDOR_OTHER;
    for (wa_vendor v = WA_VENDOR_OTHER + 1; v <= WA_VENDOR_QUALCOMM; v++)
        if (strcmp(wa_vendor_name(v), from->word) == 0)
            row->vendor = v;
    return row->vendor != WA_VENDOR_OTHER && next_word(from, &quoted) &&
           !quoted && read_number(&text, 1000, &row->least_capability) &&
           !*text;
}

/* What a row of attention has between the device and the shape. */
static const char *read_problem(reader *from, wa_tuned_row *row)
{
    uint32_t variant, type, score_bias;
    if (!read_name(from, variants, COUNT(variants), &variant))
        return "no variant";
    row->variant = (wa_row_variant)variant;
    if (!read_name(from, types, COUNT(types), &type))
        return "no type: any, fp32 or half";
    row->type = (wa_row_type)type;
    if (!read_name(from, score_biases, COUNT(score_biases), &score_bias))
        return "no score bias: any, none, bias, mask or regions";
    row->score_bias = (wa_row_score_bias)score_bias;
    if (!read_size(from, true, &row->queries) ||
        !read_size(from, true, &row->keys) ||
        !read_size(from, false, &row->head_dim))
        return "no numbers of queries, keys and channels";
    return NULL;
}

/* And one of a linear layer. */
static const char *read_layer(reader *from, wa_tuned_row *row)
{
    uint32_t type, few;
    if (!read_name(from, types, COUNT(types), &type))
        return "no type: any, fp32 or half";
    row->type = (wa_row_type)type;
    if (!read_name(from, calls, COUNT(calls), &few))
        return "no calls: many or few";
    row->linear.few = few != 0;
    if (!read_name(from, terms, COUNT(terms), &row->linear.terms))
        return "no terms: any, plain, or norm, gelu and residual in that "
               "order "
               "with + between them";
    if (!read_size(from, true, &row->linear.in) ||
        !read_size(from, true, &row->linear.out))
        return "no numbers of features";
    return NULL;
}

const char *wa_tuned_row_parse(const char *line, size_t length,
                               wa_tuned_row *row)
{
    reader from = {line, line + length, ""};
    uint32_t kernel;
    bool quoted;
    memset(row, 0, sizeof *row);
    if (!read_name(&from, kernels, COUNT(kernels), &kernel))
        return "it starts with no kernel that has rows";
    row->kernel = (wa_tuned_kernel)kernel;
    if (!read_device(&from, row))
        return "no vendor with a capability, and no device's name in quotes";
    const char *wrong = row->kernel >= WA_LINEAR_CPU
                            ? read_layer(&from, row)
                            : read_problem(&from, row);
    if (wrong)
        return wrong;
    if (!next_word(&from, &quoted) || quoted ||
        !wa_tuned_shape_parse(row->kernel, from.word, &row->shape))
        return "no shape of that kernel";
    return next_word(&from, &quoted) ? "more than a row" : NULL;
}

static void print_size(uint32_t number, char text[16])
{
    if (number)
        snprintf(text, 16, "%u", number);
    else
        snprintf(text, 16, "%s", ANY);
}

void wa_tuned_row_print(const wa_tuned_row *row, char *text, size_t size)
{
    char device[WA_ROW_DEVICE_SIZE + 16], queries[16], keys[16], shape[128];
    if (row->device[0])
        snprintf(device, sizeof device, "\"%s\"", row->device);
    else
        snprintf(device, sizeof device, "%s %u", wa_vendor_name(row->vendor),
                 row->least_capability);
    const bool is_linear = row->kernel >= WA_LINEAR_CPU;
    print_size(is_linear ? row->linear.in : row->queries, queries);
    print_size(is_linear ? row->linear.out : row->keys, keys);
    wa_tuned_shape_print(row->kernel, &row->shape, shape, sizeof shape);
    if (is_linear)
        snprintf(text, size, "%s %s %s %s %s %s %s %s", kernels[row->kernel],
                 device, types[row->type], calls[row->linear.few],
                 terms[row->linear.terms], queries, keys, shape);
    else
        snprintf(text, size, "%s %s %s %s %s %s %s %u %s",
                 kernels[row->kernel], device, variants[row->variant],
                 types[row->type], score_biases[row->score_bias], queries,
                 keys, row->head_dim, shape);
}

/* ---- What a row is for ---- */

static wa_row_variant variant_of(const wa_problem *problem)
{
    return problem->variant == WINATTN_DOT      ? WA_ROW_DOT
           : problem->variant == WINATTN_COSINE ? WA_ROW_COSINE
                                                : WA_ROW_SLIDING;
}

static wa_row_type type_of(const wa_problem *problem)
{
    return problem->dtype == WINATTN_FP32 ? WA_ROW_FP32 : WA_ROW_HALF;
}

static wa_row_score_bias score_bias_of(const wa_problem *problem)
{
    return MASK_HAS_REGIONS(problem->mask)      ? WA_ROW_REGIONS
           : problem->mask != MASK_NONE         ? WA_ROW_MASK
           : problem->bias != WINATTN_BIAS_NONE ? WA_ROW_BIAS
                                                : WA_ROW_NO_SCORE_BIAS;
}

/* A row for the device. */
static void write_device(wa_tuned_row *row, const wa_device *device)
{
    if (device->compute_capability) {
        row->vendor = device->vendor;
        row->least_capability = device->compute_capability;
    } else {
        snprintf(row->device, sizeof row->device, "%s", device->name);
    }
}

static bool fits_device(const wa_tuned_row *row, const wa_device *device)
{
    return row->device[0]
               ? strcmp(row->device, device->name) == 0
               : row->vendor == device->vendor &&
                     row->least_capability <= device->compute_capability;
}

wa_tuned_row wa_tuned_row_of(wa_tuned_kernel kernel, const wa_problem *problem,
                             const wa_device *device,
                             const wa_tuned_shape *shape)
{
    const bool sliding = problem->variant == WINATTN_SLIDING;
    wa_tuned_row row = {.kernel = kernel,
                        .variant = variant_of(problem),
                        .type = type_of(problem),
                        .score_bias = score_bias_of(problem),
                        .queries = sliding ? 0 : problem->queries,
                        .keys = sliding ? 0 : problem->keys,
                        .head_dim = problem->head_dim,
                        .shape = *shape};
    write_device(&row, device);
    return row;
}

bool wa_tuned_row_fits(const wa_tuned_row *row, wa_tuned_kernel kernel,
                       const wa_problem *problem, const wa_device *device)
{
    const wa_row_variant variant = variant_of(problem);
    const bool fits_variant = row->variant == WA_ROW_WINDOWS
                                  ? variant != WA_ROW_SLIDING
                                  : variant == row->variant;
    return row->kernel == kernel && fits_device(row, device) && fits_variant &&
           (row->type == WA_ROW_ALL_TYPES || row->type == type_of(problem)) &&
           (row->score_bias == WA_ROW_ANY_SCORE_BIAS ||
            row->score_bias == score_bias_of(problem)) &&
           (row->queries == 0 || row->queries == problem->queries) &&
           (row->keys == 0 || row->keys == problem->keys) &&
           row->head_dim == problem->head_dim;
}

wa_tuned_row wa_linear_row_of(wa_tuned_kernel kernel, const wa_linear_key *key,
                              const wa_device *device,
                              const wa_linear_shape *shape)
{
    wa_tuned_row row = {.kernel = kernel,
                        .type = key->half ? WA_ROW_HALF : WA_ROW_FP32,
                        .linear = *key,
                        .shape = {.linear = *shape}};
    row.linear.half = false;
    write_device(&row, device);
    return row;
}

bool wa_linear_row_fits(const wa_tuned_row *row, wa_tuned_kernel kernel,
                        const wa_linear_key *key, const wa_device *device)
{
    const wa_linear_key *l = &row->linear;
    return row->kernel == kernel && fits_device(row, device) &&
           (row->type == WA_ROW_ALL_TYPES ||
            row->type == (key->half ? WA_ROW_HALF : WA_ROW_FP32)) &&
           l->few == key->few &&
           (l->terms == WA_LINEAR_ANY_TERMS || l->terms == key->terms) &&
           (l->in == 0 || l->in == key->in) &&
           (l->out == 0 || l->out == key->out);
}

bool wa_tuned_rows_meet(const wa_tuned_row *a, const wa_tuned_row *b)
{
    return a->kernel == b->kernel && a->vendor == b->vendor &&
           a->least_capability == b->least_capability &&
           strcmp(a->device, b->device) == 0 && a->variant == b->variant &&
           a->type == b->type && a->score_bias == b->score_bias &&
           a->queries == b->queries && a->keys == b->keys &&
           a->head_dim == b->head_dim && a->linear.few == b->linear.few &&
           a->linear.terms == b->linear.terms &&
           a->linear.in == b->linear.in && a->linear.out == b->linear.out;
}

uint64_t wa_tuned_row_hash(const wa_tuned_row *row)
{
    const uint32_t numbers[] = {
        (uint32_t)row->kernel, (uint32_t)row->vendor,
        row->least_capability, (uint32_t)row->variant,
        (uint32_t)row->type,   (uint32_t)row->score_bias,
        row->queries,          row->keys,
        row->head_dim,         row->linear.few,
        row->linear.terms,     row->linear.in,
        row->linear.out};
    wa_hash hash = wa_hash_start();
    wa_hash_add(&hash, numbers, sizeof numbers);
    wa_hash_add(&hash, row->device, strlen(row->device));
    return wa_hash_end(hash).a;
}
