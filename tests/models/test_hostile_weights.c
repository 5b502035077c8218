/* SPDX-License-Identifier: Apache-2.0
 * Small files of weights that ask for much: what they may cost is counted in
 * bytes and in steps of the position MLPs, not in time. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "kit/scratch.h"
#include "models/swin_file.h"

#define HEADER_MOST ((size_t)4 << 20)
#define MEMORY_MOST ((size_t)512 << 20)

/* ---- What is counted ---- */

static size_t requested; /* bytes, of all allocations since count_anew */
static uint64_t steps;   /* of the position MLPs */

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    requested += size;
    return __real_malloc(size);
}

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size)
{
    requested += count * size;
    return __real_calloc(count, size);
}

/* The tables are not of interest, and would take their time. */
void __wrap_wa_position_table(const wa_swin_config *config, uint32_t stage,
                              uint64_t units, const float *first,
                              const float *bias, const float *second,
                              float *table);
void __wrap_wa_position_table(const wa_swin_config *config, uint32_t stage,
                              uint64_t units, const float *first,
                              const float *bias, const float *second,
                              float *table)
{
    (void)first, (void)bias, (void)second, (void)table;
    steps += wa_position_steps(config, stage, units);
}

static void count_anew(void)
{
    static cJSON_Hooks hooks = {__wrap_malloc, free};
    cJSON_InitHooks(&hooks);
    requested = 0;
    steps = 0;
}

static winattn_status read_counted(const file_bytes *file)
{
    wa_swin_weights *w;
    count_anew();
    const winattn_status status =
        wa_swin_weights_read(file->bytes, file->size, NULL, &w);
    assert_int_equal(status == WINATTN_SUCCESS, w != NULL);
    winattn_swin_weights_destroy(w);
    assert_true(requested < MEMORY_MOST);
    assert_true(steps <= WA_POSITION_STEPS_MOST);
    return status;
}

/* ---- A Swin V2 of one stage, under timm's names ---- */

typedef struct shape {
    size_t channels, heads, units, blocks, window;
    bool hollow; /* the MLPs' first tensors have no elements */
} shape;

/* An axis for each letter, see axis_of. */
typedef struct row {
    const char *name, *axes;
} row;

static const row ends[] = {
    {"patch_embed.proj.weight", "C111"},
    {"patch_embed.proj.bias", "C"},
    {"patch_embed.norm.weight", "C"},
    {"patch_embed.norm.bias", "C"},
    {"norm.weight", "C"},
    {"norm.bias", "C"},
    {"head.fc.weight", "1C"},
    {"head.fc.bias", "1"},
    {"layers.0.blocks.0.attn.relative_coords_table", "1WW2"},
    {NULL, NULL}};

static const row block[] = {{"norm1.weight", "C"},
                            {"norm1.bias", "C"},
                            {"norm2.weight", "C"},
                            {"norm2.bias", "C"},
                            {"attn.qkv.weight", "QC"},
                            {"attn.q_bias", "C"},
                            {"attn.v_bias", "C"},
                            {"attn.proj.weight", "CC"},
                            {"attn.proj.bias", "C"},
                            {"mlp.fc1.weight", "1C"},
                            {"mlp.fc1.bias", "1"},
                            {"mlp.fc2.weight", "C1"},
                            {"mlp.fc2.bias", "C"},
                            {"attn.logit_scale", "H11"},
                            {"attn.cpb_mlp.0.weight", "UP"},
                            {"attn.cpb_mlp.0.bias", "U"},
                            {"attn.cpb_mlp.2.weight", "HU"},
                            {NULL, NULL}};

static size_t axis_of(const shape *s, char letter)
{
    switch (letter) {
    case 'C':
        return s->channels;
    case 'Q':
        return 3 * s->channels;
    case 'H':
        return s->heads;
    case 'U':
        return s->units;
    case 'P':
        return s->hollow ? 0 : 2;
    case 'W':
        return 2 * s->window - 1;
    default:
        return (size_t)(letter - '0');
    }
}

typedef struct writer {
    char *header, *at;
    size_t data;
} writer;

static void put_rows(writer *w, const shape *s, const char *prefix,
                     const row *rows)
{
    for (; rows->name; rows++) {
        size_t size = 2;
        assert_true((size_t)(w->at - w->header) < HEADER_MOST - 512);
        w->at += sprintf(w->at, "%c\"%s%s\":{\"dtype\":\"BF16\",\"shape\":[",
                         w->at == w->header ? '{' : ',', prefix, rows->name);
        for (const char *axis = rows->axes; *axis; axis++) {
            w->at += sprintf(w->at, "%s%zu", axis == rows->axes ? "" : ",",
                             axis_of(s, *axis));
            size *= axis_of(s, *axis);
        }
        w->at += sprintf(w->at, "],\"data_offsets\":[%zu,%zu]}", w->data,
                         w->data + size);
        w->data += size;
    }
}

static file_bytes file_of_shape(shape s)
{
    writer w = {.header = malloc(HEADER_MOST)};
    w.at = w.header;
    put_rows(&w, &s, "", ends);
    for (size_t i = 0; i < s.blocks; i++) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "layers.0.blocks.%zu.", i);
        put_rows(&w, &s, prefix, block);
    }
    strcpy(w.at, "}");
    const file_bytes file = file_of_header(w.header, w.data);
    free(w.header);
    assert_true(file.size < (size_t)8 << 20);
    return file;
}

