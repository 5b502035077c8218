/* SPDX-License-Identifier: Apache-2.0
 * The library used from C++11: its header first, so that it must stand alone,
 * and owners that release what they hold. What it computes from C++ the
 * examples look at, which are C++20, too. */
#include <winattn.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>

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
    void operator()(winattn_plan *x) const { winattn_plan_destroy(x); }
};
template <class T>
using owner = std::unique_ptr<typename std::remove_pointer<T>::type, release>;

void run(cl_device_id device)
{
    cl_int error;
    owner<cl_context> context(
        clCreateContext(nullptr, 1, &device, nullptr, nullptr, &error));
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

    size_t size = 0;
    check(winattn_plan_workspace_size(plan.get(), &size));
    winattn_forward forward = winattn_forward();
    forward.struct_size = sizeof forward;
    if (winattn_enqueue_forward(plan.get(), nullptr, &forward, 0, nullptr,
                                nullptr) != WINATTN_INVALID_ARGUMENT)
        throw std::runtime_error("a call without a queue was not refused");
    plan.reset();

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
