/* SPDX-License-Identifier: Apache-2.0
 * Matrix instructions (PTX ISA, "Warp Level Matrix Instructions" and
 * "Asynchronous Warpgroup Level Matrix Instructions"). Of a product's 16 rows
 * of a wave a lane has rows lane / 4 and 8 more, and of each 8 columns 2 (lane
 * % 4) and the next. */
#include "ptx_races.h"
#include "ptx_unset.h"

#include <stdlib.h>

enum { MOST_COLUMNS = 256, ROWS = 16, MOST_DEPTH = 16 };

/* What is multiplied, as numbers. */
typedef struct factors {
    float rows[ROWS][MOST_DEPTH];
    float columns[MOST_COLUMNS][MOST_DEPTH];
} factors;

static float single_of(uint64_t word)
{
    /* hardware looks at no more bits */
    return float_of(word & ~(uint64_t)0x1fff);
}

static float half_of(ptx_width type, uint64_t word, unsigned part)
{
    const uint16_t bits = (uint16_t)(word >> 16 * part);
    return type.type == TYPE_BF16 ? ptx_bf16(bits) : ptx_half(bits);
}

/* Channels of a wave's rows, from a lane's four words: 16 in pairs, or 8. */
static void take_rows(const ptx_wave *wave, const ptx_instruction *i,
                      unsigned first, factors *to)
{
    const unsigned parts = i->depth / 8;
    for (unsigned lane = 0; lane < WAVE_LANES; lane++)
        for (unsigned n = 0; n < 4; n++)
            for (unsigned part = 0; part < parts; part++) {
                const uint64_t word = lanes_of(wave, i, first + n)[lane];
                to->rows[lane / 4 + 8 * (n % 2)]
                        [parts * (lane % 4 + 4 * (n / 2)) + part] =
                    parts == 1 ? single_of(word)
                               : half_of(i->inner, word, part);
            }
}

/* sums += rows columns; the lane's sums begin with operand `to`, what is added
 * to with operand `from`. */
static void multiply(ptx_wave *wave, const ptx_instruction *i,
                     const factors *x, unsigned columns, unsigned depth,
                     unsigned from, bool adds)
{
    for (unsigned lane = 0; lane < WAVE_LANES; lane++)
        for (unsigned n = 0; n < columns / 2; n++) {
            const float *row = x->rows[lane / 4 + 8 * (n / 2 % 2)];
            const float *column =
                x->columns[8 * (n / 4) + 2 * (lane % 4) + n % 2];
            float sum = 0;
            for (unsigned k = 0; k < depth; k++)
                sum += row[k] * column[k];
            if (adds)
                sum += float_of(lanes_of(wave, i, from + n)[lane]);
            lanes_of(wave, i, n)[lane] = bits_of(sum);
        }
}

/* ---- Of a wave ---- */

/* sums, 16 rows, 8 columns, what is added. */
void run_multiply_wave(ptx_wave *wave, const ptx_instruction *i,
                       lane_mask lanes)
{
    factors x;
    if (lanes != ALL_LANES || i->depth * i->inner.bits != 256) {
        ptx_fail(wave->group, "a product that is not understood");
        return;
    }
    take_rows(wave, i, 4, &x);
    for (unsigned lane = 0; lane < WAVE_LANES; lane++)
        for (unsigned k = 0; k < i->depth / 4; k++) {
            const unsigned parts = i->depth / 8;
            const uint64_t word = lanes_of(wave, i, 8 + k / parts)[lane];
            x.columns[lane / 4]
                     [parts * (lane % 4 + 4 * (k / parts)) + k % parts] =
                parts == 1 ? single_of(word)
                           : half_of(i->inner, word, k % parts);
        }
    multiply(wave, i, &x, 8, i->count, 10, true);
}

/* Lane 8 n + r says where row r of matrix n is; a lane gets of row lane / 4
 * the word lane % 4, or of the transposed matrix. */
