/* SPDX-License-Identifier: Apache-2.0
 * EXIF's orientation: an entry of the first directory of a TIFF. */
#include "swin/picture.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define HEAD_SIZE 8u
#define ENTRY_SIZE 12u
#define TAG_ORIENTATION 0x0112u

static uint32_t number(const unsigned char *at, size_t size, bool is_little)
{
    uint32_t value = 0;
    for (size_t i = 0; i < size; i++)
        value = value << 8 | at[is_little ? size - 1 - i : i];
    return value;
}

/* What an entry with one whole number has; 0: it has something else. */
static uint32_t value_of(const unsigned char *entry, bool is_little)
{
    static const size_t sizes[] = {[1] = 1, [3] = 2, [4] = 4}; /* of types */
    const uint32_t type = number(entry + 2, 2, is_little);
    if (type >= sizeof sizes / sizeof *sizes ||
        number(entry + 4, 4, is_little) != 1)
        return 0;
    return number(entry + 8, sizes[type], is_little);
}

unsigned exif_orientation(const unsigned char *block, size_t size)
{
    uint32_t found = 0;
    if (size < HEAD_SIZE + 2 ||
        (memcmp(block, "II*\0", 4) != 0 && memcmp(block, "MM\0*", 4) != 0))
        return 1;
    const bool is_little = block[0] == 'I';
    const size_t directory = number(block + 4, 4, is_little);
    if (directory > size - 2)
        return 1;
    const size_t said = number(block + directory, 2, is_little);
    const size_t there = (size - 2 - directory) / ENTRY_SIZE;
    const unsigned char *entry = block + directory + 2;
    for (size_t i = 0; i < said && i < there; i++, entry += ENTRY_SIZE)
        if (number(entry, 2, is_little) == TAG_ORIENTATION)
            found = value_of(entry, is_little);
    return found >= 1 && found <= 8 ? found : 1;
}
