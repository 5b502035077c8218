/* SPDX-License-Identifier: Apache-2.0
 * Which keys a work-group has that makes dK and dV of sliding attention. */
#include "common/problem.cl"

typedef struct key_block {
    ulong window;
    uint kv_head;
    uint first; /* key */
    int count;
} key_block;

/* Key block `index` of a launch, of its split's first window: as
 * deal_work_tile (sliding_rows.cl), but few rows see the last keys. */
INLINE key_block deal_key_block(const backward_args *args, uint index)
{
    const forward_args *forward = &args->forward;
    const uint kv_heads = forward->heads / forward->heads_per_kv_head;
    const uint full = args->key_blocks - args->short_key_blocks;
    const uint per_window = args->key_blocks * kv_heads;
    const uint window = index / per_window;
    const uint i = index - window * per_window;
    key_block b = {.window = forward->first_window + window};
    uint block;
    if (i < full * kv_heads) {
        b.kv_head = i / full;
        block = i - b.kv_head * full;
    } else {
        const uint rest = i - full * kv_heads;
        b.kv_head = rest % kv_heads;
        block = full + rest / kv_heads;
    }
    b.first = block * BLOCK_KEYS;
    b.count = (int)min((uint)BLOCK_KEYS, forward->keys - b.first);
    return b;
}
