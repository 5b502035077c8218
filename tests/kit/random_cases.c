/* SPDX-License-Identifier: Apache-2.0
 * Cases drawn at random. */
#include "cases.h"

static int one_of(random_state *r, const int *list, int count)
{
    return list[random_int(r, 0, count - 1)];
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
        c.block = random_int(&r, 1, 90);
        c.first_block = random_int(&r, 0, 1) ? random_int(&r, 1, 90) : 0;
        c.window_blocks = random_int(&r, 0, 4);
        c.query_offset = random_int(&r, 0, 1) ? random_int(&r, 0, 200) : 0;
        c.sink = random_int(&r, 0, 1) ? random_int(&r, 1, 60) : 0;
        /* the sink touches at most 61 blocks */
        if (c.sink && random_int(&r, 0, 2) == 0) {
            c.sink_in_window = 1;
            c.window_blocks = 62 + random_int(&r, 0, 3);
        }
        c.data = random_int(&r, 0, 3) ? DATA_NORMAL : DATA_NAN;
    } else {
        c.bias = random_int(&r, TERM_NONE, TERM_FP32);
        c.mask = random_int(&r, TERM_NONE, TERM_REGIONS);
        c.mask_windows =
            c.mask == TERM_NONE ? 0 : random_int(&r, 1, c.windows + 1);
        if (c.mask == TERM_REGIONS && random_int(&r, 0, 1))
            c.region_value = random_normal(&r) * 10;
        if (c.variant == WINATTN_COSINE) {
            static const int kinds[] = {DATA_NORMAL, DATA_TINY, DATA_HUGE,
                                        DATA_ZERO};
            if (random_int(&r, 0, 2))
                c.logit_scale = random_normal(&r) * 2 + 3;
            c.data = one_of(&r, kinds, 4);
        }
        if (c.mask == TERM_SAME || c.mask == TERM_FP32)
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
    c.d_lse = random_int(&r, 0, 1);
    c.given = random_int(&r, 0, 2) == 0;
    c.outputs = random_int(&r, 0, 2) ? 31 : random_int(&r, 1, 31);
    c.accumulate = random_int(&r, 0, 2) ? 0 : random_int(&r, 0, 31);
    return c;
}
