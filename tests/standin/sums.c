/* SPDX-License-Identifier: Apache-2.0
 * What kernels of cl/reduce/ leave of partial sums that are known. */
#include "internal.h"

#include "../cl/common/args.h"

static size_t element(const tensor_layout *t, size_t head, size_t row,
                      size_t column)
{
    return (size_t)(t->offset + head * t->head + row * t->row +
                    column * t->column);
}

void compute_sums(cl_kernel kernel)
{
    const argument *given = kernel->arguments;
    const cl_mem from = given[1].buffer;
    all_sum_args all;
    if (!from || !from->bytes)
        return;
    memcpy(&all, given[0].bytes, sizeof all);
    for (size_t n = 0; n < SUMS; n++) {
        const sum_args *args = &all.sum[n];
        const cl_mem to = given[2 + n].buffer;
        const size_t plane = (size_t)args->rows * args->columns;
        if (!to || !to->bytes || (args->flags & ARG_ADD_SUMS))
            continue;
        for (size_t i = 0; i < plane * args->heads; i++) {
            const float *x =
                (const float *)(const void *)from->bytes + args->partials + i;
            float sum = 0;
            for (size_t split = 0; split < args->splits; split++)
                sum += x[split * plane * args->heads];
            ((float *)(void *)to->bytes)[element(
                &args->to, i / plane, i % plane / args->columns,
                i % plane % args->columns)] = sum;
        }
    }
}

void compute_table_sum(cl_kernel kernel)
{
    const argument *given = kernel->arguments;
    const cl_mem starts = given[1].buffer, order = given[2].buffer;
    const cl_mem from = given[3].buffer, to = given[4].buffer;
    table_args args;
    /* who finds pairs by position is given no lists */
    if (kernel->facts->parameter_count < 5 || !starts || !order || !from ||
        !to || !starts->bytes || !order->bytes || !from->bytes || !to->bytes)
        return;
    memcpy(&args, given[0].bytes, sizeof args);
    if (args.flags & ARG_ADD_SUMS)
        return;
    for (size_t head = 0; head < args.heads; head++)
        for (size_t entry = 0; entry < args.entries; entry++) {
            const cl_uint *start =
                (const cl_uint *)(void *)starts->bytes + entry;
            double sum = 0;
            for (cl_uint i = start[0]; i < start[1]; i++)
                for (size_t split = 0; split < args.splits; split++)
                    sum += ((const float *)(void *)from->bytes)
                        [args.from + (split * args.heads + head) * args.pairs +
                         ((const cl_uint *)(void *)order->bytes)[i]];
            ((float *)(void *)to->bytes)[element(&args.to, head, entry, 0)] =
                (float)sum;
        }
}
