/* SPDX-License-Identifier: Apache-2.0
 * Files of weights, and indices of their shards: read or refused with a
 * reason. */
#include <string.h>

#include "base/os.h"
#include "base/status.h"
#include "campaign/fuzz.h"
#include "files.h"
#include "kit/scratch.h"
#include "models/swin_file.h"

/* ---- First inputs ---- */

static const char *const beside_texts[] = {
    "{\"architecture\":\"swinv2_base_window12to16_192to256\"}",
    "{\"model_type\":\"swinv2\",\"window_size\":16,\"image_size\":[256,256],"
    "\"pretrained_window_sizes\":[12,12,12,6],\"layer_norm_eps\":1e-05}",
    "{\"architecture\":\"x_window8_256\",\"model_args\":{\"img_size\":[64,96],"
    "\"window_size\":[4,[4,8]],\"depths\":[2,2]},\"pretrained_cfg\":{"
    "\"input_size\":[3,256,256],\"crop_pct\":0.9,\"mean\":[0.5,0.5,0.5]}}",
    "[{\"size\":7}]",
    "{\"size\":{\"height\":224,\"width\":160},\"resample\":3,"
    "\"image_mean\":[0.5,0.5,0.5],\"rescale_factor\":0.00392156862745098}",
};

/* A model in two shards with an index, and another index, in which
 * the first shard is FUZZED. */
#define FUZZED "model-0000F-of-00002.safetensors"
#define FIRST "model-00001-of-00002.safetensors"
#define INDEX "model.safetensors.index.json"
static void make_set(void)
{
    char *at;
    EXPECT(scratch_make(), "a folder");
    atexit(scratch_remove);
    wa_safetensors *file = tensors_of("torchvision_v1");
    write_shards(file, folder_named(""), 2);
    wa_safetensors_close(file);
    const file_bytes index = file_read(folder_named(INDEX));
    index.bytes[index.size - 1] = 0;
    while ((at = strstr((char *)index.bytes, FIRST)) != NULL)
        memcpy(at, FUZZED, strlen(FUZZED));
    write_bytes(folder_named("shard.json"), index.bytes, index.size - 1);
    free(index.bytes);
}

static void add_file(const char *path)
{
    const file_bytes file = file_read(path);
    add_input(file.bytes, file.size);
    free(file.bytes);
}

void add_first_inputs(void)
{
    make_set();
    for (size_t i = 0; sources[i]; i++)
        add_file(source_path(sources[i]));
    for (size_t i = 0; i < sizeof beside_texts / sizeof *beside_texts; i++)
        add_text(beside_texts[i]);
    add_file(folder_named(INDEX));
    add_file(folder_named(FIRST));
}

/* ---- One input ---- */

static void check_weights(winattn_status status, winattn_swin_weights *w)
{
    EXPECT(status == WINATTN_SUCCESS || status == WINATTN_INVALID_FILE ||
               status == WINATTN_INVALID_ARGUMENT ||
               status == WINATTN_UNSUPPORTED_PROBLEM,
           winattn_last_reason());
    EXPECT((status == WINATTN_SUCCESS) == !winattn_last_reason()[0],
           winattn_last_reason());
    EXPECT((status == WINATTN_SUCCESS) == (w != NULL), "weights");
    if (w) {
        const unsigned char *bytes = (const unsigned char *)w->values;
        EXPECT(wa_swin_config_check(&w->config) == 0, winattn_last_reason());
        EXPECT(w->origin[0], "no origin");
        unsigned all = 0; /* each byte is there to be read */
        for (size_t i = 0; i < (size_t)w->count * sizeof(float); i++)
            all |= bytes[i];
        EXPECT(all <= 0xff, "bytes");
    }
    winattn_swin_weights_destroy(w);
}

/* As what stands beside files of timm and transformers. */
static void read_beside(const uint8_t *data, size_t size)
{
    static const char *const models[] = {"timm_v2", "transformers_v2"};
    static wa_swin_file files[2];
    static wa_swin_config configs[2];
    char *text = malloc(size + 1);
    EXPECT(text, "memory");
    memcpy(text, data, size);
    text[size] = 0;
    for (int i = 0; i < 4; i++) {
        wa_swin_file *file = &files[i / 2];
        wa_swin_beside beside;
        if (!file->names) { /* once for all */
            file->tensors = tensors_of(models[i / 2]);
            EXPECT(wa_swin_names_of(file->tensors, &file->names,
                                    &file->prefix) == 0,
                   winattn_last_reason());
            wa_swin_infer(file, &configs[i / 2]);
        }
        wa_forget_failure();
        const winattn_status status = wa_swin_beside_parse(
            i % 2 ? "{\"model_type\":\"swinv2\"}" : text, i % 2 ? text : NULL,
            file, &configs[i / 2], &beside);
        EXPECT(status == WINATTN_SUCCESS || status == WINATTN_INVALID_FILE,
               winattn_last_reason());
        EXPECT((status == WINATTN_SUCCESS) == !winattn_last_reason()[0],
               winattn_last_reason());
        for (int j = 0; j < WINATTN_SWIN_STAGES; j++)
            EXPECT(beside.window[j][0] <= WA_SWIN_WINDOW_MOST &&
                       beside.position_window[j][1] <= WA_SWIN_WINDOW_MOST,
                   "a window beside");
    }
    free(text);
}

static void read_file(const uint8_t *data, size_t size,
                      const winattn_swin_config *config)
{
    winattn_swin_weights *w;
    wa_forget_failure();
    const winattn_status status = wa_swin_weights_read(data, size, config, &w);
    check_weights(status, w);
}

/* As an index of the shards, or as one of them. */
static void open_set(const uint8_t *data, size_t size)
{
    const bool is_index = size && data[0] == '{';
    winattn_swin_weights *w;
    write_bytes(folder_named(is_index ? "index.json" : FUZZED), data, size);
    const winattn_status status = winattn_swin_weights_open(
        folder_named(is_index ? "index.json" : "shard.json"), NULL, &w);
    check_weights(status, w);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    /* some files do not say their windows; timm_v1's last one is smaller */
    static const winattn_swin_config config = {
        .struct_size = sizeof config,
        .window = {{4, 4}, {4, 4}, {3, 4}, {4, 4}}};
    read_file(data, size, NULL);
    read_file(data, size, &config);
    read_beside(data, size);
    open_set(data, size);
}
