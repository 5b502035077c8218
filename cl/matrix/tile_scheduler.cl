/* SPDX-License-Identifier: Apache-2.0
 * Which window comes after which: the walk of a work-group's teams over the
 * windows of a launch. Reads TEAMS, and of what stays on the chip KEPT_MASK
 * and REGIONS_APART (geometry.cl). */
#ifndef TILE_SCHEDULER_CL
#define TILE_SCHEDULER_CL
#include "matrix/geometry.cl"

/* A round is one window for each team, and a walk takes rounds that follow
 * each other. Windows that lie and are masked alike come one after the other:
 * terms and regions that are kept stay, and of a grid the next window is as
 * far away as the next grid. Where a grid has few windows of each place, they
 * come as they are numbered instead. */
#define SORTED (GRID || KEPT_MASK || REGIONS_APART)

typedef struct walk {
    uint kinds, kind;    /* of windows that are alike; the present one */
    uint of_kind, round; /* rounds of a kind; the present one */
    uint rounds;         /* of the walk */
    uint window;         /* the team's, counted from the launch's first */
    int exists;          /* 0: the team is behind the last window */
    uint step;           /* window_places that are alike are so far apart */
    window_place place;  /* of the window, or where the team has none, of one
                            like the others' */
} walk;

/* How many planes on the window's is: after the first grid's, or without a
 * grid after that of the launch's first window. */
INLINE uint plane_of(const walk *w)
{
    return GRID ? (uint)w->place.grid : w->window;
}

/* Windows of a grid; 1 without one. */
INLINE uint count_places(const forward_args *args)
{
    return GRID ? args->grid.windows[0] * args->grid.windows[1] *
                      args->grid.windows[2]
                : 1;
}

INLINE uint rounds_of_kind(const forward_args *args, uint kinds)
{
    return CEIL_DIV(CEIL_DIV((uint)args->windows, kinds), TEAMS);
}

/* Window w + kinds is like window w. */
INLINE uint count_kinds(const forward_args *args)
{
    ulong kinds = KEPT_MASK ? args->mask_windows : 1;
#if REGIONS_APART && MASK == 3 && !GRID
    /* where teams then have as many rounds as before, or a sixteenth more */
    const uint masks = (uint)min(args->mask_windows, args->windows);
    if ((ulong)masks * rounds_of_kind(args, masks) * 16 <=
        (ulong)CEIL_DIV((uint)args->windows, TEAMS) * 17)
        kinds = masks;
#endif
#if GRID
    const ulong places = count_places(args);
    if (KEPT_MASK && (MASK != 4 || MASK_IN_LOCAL))
        kinds = max(kinds, places); /* one is a multiple of the other */
    else
        kinds = args->windows / places < 2 * TEAMS ? 1 : places;
#endif
    return (uint)min(kinds, args->windows);
}

/* The window, or where the team has none, one like the others'. */
INLINE ulong window_of(const walk *w, const forward_args *args)
{
    return args->first_window + (w->exists ? w->window : w->kind);
}

/* Rounds of a launch. */
INLINE uint count_rounds(const forward_args *args)
{
    const uint kinds = count_kinds(args);
    return kinds * rounds_of_kind(args, kinds);
}

/* Starts a walk of so many rounds of a launch, of which `first` is the first.
 */
INLINE walk start_walk(const forward_args *args, uint first, uint rounds,
                       int team)
{
    walk w;
    w.kinds = count_kinds(args);
    w.of_kind = rounds_of_kind(args, w.kinds);
    w.kind = first / w.of_kind;
    w.round = first % w.of_kind;
    w.rounds = rounds;
    w.window = (w.round * TEAMS + team) * w.kinds + w.kind;
    w.exists = w.window < (uint)args->windows;
    w.step = TEAMS * w.kinds / count_places(args);
    w.place = place_window(&args->grid, window_of(&w, args));
    return w;
}

/* Starts that of a slot: slots have as many rounds, the first ones one more.
 */
INLINE walk start_slot(const forward_args *args, uint slot, int team)
{
    const uint rounds = count_rounds(args);
    const uint least = rounds / args->slots, more = rounds % args->slots;
    return start_walk(args, slot * least + min(slot, more),
                      least + (slot < more), team);
}

#if REGIONS_APART
#define DECLARE_KEPT_REGIONS                                                  \
    uint kept_regions = ~0u; /* the kind of windows whose regions are kept */
/* Has the window other regions than those of the kind that was `kept`, or may
 * it have? */
INLINE int has_new_regions(const walk *w, uint *kept)
{
    const int is_new =
        w->kinds == 1 || (GRID && MASK == 3) || w->kind != *kept;
    *kept = w->kind;
    return is_new;
}
#else
#define DECLARE_KEPT_REGIONS
#endif

/* To the next round. 1: to a window that is like the last, `step` further. */
INLINE int walk_on(walk *w, const forward_args *args, int team)
{
    int alike = !GRID || w->kinds > 1;
    w->window += TEAMS * w->kinds;
    if (SORTED && ++w->round == w->of_kind) {
        w->round = 0;
        w->kind++;
        w->window = team * w->kinds + w->kind;
        alike = 0;
    }
    w->exists = w->window < (uint)args->windows;
    if (alike)
        w->place.grid += w->step;
    else
        w->place = place_window(&args->grid, window_of(w, args));
    return alike;
}

#endif
