/* SPDX-License-Identifier: Apache-2.0
 * How the rounds of a launch (tile_scheduler.cl) are distributed to
 * work-groups that go on from one block of rows or head to the next.
 *
 *   PERSISTENT_MULTI_BLOCK  work-groups may go on from one block of rows or
 *                  head to the next; 0: each has one, which saves registers,
 *                  and blocks times heads divide the number of work-groups */
#ifndef PERSISTENT_CL
#define PERSISTENT_CL
#include "common/problem.cl"

REQUIRE(PERSISTENT_MULTI_BLOCK)

/* The rounds of a launch (tile_scheduler.cl) are there for each block of rows
 * of each head, a head block. Numbered head block by head block, they are
 * distributed evenly: a work-group has those from its first to the next one's.
 */
typedef struct head_block_round {
    uint head_block, round;
} head_block_round;

INLINE head_block_round first_round(const forward_args *args, uint rounds,
                                    uint group)
{
    const uint head_blocks = args->heads * args->row_blocks;
    const uint groups = (uint)get_num_groups(0);
    /* head_blocks * rounds * group / groups, but no product has more than 32
     * bits: there are fewer than 2^16 groups */
    const uint share = head_blocks % groups * group;
    const uint rest = share % groups;
    const head_block_round first = {
        .head_block = head_blocks / groups * group + share / groups,
        .round = rounds / groups * rest + rounds % groups * rest / groups};
    return first;
}

#if PERSISTENT_MULTI_BLOCK
/* Rounds that follow each other, of one head block. */
typedef struct stretch {
    uint head_block, first, rounds;
} stretch;

/* A work-group's stretches come in an order by which work-groups of one head
 * are at few different windows at a time, so that the second level of cache
 * fetches keys and values once for them. With L rounds for each, at time t
 *
 *   part of a head       block's   round t + a multiple of L: from there on,
 *                        and then those before
 *   its last head        block's     round t: first
 *   its first head       block's    round t + what is not L of all: after that
 *   head blocks          between       then */
INLINE stretch stretch_of(const forward_args *args, uint rounds, uint group,
                          uint number)
{
    const head_block_round from = first_round(args, rounds, group);
    const head_block_round to = first_round(args, rounds, group + 1);
    stretch s = {.head_block = from.head_block, .first = 0, .rounds = rounds};
    if (from.head_block == to.head_block) {
        const ulong all = (ulong)args->heads * args->row_blocks * rounds;
        const ulong before =
            CEIL_DIV((ulong)from.round * get_num_groups(0), all);
        const head_block_round multiple =
            first_round(args, rounds, (uint)before);
        /* without blocks of rows, nobody else needs the same keys */
        uint middle = from.round;
        if (args->row_blocks > 1)
            middle = multiple.head_block == 0 ? min(multiple.round, to.round)
                                              : to.round;
        s.first = number == 0 ? middle : from.round;
        s.rounds = number == 0 ? to.round - middle : middle - from.round;
    } else if (number == 0) {
        s.head_block = to.head_block;
        s.rounds = to.round;
    } else if (number == 1) {
        s.first = from.round;
        s.rounds = rounds - from.round;
    } else {
        s.head_block = from.head_block + number - 1;
    }
    return s;
}
#endif

#endif
