/* SPDX-License-Identifier: Apache-2.0
 * winattn_load_tuning: a text is taken or refused with the number of a line;
 * plans that may use its rows launch nothing illegal. */
#include <string.h>

#include "fuzz.h"
#include "kit/devices.h"
#include "plan/tuning.h"
#include "standin.h"

void add_first_inputs(void)
{
    add_text("# a comment\n\nlocal-forward \"H200\" any any any any any 32 "
             "49:49:64:1:49:32:7:7:7:1\n");
    add_text("local-backward AMD 0 dot half bias 49 49 32 "
             "49:49:64:32:4:4:2:1:1:2\n");
    add_text("matrix-backward NVIDIA 80 any any none any any 32 "
             "16:4:2:2:64:1:1:16:16:16:4:2:2:64:0\n");
    for (int i = 0; i < WA_BUILT_IN_ROWS; i++)
        add_text(wa_built_in_rows[i]);
}

/* All tensors of the problems below. */
static void call(winattn_plan *plan, cl_context context, cl_device_id id)
{
    const cl_command_queue queue = standin_queue(context, id, true);
    const winattn_tensor at = {
        standin_buffer(context, CL_MEM_READ_WRITE, (size_t)1 << 40), 0};
    const winattn_forward forward = {.struct_size = sizeof forward,
                                     .q = at,
                                     .k = at,
                                     .v = at,
                                     .bias = at,
                                     .o = at,
                                     .workspace = at};
    const winattn_backward backward = {.struct_size = sizeof backward,
                                       .q = at,
                                       .k = at,
                                       .v = at,
                                       .bias = at,
                                       .d_o = at,
                                       .dq = at,
                                       .dk = at,
                                       .dv = at,
                                       .dbias = at,
                                       .workspace = at};
    EXPECT(winattn_enqueue_forward(plan, queue, &forward, 0, NULL, NULL) == 0,
           winattn_last_reason());
    EXPECT(winattn_enqueue_backward(plan, queue, &backward, 0, NULL, NULL) ==
               0,
           winattn_last_reason());
    clReleaseMemObject(at.buffer);
    clReleaseCommandQueue(queue);
}

/* One of four, since plans take longer than texts. */
static void make_plan(unsigned which)
{
    static const char *const names[] = {"H200", "gfx1100 (RX 7900 XTX)"};
    const bool is_half = which % 2 == 1;
    const cl_device_id id =
        standin_device(made_up_device(names[which / 2 % 2]));
    const cl_context context = standin_context(1, &id);
    const winattn_desc desc = {.struct_size = sizeof desc,
                               .variant =
                                   is_half ? WINATTN_COSINE : WINATTN_DOT,
                               .dtype = is_half ? WINATTN_FP16 : WINATTN_FP32,
                               .windows = 5,
                               .heads = 2,
                               .queries = 49,
                               .keys = 49,
                               .head_dim = 32,
                               .bias = WINATTN_BIAS_FULL,
                               .passes = 3};
    winattn_plan *plan;
    EXPECT(winattn_plan_create(context, id, &desc, &plan) == 0,
           winattn_last_reason());
    call(plan, context, id);
    winattn_plan_destroy(plan);
    clReleaseContext(context);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    static unsigned long runs;
    char *text = malloc(size + 1);
    EXPECT(text, "memory");
    setenv("WINATTN_CACHE", "0", 1);
    memcpy(text, data, size);
    text[size] = 0;
    const winattn_status status = winattn_load_tuning(text);
    if (status == WINATTN_SUCCESS) {
        make_plan(size == 0 ? 0 : data[size / 2]);
        EXPECT(winattn_load_tuning(NULL) == 0, winattn_last_reason());
    } else {
        EXPECT(status == WINATTN_INVALID_ARGUMENT, winattn_last_reason());
        EXPECT(winattn_last_reason()[0], "a refusal without a reason");
    }
    EXPECT(!standin_alive(), standin_alive());
    EXPECT(!standin_wrong(NULL), standin_wrong(NULL));
    if (++runs % FORGET_RUNS == 0)
        standin_reset();
    free(text);
}
