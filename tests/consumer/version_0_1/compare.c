/* SPDX-License-Identifier: Apache-2.0
 * Does today's header have everything where version 0.1.0 had it? */
#include <stdio.h>
#include <string.h>

#include "layout.h"

/* NULL if there is none. */
static const layout_entry *find(const layout_entry *table, const char *name)
{
    while (table->name && strcmp(table->name, name) != 0)
        table++;
    return table->name ? table : NULL;
}

int main(void)
{
    int moved = 0;
    for (const layout_entry *old = layout_0_1; old->name; old++) {
        const layout_entry *now = find(layout_today, old->name);
        if (now && now->value == old->value)
            continue;
        moved++;
        fprintf(stderr, "%s was %llu, and is %llu\n", old->name, old->value,
                now ? now->value : 0);
    }
    return moved != 0;
}
