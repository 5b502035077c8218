/* SPDX-License-Identifier: Apache-2.0 */
#include "drawn_device.h"

#include "kit/devices.h"
#include "levels.h"
#include "standin.h"

const wa_device *draw_device(random_state *r)
{
    return chance(r, 85)
               ? &made_up_devices[below(r, (cl_uint)made_up_count)]
               : &standin_odd_devices[below(r, (cl_uint)standin_odd_count)];
}

/* By the options alone, so that the same program is refused again. */
static bool refuses(void *data, const char *options)
{
    unsigned sum = 2166136261u;
    for (; *options; options++)
        sum = (sum ^ (unsigned char)*options) * 16777619u;
    return sum / 64 % 100 < *(unsigned *)data;
}

bool draw_driver(random_state *r)
{
    static unsigned percent;
    if (!chance(r, 30))
        return false;
    percent = (unsigned)ONE_OF(r, 0, 0, 30, 100);
    standin_drivers.refuses = refuses;
    standin_drivers.data = &percent;
    standin_drivers.kernel_work_group = (size_t)ONE_OF(r, 0, 0, 64, 128, 1);
    standin_drivers.private_bytes = ONE_OF(r, 0, 0, 64, 200, 5000);
    standin_drivers.gives_no_binaries = chance(r, 20);
    standin_drivers.unit_is_wrong = chance(r, 20);
    return true;
}
