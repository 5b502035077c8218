/* SPDX-License-Identifier: Apache-2.0
 * Launches that are written down instead of enqueued
 * (winattn_launch_list). */
#ifndef WINATTN_LIST_H
#define WINATTN_LIST_H

#include "launch/launch.h"

/* An empty list, of programs and tables of this context and device. NULL: out
 * of memory. */
winattn_launch_list *wa_list_create(cl_context context, cl_device_id device);

/* Tensors in memory that OpenCL does not know: handles that stand for them,
 * at offset 0, for who then writes down launches; and how large and aligned
 * they must be from then on. */
void wa_list_place(winattn_launch_list *list, const wa_problem *problem,
                   uint64_t workspace_bytes, const winattn_memory *memory,
                   wa_buffers *buffers);

/* What wa_chain_set, wa_chain_set_buffer and wa_chain_append do, to a list. */
winattn_status wa_list_set(winattn_launch_list *list, cl_kernel kernel,
                           cl_uint index, size_t size, const void *value);
winattn_status wa_list_set_buffer(winattn_launch_list *list, cl_kernel kernel,
                                  cl_uint index, cl_mem buffer);
winattn_status wa_list_append(winattn_launch_list *list, cl_kernel kernel,
                              uint64_t groups, size_t group);

/* Programs and tables go, once another runtime has them. */
void wa_list_drop_bulk(winattn_launch_list *list);

#endif
