/* SPDX-License-Identifier: Apache-2.0
 * Lists of launches: what kernels are told is kept until a launch takes it. */
#include "launch/list.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "program/program.h"

#define MOST_ARGUMENTS 24
#define NAME_SIZE 64
#define TABLES 3 /* of wa_table_buffers */
#define MOST_ALIGNMENT 16

/* Memory that goes with the list. */
typedef struct block {
    struct block *next;
} block;

/* A kernel, and what it was told last. */
typedef struct told_kernel {
    cl_kernel kernel;
    char name[NAME_SIZE];
    cl_uint program, argument_count;
    winattn_argument arguments[MOST_ARGUMENTS];
} told_kernel;

struct winattn_launch_list {
    block *blocks;
    block *bulk; /* of programs and tables */
    winattn_launch *launches;
    size_t launch_count;
    winattn_launch_program programs[WA_STEPS];
    size_t program_count;
    winattn_launch_table tables[TABLES];
    size_t table_count;
    /* of each tensor its bytes, and in place of its address what must divide
     * that; 0: it is not given */
    winattn_memory needed[WINATTN_TENSORS];

    /* While it is made; the address of a handle stands for a buffer. */
    cl_context context;
    cl_device_id device;
    char handles[WINATTN_TENSORS];
    told_kernel told[WA_STEPS];
    size_t told_count;
    cl_program built[WA_STEPS]; /* programs as OpenCL knows them, */
    cl_mem buffers[TABLES];     /* and tables */
};

_Static_assert((int)WINATTN_TENSOR_D_PAD_V == (int)WA_D_PAD_V,
               "tensors have other numbers");
_Static_assert((int)WINATTN_TENSOR_WORKSPACE == (int)WA_TENSORS,
               "the workspace is not the last tensor");

winattn_launch_list *wa_list_create(cl_context context, cl_device_id device)
{
    winattn_launch_list *list = calloc(1, sizeof *list);
    if (list) {
        list->context = context;
        list->device = device;
    }
    return list;
}

static void free_blocks(block **blocks)
{
    while (*blocks) {
        block *next = (*blocks)->next;
        free(*blocks);
        *blocks = next;
    }
}

void winattn_launch_list_destroy(winattn_launch_list *list)
{
    if (!list)
        return;
    wa_list_drop_bulk(list);
    free_blocks(&list->blocks);
    free(list->launches);
    free(list);
}

void wa_list_drop_bulk(winattn_launch_list *list)
{
    free_blocks(&list->bulk);
    list->program_count = list->table_count = 0;
}

/* NULL: out of memory. */
static void *allocate(block **blocks, size_t size)
{
    block *b = malloc(sizeof *b + size);
    if (!b)
        return NULL;
    b->next = *blocks;
    *blocks = b;
    return b + 1;
}

/* ---- Tensors ---- */

static void place(winattn_launch_list *list, int id, const winattn_memory *at,
                  uint64_t bytes, winattn_tensor *tensor)
{
    const uint64_t divided = at->address | MOST_ALIGNMENT;
    if (at->address == 0)
        return;
    tensor->buffer = (cl_mem)(void *)&list->handles[id];
    list->needed[id].address = divided & (~divided + 1);
    list->needed[id].bytes = bytes;
}

void wa_list_place(winattn_launch_list *list, const wa_problem *problem,
                   uint64_t workspace_bytes, const winattn_memory *memory,
                   wa_buffers *buffers)
{
    buffers->memory = memory;
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++) {
        const wa_tensor *tensor = &problem->tensor[id];
        place(list, id, &memory[id], tensor->span * tensor->element_size,
              &buffers->tensor[id]);
    }
    if (workspace_bytes) /* else one may be given, as of calls */
        place(list, WINATTN_TENSOR_WORKSPACE,
              &memory[WINATTN_TENSOR_WORKSPACE], workspace_bytes,
              &buffers->workspace);
}

static const char *name_of(int id)
{
    return id == WINATTN_TENSOR_WORKSPACE ? "workspace"
                                          : wa_tensor_name((wa_tensor_id)id);
}

