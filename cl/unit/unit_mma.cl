/* SPDX-License-Identifier: Apache-2.0
 * Matrix unit: mma.sync of NVIDIA, compute capability 8.0 and later (PTX ISA,
 * "Matrix Fragments for mma.m16n8k16", and of mma.m16n8k8 for TF32: a row of
 * operands has 32 bytes in both). What a unit's file defines is listed in
 * fragment.cl. */
#define UNIT_NAME mma
#define WAVE 32
#define MMA_M 16
#define MMA_N 8
#define MMA_K (8 * WORD_ELEMENTS)
#define A_ELEMENTS (4 * WORD_ELEMENTS)
#define B_ELEMENTS (2 * WORD_ELEMENTS)
#define C_ELEMENTS 4
#define QUERIES_ARE_M 1
#define TILE_N 16
#define UNROLL_SUBTILES (DTYPE != 0)
#define SUMS_BY_PRODUCT 1
#define KEEPS_OFFSETS 1
#define SPREAD_OUT 0
#define VOTES 1
#define QUERY_RUN WORD_ELEMENTS
#define KEY_RUN WORD_ELEMENTS
#define VALUE_RUN 1
#define NATIVE_QUERIES 1
#define NATIVE_KEYS 1
/* ldmatrix transposes elements of 16 bits only */
#define NATIVE_VALUES (DTYPE != 0)
#define NATIVE_WEIGHTS (DTYPE != 0)
#define NATIVE_STORES (DTYPE != 0 && COMPUTE_CAPABILITY >= 90)
#define WAVE_ATTRIBUTE

/* Four lanes share each 16 bytes of a row, a word for each. */
INLINE int offset_in_row(int l, int i, int half_row)
{
    return (l & 3) * WORD_ELEMENTS + i % WORD_ELEMENTS + half_row * MMA_K / 2;
}
INLINE int a_m(int l, int i) { return (l >> 2) + 8 * (i / WORD_ELEMENTS & 1); }
INLINE int a_k(int l, int i)
{
    return offset_in_row(l, i, i / WORD_ELEMENTS / 2);
}
INLINE int b_k(int l, int i) { return offset_in_row(l, i, i / WORD_ELEMENTS); }
INLINE int b_n(int l, int i) { return l >> 2; }
INLINE int c_m(int l, int i) { return (l >> 2) + 8 * (i >> 1); }
INLINE int c_n(int l, int i) { return 2 * (l & 3) + (i & 1); }

/* Asynchronous copies take a line of 128 bytes at a time: where its chunks do
 * not go to one line, half as much again is read, and it takes four times as
 * long (bench/decisions/rows-are-swizzled.md). So rows are not padded; what
 * their chunks' numbers are XORed with keeps eight rows in different banks. */
#define SWIZZLES_ROWS 1
INLINE int row_swizzle(int row, const int pitch)
{
    const int chunks = pitch / CHUNK;
    const int low = chunks % 8 == 0   ? 8
                    : chunks % 4 == 0 ? 4
                    : chunks % 2 == 0 ? 2
                                      : 1;
    return (row / (8 / low)) & (low - 1);
}

#define LANE_ROWS 2
#define LANE_ROW(i) (((i) >> 1) & 1)
#define REDUCE(x, op)                                                         \
    x = op(x, LANE_XOR(x, 1));                                                \
    x = op(x, LANE_XOR(x, 2))

#if DTYPE == 0
/* A lane's scores are of neighbouring keys, its weights of keys half a row
 * apart: neighbours, by giving keys another order. */
#define SLOT_KEY(k) (2 * ((k)&3) + ((k) >> 2))
#define OWN_WEIGHTS(to, packed)                                               \
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)                             \
        (to)[i] = (packed)[i / 4 * 4 + (i & 1) * 2 + (i >> 1 & 1)];
#endif

#if DTYPE == 0
#define MMA_TYPE "tf32"
#define MMA_SHAPE "m16n8k8"
#elif DTYPE == 1
#define MMA_TYPE "f16"
#define MMA_SHAPE "m16n8k16"
#else
#define MMA_TYPE "bf16"
#define MMA_SHAPE "m16n8k16"
#endif

