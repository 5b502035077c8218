/* SPDX-License-Identifier: Apache-2.0
 * What winattn-swin does with pictures. */
#ifndef SWIN_CLASSIFY_H
#define SWIN_CLASSIFY_H

#include "swin/class_names.h"
#include "swin/runner.h"

/* Prints the best classes of each picture, and writes maps where they are
 * wanted. False: something failed and was said, though not for all. */
bool classify(const options *o, const swin_device *device,
              const winattn_swin_weights *weights,
              const winattn_swin_config *config, const class_names *names);

#endif