static bool find_rows(ptx_wave *wave, const ptx_instruction *i,
                      unsigned address, unsigned char *rows[4][8])
{
    for (unsigned lane = 0; lane < 8 * i->count; lane++) {
        rows[lane / 8][lane % 8] = ptx_resolve(
            wave, SPACE_SHARED, address_of(wave, i, address, lane), 16, lane);
        if (!rows[lane / 8][lane % 8])
            return false;
    }
    return true;
}

/* Where the halves of a lane's word are, of 8 rows. */
static unsigned char *half_at(unsigned char *const rows[8],
                              const ptx_instruction *i, unsigned lane,
                              unsigned part)
{
    const unsigned row = lane / 4, column = 2 * (lane % 4) + part;
    return i->transposes ? rows[column] + 2 * row : rows[row] + 2 * column;
}

static bool half_is_unset(ptx_wave *wave, unsigned lane,
                          const unsigned char *at)
{
    return ptx_local_read(wave, lane, (size_t)(at - wave->group->shared), 2);
}

void run_load_matrices(ptx_wave *wave, const ptx_instruction *i,
                       lane_mask lanes)
{
    unsigned char *rows[4][8];
    if (!find_rows(wave, i, i->count, rows))
        return;
    LANE_FOR (lanes)
        for (unsigned n = 0; n < i->count; n++) {
            uint16_t low, high;
            if (half_is_unset(wave, lane, half_at(rows[n], i, lane, 0)) |
                half_is_unset(wave, lane, half_at(rows[n], i, lane, 1)))
                ptx_unset_loaded(wave, i, n, lane);
            memcpy(&low, half_at(rows[n], i, lane, 0), 2);
            memcpy(&high, half_at(rows[n], i, lane, 1), 2);
            lanes_of(wave, i, n)[lane] = low | (uint64_t)high << 16;
        }
}

void run_store_matrices(ptx_wave *wave, const ptx_instruction *i,
                        lane_mask lanes)
{
    unsigned char *rows[4][8];
    if (!find_rows(wave, i, 0, rows))
        return;
    LANE_FOR (lanes)
        for (unsigned n = 0; n < i->count; n++) {
            const uint64_t word = lanes_of(wave, i, 1 + n)[lane];
            const uint16_t low = (uint16_t)word, high = (uint16_t)(word >> 16);
            for (unsigned part = 0; part < 2; part++) {
                unsigned char *to = half_at(rows[n], i, lane, part);
                memcpy(to, part ? &high : &low, 2);
                ptx_writes(wave, lane, to, 2, true);
                ptx_unset_stored(wave, i, 1 + n, lane, to, 2);
            }
        }
    for (unsigned n = 0; n < i->count; n++)
        for (unsigned row = 0; row < 8; row++)
            ptx_note_write(wave, rows[n][row], 16);
}

/* ---- Of a warpgroup ---- */

/* An operand in local memory (PTX ISA, "Matrix Descriptor"): where it starts,
 * and the strides, all in bytes. Rows are of `row` bytes, swizzled by as
 * many: 16-byte chunks of a row trade places by the row's number. */
typedef struct matrix {
    ptx_group *group;
    ptx_wave *wave;
    const ptx_clock *known;
    uint32_t start, leading, stride, row;
    uint32_t shown; /* when the product's wave had last shown what is there */
    ptx_width type;
} matrix;

static matrix describe(ptx_wave *wave, const ptx_product *product,
                       unsigned operand)
{
    static const uint32_t row_bytes[] = {16, 128, 64, 32};
    const uint64_t word = product->operands[operand];
    const matrix m = {.group = wave->group,
                      .wave = wave,
                      .known = product->known,
                      .start = (uint32_t)(word & 0x3fff) * 16,
                      .leading = (uint32_t)(word >> 16 & 0x3fff) * 16,
                      .stride = (uint32_t)(word >> 32 & 0x3fff) * 16,
                      .row = row_bytes[word >> 62],
                      .shown = product->shown,
                      .type = product->instruction->inner};
    if (m.row == 16 || (word >> 49 & 7))
        ptx_fail(wave->group,
                 "an operand that is not swizzled, or has a base");
    return m;
}

/* Has somebody written there, and were products shown it, by the wave that
 * wrote it or by that of the product? Kernels may compute anew what is not
 * finite, so NaNs alone might pass. */
