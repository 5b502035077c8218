/* SPDX-License-Identifier: Apache-2.0
 * Which switch says which number of a shape, in the order of its struct. */
#include "plan/shapes.h"

#define COUNT(numbers) (sizeof(numbers) / sizeof *(numbers))
#define IS_SHAPE(numbers, type)                                               \
    _Static_assert(COUNT(numbers) * sizeof(uint32_t) == sizeof(type),         \
                   "a number has no switch")

static const wa_switch cpu[] = {WA_SWITCH(LANES), WA_SWITCH(TILE_ROWS),
                                WA_SWITCH(TILE_VECS), WA_SWITCH(OUT_VECS)};
IS_SHAPE(cpu, wa_cpu_shape);

static const wa_switch local[] = {WA_NO_SWITCH,          WA_NO_SWITCH,
                                  WA_SWITCH(TEAM),       WA_SWITCH(TEAMS),
                                  WA_SWITCH(STAGE_KEYS), WA_SWITCH(STAGE_DIMS),
                                  WA_SWITCH(SCORE_ROWS), WA_SWITCH(SCORE_COLS),
                                  WA_SWITCH(OUT_ROWS),   WA_SWITCH(ROW_ITEMS)};
IS_SHAPE(local, wa_local_shape);

static const wa_switch matrix[] = {WA_NO_SWITCH,
                                   WA_NO_SWITCH,
                                   WA_SWITCH(WAVES_PER_WINDOW),
                                   WA_SWITCH(WINDOWS_PER_GROUP),
                                   WA_SWITCH(STAGES),
                                   WA_SWITCH(SUBTILE_KEYS),
                                   WA_SWITCH(BIAS_CACHE)};
IS_SHAPE(matrix, wa_matrix_shape);

static const wa_switch gradient[] = {
    WA_NO_SWITCH,          WA_NO_SWITCH,          WA_SWITCH(TEAM),
    WA_SWITCH(STAGE_DIMS), WA_SWITCH(SCORE_ROWS), WA_SWITCH(SCORE_COLS),
    WA_SWITCH(OUT_ROWS),   WA_SWITCH(KEY_QUADS),  WA_SWITCH(KEEPS_TILES)};
IS_SHAPE(gradient, wa_gradient_shape);

const wa_shape_list wa_cpu_numbers = {cpu, COUNT(cpu)};
const wa_shape_list wa_local_numbers = {local, COUNT(local)};
const wa_shape_list wa_matrix_numbers = {matrix, COUNT(matrix)};
const wa_shape_list wa_gradient_numbers = {gradient, COUNT(gradient)};

bool wa_shape_is_sound(const wa_shape_list *list, const void *shape)
{
    static const wa_switch_bounds any = {NULL, 1, WA_LARGEST_NUMBER};
    const uint32_t *numbers = shape;
    for (size_t i = 0; i < list->count; i++) {
        const wa_switch option = list->option[i];
        const wa_switch_bounds *bounds =
            option == WA_NO_SWITCH ? &any : &wa_switches[option];
        if (numbers[i] < bounds->least || numbers[i] > bounds->most)
            return false;
    }
    return true;
}
