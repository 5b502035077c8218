/* SPDX-License-Identifier: Apache-2.0
 * What may differ between cases of a program, as far as it applies. */
#include "program_cases.h"

#include <stdio.h>
#include <string.h>

/* What a program is like. */
enum {
    /* tokens are rows of a window, or lie on a grid, or see those around them
     */
    PLAIN = 1,
    GRID = 1 << 1,
    SLIDES = 1 << 2,
    BY_DOT = 1 << 3, /* and does not slide */
    BY_COSINE = 1 << 4,
    SQUARE = 1 << 5,   /* as many keys as queries, and as key heads heads */
    ADJACENT = 1 << 6, /* neither bias nor mask are arrays */
    BIAS = 1 << 7,     /* an array or a table */
    /* the mask is an array, or arrays of regions, or follows from a shift */
    ARRAY = 1 << 8,
    REGIONS = 1 << 9,
    SHIFT = 1 << 10,
    UNMASKED = 1 << 11,
    /* a grid's padding: none, values, hidden */
    WHOLE = 1 << 12,
    VALUES = 1 << 13,
    HIDDEN = 1 << 14,
    FORWARD = 1 << 15,
    BACKWARD = 1 << 16,
    /* o and lse of the forward pass are given, or not */
    GIVEN = 1 << 17,
    OWN = 1 << 18,
    /* of 16 rows at least: of few, one key's weight may be all that there is,
     * and gradients cancel altogether */
    LARGE = 1 << 19,
    /* of 128 channels at most: of more, large logits of fp32 are not as exact
     * as what is promised */
    SHORT = 1 << 20
};

