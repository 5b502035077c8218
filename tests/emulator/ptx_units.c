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

enum { MOST_SIDE = 16, MOST_INNER = 16 };

/* Row, column or k of half a word of a lane's; of sums, of the word. */
typedef unsigned index_of(unsigned lane, unsigned word, unsigned half);

/* How lanes hold matrices: lane l has column l % n of B and of the sums. */
struct ptx_unit {
    const char *name;
    unsigned lanes;
    unsigned m, n, k;
    unsigned a_words, b_words, c_words;
    index_of *b_k, *c_row;
    index_of *a_row, *a_k; /* NULL: l % m, and the same as of B */
};

/* ---- AMD ---- */

/* RDNA3: VGPR v has k = 2 v and 2 v + 1 of row lane % 16, in both halves of
 * the wave. */
static unsigned pair_of_word(unsigned lane, unsigned word, unsigned half)
{
    (void)lane;
    return 2 * word + half;
}
/* VGPR v has row 2 v in lanes 0 to 15 and 2 v + 1 in the others. */
static unsigned wmma11_row(unsigned lane, unsigned word, unsigned half)
{
    (void)half;
    return 2 * word + lane / 16;
}

/* RDNA4: VGPRs 0 and 1 have k 0 to 3 in lanes 0 to 15 and 4 to 7 in the
 * others, 2 and 3 the same of the next 8. */
static unsigned wmma12_k(unsigned lane, unsigned word, unsigned half)
{
    return 8 * (word / 2) + 4 * (lane / 16) + 2 * (word % 2) + half;
}
/* VGPR v has row v in lanes 0 to 15 and v + 8 in the others. */
static unsigned wmma12_row(unsigned lane, unsigned word, unsigned half)
{
    (void)half;
    return word + 8 * (lane / 16);
}

/* CDNA: four k for each group of lanes, one behind the other. */
static unsigned mfma16_k(unsigned lane, unsigned word, unsigned half)
{
    return 4 * (lane / 16) + 2 * word + half;
}
static unsigned mfma16_row(unsigned lane, unsigned word, unsigned half)
{
    (void)half;
    return 4 * (lane / 16) + word;
}

/* ---- Intel ---- */

/* A component of a is a row, of the sums, too; of a sub-group of 8 a work-item
 * has two k. Component j of b has two k. */
static unsigned the_word(unsigned lane, unsigned word, unsigned half)
{
    (void)lane;
    (void)half;
    return word;
}
static unsigned dpas8_k(unsigned lane, unsigned word, unsigned half)
{
    (void)word;
    return 2 * lane + half;
}
static unsigned the_lane(unsigned lane, unsigned word, unsigned half)
{
    (void)word;
    (void)half;
    return lane;
}

/* ---- Units ---- */

static const ptx_unit units[] = {
    {"wmma11", 32, 16, 16, 16, 8, 8, 8, pair_of_word, wmma11_row, NULL, NULL},
    {"wmma12", 32, 16, 16, 16, 4, 4, 8, wmma12_k, wmma12_row, NULL, NULL},
    {"mfma16", 64, 16, 16, 16, 2, 2, 4, mfma16_k, mfma16_row, NULL, NULL},
    {"dpas8", 8, 8, 8, 16, 8, 8, 8, pair_of_word, the_word, the_word, dpas8_k},
    {"dpas16", 16, 8, 16, 16, 4, 8, 8, pair_of_word, the_word, pair_of_word,
     the_lane},
};

const ptx_unit *ptx_unit_named(const char *name)
{
    for (size_t n = 0; n < sizeof units / sizeof *units; n++)
        if (strcmp(units[n].name, name) == 0)
            return &units[n];
    return NULL;
}

unsigned ptx_unit_operands(const ptx_unit *u)
{
    return u->c_words + u->a_words + u->b_words;
}

/* Where half a word, of A's and then of B's, is in x[of B][row or column][k]:
 * the index of the whole array. */
static inline unsigned place_of(const ptx_unit *u, unsigned lane,
                                unsigned word, unsigned half)
{
    const bool is_b = word >= u->a_words;
    const unsigned own = is_b ? word - u->a_words : word;
    index_of *const k_of = is_b || !u->a_k ? u->b_k : u->a_k;
    const unsigned row = is_b        ? lane & (u->n - 1)
                         : !u->a_row ? lane & (u->m - 1)
                                     : u->a_row(lane, own, half);
    return (is_b * MOST_SIDE + row) * MOST_INNER + k_of(lane, own, half);
}

