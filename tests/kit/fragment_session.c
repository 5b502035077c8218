/* SPDX-License-Identifier: Apache-2.0 */
#include "fragment_session.h"

#include "runner.h"

bool has_fragments(int dtype)
{
    const wa_matrix_unit *unit = device_unit();
    return unit && (dtype != WINATTN_FP32 || unit->has_tf32);
}

wa_session *fragment_session(void)
{
    static wa_matrix_unit unit;
    wa_session *session;
    if (!has_fragments(WINATTN_FP16))
        skip();
    assert_int_equal(wa_session_acquire(device.context, device.id, &session),
                     WINATTN_SUCCESS);
    wa_device *told = (wa_device *)(size_t)wa_session_device(session);
    unit = *told->matrix_unit;
    unit.proven = true;
    told->matrix_unit = &unit;
    told->ignores_special = true;
    return session;
}
