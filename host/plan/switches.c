/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/switches.h"

#include "base/text.h"

#define BOUNDS(name, least, most) {#name, least, most},
const wa_switch_bounds wa_switches[WA_SWITCHES] = {SWITCHES(BOUNDS)};

void wa_append_switch(char *text, size_t size, wa_switch which, uint32_t value)
{
    wa_append_option(text, size, wa_switches[which].name, value);
}

void wa_append_option(char *text, size_t size, const char *name,
                      uint32_t value)
{
    wa_append(text, size, "-D%s=%u ", name, value);
}
