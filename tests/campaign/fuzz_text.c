/* SPDX-License-Identifier: Apache-2.0
 * winattn_load_tuning: a text is taken or refused with the number of a line;
 * plans that may use its rows launch nothing illegal. */
#include <string.h>

#include "fuzz.h"
#include "kit/devices.h"
#include "levels.h"
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

void report(const char *what, const char *detail) { EXPECT(!what, detail); }

/* One of four, since plans take longer than texts; calls of both passes. */
static void make_plan(unsigned which)
{
    static const char *const names[] = {"H200", "gfx1100 (RX 7900 XTX)"};
    const bool is_half = which % 2 == 1;
    const cl_device_id id =
        standin_device(made_up_device(names[which / 2 % 2]));
    const cl_context context = standin_context(1, &id);
    const cl_command_queue queue = standin_queue(context, id, true);
    const cl_mem memory =
        standin_buffer(context, CL_MEM_READ_WRITE, (size_t)1 << 40);
    const level_desc desc = {
        .of = levels,
        .u.core = {.struct_size = sizeof desc.u.core,
                   .variant = is_half ? WINATTN_COSINE : WINATTN_DOT,
                   .dtype = is_half ? WINATTN_FP16 : WINATTN_FP32,
                   .windows = 5,
                   .heads = 2,
                   .queries = 49,
                   .keys = 49,
                   .head_dim = 32,
                   .bias = WINATTN_BIAS_FULL,
                   .passes = 3}};
    random_state r = random_seeded(which);
    void *plan;
    EXPECT(levels->create(&desc, &desc.u.core, context, id, &plan) == 0,
           winattn_last_reason());
    levels->check(&desc, plan, context, id);
    for (size_t i = 0; i < levels->kind_count; i++) {
        const call_kind *kind = &levels->kinds[i];
        level_call call;
        memset(&call, 0, sizeof call);
        level_give_tensors(&r, &desc, kind, memory, &call);
        standin_forget();
        EXPECT(kind->enqueue(plan, queue, call.bytes, 0, NULL, NULL) == 0,
               winattn_last_reason());
        const char *fault = kind->fault(&desc, &call, false);
        EXPECT(!fault, fault);
    }
    levels->destroy(plan);
    clReleaseMemObject(memory);
    clReleaseCommandQueue(queue);
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
