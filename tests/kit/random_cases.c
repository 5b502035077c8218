/* SPDX-License-Identifier: Apache-2.0
 * Cases drawn at random. */
#include "cases.h"

#include <math.h>

static int one_of(random_state *r, const int *list, int count)
{
    return list[random_int(r, 0, count - 1)];
}

/* Makes the case a sliding one, with blocks of up to so many keys and queries
 * up to so many behind. */
static void draw_sliding(random_state *r, test_case *c, int most_block,
                         int most_offset)
{
    c->variant = WINATTN_SLIDING;
    c->block = random_int(r, 1, most_block);
    c->first_block = random_int(r, 0, 1) ? random_int(r, 1, most_block) : 0;
    c->window_blocks = random_int(r, 0, 4);
    c->query_offset = random_int(r, 0, 1) ? random_int(r, 0, most_offset) : 0;
    c->sink = random_int(r, 0, 1) ? random_int(r, 1, 60) : 0;
    /* the sink touches at most 61 blocks */
    if (c->sink && random_int(r, 0, 2) == 0) {
        c->sink_in_window = 1;
        c->window_blocks = 62 + random_int(r, 0, 3);
    }
    c->data = random_int(r, 0, 3) ? DATA_NORMAL : DATA_NAN;
    c->bias = c->mask = TERM_NONE;
    c->mask_windows = 0;
    c->logit_scale = NAN;
}

test_case case_random(int seed, int tier)
{
    static const int sizes[] = {1, 3, 10, 24, 30, 49, 64, 80, 100, 144, 256};
    static const int dims[] = {1, 3, 8, 10, 16, 24, 30, 32, 49, 64, 80, 128};
    random_state r = random_seeded((unsigned long long)seed);
    test_case c = case_default();
    c.seed = seed;
    c.tier = tier;
    c.variant = random_int(&r, 0, 2);
    c.dtype = random_int(&r, 0, 2);
    c.windows = random_int(&r, 1, 5);
    c.kv_heads = random_int(&r, 1, 3);
    c.heads = c.kv_heads * random_int(&r, 1, 3);
    c.queries =
        random_int(&r, 0, 1) ? one_of(&r, sizes, 11) : random_int(&r, 1, 200);
    c.keys = random_int(&r, 0, 2) ? c.queries : random_int(&r, 1, 300);
    c.dim =
        random_int(&r, 0, 2) ? one_of(&r, dims, 12) : random_int(&r, 1, 256);
    c.layout = random_int(&r, 0, LAYOUT_BROADCAST);
    c.lse = random_int(&r, 0, 3) != 0;
    c.scale = random_int(&r, 0, 1) ? 0.0 : random_normal(&r);
    if (c.variant == WINATTN_SLIDING) {
        draw_sliding(&r, &c, 90, 200);
    } else {
        c.bias = random_int(&r, TERM_NONE, TERM_FP32);
        c.mask = random_int(&r, TERM_NONE, TERM_SHIFT - 1);
        c.mask_windows =
            case_mask_is_read(&c) ? random_int(&r, 1, c.windows + 1) : 0;
        if (c.mask == TERM_REGIONS && random_int(&r, 0, 1))
            c.region_value = random_normal(&r) * 10;
        if (c.variant == WINATTN_COSINE) {
            static const int kinds[] = {DATA_NORMAL, DATA_TINY, DATA_HUGE,
                                        DATA_ZERO};
            if (random_int(&r, 0, 2))
                c.logit_scale = random_normal(&r) * 2 + 3;
            c.data = one_of(&r, kinds, 4);
        }
        if (case_mask_is_array(&c))
            c.data = random_int(&r, 0, 1) ? DATA_MASKED : DATA_LOWEST;
    }
    /* a packed buffer holds as many keys as queries, a broadcast one NaN
     * would spread further than the oracle's rule for sliding windows says */
    if (c.layout == LAYOUT_PACKED || c.layout == LAYOUT_INTERLEAVED) {
        c.keys = c.queries;
        c.kv_heads = c.heads;
    }
    return c;
}

/* Which of `all` outputs, how, and what is given: nothing, o and lse of the
 * oracle, or those of a forward pass. */
static void draw_backward(random_state *r, test_case *c, int all)
{
    c->d_lse = random_int(r, 0, 1);
    c->given = random_int(r, 0, 2) == 0;
    c->outputs = random_int(r, 0, 2) ? all : random_int(r, 1, all);
    c->accumulate = random_int(r, 0, 2) ? 0 : random_int(r, 0, all);
    if (c->given)
        c->given = random_int(r, 1, 2);
    /* with other scales softmax may saturate, and all cancels */
    if (c->data == DATA_NORMAL && c->scale == 0 && random_int(r, 0, 1))
        c->data = random_int(r, DATA_COMMON, DATA_STEEP);
}

