/* SPDX-License-Identifier: Apache-2.0
 * One struct drives tests and bench: what is computed, on which data and in
 * which memory layout. Its text form replays a failure. */
#ifndef KIT_CASES_H
#define KIT_CASES_H

#include <stdbool.h>
#include <stddef.h>

#include "winattn.h"

typedef enum case_layout {
    LAYOUT_CONTIGUOUS,  /* [windows, heads, tokens, dim] */
    LAYOUT_TOKENS,      /* [windows, tokens, heads, dim] */
    LAYOUT_PACKED,      /* q, k, v in one buffer [windows, tokens, 3, ..] */
    LAYOUT_INTERLEAVED, /* q, k, v, o in one buffer [windows, tokens, 4, ..] */
    LAYOUT_PADDED,      /* gaps behind rows, heads, windows; odd offsets */
    LAYOUT_ALIGNED,     /* gaps and offsets that keep 16-byte alignment */
    LAYOUT_STRIDED,     /* channels, keys and queries two elements apart */
    LAYOUT_BROADCAST,   /* one k and v for all windows, one bias for all
                           heads, one mask row for all queries */
    LAYOUT_MISALIGNED   /* gaps that keep 16-byte alignment, odd offsets */
} case_layout;

typedef enum case_data {
    DATA_NORMAL,
    DATA_TINY,     /* q and k about 1e-4 */
    DATA_HUGE,     /* q and k about 1e4 */
    DATA_MASKED,   /* rows that see nothing, scattered -infinity */
    DATA_LOWEST,   /* rows of the lowest finite number */
    DATA_NAN,      /* NaN in one row of q, one of k, one of v, one of bias */
    DATA_ZERO,     /* some rows of q and k are zero */
    DATA_RISING,   /* rows of v and of dO become larger with their number */
    DATA_SWINGING, /* all logits of a window are near 0, far above or far
                      below, for four windows, then the next */
    DATA_ALONE,    /* regions: of tokens of the same number only. Whoever sees
                      one key, as with region_value=-inf, gets its v exactly */
    /* What gradients cancel; see case_is_strict. */
    DATA_COMMON,   /* k and v plus 3, which all of their rows share */
    DATA_DOMINANT, /* so, and every 16th key is 8 times as long: few keys have
                      most of the weight */
    DATA_STEEP     /* so, and q is 100 times as long: large logits */
} case_data;

/* Where a bias or a mask comes from: its word in the text form, and what it is
 * as a mask. Masks that need no grid come before TERM_SHIFT. */
#define CASE_NO_MASK ((winattn_mask)-1) /* which plans refuse */
#define CASE_TERMS(X)                                                         \
    X(TERM_NONE, "none", WINATTN_MASK_NONE)                                   \
    X(TERM_SAME, "same", WINATTN_MASK_ADDITIVE)                               \
    X(TERM_FP32, "fp32", WINATTN_MASK_ADDITIVE)                               \
    /* of a mask */                                                           \
    X(TERM_REGIONS, "regions", WINATTN_MASK_REGIONS)                          \
    X(TERM_SHIFT, "shift", WINATTN_MASK_SHIFT)                                \
    /* of a bias */                                                           \
    X(TERM_TABLE_SAME, "table_same", CASE_NO_MASK)                            \
    X(TERM_TABLE_FP32, "table_fp32", CASE_NO_MASK)
#define DECLARE_TERM(term, word, mask) term,
typedef enum case_term { CASE_TERMS(DECLARE_TERM) } case_term;
#undef DECLARE_TERM

typedef enum case_pass { PASS_FORWARD, PASS_BACKWARD } case_pass;

