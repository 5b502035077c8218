/* SPDX-License-Identifier: Apache-2.0
 * The text form of a case, and its descriptor. */
#include "cases.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const variants[] = {"dot", "cosine", "sliding", NULL};
static const char *const dtypes[] = {"fp32", "fp16", "bf16", NULL};
static const char *const tiers[] = {"auto", "cpu", "local", "matrix", NULL};
#define WORD(term, word, mask) word,
static const char *const terms[] = {CASE_TERMS(WORD) NULL};
#undef WORD
#define MASK_OF(term, word, mask) mask,
static const winattn_mask term_masks[] = {CASE_TERMS(MASK_OF)};
#undef MASK_OF
static const char *const paddings[] = {"values", "hidden", NULL};
static const char *const layouts[] = {
    "contiguous", "tokens",  "packed",    "interleaved", "padded",
    "aligned",    "strided", "broadcast", "misaligned",  NULL};
static const char *const datas[] = {
    "normal", "tiny",     "huge",  "masked", "lowest",   "nan",   "zero",
    "rising", "swinging", "alone", "common", "dominant", "steep", NULL};

static const char *const passes[] = {"forward", "backward", NULL};

typedef struct field {
    const char *name;
    size_t offset;
    const char *const *names; /* of an enum's values */
    bool is_double;
    bool has_axes; /* a number for each, as in 30x45 */
} field;

#define FIELD(name, ...)                                                      \
    {                                                                         \
#name, offsetof(test_case, name), __VA_ARGS__                         \
    }
#define INT(name) FIELD(name, .names = NULL)
#define DOUBLE(name) FIELD(name, .is_double = true)
#define ENUM(name, words) FIELD(name, .names = words)
#define AXES(name) FIELD(name, .has_axes = true)
static const field fields[] = {
    ENUM(variant, variants),
    ENUM(dtype, dtypes),
    ENUM(tier, tiers),
    INT(tf32),
    ENUM(pass, passes),
    INT(outputs),
    INT(accumulate),
    INT(d_lse),
    INT(given),
    INT(windows),
    INT(heads),
    INT(kv_heads),
    INT(queries),
    INT(keys),
    INT(dim),
    INT(grid),
    INT(batch),
    AXES(size),
    AXES(window),
    AXES(shift),
    AXES(periodic),
    ENUM(padding, paddings),
    INT(roll_first),
    INT(shift_all),
    INT(pads),
    ENUM(bias, terms),
    AXES(table),
    INT(sliced),
    INT(entries),
    ENUM(mask, terms),
    INT(mask_windows),
    ENUM(layout, layouts),
    ENUM(data, datas),
    INT(lse),
    DOUBLE(scale),
    DOUBLE(logit_scale),
    DOUBLE(region_value),
    INT(block),
    INT(first_block),
    INT(window_blocks),
    INT(sink),
    INT(sink_in_window),
    INT(query_offset),
    INT(seed),
};
#define FIELDS (sizeof fields / sizeof *fields)

static int *int_of(test_case *c, const field *f)
{
    return (int *)(void *)((char *)c + f->offset);
}

static double *double_of(test_case *c, const field *f)
{
    return (double *)(void *)((char *)c + f->offset);
}

test_case case_default(void)
{
    const test_case c = {.windows = 2,
                         .heads = 2,
                         .kv_heads = 2,
                         .queries = 49,
                         .keys = 49,
                         .dim = 32,
                         .lse = 1,
                         .outputs = 127,
                         .batch = 1,
                         .logit_scale = NAN,
                         .region_value = NAN,
                         .seed = 1};
    return c;
}

/* A decimal number that an int holds; *end becomes what is behind it. */
static bool parse_int(const char *value, const char **end, int *number)
{
    char *behind;
    errno = 0;
    const long read = strtol(value, &behind, 10);
    *end = behind;
    *number = (int)read;
    return behind != value && errno == 0 && read >= INT_MIN && read <= INT_MAX;
}

