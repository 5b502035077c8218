/* SPDX-License-Identifier: Apache-2.0
 * Emulated matrix units. */
#include "emulated.h"

#include <stdio.h>
#include <string.h>

#include "runner.h"

bool can_emulate(void)
{
    wa_device found;
    assert_int_equal(wa_device_query(device.id, &found), WINATTN_SUCCESS);
    if (found.breaks_barriers)
        printf("the device breaks kernels with barriers in loops\n");
    return !found.breaks_barriers;
}

wa_session *pretend_unit(void)
{
    wa_session *session;
    if (!can_emulate())
        skip();
    assert_int_equal(wa_session_acquire(device.context, device.id, &session),
                     WINATTN_SUCCESS);
    wa_device *told = (wa_device *)(size_t)wa_session_device(session);
    told->matrix_unit = wa_matrix_unit_named("mma");
    told->emulates_matrix_unit = true;
    told->is_cpu = false;
    told->loop_limit = 0;
    if (told->max_work_group > 256) /* PoCL's stack holds no more */
        told->max_work_group = 256;
    return session;
}
