/* SPDX-License-Identifier: Apache-2.0
 * OpenCL for the library in the Python wheel. That one is linked to no
 * libOpenCL: a handle belongs to the loader that made it, and which loader
 * that is, the system's or the one in pyopencl's wheel, is only known when
 * Python runs. So the functions that the library calls are defined here,
 * hidden from others, and pass each call on to what winattn_bind_opencl was
 * given. Nothing else is different from libwinattn: the objects are the same.
 */
#include <string.h>
#include <winattn.h>

/* X(name): the functions that the library calls. One that is missing here does
 * not link. */
#define FUNCTIONS(X)                                                          \
    X(clBuildProgram), X(clCreateBuffer), X(clCreateCommandQueue),            \
        X(clCreateKernel), X(clCreateProgramWithBinary),                      \
        X(clCreateProgramWithSource), X(clEnqueueMarkerWithWaitList),         \
        X(clEnqueueNDRangeKernel), X(clEnqueueReadBuffer), X(clFinish),       \
        X(clGetCommandQueueInfo), X(clGetContextInfo), X(clGetDeviceInfo),    \
        X(clGetKernelInfo), X(clGetKernelWorkGroupInfo),                      \
        X(clGetMemObjectInfo), X(clGetPlatformInfo),                          \
        X(clGetProgramBuildInfo), X(clGetProgramInfo),                        \
        X(clReleaseCommandQueue), X(clReleaseContext), X(clReleaseDevice),    \
        X(clReleaseEvent), X(clReleaseKernel), X(clReleaseMemObject),         \
        X(clReleaseProgram), X(clRetainContext), X(clRetainDevice),           \
        X(clSetKernelArg)

#define INDEX(name) AT_##name
#define NAME(name) #name

enum { FUNCTIONS(INDEX), COUNT };
static const char *const names[COUNT] = {FUNCTIONS(NAME)};

typedef void (*any_function)(void);
static any_function bound[COUNT];

/* ---- The functions ---- */

/* What a loader says where there is no OpenCL, from cl_ext.h. */
#define NOT_FOUND (-1001)

/* Function `name` with the parameters that follow its arguments. It returns a
 * status; */
