/* SPDX-License-Identifier: Apache-2.0
 * Values that nobody has set: a bit for each lane of each register, and a byte
 * for each of private memory. */
#include "ptx_unset.h"
#include "ptx_races.h"

#include <stdlib.h>

typedef struct ptx_unset {
    lane_mask *registers[MOST_WAVES]; /* two masks of each */
    unsigned char *memory[MOST_WAVES];
} ptx_unset;

/* ---- Memory ---- */

struct ptx_unset *ptx_unset_new(const ptx_group *group)
{
    const ptx_code *code = group->kernel->code;
    const size_t bytes = group->width * group->kernel->private_bytes + 1;
    ptx_unset *made = calloc(1, sizeof *made);
    if (!made)
        return NULL;
    bool ok = true;
    for (unsigned w = 0; w < group->wave_count; w++) {
        made->registers[w] =
            malloc((code->register_count + 1) * 2 * sizeof(lane_mask));
        made->memory[w] = malloc(bytes);
        ok = ok && made->registers[w] && made->memory[w];
    }
    if (!ok) {
        ptx_unset_free(made);
        return NULL;
    }
    return made;
}

void ptx_unset_free(struct ptx_unset *unset)
{
    for (unsigned w = 0; unset && w < MOST_WAVES; w++) {
        free(unset->registers[w]);
        free(unset->memory[w]);
    }
    free(unset);
}

void ptx_unset_start(ptx_wave *wave)
{
    const ptx_group *group = wave->group;
    const ptx_code *code = group->kernel->code;
    lane_mask *registers = group->unset->registers[wave->number];
    for (size_t n = 0; n < 2 * code->register_count; n++)
        registers[n] = first_lanes(group->width);
    for (size_t n = 0; n < code->constant_count; n++)
        for (unsigned half = 0; half < 2; half++)
            registers[2 * code->constants[n].reg + half] = 0;
    memset(group->unset->memory[wave->number], 1,
           group->width * group->kernel->private_bytes);
}

/* ---- Registers ---- */

/* Compilers keep two numbers in a register, of which one may be set. */
typedef struct halves {
    lane_mask of[2]; /* the lower one, the upper one */
} halves;

static halves *halves_of(const ptx_wave *wave, uint32_t reg)
{
    return (halves *)wave->group->unset->registers[wave->number] + reg;
}
static halves *operand_of(const ptx_wave *wave, const ptx_instruction *i,
                          unsigned operand)
{
    return halves_of(wave, i->operands[operand].reg);
}

static lane_mask unset_of(const ptx_wave *wave, const ptx_instruction *i,
                          unsigned operand)
{
    const halves *x = operand_of(wave, i, operand);
    return x->of[0] | x->of[1];
}

static lane_mask any_of(const ptx_wave *wave, const ptx_instruction *i,
                        unsigned first, unsigned end)
{
    lane_mask any = 0;
    for (unsigned n = first; n < end; n++)
        any |= unset_of(wave, i, n);
    return any;
}

static void set_halves(const ptx_wave *wave, const ptx_instruction *i,
                       unsigned operand, lane_mask lanes, halves unset)
{
    halves *to = operand_of(wave, i, operand);
    for (unsigned half = 0; half < 2; half++)
        to->of[half] = (to->of[half] & ~lanes) | (unset.of[half] & lanes);
}

static void set(const ptx_wave *wave, const ptx_instruction *i,
                unsigned operand, lane_mask lanes, lane_mask unset)
{
    set_halves(wave, i, operand, lanes, (halves){{unset, unset}});
}

static void report(ptx_wave *wave, lane_mask lanes, const char *what)
{
    if (lanes)
        ptx_fail(wave->group, "work-item %u: %s that nobody has set",
                 wave->number * wave->group->width + first_of(lanes), what);
}

void ptx_unset_guard(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    report(wave, halves_of(wave, (uint32_t)i->guard)->of[0] & lanes,
           "goes on by a value");
}

