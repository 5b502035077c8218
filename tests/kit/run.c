/* SPDX-License-Identifier: Apache-2.0
 * Device selection, and a case from buffers to verdict. */
#include "run.h"

#include "verdict.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Devices ---- */

static bool contains(const char *text, const char *part)
{
    const size_t length = strlen(part);
    for (; *text; text++) {
        size_t i = 0;
        while (i < length && tolower((unsigned char)text[i]) ==
                                 tolower((unsigned char)part[i]))
            i++;
        if (i == length)
            return true;
    }
    return length == 0;
}

int device_list(cl_device_id *ids, char (*names)[256], int most)
{
    cl_platform_id platforms[32];
    cl_uint platform_count = 0;
    int found = 0;
    if (clGetPlatformIDs(32, platforms, &platform_count) != CL_SUCCESS)
        return 0;
    for (cl_uint p = 0; p < platform_count && p < 32; p++) {
        cl_device_id devices[32];
        cl_uint count = 0;
        char platform[128] = "";
        if (clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, 32, devices,
                           &count) != CL_SUCCESS)
            continue;
        clGetPlatformInfo(platforms[p], CL_PLATFORM_NAME, sizeof platform,
                          platform, NULL);
        for (cl_uint i = 0; i < count && i < 32 && found < most; i++) {
            char name[120] = "";
            clGetDeviceInfo(devices[i], CL_DEVICE_NAME, sizeof name, name,
                            NULL);
            ids[found] = devices[i];
            snprintf(names[found++], 256, "%s / %s", platform, name);
        }
    }
    return found;
}

bool device_open(test_device *device, char reason[256])
{
    cl_device_id ids[64];
    char names[64][256];
    const char *wanted = getenv("WINATTN_TEST_DEVICE");
    const int count = device_list(ids, names, 64);
    int chosen = -1;
    memset(device, 0, sizeof *device);
    winattn_set_cache_dir(""); /* tests compile what they test */
    for (int i = 0; i < count && chosen < 0; i++)
        if (contains(names[i], wanted ? wanted : "Portable Computing"))
            chosen = i;
    if (chosen < 0 && !wanted && count > 0)
        chosen = 0;
    if (chosen < 0) {
        snprintf(reason, 256, "no OpenCL device %s among %d",
                 wanted ? wanted : "", count);
        return false;
    }
    cl_int error;
    device->id = ids[chosen];
    memcpy(device->name, names[chosen], sizeof device->name);
    clGetDeviceInfo(device->id, CL_DEVICE_PLATFORM, sizeof device->platform,
                    &device->platform, NULL);
    device->context =
        clCreateContext(NULL, 1, &device->id, NULL, NULL, &error);
    if (error == CL_SUCCESS)
        device->queue = clCreateCommandQueue(
            device->context, device->id, CL_QUEUE_PROFILING_ENABLE, &error);
    if (error != CL_SUCCESS) {
        snprintf(reason, 256, "%.200s does not open: %d", device->name, error);
        device_close(device);
        return false;
    }
    device->unordered =
        clCreateCommandQueue(device->context, device->id,
                             CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &error);
    if (error != CL_SUCCESS)
        device->unordered = NULL;
    return true;
}

void device_close(test_device *device)
{
    if (device->unordered)
        clReleaseCommandQueue(device->unordered);
    if (device->queue)
        clReleaseCommandQueue(device->queue);
    if (device->context)
        clReleaseContext(device->context);
    memset(device, 0, sizeof *device);
}

/* ---- Buffers ---- */

bool buffers_create(const test_device *device, const case_buffers *d,
                    device_buffers *b)
{
    memset(b, 0, sizeof *b);
    for (int i = 0; i < d->buffers; i++) {
        cl_int error;
        b->mem[i] = clCreateBuffer(
            device->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
            d->buffer[i].size, d->buffer[i].bytes, &error);
        if (error != CL_SUCCESS) {
            buffers_release(b);
            return false;
        }
    }
    return true;
}