#define STATUS_FUNCTION(name, arguments, ...)                                 \
    cl_int CL_API_CALL name(__VA_ARGS__)                                      \
    {                                                                         \
        typedef cl_int(CL_API_CALL *function)(__VA_ARGS__);                   \
        const function call = (function)bound[AT_##name];                     \
        return call ? call arguments : NOT_FOUND;                             \
    }

/* or a new object, and a status goes to its last parameter, error; */
#define OBJECT_FUNCTION(type, name, arguments, ...)                           \
    type CL_API_CALL name(__VA_ARGS__)                                        \
    {                                                                         \
        typedef type(CL_API_CALL *function)(__VA_ARGS__);                     \
        const function call = (function)bound[AT_##name];                     \
        if (call)                                                             \
            return call arguments;                                            \
        if (error)                                                            \
            *error = NOT_FOUND;                                               \
        return NULL;                                                          \
    }

/* or it answers what is asked of an object; */
#define INFO_FUNCTION(name, type, name_type)                                  \
    STATUS_FUNCTION(name, (object, asked, size, value, needed), type object,  \
                    name_type asked, size_t size, void *value,                \
                    size_t *needed)

/* or of an object and a device. */
#define DEVICE_INFO_FUNCTION(name, type, name_type)                           \
    STATUS_FUNCTION(name, (object, device, asked, size, value, needed),       \
                    type object, cl_device_id device, name_type asked,        \
                    size_t size, void *value, size_t *needed)

STATUS_FUNCTION(clBuildProgram,
                (program, count, devices, options, notify, data),
                cl_program program, cl_uint count, const cl_device_id *devices,
                const char *options,
                void(CL_CALLBACK *notify)(cl_program program, void *data),
                void *data)
STATUS_FUNCTION(clEnqueueMarkerWithWaitList, (queue, count, events, event),
                cl_command_queue queue, cl_uint count, const cl_event *events,
                cl_event *event)
STATUS_FUNCTION(clEnqueueNDRangeKernel,
                (queue, kernel, axes, offset, global, local, count, events,
                 event),
                cl_command_queue queue, cl_kernel kernel, cl_uint axes,
                const size_t *offset, const size_t *global,
                const size_t *local, cl_uint count, const cl_event *events,
                cl_event *event)
STATUS_FUNCTION(clEnqueueReadBuffer,
                (queue, buffer, blocking, offset, size, to, count, events,
                 event),
                cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                size_t offset, size_t size, void *to, cl_uint count,
                const cl_event *events, cl_event *event)
STATUS_FUNCTION(clFinish, (queue), cl_command_queue queue)
INFO_FUNCTION(clGetCommandQueueInfo, cl_command_queue, cl_command_queue_info)
INFO_FUNCTION(clGetContextInfo, cl_context, cl_context_info)
INFO_FUNCTION(clGetDeviceInfo, cl_device_id, cl_device_info)
INFO_FUNCTION(clGetKernelInfo, cl_kernel, cl_kernel_info)
DEVICE_INFO_FUNCTION(clGetKernelWorkGroupInfo, cl_kernel,
                     cl_kernel_work_group_info)
INFO_FUNCTION(clGetMemObjectInfo, cl_mem, cl_mem_info)
INFO_FUNCTION(clGetPlatformInfo, cl_platform_id, cl_platform_info)
DEVICE_INFO_FUNCTION(clGetProgramBuildInfo, cl_program, cl_program_build_info)
INFO_FUNCTION(clGetProgramInfo, cl_program, cl_program_info)
STATUS_FUNCTION(clReleaseCommandQueue, (queue), cl_command_queue queue)
STATUS_FUNCTION(clReleaseContext, (context), cl_context context)
STATUS_FUNCTION(clReleaseDevice, (device), cl_device_id device)
STATUS_FUNCTION(clReleaseEvent, (event), cl_event event)
STATUS_FUNCTION(clReleaseKernel, (kernel), cl_kernel kernel)
STATUS_FUNCTION(clReleaseMemObject, (object), cl_mem object)
STATUS_FUNCTION(clReleaseProgram, (program), cl_program program)
STATUS_FUNCTION(clRetainContext, (context), cl_context context)
STATUS_FUNCTION(clRetainDevice, (device), cl_device_id device)
STATUS_FUNCTION(clSetKernelArg, (kernel, index, size, value), cl_kernel kernel,
                cl_uint index, size_t size, const void *value)
OBJECT_FUNCTION(cl_mem, clCreateBuffer, (context, flags, size, bytes, error),
                cl_context context, cl_mem_flags flags, size_t size,
                void *bytes, cl_int *error)
OBJECT_FUNCTION(cl_command_queue, clCreateCommandQueue,
                (context, device, properties, error), cl_context context,
                cl_device_id device, cl_command_queue_properties properties,
                cl_int *error)
OBJECT_FUNCTION(cl_kernel, clCreateKernel, (program, name, error),
                cl_program program, const char *name, cl_int *error)
OBJECT_FUNCTION(cl_program, clCreateProgramWithBinary,
                (context, count, devices, sizes, binaries, statuses, error),
                cl_context context, cl_uint count, const cl_device_id *devices,
                const size_t *sizes, const unsigned char **binaries,
                cl_int *statuses, cl_int *error)
OBJECT_FUNCTION(cl_program, clCreateProgramWithSource,
                (context, count, texts, sizes, error), cl_context context,
                cl_uint count, const char **texts, const size_t *sizes,
                cl_int *error)

/* ---- What Python calls ---- */

/* The OpenCL function of that name, NULL if there is none. */
typedef any_function find_function(const char *name);

WINATTN_API const char *winattn_bind_opencl(find_function *find);

/* Takes every function from `find`, all or nothing: returns NULL, or the name
 * of the first that is missing. Not beside any other call of the library.
 * Before it, what needs OpenCL fails with CL_PLATFORM_NOT_FOUND_KHR. */
const char *winattn_bind_opencl(find_function *find)
{
    any_function found[COUNT];
    for (int i = 0; i < COUNT; i++) {
        found[i] = find(names[i]);
        if (!found[i])
            return names[i];
    }
    memcpy(bound, found, sizeof bound);
    return NULL;
}
