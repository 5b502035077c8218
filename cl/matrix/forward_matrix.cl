/* SPDX-License-Identifier: Apache-2.0
 * Forward pass on a matrix unit, for windows, in fp16, bf16 and, where the
 * caller allows TF32, fp32: scores, weights and sums stay in a wave's
 * registers, as fragments (fragment.cl).
 *
 * An item of the ring (matrix.cl) is BLOCK_KEYS keys of a window; where those
 * are not all (STREAMING), sums live through the items of a window. Within an
 * item the softmax takes PASS_KEYS keys at a time and streams (Milakov and
 * Gimelshein 2018) where these are not all. A wave takes tiles of the block's
 * rows in turn.
 *
 *   SHARES_OWNERS  work-groups may go on from one block of rows or head to the
 *                  next; 0: each has one, which saves registers, and blocks
 *                  times heads divide the number of work-groups */
#include "matrix/matrix.cl"

#ifndef SHARES_OWNERS
#define SHARES_OWNERS 1
#endif

#define WAVE_TURNS CEIL_DIV(ROW_TILES, TEAM_WAVES)

/* Rows' operands stay in registers from pass to pass, where the unit has its
 * own instruction to load them, which compilers do not move. */
#if NATIVE_QUERIES && PASSES > 1 && DIM_TILES <= OUT_TILES
#define HOLDS_ROWS 1
#define HELD_ROWS(here) ((here)->held)
#else
#define HOLDS_ROWS 0
#define HELD_ROWS(here) 0
#endif

/* Sums that live from item to item must have constant indices. */
#if STREAMING
#define TURN_FOR UNROLL_FOR
#else
#define TURN_FOR NO_UNROLL_FOR
#endif

/* ---- Attention of one tile of rows ---- */

/* Weights are exponentials of scores less a row's base. That is the row's
 * maximum when the wave last looked for it: any number serves as long as
 * weights stay within what the storage type represents well, which their sums
 * tell.
 *
 *   CARRIES_BASE   from window to window, where a wave always has the same
 *                  rows (not where exponentials do not count, as channels are
 *                  many; and not where lse is wanted): where sums are out of
 *                  range it looks and computes the window again, and looks in
 *                  some windows to come
 *   KEEPS_BASE     else from pass to pass: it looks where weights become too
 *                  large, or where a row has seen nothing yet
 *   FOLDS_BASE     carried bases are subtracted from the terms that lanes have
 *                  in registers, and these multiplied by log2 e: a weight then
 *                  takes one multiplication and addition (not of grids, which
 *                  leave no registers for it) */
#ifdef WAVE_ANY
#define CARRIES_BASE (!STREAMING && WAVE_TURNS == 1 && DIM_TILES <= OUT_TILES)
#define KEEPS_BASE (!CARRIES_BASE && (STREAMING || PASSES > 1))
#else
#define CARRIES_BASE 0
#define KEEPS_BASE 0
#define WAVE_ANY(x) 1
#endif
#define FOLDS_BASE (CARRIES_BASE && HAS_OWN_TERMS && !GRID)
/* What is added to scores is known before a pass, where there are several. A
 * single one subtracts its base with care: grids have no registers for more.
 */
#define QUICK_SHIFTS (!FOLDS_BASE && PASSES > 1)
/* What weights may be: in fp16 no more than it holds, and where all of a row
 * have less, the largest may have lost precision. The other types hold more,
 * but products with values have to stay in the range of fp32 too. */
#define LARGE_WEIGHT (DTYPE == 1 ? 32768.0f : 0x1p24f)
#define SMALL_WEIGHT (DTYPE == 1 ? NK / 256.0f : 0x1p-24f)
/* Carried bases are so far below the maxima they come from: in the middle of
 * what sums may be in fp16. */
#define BASE_BELOW 2.5f
/* First without a search, then with one: each has its own code, but what
 * emulates units is large enough. */
#if EMULATED
#define SEARCH_FOR NO_UNROLL_FOR
#else
#define SEARCH_FOR UNROLL_FOR
#endif
/* In how many windows the wave looks after a base did not serve. */
#define WARY_WINDOWS 8

/* Weights go to products as sums of so many numbers of the storage type: where
 * o has few numbers, the rounding of each weight shows. */