/* ---- Products ---- */

/* Bits of elements of A and of B; less than 0 is none. */
typedef int32_t factors[2][MOST_SIDE][MOST_INNER];

/* False: lanes that should hold the same do not. */
static bool gather(const ptx_wave *wave, const ptx_instruction *i, factors x)
{
    const ptx_unit *u = i->unit;
    bool agrees = true;
    memset(x, 0xff, sizeof(factors));
    for (unsigned word = 0; word < u->a_words + u->b_words; word++) {
        const uint64_t *from = lanes_of(wave, i, u->c_words + word);
        for (unsigned lane = 0; lane < u->lanes; lane++)
            for (unsigned half = 0; half < 2; half++) {
                const int32_t bits = (uint16_t)(from[lane] >> 16 * half);
                int32_t *to = (int32_t *)x + place_of(u, lane, word, half);
                agrees = agrees && (*to < 0 || *to == bits);
                *to = bits;
            }
    }
    return agrees;
}

void run_unit(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    const ptx_unit *u = i->unit;
    float (*const read)(uint16_t) =
        i->width.type == TYPE_BF16 ? ptx_bf16 : ptx_half;
    factors bits;
    float x[2][MOST_SIDE][MOST_INNER];
    if (wave->group->width != u->lanes || lanes != first_lanes(u->lanes)) {
        ptx_fail(wave->group, "a product of %d lanes of %u, for %u",
                 __builtin_popcountll(lanes), wave->group->width, u->lanes);
        return;
    }
    if (!gather(wave, i, bits)) {
        ptx_fail(wave->group, "lanes that must hold the same do not");
        return;
    }
    for (unsigned b = 0; b < 2; b++)
        for (unsigned side = 0; side < (b ? u->n : u->m); side++)
            for (unsigned k = 0; k < u->k; k++)
                x[b][side][k] = read((uint16_t)bits[b][side][k]);
    for (unsigned word = 0; word < u->c_words; word++)
        for (unsigned lane = 0; lane < u->lanes; lane++) {
            const float *row = x[0][u->c_row(lane, word, 0)];
            const float *column = x[1][lane & (u->n - 1)];
            uint64_t *to = &lanes_of(wave, i, word)[lane];
            float sum = 0;
            for (unsigned k = 0; k < u->k; k++)
                sum += row[k] * column[k];
            *to = bits_of(sum + float_of(*to));
        }
}

void ptx_unit_spread(const ptx_unit *u, const lane_mask *operands,
                     lane_mask *sums)
{
    uint32_t unset[2] = {0, 0}; /* rows of A, columns of B */
    for (unsigned word = 0; word < u->a_words + u->b_words; word++)
        LANE_FOR (operands[word])
            for (unsigned half = 0; half < 2; half++) {
                const unsigned row =
                    place_of(u, lane, word, half) / MOST_INNER;
                unset[row / MOST_SIDE] |= 1u << row % MOST_SIDE;
            }
    for (unsigned word = 0; (unset[0] || unset[1]) && word < u->c_words;
         word++)
        for (unsigned lane = 0; lane < u->lanes; lane++)
            if (unset[0] >> u->c_row(lane, word, 0) & 1 ||
                unset[1] >> (lane & (u->n - 1)) & 1)
                sums[word] |= (lane_mask)1 << lane;
}

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

/* to, from, four times whose number a lane gets (DS_BPERMUTE_B32); or to,
 * from, selectors of 4 bits for the lower and the upper 8 lanes of each row of
 * 16: whose number of the other row a lane gets (RDNA3 ISA,
 * V_PERMLANEX16_B32). */
unsigned ptx_asked_lane(const ptx_wave *wave, const ptx_instruction *i,
                        unsigned lane)
{
    if (i->operand_count == 3)
        return (unsigned)(cut(lanes_of(wave, i, 2)[lane], 32) / 4 %
                          wave->group->width);
    const uint64_t selectors = lanes_of(wave, i, lane % 16 < 8 ? 2 : 3)[lane];
    return (lane / 16 ^ 1) * 16 + (unsigned)(selectors >> 4 * (lane % 8) & 15);
}

void run_permute(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    uint64_t given[MOST_LANES];
    if (!is_whole(wave, lanes))
        return;
    memcpy(given, lanes_of(wave, i, 1), wave->group->width * sizeof *given);
    LANE_FOR (lanes)
        lanes_of(wave, i, 0)[lane] = given[ptx_asked_lane(wave, i, lane)];
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
