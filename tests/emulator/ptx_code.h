/* SPDX-License-Identifier: Apache-2.0
 * A kernel as it is executed.
 *
 *   ptx_read.c      text -> scopes, registers, variables, labels
 *   ptx_decode.c    one statement -> an instruction
 *   ptx_run.c       work-groups, and whose turn it is
 *   ptx_memory.c    loads, stores, atomics, asynchronous copies
 *   ptx_boxes.c     copies by tensor maps
 *   ptx_races.c     who may touch which local memory (ptx_races.h),
 *   ptx_global.c    and global memory
 *   ptx_unset.c     values that nobody has set
 *   ptx_integers.c, ptx_floats.c, run_convert.c   what each lane computes
 *   ptx_waves.c     what the lanes of a wave, or waves, do together
 *   ptx_products.c  matrix instructions
 *   ptx_units.c     those of other vendors, and what their waves do together
 *
 * A register is a number of 64 bits for each lane of a wave; values of fewer
 * bits lie in the lower ones, whatever is above. Constants and special
 * registers are registers that somebody has filled before, so an operand is
 * always one.
 */
#ifndef TESTS_EMULATOR_PTX_CODE_H
#define TESTS_EMULATOR_PTX_CODE_H

#include "ptx.h"

#include <string.h>

/* Waves are of up to so many lanes; NVIDIA's are of WAVE_LANES. */
enum { MOST_LANES = 64, WAVE_LANES = 32, MOST_WAVES = 128 };
/* A bit for each lane. */
typedef uint64_t lane_mask;
#define ALL_LANES ((lane_mask)0xffffffffu)
/* Where windows of addresses start; what is not in one is global. */
#define SHARED_START 1024u
#define PRIVATE_START ((uint64_t)1 << 62)

typedef enum ptx_type {
    TYPE_NONE,
    TYPE_PRED,
    TYPE_BITS, /* of `bits` */
    TYPE_UNSIGNED,
    TYPE_SIGNED,
    TYPE_FLOAT,
    TYPE_BF16,
    TYPE_TF32,
    TYPE_PAIR,        /* two unsigned integers of 16 bits */
    TYPE_SIGNED_PAIR, /* two signed ones */
    TYPE_HALVES,      /* two fp16 */
    TYPE_BF16S        /* two bf16 */
} ptx_type;

typedef struct ptx_width {
    ptx_type type;
    unsigned bits;
} ptx_width;

typedef enum ptx_space {
    SPACE_GENERIC,
    SPACE_GLOBAL, /* constants, too */
    SPACE_SHARED,
    SPACE_LOCAL,
    SPACE_PARAM
} ptx_space;

typedef enum ptx_compare {
    COMPARE_EQ,
    COMPARE_NE,
    COMPARE_LT,
    COMPARE_LE,
    COMPARE_GT,
    COMPARE_GE,
    COMPARE_NUM,
    COMPARE_NAN
} ptx_compare;

typedef enum ptx_rounding {
    ROUND_NONE,
    ROUND_NEAREST,
    ROUND_ZERO,
    ROUND_DOWN,
    ROUND_UP
} ptx_rounding;

typedef struct ptx_operand {
    uint32_t reg;
    int64_t offset;  /* of an address */
    bool is_address; /* [reg + offset] */
} ptx_operand;

typedef struct ptx_unit ptx_unit;
struct ptx_wave;
struct ptx_instruction;
typedef void ptx_function(struct ptx_wave *wave,
                          const struct ptx_instruction *instruction,
                          lane_mask lanes);

/* How what is set follows from what is (ptx_unset.c). */
typedef enum ptx_rule {
    RULE_PLAIN, /* each lane's results, from its operands */
    RULE_MOVE,  /* a register, parts to one, or one to parts */
    RULE_BITS,  /* each half from the halves there */
    RULE_SHIFT,
    RULE_CONVERT, /* perhaps of the lower half alone */
    RULE_WAVE,    /* any lane's, from any lane's */
    RULE_MEMORY,  /* from memory: the instruction says so itself */
    RULE_NONE,    /* no results; operands decide what happens */
    RULE_STORE,   /* no results; operands are stored */
    RULE_ATOMIC,  /* a result from memory; operands are stored */
    RULE_SHUFFLE,
    RULE_SELECT,
    RULE_PERMUTE,
    RULE_PRODUCT,
    RULE_GROUP_PRODUCT,
    RULE_UNIT /* a product of another vendor's unit */
} ptx_rule;

