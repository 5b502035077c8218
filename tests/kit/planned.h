/* SPDX-License-Identifier: Apache-2.0
 * Cases run with a plan that a test has changed; for tests that reach behind
 * the public interface. */
#ifndef KIT_PLANNED_H
#define KIT_PLANNED_H

#include "device/matrix_unit.h"
#include "launch/launch.h"
#include "plan/family.h"
#include "run.h"

/* Plans a pass in the shape; false, with plan->refusals, if the kernel or the
 * device does not allow it. */
bool demand_local(const wa_problem *problem, const wa_device *device,
                  const wa_local_shape *shape, wa_plan *plan);
bool demand_matrix(const wa_problem *problem, const wa_device *device,
                   const wa_matrix_shape *shape, wa_plan *plan);
/* Without `rows` one kernel, of shape `keys`, makes everything. */
bool demand_gradients(const wa_problem *problem, const wa_device *device,
                      const wa_gradient_shape *rows,
                      const wa_gradient_shape *keys, wa_plan *plan);
bool demand_matrix_gradients(const wa_problem *problem,
                             const wa_device *device,
                             const wa_matrix_gradient_shape *shape,
                             wa_plan *plan);

/* What a test demands; zero leaves the planner's choice. */
typedef struct demanded_plan {
    const wa_local_shape *shape; /* of the tier local; NULL: planner's */
    /* The matrix unit of that name: one of the device's. */
    const wa_matrix_unit *matrix_unit;
    const wa_matrix_shape *matrix; /* of the tier matrix, with `unit` */
    uint32_t held_groups; /* of tier matrix, that the device holds at once */
    bool persistent_multi_block; /* that its work-groups go on to other rows:
                           else it is an error */
    uint32_t work_tiles_per_launch;
} demanded_plan;

/* Runs the case on `queue` behind a user event and checks everything. False,
 * with result->failure, if something is wrong; also if the shape is refused,
 * which result->failure then says. */
bool planned_run(const test_device *device, cl_command_queue queue,
                 const test_case *c, const demanded_plan *demand,
                 case_result *result);

/* The launch alone, on buffers of the test's own, until it is done. */
bool planned_run_buffers(const test_device *device, cl_command_queue queue,
                         const case_buffers *data, const device_buffers *b,
                         const demanded_plan *demand, case_result *result);

/* What a test demands of a backward pass; zero as above. */
typedef struct demanded_backward {
    /* launches of so many windows, with splits for half of them; and of 50
     * times as many entries of a table */
    unsigned windows;
    bool finds_pairs; /* of a table, by position, however small it is */
    /* of the tier local, see demand_gradients */
    const wa_gradient_shape *rows, *keys;
    uint32_t registers;   /* that the planner is told of */
    uint32_t held_groups; /* as in demanded_plan */
    /* of the tier matrix, as in demanded_plan */
    const wa_matrix_unit *matrix_unit;
    const wa_matrix_gradient_shape *matrix;
} demanded_backward;

/* The same for a backward pass. */
bool planned_backward(const test_device *device, cl_command_queue queue,
                      const test_case *c, const demanded_backward *demand,
                      case_result *result);
bool planned_backward_buffers(const test_device *device,
                              cl_command_queue queue, const case_buffers *data,
                              const device_buffers *b,
                              const demanded_backward *demand,
                              case_result *result);

/* "rows:keys:team:stage_dims:score_rows:score_cols:out_rows:key_quads:
 * keeps_tiles", and a number more in rows of the tuning table */
bool gradient_shape_parse(const char *text, wa_gradient_shape *shape);
void gradient_shape_print(const wa_gradient_shape *shape, char *text,
                          size_t size);

/* "rows:keys:waves:windows:stages:subtile_keys:bias_cache" */
bool matrix_shape_parse(const char *text, wa_matrix_shape *shape);
void matrix_shape_print(const wa_matrix_shape *shape, char *text, size_t size);

/* "rows:waves:windows:stages:subtile_keys:bias_cache:keeps_dbias", and of two
 * kernels behind that ":keys", and a matrix_shape of the kernel of keys */
bool matrix_gradient_shape_parse(const char *text,
                                 wa_matrix_gradient_shape *shape);
void matrix_gradient_shape_print(const wa_matrix_gradient_shape *shape,
                                 char *text, size_t size);

/* So many tiles, but at most `all`; all for 0 tiles. */
uint32_t matrix_tiles(uint32_t tiles, uint32_t tile, int all);

/* "rows:keys:team:teams:stage_keys:stage_dims:score_rows:score_cols:
 * out_rows:row_items" */
bool shape_parse(const char *text, wa_local_shape *shape);
void shape_print(const wa_local_shape *shape, char *text, size_t size);

/* True, and printed, where the tier is `matrix` and the device has no unit, so
 * that the tier's tests are to be skipped. */
bool planned_lacks_unit(const test_device *device, int tier);

/* The call's tensors as the launcher takes them. */
wa_buffers planned_buffers(const winattn_forward *f);

#endif
