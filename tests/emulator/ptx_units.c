/* SPDX-License-Identifier: Apache-2.0
 * Instructions that PTX does not have: of the matrix units of other vendors,
 * and what their waves do together (prelude/ has what kernels call).
 *
 *   unit.product.wmma11.f16 {sums}, {words of A}, {words of B};
 *
 * adds A B to sums; elements of 16 bits lie in words, the first of two in the
 * lower half. Where an element of a lane lies in its matrix is written down
 * here as the vendors' documents say it, of registers, halves and lanes.
 *
 * AMD: the ISA documents of RDNA3, RDNA4 and CDNA3, as
 * ROCm/amd_matrix_instruction_calculator prints them. Intel:
 * cl_intel_subgroup_matrix_multiply_accumulate. */
#include "ptx_code.h"

enum { MOST_SIDE = 32, MOST_INNER = 16 };

/* Element `half` of word `word` of a lane's, or of sums the word. */
typedef struct place {
    unsigned row, column;
} place;
typedef place place_of(unsigned lane, unsigned word, unsigned half);

typedef struct unit {
    unsigned lanes;
    unsigned m, n, k;
    unsigned a_words, b_words, c_words;
    place_of *a, *b, *c;
} unit;

/* ---- AMD ---- */

/* RDNA3: VGPR v has k = 2 v and 2 v + 1 of row lane % 16, in both halves of
 * the wave. */
static place wmma11_a(unsigned lane, unsigned word, unsigned half)
{
    return (place){lane % 16, 2 * word + half};
}
static place wmma11_b(unsigned lane, unsigned word, unsigned half)
{
    return (place){2 * word + half, lane % 16};
}
/* VGPR v has row 2 v in lanes 0 to 15 and 2 v + 1 in the others. */
static place wmma11_c(unsigned lane, unsigned word, unsigned half)
{
    (void)half;
    return (place){2 * word + (lane >= 16), lane % 16};
}

/* RDNA4: VGPRs 0 and 1 have k 0 to 3 in lanes 0 to 15 and 4 to 7 in the
 * others, 2 and 3 the same of the next 8. */
static unsigned wmma12_k(unsigned lane, unsigned word, unsigned half)
{
    return 8 * (word / 2) + 4 * (lane / 16) + 2 * (word % 2) + half;
}
static place wmma12_a(unsigned lane, unsigned word, unsigned half)
{
    return (place){lane % 16, wmma12_k(lane, word, half)};
}
static place wmma12_b(unsigned lane, unsigned word, unsigned half)
{
    return (place){wmma12_k(lane, word, half), lane % 16};
}
/* VGPR v has row v in lanes 0 to 15 and v + 8 in the others. */
static place wmma12_c(unsigned lane, unsigned word, unsigned half)
{
    (void)half;
    return (place){word + 8 * (lane / 16), lane % 16};
}

/* CDNA: four k for each group of lanes, one behind the other. */
static place mfma16_a(unsigned lane, unsigned word, unsigned half)
{
    return (place){lane % 16, 4 * (lane / 16) + 2 * word + half};
}
static place mfma16_b(unsigned lane, unsigned word, unsigned half)
{
    return (place){4 * (lane / 16) + 2 * word + half, lane % 16};
}
static place mfma16_c(unsigned lane, unsigned word, unsigned half)
{
    (void)half;
    return (place){4 * (lane / 16) + word, lane % 16};
}
static place mfma32_a(unsigned lane, unsigned word, unsigned half)
{
    return (place){lane % 32, 4 * (lane / 32) + 2 * word + half};
}
static place mfma32_b(unsigned lane, unsigned word, unsigned half)
{
    return (place){4 * (lane / 32) + 2 * word + half, lane % 32};
}
/* Blocks of four rows, which the halves of the wave have by turns. */
static place mfma32_c(unsigned lane, unsigned word, unsigned half)
{
    (void)half;
    return (place){8 * (word / 4) + 4 * (lane / 32) + word % 4, lane % 32};
}

/* ---- Intel ---- */