test_case case_random_backward(int seed, int tier)
{
    random_state r = random_seeded((unsigned long long)seed + 5000);
    test_case c = case_random(seed, tier);
    c.pass = PASS_BACKWARD;
    c.windows = random_int(&r, 1, 3);
    /* the oracle is slow */
    if (c.heads > 4)
        c.heads = c.kv_heads;
    if ((double)c.queries * c.keys * c.dim > 1e6)
        c.windows = c.heads = c.kv_heads = 1;
    if (c.mask_windows > c.windows + 1)
        c.mask_windows = c.windows + 1;
    draw_backward(&r, &c, 31);
    return c;
}

/* Windows of some sizes, most of which no map is a multiple of. */
static void draw_grid(random_state *r, test_case *c)
{
    static const int most[] = {60, 9, 5};
    c->grid = random_int(r, 1, 3);
    c->pads = 0;
    for (int axis = 0; axis < WINATTN_AXES; axis++)
        c->size[axis] = c->window[axis] = c->shift[axis] = c->periodic[axis] =
            0;
    for (int axis = 0; axis < c->grid; axis++) {
        const int window = random_int(r, 1, most[c->grid - 1]);
        const int windows = random_int(r, 1, 3);
        c->window[axis] = window;
        c->size[axis] =
            random_int(r, 0, 2)
                ? random_int(r, (windows - 1) * window + 1, windows * window)
                : windows * window;
        if (random_int(r, 0, 2))
            c->shift[axis] = random_int(r, 0, 1)
                                 ? window / 2
                                 : random_int(r, 0, window - 1);
        c->periodic[axis] =
            c->size[axis] % window == 0 && random_int(r, 0, 2) == 0;
    }
    c->batch = random_int(r, 1, 2);
    c->padding =
        random_int(r, 0, 2) ? WINATTN_PADDING_VALUES : WINATTN_PADDING_HIDDEN;
    if (c->padding == WINATTN_PADDING_VALUES)
        c->pads = random_int(r, 0, 1) ? 3 : random_int(r, 0, 3);
    case_derive(c);
}

static void draw_grid_terms(random_state *r, test_case *c)
{
    static const int biases[] = {
        TERM_NONE,       TERM_SAME,       TERM_FP32,      TERM_TABLE_SAME,
        TERM_TABLE_FP32, TERM_TABLE_SAME, TERM_TABLE_FP32};
    c->bias = one_of(r, biases, 7);
    /* that of the shift more often than others */
    c->mask = random_int(r, TERM_NONE, TERM_SHIFT + 2);
    if (c->mask > TERM_SHIFT)
        c->mask = TERM_SHIFT;
    if (case_mask_is_read(c))
        c->mask_windows = random_int(r, 1, c->windows + 1);
    if (case_mask_has_regions(c) && random_int(r, 0, 1))
        c->region_value =
            random_int(r, 0, 1) ? -INFINITY : random_normal(r) * 10;
    if (!case_has_table(c))
        return;
    if (random_int(r, 0, 3) == 0) {
        c->entries = random_int(r, 1, 60);
    } else if (random_int(r, 0, 1)) {
        c->sliced = random_int(r, 0, 1);
        for (int axis = 0; axis < c->grid; axis++)
            c->table[axis] = c->window[axis] + random_int(r, 0, 3);
    }
}

test_case case_random_grid(int seed, int tier, int pass)
{
    static const int dims[] = {1, 3, 8, 10, 16, 24, 30, 32, 49, 64, 80, 128};
    static const int kinds[] = {DATA_NORMAL, DATA_TINY, DATA_HUGE, DATA_ZERO};
    random_state r = random_seeded((unsigned long long)seed + 9000);
    test_case c = case_default();
    c.seed = seed;
    c.tier = tier;
    c.pass = pass;
    c.variant = random_int(&r, 0, 1) ? WINATTN_DOT : WINATTN_COSINE;
    c.dtype = random_int(&r, 0, 2);
    do
        draw_grid(&r, &c);
    while (c.queries > 150 || c.windows > 20); /* the oracle is slow */
    draw_grid_terms(&r, &c);
    c.kv_heads = random_int(&r, 1, 2);
    c.heads = c.kv_heads * random_int(&r, 1, 2);
    c.dim =
        random_int(&r, 0, 2) ? one_of(&r, dims, 12) : random_int(&r, 1, 256);
    if ((double)c.queries * c.queries * c.dim * c.windows > 1e7) {
        c.heads = c.kv_heads = 1;
        c.dim = c.dim % 40 + 1;
    }
    c.layout = random_int(&r, 0, LAYOUT_BROADCAST);
    if (c.layout == LAYOUT_PACKED || c.layout == LAYOUT_INTERLEAVED)
        c.kv_heads = c.heads;
    c.scale = random_int(&r, 0, 1) ? 0.0 : random_normal(&r);
    if (c.variant == WINATTN_COSINE) {
        if (random_int(&r, 0, 2))
            c.logit_scale = random_normal(&r) * 2 + 3;
        c.data = one_of(&r, kinds, 4);
    } else if (case_mask_is_array(&c)) {
        c.data = random_int(&r, 0, 1) ? DATA_MASKED : DATA_LOWEST;
    } else if (random_int(&r, 0, 4) == 0) {
        c.data = DATA_NAN;
    }
    c.lse = random_int(&r, 0, 3) != 0;
    if (pass == PASS_BACKWARD)
        draw_backward(&r, &c, 127);
    c.roll_first = random_int(&r, 0, 2) == 0;
    c.shift_all = random_int(&r, 0, 3) == 0;
    return c;
}

