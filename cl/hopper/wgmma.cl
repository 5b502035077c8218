/* SPDX-License-Identifier: Apache-2.0
 * Products of a warpgroup, four waves in a row, on NVIDIA's Hopper (PTX ISA,
 * "Asynchronous Warpgroup Level Matrix Instructions"): 64 rows of an operand
 * in local memory or in registers times one in local memory.
 *
 * OpenCL's compiler knows no such instruction, and its target has none: they
 * pass it as comments, which host/program/ptx.c makes instructions of. What
 * follows a HOPPER mark is one, what follows a HOPPER_DIRECTIVE goes to the
 * head of the kernel.
 *
 * Sums are fragments: of 8 columns, a lane has columns 2 (lane % 4) and the
 * next of rows lane / 4 and 8 more of its wave's 16. Packed in pairs, such
 * sums of 16 columns are the left operand of 16 rows more. */
#include "common/storage.cl"
#include "hopper/warpgroup_extents.h"
#include "unit/unit_mma.cl"

#define HOPPER                                                                \
    "/"                                                                       \
    "/@ " /* in two, as it is no comment here */
#define HOPPER_DIRECTIVE                                                      \
    "/"                                                                       \
    "/@! "

/* ---- Registers of a work-item ---- */

/* A kernel starts with as many for each; then producers leave some to
 * consumers. Numbers must be divisible by 8. */
#if WARPGROUPS == 2
#define START_REGISTERS "168"
#define FETCH_REGISTERS "40"
#define COMPUTE_REGISTERS "232"
#elif WARPGROUPS == 3
#define START_REGISTERS "128"
#define FETCH_REGISTERS "32"
#define COMPUTE_REGISTERS "160"
#elif WARPGROUPS == 4 && FETCHING_WARPGROUPS == 2
#define START_REGISTERS "80"
#define FETCH_REGISTERS "32"
#define COMPUTE_REGISTERS "104"
#elif WARPGROUPS == 4
#define START_REGISTERS "96"
#define FETCH_REGISTERS "32"
#define COMPUTE_REGISTERS "112"
#elif WARPGROUPS == 6
#define START_REGISTERS "72"
#define FETCH_REGISTERS "24"
#define COMPUTE_REGISTERS "80"
#endif

#define DECLARE_REGISTERS()                                                   \
    __asm__ volatile(HOPPER_DIRECTIVE ".maxnreg " START_REGISTERS)
#define LEAVE_REGISTERS()                                                     \
    __asm__ volatile(HOPPER                                                   \
                     "setmaxnreg.dec.sync.aligned.u32 " FETCH_REGISTERS ";")
#define TAKE_REGISTERS()                                                      \
    __asm__ volatile(                                                         \
        HOPPER "setmaxnreg.inc.sync.aligned.u32 " COMPUTE_REGISTERS ";")

/* ---- What is in flight ---- */

/* Registers and local memory that a product reads must be there before it. */
INLINE void start_products(void)
{
    __asm__ volatile(HOPPER "wgmma.fence.sync.aligned;" : : : "memory");
}
INLINE void end_products(void)
{
    __asm__ volatile(HOPPER "wgmma.commit_group.sync.aligned;" : : : "memory");
}
#define AWAIT_PRODUCTS(newer)                                                 \
    __asm__ volatile(HOPPER "wgmma.wait_group.sync.aligned %0;"               \
                     :                                                        \
                     : "n"(newer)                                             \
                     : "memory")

/* What ordinary instructions wrote to local memory becomes visible to
 * products. Without "shared::cta" it would be a barrier of the whole GPU. */