/* Also nan, inf and -inf, but neither hexadecimal nor too large for double. */
static bool parse_double(const char *value, double *number)
{
    char *end;
    *number = strtod(value, &end);
    return *value != 0 && *end == 0 && !strpbrk(value, "xX") &&
           !(isinf(*number) && strpbrk(value, "0123456789"));
}

static bool parse_value(const field *f, const char *value, test_case *c)
{
    if (f->names) {
        for (int i = 0; f->names[i]; i++)
            if (strcmp(f->names[i], value) == 0) {
                *int_of(c, f) = i;
                return true;
            }
        return false;
    }
    if (f->is_double)
        return parse_double(value, double_of(c, f));
    int *to = int_of(c, f);
    for (int axis = 0; f->has_axes && axis < WINATTN_AXES; axis++)
        to[axis] = 0;
    for (int axis = 0; axis < (f->has_axes ? WINATTN_AXES : 1); axis++) {
        if (!parse_int(value, &value, to++))
            return false;
        if (*value != 'x')
            return *value == 0;
        value++;
    }
    return false;
}

/* Along an axis, padded. */
static long long grid_windows(const test_case *c, int axis)
{
    return ((long long)c->size[axis] + c->window[axis] - 1) / c->window[axis];
}

/* What follows from the fields and would be more than an int holds; NULL:
 * nothing. */
static const char *find_overflow(const test_case *c)
{
    double windows = c->batch, tokens = 1, entries = 1;
    double most[3] = {0, 0, 0}; /* on the way, too */
    for (int axis = 0; axis < c->grid; axis++) {
        windows *= (double)grid_windows(c, axis);
        tokens *= c->window[axis];
        most[0] = fmax(most[0], fabs(windows));
        most[1] = fmax(most[1], tokens);
    }
    for (int axis = 0; case_has_table(c) && axis < WINATTN_AXES; axis++)
        if (case_table_window(c, axis)) {
            entries *= 2.0 * case_table_window(c, axis) - 1;
            most[2] = fmax(most[2], fabs(entries));
        }
    return most[0] > INT_MAX   ? "the grid's windows"
           : most[1] > INT_MAX ? "a window's tokens"
           : most[2] > INT_MAX ? "the table's entries"
                               : NULL;
}

void case_derive(test_case *c)
{
    if (c->grid == 0)
        return;
    c->windows = c->batch;
    c->queries = 1;
    for (int axis = 0; axis < c->grid; axis++) {
        c->windows *= (int)grid_windows(c, axis);
        c->queries *= c->window[axis];
    }
    c->keys = c->queries;
}

bool case_has_table(const test_case *c)
{
    return c->bias == TERM_TABLE_SAME || c->bias == TERM_TABLE_FP32;
}

int case_table_window(const test_case *c, int axis)
{
    return c->table[0] ? c->table[axis] : c->window[axis];
}

int case_table_entries(const test_case *c)
{
    int entries = 1;
    if (c->entries)
        return c->entries;
    for (int axis = 0; axis < WINATTN_AXES; axis++)
        if (case_table_window(c, axis))
            entries *= 2 * case_table_window(c, axis) - 1;
    return entries;
}

bool case_has_common_parts(const test_case *c)
{
    return c->data == DATA_COMMON || c->data == DATA_DOMINANT ||
           c->data == DATA_STEEP;
}

bool case_is_strict(const test_case *c)
{
    return c->variant != WINATTN_COSINE && case_has_common_parts(c);
}

int case_tier(const char *name)
{
    for (int i = 0; tiers[i]; i++)
        if (strcmp(tiers[i], name) == 0)
            return i;
    return -1;
}

