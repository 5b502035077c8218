/* SPDX-License-Identifier: Apache-2.0
 * Kernels that the library compares with each other: all leave zeros, and one
 * of cl/hopper/ a wrong number where it is told to. */
#include "internal.h"

#include "../cl/common/args.h"
#include "../cl/models/linear_args.h"

static bool has(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

/* Argument `i` from the last one on; NULL where nobody knows the bytes. */
static cl_mem argument_from_end(cl_kernel kernel, unsigned i)
{
    const unsigned count = kernel->facts->parameter_count;
    const cl_mem buffer =
        i < count ? kernel->arguments[count - 1 - i].buffer : NULL;
    return buffer && buffer->bytes ? buffer : NULL;
}

/* Is an output of this launch to be wrong? */
static bool is_wrong(cl_kernel kernel, const forward_args *args,
                     wa_tensor_id id)
{
    return kernel->program->is_rewritten &&
           standin_drivers.wgmma_wrong == id &&
           (args->q.offset > 0 || !standin_drivers.wgmma_wrong_if_shifted) &&
           (has(kernel->program->options, "-DTENSOR_MAPS=1") ||
            !standin_drivers.wgmma_wrong_by_maps);
}

static void put_one(cl_mem buffer, size_t element)
{
    const float one = 1.0f;
    if (buffer && (element + 1) * sizeof one <= buffer->size)
        memcpy(buffer->bytes + element * sizeof one, &one, sizeof one);
}

/* Output `id`, counted from the end of the arguments. */
static void leave(cl_kernel kernel, const forward_args *args, unsigned place,
                  wa_tensor_id id)
{
    const cl_mem buffer = argument_from_end(kernel, place);
    if (!buffer)
        return;
    memset(buffer->bytes, 0, buffer->size);
    if (is_wrong(kernel, args, id))
        put_one(buffer, 1);
}

/* A pair of kernels shares the gradients. */
static void leave_gradients(cl_kernel kernel, const backward_args *args)
{
    const char *name = kernel->facts->name;
    const cl_mem workspace = argument_from_end(kernel, 0);
    if (!has(name, "_rows_")) {
        leave(kernel, &args->forward, 2, WA_DK);
        leave(kernel, &args->forward, 1, WA_DV);
    }
    if (has(name, "_keys_"))
        return;
    leave(kernel, &args->forward, 3, WA_DQ);
    leave(kernel, &args->forward, 0, WA_TENSORS);
    if (is_wrong(kernel, &args->forward, WA_DBIAS))
        put_one(workspace, args->bias_partials);
    if (is_wrong(kernel, &args->forward, WA_D_LOGIT_SCALE))
        put_one(workspace, args->scale_partials);
}

/* A linear layer's tensors may have one buffer. */
static void leave_layer(cl_kernel kernel, const linear_args *args)
{
    const forward_args as = {.q.offset = args->x};
    const unsigned last = kernel->facts->parameter_count - 1;
    leave(kernel, &as, last - 5, WA_TENSORS);
    if (last > 5) /* statistics */
        leave(kernel, &as, 0, WA_TENSORS);
    if (is_wrong(kernel, &as, WA_O))
        put_one(argument_from_end(kernel, last - 5), args->y / 2 + 1);
}

void compute_pass(cl_kernel kernel)
{
    const char *name = kernel->facts->name;
    const unsigned char *given = kernel->arguments[0].bytes;
    if (has(name, "linear_")) {
        linear_args args;
        memcpy(&args, given, sizeof args);
        leave_layer(kernel, &args);
    }
    if (!kernel->program->is_rewritten && !has(name, "_plain"))
        return;
    if (has(name, "forward_")) {
        forward_args args;
        memcpy(&args, given, sizeof args);
        leave(kernel, &args, 1, WA_O);
        leave(kernel, &args, 0, WA_LSE);
    } else if (has(name, "_rows_") || has(name, "_keys_") ||
               has(name, "_gradients_")) {
        backward_args args;
        memcpy(&args, given, sizeof args);
        leave_gradients(kernel, &args);
    }
}

/* Partial sums are zeros, but for the first. */
static void leave_sum(cl_mem from, size_t partial, cl_mem to)
{
    if (!from || !from->bytes || !to || !to->bytes ||
        (partial + 1) * sizeof(float) > from->size)
        return;
    memset(to->bytes, 0, to->size);
    memcpy(to->bytes, from->bytes + partial * sizeof(float), sizeof(float));
}

void compute_sums(cl_kernel kernel)
{
    all_sum_args all;
    memcpy(&all, kernel->arguments[0].bytes, sizeof all);
    for (size_t n = 0; n < SUMS; n++)
        leave_sum(kernel->arguments[1].buffer, all.sum[n].partials,
                  kernel->arguments[2 + n].buffer);
}

void compute_table_sum(cl_kernel kernel)
{
    table_args args;
    memcpy(&args, kernel->arguments[0].bytes, sizeof args);
    leave_sum(argument_from_end(kernel, 1), args.from,
              argument_from_end(kernel, 0));
}