static bool half_is_shown(const matrix *m, uint32_t offset)
{
    const uint32_t written = m->group->written[offset / 2];
    const ptx_wave *writer = &m->group->waves[m->group->writer[offset / 2]];
    if (written == NEVER)
        ptx_fail(m->group, "a product reads what nobody has written");
    else if (written != BY_ENGINE && written >= m->shown &&
             written >= writer->shown)
        ptx_fail(m->group, "a product reads what it was not shown");
    return !m->group->failed;
}

static float element(const matrix *m, uint32_t offset)
{
    const unsigned size = m->type.bits / 8;
    const uint32_t address = offset ^ ((offset / 128) % (m->row / 16)) * 16;
    const unsigned char *at = ptx_shared(m->group, address, size);
    uint32_t bits = 0;
    for (unsigned half = 0; half < size; half += 2)
        if (!at || !half_is_shown(m, address + half - SHARED_START))
            return 0;
    ptx_product_reads(m->wave, m->known, address - SHARED_START, size);
    memcpy(&bits, at, size);
    return m->type.type == TYPE_TF32 ? single_of(bits)
                                     : half_of(m->type, bits, 0);
}

/* Element k of a row, of an operand whose rows are as they lie in memory, 8 of
 * them after the other. */
static float along_rows(const matrix *m, unsigned row, unsigned k)
{
    return element(m, m->start + row / 8 * m->stride + row % 8 * m->row +
                          m->type.bits / 8 * k);
}

/* ... of one whose rows are columns in memory. */
static float down_columns(const matrix *m, unsigned row, unsigned k)
{
    const unsigned panel = m->row / 2;
    return element(m, m->start + k / 8 * m->stride + k % 8 * m->row +
                          row / panel * m->leading + row % panel * 2);
}

/* sums; then a descriptor or four words; a descriptor; whether to add; signs;
 * of 16 bits also which are read down their columns. */
static void multiply_now(ptx_wave *wave, const ptx_product *product)
{
    const ptx_instruction *i = product->instruction;
    factors x;
    const unsigned sums = i->count / 2;
    const bool is_held = ptx_is_held(i);
    const bool may_be_down = i->inner.type != TYPE_TF32;
    const bool is_down =
        may_be_down && (lanes_of(wave, i, i->operand_count - 1)[0] & 1);
    if (is_held) {
        take_rows(wave, i, sums, &x);
    } else {
        const matrix m = describe(wave, product, 0);
        const bool rows_down =
            may_be_down && (lanes_of(wave, i, i->operand_count - 2)[0] & 1);
        for (unsigned row = 0; row < ROWS; row++)
            for (unsigned k = 0; k < i->depth; k++)
                x.rows[row][k] = (rows_down ? down_columns : along_rows)(
                    &m, wave->number % 4 * ROWS + row, k);
    }
    const matrix m = describe(wave, product, 1);
    for (unsigned column = 0; column < i->count; column++)
        for (unsigned k = 0; k < i->depth; k++)
            x.columns[column][k] =
                (is_down ? down_columns : along_rows)(&m, column, k);
    multiply(wave, i, &x, i->count, i->depth, 0, product->adds);
}

/* The same number in all lanes. */
static uint64_t common_number(ptx_wave *wave, const ptx_instruction *i,
                              unsigned operand)
{
    const uint64_t *lanes = lanes_of(wave, i, operand);
    for (unsigned lane = 1; lane < WAVE_LANES; lane++)
        if (lanes[lane] != lanes[0])
            ptx_fail(wave->group, "lanes of a product name other operands");
    return lanes[0];
}

