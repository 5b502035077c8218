/* SPDX-License-Identifier: Apache-2.0
 * Rows of the tuning table from text and to text. */
#include "plan/tuning_row.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
/* A shape has nothing but numbers, at most so many. */
#define NUMBERS(shape) (sizeof(shape) / sizeof(uint32_t))
#define MOST_NUMBERS NUMBERS(wa_matrix_gradient_shape)

static const char *const kernels[WA_TUNED_KERNELS] = {
    "local-forward", "matrix-forward", "local-backward", "matrix-backward"};

/* What a row of attention has between the device and the shape. */
static const char *const variants[] = {WA_ROW_ANY, "dot", "cosine", "sliding",
                                       NULL};
static const char *const types[] = {WA_ROW_ANY, "fp32", "half", NULL};
static const char *const score_biases[] = {WA_ROW_ANY, "none",    "bias",
                                           "mask",     "regions", NULL};
static const char *const any[] = {WA_ROW_ANY, NULL};
static const char *const none[] = {NULL};
#define NO_NUMBERS "no numbers of queries, keys and channels"
static const wa_row_word columns[] = {
    {variants, false, "no variant"},
    {types, false, "no type: any, fp32 or half"},
    {score_biases, false, "no score bias: any, none, bias, mask or regions"},
    {any, true, NO_NUMBERS},
    {any, true, NO_NUMBERS},
    {none, true, NO_NUMBERS}};

const char *wa_tuned_kernel_name(wa_tuned_kernel kernel)
{
    return kernels[kernel];
}

/* ---- Numbers ---- */

/* A number without sign, behind which the text moves; false if there is none,
 * or a larger one. */
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

size_t wa_read_numbers(const char *text, size_t most, uint32_t *numbers)
{
    for (size_t count = 0; count < most; text++) {
        if (!read_number(&text, WA_LARGEST_NUMBER, &numbers[count++]))
            return 0;
        if (*text != ':')
            return *text && *text != ' ' ? 0 : count;
    }
    return 0;
}

/* ---- Words ---- */

static bool is_word(const wa_row_word *word, const char *text, size_t length)
{
    uint32_t number;
    for (const char *const *name = word->names; *name; name++)
        if (strlen(*name) == length && memcmp(*name, text, length) == 0)
            return true;
    const char *at = text;
    return word->is_number && read_number(&at, 0x7fffffff, &number) &&
           at == text + length && number > 0;
}

/* Behind a word and the space after it. */
static const char *next_of(const char *text)
{
    text += strcspn(text, " ");
    return text + (*text == ' ');
}

const char *wa_row_check(const wa_row_word *words, size_t count,
                         const char *text, const char **shape)
{
    for (size_t i = 0; i < count; i++, text = next_of(text))
        if (!is_word(&words[i], text, strcspn(text, " ")))
            return words[i].why;
    *shape = text;
    return NULL;
}

bool wa_row_fits(const char *row, const char *own)
{
    for (; *own; row = next_of(row), own = next_of(own)) {
        const size_t length = strcspn(row, " ");
        if (!is_word(&(wa_row_word){any, false, NULL}, row, length) &&
            (length != strcspn(own, " ") || memcmp(row, own, length) != 0))
            return false;
    }
    return true;
}

/* ---- Shapes ---- */

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
    const size_t all = counts[kernel].all,
                 count = wa_read_numbers(text, MOST_NUMBERS, read);
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

/* All words that are left. Numbers lose zeros in front; what is quoted keeps
 * its quotes, and so is no word that there is. */
static bool read_words(reader *from, wa_tuned_row *row)
{
    bool quoted;
    while (next_word(from, &quoted)) {
        const char *word = from->word, *quote = quoted ? "\"" : "";
        while (word[0] == '0' && word[1] >= '0' && word[1] <= '9')
            word++;
        wa_append(row->words, sizeof row->words, "%s%s%s%s",
                  row->words[0] ? " " : "", quote, word, quote);
    }
    return strlen(row->words) + 1 < sizeof row->words;
}

/* It names a tier last, where winattn's own kernels name it first. */
static bool is_of_sister(const char *kernel)
{
    static const char *const tiers[] = {"-cpu", "-local", "-matrix"};
    const size_t length = strlen(kernel);
    for (size_t i = 0; i < COUNT(tiers); i++) {
        const size_t tail = strlen(tiers[i]);
        if (length > tail && strcmp(kernel + length - tail, tiers[i]) == 0)
            return true;
    }
    return false;
}

