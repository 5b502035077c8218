/* SPDX-License-Identifier: Apache-2.0
 * Tables of what programs have compiled in, see layout.c. */
#ifndef LAYOUT_H
#define LAYOUT_H

typedef struct layout_entry {
    const char *name; /* NULL: the end */
    unsigned long long value;
} layout_entry;

extern const layout_entry layout_0_1[], layout_today[];

#endif
