/* SPDX-License-Identifier: Apache-2.0
 * The library used from C++: its header first, so that it must stand alone,
 * and owners that release what they hold. Equal values make equal outputs,
 * whatever the logits. */
#include <winattn.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace
{
void check(cl_int status)
{
    if (status != CL_SUCCESS)
        throw std::runtime_error(std::string(winattn_status_name(status)) +
                                 ": " + winattn_last_reason());
}

struct release {
    void operator()(cl_context x) const { clReleaseContext(x); }
    void operator()(cl_command_queue x) const { clReleaseCommandQueue(x); }
    void operator()(cl_mem x) const { clReleaseMemObject(x); }
    void operator()(winattn_plan *x) const { winattn_plan_destroy(x); }
};
template <class T>
using owner = std::unique_ptr<typename std::remove_pointer<T>::type, release>;

owner<cl_mem> buffer(cl_context context, std::vector<float> &content)
{
    cl_int error;
    owner<cl_mem> mem(clCreateBuffer(
        context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
        content.size() * sizeof(float), content.data(), &error));
    check(error);
    return mem;
}

void run(cl_device_id device)
{
    cl_int error;
    owner<cl_context> context(
        clCreateContext(nullptr, 1, &device, nullptr, nullptr, &error));
    check(error);
    owner<cl_command_queue> queue(
        clCreateCommandQueue(context.get(), device, 0, &error));
    check(error);

    winattn_desc desc = winattn_desc();
    desc.struct_size = sizeof desc;
    desc.windows = 3;
    desc.heads = 2;
    desc.queries = desc.keys = 16;
    desc.head_dim = 8;
    winattn_plan *made = nullptr;
    check(winattn_plan_create(context.get(), device, &desc, &made));
    owner<winattn_plan *> plan(made);

    std::vector<float> logits(3 * 2 * 16 * 8), values(logits.size(), 2.5f),
        result(logits.size());
    for (std::size_t i = 0; i < logits.size(); i++)
        logits[i] = static_cast<float>(i % 23) - 11.0f;
    owner<cl_mem> qk = buffer(context.get(), logits);
    owner<cl_mem> v = buffer(context.get(), values);
    owner<cl_mem> o = buffer(context.get(), result);
    winattn_forward forward = winattn_forward();
    forward.struct_size = sizeof forward;
    forward.q.buffer = forward.k.buffer = qk.get();
    forward.v.buffer = v.get();
    forward.o.buffer = o.get();
    check(winattn_enqueue_forward(plan.get(), queue.get(), &forward, 0,
                                  nullptr, nullptr));
    plan.reset(); /* what was enqueued completes all the same */
    check(clEnqueueReadBuffer(queue.get(), o.get(), CL_TRUE, 0,
                              result.size() * sizeof(float), result.data(), 0,
                              nullptr, nullptr));
    for (float x : result)
        if (!(std::fabs(x - 2.5f) < 1e-5f))
            throw std::runtime_error("2.5 became " + std::to_string(x));

    desc.head_dim = 0;
    if (winattn_plan_create(context.get(), device, &desc, &made) !=
            WINATTN_INVALID_ARGUMENT ||
        made != nullptr || *winattn_last_reason() == 0)
        throw std::runtime_error("a head of no channels was not refused");
}
} // namespace

int main()
try {
    cl_platform_id platform;
    cl_device_id device;
    check(clGetPlatformIDs(1, &platform, nullptr));
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr));
    if (winattn_version() != WINATTN_VERSION)
        throw std::runtime_error("header and library differ");
    run(device);
} catch (const std::exception &problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return 1;
}
