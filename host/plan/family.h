/* SPDX-License-Identifier: Apache-2.0
 * A kernel family: kernels that compute a pass of some problems in a way of
 * their own. It is a row: it says what it computes, which shapes it may have
 * and what each costs, and takes a shape. Which family computes a problem, in
 * which shape, only search.c decides. */
#ifndef WINATTN_FAMILY_H
#define WINATTN_FAMILY_H

#include "plan/planner.h"

/* Kernels of a family whose shapes are chosen one by one. */
#define WA_MOST_KERNELS 2

/* Cost: what a model expects, relative to others of an engine. */
typedef void wa_shape_visitor(void *data, const wa_tuned_shape *shape,
                              double cost);

/* The shapes of a kernel, as a family lists them. */
typedef struct wa_search {
    const wa_problem *problem;
    const wa_device *device;
    /* for each shape that may be chosen */
    wa_shape_visitor *visit;
    void *data;
    wa_tuned_shape shape; /* has the numbers of the family's other kernel */
    bool fits;        /* some shape fits the local memory, visited or not */
    uint64_t visited; /* as in wa_plan */
} wa_search;

/* Where a function may be NULL, its comment says what that means. */
typedef struct wa_family {
    /* Families of the same engine are compared by their costs; of those that
     * cost the same, the first is taken. */
    wa_engine engine;
    wa_pass pass;
    bool slides; /* of matrix units: for the sliding variant, or windows */
    /* whose measured shapes it has; WA_TUNED_KERNELS: none */
    wa_tuned_kernel tuned;
    const char *name; /* see wa_engine_name; NULL: it has the tier's */
    const char *what; /* starts a plan's reason; or NULL */
    /* how many times as fast launches count on its kernels to be; 0: 1 */
    double speed;
    uint32_t own_bytes; /* of the workspace, besides what others have */

    /* NULL if it may be chosen for the problem; else why not, or "" where
     * nobody would expect it. NULL: it may be. */
    const char *(*refusal)(const wa_problem *problem, const wa_device *device,
                           wa_pass pass);
    /* Is a measured shape one of its own? NULL: each is. */
    bool (*has_shape)(const wa_tuned_shape *shape);
    /* Visit all shapes of its kernels that it may choose. The first is NULL
     * where it has one shape, which `take` knows. */
    void (*visit[WA_MOST_KERNELS])(wa_search *find);
    /* Why no shape was visited. NULL: it is the next engine's to say. */
    void (*say_none)(const wa_device *device, bool fits, char *why);
    /* Appends why the best shape is what it is. NULL: `take` says it. */
    void (*explain)(const wa_problem *problem, const wa_device *device,
                    const wa_tuned_shape *shape, char *reason);
    /* Fills in steps and what the schedule starts from, of a plan that has the
     * family already; or says why kernels or device do not allow the shape. */
    const char *(*take)(const wa_problem *problem, const wa_device *device,
                        const wa_tuned_shape *shape, wa_plan *plan);
} wa_family;

/* The rows, each in the file of its name. */
extern const wa_family wa_cpu_forward, wa_cpu_backward, wa_local_forward,
    wa_local_whole, wa_local_pair, wa_matrix_window, wa_matrix_sliding,
    wa_matrix_pair, wa_matrix_whole, wa_matrix_sliding_pair;
/* With WINATTN_HOPPER: */
extern const wa_family wa_hopper_sliding, wa_hopper_window,
    wa_hopper_sliding_maps, wa_hopper_sliding_pair, wa_hopper_gradients;

/* All of them, the last of which is NULL; best first, of each engine.
 * (families.c) */
extern const wa_family *const wa_families[];

/* Does it compute problems of the variant? Is a measured shape one of its own?
 */
bool wa_family_suits(const wa_family *family, const wa_problem *problem);
bool wa_family_has_shape(const wa_family *family, const wa_tuned_shape *shape);

/* The cheapest, of the problem and device of `find`; of a pair of kernels that
 * of each. */
typedef struct wa_best_shape {
    double cost; /* 0: none */
    double costs[WA_MOST_KERNELS];
    wa_tuned_shape shape;
} wa_best_shape;
wa_best_shape wa_find_best(const wa_family *family, wa_search *find);

/* Plans the pass in a shape; or leaves in plan->refusals why kernels or device
 * do not allow it. */
bool wa_take_shape(const wa_family *family, const wa_problem *problem,
                   const wa_device *device, const wa_tuned_shape *shape,
                   wa_plan *plan);

/* Plans the pass on an engine of the device; or leaves in plan->refusals why
 * not, if that is of interest. */
bool wa_plan_engine(const wa_problem *problem, const wa_device *device,
                    wa_engine engine, wa_plan *plan);

/* Plans for the plain kernels that others are compared with, which no search
 * chooses. Their program is the same for both passes of a problem where
 * gradients are wanted. (family/plain.c) */
winattn_status wa_plan_plainly(const wa_problem *problem,
                               const wa_device *device, wa_pass pass,
                               wa_plan *plan);

#endif
