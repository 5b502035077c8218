/* SPDX-License-Identifier: Apache-2.0
 * PTX of OpenCL's compiler, made such that CUDA's driver launches it. */
#ifndef WINATTN_MODULE_TEXT_H
#define WINATTN_MODULE_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "winattn.h"

typedef struct wa_module_text {
    char *text; /* to be freed */
    size_t size;
    uint32_t local_bytes; /* that a launch must bring */
} wa_module_text;

/* Arrays in local memory become parts of one whose size the launch says, since
 * CUDA has at most 48 KiB of others. What OpenCL's driver passes in registers
 * of its own becomes what it is for launches in one dimension without an
 * offset. Fails with WINATTN_UNSUPPORTED_DEVICE where it is no such text. */
winattn_status wa_module_text_make(const char *ptx, wa_module_text *result);

#endif