#define WEIGHT_PARTS (DTYPE != 0 && NQ * HEAD_DIM <= 64 ? 2 : 1)

/* What a wave sums of a tile of rows. */
typedef struct row_state {
    float base[LANE_ROWS];  /* -infinity: nothing was seen */
    float shift[LANE_ROWS]; /* see quick_shift */
    float sum[LANE_ROWS];   /* of weights; see EXACT_SUMS */
    float exact[LANE_ROWS]; /* with KEEPS_BASE for lse: of a lane's own keys */
    float out[DIM_TILES][VALUES];
} row_state;

/* Where bases are maxima, a weight that is nearly all of its row is 1, and
 * sums are those of weights before they are rounded, which lse needs, of a
 * lane's own keys. Else that weight's rounding would be in o, if sums were not
 * of weights as they are multiplied. */
#define EXACT_SUMS(searches) ((searches) && !KEEPS_BASE)

/* What it carries from window to window. */
typedef struct carried_base {
    float base[LANE_ROWS];
    int wary; /* windows to come in which that is not relied upon */
} carried_base;

/* What a wave computes them from: a tile of rows, and an item's keys. */
typedef struct item_rows {
    tile_rows rows;
    int key, count; /* the item's first key, and how many it has */
    __local const storage_bits *q, *stage;
    __local const float *key_scale;
    const forward_args *args;
    const logit_terms *terms;
#if HOLDS_ROWS
    query_tile held[DIM_TILES];
#endif
} item_rows;

/* What is added to a row's scores, times log2 e, where its base is an ordinary
 * number; else infinity, which says that the wave has to look. */
INLINE float quick_shift(float base)
{
    return fabs(base) <= LARGE_LOGIT ? -base * LOG2E : INFINITY;
}

/* base NULL: nothing is known. */
INLINE void start_rows(row_state *s, const float *base)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        s->base[r] = base ? base[r] : -INFINITY;
        s->shift[r] = quick_shift(s->base[r]);
        s->sum[r] = 0.0f;
        s->exact[r] = 0.0f;
    }
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
        UNROLL_FOR (int i = 0; i < VALUES; i++)
            s->out[d][i] = 0.0f;
}

INLINE key_tile read_value(__local const storage_bits *stage, int d, int tile,
                           const wave *w)
{
    return load_value(stage + V_PLACE, PITCH, tile * UNIT_TILE, d * UNIT_TILE,
                      LAST_KEY, UNIT_TILE, w);
}

/* The scores of a pass, from key `first` of the item on. */
INLINE void score_pass(float scores[PASS_TILES][VALUES], const item_rows *here,
                       int first, const wave *w)
{
    multiply_pass(scores, HELD_ROWS(here), here->q, here->rows.row,
                  here->rows.last_row, here->stage + K_PLACE, first, w);
    finish_pass(scores, here->key_scale, first, here->key, here->count,
                here->args, here->terms, &here->rows, w);
}

/* Rows' bases become their maxima up to this pass, and what has been summed
 * follows. */
INLINE void raise_base(row_state *s, float scores[PASS_TILES][VALUES],
                       int first, const wave *w)
{
    float top[LANE_ROWS], keep[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        top[r] = s->base[r];
    UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
        if (IS_TILE(first + t))
            UNROLL_FOR (int i = 0; i < VALUES; i++)
                top[LANE_ROW(i)] = fmax(top[LANE_ROW(i)], scores[t][i]);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        REDUCE(top[r], fmax);
        if (STREAMING || PASSES > 1) {
            keep[r] = top[r] == -INFINITY
                          ? 1.0f
                          : EXP2((s->base[r] - top[r]) * LOG2E);
            s->sum[r] *= keep[r];
            s->exact[r] *= keep[r];
        }
        s->base[r] = top[r];
        s->shift[r] = quick_shift(top[r]);
    }
    if (STREAMING || PASSES > 1)
        UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
            UNROLL_FOR (int i = 0; i < VALUES; i++)
                s->out[d][i] *= keep[LANE_ROW(i)];
}

/* Scores become what exponentials with base 2 are taken of. */
INLINE void add_shift(float scores[PASS_TILES][VALUES], const float *shift)
{
    UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
        UNROLL_FOR (int i = 0; i < VALUES; i++)
            scores[t][i] = FMA(scores[t][i], LOG2E, shift[LANE_ROW(i)]);
}

