/* SPDX-License-Identifier: Apache-2.0
 * Opens and closes places. */
#include "place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kit/devices.h"

place open_place(const char *device)
{
    place p;
    standin_reset();
    p.id = standin_device(made_up_device(device));
    p.context = standin_context(1, &p.id);
    return p;
}

void close_place(const place *p)
{
    clReleaseContext(p->context);
    assert_null(standin_alive());
    assert_null(standin_wrong(NULL));
}
