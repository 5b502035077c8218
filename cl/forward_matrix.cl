/* SPDX-License-Identifier: Apache-2.0
 * Forward pass on a matrix unit, for windows, in fp16, bf16 and, where the
 * caller allows TF32, fp32: scores, weights and sums stay in a wave's
 * registers, as fragments (fragment.cl).
 *
 * An item of the ring (matrix.cl) is BLOCK_KEYS keys of a window; where those
 * are not all (STREAMING), sums live through the items of a window. Within an
 * item the softmax takes PASS_KEYS keys at a time and streams (Milakov and
 * Gimelshein 2018) where these are not all. A wave takes tiles of the block's
 * rows in turn. */

#define WAVE_TURNS CEIL_DIV(ROW_TILES, TEAM_WAVES)

/* Sums that live from item to item must have constant indices. */
#if STREAMING
#define TURN_FOR UNROLL_FOR
#else
#define TURN_FOR NO_UNROLL_FOR
#endif

/* ---- Attention of one tile of rows ---- */

/* What a wave sums of a tile of rows. */
typedef struct row_state {
    float top[LANE_ROWS], sum[LANE_ROWS]; /* sums are of a lane's own keys */
    float out[DIM_TILES][VALUES];
} row_state;

INLINE void start_rows(row_state *s)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        s->top[r] = -INFINITY;
        s->sum[r] = 0.0f;
    }
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
        UNROLL_FOR (int i = 0; i < VALUES; i++)
            s->out[d][i] = 0.0f;
}

INLINE key_tile read_value(__local const storage_bits *stage, int d, int tile,
                           const wave *w)
{
    return load_value(stage + V_PLACE + d * UNIT_TILE, PITCH, tile * UNIT_TILE,
                      LAST_KEY, w);
}

/* Takes them into account. */
INLINE void attend_pass(row_state *s, float scores[PASS_TILES][VALUES],
                        __local const storage_bits *stage,
                        const tile_rows *rows, int first, int key, int count,
                        __local const float *key_scale,
                        const forward_args *args, const logit_terms *terms,
                        const wave *w)
{
    float top[LANE_ROWS], keep[LANE_ROWS], shift[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        top[r] = -INFINITY;
    finish_pass(scores, key_scale, first, key, count, args, terms, rows, w);
    UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
        if (IS_TILE(first + t))
            UNROLL_FOR (int i = 0; i < VALUES; i++)
                top[LANE_ROW(i)] = fmax(top[LANE_ROW(i)], scores[t][i]);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        REDUCE(top[r], fmax);
        const float earlier = s->top[r];
        top[r] = fmax(top[r], earlier);
        /* a row that has seen nothing has no maximum to subtract */
        const float base = top[r] == -INFINITY ? 0.0f : top[r];
        s->top[r] = top[r];
        if (STREAMING || PASSES > 1) {
            keep[r] = EXP2((earlier - base) * LOG2E);
            s->sum[r] *= keep[r];
        }
        shift[r] = shift_scores(scores, base, r);
    }
    if (STREAMING || PASSES > 1)
        UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
            UNROLL_FOR (int i = 0; i < VALUES; i++)
                s->out[d][i] *= keep[LANE_ROW(i)];

    UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
        if (IS_TILE(first + t)) {
            float *x = scores[t];
            UNROLL_FOR (int i = 0; i < VALUES; i++) {
                x[i] = EXP2(FMA(x[i], LOG2E, shift[LANE_ROW(i)]));
                s->sum[LANE_ROW(i)] += x[i];
            }
            const query_tile p = make_weights(x, w);
            UNROLL_FOR (int d = 0; d < DIM_TILES; d++) {
                const key_tile v = read_value(stage, d, first + t, w);
                multiply_tiles(s->out[d], &p, &v, w);
            }
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
                lse[at] = s->top[r] + log(s->sum[r]);
        }
    UNROLL_FOR (int first = 0; first < DIM_TILES; first += OUT_TILES)
        store_channels(s->out + first, inverse, first, place, to, w);
}

/* ---- The kernel ---- */