/* The same of rows with any base. */
INLINE void subtract_base(float scores[PASS_TILES][VALUES], const row_state *s)
{
    float base[LANE_ROWS], shift[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) /* nothing seen: no maximum */
        base[r] = s->base[r] == -INFINITY ? 0.0f : s->base[r];
    shift_scores(scores, base, shift);
    add_shift(scores, shift);
}

/* These become weights, as operands, and their sums. */
INLINE void weigh_pass(query_tile weights[PASS_TILES][WEIGHT_PARTS],
                       float *sum, float scores[PASS_TILES][VALUES], int first,
                       const int searches, const wave *w)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        sum[r] = 0.0f;
    UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
        if (IS_TILE(first + t)) {
            UNROLL_FOR (int i = 0; i < VALUES; i++) {
                scores[t][i] = EXP2(scores[t][i]);
                if (EXACT_SUMS(searches))
                    sum[LANE_ROW(i)] += scores[t][i];
            }
            float rest[VALUES];
            UNROLL_FOR (int i = 0; i < VALUES; i++)
                rest[i] = scores[t][i];
            UNROLL_FOR (int part = 0; part < WEIGHT_PARTS; part++) {
                weights[t][part] = make_weights(rest, w);
                if (!EXACT_SUMS(searches))
                    add_weights(sum, &weights[t][part], rest, w);
                if (part + 1 < WEIGHT_PARTS)
                    subtract_rounded(rest);
            }
        }
}

/* Adds a pass's weights, and its values times these. */
INLINE void add_pass(row_state *s,
                     query_tile weights[PASS_TILES][WEIGHT_PARTS],
                     const float *sum, float scores[PASS_TILES][VALUES],
                     const item_rows *here, int first, const wave *w)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        s->sum[r] += sum[r];
    if (KEEPS_BASE && (here->args->flags & ARG_LSE) != 0)
        UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
            if (IS_TILE(first + t))
                UNROLL_FOR (int i = 0; i < VALUES; i++)
                    s->exact[LANE_ROW(i)] += scores[t][i];
    UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
        if (IS_TILE(first + t))
            UNROLL_FOR (int d = 0; d < DIM_TILES; d++) {
                const key_tile v = read_value(here->stage, d, first + t, w);
                UNROLL_FOR (int part = 0; part < WEIGHT_PARTS; part++)
                    multiply_tiles(s->out[d], &weights[t][part], &v, w);
            }
}

/* Takes a pass into account. searches 0: rows have the bases they started
 * with, which are ordinary numbers, and if these can be folded, they are. */
INLINE void attend_pass(row_state *s, const item_rows *here, int first,
                        const int searches, const wave *w)
{
    int looks = searches;
    float scores[PASS_TILES][VALUES], sum[LANE_ROWS];
    query_tile weights[PASS_TILES][WEIGHT_PARTS];
    if (KEEPS_BASE) {
        looks = 0;
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            looks |= s->shift[r] == INFINITY;
        looks = WAVE_ANY(looks);
    }
    score_pass(scores, here, first, w);
    IF_ALL (looks) {
        raise_base(s, scores, first, w);
        subtract_base(scores, s);
    }
    if (!looks && QUICK_SHIFTS)
        add_shift(scores, s->shift);
    if (!looks && !QUICK_SHIFTS && !FOLDS_BASE)
        subtract_base(scores, s);
    weigh_pass(weights, sum, scores, first, searches, w);
    if (KEEPS_BASE) {
        int large = 0;
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            large |= sum[r] > LARGE_WEIGHT;
        large = WAVE_ANY(large);
        IF_ALL (large && !looks) {
            wave again = *w; /* of which nothing is kept for this rare case */
            FORGET(again.lane);
            score_pass(scores, here, first, &again);
            raise_base(s, scores, first, &again);
            subtract_base(scores, s);
            weigh_pass(weights, sum, scores, first, searches, &again);
        }
    }
    add_pass(s, weights, sum, scores, here, first, w);
}