/* Of operands of a matrix unit, fp32 is TF32. */
static void set_operands(test_case *c, int dtype)
{
    c->dtype = dtype;
    c->tf32 = c->tier == WINATTN_TIER_MATRIX && dtype == WINATTN_FP32;
}

test_case case_random_small(random_state *r, int tier, int pass,
                            int first_dtype)
{
    test_case c = case_default();
    if (random_int(r, 0, 1)) {
        do
            c = case_random_grid(random_int(r, 1, 1 << 20), tier, pass);
        while (c.queries > 70 || c.dim > 70 || c.windows > 12);
        set_operands(&c, random_int(r, first_dtype, WINATTN_BF16));
        return c;
    }
    c.tier = tier;
    c.pass = pass;
    c.variant = random_int(r, 0, 1);
    set_operands(&c, random_int(r, first_dtype, WINATTN_BF16));
    c.windows = random_int(r, 1, 6);
    c.kv_heads = random_int(r, 1, 2);
    c.heads = c.kv_heads * random_int(r, 1, 2);
    c.queries = random_int(r, 1, 70);
    c.keys = random_int(r, 1, 70);
    c.dim = random_int(r, 1, 70);
    if (random_int(r, 0, 2))
        c.dim = 8 * random_int(r, 1, 8);
    c.layout = random_int(r, LAYOUT_CONTIGUOUS, LAYOUT_BROADCAST);
    if (c.keys != c.queries &&
        (c.layout == LAYOUT_PACKED || c.layout == LAYOUT_INTERLEAVED))
        c.layout = LAYOUT_PADDED;
    if (c.kv_heads != c.heads &&
        (c.layout == LAYOUT_PACKED || c.layout == LAYOUT_INTERLEAVED))
        c.layout = LAYOUT_ALIGNED;
    c.data =
        random_int(r, 0, 2) ? DATA_NORMAL : random_int(r, DATA_TINY, DATA_NAN);
    c.scale = random_int(r, 0, 1) ? 0.0 : 0.4;
    c.lse = random_int(r, 0, 1);
    c.bias = random_int(r, TERM_NONE, TERM_FP32);
    c.mask = random_int(r, TERM_NONE, TERM_SHIFT - 1);
    if (c.data == DATA_MASKED || c.data == DATA_LOWEST)
        c.mask = random_int(r, TERM_SAME, TERM_FP32);
    c.mask_windows = case_mask_is_read(&c) ? random_int(r, 1, 3) : 0;
    if (c.variant == WINATTN_COSINE && random_int(r, 0, 1))
        c.logit_scale = random_unit(r) * 5.0;
    if (random_int(r, 0, 2) == 0)
        draw_sliding(r, &c, 40, 90);
    if (pass == PASS_BACKWARD) {
        /* gradients of logits of 1e8 are rounding errors */
        if (c.data == DATA_HUGE && c.variant == WINATTN_DOT)
            c.data = DATA_NORMAL;
        draw_backward(r, &c, 31);
    }
    return c;
}

/* A map of square windows, whole ones. */
static void draw_whole_map(random_state *r, test_case *c, int window)
{
    c->grid = 2;
    c->batch = random_int(r, 1, 2);
    for (int axis = 0; axis < 2; axis++) {
        c->window[axis] = window;
        c->size[axis] = window * random_int(r, 1, axis ? 1 : 2);
        c->shift[axis] =
            random_int(r, 0, 1) ? random_int(r, 0, window - 1) : 0;
    }
    if (random_int(r, 0, 1))
        c->mask = TERM_SHIFT;
    if (random_int(r, 0, 1))
        c->bias = TERM_TABLE_SAME;
    case_derive(c);
}

