/* SPDX-License-Identifier: Apache-2.0
 * A model and what a call of it needs. */
#include "model_run.h"

static size_t product(const cl_uint shape[4])
{
    return (size_t)shape[0] * shape[1] * shape[2] * shape[3];
}

model_run run_of(const winattn_model_desc *given,
                 const winattn_swin_weights *weights,
                 storage_kind picture_kind, const double *pictures)
{
    model_run r = {.call.struct_size = sizeof r.call};
    winattn_swin_config config = {.struct_size = sizeof config};
    winattn_model_desc desc = *given;
    size_t bytes;
    desc.struct_size = sizeof desc;
    desc.tier = tier_under_test();
    desc.build_options = build_options();
    assert_status(winattn_swin_weights_config(weights, &config), 0, "");
    if (winattn_model_create(device.context, device.id, &desc, weights,
                             &r.model) != WINATTN_SUCCESS)
        fail_msg("%s\n%s", winattn_last_reason(), winattn_last_build_log());
    r.call.pictures = tensor_of(picture_kind, pictures,
                                (size_t)desc.batch * config.in_channels *
                                    desc.height * desc.width,
                                4)
                          .at;
    const storage_kind kind = kind_of(desc.dtype);
    const size_t last = (size_t)config.channels << (config.stages - 1);
    for (cl_uint i = 0; i < config.stages; i++) {
        cl_uint shape[4];
        assert_status(winattn_model_map_shape(r.model, i, shape), 0, "");
        r.maps[i] = tensor_empty(kind, product(shape), 8);
        r.call.maps[i] = r.maps[i].at;
    }
    r.logits = tensor_empty(kind, (size_t)desc.batch * config.classes, 1);
    r.features = tensor_empty(kind, desc.batch * last, 8);
    assert_status(winattn_model_workspace_size(r.model, &bytes), 0, "");
    r.call.logits = r.logits.at;
    r.call.features = r.features.at;
    r.call.workspace.buffer = workspace_of_nans(bytes);
    return r;
}

void run_enqueue(const model_run *r, cl_command_queue queue)
{
    cl_event event;
    if (winattn_enqueue_model(r->model, queue, &r->call, 0, NULL, &event) !=
        WINATTN_SUCCESS)
        fail_msg("%s", winattn_last_reason());
    assert_int_equal(clWaitForEvents(1, &event), CL_SUCCESS);
    clReleaseEvent(event);
}