void buffers_release(device_buffers *b)
{
    for (int i = 0; i < TENSORS; i++)
        if (b->mem[i])
            clReleaseMemObject(b->mem[i]);
    memset(b, 0, sizeof *b);
}

static winattn_tensor place_of(const case_buffers *d, const device_buffers *b,
                               tensor_id id)
{
    const tensor_data *t = &d->tensor[id];
    const winattn_tensor none = {NULL, 0};
    const winattn_tensor place = {b->mem[t->buffer], t->offset};
    return t->used ? place : none;
}

winattn_forward buffers_forward(const case_buffers *d, const device_buffers *b)
{
    winattn_forward f;
    memset(&f, 0, sizeof f);
    f.struct_size = sizeof f;
    f.q = place_of(d, b, T_Q);
    f.k = place_of(d, b, T_K);
    f.v = place_of(d, b, T_V);
    f.bias = place_of(d, b, T_BIAS);
    f.mask = place_of(d, b, T_MASK);
    f.query_regions = place_of(d, b, T_QUERY_REGIONS);
    f.key_regions = place_of(d, b, T_KEY_REGIONS);
    f.logit_scale = place_of(d, b, T_LOGIT_SCALE);
    f.pad_k = place_of(d, b, T_PAD_K);
    f.pad_v = place_of(d, b, T_PAD_V);
    f.o = place_of(d, b, T_O);
    f.lse = place_of(d, b, T_LSE);
    return f;
}

winattn_backward buffers_backward(const case_buffers *d,
                                  const device_buffers *b)
{
    winattn_backward back;
    memset(&back, 0, sizeof back);
    back.struct_size = sizeof back;
    back.q = place_of(d, b, T_Q);
    back.k = place_of(d, b, T_K);
    back.v = place_of(d, b, T_V);
    back.bias = place_of(d, b, T_BIAS);
    back.mask = place_of(d, b, T_MASK);
    back.query_regions = place_of(d, b, T_QUERY_REGIONS);
    back.key_regions = place_of(d, b, T_KEY_REGIONS);
    back.logit_scale = place_of(d, b, T_LOGIT_SCALE);
    back.pad_k = place_of(d, b, T_PAD_K);
    back.pad_v = place_of(d, b, T_PAD_V);
    back.o = place_of(d, b, T_O);
    back.lse = place_of(d, b, T_LSE);
    back.d_o = place_of(d, b, T_D_O);
    back.d_lse = place_of(d, b, T_D_LSE);
    back.dq = place_of(d, b, T_DQ);
    back.dk = place_of(d, b, T_DK);
    back.dv = place_of(d, b, T_DV);
    back.dbias = place_of(d, b, T_DBIAS);
    back.d_logit_scale = place_of(d, b, T_D_LOGIT_SCALE);
    back.d_pad_k = place_of(d, b, T_D_PAD_K);
    back.d_pad_v = place_of(d, b, T_D_PAD_V);
    back.accumulate = (cl_bitfield)(d->c.accumulate & d->c.outputs);
    return back;
}

/* ---- Verdict ---- */

double promised_error(int dtype)
{
    static const double promised[] = {5e-6, 5e-4, 4e-3};
    return promised[dtype];
}

void measure(distance *d, double got, double want, double size)
{
    if (isnan(want) || isinf(want)) {
        if (isnan(want) ? !isnan(got) : got != want)
            d->mismatch = isnan(want)  ? "a NaN is missing"
                          : isnan(got) ? "an infinity became NaN"
                                       : "an infinity is missing";
        return;
    }
    if (isnan(got) || isinf(got)) {
        d->mismatch = isnan(got) ? "NaN where a number belongs"
                                 : "infinity where a number belongs";
        return;
    }
    d->error2 += (got - want) * (got - want);
    d->want2 += want * want;
    d->size2 += size * size;
}