void run_multiply_group(ptx_wave *wave, const ptx_instruction *i,
                        lane_mask lanes)
{
    const unsigned sums = i->count / 2;
    const bool is_held = ptx_is_held(i);
    const unsigned second = sums + (is_held ? 4 : 1);
    const unsigned others = i->inner.type == TYPE_TF32 ? 5 : 7;
    if (lanes != ALL_LANES || i->depth * i->inner.bits != 256 ||
        (i->operand_count != sums + others && !is_held)) {
        ptx_fail(wave->group, "a product that is not understood");
        return;
    }
    if (lanes_of(wave, i, second + 2)[0] != 1 ||
        lanes_of(wave, i, second + 3)[0] != 1)
        ptx_fail(wave->group, "a product with another sign");
    ptx_put_off(wave, i, lanes);
    ptx_product *begun = &wave->products[wave->product_count - 1];
    begun->operands[0] = is_held ? 0 : common_number(wave, i, sums);
    begun->operands[1] = common_number(wave, i, second);
    begun->adds = lanes_of(wave, i, second + 1)[0] & 1;
    begun->shown = wave->shown;
    begun->known = ptx_snapshot(wave);
}

/* What ordinary instructions wrote so far, as far as the wave knows. */
void run_show(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    (void)i;
    (void)lanes;
    wave->shown = ++wave->group->now;
}

/* ---- In flight ---- */

static void note(ptx_wave *wave, const ptx_instruction *i)
{
    const unsigned sums = i->count / 2;
    if (i->is_move) {
        wave->in_flight[i->operands[0].reg] |= IS_WRITTEN;
        wave->in_flight[i->operands[1].reg] |= IS_READ;
        return;
    }
    for (unsigned n = 0; n < sums; n++)
        wave->in_flight[i->operands[n].reg] |= IS_WRITTEN;
    if (ptx_is_held(i))
        for (unsigned n = sums; n < sums + 4; n++)
            wave->in_flight[i->operands[n].reg] |= IS_READ;
}

void ptx_put_off(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    wave->products = ptx_grown(wave->products, wave->product_count,
                               &wave->product_room, sizeof *wave->products);
    wave->products[wave->product_count++] = (ptx_product){
        .instruction = i, .group = wave->product_group, .lanes = lanes};
    note(wave, i);
}

static unsigned results_of(const ptx_instruction *i)
{
    if (i->run == run_store || i->run == run_store_matrices)
        return 0;
    return i->run == run_multiply_wave ? 4 : i->lead;
}

/* A move of what a product computes is put off, too: compilers of machine code
 * make one register of both. */
bool ptx_may_run(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    if (wave->product_count == 0 || i->is_sealed)
        return true;
    if (i->is_move) {
        const unsigned char from = wave->in_flight[i->operands[1].reg];
        if (from & IS_WRITTEN) {
            ptx_put_off(wave, i, lanes);
            return false;
        }
    }
    for (unsigned n = 0; n < i->operand_count; n++) {
        const unsigned char state = wave->in_flight[i->operands[n].reg];
        if ((state & IS_WRITTEN) || (state && n < results_of(i))) {
            ptx_fail(wave->group, "a register that a product %s",
                     state & IS_WRITTEN ? "computes" : "reads");
            return false;
        }
    }
    return true;
}

void ptx_complete_products(ptx_wave *wave, unsigned newest)
{
    size_t count = 0;
    while (count < wave->product_count &&
           (int)(wave->products[count].group - newest) <= 0) {
        const ptx_instruction *i = wave->products[count].instruction;
        if (i->is_move)
            run_move(wave, i, wave->products[count].lanes);
        else
            multiply_now(wave, &wave->products[count]);
        free(wave->products[count].known);
        count++;
    }
    wave->product_count -= count;
    memmove(wave->products, wave->products + count,
            wave->product_count * sizeof *wave->products);
    memset(wave->in_flight, 0, wave->group->kernel->code->register_count);
    for (size_t n = 0; n < wave->product_count; n++)
        note(wave, wave->products[n].instruction);
}

void run_commit_products(ptx_wave *wave, const ptx_instruction *i,
                         lane_mask lanes)
{
    (void)i;
    (void)lanes;
    wave->product_group++;
}

void run_await_products(ptx_wave *wave, const ptx_instruction *i,
                        lane_mask lanes)
{
    const unsigned newer = (unsigned)lanes_of(wave, i, 0)[first_of(lanes)];
    ptx_complete_products(wave, wave->product_group - 1 - newer);
}