bool case_parse(const char *text, test_case *c, char bad[64])
{
    char word[64];
    int length;
    const int heads = c->heads, queries = c->queries;
    bool sets_kv_heads = false, sets_keys = false;
    while (sscanf(text, " %63s%n", word, &length) == 1) {
        char *equals = strchr(word, '=');
        bool known = false;
        text += length;
        if (equals) {
            *equals = 0;
            for (size_t i = 0; i < FIELDS; i++)
                if (strcmp(fields[i].name, word) == 0)
                    known = parse_value(&fields[i], equals + 1, c);
            sets_kv_heads = sets_kv_heads || strcmp(word, "kv_heads") == 0;
            sets_keys = sets_keys || strcmp(word, "keys") == 0;
            *equals = '=';
        }
        if (!known) {
            if (bad)
                snprintf(bad, 64, "%s", word);
            return false;
        }
    }
    if (c->heads != heads && !sets_kv_heads)
        c->kv_heads = c->heads;
    if (c->queries != queries && !sets_keys)
        c->keys = c->queries;
    for (int axis = 0; axis < c->grid; axis++)
        if (c->grid > WINATTN_AXES || c->window[axis] < 1) {
            if (bad)
                snprintf(bad, 64, "window=%d axis=%d", c->window[axis], axis);
            return false;
        }
    const char *overflow = find_overflow(c);
    if (overflow) {
        if (bad)
            snprintf(bad, 64, "%s", overflow);
        return false;
    }
    case_derive(c);
    return true;
}

static void print_value(const test_case *c, const field *f, char text[64])
{
    test_case own = *c;
    const int *axes = int_of(&own, f);
    int last = f->has_axes ? WINATTN_AXES - 1 : 0, length = 0;
    if (f->is_double) {
        snprintf(text, 64, "%.9g", *double_of(&own, f));
        return;
    }
    if (f->names) {
        snprintf(text, 64, "%s", f->names[axes[0]]);
        return;
    }
    while (last > 0 && axes[last] == 0)
        last--;
    for (int axis = 0; axis <= last; axis++)
        length += snprintf(text + length, 64 - (size_t)length, "%s%d",
                           axis ? "x" : "", axes[axis]);
}

/* What follows from a grid is not written, and what the parser would derive
 * from another field is. */
static bool is_written(const test_case *c, const field *f, bool differs)
{
    const test_case standard = case_default();
    const bool is_keys = f->offset == offsetof(test_case, keys);
    if (c->grid && (is_keys || f->offset == offsetof(test_case, windows) ||
                    f->offset == offsetof(test_case, queries)))
        return false;
    return differs ||
           ((is_keys || f->offset == offsetof(test_case, kv_heads)) &&
            (c->heads != standard.heads || c->queries != standard.queries));
}

void case_print(const test_case *c, char *text, size_t size)
{
    const test_case standard = case_default();
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; i < FIELDS && used < size; i++) {
        char value[64], usual[64];
        print_value(c, &fields[i], value);
        print_value(&standard, &fields[i], usual);
        if (is_written(c, &fields[i], strcmp(value, usual) != 0))
            used += (size_t)snprintf(text + used, size - used, "%s%s=%s",
                                     used ? " " : "", fields[i].name, value);
    }
}

/* Windows, queries and keys are said or not said. */
static void describe_grid(const test_case *c, winattn_desc *desc)
{
    desc->grid.axes = (cl_uint)c->grid;
    for (int axis = 0; axis < c->grid; axis++) {
        desc->grid.size[axis] = (cl_uint)c->size[axis];
        desc->grid.window[axis] = (cl_uint)c->window[axis];
        desc->grid.shift[axis] = (cl_uint)c->shift[axis];
        desc->grid.periodic[axis] = (cl_bool)(c->periodic[axis] != 0);
    }
    desc->grid.padding = (winattn_padding)c->padding;
    desc->grid.batch = (cl_ulong)c->batch;
    if (c->roll_first)
        desc->grid_options |= WINATTN_GRID_ROLL_FIRST;
    if (c->shift_all)
        desc->grid_options |= WINATTN_GRID_SHIFT_ALL;
    if (c->seed % 2) {
        desc->windows = 0;
        desc->queries = desc->keys = 0;
    }
}

bool case_mask_is_array(const test_case *c)
{
    return term_masks[c->mask] == WINATTN_MASK_ADDITIVE;
}

bool case_mask_is_read(const test_case *c)
{
    return case_mask_is_array(c) ||
           term_masks[c->mask] == WINATTN_MASK_REGIONS;
}

bool case_mask_has_regions(const test_case *c)
{
    return term_masks[c->mask] == WINATTN_MASK_REGIONS ||
           term_masks[c->mask] == WINATTN_MASK_SHIFT;
}