INLINE void mma(const uint *a, const uint *b, float *c)
{
    /* not volatile: the compiler may mix it with other work */
    __asm__("mma.sync.aligned." MMA_SHAPE ".row.col.f32." MMA_TYPE "." MMA_TYPE
            ".f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]),
              "r"(b[1]));
}

INLINE float lane_xor(float x, int mask)
{
    float y;
    __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;"
                     : "=f"(y)
                     : "f"(x), "r"(mask));
    return y;
}
#define LANE_XOR(x, mask) lane_xor(x, mask)

INLINE int wave_any(int x)
{
    int any;
    __asm__ volatile("{.reg .pred p; setp.ne.b32 p, %1, 0;"
                     "vote.sync.any.pred p, p, 0xffffffff;"
                     "selp.b32 %0, 1, 0, p;}"
                     : "=r"(any)
                     : "r"(x));
    return any;
}
#define WAVE_ANY(x) wave_any(x)

INLINE uint largest_of_wave(uint x)
{
    uint y;
    __asm__ volatile("redux.sync.max.u32 %0, %1, 0xffffffff;"
                     : "=r"(y)
                     : "r"(x));
    return y;
}
#define LARGEST_OF_WAVE(x, scratch, w) largest_of_wave(x)

#define SUM_OF_WAVE(x, scratch, w)                                            \
    x += LANE_XOR(x, 1);                                                      \
    x += LANE_XOR(x, 2);                                                      \
    x += LANE_XOR(x, 4);                                                      \
    x += LANE_XOR(x, 8);                                                      \
    x += LANE_XOR(x, 16)

