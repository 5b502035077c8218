/* SPDX-License-Identifier: Apache-2.0
 * Emulated matrix units. */
#include "emulated.h"

#include "runner.h"

wa_session *pretend_unit(void)
{
    wa_session *session;
    if (!keeps_barriers())
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
