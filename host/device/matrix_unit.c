/* SPDX-License-Identifier: Apache-2.0
 * The table of matrix units, and the unit of a device. */
#include "device/matrix_unit.h"

#include <string.h>

#define ROW(id, unit, ...)                                                    \
    [WA_MATRIX_UNIT_##                                                        \
        id] = {.name = #unit,                                                 \
               .forward_kernel = "forward_matrix_" #unit,                     \
               .sliding_forward_kernel = "sliding_forward_matrix_" #unit,     \
               .sliding_rows_kernel = "sliding_rows_matrix_" #unit,           \
               .sliding_keys_kernel = "sliding_keys_matrix_" #unit,           \
               .backward_kernel = "backward_matrix_" #unit,                   \
               .rows_kernel = "backward_rows_matrix_" #unit,                  \
               .keys_kernel = "backward_keys_matrix_" #unit,                  \
               __VA_ARGS__},
const wa_matrix_unit wa_matrix_units[WA_MATRIX_UNITS] = {
    WA_MATRIX_UNIT_ROWS(ROW)};
#undef ROW

/* Does a word of the list begin the name? */
static bool is_target(const char *targets, const char *name)
{
    while (*targets) {
        const size_t length = strcspn(targets, " ");
        if (strncmp(name, targets, length) == 0)
            return true;
        targets += length + strspn(targets + length, " ");
    }
    return false;
}

bool wa_matrix_unit_suits(const wa_matrix_unit *unit, const wa_device *device)
{
    return unit->vendor == device->vendor && !device->is_cpu &&
           unit->wave == device->wave &&
           unit->least_capability <= device->compute_capability &&
           (!unit->targets || is_target(unit->targets, device->name)) &&
           (unit->sub_group == 0 || (device->has_matrix_extension &&
                                     unit->sub_group == device->sub_group));
}

const wa_matrix_unit *wa_matrix_unit_of(const wa_device *device)
{
    for (size_t i = 0; i < WA_MATRIX_UNITS; i++)
        if (wa_matrix_unit_suits(&wa_matrix_units[i], device))
            return &wa_matrix_units[i];
    return NULL;
}

const wa_matrix_unit *wa_matrix_unit_named(const char *name)
{
    for (size_t i = 0; i < WA_MATRIX_UNITS; i++)
        if (strcmp(wa_matrix_units[i].name, name) == 0)
            return &wa_matrix_units[i];
    return NULL;
}
