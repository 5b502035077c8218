/* SPDX-License-Identifier: Apache-2.0
 * Which program reports say that they are of, here where no bench wrote them.
 */
#include "report/report.h"

const char *const report_version = "0.0.0";
const char *const report_commit = "";