static void check_addresses(ptx_wave *wave, const ptx_instruction *i,
                            lane_mask lanes)
{
    if (i->run == run_load_matrices || i->run == run_store_matrices)
        lanes &= first_lanes(8 * i->count);
    for (unsigned n = 0; n < i->operand_count; n++)
        if (i->operands[n].is_address)
            report(wave, unset_of(wave, i, n) & lanes, "an address");
}

/* ---- Products ---- */

/* A lane has two rows of the left operand with 3 others, and one column of
 * the right one with 3 others. */
static lane_mask spread_rows(lane_mask lanes)
{
    lane_mask all = 0;
    LANE_FOR (lanes)
        all |= (lane_mask)0xf << lane / 4 * 4;
    return all;
}

/* Of columns 2 c + part, where c is a lane's place among its 4. */
static lane_mask spread_columns(lane_mask lanes, unsigned part)
{
    lane_mask all = 0;
    LANE_FOR (lanes)
        if (lane / 4 % 2 == part)
            all |= (lane_mask)0x11111111 << lane / 8;
    return all;
}

/* See run_multiply_wave. */
static void spread_product(ptx_wave *wave, const ptx_instruction *i,
                           lane_mask lanes)
{
    lane_mask sums[4];
    for (unsigned n = 0; n < 4; n++)
        sums[n] = spread_rows(unset_of(wave, i, 4 + n / 2) |
                              unset_of(wave, i, 6 + n / 2)) |
                  spread_columns(any_of(wave, i, 8, 10), n % 2) |
                  unset_of(wave, i, 10 + n);
    for (unsigned n = 0; n < 4; n++)
        set(wave, i, n, lanes, sums[n]);
}

/* See run_multiply_group: sums, perhaps four words of rows, the rest. */
static void spread_group_product(ptx_wave *wave, const ptx_instruction *i,
                                 lane_mask lanes)
{
    const unsigned sums = i->count / 2;
    const bool is_held = ptx_is_held(i);
    const unsigned second = sums + (is_held ? 4 : 1);
    const bool adds = lanes_of(wave, i, second + 1)[0] & 1;
    report(wave, any_of(wave, i, second, i->operand_count),
           "an operand of a product");
    for (unsigned n = 0; n < sums; n++) {
        lane_mask unset = adds ? unset_of(wave, i, n) : 0;
        if (is_held)
            unset |= spread_rows(unset_of(wave, i, sums + n / 2 % 2) |
                                 unset_of(wave, i, sums + 2 + n / 2 % 2));
        set(wave, i, n, lanes, unset);
    }
}

/* Sums are added to. */
static void spread_unit(ptx_wave *wave, const ptx_instruction *i,
                        lane_mask lanes)
{
    lane_mask operands[32], sums[16];
    for (unsigned n = i->lead; n < i->operand_count; n++)
        operands[n - i->lead] = unset_of(wave, i, n);
    for (unsigned n = 0; n < i->lead; n++)
        sums[n] = unset_of(wave, i, n);
    ptx_unit_spread(i->unit, operands, sums);
    for (unsigned n = 0; n < i->lead; n++)
        set(wave, i, n, lanes, sums[n]);
}

/* ---- All instructions ---- */

static void spread_shuffle(ptx_wave *wave, const ptx_instruction *i,
                           lane_mask lanes)
{
    const lane_mask given = unset_of(wave, i, 1);
    const uint64_t *which = lanes_of(wave, i, 2);
    lane_mask unset = unset_of(wave, i, 2);
    LANE_FOR (given ? lanes : 0)
        unset |= (given >> ptx_shuffled(wave, i, lanes, lane,
                                        (unsigned)which[lane]) &
                  1)
                 << lane;
    set(wave, i, 0, lanes, unset);
}

static void spread_permute(ptx_wave *wave, const ptx_instruction *i,
                           lane_mask lanes)
{
    const lane_mask given = unset_of(wave, i, 1);
    lane_mask unset = any_of(wave, i, 2, i->operand_count);
    LANE_FOR (given ? lanes : 0)
        unset |= (given >> ptx_asked_lane(wave, i, lane) & 1) << lane;
    set(wave, i, 0, lanes, unset);
}