typedef struct ptx_instruction {
    ptx_function *run; /* NULL: a branch or the end */
    ptx_rule rule;
    const ptx_operand *operands;
    unsigned operand_count;
    unsigned lead;  /* operands in the first braces */
    unsigned least; /* operands, or how many more than of values */
    int guard;      /* register; -1: none */
    bool guard_is_inverse;
    bool is_collective; /* the wave's lanes must be there together */
    bool is_branch, is_end;
    bool is_move;    /* of one register to another */
    bool is_sealed;  /* registers that a product has are its own business */
    uint32_t target; /* of a branch */
    ptx_width width, inner, from; /* first, second and last type */
    ptx_space space;
    ptx_compare compare;
    bool is_unordered; /* a comparison with NaN is true */
    ptx_rounding rounding;
    bool to_integer; /* rounding to one */
    bool ftz, saturates, is_wide, is_high, is_approximate;
    bool transposes; /* .trans */
    unsigned count;  /* .v2, .x4; columns of a product; bytes */
    unsigned depth;  /* of a product: numbers of a row */
    char kind;       /* the operation, of atom, vote, redux, ...; of setp, with
                      * another predicate: & | ^; 0: none */
    const ptx_unit *unit; /* of a product of another vendor's */
    unsigned line;
} ptx_instruction;

/* Is a warpgroup's product of rows in registers? Such operands are three more;
 * those of 16 bits have no number that says how they are read. */
static inline bool ptx_is_held(const ptx_instruction *i)
{
    return i->operand_count ==
           i->count / 2 + (i->inner.type == TYPE_TF32 ? 8 : 9);
}

/* A register with the same in all lanes (or its address, once memory is
 * there), or a special one. */
typedef enum ptx_filling {
    FILL_NUMBER,
    FILL_SHARED,  /* number: where it is in the window */
    FILL_DYNAMIC, /* ... behind what has a size */
    FILL_PRIVATE,
    FILL_DATA, /* number: where it is in the module's data */
    FILL_ITEM,
    FILL_GROUP,
    FILL_ITEMS,
    FILL_GROUPS,
    FILL_ARGUMENTS /* their address, AMD */
} ptx_filling;

typedef struct ptx_constant {
    uint32_t reg;
    ptx_filling filling;
    uint64_t number;
} ptx_constant;

typedef struct ptx_code {
    ptx_instruction *instructions;
    size_t instruction_count;
    ptx_constant *constants;
    size_t constant_count;
    size_t register_count;
    const struct ptx_data *data;
} ptx_code;

typedef struct ptx_data {
    char *text;
    unsigned char *bytes; /* of constant and global variables */
    size_t size;
    struct ptx_owned *owned; /* all that is to be freed */
} ptx_data;

/* ---- While it runs ---- */

/* What was begun and is not known to be complete. */
typedef struct ptx_product {
    const ptx_instruction *instruction;
    unsigned group; /* number of the commit that it belongs to */
    lane_mask lanes;
    /* of a product, as they were when it began: */
    uint64_t operands[2]; /* descriptors; where rows are in registers, one */
    bool adds;
    uint32_t shown;
    struct ptx_clock *known; /* what had happened before */
} ptx_product;

typedef struct ptx_copy {
    uint64_t to; /* where in local memory */
    const unsigned char *from;
    unsigned bytes, zeros;
    unsigned group;
    uint32_t number;
    bool is_arrival; /* at a barrier there, after the copies before it */
} ptx_copy;

typedef struct ptx_copies {
    ptx_copy *all;
    size_t count, room;
    unsigned group; /* that the next one belongs to */
} ptx_copies;

/* A tensor of four dimensions, by a map: bytes and elements. */
typedef struct ptx_tensor {
    uint64_t first, stride[4], size[4];
} ptx_tensor;

