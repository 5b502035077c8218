/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/check.h"

#include <string.h>

#include "base/process.h"
#include "base/status.h"

/* What a memory object says of itself. */
typedef struct memory_facts {
    cl_mem_object_type type;
    cl_mem_flags flags;
    cl_context context;
    size_t size, origin;
    void *host; /* NULL unless the memory is the caller's */
} memory_facts;

static winattn_status ask(const char *name, cl_mem memory, memory_facts *facts)
{
    const struct {
        cl_mem_info what;
        size_t size;
        void *answer;
    } asked[] = {
        {CL_MEM_TYPE, sizeof facts->type, &facts->type},
        {CL_MEM_FLAGS, sizeof facts->flags, &facts->flags},
        {CL_MEM_CONTEXT, sizeof facts->context, &facts->context},
        {CL_MEM_SIZE, sizeof facts->size, &facts->size},
        {CL_MEM_OFFSET, sizeof facts->origin, &facts->origin},
        {CL_MEM_HOST_PTR, sizeof facts->host, &facts->host},
    };
    cl_int error = CL_SUCCESS;
    memset(facts, 0, sizeof *facts);
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        /* drivers may name memory of their own, too */
        if (asked[i].what == CL_MEM_HOST_PTR &&
            (facts->flags & CL_MEM_USE_HOST_PTR) == 0)
            continue;
        error = clGetMemObjectInfo(memory, asked[i].what, asked[i].size,
                                   asked[i].answer, NULL);
        if (error != CL_SUCCESS)
            break;
    }
    if (error == CL_INVALID_MEM_OBJECT)
        return wa_fail(WINATTN_INVALID_BUFFER, "%s is no memory object", name);
    return wa_cl_status(error, "clGetMemObjectInfo");
}

static winattn_status check_place(const char *name, const winattn_tensor *at,
                                  uint64_t start, uint32_t element_size)
{
    if (at->offset % element_size != 0)
        return WA_BAD_LAYOUT("the offset of %s, %llu, is no multiple of %u",
                             name, (unsigned long long)at->offset,
                             element_size);
    if (!wa_is_aligned(at, start, element_size))
        return WA_BAD_LAYOUT(
            "the memory of the buffer of %s starts on no multiple of %u bytes",
            name, element_size);
    return WINATTN_SUCCESS;
}

winattn_status wa_check_memory(const char *name, const winattn_tensor *at,
                               cl_context context, wa_access access,
                               uint32_t element_size, uint64_t bytes,
                               uint64_t *start)
{
    memory_facts facts;
    WA_TRY(ask(name, at->buffer, &facts));
    const size_t size = facts.size;
    const uint64_t first = facts.origin | (uint64_t)(uintptr_t)facts.host;
    if (facts.type != CL_MEM_OBJECT_BUFFER)
        return wa_fail(WINATTN_INVALID_BUFFER, "%s is no buffer", name);
    if (facts.context != context)
        return wa_fail(WINATTN_INVALID_BUFFER,
                       "%s belongs to another context than the plan", name);
    if ((access & WA_READS) != 0 && (facts.flags & CL_MEM_WRITE_ONLY) != 0)
        return wa_fail(WINATTN_INVALID_BUFFER,
                       "%s is read, but its buffer is write-only", name);
    if ((access & WA_WRITES) != 0 && (facts.flags & CL_MEM_READ_ONLY) != 0)
        return wa_fail(WINATTN_INVALID_BUFFER,
                       "%s is written, but its buffer is read-only", name);
    WA_TRY(check_place(name, at, first, element_size));
    if (start)
        *start |= first;
    if (at->offset > size || bytes > size - at->offset)
        return wa_fail(WINATTN_BUFFER_TOO_SMALL,
                       "%s needs %llu bytes from offset %llu on, but its "
                       "buffer has %llu",
                       name, (unsigned long long)bytes,
                       (unsigned long long)at->offset,
                       (unsigned long long)size);
    return WINATTN_SUCCESS;
}

/* Checks a tensor of the call, in a buffer or where the caller says. */
static winattn_status check_tensor(const wa_buffers *buffers,
                                   winattn_tensor_name id, const char *name,
                                   const winattn_tensor *at,
                                   cl_context context, wa_access access,
                                   uint32_t element_size, uint64_t bytes,
                                   uint64_t *start)
{
    if (!buffers->memory)
        return wa_check_memory(name, at, context, access, element_size, bytes,
                               start);
    const winattn_memory *memory = &buffers->memory[id];
    WA_TRY(check_place(name, at, memory->address, element_size));
    if (start)
        *start |= memory->address;
    if (memory->bytes >= bytes)
        return WINATTN_SUCCESS;
    return wa_fail(
        WINATTN_BUFFER_TOO_SMALL, "%s needs %llu bytes, but has %llu", name,
        (unsigned long long)bytes, (unsigned long long)memory->bytes);
}