static void spread_select(ptx_wave *wave, const ptx_instruction *i,
                          lane_mask lanes)
{
    const halves first = *operand_of(wave, i, 1);
    const halves second = *operand_of(wave, i, 2);
    const lane_mask by = unset_of(wave, i, 3);
    const uint64_t *which = lanes_of(wave, i, 3);
    halves unset = {{by, by}};
    lane_mask is_first = 0;
    if (first.of[0] | first.of[1] | second.of[0] | second.of[1])
        LANE_FOR (lanes)
            is_first |= (which[lane] & 1) << lane;
    for (unsigned half = 0; half < 2; half++)
        unset.of[half] |=
            (first.of[half] & is_first) | (second.of[half] & ~is_first);
    set_halves(wave, i, 0, lanes, unset);
}

/* Parts are in order, the lowest bits first. */
static void spread_move(ptx_wave *wave, const ptx_instruction *i,
                        lane_mask lanes)
{
    const unsigned to = i->lead, from = i->operand_count - to;
    halves unset = *operand_of(wave, i, to);
    if (from > 1)
        unset = (halves){{any_of(wave, i, to, to + from / 2),
                          any_of(wave, i, to + from / 2, to + from)}};
    if (to == 1)
        set_halves(wave, i, 0, lanes, unset);
    for (unsigned n = 0; n < to && to > 1; n++)
        set(wave, i, n, lanes, unset.of[n >= to / 2]);
}

/* What and with zeros, or or with ones, gives is set. */
static void spread_bits(ptx_wave *wave, const ptx_instruction *i,
                        lane_mask lanes)
{
    halves unset = {{0}};
    for (unsigned n = 1; n < i->operand_count; n++)
        for (unsigned half = 0; half < 2; half++)
            unset.of[half] |= operand_of(wave, i, n)->of[half];
    if ((unset.of[0] | unset.of[1]) && i->run == run_and) {
        const unsigned bits = i->width.bits / 2;
        for (unsigned n = 1; n < 3; n++)
            LANE_FOR (lanes & ~unset_of(wave, i, n)) {
                const uint64_t x = lanes_of(wave, i, n)[lane];
                if (cut(x, bits) == 0)
                    unset.of[0] &= ~((lane_mask)1 << lane);
                if (cut(x >> bits, bits) == 0)
                    unset.of[1] &= ~((lane_mask)1 << lane);
            }
    }
    set_halves(wave, i, 0, lanes, unset);
}

/* By half of the bits, or who knows. */
static void spread_shift(ptx_wave *wave, const ptx_instruction *i,
                         lane_mask lanes)
{
    const halves x = *operand_of(wave, i, 1);
    const lane_mask by = unset_of(wave, i, 2);
    const unsigned amount = (unsigned)lanes_of(wave, i, 2)[first_of(lanes)];
    const bool is_half = amount == i->width.bits / 2;
    const bool is_up = i->run == run_shift_left;
    const lane_mask all = x.of[0] | x.of[1] | by;
    if (!is_half)
        set(wave, i, 0, lanes, all);
    else if (is_up)
        set_halves(wave, i, 0, lanes, (halves){{by, x.of[0] | by}});
    else
        set_halves(wave, i, 0, lanes, (halves){{x.of[1] | by, by}});
}

/* Of 16 bits, of a register of 32. */
static void spread_convert(ptx_wave *wave, const ptx_instruction *i,
                           lane_mask lanes)
{
    const bool is_integer =
        i->from.type != TYPE_FLOAT && i->width.type != TYPE_FLOAT;
    const unsigned bits =
        i->width.bits < i->from.bits ? i->width.bits : i->from.bits;
    lane_mask unset = any_of(wave, i, 1, i->operand_count);
    if (i->operand_count == 2 && is_integer && 2 * bits <= i->from.bits)
        unset = operand_of(wave, i, 1)->of[0];
    set(wave, i, 0, lanes, unset);
}

