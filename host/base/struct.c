/* SPDX-License-Identifier: Apache-2.0 */
#include "base/struct.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"

_Static_assert(sizeof(winattn_desc) <= WA_STRUCT_MOST, "the largest of all");

winattn_status wa_read_struct(const char *name, const void *given, void *own,
                              size_t size, size_t least)
{
    size_t struct_size;
    memset(own, 0, size);
    if (!given)
        return WA_INVALID("%s is NULL", name);
    memcpy(&struct_size, given, sizeof struct_size); /* the first member */
    /* no version ends within a pointer */
    if (struct_size < least || struct_size > WA_STRUCT_MOST ||
        struct_size % sizeof(void *) != 0)
        return WA_INVALID("%s.struct_size is %llu, not sizeof(winattn_%s)",
                          name, (unsigned long long)struct_size, name);
    for (size_t i = size; i < struct_size; i++)
        if (((const unsigned char *)given)[i] != 0)
            return WA_UNSUPPORTED("%s sets a field that this version of the "
                                  "library does not know",
                                  name);
    memcpy(own, given, struct_size < size ? struct_size : size);
    return WINATTN_SUCCESS;
}

winattn_status wa_give_text(const char *all, size_t size, char *text,
                            size_t *needed)
{
    if (!text && size != 0)
        return WA_INVALID("text is NULL, but size is not 0");
    if (size != 0)
        snprintf(text, size, "%s", all);
    if (needed)
        *needed = strlen(all) + 1;
    return WINATTN_SUCCESS;
}