static const struct {
    unsigned needs;
    const char *text;
} variations[] = {
    /* ---- Windows ---- */
    /* sizes of a launch, heads, layouts */
    {PLAIN, "windows=1 heads=1 scale=0.3"},
    {PLAIN, "windows=5 heads=3 layout=tokens"},
    {PLAIN | SQUARE, "windows=4 heads=2 layout=packed"},
    {PLAIN, "windows=3 heads=2 layout=padded"},
    {PLAIN, "windows=2 heads=2 layout=misaligned"},
    {PLAIN, "windows=3 heads=1 layout=aligned launch=1"},
    {PLAIN | ADJACENT, "windows=2 heads=2 layout=strided"},
    {PLAIN, "windows=3 heads=2 layout=broadcast"},
    {PLAIN | SQUARE, "windows=2 heads=2 layout=interleaved"},
    {PLAIN, "windows=5 heads=2 launch=3"},
    {PLAIN | FORWARD, "windows=3 heads=4 kv_heads=2"},
    {PLAIN, "windows=0 heads=1 accumulate=31"},
    /* what rows carry from window to window, where lse is not wanted */
    {PLAIN | FORWARD, "windows=12 heads=1 lse=0"},
    {PLAIN | FORWARD | SHORT, "windows=16 heads=1 lse=0 data=swinging"},
    {PLAIN | FORWARD | SHORT, "windows=9 heads=1 data=swinging"},
    /* what rows hold: scores that later keys exceed by far, weights that fp16
     * lacks or that have two parts, means, dominating keys, NaN */
    {PLAIN | BY_DOT | FORWARD, "scale=9 windows=2 heads=1"},
    {PLAIN | BY_DOT | FORWARD, "scale=40 windows=4 heads=1"},
    {PLAIN | BY_DOT, "scale=-2 data=tiny heads=1"},
    {PLAIN | BY_DOT | FORWARD, "scale=0.001 data=huge heads=1"},
    {PLAIN | BY_DOT | FORWARD, "scale=4 data=huge heads=1"},
    {PLAIN, "windows=3 heads=2 data=nan"},
    {PLAIN | FORWARD, "data=common heads=1"},
    {PLAIN | OWN | LARGE, "data=dominant heads=1"},
    {PLAIN | BY_DOT | FORWARD, "data=steep heads=1"},
    {PLAIN, "data=rising heads=2"},
    {PLAIN | UNMASKED | BIAS, "windows=3 data=lowest heads=1"},
    /* the cosine variant's scales, of which ln 100 is the most */
    {PLAIN | BY_COSINE, "logit_scale=2 data=zero heads=1"},
    {PLAIN | BY_COSINE, "logit_scale=3 data=tiny heads=2"},
    {PLAIN | BY_COSINE, "logit_scale=3 data=huge heads=1"},
    /* with a factor of 100 what rounding leaves of a given o is more than is
     * promised, in bf16 */
    {PLAIN | BY_COSINE | OWN, "logit_scale=4.6051702 heads=1"},
    {BACKWARD | PLAIN | BY_COSINE | OWN, "logit_scale=4.6051697 heads=1"},
    {BACKWARD | PLAIN | BY_COSINE | OWN, "logit_scale=4.6051707 heads=1"},
    {PLAIN | BY_COSINE | OWN, "logit_scale=7 heads=1 windows=3"},
    {PLAIN | BY_COSINE, "logit_scale=-3 heads=2 scale=9"},
    {PLAIN | BY_COSINE, "logit_scale=nan heads=2"},
    /* masks */
    {PLAIN | ARRAY, "windows=5 mask_windows=2 data=masked heads=1"},
    {PLAIN | ARRAY, "windows=2 mask_windows=1 data=lowest heads=2"},
    {PLAIN | ARRAY, "windows=7 mask_windows=3 heads=2"},
    {PLAIN | ARRAY | FORWARD,
     "windows=12 mask_windows=5 data=masked heads=1 lse=0"},
    {PLAIN | REGIONS, "windows=7 mask_windows=7 heads=1"},
    {PLAIN | REGIONS, "windows=12 mask_windows=3 heads=2 layout=padded"},
    {PLAIN | REGIONS | FORWARD, "windows=12 mask_windows=1 region_value=-inf "
                                "data=alone heads=1 lse=0"},
    {PLAIN | REGIONS | FORWARD | SHORT,
     "windows=12 mask_windows=2 data=swinging heads=1 lse=0"},
    {PLAIN | REGIONS, "windows=3 mask_windows=2 region_value=-inf heads=1"},
    {PLAIN | REGIONS, "windows=3 mask_windows=1 region_value=2.5 heads=2"},
    {PLAIN | REGIONS, "windows=2 mask_windows=2 region_value=0 heads=1"},

    /* ---- Grids ---- */
    {GRID, "map=122 batch=2 heads=1"},
    {GRID | SQUARE, "map=212 roll=102 heads=2 layout=packed"},
    {GRID, "map=221 roll=021 batch=3 layout=padded heads=1"},
    {GRID, "map=112 roll=112 shift_all=1 heads=1"},
    {GRID, "map=222 roll=222 layout=tokens launch=2 heads=1"},
    {GRID, "map=122 roll=101 layout=aligned heads=2"},
    {GRID | SQUARE, "map=221 layout=interleaved heads=1 roll=110"},
    {GRID | ADJACENT, "map=122 roll=111 layout=strided heads=1"},
    {GRID, "map=212 layout=broadcast batch=2 heads=2"},
    {GRID | VALUES, "map=122 cut=120 roll=010 pads=0 heads=1"},
    {GRID | VALUES, "map=222 cut=211 roll=110 pads=1 batch=2 heads=2"},
    {GRID | VALUES, "map=212 cut=102 roll=121 pads=2 heads=1"},
    {GRID | VALUES, "map=121 cut=121 roll=010 pads=3 layout=padded heads=2"},
    {GRID | VALUES, "map=111 cut=222 roll=111 pads=3 batch=2 heads=1"},
    {GRID | HIDDEN, "map=111 cut=333 roll=111 shift_all=1 heads=2 data=nan"},
    {GRID | HIDDEN, "map=122 cut=120 roll=010 heads=1"},
    {GRID | HIDDEN, "map=222 cut=211 roll=110 batch=2 heads=2"},
    {GRID | HIDDEN | SQUARE, "map=121 cut=121 roll=010 layout=packed heads=1"},
    {GRID | WHOLE, "map=222 circle=111 roll=121 heads=1"},
    {GRID | WHOLE, "map=122 circle=010 roll=110 batch=2 heads=2"},
    {GRID | SHIFT, "map=222 roll=121 region_value=-inf heads=1"},
    {GRID | SHIFT, "map=122 roll=111 region_value=1.5 heads=2"},
    {GRID | ARRAY, "map=222 mask_windows=3 data=masked heads=1 batch=2"},
    {GRID | ARRAY, "map=122 mask_windows=2 data=lowest heads=1"},
    {GRID | FORWARD | SQUARE,
     "map=222 roll=111 batch=7 heads=1 lse=0 layout=packed"},
    {GRID | FORWARD | SHORT,
     "map=222 roll=111 batch=5 heads=1 lse=0 data=swinging"},
    {GRID, "map=122 roll=010 data=nan heads=2"},
    {GRID | FORWARD, "map=212 roll=101 data=common heads=1"},
    {GRID | BY_DOT | FORWARD, "map=122 roll=011 data=steep heads=1"},
    {GRID | BY_COSINE, "map=122 logit_scale=3 data=zero heads=1"},
    {GRID | BY_COSINE, "map=221 roll=010 logit_scale=5 heads=2"},

    /* ---- Sliding: blocks that tiles divide and others, ragged ends, the
       sink before the window and inside it, decoding, grouped queries ---- */
    {SLIDES, "queries=40 block=16 window_blocks=2 heads=2 kv_heads=1"},
    {SLIDES, "queries=75 block=20 first_block=7 window_blocks=2 sink=9 "
             "windows=1 heads=2 kv_heads=1"},
    {SLIDES, "queries=20 keys=90 block=20 window_blocks=3 query_offset=70 "
             "sink=5 scale=-0.3 heads=3"},
    {SLIDES, "queries=50 keys=70 block=5 window_blocks=65 query_offset=20 "
             "sink=30 sink_in_window=1 heads=1"},
    {SLIDES, "queries=50 block=10 heads=2 layout=strided data=nan windows=1"},
    {SLIDES, "queries=64 block=64 window_blocks=1 scale=0 heads=1 "
             "layout=packed windows=1"},
    {SLIDES, "queries=40 keys=60 block=30 query_offset=20 data=rising "
             "scale=9 windows=1 heads=1"},
    {SLIDES | FORWARD,
     "queries=40 keys=60 block=12 query_offset=20 data=huge scale=0.5 "
     "windows=1 heads=1"},
    {SLIDES, "queries=33 block=8 window_blocks=2 sink=3 heads=1 "
             "layout=padded"},
    {SLIDES, "queries=1 keys=37 block=1 window_blocks=20 query_offset=36 "
             "heads=4 kv_heads=2"},
    {SLIDES, "queries=1 keys=1 block=1 heads=3"},
    {SLIDES, "queries=30 keys=8 block=4 window_blocks=1 heads=1"},
    {SLIDES, "queries=50 keys=20 block=13 first_block=40 heads=2 "
             "layout=tokens"},
    {SLIDES, "queries=41 block=9 sink=4 window_blocks=1 data=nan heads=1"},
    {SLIDES, "queries=30 block=1 window_blocks=10 sink=3 heads=1 windows=3 "
             "layout=interleaved"},
    {SLIDES, "queries=60 block=20 heads=4 kv_heads=2 layout=misaligned "
             "windows=1"},
    {SLIDES | OWN,
     "queries=48 block=16 data=common heads=1 launch=2 windows=3"},
    {SLIDES | FORWARD,
     "queries=48 block=20 data=steep heads=1 layout=aligned"},
    {SLIDES, "queries=40 block=20 data=dominant window_blocks=2 heads=1"},
    {SLIDES | FORWARD, "queries=40 block=7 lse=0 layout=broadcast heads=2"},

    /* ---- Gradients, of each of these ---- */
    {BACKWARD | PLAIN, "d_lse=1 heads=1 windows=3"},
    {BACKWARD | PLAIN, "accumulate=31 heads=2 layout=padded"},
    {BACKWARD | PLAIN | OWN | LARGE,
     "accumulate=9 d_lse=1 heads=1 windows=3 data=common"},
    {BACKWARD | PLAIN, "d_lse=1 heads=2 windows=5 launch=2 accumulate=31"},
    {BACKWARD | PLAIN, "windows=13 heads=1 d_lse=1"},
    {BACKWARD | PLAIN, "outputs=1 heads=2"},
    {BACKWARD | PLAIN, "outputs=6 heads=1 accumulate=6"},
    {BACKWARD | PLAIN, "accumulate=4 heads=1 windows=2"},
    {BACKWARD | PLAIN, "outputs=24 heads=1 windows=3 accumulate=8"},
    {BACKWARD | PLAIN, "outputs=5 heads=1 d_lse=1"},
    {BACKWARD | GRID, "d_lse=1 accumulate=127 map=122 roll=011 heads=1"},
    {BACKWARD | GRID | OWN, "d_lse=1 map=212 roll=101 data=dominant heads=2"},
    {BACKWARD | GRID, "accumulate=96 map=221 batch=2 launch=2 heads=1"},
    {BACKWARD | GRID, "map=122 roll=011 outputs=96 heads=2"},
    {BACKWARD | GRID, "map=122 roll=010 outputs=8 accumulate=8 heads=1"},
    {BACKWARD | GRID, "map=212 outputs=7 d_lse=1 heads=1"},
    {GRID, "batch=0 accumulate=127"},
    {BACKWARD | SLIDES, "queries=40 block=16 d_lse=1 accumulate=7 heads=1"},
    {BACKWARD | SLIDES, "queries=50 keys=60 block=9 window_blocks=2 sink=4 "
                        "query_offset=10 d_lse=1 accumulate=2 heads=2 "
                        "kv_heads=1"},
    {BACKWARD | SLIDES, "queries=40 block=9 outputs=5 heads=2 data=nan"},
    {BACKWARD | SLIDES, "queries=40 block=9 outputs=2 heads=1"},
    {BACKWARD | GIVEN | PLAIN, "windows=20 heads=1 layout=misaligned"},
};

