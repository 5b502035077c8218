/* SPDX-License-Identifier: Apache-2.0
 * Shapes as lists of numbers. */
#include "plan/shapes.h"

#include <string.h>

/* A list of the struct TYPE from the list of X. */
#define NUMBER(field, option, least, most)                                    \
    {#field, option, least, most, offsetof(TYPE, field)},
#define COUNTED(fields)                                                       \
    {                                                                         \
        fields, sizeof(fields) / sizeof *(fields)                             \
    }

#define TYPE wa_cpu_shape
static const wa_shape_field cpu[] = {WA_CPU_SHAPE(NUMBER)};
#undef TYPE
#define TYPE wa_local_shape
static const wa_shape_field local[] = {WA_LOCAL_SHAPE(NUMBER)};
#undef TYPE
#define TYPE wa_matrix_shape
static const wa_shape_field matrix[] = {WA_MATRIX_SHAPE(NUMBER)};
#undef TYPE
#define TYPE wa_gradient_shape
static const wa_shape_field gradient[] = {WA_GRADIENT_SHAPE(NUMBER)};
#undef TYPE
#define TYPE wa_matrix_gradient_shape
static const wa_shape_field matrix_gradient[] = {
    WA_MATRIX_GRADIENT_SHAPE(NUMBER)};
#undef TYPE

const wa_shape_list wa_cpu_numbers = COUNTED(cpu);
const wa_shape_list wa_local_numbers = COUNTED(local);
const wa_shape_list wa_matrix_numbers = COUNTED(matrix);
const wa_shape_list wa_gradient_numbers = COUNTED(gradient);
const wa_shape_list wa_matrix_gradient_numbers = COUNTED(matrix_gradient);

uint32_t wa_shape_number(const wa_shape_list *list, size_t index,
                         const void *shape)
{
    uint32_t number;
    memcpy(&number, (const char *)shape + list->field[index].at,
           sizeof number);
    return number;
}

void wa_shape_set_number(const wa_shape_list *list, size_t index,
                         uint32_t number, void *shape)
{
    memcpy((char *)shape + list->field[index].at, &number, sizeof number);
}

const wa_shape_field *wa_shape_wrong(const wa_shape_list *list,
                                     const void *shape)
{
    for (size_t i = 0; i < list->count; i++) {
        const uint32_t number = wa_shape_number(list, i, shape);
        if (number < list->field[i].least || number > list->field[i].most)
            return &list->field[i];
    }
    return NULL;
}

void wa_append_shape(const wa_shape_list *list, const void *shape, char *text,
                     size_t size)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->field[i].option != WA_NO_SWITCH)
            wa_append_switch(text, size, list->field[i].option,
                             wa_shape_number(list, i, shape));
}