winattn_desc case_desc(const test_case *c)
{
    winattn_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.struct_size = sizeof desc;
    desc.variant = (winattn_variant)c->variant;
    desc.dtype = (winattn_dtype)c->dtype;
    desc.tier = (winattn_tier)c->tier;
    desc.allow_tf32 = (cl_bool)(c->tf32 != 0);
    desc.windows = (cl_ulong)c->windows;
    desc.heads = (cl_uint)c->heads;
    desc.kv_heads = (cl_uint)c->kv_heads;
    desc.queries = (cl_uint)c->queries;
    desc.keys = (cl_uint)c->keys;
    desc.head_dim = (cl_uint)c->dim;
    desc.scale = (cl_float)c->scale;
    if (c->pass == PASS_BACKWARD)
        desc.passes = WINATTN_PASS_BACKWARD;
    if (c->grid)
        describe_grid(c, &desc);
    if (c->bias != TERM_NONE) {
        desc.bias = case_has_table(c) ? WINATTN_BIAS_TABLE : WINATTN_BIAS_FULL;
        desc.bias_dtype = c->bias == TERM_FP32 || c->bias == TERM_TABLE_FP32
                              ? WINATTN_TERM_FP32
                              : WINATTN_TERM_SAME;
    }
    if (case_has_table(c) && c->entries == 0) {
        for (int axis = 0; axis < WINATTN_AXES && c->table[axis]; axis++) {
            desc.table.window[axis] = (cl_uint)c->table[axis];
            desc.table.axes++;
        }
        desc.table.sliced = (cl_bool)(c->sliced != 0);
    }
    desc.mask = term_masks[c->mask];
    if (case_mask_has_regions(c)) {
        desc.has_region_value = !isnan(c->region_value);
        desc.region_value =
            desc.has_region_value ? (cl_float)c->region_value : 0.0f;
    }
    if (c->mask == TERM_FP32)
        desc.mask_dtype = WINATTN_TERM_FP32;
    if (case_mask_is_read(c))
        desc.mask_windows = (cl_ulong)c->mask_windows;
    desc.block = (cl_uint)c->block;
    desc.first_block = (cl_uint)c->first_block;
    desc.window_blocks = (cl_uint)c->window_blocks;
    desc.sink = (cl_uint)c->sink;
    desc.sink_in_window = (cl_bool)(c->sink_in_window != 0);
    desc.query_offset = (cl_uint)c->query_offset;
    return desc;
}

winattn_desc case_desc_of(const char *text, cl_bitfield wanted)
{
    test_case c = case_default();
    char bad[64];
    if (!case_parse(text, &c, bad)) {
        fprintf(stderr, "%s: unknown: %s\n", text, bad);
        exit(EXIT_FAILURE);
    }
    winattn_desc desc = case_desc(&c);
    desc.passes = wanted;
    if (case_has_table(&c))
        desc.table.entries = (cl_uint)c.entries;
    return desc;
}

random_state random_seeded(unsigned long long seed)
{
    random_state r = {seed * 0x9e3779b97f4a7c15ull + 0x2545f4914f6cdd1dull};
    for (int i = 0; i < 4; i++)
        random_bits(&r);
    return r;
}

/* A linear congruential generator whose upper bits are returned (constants
 * from Knuth, MMIX). */
unsigned random_bits(random_state *r)
{
    r->state = r->state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(r->state >> 33) ^ (unsigned)(r->state >> 60);
}

int random_int(random_state *r, int low, int high)
{
    return low + (int)(random_bits(r) % (unsigned)(high - low + 1));
}

unsigned random_between(random_state *r, unsigned low, unsigned high)
{
    return (unsigned)random_int(r, (int)low, (int)high);
}

double random_unit(random_state *r)
{
    return (random_bits(r) & 0x7fffffffu) / 2147483648.0;
}

double random_normal(random_state *r)
{
    double sum = -6.0;
    for (int i = 0; i < 12; i++)
        sum += random_unit(r);
    return sum;
}
