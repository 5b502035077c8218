/* SPDX-License-Identifier: Apache-2.0
 * What stands around windowed attention that knows windows only: `partition`
 * pads, rolls and cuts tokens of grids into [windows, heads, tokens, dim],
 * `reverse` takes results back. Tensors are numbered q, k, v, and d_o or o,
 * and moved in chunks of a type as wide as their rows allow; get_global_id(1)
 * is the tensor.
 *
 *   SIZE_a, WINDOW_a, COUNT_a, END_a, SHIFT_a   of axis a = 0, 1, 2: tokens;
 *             tokens of a window; windows; how many are rolled; by how many
 *   HEADS, KV_HEADS
 *   CHUNKS    of a head's row
 *   CHUNK     their type
 *   TOKEN_i, FIRST_i   of tensor i, in chunks: from token to token of a grid,
 *             and in front of the tensor
 *   PAD_1, PAD_2   1: k, v have rows for the padding, else it is zeros
 *   BY_TOKEN  1: a work-item moves a token, else a chunk
 *   INDEX     type of chunk numbers */
#ifndef CHUNK
#define SIZE_0 1
#define SIZE_1 30
#define SIZE_2 45
#define WINDOW_0 1
#define WINDOW_1 7
#define WINDOW_2 7
#define COUNT_0 1
#define COUNT_1 5
#define COUNT_2 7
#define END_0 1
#define END_1 35
#define END_2 49
#define SHIFT_0 0
#define SHIFT_1 3
#define SHIFT_2 3
#define HEADS 3
#define KV_HEADS 3
#define CHUNKS 8
#define CHUNK uint4
#define TOKEN_0 72
#define TOKEN_1 72
#define TOKEN_2 72
#define TOKEN_3 24
#define FIRST_0 0
#define FIRST_1 24
#define FIRST_2 48
#define FIRST_3 0
#define PAD_1 1
#define PAD_2 1
#define BY_TOKEN 0
#define INDEX uint
#endif
#define TOKENS ((INDEX)SIZE_0 * SIZE_1 * SIZE_2)
#define SEATS (WINDOW_0 * WINDOW_1 * WINDOW_2)
#define WINDOWS ((INDEX)COUNT_0 * COUNT_1 * COUNT_2)
#define NOWHERE (~(INDEX)0)
#define INLINE static inline __attribute__((always_inline))