/* Kernels take the step between channels of the padding from k and v. */
static winattn_status check_pad_columns(const wa_problem *problem,
                                        const wa_buffers *buffers,
                                        wa_tensor_id pad, wa_tensor_id tokens)
{
    const uint64_t own = problem->tensor[pad].stride[WA_COLUMN];
    const uint64_t wanted = problem->tensor[tokens].stride[WA_COLUMN];
    if (!buffers->tensor[pad].buffer || own == wanted)
        return WINATTN_SUCCESS;
    return WA_BAD_LAYOUT(
        "the stride of axis column of %s, %llu, is not that of %s, %llu",
        wa_tensor_name(pad), (unsigned long long)own, wa_tensor_name(tokens),
        (unsigned long long)wanted);
}

/* An output that is added to is read first. */
static wa_access access_of(wa_tensor_id id, wa_role role,
                           cl_bitfield accumulate)
{
    static const cl_bitfield bits[WA_TENSORS] = {
        [WA_DQ] = WINATTN_DQ,
        [WA_DK] = WINATTN_DK,
        [WA_DV] = WINATTN_DV,
        [WA_DBIAS] = WINATTN_DBIAS,
        [WA_D_LOGIT_SCALE] = WINATTN_D_LOGIT_SCALE,
        [WA_D_PAD_K] = WINATTN_D_PAD_K,
        [WA_D_PAD_V] = WINATTN_D_PAD_V};
    return role < WA_OUTPUT               ? WA_READS
           : (accumulate & bits[id]) != 0 ? WA_READS_AND_WRITES
                                          : WA_WRITES;
}

winattn_status wa_check_buffers(const wa_problem *problem, wa_pass pass,
                                uint64_t workspace_bytes, cl_context context,
                                wa_buffers *buffers, cl_bitfield accumulate)
{
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++) {
        const wa_tensor *tensor = &problem->tensor[id];
        const winattn_tensor *at = &buffers->tensor[id];
        const char *name = wa_tensor_name(id);
        const wa_role role = wa_tensor_role(id, pass);
        if (role == WA_ABSENT)
            continue;
        if (!at->buffer) {
            if (tensor->used && (role == WA_INPUT || role == WA_OUTPUT))
                return WA_INVALID("%s is NULL", name);
            continue;
        }
        if (!tensor->used)
            return WA_INVALID("%s is given, but the plan does not use it",
                              name);
        WA_TRY(check_tensor(
            buffers, (winattn_tensor_name)id, name, at, context,
            access_of(id, role, accumulate), tensor->element_size,
            tensor->span * tensor->element_size, &buffers->start[id]));
    }
    WA_TRY(check_pad_columns(problem, buffers, WA_PAD_K, WA_K));
    WA_TRY(check_pad_columns(problem, buffers, WA_PAD_V, WA_V));
    if (workspace_bytes == 0) { /* kernels get none, whatever was given */
        memset(&buffers->workspace, 0, sizeof buffers->workspace);
        return WINATTN_SUCCESS;
    }
    if (!buffers->workspace.buffer)
        return WA_INVALID(
            "workspace is NULL, but the %s pass needs %llu bytes",
            pass == WA_FORWARD ? "forward" : "backward",
            (unsigned long long)workspace_bytes);
    const winattn_status status = check_tensor(
        buffers, WINATTN_TENSOR_WORKSPACE, "workspace", &buffers->workspace,
        context, WA_READS_AND_WRITES, 16, workspace_bytes, NULL);
    return status == WINATTN_BUFFER_TOO_SMALL ? WINATTN_WORKSPACE_TOO_SMALL
                                              : status;
}

winattn_status wa_check_queue(cl_command_queue queue, cl_context context,
                              cl_device_id device, cl_uint wait_count,
                              const cl_event *wait_list)
{
    cl_context queue_context = NULL;
    cl_device_id queue_device = NULL;
    if ((wait_count == 0) != (wait_list == NULL))
        return WA_INVALID("wait_count and wait_list contradict each other");
    WA_TRY(wa_check_process());
    WA_WANT(queue, "queue");
    WA_TRY(WA_CL(clGetCommandQueueInfo, queue, CL_QUEUE_CONTEXT,
                 sizeof queue_context, &queue_context, NULL));
    WA_TRY(WA_CL(clGetCommandQueueInfo, queue, CL_QUEUE_DEVICE,
                 sizeof queue_device, &queue_device, NULL));
    if (queue_context != context)
        return wa_fail(WINATTN_INVALID_QUEUE,
                       "the queue belongs to another context than the plan");
    if (queue_device != device)
        return wa_fail(WINATTN_INVALID_QUEUE,
                       "the queue belongs to another device than the plan");
    return WINATTN_SUCCESS;
}