#if DTYPE == 1
INLINE uint times_pair(uint x, uint y)
{
    uint z;
    __asm__("mul.rn.f16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
    return z;
}
#define TIMES_PAIR(x, y) times_pair(x, y)
#endif

INLINE uint scaled_pair(uint x, uint origin, uint scale)
{
    uint y;
    __asm__("{.reg .b32 d; fma.rn." MMA_TYPE "x2 d, %1, %2, %3;"
            "fma.rn." MMA_TYPE "x2 %0, d, %4, %5;}"
            : "=r"(y)
            : "r"(x), "r"(DTYPE == 1 ? 0x3c003c00u : 0x3f803f80u),
              "r"(origin ^ 0x80008000u), "r"(scale), "r"(0x80008000u));
    return y;
}
#define SCALED_PAIR(x, origin, scale) scaled_pair(x, origin, scale)

INLINE uint to_tf32(float x)
{
    uint bits;
    __asm__("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}
#define TO_TF32(x) to_tf32(x)

INLINE uint pack(float low, float high)
{
    uint both;
    __asm__("cvt.rn." MMA_TYPE "x2.f32 %0, %1, %2;"
            : "=r"(both)
            : "f"(high), "f"(low));
    return both;
}
#define PACK(low, high) pack(low, high)

INLINE float exp2_unit(float x)
{
    float y;
    __asm__("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#define EXP2(x) exp2_unit(x)

INLINE float reciprocal(float x)
{
    float y;
    __asm__("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#define RECIPROCAL(x) reciprocal(x)

#define HIDE_FROM_OPTIMIZER(x) __asm__ volatile("" : "+r"(x))
/* Where windows lie on a grid, that takes the registers. */
#define HIDE_LANE(x)                                                          \
    if (GRID)                                                                 \
    HIDE_FROM_OPTIMIZER(x)
/* Where a plane starts: else offsets within it are added to how far it is, in
 * 64 bits, and the tensor's start comes last. */
#define HIDE_PLANE(p)                                                         \
    if (GRID)                                                                 \
    __asm__ volatile("" : "+l"(p))
#define RELOAD_ARGS(type, name, from) const type *name = from;
#define FORCE_EARLY(x) __asm__ volatile("" : "+f"(x))
/* Elements of TF32 are read one by one, each from an address of its own. */
#define HIDES_TILE_LANES (DTYPE == 0)

INLINE uint shared_address(__local const void *p) { return (uint)(size_t)p; }

/* ptxas makes an address of local memory anew at each use, from where the
 * work-group's is: a register that takes tens of cycles to read. What comes
 * from another lane it keeps. */
INLINE uint keep_address(uint x)
{
    uint y;
    __asm__ volatile("shfl.sync.idx.b32 %0, %1, 0, 31, 0xffffffff;"
                     : "=r"(y)
                     : "r"(x));
    return y;
}
#define KEEP_LOCAL(p)                                                         \
    ((__local storage_bits *)(size_t)keep_address(shared_address(p)))

/* What a chunk's row and number add to where rows begin, in bytes. */
#define PITCH_BYTES(pitch) ((uint)((pitch) * (int)sizeof(storage_bits)))
INLINE uint chunk_in_rows(const int pitch, int row, int number)
{
    return (uint)row * PITCH_BYTES(pitch) + (uint)(number & ~7) * 16u +
           (uint)((number & 7) ^ row_swizzle(row, pitch)) * 16u;
}

/* Where a chunk is of row `own` of a tile that begins at `row`, or of `last`
 * if that comes before. Counted in bytes, constants end up in the instruction
 * that reads it, what no row changes of a chunk's number too. Tiles begin at
 * multiples of eight rows, so its own rows tell in which order a tile has
 * chunks: compilers do not always find that out. */
INLINE uint chunk_address(__local const void *rows, const int pitch, int row,
                          int own, int last, int number)
{
    const int before = last == INT_MAX ? row : 0;
    const int at = last == INT_MAX ? own : min(row + own, last);
    return shared_address(rows) + (uint)before * PITCH_BYTES(pitch) +
           chunk_in_rows(pitch, at, number);
}

/* Four matrices of eight rows of 16 bytes, one row's address from each lane;
 * each lane gets a word of each. Or two, of rows of the first 16 lanes. */
#define LOAD_MATRICES(to, address, how)                                       \
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4" how                      \
                     ".shared.b16 {%0, %1, %2, %3}, [%4];"                    \
                     : "=r"((to)[0]), "=r"((to)[1]), "=r"((to)[2]),           \
                       "=r"((to)[3])                                          \
                     : "r"(address))
#define LOAD_TWO_MATRICES(first, second, address, how)                        \
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x2" how                      \
                     ".shared.b16 {%0, %1}, [%2];"                            \
                     : "=r"(first), "=r"(second)                              \
                     : "r"(address))

/* Bits of a lane's number are masked even where it has no others: so the
 * compiler sees which rows cannot be past the last. */
INLINE void load_native_query(uint *to, __local const storage_bits *rows,
                              const int pitch, int row, int channel, int last,
                              int lane)
{
    UNROLL_FOR (int step = 0; step < TILE_N / MMA_K; step++)
        LOAD_MATRICES(
            to + 4 * step,
            chunk_address(rows, pitch, row, lane & 15, last,
                          channel / CHUNK + 2 * step + (lane >> 4 & 1)),
            "");
}
INLINE void load_native_key(uint *to, __local const storage_bits *rows,
                            const int pitch, int row, int channel, int last,
                            const int count, int lane)
{
    const int keys = 8 * WORD_ELEMENTS;   /* whose rows are four matrices */
    const int lanes = 32 / WORD_ELEMENTS; /* that have rows of eight keys */
    const int own = (lane & 7) + 8 * (lane / lanes & (WORD_ELEMENTS - 1));
    UNROLL_FOR (int key = 0; key < TILE_N; key += keys) {
        uint *words = to + key / keys * 4;
        const uint at =
            chunk_address(rows, pitch, row + key, own, last,
                          channel / CHUNK + (lane & (lanes - 8)) / 8);
        if (count > key + keys - 8) {
            LOAD_MATRICES(words, at, "");
            continue;
        }
        words[0] = words[1] = words[2] = words[3] = 0;
        if (count > key)
            LOAD_TWO_MATRICES(words[0], words[1], at, "");
    }
}
/* Compilers make one number of a tile's row and the lane's own, and multiply
 * that anew for each tile. They do not where the lane's part comes from what
 * they know nothing of; gradients have no register for it. */
#ifndef HOLDS_VALUE_CHUNKS
#define HOLDS_VALUE_CHUNKS 0
#endif
INLINE void load_native_value(uint *to, __local const storage_bits *rows,
                              const int pitch, int row, int channel, int last,
                              const int count, int lane)
{
    if (count > 8) {
        const int own = lane & 15, number = channel / CHUNK + (lane >> 4 & 1);
        uint at = chunk_address(rows, pitch, row, own, last, number);
        if (HOLDS_VALUE_CHUNKS && last == INT_MAX) {
            uint of_lane = chunk_in_rows(pitch, own, number);
            __asm__("" : "+r"(of_lane)); /* once: it is not volatile */
            at = shared_address(rows) + (uint)row * PITCH_BYTES(pitch) +
                 of_lane;
        }
        LOAD_MATRICES(to, at, ".trans");
        return;
    }
    to[1] = to[3] = 0;
    LOAD_TWO_MATRICES(to[0], to[2],
                      chunk_address(rows, pitch, row, lane & 7, last,
                                    channel / CHUNK + (lane >> 3 & 1)),
                      ".trans");
}
INLINE void load_native_weights(uint *to, __local const storage_bits *weights,
                                int pitch, int query, int key, const int count,
                                int lane)
{
    const int half_tile = count > 8 ? lane >> 4 & 1 : 0;
    const uint at =
        chunk_address(weights, pitch, query, (lane & 7) + 8 * half_tile,
                      INT_MAX, key / CHUNK + (lane >> 3 & 1));
    if (count > 8) {
        LOAD_MATRICES(to, at, ".trans");
        return;
    }
    to[2] = to[3] = 0;
    LOAD_TWO_MATRICES(to[0], to[1], at, ".trans");
}
/* The other way: four matrices of which each lane has a word. */
#define STORE_MATRICES(from, address)                                         \
    __asm__ volatile(                                                         \
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"    \
        :                                                                     \
        : "r"(address), "r"((from)[0]), "r"((from)[1]), "r"((from)[2]),       \
          "r"((from)[3])                                                      \
        : "memory")

INLINE void store_native_tile(const uint *x, __local storage_bits *rows,
                              const int pitch, int row, int channel, int lane)
{
    STORE_MATRICES(x, chunk_address(rows, pitch, row, lane & 15, INT_MAX,
                                    channel / CHUNK + (lane >> 4 & 1)));
}

#define ASYNC_COPIES 1
/* 16 bytes, or as many zeros, where `wanted`: no branch around it. */
INLINE void copy_16(__local storage_bits *to, __global const void *from,
                    int exists, int wanted)
{
    __asm__ volatile("{.reg .pred p; setp.ne.b32 p, %3, 0;"
                     "@p cp.async.cg.shared.global [%0], [%1], 16, %2;}"
                     :
                     : "r"(shared_address(to)), "l"((size_t)from),
                       "r"(exists ? 16 : 0), "r"(wanted)
                     : "memory");
}
INLINE void copy_4(__local void *to, __global const void *from, int exists)
{
    __asm__ volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                     :
                     : "r"(shared_address(to)), "l"((size_t)from),
                       "r"(exists ? 4 : 0)
                     : "memory");
}
#define END_COPIES() __asm__ volatile("cp.async.commit_group;" : : : "memory")
#define AWAIT_COPIES(newer)                                                   \
    __asm__ volatile("cp.async.wait_group %0;" : : "n"(newer) : "memory")

#define WAVE_SYNC()                                                           \
    __asm__ volatile("bar.warp.sync 0xffffffff;" : : : "memory")
#define TEAMS_SYNC_TOGETHER 0
#define TEAM_SYNC(team)                                                       \
    __asm__ volatile("bar.sync %0, %1;"                                       \
                     :                                                        \
                     : "r"((team) + 1), "n"(WAVE * WAVES_PER_WINDOW)          \
                     : "memory")