winattn_status winattn_launch_list_check(const winattn_launch_list *list,
                                         const winattn_memory *memory)
{
    wa_forget_failure();
    WA_WANT(list, "list");
    WA_WANT(memory, "memory");
    for (int id = 0; id < WINATTN_TENSORS; id++) {
        const winattn_memory *needed = &list->needed[id], *at = &memory[id];
        if (!needed->address && id == WINATTN_TENSOR_WORKSPACE)
            continue;
        if ((needed->address == 0) != (at->address == 0))
            return wa_fail(WINATTN_INVALID_ARGUMENT,
                           "%s is %s, other than when the list was made",
                           name_of(id), at->address ? "given" : "missing");
        if (at->bytes < needed->bytes)
            return wa_fail(WINATTN_BUFFER_TOO_SMALL,
                           "%s needs %llu bytes, but has %llu", name_of(id),
                           (unsigned long long)needed->bytes,
                           (unsigned long long)at->bytes);
        if (needed->address && at->address % needed->address != 0)
            return wa_fail(WINATTN_INVALID_LAYOUT,
                           "the address of %s is no multiple of %llu, as it "
                           "was when the list was made",
                           name_of(id), (unsigned long long)needed->address);
    }
    return WINATTN_SUCCESS;
}

/* ---- Programs and tables ---- */

static winattn_status read_options(winattn_launch_list *list,
                                   cl_program program, const char **options)
{
    size_t size = 0;
    WA_TRY(WA_CL(clGetProgramBuildInfo, program, list->device,
                 CL_PROGRAM_BUILD_OPTIONS, 0, NULL, &size));
    char *text = allocate(&list->bulk, size + 1);
    WA_TRY_MEMORY(text);
    text[size] = 0;
    *options = text;
    return WA_CL(clGetProgramBuildInfo, program, list->device,
                 CL_PROGRAM_BUILD_OPTIONS, size, text, NULL);
}

static winattn_status read_binary(winattn_launch_list *list,
                                  cl_program program,
                                  winattn_launch_program *to)
{
    unsigned char *binary;
    WA_TRY(wa_program_binary(program, list->device, &binary, &to->size));
    if (!binary)
        return wa_fail(WINATTN_UNSUPPORTED_DEVICE,
                       "the driver gives no binaries of programs");
    char *own = allocate(&list->bulk, to->size + 1);
    if (own) {
        memcpy(own, binary, to->size);
        own[to->size] = 0; /* where it is a text */
    }
    to->binary = own;
    free(binary);
    return own ? WINATTN_SUCCESS : wa_fail_memory();
}

static winattn_status find_program(winattn_launch_list *list,
                                   cl_program program, cl_uint *number)
{
    winattn_launch_program *to = &list->programs[list->program_count];
    for (*number = 0; *number < list->program_count; ++*number)
        if (list->built[*number] == program)
            return WINATTN_SUCCESS;
    to->struct_size = sizeof *to;
    WA_TRY(read_options(list, program, &to->options));
    WA_TRY(read_binary(list, program, to));
    list->built[list->program_count++] = program;
    return WINATTN_SUCCESS;
}

static winattn_status read_buffer(const winattn_launch_list *list,
                                  cl_mem buffer, size_t size, void *bytes)
{
    cl_int error;
    cl_command_queue queue =
        clCreateCommandQueue(list->context, list->device, 0, &error);
    if (error != CL_SUCCESS)
        return wa_fail_cl(error, "clCreateCommandQueue");
    error = clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, size, bytes, 0,
                                NULL, NULL);
    clReleaseCommandQueue(queue);
    return wa_cl_status(error, "clEnqueueReadBuffer");
}

static winattn_status find_table(winattn_launch_list *list, cl_mem buffer,
                                 cl_uint *number)
{
    winattn_launch_table *to = &list->tables[list->table_count];
    for (*number = 0; *number < list->table_count; ++*number)
        if (list->buffers[*number] == buffer)
            return WINATTN_SUCCESS;
    WA_TRY(WA_CL(clGetMemObjectInfo, buffer, CL_MEM_SIZE, sizeof to->size,
                 &to->size, NULL));
    void *bytes = allocate(&list->bulk, to->size);
    WA_TRY_MEMORY(bytes);
    WA_TRY(read_buffer(list, buffer, to->size, bytes));
    to->struct_size = sizeof *to;
    to->bytes = bytes;
    list->buffers[list->table_count++] = buffer;
    return WINATTN_SUCCESS;
}