static unsigned traits_of(const test_case *c)
{
    const bool pads = c->grid && c->size[0] * (c->size[1] ? c->size[1] : 1) *
                                         (c->size[2] ? c->size[2] : 1) *
                                         c->batch !=
                                     c->windows * c->queries;
    const bool slides = c->variant == WINATTN_SLIDING;
    unsigned traits = c->pass == PASS_FORWARD ? FORWARD : BACKWARD;
    traits |= slides ? SLIDES : c->grid ? GRID : PLAIN;
    traits |= c->variant == WINATTN_DOT ? BY_DOT : 0u;
    traits |= c->variant == WINATTN_COSINE ? BY_COSINE : 0u;
    traits |= c->queries == c->keys && c->heads == c->kv_heads ? SQUARE : 0u;
    traits |= c->bias != TERM_NONE ? BIAS : 0u;
    traits |= case_mask_is_array(c)     ? ARRAY
              : c->mask == TERM_REGIONS ? REGIONS
              : c->mask == TERM_SHIFT   ? SHIFT
                                        : UNMASKED;
    if ((c->bias == TERM_NONE || case_has_table(c)) && !case_mask_is_array(c))
        traits |= ADJACENT;
    if (c->grid)
        traits |= !pads                                  ? WHOLE
                  : c->padding == WINATTN_PADDING_HIDDEN ? HIDDEN
                                                         : VALUES;
    traits |= c->given ? GIVEN : OWN;
    traits |= c->queries >= 16 ? LARGE : 0u;
    traits |= c->dim <= 128 ? SHORT : 0u;
    return traits;
}

