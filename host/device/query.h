/* SPDX-License-Identifier: Apache-2.0
 * Questions to devices and platforms. An answer that does not come is a
 * failure of the call that asked: it says nothing of the device. */
#ifndef WINATTN_QUERY_H
#define WINATTN_QUERY_H

#include "winattn.h"

/* What every device knows. */
winattn_status wa_query(cl_device_id id, cl_device_info what, size_t size,
                        void *value);

/* What only some vendors or versions know: where the device does not,
 * *value stays as it is. */
winattn_status wa_query_if_known(cl_device_id id, cl_device_info what,
                                 size_t size, void *value);

/* Texts, to be freed. */
winattn_status wa_query_text(cl_device_id id, cl_device_info what,
                             char **text);
winattn_status wa_query_platform_text(cl_platform_id id, cl_platform_info what,
                                      char **text);

#endif
