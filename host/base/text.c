/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void wa_append(char *text, size_t size, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list values;
    va_start(values, format);
    vsnprintf(text + used, size - used, format, values);
    va_end(values);
}

void wa_put(wa_output *to, const char *text, size_t size)
{
    if (to->text)
        memcpy(to->text + to->size, text, size);
    to->size += size;
}

/* Bytes of the character in UTF-8 that starts there; 0: none does. */
static size_t character_size(const unsigned char *at)
{
    const size_t size = at[0] < 0x80                     ? 1
                        : at[0] >= 0xc2 && at[0] <= 0xdf ? 2
                        : at[0] >= 0xe0 && at[0] <= 0xef ? 3
                        : at[0] >= 0xf0 && at[0] <= 0xf4 ? 4
                                                         : 0;
    for (size_t i = 1; i < size; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    return size;
}

void wa_make_plain(char *text, const char *kept)
{
    const unsigned char *at = (const unsigned char *)text;
    char *to = text;
    while (*at) {
        const size_t size = character_size(at);
        const bool controls = at[0] < 0x20 || at[0] == 0x7f ||
                              (at[0] == 0xc2 && size == 2 && at[1] < 0xa0);
        if (size == 0 || (controls && !strchr(kept, at[0])))
            *to++ = '?';
        else
            for (size_t i = 0; i < size; i++)
                *to++ = (char)at[i];
        at += size ? size : 1;
    }
    *to = 0;
}

bool wa_has_word(const char *words, const char *word)
{
    const size_t length = strlen(word);
    if (length == 0 || strchr(word, ' '))
        return false;
    for (const char *at = words; (at = strstr(at, word)); at += length)
        if ((at == words || at[-1] == ' ') &&
            (at[length] == ' ' || at[length] == 0))
            return true;
    return false;
}
