/* SPDX-License-Identifier: Apache-2.0
 * How the rounds of a launch (tile_scheduler.cl) are distributed to
 * work-groups, which have one block of rows of a head or go on from one to the
 * next. Where windows are dealt in place of rounds, a round here is a window.
 *
 *   PERSISTENT_MULTI_BLOCK  work-groups may go on from one block of rows or
 *                  head to the next; 0: each has one, which saves registers,
 *                  and blocks times heads divide the number of work-groups */
#include "common/even_part.cl"
#include "common/problem.cl"

REQUIRE(PERSISTENT_MULTI_BLOCK)

/* Rounds that follow each other, of a block of rows of a head, a head block.
 * The rounds of a launch are there for each of these. */
typedef struct stretch {
    uint head_block, first, rounds;
} stretch;

#if PERSISTENT_MULTI_BLOCK
/* Rounds numbered head block by head block. */
typedef struct head_block_round {
    uint head_block, round;
} head_block_round;

/* A work-group's stretches come in an order by which work-groups of one head
 * are at few different windows at a time, so that the second level of cache
 * fetches keys and values once for them. With L rounds for each, at time t
 *
 *   part of a head       block's   round t + a multiple of L: from there on,
 *                        and then those before
 *   its last head        block's     round t: first
 *   its first head       block's    round t + what is not L of all: after that
 *   head blocks          between       then
 *
 * `rounds` of each head block; all have less than 2^32. False behind the
 * work-group's last; some before may have no rounds. */
INLINE int find_stretch(stretch *s, const forward_args *args, uint rounds,
                        uint number)
{
    const uint group = (uint)get_group_id(0);
    const uint groups = (uint)get_num_groups(0);
    const uint all = args->heads * args->row_blocks * rounds;
    const even_part own = part_of(all, groups, group);
    const uint end = own.first + own.count;
    const head_block_round from = {.head_block = own.first / rounds,
                                   .round = own.first % rounds};
    const head_block_round to = {.head_block = end / rounds,
                                 .round = end % rounds};
    const uint between = to.head_block - from.head_block;
    s->head_block = from.head_block;
    s->first = 0;
    s->rounds = rounds;
    if (between == 0) {
        /* without blocks of rows, nobody else needs the same keys */
        uint middle = from.round;
        if (args->row_blocks > 1) {
            const uint share = CEIL_DIV(all, groups);
            middle = min(CEIL_DIV(from.round, share) * share, to.round);
        }
        s->first = number == 0 ? middle : from.round;
        s->rounds = number == 0 ? to.round - middle : middle - from.round;
        return own.count > 0 && number < 2;
    }
    if (number == 0) {
        s->head_block = to.head_block;
        s->rounds = to.round;
    } else if (number == 1) {
        s->first = from.round;
        s->rounds = rounds - from.round;
    } else {
        s->head_block = from.head_block + number - 1;
    }
    return number <= between;
}
#else
INLINE int find_stretch(stretch *s, const forward_args *args, uint rounds,
                        uint number)
{
    const uint group = (uint)get_group_id(0);
    const uint head_blocks = args->heads * args->row_blocks;
    const uint parts = max((uint)get_num_groups(0) / head_blocks, 1u);
    s->head_block = group / parts;
    const even_part own =
        part_of(rounds, parts, group - s->head_block * parts);
    s->first = own.first;
    s->rounds = own.count;
    return number == 0 && own.count > 0;
}
#endif
