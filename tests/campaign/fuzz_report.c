/* SPDX-License-Identifier: Apache-2.0
 * The bench's JSON files: read or refused with a reason; what was read can be
 * written, and reads the same. */
#include <string.h>
#include <unistd.h>

#include "libfuzzer.h"
#include "report/report.h"

#define SCRATCH_SIZE 64

static void check_again(const report *r, const char *path)
{
    char reason[REPORT_REASON_SIZE];
    report again;
    report_start(&again);
    EXPECT(report_write_json(r, path), path);
    EXPECT(report_read_json(&again, path, reason), reason);
    EXPECT(again.device_count == r->device_count &&
               again.row_count == r->row_count,
           "another number of devices or rows");
    for (size_t i = 0; i < r->row_count; i++)
        EXPECT(strcmp(again.rows[i].text, r->rows[i].text) == 0 &&
                   again.rows[i].device == r->rows[i].device,
               r->rows[i].text);
    report_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[SCRATCH_SIZE], reason[REPORT_REASON_SIZE] = "";
    report r;
    snprintf(path, sizeof path, "fuzz_report.%ld", (long)getpid());
    FILE *file = fopen(path, "wb");
    EXPECT(file && fwrite(data, 1, size, file) == size, path);
    EXPECT(fclose(file) == 0, path);
    report_start(&r);
    if (report_read_json(&r, path, reason)) {
        check_again(&r, path);
    } else {
        EXPECT(reason[0], "a refusal without a reason");
        EXPECT(r.device_count == 0 && r.row_count == 0,
               "a refusal that leaves something");
    }
    report_free(&r);
    unlink(path);
    return 0;
}