/* Attends to all of an item's keys. */
INLINE void attend_item(row_state *s, item_rows *here, const int searches,
                        const wave *w)
{
#if HOLDS_ROWS
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
        here->held[d] = load_query(here->q, PITCH, here->rows.row,
                                   d * UNIT_TILE, here->rows.last_row, w);
#endif
    PASS_FOR (int first = 0; first < KEY_TILES; first += PASS_TILES)
        attend_pass(s, here, first, searches, w);
}

/* Sums of lanes that share a row become the row's. */
INLINE void finish_sums(row_state *s, const int searches, const wave *w)
{
    if (EXACT_SUMS(searches) || SUMS_ARE_PARTS)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
            REDUCE(s->sum[r], ADD);
        }
}

#if CARRIES_BASE
/* Attends to a window, looking for bases or with those of others. 0: these do
 * not serve, and nothing of this is worth anything. */
INLINE int attend_window(row_state *s, const carried_base *carried,
                         const item_rows *here, const int searches,
                         const wave *w)
{
    int fails = 0;
    item_rows folded = *here;
    if (FOLDS_BASE)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            folded.rows.scale[r] *= searches ? 1.0f : LOG2E;
    start_rows(s, carried->base);
    if (searches)
        start_rows(s, 0);
    attend_item(s, &folded, searches, w);
    finish_sums(s, searches, w);
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
        UNROLL_FOR (int i = 0; i < VALUES; i++)
            SETTLE(s->out[d][i]); /* products do not wait for the sums */
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        fails |= !(s->sum[r] >= SMALL_WEIGHT && s->sum[r] <= LARGE_WEIGHT);
    return searches || !WAVE_ANY(fails);
}

/* Takes the bases of a window with maxima for those to come, but not those of
 * rows that saw nothing, or NaN. */
INLINE void carry_base(carried_base *carried, const row_state *s)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        if (fabs(s->base[r]) <= LARGE_LOGIT)
            carried->base[r] = s->base[r] - BASE_BELOW;
}
#endif

#if FOLDS_BASE
INLINE void fold_base(float terms[KEY_TILES][VALUES], const float *base)
{
    UNROLL_FOR (int t = 0; t < KEY_TILES; t++)
        UNROLL_FOR (int i = 0; i < VALUES; i++)
            terms[t][i] = FMA(terms[t][i], LOG2E, -base[LANE_ROW(i)] * LOG2E);
}
#endif

/* Stores o, by way of the rows' q, and lse of the rows. */
INLINE void store_rows(row_state *s, __local storage_bits *q,
                       const forward_args *args, const row_target *to,
                       __global float *lse, const wave *w)
{
    float inverse[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        inverse[r] = s->sum[r] == 0.0f ? 0.0f : RECIPROCAL(s->sum[r]);
    if ((args->flags & ARG_LSE) != 0) {
        float sum[LANE_ROWS];
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
            sum[r] = KEEPS_BASE ? s->exact[r] : s->sum[r];
            if (KEEPS_BASE) {
                REDUCE(sum[r], ADD);
            }
        }
        UNROLL_FOR (int i = 0; i < VALUES; i++) {
            ulong at;
            const int row = value_query(w->lane, i);
            const int r = LANE_ROW(i);
            if (value_key(w->lane, i) == 0 && row < to->count &&
                find_row(&at, &args->lse, to->grid, to->place, to->row + row))
                lse[at] = s->base[r] + log(sum[r]);
        }
    }
    UNROLL_FOR (int first = 0; first < DIM_TILES; first += OUT_TILES)
        store_channels(s->out + first, inverse, first, OUT_TILES,
                       q + first * UNIT_TILE, PITCH, to, w);
}

/* ---- The rounds of a work-group ---- */

/* The rounds of a launch (matrix.cl) are there for each block of rows of each
 * head, their owner. Numbered owner by owner, they are dealt evenly: a
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

/* ---- The kernel ---- */

/* Where what a lane copies and stores lies in its plane is found anew only
 * where the next window lies otherwise. */
#define FOLLOWS_GRID (GRID && CHUNKS && KEEPS_PLACES)
#define KEEPS_COPIES (FOLLOWS_GRID && KEY_BLOCKS == 1)
#define KEEPS_STORES                                                          \
    (FOLLOWS_GRID && WAVE_TURNS == 1 && DIM_TILES <= OUT_TILES)

