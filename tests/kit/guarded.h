/* SPDX-License-Identifier: Apache-2.0
 * Memory between two pages that nobody may touch: an access behind its end or
 * before its start ends the program at once, and says where. */
#ifndef KIT_GUARDED_H
#define KIT_GUARDED_H

#include <stdbool.h>
#include <stddef.h>

typedef struct guarded_area {
    unsigned char *at;
    size_t size;
    unsigned char *map; /* with both guards */
    size_t mapped;
    const char *name;
} guarded_area;

/* `size` bytes of zeros, of which those that nobody touches take no memory.
 * at_end: they end where the guard begins, else they begin where the other one
 * ends. `name` is what a report calls them, and must live as long. False: the
 * system has no such space. */
bool guarded_make(guarded_area *area, const char *name, size_t size,
                  bool at_end);
void guarded_free(guarded_area *area);

/* From now on a forbidden access prints the area and `doing`, whose text may
 * change, and ends the program with status 1. */
void guarded_watch(const char *doing);

#endif
