/* SPDX-License-Identifier: Apache-2.0
 * The groups of test_api, a file each. */
#ifndef DEVICE_API_H
#define DEVICE_API_H

#include "kit/runner.h"

extern const test_group api_plans, api_shapes, api_grids, api_backward,
    api_order, api_threads;

#endif
