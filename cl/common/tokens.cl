/* SPDX-License-Identifier: Apache-2.0
 * Where the tokens of a window lie in memory. Every kernel asks here, for
 * every tensor that has an element for each token: q, k, v, o, lse and their
 * gradients.
 *
 *   GRID 0    tokens of a window are rows, layout.row apart
 *        1    they are a box of a grid that was padded and then rolled; the
 *             window is WINDOW_0 x WINDOW_1 x WINDOW_2, constants, NK in all:
 *
 *               window   first   + token in the window, wrapped where the
 *               number -> of its    roll ended -> position -> offset
 *                        axes
 *
 *        2    they are a box of a grid that was rolled and then padded
 *   PADDING 0 all tokens exist
 *           1 those of the padding are the row `pad`, or zeros
 *           2 those of the padding are hidden
 *   KEEPS_TOKENS  1: positions wait in local memory, for kernels that ask for
 *           each token many times; a window_coord says where (GRID) */
#include "common/layout.cl"
#include "common/storage.cl"

REQUIRE(GRID)
REQUIRE(PADDING)
REQUIRE(KEEPS_TOKENS)
/* The number of a grid of the batch, without grids of a window; and how far
 * something is from its plane's start. On a grid the host has checked that 32
 * bits suffice. */
#if GRID
typedef uint grid_number;
typedef uint plane_offset;
#define WINDOW_0 (NK / (WINDOW_1 * WINDOW_2))
#else
typedef ulong grid_number;
typedef ulong plane_offset;
#define WINDOW_0 1
#define WINDOW_1 1
#define WINDOW_2 1
#endif
REQUIRE(WINDOW_1)
REQUIRE(WINDOW_2)
#define WINDOW_TOKENS (WINDOW_0 * WINDOW_1 * WINDOW_2)

/* What is kept of a token in local memory, for all of a team's work-items: its
 * position, and with 8 for a token that exists the sides of the shift
 * boundaries. */
typedef uint4 kept_token;

/* What all tokens of a window have in common; without a grid, only `grid`. */
typedef struct window_coord {
    grid_number grid;
    uint first[3]; /* position of its first token, not wrapped: less than a
                      window behind the padded size at most */
    uint shift_boundaries; /* bit a: tokens on both sides of a shift boundary
                              across axis a */
    __local const kept_token *tokens; /* with KEEPS_TOKENS; not set here */
} window_coord;

typedef struct token {
    uint at[3]; /* position; of a token of the padding, the nearest other's;
                   without a grid the last is its number in the window */
    int exists;
} token;

#define EXISTS(token) (!PADDING || (token).exists)

/* a % b and a / b; a GPU divides 64 bits slowly. */
INLINE ulong remainder_of(ulong a, ulong b)
{
    return (a | b) >> 32 ? a % b : (uint)a % (uint)b;
}
INLINE ulong quotient_of(ulong a, ulong b)
{
    return (a | b) >> 32 ? a / b : (uint)a / (uint)b;
}

/* How far tokens were rolled along axis a. Rolled before it is padded, one
 * that a window covers may be shifted by more than its size. */
#define ROLL(a)                                                               \
    (GRID != 2 || grid->shift[a] < grid->size[a]                              \
         ? grid->shift[a]                                                     \
         : grid->shift[a] % grid->size[a])

INLINE window_coord locate_window(const grid_layout *grid, ulong window)
{
    window_coord coord;
    if (!GRID) {
        coord.grid = window;
        return coord;
    }
    const uint last_two = grid->windows[1] * grid->windows[2];
    const uint all = grid->windows[0] * last_two;
    coord.grid = (uint)quotient_of(window, all);
    const uint i = (uint)window - coord.grid * all;
    const uint w0 = i / last_two;
    const uint w1 = i % last_two / grid->windows[2];
    const uint w2 = i % grid->windows[2];
    coord.first[0] = w0 * WINDOW_0 + ROLL(0);
    coord.first[1] = w1 * WINDOW_1 + ROLL(1);
    coord.first[2] = w2 * WINDOW_2 + ROLL(2);
    coord.shift_boundaries =
        grid->shift_boundaries & ((w0 + 1 == grid->windows[0] ? 1u : 0u) |
                                  (w1 + 1 == grid->windows[1] ? 2u : 0u) |
                                  (w2 + 1 == grid->windows[2] ? 4u : 0u));
    return coord;
}

