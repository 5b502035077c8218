/* SPDX-License-Identifier: Apache-2.0 */
#include "shapes.h"

bool plan_shape(wa_tuned_kernel kernel, const wa_problem *problem,
                const wa_device *device, const wa_tuned_shape *shape,
                wa_plan *plan)
{
    size_t i = 0;
    while (wa_families[i]->tuned != kernel ||
           !wa_family_suits(wa_families[i], problem) ||
           !wa_family_has_shape(wa_families[i], shape))
        i++;
    return wa_take_shape(wa_families[i], problem, device, shape, plan);
}

/* Shapes of one kernel, with the best of the other. */
typedef struct joined {
    wa_shape_visitor *visit;
    void *data;
    double others;
} joined;

static void visit_joined(void *data, const wa_tuned_shape *shape, double cost)
{
    const joined *to = data;
    to->visit(to->data, shape, cost + to->others);
}

uint64_t visit_shapes(wa_tuned_kernel kernel, const wa_problem *problem,
                      const wa_device *device, wa_shape_visitor *visit,
                      void *data)
{
    wa_search find = {.problem = problem, .device = device};
    for (const wa_family *const *of = wa_families; *of; of++) {
        if ((*of)->tuned != kernel || !wa_family_suits(*of, problem))
            continue;
        const wa_best_shape best = wa_find_best(*of, &find);
        for (int i = 0; i < WA_MOST_KERNELS && best.cost > 0; i++) {
            joined to = {visit, data, best.cost - best.costs[i]};
            find.visit = visit_joined;
            find.data = &to;
            find.shape = best.shape;
            if ((*of)->visit[i])
                (*of)->visit[i](&find);
        }
    }
    return find.visited;
}