/* ---- Launches ---- */

static winattn_status find_kernel(winattn_launch_list *list, cl_kernel kernel,
                                  told_kernel **result)
{
    for (size_t i = 0; i < list->told_count; i++)
        if (list->told[i].kernel == kernel) {
            *result = &list->told[i];
            return WINATTN_SUCCESS;
        }
    told_kernel *told = &list->told[list->told_count];
    cl_program program = NULL;
    WA_TRY(WA_CL(clGetKernelInfo, kernel, CL_KERNEL_PROGRAM, sizeof program,
                 &program, NULL));
    WA_TRY(WA_CL(clGetKernelInfo, kernel, CL_KERNEL_FUNCTION_NAME,
                 sizeof told->name, told->name, NULL));
    WA_TRY(find_program(list, program, &told->program));
    told->kernel = kernel;
    list->told_count++;
    *result = told;
    return WINATTN_SUCCESS;
}

static winattn_status tell(winattn_launch_list *list, cl_kernel kernel,
                           cl_uint index, const winattn_argument *argument)
{
    told_kernel *told = NULL;
    WA_TRY(find_kernel(list, kernel, &told));
    told->arguments[index] = *argument;
    if (index >= told->argument_count)
        told->argument_count = index + 1;
    return WINATTN_SUCCESS;
}

winattn_status wa_list_set(winattn_launch_list *list, cl_kernel kernel,
                           cl_uint index, size_t size, const void *value)
{
    void *bytes = allocate(&list->blocks, size);
    const winattn_argument argument = {WINATTN_ARGUMENT_BYTES, 0, size, bytes};
    WA_TRY_MEMORY(bytes);
    memcpy(bytes, value, size);
    return tell(list, kernel, index, &argument);
}

winattn_status wa_list_set_buffer(winattn_launch_list *list, cl_kernel kernel,
                                  cl_uint index, cl_mem buffer)
{
    static const cl_ulong nowhere = 0;
    winattn_argument argument = {WINATTN_ARGUMENT_TENSOR, 0, sizeof nowhere,
                                 NULL};
    if (!buffer)
        return wa_list_set(list, kernel, index, sizeof nowhere, &nowhere);
    while (argument.index < WINATTN_TENSORS &&
           (cl_mem)(void *)&list->handles[argument.index] != buffer)
        argument.index++;
    if (argument.index == WINATTN_TENSORS) {
        argument.kind = WINATTN_ARGUMENT_TABLE;
        WA_TRY(find_table(list, buffer, &argument.index));
    }
    return tell(list, kernel, index, &argument);
}

winattn_status wa_list_append(winattn_launch_list *list, cl_kernel kernel,
                              uint64_t groups, size_t group)
{
    told_kernel *told = NULL;
    WA_TRY(find_kernel(list, kernel, &told));
    const size_t size = told->argument_count * sizeof *told->arguments;
    winattn_argument *arguments = allocate(&list->blocks, size);
    winattn_launch *longer =
        realloc(list->launches, (list->launch_count + 1) * sizeof *longer);
    if (longer)
        list->launches = longer;
    if (!longer || !arguments)
        return wa_fail_memory();
    memcpy(arguments, told->arguments, size);
    list->launches[list->launch_count++] =
        (winattn_launch){.struct_size = sizeof *longer,
                         .kernel = told->name,
                         .program = told->program,
                         .work_group = (cl_uint)group,
                         .groups = groups,
                         .argument_count = told->argument_count,
                         .arguments = arguments};
    return WINATTN_SUCCESS;
}

/* ---- What others read ---- */

const winattn_launch *
winattn_launch_list_launch(const winattn_launch_list *list, size_t i)
{
    return list && i < list->launch_count ? &list->launches[i] : NULL;
}

const winattn_launch_program *
winattn_launch_list_program(const winattn_launch_list *list, size_t i)
{
    return list && i < list->program_count ? &list->programs[i] : NULL;
}

const winattn_launch_table *
winattn_launch_list_table(const winattn_launch_list *list, size_t i)
{
    return list && i < list->table_count ? &list->tables[i] : NULL;
}
