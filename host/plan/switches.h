/* SPDX-License-Identifier: Apache-2.0
 * The switches that kernels are built with (cl/common/switches.h says what
 * they mean), as -D options. The host sends no others. */
#ifndef WINATTN_PLAN_SWITCHES_H
#define WINATTN_PLAN_SWITCHES_H

#include <stddef.h>
#include <stdint.h>

#include "../cl/common/switches.h"
#include "base/sister.h"

#define WA_SWITCH(name) WA_SWITCH_##name
#define WA_DECLARE_SWITCH(name, least, most) WA_SWITCH_##name,
typedef enum wa_switch { SWITCHES(WA_DECLARE_SWITCH) WA_SWITCHES } wa_switch;
#undef WA_DECLARE_SWITCH
/* Of what has none. */
#define WA_NO_SWITCH WA_SWITCHES

typedef struct wa_switch_bounds {
    const char *name;
    uint32_t least, most; /* that kernels take */
} wa_switch_bounds;
extern const wa_switch_bounds wa_switches[WA_SWITCHES];

/* Appends "-Dname=value ". */
void wa_append_switch(char *text, size_t size, wa_switch which,
                      uint32_t value);
/* The same of a switch by its name, of those that the sister has. */
WA_SISTER void wa_append_option(char *text, size_t size, const char *name,
                                uint32_t value);

#endif