__kernel __attribute__((reqd_work_group_size(TEAM * TEAMS, 1, 1)))
WAVE_ATTRIBUTE void
JOIN(forward_matrix_, UNIT_NAME)(FORWARD_PARAMETERS)
{
    __local uint4 rings[TEAMS][STAGES * STAGE_SIZE / CHUNK];
    __local uint4
        out_rows[TEAMS * TEAM_WAVES][UNIT_QUERIES * OUT_PITCH / CHUNK];
#if HAS_LOCAL_TERMS
    __local kept_term kept[ROW_TILES * ALL_KEY_TILES * TERM_TILE]
        __attribute__((aligned(16)));
#endif
#if VARIANT == COSINE
    __local float q_factors[TEAMS][BLOCK_ROWS], k_factors[TEAMS][KEY_ROWS];
#endif
#if REGIONS_APART
    __local uchar kept_row_regions[TEAMS][BLOCK_ROWS];
    __local uchar kept_key_regions[TEAMS][NK];
#endif
    DECLARE_WAVE
    __local storage_bits *ring = (__local storage_bits *)rings[team];
    __local storage_bits *out_place =
        (__local storage_bits *)out_rows[item_id / WAVE];

    /* what this work-group owns */
    const uint owners = args.heads * args.row_blocks;
    const uint owner = (uint)get_group_id(0) % owners;
    const uint slot = (uint)get_group_id(0) / owners;
    const uint head = owner / args.row_blocks;
    const uint first_row =
        BLOCK_ROWS >= NQ ? 0 : owner % args.row_blocks * args.block_rows;
    const int row_count = (int)min((uint)BLOCK_ROWS, (uint)NQ - first_row);
    const uint kv_head = head / args.heads_per_kv_head;
    const int wide = (args.flags & ARG_WIDE_ACCESS) != 0;
    walk here = start_walk(&args, slot, team);
    const uint items = here.rounds * KEY_BLOCKS;
    float scale = args.scale;
#if VARIANT == COSINE
    scale = cosine_scale(&args, logit_scale, head);
#endif
    /* planes of the first grid, or window */
    q += plane(&args.q, 0, head);
    k += plane(&args.k, 0, kv_head);
    v += plane(&args.v, 0, kv_head);
    o += plane(&args.o, 0, head);
    lse += plane(&args.lse, 0, head);

    /* Starts the copies of one item; after the last of a window, walks on. */
    walk there = here;
    const chunk q_chunk = chunk_of(&args.q, lane_of_team);
    const chunk k_chunk = chunk_of(&args.k, lane_of_team);
    const chunk v_chunk = chunk_of(&args.v, lane_of_team);
    ulong q_from = there.place.grid * args.q.window;
    ulong k_from = there.place.grid * args.k.window;
    ulong v_from = there.place.grid * args.v.window;
#define STEP(name)                                                            \
    name##_from = alike ? name##_from + there.step * args.name.window         \
                        : there.place.grid * args.name.window
#define COPY(to, name, pad, first, count, rows)                               \
    copy_rows(to, name + name##_from, name##_chunk, &args.name, &args.grid,   \
              &there.place, pad, first, count, rows, lane_of_team, wide)
#define START_COPIES(item)                                                    \
    if ((item) < items) {                                                     \
        const int key = (int)((item) % KEY_BLOCKS) * BLOCK_KEYS;              \
        const int keys = min(BLOCK_KEYS, (int)NK - key);                      \
        __local storage_bits *to = ring + (item) % STAGES * STAGE_SIZE;       \
        if (there.exists && key == 0)                                         \
            COPY(ring + (item) / KEY_BLOCKS % STAGES * STAGE_SIZE, q, 0,      \
                 first_row, row_count, BLOCK_ROWS);                           \
        if (there.exists) {                                                   \
            COPY(to + K_PLACE, k, PAD_ROW(args, pad_k, ARG_PAD_K, kv_head),   \
                 key, keys, BLOCK_KEYS);                                      \
            COPY(to + V_PLACE, v, PAD_ROW(args, pad_v, ARG_PAD_V, kv_head),   \
                 key, keys, BLOCK_KEYS);                                      \
        }                                                                     \
        if (KEY_BLOCKS == 1 || key + BLOCK_KEYS >= NK) {                      \
            const int alike = walk_on(&there, &args, team);                   \
            STEP(q);                                                          \
            STEP(k);                                                          \
            STEP(v);                                                          \
        }                                                                     \
    }                                                                         \
    END_COPIES()
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
    for (uint item = 0; item < items; item++) {
        FORGET_LANE(lane_of_team);
        FORGET_LANE(wave_here.lane);
        const uint block = item % KEY_BLOCKS;
        const int key = (int)block * BLOCK_KEYS;
        const int count = min(BLOCK_KEYS, (int)NK - key);
        const unit unit_here = {
            .window = window_of(&here, &args), .head = head, .row = first_row};
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
            int lane = w->lane;
            FORGET(lane); /* nothing of this is worth a register all along */
            UNROLL_FOR (int t = 0; t < KEY_TILES; t++)
                load_own_terms(own_terms[t], own_kept, &args, &new_terms,
                               (int)first_row + wave_of_team * UNIT_QUERIES, t,
                               lane);
#endif
        }
#else
        DECLARE_TERMS(terms, args, unit_here)
#endif
        __local const storage_bits *stage = ring + item % STAGES * STAGE_SIZE;
        __local const storage_bits *q_stage =
            ring + item / KEY_BLOCKS % STAGES * STAGE_SIZE;
        AWAIT_ITEM(item);
#if VARIANT == COSINE
        measure_rows(k_factors[team], stage + K_PLACE, BLOCK_KEYS, 1.0f,
                     wave_of_team, w);
        if (block == 0)
            measure_rows(q_factors[team], q_stage + Q_PLACE, BLOCK_ROWS, scale,
                         wave_of_team, w);
        __local const float *key_scale = k_factors[team];
#else
        __local const float *key_scale = 0;
#endif
#if REGIONS_APART
        const int has_seams = HAS_SEAMS(here);
        if (block == 0 && has_seams) {
            DECLARE_REGIONS(regions, args, unit_here, here)
            keep_regions(kept_row_regions[team], kept_key_regions[team], &args,
                         &regions, first_row, lane_of_team);
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
            tile_rows rows = {.row = tile * UNIT_QUERIES,
                              .last_row = row_count - 1,
                              .first_row = (int)first_row,
                              .place = here.place};
#if PADDING == 2
            rows.holds_padding = holds_padding(&args.grid, &here.place);
#endif
#if HAS_OWN_TERMS
            rows.own_terms = own_terms;
#elif HAS_LOCAL_TERMS
            rows.local_terms =
                kept + (tile * ALL_KEY_TILES + block * KEY_TILES) * TERM_TILE;
#endif
            UNROLL_FOR (int i = 0; i < VALUES; i++) {
                const int row =
                    min(rows.row + value_query(w->lane, i), row_count - 1);
                rows.scale[LANE_ROW(i)] = scale;
#if VARIANT == COSINE
                rows.scale[LANE_ROW(i)] = q_factors[team][row];
#endif
#if REGIONS_APART
                rows.region[LANE_ROW(i)] = kept_row_regions[team][row];
#endif
            }
#if REGIONS_APART
            rows.key_regions = has_seams ? kept_key_regions[team] + key : 0;
#endif
            if (block == 0)
                start_rows(state);
            PASS_FOR (int first = 0; first < KEY_TILES; first += PASS_TILES) {
                float scores[PASS_TILES][VALUES];
                multiply_pass(scores, q_stage + Q_PLACE, rows.row,
                              rows.last_row, stage + K_PLACE, first, w);
                attend_pass(state, scores, stage, &rows, first, key, count,
                            key_scale, &args, &terms, w);
            }
            if (block == KEY_BLOCKS - 1) {
                const row_target to = {
                    .plane = o + here.place.grid * args.o.window,
                    .layout = &args.o,
                    .grid = &args.grid,
                    .place = &here.place,
                    .row = first_row + rows.row,
                    .count = here.exists ? min(rows_left, UNIT_QUERIES) : 0,
                    .wide = wide};
                store_rows(state, out_place, &args, &to,
                           lse + here.place.grid * args.lse.window, w);
            }
        }
        if (KEY_BLOCKS == 1 || block == KEY_BLOCKS - 1)
            walk_on(&here, &args, team);
    }
}
