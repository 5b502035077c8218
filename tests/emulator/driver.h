/* SPDX-License-Identifier: Apache-2.0
 * An OpenCL driver whose devices are GPUs in software, those of
 * driver_table.c. OpenCL's loader finds it as it finds others, so whatever
 * runs on a device runs on them unchanged; by hand, in a build folder:
 *
 *   OCL_ICD_VENDORS=$PWD/tests/emulator/vendors WINATTN_TEST_DEVICE=gfx1100 \
 *       tests/check "windows=2 queries=9 dim=8 tier=local"
 *
 * Programs are compiled to PTX by clang (offline/to_ptx), whatever the vendor,
 * which is also what programs give as their binaries and are made from, as on
 * NVIDIA's driver. What other vendors' compilers know is declared in
 * prelude/. ptx.h runs it. Without clang and libclc there is no device. It has
 * the functions and the answers that somebody here asks for, no more.
 *
 * Buffers are memory of the host, filled with NaNs. A kernel can reach those
 * that it has as arguments, and nothing else; if it tries to, the launch fails
 * with CL_OUT_OF_RESOURCES and the reason goes to standard error.
 *
 * Commands run in the thread that enqueues them, at once unless something that
 * they wait for is not done; then in the thread that does it. Programs can be
 * built, and commands of several queues run, beside each other. */
#ifndef TESTS_EMULATOR_DRIVER_H
#define TESTS_EMULATOR_DRIVER_H

#include <CL/cl_icd.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "common.h"
#include "kit/answers.h"

#define ADDRESS_ALIGN 512u /* of buffers, in bytes */

/* ---- Objects (driver_objects.c) ---- */

typedef enum object_type {
    OBJECT_CONTEXT,
    OBJECT_QUEUE,
    OBJECT_BUFFER,
    OBJECT_PROGRAM,
    OBJECT_KERNEL,
    OBJECT_EVENT
} object_type;

/* The first member of each. */
typedef struct object {
    const cl_icd_dispatch *dispatch; /* where the loader looks for it */
    object_type type;
    atomic_int references;
    cl_context context; /* retained; NULL in a context */
} object;

struct _cl_platform_id {
    const cl_icd_dispatch *dispatch;
};

/* What drivers say of such a device, and what its compiler is told. */
struct _cl_device_id {
    const cl_icd_dispatch *dispatch;
    const char *like;    /* of kit/devices.h, whose numbers it has */
    const wa_device *is; /* that one; known once platforms are */
    const char *name, *extensions;
    const char *uuid;        /* NULL: it has none */
    const char *options;     /* for clang */
    const char *prelude;     /* of the folder of that name; NULL: none */
    cl_uint parameter_bytes; /* that a kernel may have */
};

struct _cl_context {
    object head;
    cl_device_id device;
};

struct _cl_command_queue {
    object head;
    cl_command_queue_properties properties;
    atomic_bool failed; /* a launch of it did */
};

struct _cl_mem {
    object head;
    cl_mem_flags flags;
    size_t size;
    void *host; /* what the caller gave to be used, or NULL */
    unsigned char *bytes;
};

struct _cl_program {
    object head;
    char *source; /* NULL: from a binary */
    char *ptx;    /* NULL: not compiled yet */
    char *options, *log;
    cl_build_status status;
    ptx_module *module; /* NULL: not built */
    atomic_uint kernels;
};

struct _cl_kernel {
    object head;
    cl_program program; /* retained */
    const ptx_kernel *code;
    unsigned char *parameters;
    cl_mem *buffers; /* of each parameter; not retained */
    bool *is_set;
};

struct _cl_event {
    object head;
    cl_command_queue queue; /* retained; NULL: a user's event */
    cl_int status;          /* guarded by the lock of driver_commands.c */
    cl_ulong ran[2];        /* from when till when, in ns; likewise */
};

extern struct _cl_platform_id driver_platform;
extern struct _cl_device_id driver_devices[];
extern const cl_uint driver_device_count;
extern const cl_icd_dispatch driver_dispatch;

bool device_is(cl_device_id device);

/* Zeros but for its head; retains the context. NULL: out of memory. */
void *object_new(object_type type, size_t size, cl_context context);
bool object_is(const void *any, object_type type);
void object_retain(void *any);
void object_release(void *any); /* NULL is fine */
/* What belongs to an object that goes. */
void buffer_free(cl_mem gone);
void program_free(cl_program gone);
void kernel_free(cl_kernel gone);

/* ---- Commands (driver_commands.c) ---- */

/* The first member of what runs later, perhaps. */
typedef struct command {
    struct command *next;
    cl_event event; /* retained, as all in here */
    cl_uint wait_count;
    cl_event *waits;
    bool waits_for_all; /* before it in its queue */
    cl_int (*run)(struct command *self);
    void (*forget)(struct command *self); /* releases what is of its own */
} command;

/* What all that enqueue check: queue and list of events. */
cl_int command_check(cl_command_queue queue, cl_uint wait_count,
                     const cl_event *waits);
/* Zeros behind the first member; NULL: out of memory. */
void *command_new(size_t size, cl_command_queue queue, cl_uint wait_count,
                  const cl_event *waits);
/* One that was not enqueued. */
void command_drop(command *gone);
/* Takes the command. `event`: NULL, or gets one. */
cl_int command_enqueue(command *one, bool blocking, cl_event *event);

/* ---- Compiler (driver_compiler.c) ---- */

bool compiler_is_there(void);
/* To be freed; NULL: not there, or no memory. */
char *read_file(const char *path);
/* PTX, to be freed; NULL: it does not compile. What the compiler says is
 * *log, to be freed, or NULL. */
char *compile(cl_device_id device, const char *source, const char *options,
              char **log);

/* ---- PTX that is kept (driver_cache.c) ---- */

/* `parts`: all that it depends on, and NULL behind. Gives what is to be freed;
 * NULL: none is kept. */
char *cache_find(const char *const *parts);
void cache_keep(const char *const *parts, const char *ptx);

#endif