const char *wa_tuned_row_parse(const char *line, size_t length,
                               wa_tuned_row *row)
{
    reader from = {line, line + length, ""};
    uint32_t numbers[MOST_NUMBERS];
    wa_tuned_shape shape;
    const char *last = "";
    size_t kernel = 0;
    bool quoted;
    memset(row, 0, sizeof *row);
    if (next_word(&from, &quoted) && !quoted)
        memcpy(row->kernel, from.word, sizeof row->kernel);
    while (kernel < COUNT(kernels) &&
           strcmp(kernels[kernel], row->kernel) != 0)
        kernel++;
    if (kernel == COUNT(kernels) && !is_of_sister(row->kernel))
        return "it starts with no kernel that has rows";
    if (!read_device(&from, row))
        return "no vendor with a capability, and no device's name in quotes";
    if (!read_words(&from, row))
        return "its words are too long";
    if (kernel == COUNT(kernels)) {
        last = strrchr(row->words, ' ');
        return last && wa_read_numbers(last + 1, MOST_NUMBERS, numbers)
                   ? NULL
                   : "no shape";
    }
    const char *wrong =
        wa_row_check(columns, COUNT(columns), row->words, &last);
    if (wrong)
        return wrong;
    if (!wa_tuned_shape_parse((wa_tuned_kernel)kernel, last, &shape))
        return "no shape of that kernel";
    return strchr(last, ' ') ? "more than a row" : NULL;
}

void wa_tuned_row_print(const wa_tuned_row *row, char *text, size_t size)
{
    if (row->device[0])
        snprintf(text, size, "%s \"%s\" %s", row->kernel, row->device,
                 row->words);
    else
        snprintf(text, size, "%s %s %u %s", row->kernel,
                 wa_vendor_name(row->vendor), row->least_capability,
                 row->words);
}

/* ---- What a row is for ---- */

wa_tuned_row wa_tuned_row_of(const char *kernel, const wa_device *device,
                             const char *words)
{
    wa_tuned_row row = {.vendor = device->vendor,
                        .least_capability = device->compute_capability};
    snprintf(row.kernel, sizeof row.kernel, "%s", kernel);
    snprintf(row.words, sizeof row.words, "%s", words);
    if (!device->compute_capability)
        snprintf(row.device, sizeof row.device, "%s", device->name);
    return row;
}

bool wa_tuned_row_fits(const wa_tuned_row *row, const char *kernel,
                       const wa_device *device)
{
    return strcmp(row->kernel, kernel) == 0 &&
           (row->device[0]
                ? strcmp(row->device, device->name) == 0
                : row->vendor == device->vendor &&
                      row->least_capability <= device->compute_capability);
}

/* Words of a problem. any_size: as rows of sliding problems have them. */
static void write_words(const wa_problem *problem, bool any_size, char *text,
                        size_t size)
{
    const char *variant = problem->variant == WINATTN_DOT      ? "dot"
                          : problem->variant == WINATTN_COSINE ? "cosine"
                                                               : "sliding";
    const char *score_bias = MASK_HAS_REGIONS(problem->mask)      ? "regions"
                             : problem->mask != MASK_NONE         ? "mask"
                             : problem->bias != WINATTN_BIAS_NONE ? "bias"
                                                                  : "none";
    text[0] = 0;
    wa_append(text, size, "%s %s %s ", variant,
              problem->dtype == WINATTN_FP32 ? "fp32" : "half", score_bias);
    if (any_size)
        wa_append(text, size, WA_ROW_ANY " " WA_ROW_ANY);
    else
        wa_append(text, size, "%u %u", problem->queries, problem->keys);
    wa_append(text, size, " %u", problem->head_dim);
}

void wa_tuned_words(wa_tuned_kernel kernel, const wa_problem *problem,
                    const wa_tuned_shape *shape, char *text, size_t size)
{
    char numbers[128];
    wa_tuned_shape_print(kernel, shape, numbers, sizeof numbers);
    write_words(problem, problem->variant == WINATTN_SLIDING, text, size);
    wa_append(text, size, " %s", numbers);
}

bool wa_tuned_words_fit(const char *words, const wa_problem *problem)
{
    char own[WA_ROW_WORDS_SIZE];
    write_words(problem, false, own, sizeof own);
    /* "any" is no sliding problem */
    return wa_row_fits(words, own) &&
           (problem->variant != WINATTN_SLIDING || words[0] == 's');
}

/* What is in front of the shape. */
static size_t words_length(const wa_tuned_row *row)
{
    const char *shape = strrchr(row->words, ' ');
    return shape ? (size_t)(shape - row->words) : 0;
}

int wa_tuned_rows_compare(const wa_tuned_row *a, const wa_tuned_row *b)
{
    const size_t length_a = words_length(a), length_b = words_length(b);
    const size_t least = length_a < length_b ? length_a : length_b;
    int order = strcmp(a->kernel, b->kernel);
    if (order == 0)
        order = strcmp(a->device, b->device);
    if (order == 0)
        order = (int)a->vendor - (int)b->vendor;
    if (order == 0)
        order = (int)a->least_capability - (int)b->least_capability;
    if (order == 0)
        order = memcmp(a->words, b->words, least);
    return order ? order : (length_a > length_b) - (length_a < length_b);
}
