/* SPDX-License-Identifier: Apache-2.0
 * What follows each other, dealt in parts as even as can be. */
#include "common/language.cl"

typedef struct even_part {
    uint first, count;
} even_part;

/* Part n of so many: the first ones have one more. Divisions take time when a
 * launch begins; there is one. */
INLINE even_part part_of(uint all, uint parts, uint n)
{
    const uint least = all / parts, more = all % parts;
    const even_part part = {n * least + min(n, more), least + (n < more)};
    return part;
}