/* A component of a is a row; of a sub-group of 8 a work-item has two k. */
static place dpas8_a(unsigned lane, unsigned word, unsigned half)
{
    return (place){word, 2 * lane + half};
}
static place dpas16_a(unsigned lane, unsigned word, unsigned half)
{
    return (place){2 * word + half, lane};
}
/* A work-item has a column, component j of b two k. */
static place dpas_b(unsigned lane, unsigned word, unsigned half)
{
    return (place){2 * word + half, lane};
}
static place dpas_c(unsigned lane, unsigned word, unsigned half)
{
    (void)half;
    return (place){word, lane};
}

/* ---- Products ---- */

typedef struct factors {
    uint16_t a[MOST_SIDE][MOST_INNER], b[MOST_INNER][MOST_SIDE];
    bool has_a[MOST_SIDE][MOST_INNER], has_b[MOST_INNER][MOST_SIDE];
} factors;

/* False: lanes that should hold the same do not. */
static bool put(uint16_t *to, bool *has, uint16_t bits)
{
    if (*has)
        return *to == bits;
    *has = true;
    *to = bits;
    return true;
}

static bool gather(const ptx_wave *wave, const ptx_instruction *i,
                   const unit *u, factors *x)
{
    bool agrees = true;
    memset(x->has_a, 0, sizeof x->has_a);
    memset(x->has_b, 0, sizeof x->has_b);
    for (unsigned lane = 0; lane < u->lanes; lane++)
        for (unsigned half = 0; half < 2; half++) {
            for (unsigned word = 0; word < u->a_words; word++) {
                const place p = u->a(lane, word, half);
                const uint64_t bits =
                    lanes_of(wave, i, u->c_words + word)[lane];
                agrees &=
                    put(&x->a[p.row][p.column], &x->has_a[p.row][p.column],
                        (uint16_t)(bits >> 16 * half));
            }
            for (unsigned word = 0; word < u->b_words; word++) {
                const place p = u->b(lane, word, half);
                const uint64_t bits =
                    lanes_of(wave, i, u->c_words + u->a_words + word)[lane];
                agrees &=
                    put(&x->b[p.row][p.column], &x->has_b[p.row][p.column],
                        (uint16_t)(bits >> 16 * half));
            }
        }
    return agrees;
}

static void multiply(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes,
                     const unit *u)
{
    const bool is_bf16 = i->width.type == TYPE_BF16;
    factors x;
    float a[MOST_SIDE][MOST_INNER], b[MOST_SIDE][MOST_INNER];
    if (wave->group->width != u->lanes || lanes != first_lanes(u->lanes)) {
        ptx_fail(wave->group, "a product of %d lanes of %u, for %u",
                 __builtin_popcountll(lanes), wave->group->width, u->lanes);
        return;
    }
    if (!gather(wave, i, u, &x)) {
        ptx_fail(wave->group, "lanes that must hold the same do not");
        return;
    }
    for (unsigned k = 0; k < u->k; k++) {
        for (unsigned m = 0; m < u->m; m++)
            a[m][k] = is_bf16 ? ptx_bf16(x.a[m][k]) : ptx_half(x.a[m][k]);
        for (unsigned n = 0; n < u->n; n++)
            b[n][k] = is_bf16 ? ptx_bf16(x.b[k][n]) : ptx_half(x.b[k][n]);
    }
    for (unsigned word = 0; word < u->c_words; word++)
        for (unsigned lane = 0; lane < u->lanes; lane++) {
            const place p = u->c(lane, word, 0);
            uint64_t *to = &lanes_of(wave, i, word)[lane];
            float sum = 0;
            for (unsigned k = 0; k < u->k; k++)
                sum += a[p.row][k] * b[p.column][k];
            *to = bits_of(sum + float_of(*to));
        }
}

static const struct {
    ptx_function *run;
    unit unit;
} units[] = {
    {run_wmma11, {32, 16, 16, 16, 8, 8, 8, wmma11_a, wmma11_b, wmma11_c}},
    {run_wmma12, {32, 16, 16, 16, 4, 4, 8, wmma12_a, wmma12_b, wmma12_c}},
    {run_mfma16, {64, 16, 16, 16, 2, 2, 4, mfma16_a, mfma16_b, mfma16_c}},
    {run_mfma32, {64, 32, 32, 8, 2, 2, 16, mfma32_a, mfma32_b, mfma32_c}},
    {run_dpas8, {8, 8, 8, 16, 8, 8, 8, dpas8_a, dpas_b, dpas_c}},
    {run_dpas16, {16, 8, 16, 16, 4, 8, 8, dpas16_a, dpas_b, dpas_c}},
};

