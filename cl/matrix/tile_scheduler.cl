/* SPDX-License-Identifier: Apache-2.0
 * Which window comes after which: how a work-group's teams go through the
 * windows of a launch. Reads WINDOWS_PER_GROUP, and of what stays on the chip
 * MASK_IN_CACHE and COMPARES_REGIONS (geometry.cl). */
#include "common/even_part.cl"
#include "matrix/geometry.cl"

/* A round is one window for each team, and a tile scheduler takes rounds that
 * follow each other. Windows that lie and are masked alike come one after the
 * other: bias and regions that are cached stay, and of a grid the next window
 * is as far away as the next grid. Where a grid has few windows at each
 * position, they come as they are numbered instead. */
#define SORTED (GRID || MASK_IN_CACHE || COMPARES_REGIONS)

/* What work-groups are dealt: rounds, or where a round takes long, windows, so
 * that their last rounds have few windows instead of some having a round more.
 * Not where windows are sorted, or a work-group has several parts, each with
 * a last round. */
#if SORTED || PERSISTENT_MULTI_BLOCK || WINDOWS_PER_GROUP == 1
#define DEALS_WINDOWS 0
#else
#define DEALS_WINDOWS (SUBTILES > 1)
#endif

typedef struct tile_scheduler {
    uint mask_classes,
        mask_class; /* of windows that are alike; the present one */
    uint rounds_per_class, round; /* rounds of a mask class; the present one */
    uint rounds;                  /* of the scheduler */
    uint window;        /* the team's, counted from the launch's first */
    uint end;           /* behind the last of the scheduler or the launch */
    int exists;         /* 0: the team is behind the last window */
    uint step;          /* window_coords that are alike are so far apart */
    window_coord coord; /* of the window, or where the team has none, of one
                           like the others' */
} tile_scheduler;

/* Teams that have windows: where there are few of these, compute units share
 * them. */
#define BUSY_TEAMS(args) (WINDOWS_PER_GROUP - (args)->idle_teams)

/* How many planes on the window's is: after the first grid's, or without a
 * grid after that of the launch's first window. */
INLINE uint plane_of(const tile_scheduler *w)
{
    return GRID ? (uint)w->coord.grid : w->window;
}

/* Windows of a grid; 1 without one. */
INLINE uint windows_per_grid(const forward_args *args)
{
    return GRID ? args->grid.windows[0] * args->grid.windows[1] *
                      args->grid.windows[2]
                : 1;
}

INLINE uint rounds_of_class(const forward_args *args, uint mask_classes)
{
    return CEIL_DIV(CEIL_DIV((uint)args->windows, mask_classes),
                    BUSY_TEAMS(args));
}

/* Window w + mask_classes is like window w. */
INLINE uint count_mask_classes(const forward_args *args)
{
    ulong mask_classes = MASK_IN_CACHE ? args->mask_windows : 1;
    if (GRID) {
        const uint per_grid = windows_per_grid(args);
        if (MASK_IN_CACHE && (!MASK_FOLLOWS_GRID(MASK) || MASK_IN_LOCAL))
            mask_classes =
                max(mask_classes,
                    (ulong)per_grid); /* one is a multiple of the other */
        else
            mask_classes =
                (uint)args->windows / per_grid < 2 * BUSY_TEAMS(args)
                    ? 1
                    : per_grid;
    } else if (COMPARES_REGIONS && MASK_READS_REGIONS(MASK)) {
        /* where teams then have as many rounds as before, or a sixteenth more
         */
        const uint masks = (uint)min(args->mask_windows, args->windows);
        if ((ulong)masks * rounds_of_class(args, masks) * 16 <=
            (ulong)CEIL_DIV((uint)args->windows, BUSY_TEAMS(args)) * 17)
            mask_classes = masks;
    }
    return (uint)min(mask_classes, args->windows);
}

/* The window, or where the team has none, one like the others'. */
INLINE ulong window_of(const tile_scheduler *w, const forward_args *args)
{
    return args->first_window + (w->exists ? w->window : w->mask_class);
}

/* Windows or rounds of a launch that are dealt. */
INLINE uint count_dealt(const forward_args *args)
{
    const uint mask_classes = count_mask_classes(args);
    return DEALS_WINDOWS ? (uint)args->windows
                         : mask_classes * rounds_of_class(args, mask_classes);
}

/* Starts with `count` of what is dealt, of which `first` is the first. */
INLINE tile_scheduler start_tile_scheduler(const forward_args *args,
                                           uint first, uint count, int team)
{
    tile_scheduler w;
    w.mask_classes = count_mask_classes(args);
    if (DEALS_WINDOWS) {
        w.rounds_per_class = w.rounds = CEIL_DIV(count, BUSY_TEAMS(args));
        w.mask_class = w.round = 0;
        w.window = first + team;
        w.end = first + count;
    } else {
        w.rounds_per_class = rounds_of_class(args, w.mask_classes);
        w.mask_class = first / w.rounds_per_class;
        w.round = first % w.rounds_per_class;
        w.rounds = count;
        w.window = (w.round * BUSY_TEAMS(args) + team) * w.mask_classes +
                   w.mask_class;
        w.end = (uint)args->windows;
    }
    w.exists = ((uint)team < BUSY_TEAMS(args)) & (w.window < w.end);
    w.step = BUSY_TEAMS(args) * w.mask_classes / windows_per_grid(args);
    w.coord = locate_window(&args->grid, window_of(&w, args));
    return w;
}

/* Starts that of a split: splits are dealt as many, the first ones one more.
 */
INLINE tile_scheduler start_split(const forward_args *args, uint split,
                                  int team)
{
    const even_part dealt = part_of(count_dealt(args), args->splits, split);
    return start_tile_scheduler(args, dealt.first, dealt.count, team);
}

/* Has the window other regions than those of the mask class that was `kept`,
 * or may it have? */
INLINE int has_new_regions(const tile_scheduler *w, uint *kept)
{
    const int is_new = w->mask_classes == 1 ||
                       (GRID && MASK_READS_REGIONS(MASK)) ||
                       w->mask_class != *kept;
    *kept = w->mask_class;
    return is_new;
}

/* To the next round. 1: to a window that is like the last, `step` further. */
INLINE int next_window(tile_scheduler *w, const forward_args *args, int team)
{
    int alike = !GRID || w->mask_classes > 1;
    w->window += BUSY_TEAMS(args) * w->mask_classes;
    if (SORTED && ++w->round == w->rounds_per_class) {
        w->round = 0;
        w->mask_class++;
        w->window = team * w->mask_classes + w->mask_class;
        alike = 0;
    }
    w->exists = ((uint)team < BUSY_TEAMS(args)) &
                (w->window < (DEALS_WINDOWS ? w->end : (uint)args->windows));
    if (alike)
        w->coord.grid += w->step;
    else
        w->coord = locate_window(&args->grid, window_of(w, args));
    return alike;
}
