/* SPDX-License-Identifier: Apache-2.0
 * Launch lists (winattn_launch_list) through CUDA's driver, on streams and
 * memory of its own. The package for Python calls this; the functions have no
 * stable interface. */
#ifndef WINATTN_CUDA_H
#define WINATTN_CUDA_H

#include "winattn.h"

/* A function of libcuda of that name, NULL if there is none. */
typedef void (*winattn_any_function)(void);
typedef winattn_any_function winattn_find_function(const char *name);

/* Takes every function of CUDA's driver from `find`, all or nothing: returns
 * NULL, or the name of the first that is missing. Not beside any other call of
 * this header. Before it, they fail. */
WINATTN_API const char *winattn_cuda_bind(winattn_find_function *find);

/* The UUID of CUDA's device of that number; OpenCL's device has the same
 * (CL_DEVICE_UUID_KHR). */
WINATTN_API winattn_status winattn_cuda_uuid(int ordinal,
                                             unsigned char uuid[16]);

/* A call on a device: its programs are loaded, its tables lie there. */
typedef struct winattn_cuda_call winattn_cuda_call;

/* Can programs be compiled and memory be taken? Fails while the stream is
 * being captured. Ask before a plan is made. */
WINATTN_API winattn_status winattn_cuda_check_stream(int ordinal,
                                                     void *stream);

/* A call of the plan as winattn_launch_list_create describes it. The plan,
 * whose device must be the same, is not needed any more then. Kernels that are
 * compared with plain ones before OpenCL takes them are compared once more
 * through CUDA. Fails where winattn_cuda_check_stream does. On failure *call
 * is NULL. */
WINATTN_API winattn_status winattn_cuda_call_create(
    int ordinal, const winattn_plan *plan, cl_bitfield pass,
    const winattn_memory *memory, cl_bitfield accumulate, void *stream,
    winattn_cuda_call **call);

/* Nothing of it may be under way. NULL is fine. */
WINATTN_API void winattn_cuda_call_destroy(winattn_cuda_call *call);

/* Launches all of it on the stream (NULL: the default one), which may be
 * captured. The addresses must be of the same tensors as when the call was
 * made, as large and as aligned: that is not checked here, in the way of each
 * call, and `bytes` are not read. Several threads may use it at once. */
WINATTN_API winattn_status winattn_cuda_call_launch(
    const winattn_cuda_call *call, const winattn_memory *memory, void *stream);

#endif