INLINE void show_to_products(void)
{
    __asm__ volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

/* ---- Operands of instructions ---- */

/* Of the sums of n columns, n / 2 numbers of a lane: their names, and how they
 * are operands that a product adds to or sets; of n / 4 words what holds them.
 */
#define ADD_8(c, i)                                                           \
    "+f"((c)[i]), "+f"((c)[(i) + 1]), "+f"((c)[(i) + 2]), "+f"((c)[(i) + 3]), \
        "+f"((c)[(i) + 4]), "+f"((c)[(i) + 5]), "+f"((c)[(i) + 6]),           \
        "+f"((c)[(i) + 7])
#define SET_8(c, i)                                                           \
    "=f"((c)[i]), "=f"((c)[(i) + 1]), "=f"((c)[(i) + 2]), "=f"((c)[(i) + 3]), \
        "=f"((c)[(i) + 4]), "=f"((c)[(i) + 5]), "=f"((c)[(i) + 6]),           \
        "=f"((c)[(i) + 7])
#define HOLD_4(x, i)                                                          \
    "+r"((x)[i]), "+r"((x)[(i) + 1]), "+r"((x)[(i) + 2]), "+r"((x)[(i) + 3])

#define NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define NAMES_32 NAMES_16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define NAMES_48 NAMES_32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define NAMES_64 NAMES_48 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_80 NAMES_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define NAMES_96 NAMES_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define NAMES_112 NAMES_96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define NAMES_128 NAMES_112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_144 NAMES_128 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define NAMES_160 NAMES_144 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define NAMES_176 NAMES_160 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define NAMES_192 NAMES_176 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define NAMES_208 NAMES_192 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define NAMES_224 NAMES_208 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define NAMES_240 NAMES_224 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define NAMES_256 NAMES_240 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define ADD_16(c) ADD_8(c, 0)
#define ADD_32(c) ADD_16(c), ADD_8(c, 8)
#define ADD_48(c) ADD_32(c), ADD_8(c, 16)
#define ADD_64(c) ADD_48(c), ADD_8(c, 24)
#define ADD_80(c) ADD_64(c), ADD_8(c, 32)
#define ADD_96(c) ADD_80(c), ADD_8(c, 40)
#define ADD_112(c) ADD_96(c), ADD_8(c, 48)
#define ADD_128(c) ADD_112(c), ADD_8(c, 56)
#define ADD_144(c) ADD_128(c), ADD_8(c, 64)
#define ADD_160(c) ADD_144(c), ADD_8(c, 72)
#define ADD_176(c) ADD_160(c), ADD_8(c, 80)
#define ADD_192(c) ADD_176(c), ADD_8(c, 88)
#define ADD_208(c) ADD_192(c), ADD_8(c, 96)
#define ADD_224(c) ADD_208(c), ADD_8(c, 104)
#define ADD_240(c) ADD_224(c), ADD_8(c, 112)
#define ADD_256(c) ADD_240(c), ADD_8(c, 120)
#define SET_32(c) SET_8(c, 0), SET_8(c, 8)
#define SET_48(c) SET_32(c), SET_8(c, 16)
#define SET_64(c) SET_48(c), SET_8(c, 24)
#define SET_80(c) SET_64(c), SET_8(c, 32)
#define SET_96(c) SET_80(c), SET_8(c, 40)
#define HOLD_32(x) HOLD_4(x, 0), HOLD_4(x, 4)
#define HOLD_48(x) HOLD_32(x), HOLD_4(x, 8)
#define HOLD_64(x) HOLD_48(x), HOLD_4(x, 12)
#define HOLD_80(x) HOLD_64(x), HOLD_4(x, 16)
#define HOLD_96(x) HOLD_80(x), HOLD_4(x, 20)

/* An operand in local memory, in rows of 64 or 128 bytes that are swizzled by
 * as many, eight rows after the other (PTX ISA, "Matrix Descriptor"): the
 * lower half of its descriptor, to which 16ths of bytes can be added, and all
 * of it. `panel`: bytes from 64 columns to the next, of an operand that is
 * read down its columns. */
INLINE uint operand_at(uint address, const uint panel)
{
    return address / 16 | panel / 16 << 16;
}
INLINE ulong describe(uint operand)
{
    const uint swizzle = ROW_BYTES == 64 ? 2u : 1u;
    return (ulong)(8 * ROW_BYTES / 16 | swizzle << 30) << 32 | operand;
}

/* Where a chunk of 16 bytes is, of rows that are swizzled so; in panels,
 * of 64.
 */
INLINE uint swizzled_chunk(uint rows, uint row, uint chunk)
{
    const uint swizzle = ROW_BYTES == 64 ? row / 2 % 4 : row % 8;
    if (PANELS > 1)
        rows += chunk / 8 * (64 * ROW_BYTES);
    return rows + row * ROW_BYTES +
           ((PANELS > 1 ? chunk % 8 : chunk) ^ swizzle) * 16;
}

/* ---- Products ---- */

/* The text of a product of 16 channels, or rows, in TF32 of 8: sums of n
 * columns are what they were, where `adds` is not 0, and left times right,
 * which are read along their rows (0) or down their columns (1), as `down`
 * says of operands in local memory; those of TF32 always along their rows.
 * Operands are [left], or [p0] to [p3] if it is held, and [right]. */
#define PRODUCT_DIMS (8 * WORD_ELEMENTS)
#define PRODUCT_OF_0 "k8.f32.tf32.tf32"
#define PRODUCT_OF_1 "k16.f32.f16.f16"
#define PRODUCT_OF_2 "k16.f32.bf16.bf16"
#define PRODUCT_TYPE JOIN(PRODUCT_OF_, DTYPE)
#define READ_0(down) ""
#define READ_1(down) ", " down
#define READ_2(down) ", " down
#define READ_AS(down) JOIN(READ_, DTYPE)(down)
#define WGMMA(n, adds, left, down)                                            \
    HOPPER "{.reg .pred p; setp.ne.b32 p, " adds                              \
           ", 0; wgmma.mma_async.sync.aligned.m64n" TEXT(n) PRODUCT_TYPE      \
        " {" JOIN(NAMES_, n) "}, " left                                       \
                             ", %[right], p, 1, 1" READ_AS(down) ";}"
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define HELD_LEFT "{%[p0], %[p1], %[p2], %[p3]}"
#define HELD(p)                                                               \
    [p0] "r"((p)[0]), [p1] "r"((p)[1]), [p2] "r"((p)[2]), [p3] "r"((p)[3])

/* name: such a product, of an operand in local memory, or held; sums_of says
 * whether sums are set or added to. */
#define DEFINE_PRODUCT(name, n, sums_of, adds, down)                          \
    INLINE void name(float *sums, ulong left, ulong right)                    \
    {                                                                         \
        __asm__ volatile(WGMMA(n, adds, "%[left]", down)                      \
                         : sums_of(sums)                                      \
                         : [left] "l"(left), [right] "l"(right)               \
                         : "memory");                                         \
    }
#define DEFINE_HELD_PRODUCT(name, n, sums_of, adds, down)                     \
    INLINE void name(float *sums, const uint *left, ulong right)              \
    {                                                                         \
        __asm__ volatile(WGMMA(n, adds, HELD_LEFT, down)                      \
                         : sums_of(sums)                                      \
                         : HELD(left), [right] "l"(right)                     \
                         : "memory");                                         \
    }
