/* SPDX-License-Identifier: Apache-2.0
 * winattn-swin: classifies pictures by a Swin or Swin V2 on an OpenCL device.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "swin/runner.h"

static bool list(void)
{
    const bool good = device_print_all();
    printf("models:\n");
    for (cl_uint i = 0; winattn_swin_config_name(i); i++)
        printf("  %s\n", winattn_swin_config_name(i));
    return good;
}

/* ---- The model's shape ---- */

static void set_pair(cl_uint pair[2], const cl_uint value[2])
{
    if (value[0])
        memcpy(pair, value, 2 * sizeof *pair);
}

/* What was said of the shape; zeros elsewhere, or the named model. */
static bool ask_config(const options *o, winattn_swin_config *config)
{
    *config = (winattn_swin_config){.struct_size = sizeof *config};
    if (o->model &&
        !is_good(winattn_swin_config_find(o->model, config), "--model"))
        return false;
    if (o->weights)
        config->classes = 0; /* as the file has it */
    set_pair(config->patch, (cl_uint[2]){o->patch, o->patch});
    config->rules = o->rules;
    config->no_config_file = o->no_config;
    set_pair(config->image, o->image);
    set_pair(config->resize, o->resize);
    set_pair(config->crop, o->crop);
    for (int i = 0; i < WINATTN_SWIN_STAGES; i++) {
        set_pair(config->window[i], o->window[i]);
        set_pair(config->position_window[i], o->position_window[i]);
    }
    return true;
}

static bool load(const options *o, winattn_swin_weights **weights,
                 winattn_swin_config *config)
{
    winattn_swin_config asked;
    *weights = NULL;
    *config = (winattn_swin_config){.struct_size = sizeof *config};
    if (!ask_config(o, &asked))
        return false;
    const winattn_status status =
        o->weights ? winattn_swin_weights_open(o->weights, &asked, weights)
                   : winattn_swin_weights_random(&asked, o->seed, weights);
    if (!is_good(status, o->weights ? o->weights : "--random") ||
        !is_good(winattn_swin_weights_config(*weights, config), "config"))
        return false;
    if (config->in_channels != 3)
        return fail("pictures have 3 channels, not the %u "
                    "that the model wants",
                    (unsigned)config->in_channels);
    if (o->has_filter)
        config->filter = o->filter;
    if (o->has_mean)
        memcpy(config->mean, o->mean, sizeof o->mean);
    if (o->has_deviation)
        memcpy(config->deviation, o->deviation, sizeof o->deviation);
    if (!config->resize[0])
        return fail("how pictures become %ux%u, which is no square, "
                    "is not known: --resize says it",
                    (unsigned)config->crop[0], (unsigned)config->crop[1]);
    return true;
}

/* ---- What the run is ---- */

static void print_numbers(const cl_uint *numbers, cl_uint count)
{
    for (cl_uint i = 0; i < count; i++)
        printf("%s%u", i ? "-" : " ", (unsigned)numbers[i]);
}

static void print_start(const options *o, const swin_device *device,
                        const winattn_swin_weights *weights,
                        const winattn_swin_config *c)
{
    char origin[512] = "";
    winattn_swin_weights_describe(weights, sizeof origin, origin, NULL);
    printf("device: %s\n", device->name);
    printf("weights: %s%s%s%s\n", o->weights ? o->weights : "",
           o->weights ? ", " : "", origin,
           o->weights ? "" : ": classes mean nothing");
    printf("model: Swin%s, %u channels, depths",
           c->generation == 2 ? " V2" : "", (unsigned)c->channels);
    print_numbers(c->depths, c->stages);
    printf(", heads");
    print_numbers(c->heads, c->stages);
    printf(", %u classes, %s\n", (unsigned)c->classes, dtype_names[o->dtype]);
    printf("pictures: resized to %u", (unsigned)c->resize[0]);
    if (c->resize[1])
        printf("x%u", (unsigned)c->resize[1]);
    printf(" (%s), %ux%u cut out\n",
           c->filter == WINATTN_FILTER_BICUBIC ? "bicubic" : "bilinear",
           (unsigned)c->crop[0], (unsigned)c->crop[1]);
    fflush(stdout);
}

static bool describe(const options *o, const swin_device *device,
                     const winattn_swin_weights *weights,
                     const winattn_swin_config *config)
{
    runner r;
    size_t size = 0;
    char *text = NULL;
    if (!runner_open(o, device, weights, config, o->batch ? o->batch : 1,
                     false, &r))
        return false;
    bool good =
        is_good(winattn_model_describe(r.model, 0, NULL, &size), "describe");
    if (good)
        text = malloc(size);
    good = text && is_good(winattn_model_describe(r.model, size, text, NULL),
                           "describe");
    if (good)
        printf("%s", text);
    free(text);
    runner_close(&r);
    return good;
}

static bool check_names(const class_names *names,
                        const winattn_swin_config *config)
{
    if (names->count == 0 || names->count == config->classes)
        return true;
    return fail("the file of --classes has %zu names, but the model "
                "%u classes",
                names->count, (unsigned)config->classes);
}

static bool run(const options *o, const swin_device *device,
                const class_names *names)
{
    winattn_swin_weights *weights = NULL;
    winattn_swin_config config;
    bool good = load(o, &weights, &config) && check_names(names, &config);
    if (good && config.classes == 0 && !o->stages && !o->bench)
        good = fail("the model has no head, so that there are no classes; "
                    "--stages writes its maps");
    if (good)
        print_start(o, device, weights, &config);
    if (good && o->describes)
        good = describe(o, device, weights, &config);
    if (good && o->bench)
        good = measure(o, device, weights, &config);
    else if (good)
        good = classify(o, device, weights, &config, names);
    winattn_swin_weights_destroy(weights);
    return good;
}

static bool do_all(const options *o)
{
    swin_device device = {0};
    class_names names = {0};
    const bool good = (!o->classes || class_names_read(o->classes, &names)) &&
                      device_open(o->device, &device) &&
                      run(o, &device, &names);
    class_names_free(&names);
    device_close(&device);
    return good;
}

/* What was printed may have been lost: a full disk says so this late. */
static bool close_output(void)
{
    const bool lost = ferror(stdout) != 0;
    errno = 0;
    if (fclose(stdout) == 0 && !lost)
        return true;
    return fail("the output cannot be written%s%s", errno ? ": " : "",
                errno ? strerror(errno) : "");
}

int main(int count, char **texts)
{
    options o;
    const options_result result = options_read(count, texts, &o);
    bool good = result == OPTIONS_HELP;
    if (result == OPTIONS_WRONG)
        return 2;
    if (result == OPTIONS_GOOD)
        good = o.lists ? list() : do_all(&o);
    return close_output() && good ? 0 : 1;
}