static void check_shape(shape s, const char *culprit)
{
    const file_bytes file = file_of_shape(s);
    assert_status(read_counted(&file), culprit ? WINATTN_INVALID_FILE : 0,
                  culprit ? culprit : "");
    if (culprit)
        assert_int_equal(steps, 0);
    free(file.bytes);
}

/* Before it was bounded, these took up to 95 s, or 816 MiB. */
static void test_position_steps(void **state)
{
    (void)state;
    check_shape((shape){32, 32, 512, 2, 24, false}, NULL);
    check_shape((shape){32, 32, 65536, 1, 64, false}, "cpb_mlp.0.weight");
    check_shape((shape){1, 1, 1000000, 1, 64, false}, "cpb_mlp.0.weight");
    check_shape((shape){32, 32, 512, 100, 64, false}, "cpb_mlp.0.weight");
    check_shape((shape){32, 32, 0, 400, 64, false}, "cpb_mlp.0.weight");
    check_shape((shape){8, 8, 1, 1000, 64, false}, "cpb_mlp.0.weight");
}

/* The first tensor of an MLP says that there are 262,144 units, but has none
 * of their numbers. */
static void test_hollow(void **state)
{
    (void)state;
    check_shape((shape){512, 2, 262144, 1, 8, true},
                "cpb_mlp.0.weight: has shape [262144, 0]");
    assert_true(requested < (size_t)1 << 20);
}

/* Each model that has a name may be as large as it is, and four times. */
static void test_named_models(void **state)
{
    const char *name;
    (void)state;
    for (cl_uint i = 0; (name = winattn_swin_config_name(i)) != NULL; i++) {
        winattn_swin_config config = {.struct_size = sizeof config};
        uint64_t all = 0;
        assert_status(winattn_swin_config_find(name, &config), 0, "");
        for (uint32_t stage = 0; stage < config.stages; stage++)
            all +=
                config.depths[stage] * wa_position_steps(&config, stage, 512);
        assert_true(4 * all <= WA_POSITION_STEPS_MOST);
    }
}

/* ---- Headers ---- */

/* A text of as many bytes as headers may have: a piece, again and again. */
static char *repeated(const char *start, const char *piece, const char *end)
{
    char *text = malloc(HEADER_MOST + 1), *at = text;
    at += sprintf(at, "%s", start);
    while ((size_t)(at - text) + strlen(piece) + strlen(end) <= HEADER_MOST)
        at += sprintf(at, "%s", piece);
    strcpy(at, end);
    return text;
}

static void check_pieces(const char *start, const char *piece, const char *end)
{
    char *header = repeated(start, piece, end);
    const file_bytes file = file_of_header(header, 0);
    assert_status(read_counted(&file), WINATTN_INVALID_FILE, "");
    free(file.bytes);
    free(header);
}

#define PLACE "\"shape\":[0],\"data_offsets\":[0,0]}"

static void test_headers(void **state)
{
    (void)state;
    check_pieces("{\"__metadata__\":{\"a\":[", "0,", "0]}}");
    check_pieces("{\"__metadata__\":{\"a\":[", "[],", "0]}}");
    check_pieces("{\"__metadata__\":{", "\"\":0,", "\"\":0}}");
    check_pieces("{", "\"a\":0,", "\"a\":0}");
    check_pieces("{", "\"a\":{\"dtype\":\"U8\"," PLACE ",",
                 "\"b\":{\"dtype\":\"U8\"," PLACE "}");
    check_pieces("{\"a\":{", "\"b\":0,", "\"dtype\":\"U8\"," PLACE "}");
    check_pieces("{\"a\":{\"dtype\":\"U8\",\"shape\":[", "0,",
                 "0],\"data_offsets\":[0,0]}}");
    check_pieces("{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[",
                 "0,", "0,0]}}");
}

/* The index and a shard. */
static void test_set(void **state)
{
    char *header = repeated("{\"__metadata__\":{\"a\":[", "0,",
                            "0]},\"a\":{\"dtype\":\"U8\"," PLACE "}");
    char *index =
        repeated("{\"a\":[", "0,", "0],\"weight_map\":{\"a\":\"shard\"}}");
    wa_safetensors *set;
    (void)state;
    const file_bytes file = file_of_header(header, 0);
    write_bytes(folder_named("shard"), file.bytes, file.size);
    write_bytes(folder_named("index.json"), index, strlen(index));
    count_anew();
    assert_status(wa_safetensors_open(folder_named("index.json"), &set), 0,
                  "");
    assert_true(requested < MEMORY_MOST);
    wa_safetensors_close(set);
    free(file.bytes);
    free(index);
    free(header);
}

/* ---- Numbers ---- */

static void set_index(file_edit *tensor, void *data)
{
    if (strcmp(tensor->name, "features.1.0.attn.relative_position_index") == 0)
        tensor->values = data;
}

/* Numbers of positions that no difference of int64 tells apart: the second is
 * not the first less one, so that windows have one column. */
static void test_index(void **state)
{
    int64_t numbers[256] = {INT64_MIN, INT64_MAX, INT64_MIN};
    wa_safetensors *golden;
    (void)state;
    golden = tensors_of("torchvision_v1");
    const file_bytes file = file_edited(golden, set_index, numbers);
    assert_status(read_counted(&file), WINATTN_INVALID_FILE,
                  "this model needs [31, 1]");
    free(file.bytes);
    wa_safetensors_close(golden);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_position_steps),
        cmocka_unit_test(test_hollow),
        cmocka_unit_test(test_named_models),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_index),
    };
    if (!scratch_make())
        return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_remove();
    return failed;
}
