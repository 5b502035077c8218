/* SPDX-License-Identifier: Apache-2.0
 * Four neighbouring tokens of a map side by side, without a norm; tokens
 * behind the end of the map are zeros. One work-item for each chunk. */
#include "models/rows.cl"

__kernel void merge_patches(const merge_args args,
                            __global const storage *from, __global storage *to)
{
    const ulong index = get_global_id(0);
    const ulong row = index / (ROW_SIZE / ROW_ACCESS);
    const uint at = (uint)(index % (ROW_SIZE / ROW_ACCESS)) * ROW_ACCESS;
    if (row >= args.rows)
        return;
    __global const storage *part =
        neighbour(from + args.from, row, at, args.height, args.width);
    chunk x = 0.0f;
    if (part)
        x = load_chunk(part, args.flags);
    store_chunk(x, to + args.to + row * ROW_SIZE + at, args.flags);
}
