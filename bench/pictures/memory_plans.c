/* SPDX-License-Identifier: Apache-2.0
 * Prints, as CSV, the device memory that a call needs besides the tensors
 * that its caller has, from one image to 256: what winattn's planner asks for
 * on an H200, and what the unfused way of the bench keeps. Nothing is
 * measured and no device is needed: memory.csv has the output, which a test
 * compares, and draw.py draws it.
 *
 *   memory_plans */
#include <stdio.h>

#include "base/status.h"
#include "compare/unfused.h"
#include "device/matrix_unit.h"
#include "kit/devices.h"
#include "measure/output.h"
#include "plan/planner.h"

/* Windows of one image, as the bench's cases of these names have them. */
static const struct {
    const char *name;
    int windows;
    const char *text;
} shapes[] = {
    {"swin-t-224-s1", 64,
     "heads=3 queries=49 dim=32 dtype=fp16 bias=same "
     "mask=regions mask_windows=64"},
    {"swinv2-b-w16", 16,
     "variant=cosine logit_scale=2.3 heads=4 queries=256 "
     "dim=32 dtype=fp16 bias=same mask=regions "
     "mask_windows=16"},
};
#define SHAPES (sizeof shapes / sizeof *shapes)
#define MOST_IMAGES 256

static bool with_matrix_unit(wa_device *device)
{
    for (int i = 0; i < WA_MATRIX_UNITS; i++)
        if (wa_matrix_units[i].proven &&
            wa_matrix_unit_suits(&wa_matrix_units[i], device))
            device->matrix_unit = &wa_matrix_units[i];
    return device->matrix_unit != NULL;
}

static winattn_status print_call(const wa_device *device, const char *shape,
                                 int images, const test_case *c,
                                 bench_pass pass)
{
    static const wa_exclusions none;
    wa_problem problem;
    wa_plan plan;
    winattn_desc desc = case_desc(c);
    desc.passes = WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD;
    WA_TRY(wa_problem_read(&desc, &problem));
    WA_TRY(wa_plan_make(&problem, device,
                        pass == BENCH_FORWARD ? WA_FORWARD : WA_BACKWARD,
                        &none, &plan));
    printf("%s,%d,%s,%.0f,%.0f\n", shape, images,
           pass == BENCH_FORWARD ? "forward" : "backward",
           (double)plan.workspace.all + workload_lse_bytes(c, pass),
           unfused_bytes(c, pass));
    return WINATTN_SUCCESS;
}

int main(void)
{
    wa_device device = *made_up_device("H200");
    if (!with_matrix_unit(&device))
        return 1;
    puts("shape,images,pass,winattn_bytes,unfused_bytes");
    for (size_t s = 0; s < SHAPES; s++)
        for (bench_pass pass = BENCH_FORWARD; pass <= BENCH_BACKWARD; pass++)
            for (int images = 1; images <= MOST_IMAGES; images *= 2) {
                test_case c = case_default();
                if (!case_parse(shapes[s].text, &c, NULL))
                    return 1;
                c.windows = images * shapes[s].windows;
                if (print_call(&device, shapes[s].name, images, &c, pass) !=
                    WINATTN_SUCCESS) {
                    fprintf(stderr, "%s\n", winattn_last_reason());
                    return 1;
                }
            }
    return output_end(stdout, stderr, 0);
}
