/* SPDX-License-Identifier: Apache-2.0
 * Patches of pictures become rows for a linear layer, in the order of a
 * convolution's weights:
 *
 *     to[patch][channel][y][x] = pixel * factor[channel] + shift[channel]
 *
 * Pixels right of the last patch, or below it, are in none; what a patch has
 * beyond the picture is 0. One work-item for each line of a patch in one
 * channel. */
#include "common/aligned.cl"
#include "models/model_switches.h"
#include "models/row_args.h"

REQUIRE(PICTURE)
REQUIRE(PICTURE_CHANNELS)
REQUIRE(PATCH_HEIGHT)
REQUIRE(PATCH_WIDTH)

#if PICTURE == 0
typedef uchar pixel;
#else
typedef float pixel;
#endif

/* An element of an argument's array. By a number that is known late, LLVM
 * would copy all arguments into slow memory on AMD's GPUs. */
#define OF_CHANNEL(all, c)                                                    \
    ((c) == 0   ? (all)[0]                                                    \
     : (c) == 1 ? (all)[1]                                                    \
     : (c) == 2 ? (all)[2]                                                    \
                : (all)[3])

__kernel void embed_patches(const embed_args args, __global const pixel *from,
                            __global storage *to)
{
    const ulong index = get_global_id(0);
    if (index >= args.items)
        return;
    const uint line = (uint)(index % (PICTURE_CHANNELS * PATCH_HEIGHT));
    const ulong patch = index / (PICTURE_CHANNELS * PATCH_HEIGHT);
    const uint c = line / PATCH_HEIGHT;
    const uint x = (uint)(patch % args.across) * PATCH_WIDTH;
    const ulong patch_row = patch / args.across;
    const uint y =
        (uint)(patch_row % args.down) * PATCH_HEIGHT + line % PATCH_HEIGHT;
    const ulong picture = patch_row / args.down;
#if PICTURE == 2
    const uint step = 1;
    from += args.from +
            ((picture * PICTURE_CHANNELS + c) * args.height + y) * args.width +
            x;
#else
    const uint step = PICTURE_CHANNELS;
    from +=
        args.from + ((picture * args.height + y) * args.width + x) * step + c;
#endif
    to += args.to + index * PATCH_WIDTH;
    const float factor = OF_CHANNEL(args.factor, c);
    const float shift = OF_CHANNEL(args.shift, c);
    const uint count =
        y >= args.height ? 0 : min(args.width - x, (uint)PATCH_WIDTH);
#if PATCH_WIDTH == 4
    if (count == PATCH_WIDTH && (args.flags & ROW_ALIGNED) != 0) {
        const float4 pixels =
            (float4)((float)from[0], (float)from[step], (float)from[2 * step],
                     (float)from[3 * step]);
        store4_aligned(FMA(pixels, (float4)(factor), (float4)(shift)), to);
        return;
    }
#endif
    for (uint i = 0; i < PATCH_WIDTH; i++)
        STORE(i < count ? FMA((float)from[i * step], factor, shift) : 0.0f, to,
              i);
}