double share(const distance *d, double tolerance, double size_share)
{
    const double allowed =
        tolerance * fmax(sqrt(d->want2), sqrt(d->size2) * size_share);
    const double error = sqrt(d->error2);
    return error == 0 ? 0 : allowed > 0 ? error / allowed : INFINITY;
}

void note_error(case_result *result, tensor_id id, const distance *d,
                double part, double tolerance)
{
    result->error[id] = fmax(result->error[id], part);
    result->plain_error[id] =
        fmax(result->plain_error[id], share(d, tolerance, 0));
    if (id == T_LSE)
        return;
    result->o_error = fmax(result->o_error, part);
    if (d->want2 > 0)
        result->o_relative =
            fmax(result->o_relative, sqrt(d->error2 / d->want2));
}

static bool check_window_head(const case_buffers *d,
                              unsigned char *const bytes[TENSORS],
                              size_t window, size_t head, double *scratch,
                              case_result *result)
{
    const test_case *c = &d->c;
    const size_t rows = (size_t)c->queries, dim = (size_t)c->dim;
    double *o = scratch, *o_size = o + rows * dim;
    double *lse = o_size + rows * dim, *lse_size = lse + rows;
    double largest;
    distance o_distance = {0, 0, 0, NULL}, lse_distance = {0, 0, 0, NULL};
    size_t stored = 0;
    data_oracle(d, window, head, o, o_size, lse, lse_size, &largest);
    const tensor_data *t = &d->tensor[T_O], *t_lse = &d->tensor[T_LSE];
    for (size_t i = 0; i < rows; i++) {
        size_t at = window, row = i;
        if (!data_find(d, T_O, &at, &row))
            continue; /* of the padding: there is no result */
        stored += dim;
        for (size_t x = 0; x < dim; x++)
            measure(&o_distance,
                    kind_read(t->kind,
                              bytes[t->buffer] + data_at(t, at, head, row, x)),
                    o[i * dim + x], o_size[i * dim + x]);
        if (t_lse->used)
            measure(
                &lse_distance,
                kind_read(t_lse->kind, bytes[t_lse->buffer] +
                                           data_at(t_lse, at, head, row, 0)),
                lse[i], lse_size[i]);
    }

    /* a logit is a rounded fp32 number; of TF32, a sum of rounded products */
    double by_logits = ldexp(largest, -23);
    for (size_t i = 0; c->tf32 && i < rows; i++)
        if (isfinite(lse_size[i]))
            by_logits = fmax(by_logits, ldexp(lse_size[i], -12));
    const double fp32 = fmax(
        c->tf32 ? PROMISED_TF32 : promised_error(WINATTN_FP32), by_logits);
    const double tolerance = c->data == DATA_ALONE && !c->tf32 ? 0
                             : c->dtype == WINATTN_FP32
                                 ? fp32
                                 : fmax(promised_error(c->dtype), by_logits);
    /* all of o is small where the padding's values are 0 and have all weight
     */
    distance beyond = o_distance;
    const double o_share =
        share_stored(&beyond, stored_underflow(t->kind), stored, tolerance,
                     ORDINARY_SIZE_SHARE);
    /* the logarithm is stored in fp32, whatever q, k and v are */
    const double lse_share = share(&lse_distance, fp32, 1.0);
    result->lse_error = fmax(result->lse_error, lse_share);
    note_error(result, T_O, &o_distance, o_share, tolerance);
    note_error(result, T_LSE, &lse_distance, lse_share, fp32);
    const char *wrong = o_distance.mismatch     ? o_distance.mismatch
                        : lse_distance.mismatch ? lse_distance.mismatch
                                                : NULL;
    if (!wrong && o_share <= 1 && lse_share <= 1)
        return true;
    snprintf(result->failure, sizeof result->failure,
             "window %zu head %zu: %s; o is at %.3g of the allowed error, lse "
             "at %.3g",
             window, head, wrong ? wrong : "too far from the oracle", o_share,
             lse_share);
    return false;
}

