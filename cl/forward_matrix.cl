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
#ifndef SHARES_OWNERS
#define SHARES_OWNERS 1
#endif

#define WAVE_TURNS CEIL_DIV(ROW_TILES, TEAM_WAVES)

/* Sums that live from item to item must have constant indices. */
#if STREAMING
#define TURN_FOR UNROLL_FOR
#else
#define TURN_FOR NO_UNROLL_FOR
#endif

/* ---- Attention of one tile of rows ---- */

/* Weights are exponentials of scores less a row's base: its maximum when the
 * wave last looked for it. It looks again only where weights become larger
 * than the storage type holds, or where a row has seen nothing yet. */
#ifdef WAVE_ANY
#define KEEPS_BASE (STREAMING || PASSES > 1)
#else
#define KEEPS_BASE 0
#define WAVE_ANY(x) 1
#endif
#define LARGE_WEIGHT (DTYPE == 1 ? 32768.0f : 0x1p64f)

/* What a wave sums of a tile of rows. */
typedef struct row_state {
    float base[LANE_ROWS]; /* -infinity: nothing was seen */
    float sum[LANE_ROWS];  /* of weights, of a lane's own keys */
    float out[DIM_TILES][VALUES];
} row_state;

/* What a wave computes them from: a tile of rows, and an item's keys. */
typedef struct item_rows {
    tile_rows rows;
    int key, count; /* the item's first key, and how many it has */
    __local const storage_bits *q, *stage;
    __local const float *key_scale;
    const forward_args *args;
    const logit_terms *terms;
} item_rows;

INLINE void start_rows(row_state *s)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        s->base[r] = -INFINITY;
        s->sum[r] = 0.0f;
    }
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
        UNROLL_FOR (int i = 0; i < VALUES; i++)
            s->out[d][i] = 0.0f;
}

INLINE key_tile read_value(__local const storage_bits *stage, int d, int tile,
                           const wave *w)
{
    return load_value(stage + V_PLACE, PITCH, tile * UNIT_TILE, d * UNIT_TILE,
                      LAST_KEY, w);
}

/* The scores of a pass, from key `first` of the item on. */
INLINE void score_pass(float scores[PASS_TILES][VALUES], const item_rows *here,
                       int first, const wave *w)
{
    multiply_pass(scores, here->q, here->rows.row, here->rows.last_row,
                  here->stage + K_PLACE, first, w);
    finish_pass(scores, here->key_scale, first, here->key, here->count,
                here->args, here->terms, &here->rows, w);
}

/* Rows' bases become their maxima up to this pass, and what has been summed
 * follows, where `wanted`; it is the same for the wave. */
INLINE void raise_base(row_state *s, float scores[PASS_TILES][VALUES],
                       int first, const int wanted, const wave *w)
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
        top[r] = wanted ? top[r] : s->base[r];
        if (STREAMING || PASSES > 1) {
            keep[r] = top[r] == -INFINITY
                          ? 1.0f
                          : EXP2((s->base[r] - top[r]) * LOG2E);
            s->sum[r] *= keep[r];
        }
        s->base[r] = top[r];
    }
    if (STREAMING || PASSES > 1)
        UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
            UNROLL_FOR (int i = 0; i < VALUES; i++)
                s->out[d][i] *= keep[LANE_ROW(i)];
}

/* A pass's scores become weights, as operands, and their sums. */
INLINE void weigh_pass(query_tile weights[PASS_TILES], float *sum,
                       float scores[PASS_TILES][VALUES], const row_state *s,
                       int first, const wave *w)
{
    float base[LANE_ROWS], shift[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        sum[r] = 0.0f;
        /* a row that has seen nothing has no maximum to subtract */
        base[r] = s->base[r] == -INFINITY ? 0.0f : s->base[r];
    }
    shift_scores(scores, base, shift);
    UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
        if (IS_TILE(first + t)) {
            UNROLL_FOR (int i = 0; i < VALUES; i++) {
                float *x = &scores[t][i];
                *x = EXP2(FMA(*x, LOG2E, shift[LANE_ROW(i)]));
                sum[LANE_ROW(i)] += *x;
            }
            weights[t] = make_weights(scores[t], w);
        }
}

/* Takes a pass into account. */
INLINE void attend_pass(row_state *s, const item_rows *here, int first,
                        const wave *w)
{
    float scores[PASS_TILES][VALUES], sum[LANE_ROWS];
    query_tile weights[PASS_TILES];
    int raises = 0;
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        raises |= s->base[r] == -INFINITY;
    raises = KEEPS_BASE ? WAVE_ANY(raises) : 1;
    score_pass(scores, here, first, w);
    if (EMULATED || raises) /* emulated waves have to keep step */
        raise_base(s, scores, first, raises, w);
    weigh_pass(weights, sum, scores, s, first, w);
    if (KEEPS_BASE) {
        int large = 0;
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            large |= sum[r] > LARGE_WEIGHT;
        large = WAVE_ANY(large);
        if (EMULATED || (large && !raises)) {
            wave again = *w; /* of which nothing is kept for this rare case */
            FORGET(again.lane);
            score_pass(scores, here, first, &again);
            raise_base(s, scores, first, large, &again);
            weigh_pass(weights, sum, scores, s, first, &again);
        }
    }
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        s->sum[r] += sum[r];
    UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
        if (IS_TILE(first + t))
            UNROLL_FOR (int d = 0; d < DIM_TILES; d++) {
                const key_tile v = read_value(here->stage, d, first + t, w);
                multiply_tiles(s->out[d], &weights[t], &v, w);
            }
}

