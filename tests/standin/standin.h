/* SPDX-License-Identifier: Apache-2.0
 * A stand-in for OpenCL: the functions of OpenCL that the library calls, on
 * devices that are made up. A test program is linked with it in place of
 * libOpenCL (CMakeLists.txt, add_standin_program), so it can plan for, build
 * for and enqueue on GPUs that nobody here owns, look at what was asked of
 * them, and make any call fail.
 *
 *   standin_device   wa_device -> cl_device_id that answers like it
 *   standin_context, standin_queue, standin_buffer, standin_event
 *                    what a caller of the library owns; they count as objects,
 *                    but not as calls, and never fail
 *   standin_builds, standin_launches   what was asked
 *   standin_wrong    what no driver would have let pass
 *   standin_alive    what was not released
 *   standin_fail_*   the n-th call or allocation fails
 *   standin_reset    back to the start
 *
 * It computes nothing but what the library reads back: probes
 * (host/session/probe.c) and the self-test of matrix units (self_test.c). What
 * kernels leave that are compared with each other (family_check.c) is made up.
 * Launches are complete when they are enqueued. Buffers have a size but no
 * memory, unless they were made from the caller's bytes.
 *
 * Threads: objects are those of OpenCL, so what it says of threads holds. What
 * is recorded and what fails belongs to the calling thread, which calls
 * standin_forget before it ends. No lock is taken, so that ThreadSanitizer
 * sees the library's own order of things. */
#ifndef STANDIN_H
#define STANDIN_H

#include <stdbool.h>
#include <stddef.h>

#include "device/device.h"
#include "problem/problem.h"

/* ---- Devices ------------------------------------------------------------ */

/* A device that answers so that wa_device_query and wa_probe_device find all
 * numbers of `device` again; what the driver reports wrongly, it reports
 * wrongly too. Its platform has the device's name of one, or else the vendor's
 * usual one. The same id for the same pointer, until standin_reset. Not for
 * two threads at once. */
cl_device_id standin_device(const wa_device *device);

/* Devices that no test of plans has: the least and the most that a driver may
 * say. Not all of them can be used. */
extern const wa_device standin_odd_devices[];
extern const size_t standin_odd_count;

/* What drivers do, for all devices; zeros: nothing special. Not to be changed
 * while another thread is in a call. */
typedef struct standin_driver {
    /* CL_KERNEL_WORK_GROUP_SIZE; 0: the device's */
    size_t kernel_work_group;
    cl_ulong private_bytes; /* CL_KERNEL_PRIVATE_MEM_SIZE */
    /* Does the compiler refuse? NULL: only what declares too much local
     * memory, as real ones do. */
    bool (*refuses)(void *data, const char *options);
    void *data;
    bool gives_no_binaries; /* their size is 0 */
    bool refuses_binaries;  /* CL_INVALID_BINARY, even where sound */
    bool unit_is_wrong;     /* the self-test finds a wrong sum */
    bool gives_ptx;         /* as binaries of kernels with wgmma */
    /* Their self-test finds a wrong number in this output; 0: in none. */
    wa_tensor_id wgmma_wrong;
    bool wgmma_wrong_if_shifted; /* and where tensors are aligned, in none */
    bool wgmma_wrong_by_maps;    /* and where they come otherwise, in none */
    /* Of builds; NULL: a line of no meaning. PTX that was compiled before,
     * since standin_reset, comes from the driver's cache and has none. */
    const char *log;
    const char *log_of; /* it is this kernel's alone; NULL: of all */
    bool yields;        /* others run during builds and between arguments */
    unsigned long most_launches; /* then CL_OUT_OF_RESOURCES; 0: no limit */
} standin_driver;
extern standin_driver standin_drivers;

/* ---- The caller's objects ----------------------------------------------- */

/* To be released by the functions of OpenCL. */
cl_context standin_context(size_t count, const cl_device_id *devices);
cl_command_queue standin_queue(cl_context context, cl_device_id device,
                               bool out_of_order);
