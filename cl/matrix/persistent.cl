/* SPDX-License-Identifier: Apache-2.0
 * How the rounds of a launch (tile_scheduler.cl) are dealt to work-groups that
 * go on from one block of rows or head to the next.
 *
 *   SHARES_OWNERS  work-groups may go on from one block of rows or head to the
 *                  next; 0: each has one, which saves registers, and blocks
 *                  times heads divide the number of work-groups */
#ifndef PERSISTENT_CL
#define PERSISTENT_CL
#include "matrix/geometry.cl"

REQUIRE(SHARES_OWNERS)

/* The rounds of a launch (tile_scheduler.cl) are there for each block of rows
 * of each head, their owner. Numbered owner by owner, they are dealt evenly: a
 * work-group has those from its first to the next one's. */
typedef struct owned_round {
    uint owner, round;
} owned_round;

INLINE owned_round first_round(const forward_args *args, uint rounds,
                               uint group)
{
    const uint owners = args->heads * args->row_blocks;
    const uint groups = (uint)get_num_groups(0);
    /* owners * rounds * group / groups, but no product has more than 32 bits:
     * there are fewer than 2^16 groups */
    const uint share = owners % groups * group;
    const uint rest = share % groups;
    const owned_round first = {
        .owner = owners / groups * group + share / groups,
        .round = rounds / groups * rest + rounds % groups * rest / groups};
    return first;
}

#if SHARES_OWNERS
/* Rounds that follow each other, of one owner. */
typedef struct stretch {
    uint owner, first, rounds;
} stretch;

/* A work-group's stretches come in an order by which work-groups of one head
 * are at few different windows at a time, so that the second level of cache
 * fetches keys and values once for them. With L rounds for each, at time t
 *
 *   part of an owner's   round t + a multiple of L: from there on, and then
 *                        those before
 *   its last owner's     round t: first
 *   its first owner's    round t + what is not L of all: after that
 *   owners between       then */
INLINE stretch stretch_of(const forward_args *args, uint rounds, uint group,
                          uint number)
{
    const owned_round from = first_round(args, rounds, group);
    const owned_round to = first_round(args, rounds, group + 1);
    stretch s = {.owner = from.owner, .first = 0, .rounds = rounds};
    if (from.owner == to.owner) {
        const ulong all = (ulong)args->heads * args->row_blocks * rounds;
        const ulong before =
            CEIL_DIV((ulong)from.round * get_num_groups(0), all);
        const owned_round multiple = first_round(args, rounds, (uint)before);
        /* without blocks of rows, nobody else needs the same keys */
        uint middle = from.round;
        if (args->row_blocks > 1)
            middle =
                multiple.owner == 0 ? min(multiple.round, to.round) : to.round;
        s.first = number == 0 ? middle : from.round;
        s.rounds = number == 0 ? to.round - middle : middle - from.round;
    } else if (number == 0) {
        s.owner = to.owner;
        s.rounds = to.round;
    } else if (number == 1) {
        s.first = from.round;
        s.rounds = rounds - from.round;
    } else {
        s.owner = from.owner + number - 1;
    }
    return s;
}
#endif

#endif
