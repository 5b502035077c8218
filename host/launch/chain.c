/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/chain.h"

#include <string.h>

#include "base/status.h"
#include "launch/arguments.h"
#include "launch/list.h"

void (*wa_chain_watcher)(cl_kernel kernel, cl_event done);

winattn_status wa_chain_begin(wa_kernel_chain *chain, cl_command_queue queue,
                              cl_uint wait_count, const cl_event *wait_list,
                              bool wants_event)
{
    cl_command_queue_properties properties = 0;
    const cl_int error = clGetCommandQueueInfo(
        queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, NULL);
    memset(chain, 0, sizeof *chain);
    if (error != CL_SUCCESS)
        return wa_fail_cl(error, "clGetCommandQueueInfo");
    chain->queue = queue;
    chain->wait_count = wait_count;
    chain->wait_list = wait_list;
    chain->in_order =
        (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) == 0;
    chain->wants_event = wants_event;
    return WINATTN_SUCCESS;
}

cl_event *wa_chain_event(const wa_kernel_chain *chain, cl_event *done)
{
    *done = NULL;
    return chain->wants_event || !chain->in_order || wa_chain_watcher ? done
                                                                      : NULL;
}

void wa_chain_go_on(wa_kernel_chain *chain, cl_event done)
{
    if (chain->last)
        clReleaseEvent(chain->last);
    chain->last = done;
    chain->has_begun = true;
    chain->wait_count = chain->in_order ? 0 : 1;
    chain->wait_list = chain->in_order ? NULL : &chain->last;
}

winattn_status wa_chain_set(wa_kernel_chain *chain, cl_kernel kernel,
                            cl_uint index, size_t size, const void *value)
{
    return chain->list ? wa_list_set(chain->list, kernel, index, size, value)
                       : wa_set_arg(kernel, index, size, value);
}

winattn_status wa_chain_set_buffer(wa_kernel_chain *chain, cl_kernel kernel,
                                   cl_uint index, cl_mem buffer)
{
    return chain->list ? wa_list_set_buffer(chain->list, kernel, index, buffer)
                       : wa_set_arg(kernel, index, sizeof buffer,
                                    buffer ? &buffer : NULL);
}

winattn_status wa_chain_append(wa_kernel_chain *chain, cl_kernel kernel,
                               uint64_t items, size_t group)
{
    const uint64_t groups = (items + group - 1) / group;
    const size_t global = (size_t)(groups * group);
    cl_event done;
    if (chain->list)
        return wa_list_append(chain->list, kernel, groups, group);
    const cl_int error = clEnqueueNDRangeKernel(
        chain->queue, kernel, 1, NULL, &global, &group, chain->wait_count,
        chain->wait_list, wa_chain_event(chain, &done));
    if (error != CL_SUCCESS)
        return wa_fail_cl(error, "clEnqueueNDRangeKernel");
    if (wa_chain_watcher)
        wa_chain_watcher(kernel, done);
    wa_chain_go_on(chain, done);
    return WINATTN_SUCCESS;
}

winattn_status wa_chain_end(wa_kernel_chain *chain, winattn_status status,
                            cl_event *event)
{
    if (status == WINATTN_SUCCESS && event && !chain->has_begun) {
        const cl_int error = clEnqueueMarkerWithWaitList(
            chain->queue, chain->wait_count, chain->wait_list, &chain->last);
        if (error != CL_SUCCESS)
            status = wa_fail_cl(error, "clEnqueueMarkerWithWaitList");
    }
    if (status == WINATTN_SUCCESS && event)
        *event = chain->last;
    else if (chain->last)
        clReleaseEvent(chain->last);
    return status;
}