/* A copy of a box that is on its way. */
typedef struct ptx_box {
    uint64_t to, filled; /* in local memory: the first row, a barrier */
    ptx_tensor tensor;
    uint32_t at[4];
} ptx_box;

enum { MOST_ACQUIRED = 8 };

typedef struct ptx_wave {
    struct ptx_group *group;
    unsigned number;
    lane_mask started, alive, parked;
    lane_mask vain;          /* lanes that have looked in vain */
    uint32_t at[MOST_LANES]; /* the next instruction */
    uint64_t *registers;     /* [register][lane] */
    unsigned char *private_memory;
    ptx_copies copies[MOST_LANES];
    ptx_box *boxes;
    size_t box_count, box_room;
    uint64_t acquired[MOST_ACQUIRED]; /* the last maps that were */
    unsigned acquired_count;
    ptx_product *products;
    size_t product_count, product_room;
    unsigned product_group;
    unsigned char *in_flight; /* of each register */
    bool yields;              /* has just looked in vain for something */
    uint32_t shown;           /* when it has last shown, see ptx_group */
    bool polls;               /* what it looked for last is not there */
    int waits_at;             /* number of the barrier; -1: at none */
    bool moved;               /* has found something in this turn */
} ptx_wave;

enum { IS_READ = 1, IS_WRITTEN = 2 };
/* A time, as ptx_group counts it. */
enum { NEVER = 0 };
/* No time: by the copy engine, as products see it. */
#define BY_ENGINE UINT32_MAX

typedef struct ptx_barrier {
    unsigned arrived, expected;
} ptx_barrier;

typedef struct ptx_group {
    const ptx_kernel *kernel;
    const ptx_launch *launch;
    size_t number;
    unsigned wave_count, width; /* of each wave, in lanes */
    ptx_wave waves[MOST_WAVES];
    ptx_barrier barriers[16];
    unsigned char *shared; /* local memory */
    size_t shared_bytes;
    /* of each two bytes of it, when they were written, and by which wave */
    uint32_t *written;
    unsigned char *writer;
    uint32_t now; /* grows whenever a wave shows to products what is there */
    ptx_range recent; /* global memory that was used last */
    struct ptx_races *races;
    struct ptx_global *global;
    struct ptx_unset *unset;
    uint64_t random;
    unsigned idle_rounds;
    const ptx_instruction *current;
    char *reason;
    size_t reason_size;
    bool failed;
} ptx_group;

/* The first thing that went wrong is kept. */
__attribute__((format(printf, 2, 3))) void ptx_fail(ptx_group *group,
                                                    const char *format, ...);

/* Memory of a lane, or NULL: it has failed. */
unsigned char *ptx_resolve(ptx_wave *wave, ptx_space space, uint64_t address,
                           size_t bytes, unsigned lane);
/* Local memory from here on, for so many bytes. */
unsigned char *ptx_shared(ptx_group *group, uint64_t address, size_t bytes);

/* Bytes that a wave has written, if they are of local memory. */
void ptx_note_write(ptx_wave *wave, const unsigned char *to, size_t bytes);

/* Completes copies of one wave, if any are in flight: then true. */
bool ptx_complete_any(ptx_group *group);
/* Completes a box of the wave, if any is on its way: then true. */
bool ptx_complete_box(ptx_wave *wave);
/* The lane that a lane asks, or itself. */
unsigned ptx_shuffled(ptx_wave *wave, const ptx_instruction *instruction,
                      lane_mask lanes, unsigned lane, unsigned which);
/* An arrival at a barrier in local memory, and bytes that it expected. */
void ptx_arrive(ptx_group *group, uint64_t address);
void ptx_bytes_came(ptx_group *group, uint64_t address, unsigned bytes);
/* Multiplies, or moves, as was put off. */
void ptx_complete_products(ptx_wave *wave, unsigned newest);
/* False: it is put off, or has failed, as a product has its registers. */
bool ptx_may_run(ptx_wave *wave, const ptx_instruction *instruction,
                 lane_mask lanes);
void ptx_put_off(ptx_wave *wave, const ptx_instruction *instruction,
                 lane_mask lanes);

