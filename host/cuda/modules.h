/* SPDX-License-Identifier: Apache-2.0
 * Programs of launch lists as CUDA's driver has them. Calls of the same
 * program share it. */
#ifndef WINATTN_MODULES_H
#define WINATTN_MODULES_H

#include <stdbool.h>

#include "cuda/driver.h"

typedef struct wa_module wa_module;

/* The program on a device whose context is the current one; the driver keeps
 * what it compiled. What a kernel for Hopper must not have in the compiler's
 * log (wa_ptx_check_log) refuses it. */
winattn_status wa_module_acquire(wa_cu_device device,
                                 const winattn_launch_program *program,
                                 wa_module **module);
/* The device's context must be current. NULL is fine. */
void wa_module_release(wa_module *module);

/* A kernel of it, and the bytes of local memory that a launch must bring. */
winattn_status wa_module_function(const wa_module *module, const char *name,
                                  wa_cu_function *function,
                                  uint32_t *local_bytes);

/* Have its kernels been compared with others? Whether one more thread does it
 * does not matter. */
bool wa_module_is_trusted(const wa_module *module);
void wa_module_trust(wa_module *module);

#endif
