/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/driver.h"

#include <string.h>

#include "base/status.h"
#include "cuda/cuda.h"

static wa_cuda bound;
static const wa_cuda *driver;

const wa_cuda *wa_cuda_driver(void) { return driver; }

const char *winattn_cuda_bind(winattn_find_function *find)
{
    wa_cuda found;
#define FIND(name, symbol, parameters)                                        \
    {                                                                         \
        const winattn_any_function function = find(#symbol);                  \
        if (!function)                                                        \
            return #symbol;                                                   \
        memcpy(&found.name, &function, sizeof function);                      \
    }
    WA_CUDA_FUNCTIONS(FIND)
    bound = found;
    driver = &bound;
    return NULL;
}

winattn_status wa_cuda_check(wa_cu_result result, const char *function)
{
    const char *name = NULL;
    if (result == 0)
        return WINATTN_SUCCESS;
    if (driver->error_name(result, &name) != 0 || !name)
        name = "an error without a name";
    return wa_fail(WINATTN_DRIVER_FAILED, "%s of CUDA's driver: %s (%d)",
                   function, name, result);
}

winattn_status winattn_cuda_uuid(int ordinal, unsigned char uuid[16])
{
    wa_cu_device device;
    wa_forget_failure();
    if (!driver)
        return wa_fail(WINATTN_DRIVER_FAILED, "CUDA's driver is not there");
    WA_TRY(wa_cuda_check(driver->init(0), "cuInit"));
    WA_TRY(wa_cuda_check(driver->device(&device, ordinal), "cuDeviceGet"));
    return wa_cuda_check(driver->uuid(uuid, device), "cuDeviceGetUuid");
}
