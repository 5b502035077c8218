/* SPDX-License-Identifier: Apache-2.0
 * Rows of the tuning table from text and to text. */
#include "plan/tuning_row.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "program/cache_record.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
/* A shape has nothing but numbers, at most so many. */
#define NUMBERS(shape) (sizeof(shape) / sizeof(uint32_t))
#define MOST_NUMBERS NUMBERS(wa_matrix_gradient_shape)
#define ANY "any"

static const char *const kernels[WA_TUNED_KERNELS] = {
    "local-forward", "matrix-forward", "local-backward", "matrix-backward"};
static const char *const tiers[] = {"-cpu", "-local", "-matrix"};
static const char *const variants[WA_ROW_VARIANTS] = {ANY, "dot", "cosine",
                                                      "sliding"};
static const char *const types[WA_ROW_TYPES] = {ANY, "fp32", "half"};
static const char *const score_biases[WA_ROW_SCORE_BIASES] = {
    ANY, "none", "bias", "mask", "regions"};

/* ---- Shapes ---- */

bool wa_read_number(const char **text, uint32_t most, uint32_t *number)
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
        if (!wa_read_number(&text, WA_LARGEST_NUMBER, &numbers[count++]))
            return 0;
        if (*text != ':')
            return *text ? 0 : count;
    }
    return 0;
}

/* How many numbers the text of a shape has; those from `least` on may be
 * missing together, and are 0 then. */
static const struct {
    size_t all, least;
} counts[WA_TUNED_KERNELS] = {
    [WA_LOCAL_FORWARD] = {NUMBERS(wa_local_shape), NUMBERS(wa_local_shape)},
    [WA_MATRIX_FORWARD] = {NUMBERS(wa_matrix_shape), NUMBERS(wa_matrix_shape)},
    [WA_LOCAL_BACKWARD] = {NUMBERS(wa_tuned_gradient_shape),
                           NUMBERS(wa_gradient_shape)},
    [WA_MATRIX_BACKWARD] = {MOST_NUMBERS, NUMBERS(wa_matrix_shape)},
};

/* Where a number of a text is in the shape. The keys of a block stand behind
 * what one kernel for all gradients has, too. */
static size_t place_of(wa_tuned_kernel kernel, size_t number)
{
    const size_t keys = NUMBERS(wa_matrix_shape);
    if (kernel != WA_MATRIX_BACKWARD || number == 0 || number > keys)
        return number;
    return number == keys ? 1 : number + 1;
}

/* What is of two kernels is there if there are two. */
static bool has_all(wa_tuned_kernel kernel, const wa_tuned_shape *shape)
{
    return kernel != WA_MATRIX_BACKWARD ||
           shape->matrix_backward.rows.block_keys != 0;
}

bool wa_tuned_shape_parse(wa_tuned_kernel kernel, const char *text,
                          wa_tuned_shape *shape)
{
    uint32_t read[MOST_NUMBERS] = {0}, numbers[MOST_NUMBERS];
    const size_t all = counts[kernel].all, count = read_numbers(text, read);
    memset(shape, 0, sizeof *shape);
    for (size_t i = 0; i < all; i++)
        numbers[place_of(kernel, i)] = read[i];
    memcpy(shape, numbers, all * sizeof *numbers);
    return count == counts[kernel].least ||
           (count == all && has_all(kernel, shape));
}