static void spread_plain(ptx_wave *wave, const ptx_instruction *i,
                         lane_mask lanes)
{
    const lane_mask unset = any_of(wave, i, i->lead, i->operand_count);
    for (unsigned n = 0; n < i->lead; n++)
        set(wave, i, n, lanes, unset);
}

static void spread_wave(ptx_wave *wave, const ptx_instruction *i,
                        lane_mask lanes)
{
    const lane_mask any = any_of(wave, i, i->lead, i->operand_count);
    for (unsigned n = 0; n < i->lead; n++)
        set(wave, i, n, lanes, any & lanes ? lanes : 0);
}

/* What is loaded is checked where it is known from where. */
static void spread_memory(ptx_wave *wave, const ptx_instruction *i,
                          lane_mask lanes)
{
    for (unsigned n = 0; n < i->count; n++)
        set(wave, i, n, lanes, 0);
}

static void want_all(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    const bool has_result = i->rule == RULE_ATOMIC;
    report(wave, any_of(wave, i, has_result, i->operand_count) & lanes,
           "an operand");
    if (has_result)
        set(wave, i, 0, lanes, 0);
}

void ptx_unset_spread(ptx_wave *wave, const ptx_instruction *i,
                      lane_mask lanes)
{
    static ptx_function *const rules[] = {
        [RULE_PLAIN] = spread_plain,
        [RULE_MOVE] = spread_move,
        [RULE_BITS] = spread_bits,
        [RULE_SHIFT] = spread_shift,
        [RULE_CONVERT] = spread_convert,
        [RULE_WAVE] = spread_wave,
        [RULE_MEMORY] = spread_memory,
        [RULE_NONE] = want_all,
        [RULE_STORE] = NULL, /* checked where it is known where to */
        [RULE_ATOMIC] = want_all,
        [RULE_SHUFFLE] = spread_shuffle,
        [RULE_SELECT] = spread_select,
        [RULE_PERMUTE] = spread_permute,
        [RULE_PRODUCT] = spread_product,
        [RULE_GROUP_PRODUCT] = spread_group_product,
        [RULE_UNIT] = spread_unit};
    if (i->rule != RULE_PLAIN)
        check_addresses(wave, i, lanes);
    if (rules[i->rule])
        rules[i->rule](wave, i, lanes);
}

/* ---- Loads and stores ---- */

void ptx_unset_loaded(ptx_wave *wave, const ptx_instruction *i,
                      unsigned operand, unsigned lane)
{
    halves *to = operand_of(wave, i, operand);
    to->of[0] |= (lane_mask)1 << lane;
    to->of[1] |= (lane_mask)1 << lane;
}

static unsigned char *private_flags(const ptx_wave *wave,
                                    const unsigned char *at)
{
    const ptx_group *group = wave->group;
    const size_t size = group->width * group->kernel->private_bytes;
    if (at < wave->private_memory || at >= wave->private_memory + size)
        return NULL;
    return group->unset->memory[wave->number] + (at - wave->private_memory);
}

void ptx_unset_stored(ptx_wave *wave, const ptx_instruction *i,
                      unsigned operand, unsigned lane, const unsigned char *to,
                      size_t bytes)
{
    const halves unset = *operand_of(wave, i, operand);
    const lane_mask any = (unset.of[0] | unset.of[1]) & (lane_mask)1 << lane;
    const ptx_group *group = wave->group;
    unsigned char *flags = private_flags(wave, to);
    if (!flags && any && to >= group->shared &&
        to < group->shared + group->shared_bytes)
        ptx_local_unset(wave, (size_t)(to - group->shared), bytes);
    else if (!flags)
        report(wave, any, "stores a value");
    if (!flags)
        return;
    const size_t half = bytes > 2 ? bytes / 2 : bytes;
    memset(flags, unset.of[0] >> lane & 1, half);
    memset(flags + half, unset.of[1] >> lane & 1, bytes - half);
}

bool ptx_private_is_unset(const ptx_wave *wave, const unsigned char *at,
                          size_t bytes)
{
    const unsigned char *flags = private_flags(wave, at);
    return flags && memchr(flags, 1, bytes) != NULL;
}
