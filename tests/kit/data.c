/* SPDX-License-Identifier: Apache-2.0
 * A case in memory: its images and its descriptor. */
#include "data_parts.h"

#include <stdlib.h>
#include <string.h>

#include "meaning.h"
#include "test_device.h"

#define GUARD_BYTE 0xa5
#define POISON_BYTE 0xff /* NaN in every floating-point type */

/* Rounds every value, copies it to its image and, where it is broadcast, to
 * the values of all that share it. */
void data_write(case_buffers *d)
{
    for (int id = 0; id < TENSORS; id++) {
        tensor_data *t = &d->tensor[id];
        for (size_t w = 0; t->used && w < t->extent[0]; w++)
            for (size_t h = 0; h < t->extent[1]; h++)
                for (size_t i = 0; i < t->extent[2]; i++)
                    for (size_t j = 0; j < t->extent[3]; j++) {
                        unsigned char *at = d->buffer[t->buffer].bytes +
                                            data_at(t, w, h, i, j);
                        if (!t->value) {
                            memset(at, POISON_BYTE, kind_size(t->kind));
                            continue;
                        }
                        double *x = &t->value[data_index(t, w, h, i, j)];
                        const double first = t->value[data_index(
                            t, t->stride[0] ? w : 0, t->stride[1] ? h : 0,
                            data_first_row(t, i), t->stride[3] ? j : 0)];
                        *x = kind_round(t->kind, first);
                        kind_write(t->kind, *x, at);
                    }
    }
}

case_buffers *data_make(const test_case *c)
{
    case_buffers *d = calloc(1, sizeof *d);
    if (!d)
        return NULL;
    d->c = *c;
    data_describe(d);
    data_place(d);
    bool complete = (!c->grid || grid_map_make(c, &d->map)) &&
                    data_fill_entries(d) && data_fill(d);
    for (int i = 0; i < d->buffers; i++) {
        d->buffer[i].bytes = malloc(d->buffer[i].size);
        if (!d->buffer[i].bytes)
            complete = false;
        else
            memset(d->buffer[i].bytes, GUARD_BYTE, d->buffer[i].size);
    }
    if (!complete) {
        data_free(d);
        return NULL;
    }
    data_write(d);
    if (c->pass == PASS_BACKWARD && c->given == 1) {
        if (!data_forward(d, d->tensor[T_O].value, d->tensor[T_LSE].value)) {
            data_free(d);
            return NULL;
        }
        data_write(d);
    }
    return d;
}

void data_free(case_buffers *d)
{
    if (!d)
        return;
    for (int id = 0; id < TENSORS; id++)
        free(d->tensor[id].value);
    for (int i = 0; i < d->buffers; i++)
        free(d->buffer[i].bytes);
    grid_map_free(&d->map);
    free(d->entry);
    free(d);
}

/* Strides of the axes that the tensor has, also where their extent is 1: all
 * strides 0 would mean contiguous. */
static winattn_strides strides_of(const case_buffers *d, tensor_id id)
{
    const tensor_data *t = &d->tensor[id];
    const tensor_trait *trait = &tensor_traits[id];
    const bool is_table = trait->use == WITH_BIAS && case_has_table(&d->c);
    winattn_strides s;
    memset(&s, 0, sizeof s);
    if (!t->used)
        return s;
    s.window = trait->axes[0] != '1' ? t->stride[0] : 0;
    s.head = trait->axes[1] != '1' ? t->stride[1] : 0;
    s.row = trait->axes[2] != '1' && !t->on_grid ? t->stride[2] : 0;
    s.column = trait->axes[3] != '1' && !is_table ? t->stride[3] : 0;
    for (int axis = 0; t->on_grid && axis < d->c.grid; axis++)
        s.axis[axis] = t->axis_stride[axis];
    return s;
}

winattn_desc data_desc(const case_buffers *d)
{
    winattn_desc desc = case_desc(&d->c);
    desc.build_options = device_build_options(desc.tier);
    if (d->entry && d->c.entries) {
        desc.table.index = d->entry;
        desc.table.entries = (cl_uint)d->c.entries;
    }
    for (int id = 0; id < TENSORS && d->c.layout != LAYOUT_CONTIGUOUS; id++) {
        const winattn_strides strides = strides_of(d, (tensor_id)id);
        if (tensor_traits[id].strides != NOWHERE)
            memcpy((char *)&desc + tensor_traits[id].strides, &strides,
                   sizeof strides);
    }
    return desc;
}

double data_value(const tensor_data *t, size_t window, size_t head, size_t row,
                  size_t column)
{
    return t->value ? t->value[data_index(t, window, head, row, column)] : 0;
}

bool data_find(const case_buffers *d, tensor_id id, size_t *window,
               size_t *row)
{
    if (!d->tensor[id].on_grid)
        return true;
    const size_t at = *window % d->map.windows * d->map.tokens + *row;
    *window /= d->map.windows;
    *row = d->map.token[at];
    return *row != GRID_NONE;
}

size_t data_rows(const case_buffers *d, tensor_id id)
{
    const tensor_data *t = &d->tensor[id];
    return t->on_grid ? d->map.tokens : t->extent[2];
}
