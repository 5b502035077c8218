/* SPDX-License-Identifier: Apache-2.0
 * Is the library there, and of the header's version? Needs no device. */
#include <stdio.h>
#include <winattn.h>

int main(void)
{
    printf("winattn %d, %s\n", winattn_version(),
           winattn_status_name(WINATTN_INVALID_LAYOUT));
    return winattn_version() != WINATTN_VERSION;
}