static const unit *unit_of(ptx_function *run)
{
    for (size_t n = 0; n < sizeof units / sizeof *units; n++)
        if (units[n].run == run)
            return &units[n].unit;
    return NULL;
}

unsigned ptx_unit_operands(ptx_function *run)
{
    const unit *u = unit_of(run);
    return u ? u->c_words + u->a_words + u->b_words : 0;
}

void ptx_unit_spread(ptx_function *run, const lane_mask *operands,
                     lane_mask *sums)
{
    const unit *u = unit_of(run);
    uint32_t rows = 0, columns = 0;
    for (unsigned half = 0; half < 2; half++) {
        for (unsigned word = 0; word < u->a_words; word++)
            LANE_FOR (operands[word])
                rows |= 1u << u->a(lane, word, half).row;
        for (unsigned word = 0; word < u->b_words; word++)
            LANE_FOR (operands[u->a_words + word])
                columns |= 1u << u->b(lane, word, half).column;
    }
    for (unsigned word = 0; (rows || columns) && word < u->c_words; word++)
        for (unsigned lane = 0; lane < u->lanes; lane++) {
            const place p = u->c(lane, word, 0);
            if (rows >> p.row & 1 || columns >> p.column & 1)
                sums[word] |= (lane_mask)1 << lane;
        }
}

#define RUN(name, number)                                                     \
    void run_##name(ptx_wave *wave, const ptx_instruction *i,                 \
                    lane_mask lanes)                                          \
    {                                                                         \
        multiply(wave, i, lanes, &units[number].unit);                        \
    }
RUN(wmma11, 0)
RUN(wmma12, 1)
RUN(mfma16, 2)
RUN(mfma32, 3)
RUN(dpas8, 4)
RUN(dpas16, 5)

/* ---- Lanes of a wave ---- */

/* Is the whole wave there? Of lanes that are not, others would get what the
 * hardware has. */
static bool is_whole(ptx_wave *wave, lane_mask lanes)
{
    if (lanes == first_lanes(wave->group->width))
        return true;
    ptx_fail(wave->group, "some lanes only ask each other");
    return false;
}

unsigned ptx_asked_lane(const ptx_wave *wave, const ptx_instruction *i,
                        unsigned lane)
{
    if (i->run == run_permute_bytes)
        return (unsigned)(cut(lanes_of(wave, i, 2)[lane], 32) / 4 %
                          wave->group->width);
    const uint64_t selectors = lanes_of(wave, i, lane % 16 < 8 ? 2 : 3)[lane];
    return (lane / 16 ^ 1) * 16 + (unsigned)(selectors >> 4 * (lane % 8) & 15);
}

static void ask(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    uint64_t given[MOST_LANES];
    if (!is_whole(wave, lanes))
        return;
    memcpy(given, lanes_of(wave, i, 1), wave->group->width * sizeof *given);
    LANE_FOR (lanes)
        lanes_of(wave, i, 0)[lane] = given[ptx_asked_lane(wave, i, lane)];
}

/* to, from, selectors of 4 bits for the lower and the upper 8 lanes of each
 * row of 16: whose number of the other row a lane gets (RDNA3 ISA,
 * V_PERMLANEX16_B32). */
void run_permute_rows(ptx_wave *wave, const ptx_instruction *i,
                      lane_mask lanes)
{
    ask(wave, i, lanes);
}

/* to, from, four times whose number a lane gets (DS_BPERMUTE_B32). */
void run_permute_bytes(ptx_wave *wave, const ptx_instruction *i,
                       lane_mask lanes)
{
    ask(wave, i, lanes);
}

/* A bit for each lane whose number is not 0. */
void run_ballot(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    lane_mask found = 0;
    if (!is_whole(wave, lanes))
        return;
    if (i->width.bits != wave->group->width) {
        ptx_fail(wave->group, "a ballot of %u lanes", i->width.bits);
        return;
    }
    LANE_FOR (lanes)
        found |= (lane_mask)(cut(lanes_of(wave, i, 1)[lane], 32) != 0) << lane;
    LANE_FOR (lanes)
        lanes_of(wave, i, 0)[lane] = found;
}