__kernel __attribute__((reqd_work_group_size(TEAM * TEAMS, 1, 1)))
WAVE_ATTRIBUTE void
JOIN(forward_matrix_, UNIT_NAME)(FORWARD_PARAMETERS)
{
    DECLARE_LOCAL_MEMORY
#if VARIANT == COSINE
    __local float q_factors[TEAMS][BLOCK_ROWS], k_factors[TEAMS][KEY_ROWS];
#endif
#if REGIONS_APART
    __local uchar kept_row_regions[TEAMS][BLOCK_ROWS];
    __local uchar kept_key_regions[TEAMS][NK];
#endif
    DECLARE_PADS(pad_rows)
    DECLARE_WAVE
    __local storage_bits *ring = (__local storage_bits *)rings[team];

    /* of the rounds of this work-group the next one, and how many are left */
    const uint group = (uint)get_group_id(0);
    const uint rounds = count_rounds(&args);
    const owned_round end = first_round(&args, rounds, group + 1);
    owned_round next = first_round(&args, rounds, group);
    ulong left =
        (ulong)(end.owner - next.owner) * rounds + end.round - next.round;
    uint kept_owner = ~0u; /* whose terms are kept */
    NO_UNROLL_FOR (uint number = 0; left > 0; number++) {
#if SHARES_OWNERS
        const stretch part = stretch_of(&args, rounds, group, number);
        if (part.rounds == 0)
            continue;
        next.owner = part.owner;
        next.round = part.first;
#endif
        const uint head = next.owner / args.row_blocks;
        const uint first_row =
            BLOCK_ROWS >= NQ ? 0
                             : next.owner % args.row_blocks * args.block_rows;
        const int row_count = (int)min((uint)BLOCK_ROWS, (uint)NQ - first_row);
        const uint kv_head = head / args.heads_per_kv_head;
        const int wide = (args.flags & ARG_WIDE_ACCESS) != 0;
        if (SHARES_OWNERS) {
            FORGET_LANE(lane_of_team);
            FORGET_LANE(wave_here.lane);
        }
#if SHARES_OWNERS
        walk here = start_walk(&args, next.round, part.rounds, team);
#else
        walk here = start_walk(&args, next.round, (uint)left, team);
#endif
        left -= here.rounds;
        const uint items = here.rounds * KEY_BLOCKS;
        float scale = args.scale;
#if VARIANT == COSINE
        scale = cosine_scale(&args, logit_scale, head);
#endif
        /* see plane_of */
        const ulong first_plane = GRID ? 0 : args.first_window;
        __global const storage *q_planes =
            q + plane(&args.q, first_plane, head);
        __global const storage *k_planes =
            k + plane(&args.k, first_plane, kv_head);
        __global const storage *v_planes =
            v + plane(&args.v, first_plane, kv_head);
        __global storage *o_planes = o + plane(&args.o, first_plane, head);
        __global float *lse_planes = lse + plane(&args.lse, first_plane, head);

        /* Starts the copies of an item; after a window's last, walks on. */
        walk there = here;
        const ulong q_chunk = chunk_of(&args.q, lane_of_team);
        const ulong k_chunk = chunk_of(&args.k, lane_of_team);
        const ulong v_chunk = chunk_of(&args.v, lane_of_team);
#define PLANE(name) (name##_planes + plane_of(&there) * args.name.window)
#define COPY_NARROW(to, name, pad, first, count, rows)                        \
    copy_rows(to, PLANE(name), name##_chunk, &args.name, &args.grid,          \
              &there.place, pad, first, count, rows, lane_of_team, 0)
#define COPY_WIDE(to, name, pad, first, count, rows)                          \
    copy_rows(to, PLANE(name), name##_chunk, &args.name, &args.grid,          \
              &there.place, pad, first, count, rows, lane_of_team, 1)
#if KEEPS_COPIES
        plane_offset q_at[COPY_TURNS(BLOCK_ROWS)],
            k_at[COPY_TURNS(BLOCK_KEYS)], v_at[COPY_TURNS(BLOCK_KEYS)];
        int has_padding;
#define FIND(name, first, rows)                                               \
    find_copies(name##_at, &args.name, &args.grid, &there.place, first, rows, \
                lane_of_team)
#define FIND_COPIES()                                                         \
    FIND(q, first_row, BLOCK_ROWS);                                           \
    FIND(k, 0, BLOCK_KEYS);                                                   \
    FIND(v, 0, BLOCK_KEYS);                                                   \
    has_padding = holds_padding(&args.grid, &there.place)
#define COPY_FOUND(to, name, pad, first, count, rows)                         \
    copy_found(to, PLANE(name), name##_at, 0, 0, pad, count, rows,            \
               lane_of_team)
#define COPY_PADDED(to, name, pad, first, count, rows)                        \
    copy_found(to, PLANE(name), name##_at, 0, 1, pad, count, rows,            \
               lane_of_team)
        FIND_COPIES();
#else
        const int has_padding = 0;
#define FIND_COPIES()
#define COPY_FOUND COPY_WIDE
#define COPY_PADDED COPY_WIDE
#endif
#define COPY_ITEM(copy)                                                       \
    if (key == 0)                                                             \
        copy(q_to, q, 0, first_row, row_count, BLOCK_ROWS);                   \
    copy(to + K_PLACE, k, KEPT_PAD(pad_rows, 0), key, keys, BLOCK_KEYS);      \
    copy(to + V_PLACE, v, KEPT_PAD(pad_rows, 1), key, keys, BLOCK_KEYS)
#define START_COPIES(item)                                                    \
    if ((item) < items) {                                                     \
        const int key = (int)((item) % KEY_BLOCKS) * BLOCK_KEYS;              \
        const int keys = min(BLOCK_KEYS, (int)NK - key);                      \
        __local storage_bits *to = ring + (item) % STAGES * STAGE_SIZE;       \
        __local storage_bits *q_to =                                          \
            ring + (item) / KEY_BLOCKS % STAGES * STAGE_SIZE;                 \
        if (there.exists) {                                                   \
            if (!wide) {                                                      \
                COPY_ITEM(COPY_NARROW);                                       \
            } else if (has_padding) {                                         \
                COPY_ITEM(COPY_PADDED);                                       \
            } else {                                                          \
                COPY_ITEM(COPY_FOUND);                                        \
            }                                                                 \
        }                                                                     \
        if ((KEY_BLOCKS == 1 || key + BLOCK_KEYS >= NK) &&                    \
            !walk_on(&there, &args, team)) {                                  \
            FIND_COPIES();                                                    \
        }                                                                     \
    }                                                                         \
    END_COPIES()
        KEEP_PADS(pad_rows, args, kv_head, item_id)
        START_RING();
        clear_pads(ring, lane_of_team);
#if HAS_LOCAL_TERMS && !MASK_IN_LOCAL
        const unit of_head = {.window = args.first_window, .head = head};
        DECLARE_TERMS(head_terms, args, of_head)
        if (!SHARES_OWNERS || next.owner != kept_owner)
            keep_terms(kept, &args, &head_terms, first_row, item_id);
        kept_owner = next.owner;
#endif
        barrier(CLK_LOCAL_MEM_FENCE);
/* Stores a tile of rows of the window here. */
#define STORE_ROWS(state, w)                                                  \
    do {                                                                      \
        const row_target to = {                                               \
            .plane = o_planes + plane_of(&here) * args.o.window,              \
            .layout = &args.o,                                                \
            .grid = &args.grid,                                               \
            .place = &here.place,                                             \
            .row = first_row + rows->row,                                     \
            .count = here.exists ? min(rows_left, UNIT_QUERIES) : 0,          \
            .wide = wide,                                                     \
            .found = FOUND_STORES};                                           \
        store_rows(state, q_stage + Q_PLACE + rows->row * PITCH, &args, &to,  \
                   lse_planes + plane_of(&here) * args.lse.window, w);        \
    } while (0)
/* What terms that are kept are made of, of the window here. */
#if MASK == 4
#define DECLARE_KEPT_TERMS(name)                                              \
    const logit_terms name = {.place = here.place};
#else
#define DECLARE_KEPT_TERMS(name) DECLARE_TERMS(name, args, unit_here)
#endif
#if HAS_TERMS_KEPT
        uint kept_kind = ~0u; /* of windows whose terms are kept */
#endif
#if HAS_OWN_TERMS
        float own_terms[KEY_TILES][VALUES];
#if HAS_LOCAL_TERMS
        __local const void *own_kept =
            kept + min(wave_of_team, ROW_TILES - 1) * KEY_TILES * TERM_TILE;
#else
        __local const void *own_kept = 0;
#endif
#define LOAD_OWN_TERMS(terms)                                                 \
    do {                                                                      \
        int lane = w->lane;                                                   \
        FORGET(lane); /* nothing of this is worth a register all along */     \
        UNROLL_FOR (int t = 0; t < KEY_TILES; t++)                            \
            load_own_terms(own_terms[t], own_kept, &args, &terms,             \
                           (int)first_row + wave_of_team * UNIT_QUERIES, t,   \
                           lane);                                             \
    } while (0)
#endif

#if STREAMING
        row_state kept_states[WAVE_TURNS];
#endif
#if CARRIES_BASE
        carried_base carried = {.wary = 1};
        const int wants_lse = (args.flags & ARG_LSE) != 0; /* exact sums */
/* Are carried bases relied upon in the window to come? Folded ones are in
 * own_terms then. A single pass of grids has no register for the answer. */
#define RELIES_NOW (carried.wary == 0 && !wants_lse)
#if FOLDS_BASE || QUICK_SHIFTS
        int relies = 0;
#define RELIES relies
#define NOTE_RELIANCE() relies = RELIES_NOW
#else
#define RELIES RELIES_NOW
#define NOTE_RELIANCE()
#endif
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            carried.base[r] = 0.0f;
#endif
#if KEEPS_STORES
        plane_offset o_at[STORE_TURNS(HEAD_DIM)];
#define FOUND_STORES o_at
#define FIND_STORES()                                                         \
    find_stores(o_at, &args.o, &args.grid, &here.place,                       \
                first_row + wave_of_team * UNIT_QUERIES, HEAD_DIM, w)
        FIND_STORES();
#else
#define FOUND_STORES 0
#define FIND_STORES()
#endif
        DECLARE_KEPT_REGIONS
        for (uint item = 0; item < items; item++) {
            FORGET_LANE(lane_of_team);
            FORGET_LANE(wave_here.lane);
            RELOAD_ARGS(forward_args)
            const uint block = item % KEY_BLOCKS;
            const int key = (int)block * BLOCK_KEYS;
            const int count = min(BLOCK_KEYS, (int)NK - key);
            const unit unit_here = {.window = window_of(&here, &args),
                                    .head = head,
                                    .row = first_row};
#if HAS_TERMS_KEPT
            const logit_terms terms = {.unused = 0};
            const uint kind = MASK_KIND(here);
            if (kind != kept_kind) {
                DECLARE_KEPT_TERMS(new_terms)
                kept_kind = kind;
#if MASK_IN_LOCAL /* all teams have windows of this kind */
                barrier(CLK_LOCAL_MEM_FENCE);
                keep_terms(kept, &args, &new_terms, first_row, item_id);
                barrier(CLK_LOCAL_MEM_FENCE);
#endif
#if HAS_OWN_TERMS
                LOAD_OWN_TERMS(new_terms);
#if FOLDS_BASE
                if (RELIES)
                    fold_base(own_terms, carried.base);
#endif
#endif
            }
#else
            DECLARE_TERMS(terms, args, unit_here)
#endif
            __local const storage_bits *stage =
                ring + item % STAGES * STAGE_SIZE;
            __local storage_bits *q_stage =
                ring + item / KEY_BLOCKS % STAGES * STAGE_SIZE;
            AWAIT_ITEM(item);
#if VARIANT == COSINE
            const measured_rows measured[2] = {
                {k_factors[team], stage + K_PLACE, BLOCK_KEYS, 1.0f},
                {q_factors[team], q_stage + Q_PLACE, BLOCK_ROWS, scale}};
            IF_ALL (block == 0)
                measure_rows(measured, 2, wave_of_team, w);
            IF_ALL (block != 0)
                measure_rows(measured, 1, wave_of_team, w);
            __local const float *key_scale = k_factors[team];
#else
            __local const float *key_scale = 0;
#endif
#if REGIONS_APART
            const int has_seams = HAS_SEAMS(here);
            const int has_new = block == 0 && has_seams &&
                                has_new_regions(&here, &kept_regions);
            if (has_new) {
                DECLARE_REGIONS(regions, args, unit_here, here)
                keep_regions(kept_row_regions[team], kept_key_regions[team],
                             &args, &regions, first_row, lane_of_team);
            }
#endif
#if VARIANT == COSINE
            TEAM_SYNC(team);
#elif REGIONS_APART
            if (EMULATED || has_new)
                TEAM_SYNC(team);
#endif
            TURN_FOR (int turn = 0; turn < WAVE_TURNS; turn++) {
                RELOAD_ARGS(forward_args)
                const int tile_here = turn * TEAM_WAVES + wave_of_team;
                const int tile = min(tile_here, ROW_TILES - 1);
                const int rows_left = row_count - tile_here * UNIT_QUERIES;
                if (!EMULATED && (rows_left <= 0 || !here.exists))
                    continue; /* emulated waves have to keep step */
#if STREAMING
                row_state *state = &kept_states[turn];
#elif !CARRIES_BASE
                row_state own_state;
                row_state *state = &own_state;
#endif
                item_rows work = {.rows = {.row = tile * UNIT_QUERIES,
                                           .last_row = row_count - 1,
                                           .first_row = (int)first_row,
                                           .place = here.place},
                                  .key = key,
                                  .count = count,
                                  .q = q_stage + Q_PLACE,
                                  .stage = stage,
                                  .key_scale = key_scale,
                                  .args = &args,
                                  .terms = &terms};
                tile_rows *rows = &work.rows;
#if PADDING == 2
                rows->holds_padding = holds_padding(&args.grid, &here.place);
#endif
#if HAS_OWN_TERMS
                rows->own_terms = own_terms;
#elif HAS_LOCAL_TERMS
                rows->local_terms =
                    kept +
                    (tile * ALL_KEY_TILES + block * KEY_TILES) * TERM_TILE;
#endif
                UNROLL_FOR (int i = 0; i < VALUES; i++) {
                    const int row = min(rows->row + value_query(w->lane, i),
                                        row_count - 1);
                    rows->scale[LANE_ROW(i)] = scale;
#if VARIANT == COSINE
                    rows->scale[LANE_ROW(i)] = q_factors[team][row];
#endif
#if REGIONS_APART
                    rows->region[LANE_ROW(i)] = kept_row_regions[team][row];
#endif
                }
#if REGIONS_APART
                rows->key_regions =
                    has_seams ? kept_key_regions[team] + key : 0;
#endif
#if CARRIES_BASE
                int is_done = 0;
                SEARCH_FOR (int searches = 0; searches < 2; searches++)
                    IF_ALL (!is_done && (searches || RELIES)) {
                        row_state state;
                        wave own = *w;
                        if (searches) {
                            FORGET(own.lane); /* nothing is kept for this */
#if FOLDS_BASE
                            if (RELIES) {
                                DECLARE_KEPT_TERMS(unfolded)
                                LOAD_OWN_TERMS(unfolded);
                            }
#endif
                        }
                        is_done = attend_window(&state, &carried, &work,
                                                searches, &own);
                        IF_ALL (is_done)
                            STORE_ROWS(&state, &own);
                        if (searches) {
                            carry_base(&carried, &state);
                            carried.wary = carried.wary > 0 ? carried.wary - 1
                                                            : WARY_WINDOWS;
                            NOTE_RELIANCE();
#if FOLDS_BASE
                            if (RELIES)
                                fold_base(own_terms, carried.base);
#endif
                        }
                    }
#else
                if (block == 0)
                    start_rows(state, 0);
                attend_item(state, &work, 1, w);
                if (block == KEY_BLOCKS - 1) {
                    finish_sums(state, 1, w);
                    STORE_ROWS(state, w);
                }
#endif
            }
            if ((KEY_BLOCKS == 1 || block == KEY_BLOCKS - 1) &&
                !walk_on(&here, &args, team)) {
                FIND_STORES();
            }
        }
        if (!SHARES_OWNERS)
            break;
        barrier(CLK_LOCAL_MEM_FENCE); /* the next may replace all */
    }
}