typedef struct test_case {
    int variant, dtype, tier; /* winattn_variant, _dtype, _tier */
    int tf32;                 /* allowed */
    int pass;                 /* case_pass */
    /* backward: WINATTN_DQ and so on, or-ed */
    int outputs, accumulate;
    int d_lse; /* backward: is it given? */
    int given; /* backward: are the forward pass's o and lse? 1: as the oracle
                  has them, 2: as a forward pass of the library leaves them */
    int windows, heads, kv_heads, queries, keys, dim;
    /* Axes of the grid, 0: none. With one, windows, queries and keys follow
     * from it (case_derive). */
    int grid;
    int batch; /* grids */
    int size[WINATTN_AXES], window[WINATTN_AXES], shift[WINATTN_AXES];
    int periodic[WINATTN_AXES];
    int padding;             /* winattn_padding */
    int roll_first;          /* WINATTN_GRID_ROLL_FIRST */
    int shift_all;           /* WINATTN_GRID_SHIFT_ALL */
    int pads;                /* 1: pad_k is given, 2: pad_v, 3: both */
    int bias;                /* case_term */
    int table[WINATTN_AXES]; /* the table's window; zeros: the grid's */
    int sliced;
    int entries; /* not 0: the bias comes from a table of so many entries, by
                    an index of the caller's */
    int mask;    /* case_term */
    int mask_windows;
    int layout, data;
    int lse;
    double scale;        /* 0: the default */
    double logit_scale;  /* of head 0, a little more for each further; NaN:
                            no such tensor */
    double region_value; /* NaN: the default */
    int block, first_block, window_blocks, sink, sink_in_window, query_offset;
    int seed;
} test_case;

/* Everything at its default: dot, fp32, 2 windows, 2 heads, 49 x 49 x 32. */
test_case case_default(void);

/* "variant=cosine dtype=fp16 windows=3 size=30x45 ..."; fields not named keep
 * what *c has, but kv_heads follows heads and keys follows queries. False,
 * with the word that is wrong in *bad, unless bad is NULL. */
bool case_parse(const char *text, test_case *c, char bad[64]);

/* The winattn_tier of that name; -1 if there is none. */
int case_tier(const char *name);

/* Windows, queries and keys that follow from a grid; nothing without one. */
void case_derive(test_case *c);

/* Is the bias a table? */
bool case_has_table(const test_case *c);
/* The table's window along an axis, and how many entries it has. */
int case_table_window(const test_case *c, int axis);
int case_table_entries(const test_case *c);

/* Is the mask an array; is it read, from one or from arrays of regions, of
 * which there are mask_windows; has it a region_value? */
bool case_mask_is_array(const test_case *c);
bool case_mask_is_read(const test_case *c);
bool case_mask_has_regions(const test_case *c);

/* The fields that differ from case_default. */
void case_print(const test_case *c, char *text, size_t size);

/* Do values, and keys or logits, have what gradients cancel? */
bool case_has_common_parts(const test_case *c);
/* Are gradients judged by their own size alone, and not also by a part of
 * what they sum in absolute values? Not those of the cosine variant, of which
 * each row is judged: some rows cancel altogether. */
bool case_is_strict(const test_case *c);

/* The descriptor; strides are filled in by data.c. */
winattn_desc case_desc(const test_case *c);
/* That of a text, of these passes, 0: forward; an index of a table is NULL.
 * Ends the program at a text that is none. */
winattn_desc case_desc_of(const char *text, cl_bitfield wanted);

/* The same for the same seed, everywhere. */
test_case case_random(int seed, int tier);
test_case case_random_backward(int seed, int tier);
/* Of a case_pass, with a grid. */
test_case case_random_grid(int seed, int tier, int pass);

/* Of a case_pass, and of what kernels with wgmma compute. */
test_case case_random_wgmma(int seed, int pass);

/* 2^64 states, good enough for test data. */
typedef struct random_state {
    unsigned long long state;
} random_state;
random_state random_seeded(unsigned long long seed);
unsigned random_bits(random_state *r);
int random_int(random_state *r, int low, int high); /* both included */
unsigned random_between(random_state *r, unsigned low, unsigned high);
double random_unit(random_state *r); /* [0, 1) */
double random_normal(random_state *r);

/* A small case, of types from `first_dtype` on, of which the tier matrix takes
 * fp32 as TF32; half of them lie on a grid. */
test_case case_random_small(random_state *r, int tier, int pass,
                            int first_dtype);

#endif