/* Stores o and lse of the rows. */
INLINE void store_rows(row_state *s, __local storage_bits *place,
                       const forward_args *args, const row_target *to,
                       __global float *lse, const wave *w)
{
    float inverse[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        REDUCE(s->sum[r], ADD);
        inverse[r] = s->sum[r] == 0.0f ? 0.0f : RECIPROCAL(s->sum[r]);
    }
    if ((args->flags & ARG_LSE) != 0)
        UNROLL_FOR (int i = 0; i < VALUES; i++) {
            ulong at;
            const int row = value_query(w->lane, i);
            const int r = LANE_ROW(i);
            if (value_key(w->lane, i) == 0 && row < to->count &&
                find_row(&at, &args->lse, to->grid, to->place, to->row + row))
                lse[at] = s->base[r] + log(s->sum[r]);
        }
    UNROLL_FOR (int first = 0; first < DIM_TILES; first += OUT_TILES)
        store_channels(s->out + first, inverse, first, place, to, w);
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
    __local storage_bits *out_place =
        (__local storage_bits *)out_rows[item_id / WAVE];

    /* of the rounds of this work-group the next one, and how many are left */
    const uint group = (uint)get_group_id(0);
    const uint rounds = count_rounds(&args);
    const owned_round end = first_round(&args, rounds, group + 1);
    owned_round next = first_round(&args, rounds, group);
    ulong left =
        (ulong)(end.owner - next.owner) * rounds + end.round - next.round;
    NO_UNROLL_FOR (; left > 0; next.owner++, next.round = 0) {
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
        const ulong most = SHARES_OWNERS ? rounds - next.round : left;
        walk here = start_walk(&args, next.round, (uint)min(left, most), team);
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
        keep_terms(kept, &args, &head_terms, first_row, item_id);
#endif
        barrier(CLK_LOCAL_MEM_FENCE);
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
#endif

#if STREAMING
        row_state kept_states[WAVE_TURNS];
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
        for (uint item = 0; item < items; item++) {
            FORGET_LANE(lane_of_team);
            FORGET_LANE(wave_here.lane);
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
#if MASK == 4
                const logit_terms new_terms = {.place = here.place};
#else
                DECLARE_TERMS(new_terms, args, unit_here)
#endif
                kept_kind = kind;
#if MASK_IN_LOCAL /* all teams have windows of this kind */
                barrier(CLK_LOCAL_MEM_FENCE);
                keep_terms(kept, &args, &new_terms, first_row, item_id);
                barrier(CLK_LOCAL_MEM_FENCE);
#endif
#if HAS_OWN_TERMS
                /* nothing of this is worth a register all along */
                int lane = w->lane;
                FORGET(lane);
                UNROLL_FOR (int t = 0; t < KEY_TILES; t++)
                    load_own_terms(
                        own_terms[t], own_kept, &args, &new_terms,
                        (int)first_row + wave_of_team * UNIT_QUERIES, t, lane);
#endif
            }
#else
            DECLARE_TERMS(terms, args, unit_here)
#endif
            __local const storage_bits *stage =
                ring + item % STAGES * STAGE_SIZE;
            __local const storage_bits *q_stage =
                ring + item / KEY_BLOCKS % STAGES * STAGE_SIZE;
            AWAIT_ITEM(item);
#if VARIANT == COSINE
            measure_rows(k_factors[team], stage + K_PLACE, BLOCK_KEYS, 1.0f,
                         wave_of_team, w);
            if (block == 0)
                measure_rows(q_factors[team], q_stage + Q_PLACE, BLOCK_ROWS,
                             scale, wave_of_team, w);
            __local const float *key_scale = k_factors[team];
#else
            __local const float *key_scale = 0;
#endif
#if REGIONS_APART
            const int has_seams = HAS_SEAMS(here);
            if (block == 0 && has_seams) {
                DECLARE_REGIONS(regions, args, unit_here, here)
                keep_regions(kept_row_regions[team], kept_key_regions[team],
                             &args, &regions, first_row, lane_of_team);
            }
#endif
#if VARIANT == COSINE
            TEAM_SYNC(team);
#elif REGIONS_APART
            if (EMULATED || has_seams)
                TEAM_SYNC(team);
#endif
            TURN_FOR (int turn = 0; turn < WAVE_TURNS; turn++) {
                const int tile_here = turn * TEAM_WAVES + wave_of_team;
                const int tile = min(tile_here, ROW_TILES - 1);
                const int rows_left = row_count - tile_here * UNIT_QUERIES;
                if (!EMULATED && (rows_left <= 0 || !here.exists))
                    continue; /* emulated waves have to keep step */
#if STREAMING
                row_state *state = &kept_states[turn];
#else
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
                if (block == 0)
                    start_rows(state);
                PASS_FOR (int first = 0; first < KEY_TILES;
                          first += PASS_TILES)
                    attend_pass(state, &work, first, w);
                if (block == KEY_BLOCKS - 1) {
                    const row_target to = {
                        .plane = o_planes + plane_of(&here) * args.o.window,
                        .layout = &args.o,
                        .grid = &args.grid,
                        .place = &here.place,
                        .row = first_row + rows->row,
                        .count =
                            here.exists ? min(rows_left, UNIT_QUERIES) : 0,
                        .wide = wide,
                        .found = FOUND_STORES};
                    store_rows(state, out_place, &args, &to,
                               lse_planes + plane_of(&here) * args.lse.window,
                               w);
                }
            }
            if ((KEY_BLOCKS == 1 || block == KEY_BLOCKS - 1) &&
                !walk_on(&here, &args, team)) {
                FIND_STORES();
            }
        }
        if (!SHARES_OWNERS)
            break;
        barrier(CLK_LOCAL_MEM_FENCE); /* the next owner's may replace all */
    }
}