static const char *output_name(int id)
{
    static const char *const names[TENSORS] = {[T_O] = "o",
                                               [T_LSE] = "lse",
                                               [T_DQ] = "dq",
                                               [T_DK] = "dk",
                                               [T_DV] = "dv",
                                               [T_DBIAS] = "dbias",
                                               [T_D_LOGIT_SCALE] =
                                                   "d_logit_scale",
                                               [T_D_PAD_K] = "d_pad_k",
                                               [T_D_PAD_V] = "d_pad_v"};
    return names[id] ? names[id] : "";
}

/* Bytes that are no element of an output must be as before the call. */
static bool check_untouched(const case_buffers *d,
                            unsigned char *const bytes[TENSORS],
                            case_result *result)
{
    for (int i = 0; i < d->buffers; i++) {
        const buffer_image *image = &d->buffer[i];
        unsigned char *owned = calloc(image->size, 1);
        const char *names = "";
        if (!owned)
            return false;
        for (int id = T_O; id < TENSORS; id++) {
            const tensor_data *t = &d->tensor[id];
            if (!t->used || !t->is_output || t->buffer != i)
                continue;
            names = output_name(id);
            for (size_t w = 0; w < t->extent[0]; w++)
                for (size_t h = 0; h < t->extent[1]; h++)
                    for (size_t r = 0; r < t->extent[2]; r++)
                        for (size_t x = 0; x < t->extent[3]; x++)
                            memset(owned + data_at(t, w, h, r, x), 1,
                                   kind_size(t->kind));
        }
        size_t at = 0;
        while (at < image->size &&
               (owned[at] || bytes[i][at] == image->bytes[at]))
            at++;
        free(owned);
        if (at < image->size) {
            snprintf(result->failure, sizeof result->failure,
                     "byte %zu of buffer %d%s%s was written, which is no "
                     "element of an output",
                     at, i, *names ? ", which holds " : "", names);
            return false;
        }
    }
    return true;
}

bool buffers_check(cl_command_queue queue, const case_buffers *d,
                   const device_buffers *b, int sampled, case_result *result)
{
    const test_case *c = &d->c;
    unsigned char *bytes[TENSORS] = {NULL};
    const size_t rows = (size_t)c->queries;
    double *scratch =
        malloc(sizeof(double) * (2 * rows * (size_t)c->dim + 2 * rows));
    bool passed = scratch != NULL;
    for (int i = 0; i < d->buffers; i++) {
        bytes[i] = malloc(d->buffer[i].size);
        if (!bytes[i] || clEnqueueReadBuffer(queue, b->mem[i], CL_TRUE, 0,
                                             d->buffer[i].size, bytes[i], 0,
                                             NULL, NULL) != CL_SUCCESS)
            passed = false;
    }
    if (!passed)
        snprintf(result->failure, sizeof result->failure,
                 "results could not be read");
    passed = passed && check_untouched(d, bytes, result);
    if (c->pass == PASS_BACKWARD) {
        passed = passed && check_gradients(d, bytes, result);
        goto cleanup;
    }

    const long all = (long)c->windows * c->heads;
    const long step = sampled && sampled < all ? all / sampled : 1;
    for (long i = 0; passed && i < all; i += step)
        passed = check_window_head(d, bytes, (size_t)(i / c->heads),
                                   (size_t)(i % c->heads), scratch, result);
    if (passed && step > 1)
        passed = check_window_head(d, bytes, (size_t)c->windows - 1,
                                   (size_t)c->heads - 1, scratch, result);
cleanup:
    for (int i = 0; i < d->buffers; i++)
        free(bytes[i]);
    free(scratch);
    return passed;
}