/* Room for one element more. */
void *ptx_grown(void *all, size_t count, size_t *room, size_t size);

/* ---- Numbers ---- */

static inline uint64_t *register_of(const ptx_wave *wave, uint32_t number)
{
    return wave->registers + (size_t)number * wave->group->width;
}
static inline uint64_t *lanes_of(const ptx_wave *wave,
                                 const ptx_instruction *i, unsigned operand)
{
    return register_of(wave, i->operands[operand].reg);
}
static inline uint64_t address_of(const ptx_wave *wave,
                                  const ptx_instruction *i, unsigned operand,
                                  unsigned lane)
{
    return lanes_of(wave, i, operand)[lane] +
           (uint64_t)i->operands[operand].offset;
}
static inline float float_of(uint64_t bits)
{
    const uint32_t lower = (uint32_t)bits;
    float x;
    memcpy(&x, &lower, sizeof x);
    return x;
}
static inline uint64_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline uint64_t cut(uint64_t x, unsigned bits)
{
    return bits >= 64 ? x : x & (((uint64_t)1 << bits) - 1);
}
static inline int64_t signed_of(uint64_t x, unsigned bits)
{
    return bits >= 64 ? (int64_t)x
                      : (int64_t)(x << (64 - bits)) >> (64 - bits);
}
/* What the instruction's kind makes of two numbers. */
uint64_t ptx_combined(const ptx_instruction *i, uint64_t was, uint64_t x);
float ptx_half(uint16_t bits);
uint16_t ptx_to_half(double x);
uint16_t ptx_to_bf16(double x);
static inline float ptx_bf16(uint16_t bits)
{
    return float_of((uint64_t)bits << 16);
}

/* + - * / and m M, which prefer a number to a NaN. */
void ptx_calculate(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes,
                   char operation);
bool ptx_holds(const ptx_instruction *i, uint64_t a, uint64_t b);

static inline unsigned first_of(lane_mask lanes)
{
    return (unsigned)__builtin_ctzll(lanes);
}
static inline lane_mask first_lanes(size_t count)
{
    return count >= 64 ? ~(lane_mask)0 : ((lane_mask)1 << count) - 1;
}

/* For each lane of `lanes`, as `lane`. */
#define LANE_FOR(lanes)                                                       \
    for (lane_mask left_ = (lanes); left_; left_ &= left_ - 1)                \
        for (unsigned lane = first_of(left_), once_ = 1; once_; once_ = 0)

/* ---- The functions ---- */

ptx_function run_move, run_add, run_sub, run_multiply, run_multiply_add,
    run_divide, run_remainder, run_minimum, run_maximum, run_absolute,
    run_negate, run_and, run_or, run_xor, run_not, run_shift_left,
    run_shift_right, run_extract, run_insert, run_count_ones, run_count_zeros,
    run_compare, run_select, run_convert, run_fuse, run_square_root,
    run_reciprocal, run_reciprocal_root, run_exp2, run_log2, run_load,
    run_store, run_atomic, run_copy, run_copy_commit, run_copy_wait,
    run_copy_arrive, run_barrier, run_nothing, run_barrier_make,
    run_barrier_arrive, run_barrier_expect, run_barrier_try, run_copy_box,
    run_acquire_map, run_shuffle, run_vote, run_reduce, run_load_matrices,
    run_store_matrices, run_multiply_wave, run_multiply_group,
    run_commit_products, run_await_products, run_show, run_unit, run_permute,
    run_ballot, run_sync_wave;

/* A unit of another vendor; NULL: there is none of that name. */
const ptx_unit *ptx_unit_named(const char *name);
unsigned ptx_unit_operands(const ptx_unit *unit);
/* Of its product, words of A and then of B of which some lanes are marked:
 * marks what lanes have of sums that follow from them. */
void ptx_unit_spread(const ptx_unit *unit, const lane_mask *operands,
                     lane_mask *sums);
/* Whose number a lane gets by run_permute. */
unsigned ptx_asked_lane(const ptx_wave *wave, const ptx_instruction *i,
                        unsigned lane);

#endif
