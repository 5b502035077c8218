/* SPDX-License-Identifier: Apache-2.0
 * What the rooms of the stand-in share. */
#ifndef STANDIN_INTERNAL_H
#define STANDIN_INTERNAL_H

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "kernels.h"
#include "kit/answers.h"
#include "standin.h"

/* ---- Objects (objects.c) ---- */

typedef enum object_type {
    OBJECT_CONTEXT,
    OBJECT_QUEUE,
    OBJECT_BUFFER,
    OBJECT_PROGRAM,
    OBJECT_KERNEL,
    OBJECT_EVENT,
    OBJECT_TYPES
} object_type;

/* The first member of each. One that is released for the last time stays
 * readable until standin_reset, so that whoever still uses it is found. */
typedef struct object {
    uint32_t magic;
    object_type type;
    atomic_int references;
    cl_context context; /* retained; NULL in a context */
    struct object *next_dead;
} object;

struct _cl_platform_id {
    char name[64];
    struct _cl_platform_id *next;
};

struct _cl_device_id {
    const wa_device *key; /* what the test named */
    wa_device device;
    cl_platform_id platform;
    atomic_int retained;
    struct _cl_device_id *next;
};

#define MOST_CONTEXT_DEVICES 8
struct _cl_context {
    object head;
    size_t count;
    cl_device_id devices[MOST_CONTEXT_DEVICES];
};

struct _cl_command_queue {
    object head;
    cl_device_id device;
    bool out_of_order;
};

struct _cl_mem {
    object head;
    cl_mem_flags flags;
    bool is_image;
    size_t size, origin, host;
    unsigned char *bytes; /* NULL: nobody knows */
};

/* A program's source, which records may need longer than the program. */
typedef struct shared_text {
    atomic_int users;
    char text[];
} shared_text;

struct _cl_program {
    object head;
    shared_text *source; /* NULL: from a binary */
    char *options; /* of the last build; of a binary those it was built with */
    uint64_t source_sum;
    bool is_built;
    /* its binary is PTX; the program is made of PTX that was rewritten */
    bool is_ptx, is_rewritten;
    uint64_t ptx_sum;   /* of the PTX that it was created from */
    bool is_from_cache; /* the driver's, and so without a log */
    cl_device_id built_for;
    kernel_list kernels;
};

typedef struct argument {
    bool is_set;
    size_t size;
    cl_mem buffer;
    unsigned char *bytes; /* own; NULL: a buffer */
} argument;

struct _cl_kernel {
    object head;
    cl_program program; /* retained */
    const kernel_facts *facts;
    argument arguments[STANDIN_MOST_ARGUMENTS];
};

struct _cl_event {
    object head;
};

/* Retains the context; never fails. */
void *object_new(object_type type, size_t size, cl_context context);
/* Is it a living object of that type? Else it is noted as wrong; NULL is not
 * of any type, but a caller may pass it. */
bool object_is(const void *any, object_type type, const char *function);
void object_retain(void *any);
void object_release(void *any);
bool context_has(cl_context context, cl_device_id device);
/* Are those that a command waits for alive, and as many as it says? */
bool waits_are_good(cl_uint count, const cl_event *list, const char *function);
void program_empty(cl_program program);
void programs_forget(void);
void compiled_forget(void);
void objects_forget(void);
void devices_forget(void);
long devices_retained(void); /* more often than released */

/* ---- Memory that does not count as the program's (failures.c) ---- */

void *own_calloc(size_t count, size_t size); /* never NULL */
void *own_copy(const void *bytes, size_t size);
/* A vector of `count` elements that is to take one more. */
void *own_grow(void *all, size_t count, size_t size);

/* ---- Failures (failures.c) ---- */

/* Counts a call; true if it is the one that fails, *error its code. */
bool call_fails(const char *function, cl_int usual, cl_int *error);

/* At the start of a function that returns a code, or a handle. */
#define MAY_FAIL(usual)                                                       \
    do {                                                                      \
        cl_int may_fail_error;                                                \
        if (call_fails(__func__, usual, &may_fail_error))                     \
            return may_fail_error;                                            \
    } while (0)
#define MAY_FAIL_WITH(usual, error)                                           \
    do {                                                                      \
        cl_int may_fail_error;                                                \
        if (call_fails(__func__, usual, &may_fail_error))                     \
            return fail_with(may_fail_error, error);                          \
    } while (0)

/* ---- Records (records.c) ---- */

shared_text *text_new(size_t size);   /* zeros, and one user */
void text_release(shared_text *text); /* NULL is fine */

void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
void record_build(cl_program program, cl_int result);
/* Takes copies of the arguments' bytes. */
void record_launch(const standin_launch *launch);

/* ---- PTX (ptx.c) ---- */

/* Is the binary of a program of these kernels PTX, where drivers give it? */
bool ptx_is_for(const kernel_list *kernels);
/* PTX that holds another binary; to be freed. */
char *ptx_write(const unsigned char *binary, size_t size,
                const kernel_facts *kernel, bool rewritten);
bool ptx_starts(const char *text);
/* The binary that rewritten PTX holds, to be freed; NULL if it is none. */
unsigned char *ptx_read(const char *text, size_t *size);
/* Is the rest of it as it should be? */
bool ptx_ends_well(const char *text, const kernel_facts *kernel);

/* ---- Launches (computed.c, passes.c) ---- */

void compute_pass(cl_kernel kernel);
void compute_sums(cl_kernel kernel);
void compute_table_sum(cl_kernel kernel);

/* What the kernel leaves in buffers whose bytes are known, if it is one of
 * those that the library reads results of. */
void compute(cl_kernel kernel, const wa_device *device);

#endif