/* A workspace full of NaN. */
static winattn_status make_workspace(const test_device *device,
                                     const winattn_plan *plan,
                                     cl_mem *workspace)
{
    size_t size = 0;
    cl_int error = winattn_plan_workspace_size(plan, &size);
    if (error != CL_SUCCESS || size == 0)
        return error;
    const cl_uint poison = 0x7fffffff;
    *workspace =
        clCreateBuffer(device->context, CL_MEM_READ_WRITE, size, NULL, &error);
    /* Oclgrind itself sees reads of what nobody wrote, but 21.10 takes what is
     * behind the first of a fill's values for that */
    if (error == CL_SUCCESS && !strstr(device->name, "Oclgrind"))
        error =
            clEnqueueFillBuffer(device->queue, *workspace, &poison,
                                sizeof poison, 0, size / 4 * 4, 0, NULL, NULL);
    return error == CL_SUCCESS ? clFinish(device->queue) : error;
}

/* Reads all buffers; false if the device does not give them, or if bits differ
 * from those of `first`, which holds them after the first time. */
static bool same_bits(cl_command_queue queue, const case_buffers *d,
                      const device_buffers *b, unsigned char *first[TENSORS],
                      case_result *result)
{
    for (int i = 0; i < d->buffers; i++) {
        const size_t size = d->buffer[i].size;
        unsigned char *bytes = malloc(size);
        const bool read =
            bytes && clEnqueueReadBuffer(queue, b->mem[i], CL_TRUE, 0, size,
                                         bytes, 0, NULL, NULL) == CL_SUCCESS;
        const bool same =
            read && (!first[i] || memcmp(bytes, first[i], size) == 0);
        if (first[i])
            free(bytes);
        else
            first[i] = bytes;
        if (!same) {
            snprintf(result->failure, sizeof result->failure,
                     read ? "other bits in buffer %d"
                          : "buffer %d could not be read",
                     i);
            return false;
        }
    }
    return true;
}

/* Lets a forward pass leave o and lse where the backward pass takes them, as
 * those who train do. A tier that the device lacks is left to the plan. */
static winattn_status fill_by_forward(const test_device *device,
                                      case_buffers *d, const device_buffers *b)
{
    winattn_plan *plan = NULL;
    cl_mem workspace = NULL;
    winattn_desc desc = data_desc(d);
    winattn_forward f = buffers_forward(d, b);
    desc.passes = WINATTN_PASS_FORWARD;
    winattn_status status =
        winattn_plan_create(device->context, device->id, &desc, &plan);
    if (status != WINATTN_SUCCESS && desc.tier != WINATTN_TIER_AUTO) {
        desc.tier = WINATTN_TIER_AUTO;
        status =
            winattn_plan_create(device->context, device->id, &desc, &plan);
    }
    if (status == WINATTN_SUCCESS)
        status = make_workspace(device, plan, &workspace);
    f.workspace.buffer = workspace;
    if (status == WINATTN_SUCCESS)
        status =
            winattn_enqueue_forward(plan, device->queue, &f, 0, NULL, NULL);
    for (int i = 0; status == WINATTN_SUCCESS && i < d->buffers; i++)
        status = clEnqueueReadBuffer(device->queue, b->mem[i], CL_TRUE, 0,
                                     d->buffer[i].size, d->buffer[i].bytes, 0,
                                     NULL, NULL);
    if (workspace)
        clReleaseMemObject(workspace);
    winattn_plan_destroy(plan);
    return status;
}

bool buffers_fill_given(const test_device *device, case_buffers *d,
                        const device_buffers *b, case_result *result)
{
    if (d->c.pass != PASS_BACKWARD || d->c.given != 2)
        return true;
    const winattn_status status = fill_by_forward(device, d, b);
    if (status != WINATTN_SUCCESS)
        snprintf(result->failure, sizeof result->failure,
                 "the forward pass before: %s: %s",
                 winattn_status_name(status), winattn_last_reason());
    return status == WINATTN_SUCCESS;
}