/* Where the token at `seat` of a window of a rolled and padded axis is. */
#define AXIS(a, window, seat) UNROLLED(a, (INDEX)(window)*WINDOW_##a + (seat))
#define UNROLLED(a, x)                                                        \
    (END_##a == COUNT_##a * WINDOW_##a || (x) < END_##a                       \
         ? ((x) + SHIFT_##a) % (INDEX)END_##a                                 \
         : (x))
/* Where a token goes when that axis is rolled. */
#define ROLLED(a, x)                                                          \
    ((x) >= SHIFT_##a ? (x)-SHIFT_##a : (x) + END_##a - SHIFT_##a)

/* The token of a grid at a seat of a window; NOWHERE: of the padding. */
INLINE INDEX token_at(INDEX window, INDEX seat)
{
    const INDEX x0 =
        AXIS(0, window / (COUNT_1 * COUNT_2), seat / (WINDOW_1 * WINDOW_2));
    const INDEX x1 =
        AXIS(1, window / COUNT_2 % COUNT_1, seat / WINDOW_2 % WINDOW_1);
    const INDEX x2 = AXIS(2, window % COUNT_2, seat % WINDOW_2);
    if (x0 >= SIZE_0 || x1 >= SIZE_1 || x2 >= SIZE_2)
        return NOWHERE;
    return (x0 * SIZE_1 + x1) * SIZE_2 + x2;
}

/* Its inverse. */
INLINE void seat_of(INDEX token, INDEX *window, INDEX *seat)
{
    const INDEX r0 = ROLLED(0, token / ((INDEX)SIZE_1 * SIZE_2));
    const INDEX r1 = ROLLED(1, token / SIZE_2 % SIZE_1);
    const INDEX r2 = ROLLED(2, token % SIZE_2);
    *window =
        (r0 / WINDOW_0 * COUNT_1 + r1 / WINDOW_1) * COUNT_2 + r2 / WINDOW_2;
    *seat =
        (r0 % WINDOW_0 * WINDOW_1 + r1 % WINDOW_1) * WINDOW_2 + r2 % WINDOW_2;
}

#define CHOOSE(tensor, x0, x1, x2, x3)                                        \
    ((tensor) == 0 ? (x0) : (tensor) == 1 ? (x1) : (tensor) == 2 ? (x2) : (x3))
#define HEADS_OF(tensor) CHOOSE(tensor, HEADS, KV_HEADS, KV_HEADS, HEADS)
#define TOKEN_OF(tensor) CHOOSE(tensor, TOKEN_0, TOKEN_1, TOKEN_2, TOKEN_3)
#define FIRST_OF(tensor) CHOOSE(tensor, FIRST_0, FIRST_1, FIRST_2, FIRST_3)

/* A chunk of a row of the padding; no function, as some ABIs pass no vectors
 * of 64 bytes. */
#define PADDING(tensor, chunk)                                                \
    (PAD_1 && (tensor) == 1   ? pad_k[chunk]                                  \
     : PAD_2 && (tensor) == 2 ? pad_v[chunk]                                  \
                              : (CHUNK)(0))

__kernel void partition(__global const CHUNK *from_0,
                        __global const CHUNK *from_1,
                        __global const CHUNK *from_2,
                        __global const CHUNK *from_3, __global CHUNK *to_0,
                        __global CHUNK *to_1, __global CHUNK *to_2,
                        __global CHUNK *to_3, __global const CHUNK *pad_k,
                        __global const CHUNK *pad_v, ulong count)
{
    const int tensor = (int)get_global_id(1);
    const INDEX heads = HEADS_OF(tensor);
    __global const CHUNK *from =
        CHOOSE(tensor, from_0, from_1, from_2, from_3) + FIRST_OF(tensor);
    __global CHUNK *to = CHOOSE(tensor, to_0, to_1, to_2, to_3);
    const INDEX id = get_global_id(0);
#if BY_TOKEN
    const INDEX seat = id % SEATS, window = id / SEATS;
    const INDEX token = token_at(window % WINDOWS, seat);
    to += (window * heads * SEATS + seat) * CHUNKS;
    if (token == NOWHERE) {
        for (uint head = 0; head < heads; head++, to += SEATS * CHUNKS)
            for (uint i = 0; i < CHUNKS; i++)
                to[i] = PADDING(tensor, head * CHUNKS + i);
        return;
    }
    from += (window / WINDOWS * TOKENS + token) * TOKEN_OF(tensor);
    for (uint head = 0; head < heads; head++, to += SEATS * CHUNKS)
        for (uint i = 0; i < CHUNKS; i++)
            to[i] = from[head * CHUNKS + i];
#else
    if (id >= (INDEX)count * heads * CHUNKS)
        return;
    const INDEX i = id % CHUNKS, seat = id / CHUNKS % SEATS;
    const INDEX head = id / (CHUNKS * SEATS) % heads;
    const INDEX window = id / (CHUNKS * SEATS) / heads;
    const INDEX token = token_at(window % WINDOWS, seat);
    to[id] =
        token == NOWHERE
            ? PADDING(tensor, head * CHUNKS + i)
            : from[(window / WINDOWS * TOKENS + token) * TOKEN_OF(tensor) +
                   head * CHUNKS + i];
#endif
}

__kernel void reverse(__global const CHUNK *from_0,
                      __global const CHUNK *from_1,
                      __global const CHUNK *from_2,
                      __global const CHUNK *from_3, __global CHUNK *to_0,
                      __global CHUNK *to_1, __global CHUNK *to_2,
                      __global CHUNK *to_3, ulong count)
{
    const int tensor = (int)get_global_id(1);
    const INDEX heads = HEADS_OF(tensor);
    __global const CHUNK *from =
        CHOOSE(tensor, from_0, from_1, from_2, from_3);
    __global CHUNK *to =
        CHOOSE(tensor, to_0, to_1, to_2, to_3) + FIRST_OF(tensor);
    const INDEX id = get_global_id(0);
    INDEX window, seat;
#if BY_TOKEN
    const INDEX grid = id / TOKENS;
    seat_of(id % TOKENS, &window, &seat);
    from += ((grid * WINDOWS + window) * heads * SEATS + seat) * CHUNKS;
    to += id * TOKEN_OF(tensor);
    for (uint head = 0; head < heads; head++, from += SEATS * CHUNKS)
        for (uint i = 0; i < CHUNKS; i++)
            to[head * CHUNKS + i] = from[i];
#else
    if (id >= (INDEX)count * heads * CHUNKS)
        return;
    const INDEX i = id % CHUNKS, head = id / CHUNKS % heads;
    const INDEX all = id / CHUNKS / heads, grid = all / TOKENS;
    seat_of(all % TOKENS, &window, &seat);
    to[all * TOKEN_OF(tensor) + head * CHUNKS + i] =
        from[(((grid * WINDOWS + window) * heads + head) * SEATS + seat) *
                 CHUNKS +
             i];
#endif
}