/* Of any size: there is no memory behind it. */
cl_mem standin_buffer(cl_context context, cl_mem_flags flags, size_t bytes);
/* So, of memory that starts `origin` bytes behind a buffer's, or at `host`. */
cl_mem standin_part(cl_context context, cl_mem_flags flags, size_t bytes,
                    size_t origin, size_t host);
cl_mem standin_image(cl_context context);
cl_event standin_event(cl_context context); /* complete */

/* ---- What was asked ----------------------------------------------------- */

/* A call of clBuildProgram. */
typedef struct standin_build {
    const char *source; /* all texts; NULL: from a binary */
    const char *options;
    const char *kernel; /* its first one; NULL: it has none */
    cl_int result;
} standin_build;

typedef struct standin_argument {
    size_t size;
    cl_mem buffer;              /* NULL: none, or no buffer */
    const unsigned char *bytes; /* NULL: a buffer */
} standin_argument;

#define STANDIN_MOST_ARGUMENTS 32
#define STANDIN_MOST_WAITS 8

typedef struct standin_launch {
    const char *kernel;
    const char *options; /* of its program */
    cl_command_queue queue;
    size_t offset, global, local;
    size_t local_bytes; /* that the kernel declares */
    cl_uint wait_count; /* in all; the first of them are kept */
    cl_event waits[STANDIN_MOST_WAITS];
    cl_event event; /* NULL: not asked for */
    cl_uint argument_count;
    standin_argument arguments[STANDIN_MOST_ARGUMENTS];
} standin_launch;

/* What this thread did since standin_forget; element [0] is the first. Valid
 * until this thread's next call of the library. */
size_t standin_builds(const standin_build **builds);
size_t standin_launches(const standin_launch **launches);
void standin_forget(void);

/* Calls of clCreateProgramWithBinary since the start, by all threads: with
 * bytes that the stand-in gave out for the same device, and with others. */
typedef struct standin_binaries {
    unsigned long sound, damaged;
} standin_binaries;
standin_binaries standin_binaries_given(void);

/* ---- What is wrong ------------------------------------------------------ */

/* The first thing, since standin_reset, that a driver need not survive: a
 * dead or foreign handle, an argument that is missing or of another size than
 * the kernel's, a launch that the device cannot run, a release too many; and
 * how often that was. NULL: nothing. Each is also printed to standard
 * error, unless standin_quiet is set. */
const char *standin_wrong(unsigned long *count);
extern bool standin_quiet;

/* "2 kernels, 1 program", or NULL: all objects were released, by anybody. */
const char *standin_alive(void);

/* Forgets devices and objects, what was recorded, wrong and to fail; the
 * driver is as at first. No other thread may be in a call. */
void standin_reset(void);

/* ---- Failures ----------------------------------------------------------- */

/* The calling thread's n-th call from now on (1: the next) of this function
 * ("clBuildProgram"), or of any if it is NULL, fails with this error, or with
 * the function's usual one if that is 0. It is done once; nothing else of that
 * call happens. clRelease... never fails and is not counted. */
void standin_fail_call(const char *function, unsigned long n, cl_int error);

/* The calling thread's n-th malloc, calloc or realloc from now on gives
 * NULL. All of the program's own code is meant, also the test's; what other
 * libraries allocate is not. */
void standin_fail_allocation(unsigned long n);

/* Both at an end. Counts start from here, or from the last of the two above.
 */
void standin_fail_nothing(void);

/* Counted since then. A run that needs fewer than n has seen every one fail.
 */
unsigned long standin_allocations(void);

/* The function whose call failed since then, "malloc" and so on for an
 * allocation; NULL: nothing has failed yet. */
const char *standin_failed(void);

/* More bytes at once than this are never had; the start: 256 MiB. */
extern size_t standin_most_bytes;

#endif