const char *program_case(const test_case *base, size_t number, bool *suits)
{
    if (number > sizeof variations / sizeof *variations)
        return NULL;
    const unsigned needs = variations[number - 1].needs;
    *suits = (traits_of(base) & needs) == needs;
    return variations[number - 1].text;
}

/* ---- Text ---- */

/* The digit of an axis behind "name=" in the text; -1: there is no such
 * word. */
static int digit_of(const char *text, const char *name, int axis)
{
    const char *at = strstr(text, name);
    return at ? at[strlen(name) + (size_t)axis] - '0' : -1;
}

static int least(int a, int b) { return a < b ? a : b; }

/* Lays the map along an axis. A program with padding has some. */
static void lay_axis(const char *text, test_case *c, int axis, bool pads)
{
    const int window = c->window[axis];
    const int windows = digit_of(text, "map=", axis);
    const int cut = digit_of(text, "cut=", axis);
    const int roll = digit_of(text, "roll=", axis);
    const int circle = digit_of(text, "circle=", axis);
    const int lacks = cut >= 0 ? cut : pads && axis == 0 ? 1 : 0;
    if (windows >= 0)
        c->size[axis] = windows * window - least(lacks, window - 1);
    if (windows >= 0 || roll >= 0)
        c->shift[axis] = roll > 0 ? least(roll, window - 1) : 0;
    c->periodic[axis] = circle > 0;
}

bool program_parse(const char *text, test_case *c, demand *d, char bad[64])
{
    static const char *const names[] = {"map=", "cut=", "roll=", "circle="};
    char rest[512];
    snprintf(rest, sizeof rest, "%s", text);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *at = strstr(rest, names[i]);
        for (; at && *at && *at != ' '; at++)
            *at = ' ';
    }
    const bool pads = c->grid && !(traits_of(c) & WHOLE);
    for (int axis = 0; axis < c->grid; axis++)
        lay_axis(text, c, axis, pads);
    if (!demand_parse(rest, c, d, bad))
        return false;
    /* masks must repeat from grid to grid */
    const int windows = c->grid && c->batch ? c->windows / c->batch : 0;
    if (windows && case_mask_is_read(c) && windows % c->mask_windows != 0)
        c->mask_windows = windows;
    return true;
}
