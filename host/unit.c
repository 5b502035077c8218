/* SPDX-License-Identifier: Apache-2.0
 * The table of matrix units. Its numbers are those of the unit's file. */
#include "unit.h"

#include <string.h>

static const wa_unit table[] = {
    {.name = "mma",
     .kernel = "forward_matrix_mma",
     .vendor = WA_VENDOR_NVIDIA,
     .least_capability = 80,
     .proven = true,
     .copies_async = true,
     .wave = 32,
     .queries = 16,
     .tile = 16,
     .exchange_words = 192,
     .options = ""},
};
#define UNITS (sizeof table / sizeof *table)

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

const wa_unit *wa_unit_of(const wa_device *device)
{
    for (size_t i = 0; i < UNITS; i++) {
        const wa_unit *unit = &table[i];
        if (unit->vendor == device->vendor && !device->is_cpu &&
            unit->least_capability <= device->compute_capability &&
            (!unit->targets || is_target(unit->targets, device->name)) &&
            (unit->sub_group == 0 || (device->has_matrix_extension &&
                                      unit->sub_group == device->sub_group)))
            return unit;
    }
    return NULL;
}

const wa_unit *wa_unit_named(const char *name)
{
    for (size_t i = 0; i < UNITS; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}