/* Enqueues one call. */
static winattn_status call_plan(const winattn_plan *plan,
                                cl_command_queue queue, const case_buffers *d,
                                const device_buffers *b, cl_mem workspace,
                                cl_event *event)
{
    if (d->c.pass == PASS_FORWARD) {
        winattn_forward f = buffers_forward(d, b);
        f.workspace.buffer = workspace;
        return winattn_enqueue_forward(plan, queue, &f, 0, NULL, event);
    }
    winattn_backward back = buffers_backward(d, b);
    back.workspace.buffer = workspace;
    return winattn_enqueue_backward(plan, queue, &back, 0, NULL, event);
}

bool buffers_run(const test_device *device, cl_command_queue queue,
                 const case_buffers *d, const device_buffers *b, int times,
                 case_result *result)
{
    winattn_plan *plan = NULL;
    cl_mem workspace = NULL;
    unsigned char *first[TENSORS] = {NULL};
    const winattn_desc desc = data_desc(d);
    winattn_status status =
        winattn_plan_create(device->context, device->id, &desc, &plan);
    /* so is a tier that is demanded, and whose kernel spills much */
    result->refused = status == WINATTN_UNSUPPORTED_PROBLEM ||
                      (status == WINATTN_UNSUPPORTED_DEVICE &&
                       strstr(winattn_last_reason(), "spills"));
    if (status == WINATTN_SUCCESS)
        status = make_workspace(device, plan, &workspace);
    bool passed = true;
    for (int time = 0; status == WINATTN_SUCCESS && passed && time < times;
         time++) {
        cl_event event = NULL;
        status = call_plan(plan, queue, d, b, workspace, &event);
        if (status != WINATTN_SUCCESS)
            break;
        const cl_int error = clWaitForEvents(1, &event);
        clReleaseEvent(event);
        if (error != CL_SUCCESS)
            snprintf(result->failure, sizeof result->failure,
                     "waiting failed: %d", error);
        passed = error == CL_SUCCESS &&
                 (times == 1 || same_bits(queue, d, b, first, result));
    }
    if (status != WINATTN_SUCCESS)
        snprintf(result->failure, sizeof result->failure, "%s: %s\n%.200s",
                 winattn_status_name(status), winattn_last_reason(),
                 winattn_last_build_log());
    for (int i = 0; i < TENSORS; i++)
        free(first[i]);
    if (workspace)
        clReleaseMemObject(workspace);
    winattn_plan_destroy(plan);
    return passed && status == WINATTN_SUCCESS;
}

static bool run_times(const test_device *device, cl_command_queue queue,
                      const test_case *c, int times, int sampled,
                      case_result *result)
{
    bool passed = false;
    device_buffers b;
    memset(result, 0, sizeof *result);
    memset(&b, 0, sizeof b);
    case_buffers *d = data_make(c);
    if (!d || !buffers_create(device, d, &b))
        snprintf(result->failure, sizeof result->failure, "out of memory");
    else
        passed = buffers_fill_given(device, d, &b, result) &&
                 buffers_run(device, queue, d, &b, times, result) &&
                 buffers_check(queue, d, &b, sampled, result);
    buffers_release(&b);
    data_free(d);
    return passed;
}

bool case_run(const test_device *device, cl_command_queue queue,
              const test_case *c, int sampled, case_result *result)
{
    return run_times(device, queue, c, 1, sampled, result);
}

bool case_repeats(const test_device *device, const test_case *c, int times,
                  case_result *result)
{
    return run_times(device, device->queue, c, times, 0, result);
}

bool case_run_anywhere(const test_device *device, const test_case *c,
                       int sampled, int *refusals, case_result *result)
{
    const bool passed = case_run(device, device->queue, c, sampled, result);
    if (!result->refused || (c->tier != WINATTN_TIER_MATRIX &&
                             strstr(device->name, "Portable Computing")))
        return passed;
    test_case other = *c;
    other.tier = WINATTN_TIER_AUTO;
    (*refusals)++;
    return case_run(device, device->queue, &other, sampled, result);
}