/* Of windows whose forward pass fragments do not compute in either variant. */
static int forward_tokens(random_state *r, int dim, int most)
{
    return random_int(r, 0, 3) ? random_int(r, 161, most)
                               : random_int(r, dim == 32 ? 113 : 128, 128);
}

/* Of windows whose gradients fragments do not compute. */
static int backward_tokens(random_state *r, int dtype)
{
    return random_int(r, dtype == WINATTN_FP16 ? 177 : 193, 256);
}

/* Tokens along each axis of a map's windows that fragments leave. */
static int window_of_map(random_state *r, const test_case *c)
{
    if (c->pass == PASS_BACKWARD)
        return random_int(r, 15, 16);
    if (random_int(r, 0, 1))
        return 16;
    return c->variant == WINATTN_DOT && random_int(r, 0, 1) ? 15 : 20;
}

/* What is added to scores is in the tensors' type; a mask comes with it. */
static void draw_wgmma_windows(random_state *r, test_case *c)
{
    static const int packed[] = {LAYOUT_CONTIGUOUS, LAYOUT_TOKENS,
                                 LAYOUT_PACKED, LAYOUT_ALIGNED};
    static const int kinds[] = {DATA_NORMAL, DATA_HUGE,    DATA_NAN,
                                DATA_ZERO,   DATA_RISING,  DATA_COMMON,
                                DATA_STEEP,  DATA_DOMINANT};
    const int backward = c->pass == PASS_BACKWARD;
    const int whole = backward && random_int(r, 0, 2) == 0; /* 144 tokens */
    c->variant = whole ? WINATTN_DOT : random_int(r, 0, 1);
    c->dim = backward || random_int(r, 0, 1) ? 32 : 64;
    c->windows = random_int(r, 1, 3);
    c->heads = c->kv_heads = random_int(r, 1, 2);
    c->bias = backward || random_int(r, 0, 2) ? TERM_SAME : TERM_NONE;
    c->queries = whole      ? 144
                 : backward ? backward_tokens(r, c->dtype)
                            : forward_tokens(r, c->dim, 400);
    c->keys = whole                 ? 144
              : random_int(r, 0, 2) ? c->queries
              : backward            ? backward_tokens(r, c->dtype)
                                    : forward_tokens(r, c->dim, 330);
    if (c->dim == 32 && c->bias != TERM_NONE && random_int(r, 0, 2) == 0)
        draw_whole_map(r, c, whole ? 12 : window_of_map(r, c));
    else if (c->bias != TERM_NONE && random_int(r, 0, 2) == 0)
        c->mask = TERM_REGIONS;
    if (case_mask_is_read(c))
        c->mask_windows = random_int(r, 1, c->windows);
    if (case_mask_has_regions(c) && random_int(r, 0, 1))
        c->region_value =
            random_int(r, 0, 1) ? -INFINITY : random_normal(r) * 10;
    if (c->variant == WINATTN_COSINE)
        c->logit_scale = random_unit(r) * 4.5;
    c->layout = one_of(r, packed, 4);
    if (c->layout == LAYOUT_PACKED && c->keys != c->queries)
        c->layout = LAYOUT_TOKENS;
    c->data = one_of(r, kinds, 8);
    if (c->data == DATA_HUGE && c->variant == WINATTN_DOT)
        c->data = DATA_STEEP;
}

static void draw_wgmma_sliding(random_state *r, test_case *c)
{
    static const int layouts[] = {LAYOUT_CONTIGUOUS, LAYOUT_ALIGNED,
                                  LAYOUT_MISALIGNED};
    draw_sliding(r, c, 40, 90);
    c->dim = 64 * random_int(r, 1, 2);
    c->windows = random_int(r, 1, 2);
    c->kv_heads = 1;
    c->heads = random_int(r, 1, 2);
    c->queries = random_int(r, 65, 300);
    c->keys = c->queries + c->query_offset;
    c->layout = one_of(r, layouts, 3);
    if (random_int(r, 0, 2) == 0)
        c->data = random_int(r, DATA_COMMON, DATA_STEEP);
}

test_case case_random_wgmma(int seed, int pass)
{
    random_state r = random_seeded((unsigned long long)seed + 13000);
    test_case c = case_default();
    c.seed = seed;
    c.pass = pass;
    c.dtype = random_int(&r, WINATTN_FP16, WINATTN_BF16);
    if (random_int(&r, 0, 2))
        draw_wgmma_windows(&r, &c);
    else
        draw_wgmma_sliding(&r, &c);
    c.lse = random_int(&r, 0, 1);
    if (pass == PASS_BACKWARD)
        draw_backward(&r, &c, 31);
    /* maps are not padded, but windows that cover an axis may be shifted */
    c.roll_first = c.grid && random_int(&r, 0, 1);
    return c;
}
