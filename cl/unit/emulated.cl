/* SPDX-License-Identifier: Apache-2.0
 * A matrix instruction that is computed through local memory (EMULATED 1), so
 * that each unit's layout can be tested on any device. It offers what a real
 * unit's file defines: MMA, LANE_XOR, WAVE_ANY and WAVE_SYNC; and for real
 * units too DECLARE_WAVE, IF_ALL and ELSE_ALL. All work-items of a work-group
 * must make the same calls. */
#ifndef EMULATED_CL
#define EMULATED_CL
#include "unit/fragment.cl"

#if EMULATED
/* What holds a barrier PoCL has to inline, and its time grows with the square
 * of that and more: loops stand in functions without, and an exchange takes
 * one barrier, as exchanges take turns with two places: who writes to one
 * knows that all have left it, for they met when the other was written. */
#define OPERAND_WORDS ((MMA_M + MMA_N) * MMA_K / WORD_ELEMENTS)
#define EXCHANGE_WORDS (OPERAND_WORDS > WAVE ? OPERAND_WORDS : WAVE)

/* At a kernel's start: the wave of work-item `item` of a work-group that has
 * `count` of them. */
#define DECLARE_WAVE(name, item, count)                                       \
    __local uint name##_exchanges[2][count][EXCHANGE_WORDS];                  \
    int name##_turn = 0;                                                      \
    wave name = {.lane = (item) % WAVE,                                       \
                 .exchange = name##_exchanges[0][(item) / WAVE],              \
                 .exchanges = name##_exchanges[0][0],                         \
                 .waves = count,                                              \
                 .turn = &name##_turn};

/* Words from the first place of all waves to that of the next exchange. */
INLINE int start_exchange(const wave *w)
{
    *w->turn = !*w->turn;
    return *w->turn * w->waves * EXCHANGE_WORDS;
}

INLINE storage_bits operand(const uint *words, int i)
{
    return (storage_bits)(words[i / WORD_ELEMENTS] >> i % WORD_ELEMENTS * 16);
}

INLINE void write_operands(__local storage_bits *rows,
                           __local storage_bits *cols, const uint *a,
                           const uint *b, int l)
{
    if (l >= OPERAND_LANES)
        return;
    for (int i = 0; i < A_ELEMENTS; i++)
        rows[a_m(l, i) * MMA_K + a_k(l, i)] = operand(a, i);
    for (int i = 0; i < B_ELEMENTS; i++)
        cols[b_k(l, i) * MMA_N + b_n(l, i)] = operand(b, i);
}

INLINE void multiply_operands(__local const storage_bits *rows,
                              __local const storage_bits *cols, const uint *a,
                              const uint *b, float *c, int l)
{
    int repeats = 1;
    for (int i = 0; i < A_ELEMENTS; i++)
        repeats &= rows[a_m(l, i) * MMA_K + a_k(l, i)] == operand(a, i);
    for (int i = 0; i < B_ELEMENTS; i++)
        repeats &= cols[b_k(l, i) * MMA_N + b_n(l, i)] == operand(b, i);
    for (int i = 0; i < C_ELEMENTS; i++)
        for (int k = 0; k < MMA_K; k++)
            c[i] = FMA(number_of(rows[c_m(l, i) * MMA_K + k]),
                       number_of(cols[k * MMA_N + c_n(l, i)]), c[i]);
    if (!repeats) /* the hardware would compute nonsense */
        c[0] = NAN;
}

INLINE void emulate_mma(const uint *a, const uint *b, float *c, const wave *w)
{
    __local storage_bits *rows =
        (__local storage_bits *)(w->exchange + start_exchange(w));
    __local storage_bits *cols = rows + MMA_M * MMA_K; /* [M][K], [K][N] */
    write_operands(rows, cols, a, b, w->lane);
    barrier(CLK_LOCAL_MEM_FENCE);
    multiply_operands(rows, cols, a, b, c, w->lane);
}
#define MMA(a, b, c, w) emulate_mma(a, b, c, w)

INLINE float emulate_lane_xor(float x, int mask, const wave *w)
{
    __local float *all = (__local float *)(w->exchange + start_exchange(w));
    all[w->lane] = x;
    barrier(CLK_LOCAL_MEM_FENCE);
    return all[w->lane ^ mask];
}
#define LANE_XOR(x, mask) emulate_lane_xor(x, mask, w)

INLINE int any_of(__local const uint *exchanges, int waves)
{
    int any = 0;
    for (int i = 0; i < waves * WAVE; i++)
        any |= exchanges[i / WAVE * EXCHANGE_WORDS + i % WAVE] != 0;
    return any;
}

/* Of all waves: they have to take the same branches. */
INLINE int emulate_wave_any(int x, const wave *w)
{
    const int place = start_exchange(w);
    w->exchange[place + w->lane] = (uint)x;
    barrier(CLK_LOCAL_MEM_FENCE);
    return any_of(w->exchanges + place, w->waves);
}
#if !INTEL_UNIT
#define WAVE_ANY(x) emulate_wave_any(x, w)
#endif
#define WAVE_SYNC() barrier(CLK_LOCAL_MEM_FENCE)
/* `if`, where what follows holds barriers: PoCL 3.1 compiles all that comes
 * behind a condition with barriers twice, but not behind a loop. */
#define IF_ALL(condition)                                                     \
    for (int only = (condition) ? 1 : 0; only > 0; only--)
/* Behind the statement of an IF_ALL of the same condition, which it leaves as
 * it is. */
#define ELSE_ALL(condition) IF_ALL (!(condition))
#else
#define DECLARE_WAVE(name, item, count) wave name = {.lane = (item) % WAVE};
#define IF_ALL(condition) if (condition)
#define ELSE_ALL(condition) else
#define MMA(a, b, c, w) mma(a, b, c)
#endif

#endif