/* Are tokens of the padding in the window? */
INLINE int holds_padding(const grid_layout *grid, const window_coord *coord)
{
    int holds = 0;
    const uint window[3] = {WINDOW_0, WINDOW_1, WINDOW_2};
    UNROLL_FOR (int a = 0; PADDING && a < 3; a++) {
        const uint padded = grid->windows[a] * window[a];
        const uint at = coord->first[a];
        const uint first =
            GRID == 2 ? at - min(at, grid->shift[a]) /* as if not rolled */
                      : min(at, at - padded);
        holds |= grid->size[a] < padded && first + window[a] > grid->size[a];
    }
    return holds;
}

INLINE token compute_token(const grid_layout *grid, const window_coord *coord,
                           uint row)
{
    token t;
    if (!GRID) {
        t.at[2] = row;
        return t;
    }
    /* compilers do not know that a row of a plane of windows lies in it */
    const uint plane = WINDOW_0 == 1 ? 0 : row / (WINDOW_1 * WINDOW_2);
    const uint line = row / WINDOW_2;
    const uint inside[3] = {plane, line - plane * WINDOW_1,
                            row - line * WINDOW_2};
    const uint window[3] = {WINDOW_0, WINDOW_1, WINDOW_2};
    t.exists = 1;
    UNROLL_FOR (int a = 0; a < 3; a++) {
        uint x = coord->first[a] + inside[a];
        if (GRID == 2) {
            /* As many tokens as were rolled lie behind the end of the map,
             * and behind these the padding. Only of the first window `first`
             * may be less than the shift: it is the roll. */
            const uint behind =
                x - grid->size[a]; /* which is huge before it */
            x = behind < min(coord->first[a], grid->shift[a]) ? behind : x;
        } else {
            const uint padded = grid->windows[a] * window[a];
            if (window[a] > 1)          /* else there is no shift */
                x = min(x, x - padded); /* which is huge before the end */
        }
        if (PADDING) {
            t.exists &= x < grid->size[a];
            x = min(x, grid->size[a] - 1);
        }
        t.at[a] = x;
    }
    return t;
}

/* On which sides of the shift boundaries a token of a window lies: tokens of
 * different numbers are of different regions. */
INLINE uint shift_boundary_sides(const grid_layout *grid,
                                 const window_coord *coord, uint row)
{
    const uint sides =
        (row / (WINDOW_1 * WINDOW_2) + grid->shift[0] >= WINDOW_0 ? 1u : 0u) |
        (row / WINDOW_2 % WINDOW_1 + grid->shift[1] >= WINDOW_1 ? 2u : 0u) |
        (row % WINDOW_2 + grid->shift[2] >= WINDOW_2 ? 4u : 0u);
    return GRID ? sides & coord->shift_boundaries : 0;
}

INLINE kept_token keep_token(const grid_layout *grid,
                             const window_coord *coord, uint row)
{
    const token t = compute_token(grid, coord, row);
    return (kept_token)(t.at[0], t.at[1], t.at[2],
                        shift_boundary_sides(grid, coord, row) |
                            (EXISTS(t) ? 8u : 0u));
}

INLINE token recall_token(kept_token kept)
{
    token t;
    t.at[0] = kept.x;
    t.at[1] = kept.y;
    t.at[2] = kept.z;
    t.exists = (kept.w & 8u) != 0;
    return t;
}

INLINE uint recall_sides(kept_token kept) { return kept.w & 7u; }

/* A row past the last may be any other. */
INLINE token find_token(const grid_layout *grid, const window_coord *coord,
                        uint row)
{
    return KEEPS_TOKENS
               ? recall_token(coord->tokens[min(row, WINDOW_TOKENS - 1u)])
               : compute_token(grid, coord, row);
}

INLINE plane_offset token_offset(const tensor_layout *layout, const token *t)
{
    if (!GRID)
        return (plane_offset)t->at[2] * layout->row;
    return t->at[0] * layout->axis[0] + t->at[1] * layout->axis[1] +
           t->at[2] * layout->row;
}

/* The channels of a token of q, k or v, or of a gradient of o: 0 where they
 * are zeros. `pad`: those of a token of the padding, 0 if they are zeros. */
INLINE __global const storage *token_row(__global const storage *plane,
                                         const tensor_layout *layout,
                                         const token *t,
                                         __global const storage *pad)
{
    return EXISTS(*t) ? plane + token_offset(layout, t) : pad;
}
