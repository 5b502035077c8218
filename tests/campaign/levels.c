/* SPDX-License-Identifier: Apache-2.0
 * Options, draws, fields, and descriptors of whichever level. */
#include "levels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Options ---- */

void options_read(campaign_options *options, int count, char **arguments)
{
    for (int i = 1; i < count; i += 2) {
        const char *name = arguments[i];
        const char *value = i + 1 < count ? arguments[i + 1] : "0";
        if (strcmp(name, "--seed") == 0) {
            options->seed = strtoul(value, NULL, 10);
        } else if (strcmp(name, options->count_option) == 0) {
            options->count = strtoul(value, NULL, 10);
        } else if (options->folder && strcmp(name, "--folder") == 0) {
            options->folder = value;
        } else {
            fprintf(stderr, "unknown option %s\n", name);
            exit(2);
        }
    }
}

/* ---- Draws ---- */

bool chance(random_state *r, int percent)
{
    return random_int(r, 0, 99) < percent;
}

cl_uint below(random_state *r, cl_uint count)
{
    return random_bits(r) % count;
}

cl_ulong one_of(random_state *r, const cl_ulong *list, size_t count)
{
    return list[below(r, (cl_uint)count)];
}

cl_ulong special_number(random_state *r)
{
    static const cl_ulong exact[] = {
        3,           5,          7,          17,         48,
        100,         1000,       0x7ffffffe, 0x80000001, 0xfffffffe,
        0x100000001, 0x7fc00000, 0x7f800000, 0xff800000, 0x7f7fffff};
    if (chance(r, 30))
        return one_of(r, exact, sizeof exact / sizeof *exact);
    const cl_ulong power = (cl_ulong)1 << random_int(r, 0, 63);
    return power + (cl_ulong)random_int(r, -1, 1);
}

bool text_starts(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* ---- Fields ---- */

static cl_ulong value_of(const field *f, const void *from)
{
    cl_ulong value = 0; /* the lower bytes come first */
    memcpy(&value, (const unsigned char *)from + f->place, f->bytes);
    return value;
}

size_t print_fields(const field_list *list, const void *from, char *text,
                    size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < list->count && used < size; i++) {
        const field *f = &list->all[i];
        const cl_ulong value = value_of(f, from);
        cl_float number;
        memcpy(&number, &value, sizeof number);
        if (value == 0)
            continue;
        used += f->is_float
                    ? (size_t)snprintf(text + used, size - used, " %s=%g",
                                       f->name, (double)number)
                    : (size_t)snprintf(text + used, size - used, " %s=%llu",
                                       f->name, (unsigned long long)value);
    }
    return used;
}

/* Rather one that says something. */
static const field *draw_field(random_state *r, const field_list *list,
                               const void *of)
{
    const cl_uint count = (cl_uint)(chance(r, 50) ? list->plain : list->count);
    const field *f = &list->all[below(r, count)];
    for (int tries = 0; tries < 8 && value_of(f, of) == 0; tries++)
        f = &list->all[below(r, count)];
    return f;
}

void spoil_field(random_state *r, const field_list *list, void *of)
{
    const field *f = draw_field(r, list, of);
    const size_t other = ((size_t)(f - list->all) + below(r, 7)) % list->count;
    cl_ulong value = special_number(r);
    if (chance(r, 30))
        value = value_of(f, of) + (cl_ulong)(chance(r, 50) ? 1 : -1);
    else if (chance(r, 30))
        value = value_of(&list->all[other], of);
    memcpy((unsigned char *)of + f->place, &value, f->bytes);
}

/* ---- Descriptors ---- */

const level *level_draw(random_state *r)
{
    cl_uint all = 0;
    const level *of = levels;
    for (size_t i = 0; i < level_count; i++)
        all += levels[i].weight;
    for (cl_uint left = below(r, all); left >= of->weight; of++)
        left -= of->weight;
    return of;
}

level_desc level_make(random_state *r, const level *of)
{
    level_desc made;
    memset(&made, 0, sizeof made);
    made.of = of;
    made.of->draw(r, &made);
    for (cl_ulong n = ONE_OF(r, 0, 0, 0, 1, 1, 1, 2, 3); n > 0; n--) {
        if (made.of->config_fields && chance(r, 40))
            spoil_field(r, made.of->config_fields, &made.config);
        else
            spoil_field(r, made.of->fields, made.u.bytes);
        made.is_spoilt = true;
    }
    memcpy(made.u.bytes, &made.of->desc_size, sizeof made.of->desc_size);
    if (made.of->finish)
        made.of->finish(r, &made);
    return made;
}

void level_set(level_desc *desc, const char *name, cl_ulong value)
{
    const field_list *list = desc->of->fields;
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->all[i].name, name) == 0)
            memcpy(desc->u.bytes + list->all[i].place, &value,
                   list->all[i].bytes);
}

void level_print(const level_desc *desc, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "%s:", desc->of->name);
    used += print_fields(desc->of->fields, desc->u.bytes, text + used,
                         size - used);
    if (desc->of->config_fields && used < size)
        print_fields(desc->of->config_fields, &desc->config, text + used,
                     size - used);
}

size_t level_give_tensors(random_state *r, const level_desc *desc,
                          const call_kind *kind, cl_mem memory,
                          level_call *call)
{
    slot_list slots = {.count = 0};
    winattn_tensor at = {memory, (cl_ulong)MOST_SLOTS << 24};
    kind->list(r, desc, call, &slots);
    memcpy(call->bytes, &kind->size, sizeof kind->size);
    memcpy(call->bytes + kind->workspace, &at, sizeof at);
    for (size_t i = 0; i < slots.count; i++) {
        at.offset = (cl_ulong)i << 24;
        if (slots.all[i].is_wanted)
            memcpy(call->bytes + slots.all[i].place, &at, sizeof at);
    }
    return slots.all[0].place;
}