void wa_tuned_shape_print(wa_tuned_kernel kernel, const wa_tuned_shape *shape,
                          char *text, size_t size)
{
    uint32_t numbers[MOST_NUMBERS];
    const size_t count =
        has_all(kernel, shape) ? counts[kernel].all : counts[kernel].least;
    memcpy(numbers, shape, counts[kernel].all * sizeof *numbers);
    text[0] = 0;
    for (size_t i = 0; i < count; i++)
        wa_append(text, size, "%s%u", i ? ":" : "",
                  numbers[place_of(kernel, i)]);
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
    return wa_read_number(&text, 0x7fffffff, number) && !*text && *number > 0;
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
           !quoted && wa_read_number(&text, 1000, &row->least_capability) &&
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

/* And one of the sister's kernels: words that end with a shape. */
static const char *read_sisters(reader *from, const char *kernel,
                                wa_tuned_row *row)
{
    uint32_t numbers[MOST_NUMBERS];
    bool quoted;
    size_t words = 0;
    wa_append(row->sister, sizeof row->sister, "%s", kernel);
    for (; next_word(from, &quoted) && !quoted; words++)
        wa_append(row->sister, sizeof row->sister, " %s", from->word);
    if (strlen(row->sister) + 1 == sizeof row->sister)
        return "its words are too long";
    return words < 2 || quoted || !read_numbers(from->word, numbers)
               ? "no shape"
               : NULL;
}

/* It names a tier last, where winattn's own kernels name it first. */
static bool is_of_sister(const char *kernel)
{
    const size_t length = strlen(kernel);
    for (size_t i = 0; i < COUNT(tiers); i++) {
        const size_t tail = strlen(tiers[i]);
        if (length > tail && strcmp(kernel + length - tail, tiers[i]) == 0)
            return length < WA_ROW_SISTER_SIZE / 2;
    }
    return false;
}

const char *wa_tuned_row_parse(const char *line, size_t length,
                               wa_tuned_row *row)
{
    reader from = {line, line + length, ""};
    char name[WA_ROW_DEVICE_SIZE];
    uint32_t kernel = WA_TUNED_KERNELS;
    bool quoted;
    memset(row, 0, sizeof *row);
    const bool is_known = read_name(&from, kernels, COUNT(kernels), &kernel);
    memcpy(name, from.word, sizeof name);
    if (!is_known && !is_of_sister(name))
        return "it starts with no kernel that has rows";
    row->kernel = is_known ? (wa_tuned_kernel)kernel : WA_TUNED_KERNELS;
    if (!read_device(&from, row))
        return "no vendor with a capability, and no device's name in quotes";
    if (!is_known)
        return read_sisters(&from, name, row);
    const char *wrong = read_problem(&from, row);
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

/* Its device, as rows have it. */
static void print_device(const wa_tuned_row *row, char *text, size_t size)
{
    if (row->device[0])
        snprintf(text, size, "\"%s\"", row->device);
    else
        snprintf(text, size, "%s %u", wa_vendor_name(row->vendor),
                 row->least_capability);
}

void wa_tuned_row_print(const wa_tuned_row *row, char *text, size_t size)
{
    char device[WA_ROW_DEVICE_SIZE + 16], queries[16], keys[16], shape[128];
    const char *words = strchr(row->sister, ' ');
    print_device(row, device, sizeof device);
    if (words) {
        snprintf(text, size, "%.*s %s%s", (int)(words - row->sister),
                 row->sister, device, words);
        return;
    }
    print_size(row->queries, queries);
    print_size(row->keys, keys);
    wa_tuned_shape_print(row->kernel, &row->shape, shape, sizeof shape);
    snprintf(text, size, "%s %s %s %s %s %s %s %u %s", kernels[row->kernel],
             device, variants[row->variant], types[row->type],
             score_biases[row->score_bias], queries, keys, row->head_dim,
             shape);
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

void wa_tuned_device_print(const wa_device *device, char *text, size_t size)
{
    wa_tuned_row row = {.kernel = WA_TUNED_KERNELS};
    write_device(&row, device);
    print_device(&row, text, size);
}

const char *wa_tuned_row_of_sister(const wa_tuned_row *row, const char *kernel,
                                   const wa_device *device)
{
    const size_t length = strlen(kernel);
    return row->kernel == WA_TUNED_KERNELS && fits_device(row, device) &&
                   strncmp(row->sister, kernel, length) == 0 &&
                   row->sister[length] == ' '
               ? row->sister + length + 1
               : NULL;
}

/* Of a sister's row what is in front of the shape. */
static size_t sister_words(const wa_tuned_row *row)
{
    const char *shape = strrchr(row->sister, ' ');
    return shape ? (size_t)(shape - row->sister) : 0;
}

bool wa_tuned_rows_meet(const wa_tuned_row *a, const wa_tuned_row *b)
{
    return a->kernel == b->kernel && a->vendor == b->vendor &&
           a->least_capability == b->least_capability &&
           strcmp(a->device, b->device) == 0 && a->variant == b->variant &&
           a->type == b->type && a->score_bias == b->score_bias &&
           a->queries == b->queries && a->keys == b->keys &&
           a->head_dim == b->head_dim && sister_words(a) == sister_words(b) &&
           memcmp(a->sister, b->sister, sister_words(a)) == 0;
}

uint64_t wa_tuned_row_hash(const wa_tuned_row *row)
{
    const uint32_t numbers[] = {
        (uint32_t)row->kernel, (uint32_t)row->vendor,
        row->least_capability, (uint32_t)row->variant,
        (uint32_t)row->type,   (uint32_t)row->score_bias,
        row->queries,          row->keys,
        row->head_dim};
    wa_hash hash = wa_hash_start();
    wa_hash_add(&hash, numbers, sizeof numbers);
    wa_hash_add(&hash, row->device, strlen(row->device));
    wa_hash_add(&hash, row->sister, sister_words(row));
    return wa_hash_end(hash).a;
}
