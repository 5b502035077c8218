/* SPDX-License-Identifier: Apache-2.0
 * Files of safetensors that are none, sets of shards, and numbers of all
 * types. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "kit/scratch.h"
#include "kit/storage.h"

#define TENSOR(name, type, shape, offsets)                                    \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape                   \
    ",\"data_offsets\":" offsets "}"

typedef struct row {
    const char *header;
    size_t data;
    const char *culprit; /* NULL: it is good */
} row;

static const row rows[] = {
    {"{}", 0, NULL},
    {"{}   ", 0, NULL},
    {"{" TENSOR("a", "F32", "[2]", "[0,8]") "}", 8, NULL},
    {"{" TENSOR("a", "F32", "[]", "[0,4]") "}", 4, NULL},
    {"{" TENSOR("a", "F32", "[0]", "[0,0]") "}", 0, NULL},
    {"{" TENSOR("b", "F16", "[1]", "[4,6]") "," TENSOR("a", "F32", "[1]",
                                                       "[0,4]") "}",
     6, NULL},
    {"{\"__metadata__\":{\"x\":\"y\"}," TENSOR("a", "U8", "[1]", "[0,1]") "}",
     1, NULL},
    {"{" TENSOR("a", "F32", "[1e0]", "[0,4]") "}", 4, NULL},
    /* not JSON, or not an object */
    {"", 0, "start with {"},
    {" {}", 0, "start with {"},
    {"[]", 0, "start with {"},
    {"{", 0, "no JSON"},
    {"{\"a\"}", 0, "no JSON"},
    {"{}x", 0, "goes on"},
    {"{}\n", 0, "goes on"},
    {"{\"a\\u0000b\":{}}", 0, "character 0"},
    {"{\"a\":1}", 0, "a: is no object"},
    {"{\"a\":null}", 0, "a: is no object"},
    {"{\"__metadata__\":1}", 0, "__metadata__"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__"},
    {"{\"\":{}}", 0, "name is empty"},
    {"{\"a\\u0007\":{}}", 0, "printable"},
    {"{\"\\u00e4\":{}}", 0, "printable"},
    /* what a tensor lacks, or has twice */
    {"{\"a\":{}}", 0, "a: has no dtype"},
    {"{\"a\":{\"dtype\":7}}", 0, "a: has no dtype"},
    {"{\"a\":{\"dtype\":\"F33\"}}", 0, "a: has an unknown dtype"},
    {"{\"a\":{\"dtype\":\"f32\"}}", 0, "a: has an unknown dtype"},
    {"{\"a\":{\"dtype\":\"F32\"}}", 0, "a: has no shape"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":2}}", 0, "a: has no shape"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 0, "a: data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],"
     "\"shape\":[1]}}",
     4, "a: has more than"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],"
     "\"x\":0}}",
     4, "a: has more than"},
    /* shapes */
    {"{" TENSOR("a", "F32", "[-1]", "[0,4]") "}", 4, "a: axis 0"},
    {"{" TENSOR("a", "F32", "[1,1.5]", "[0,4]") "}", 4, "a: axis 1"},
    {"{" TENSOR("a", "F32", "[\"1\"]", "[0,4]") "}", 4, "a: axis 0"},
    {"{" TENSOR("a", "F32", "[9007199254740992]", "[0,4]") "}", 4,
     "a: axis 0"},
    {"{" TENSOR("a", "F32", "[1e999]", "[0,4]") "}", 4, "a: axis 0"},
    {"{" TENSOR("a", "F32", "[4294967296,4294967296]", "[0,4]") "}", 4,
     "2^53 elements"},
    {"{" TENSOR("a", "F32", "[4611686018427387905]", "[0,4]") "}", 4,
     "a: axis 0"},
    {"{" TENSOR("a", "F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4,
     "more than 8 axes"},
    /* places */
    {"{" TENSOR("a", "F32", "[1]", "[0]") "}", 4, "a: data_offsets"},
    {"{" TENSOR("a", "F32", "[1]", "[0,4,4]") "}", 4, "a: data_offsets"},
    {"{" TENSOR("a", "F32", "[1]", "[4,0]") "}", 4, "a: data_offsets"},
    {"{" TENSOR("a", "F32", "[1]", "[-4,0]") "}", 4, "a: data_offsets"},
    {"{" TENSOR("a", "F32", "[1]", "[0,8]") "}", 4, "ends at byte 8"},
    {"{" TENSOR("a", "F32", "[1]", "[0,9007199254740991]") "}", 4,
     "ends at byte 9007199254740991"},
    {"{" TENSOR("a", "F32", "[2]", "[0,4]") "}", 4, "need 8"},
    {"{" TENSOR("a", "F16", "[1]", "[0,4]") "}", 4, "need 2"},
    {"{" TENSOR("a", "F32", "[1]", "[0,4]") "}", 8, "have 4 bytes, but 8"},
    {"{" TENSOR("a", "F32", "[1]", "[4,8]") "}", 8, "a: starts at byte 4"},
    {"{" TENSOR("a", "F32", "[1]", "[0,4]") "," TENSOR("b", "F32", "[1]",
                                                       "[0,4]") "}",
     4, "b: starts at byte 0"},
    {"{" TENSOR("a", "F32", "[2]", "[0,8]") "," TENSOR("b", "F32", "[2]",
                                                       "[4,12]") "}",
     12, "b: starts at byte 4"},
    {"{" TENSOR("a", "F32", "[1]", "[0,4]") "," TENSOR("a", "F32", "[1]",
                                                       "[4,8]") "}",
     8, "a: is there twice"},
};

static void check_bytes(const unsigned char *bytes, size_t size,
                        const char *culprit)
{
    wa_safetensors *file;
    /* of its own, so that sanitizers see what is read behind it */
    unsigned char *copy = malloc(size ? size : 1);
    memcpy(copy, bytes, size);
    const winattn_status status = wa_safetensors_read(copy, size, &file);
    if (culprit) {
        assert_status(status, WINATTN_INVALID_FILE, culprit);
        assert_null(file);
    } else {
        assert_status(status, 0, "");
    }
    wa_safetensors_close(file);
    free(copy);
}

static void test_headers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const file_bytes file = file_of_header(rows[i].header, rows[i].data);
        check_bytes(file.bytes, file.size, rows[i].culprit);
        free(file.bytes);
    }
}

/* Deep nesting, and a name of 256 characters. */
static void test_large_headers(void **state)
{
    char header[8192] = "{\"a\":";
    (void)state;
    memset(header + 5, '[', 2000);
    file_bytes file = file_of_header(header, 0);
    check_bytes(file.bytes, file.size, "nested too deeply");
    free(file.bytes);
    snprintf(header, sizeof header, "{\"%0256d\":{}}", 7);
    file = file_of_header(header, 0);
    check_bytes(file.bytes, file.size, "more than 255");
    free(file.bytes);
}

static void test_lengths(void **state)
{
    unsigned char bytes[16] = {2, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
    (void)state;
    check_bytes(bytes, 10, NULL);
    for (size_t size = 0; size < 10; size++)
        check_bytes(bytes, size, size < 8 ? "bytes" : "is cut");
    check_bytes(bytes, 11, "but 1 follow");
    bytes[0] = 3;
    check_bytes(bytes, 10, "is cut");
    bytes[7] = 0x80;
    check_bytes(bytes, 10, "is cut");
    memset(bytes, 0xff, 8);
    check_bytes(bytes, 10, "is cut");
}

/* More than any model's: refused before it is read. */
static void test_long_header(void **state)
{
    const size_t length = ((size_t)4 << 20) + 1;
    char *header = malloc(length + 1);
    (void)state;
    memset(header, ' ', length);
    header[0] = '{';
    header[1] = '}';
    header[length] = 0;
    file_bytes file = file_of_header(header, 0);
    check_bytes(file.bytes, file.size, "more than 4194304");
    free(file.bytes);
    header[length - 1] = 0;
    file = file_of_header(header, 0);
    check_bytes(file.bytes, file.size, NULL);
    free(file.bytes);
    free(header);
}

static void test_paths(void **state)
{
    wa_safetensors *file;
    const char *path = folder_named("empty");
    (void)state;
    write_bytes(path, "", 0);
    assert_status(wa_safetensors_open(path, &file), WINATTN_INVALID_FILE,
                  "has 0 bytes");
    assert_status(wa_safetensors_open(folder_named(""), &file),
                  WINATTN_INVALID_FILE, "cannot be read");
    assert_status(wa_safetensors_open("no/such/file", &file),
                  WINATTN_INVALID_FILE, "cannot be read");
    assert_null(file);
    const file_bytes made =
        file_of_header("{" TENSOR("a", "U8", "[3]", "[0,3]") "}", 3);
    path = folder_named("good");
    write_bytes(path, made.bytes, made.size);
    free(made.bytes);
    assert_status(wa_safetensors_open(path, &file), 0, "");
    assert_int_equal(wa_safetensors_count(file), 1);
    assert_int_equal(wa_safetensors_find(file, "a")->bytes[2], 2);
    assert_null(wa_safetensors_find(file, "b"));
    wa_safetensors_close(file);
}

/* ---- Sets ---- */

#define INDEX "model.safetensors.index.json"

static void write_header(const char *name, const char *header, size_t data)
{
    const file_bytes made = file_of_header(header, data);
    write_bytes(folder_named(name), made.bytes, made.size);
    free(made.bytes);
}

static void write_text(const char *name, const char *text)
{
    write_bytes(folder_named(name), text, strlen(text));
}

/* Opened by that path, the tensors are those of `want`. */
static void assert_same(const char *path, const wa_safetensors *want,
                        const char *own)
{
    wa_safetensors *got;
    assert_status(wa_safetensors_open(path, &got), 0, "");
    if (!strstr(wa_safetensors_path(got), own))
        fail_msg("%s is not %s", wa_safetensors_path(got), own);
    assert_int_equal(wa_safetensors_count(got), wa_safetensors_count(want));
    for (size_t i = 0; i < wa_safetensors_count(want); i++) {
        const wa_file_tensor *w = wa_safetensors_at(want, i);
        const wa_file_tensor *g = wa_safetensors_find(got, w->name);
        assert_ptr_equal(g, wa_safetensors_at(got, i));
        assert_string_equal(g->name, w->name);
        assert_int_equal(g->type, w->type);
        assert_int_equal(g->count, w->count);
        assert_memory_equal(g->extent, w->extent, sizeof w->extent);
        assert_int_equal(g->size, w->size);
        assert_memory_equal(g->bytes, w->bytes, (size_t)w->size);
    }
    wa_safetensors_close(got);
}

/* By the index, or by the folder, in which a whole file goes first. */
static void test_shards(void **state)
{
    wa_safetensors *file, *none;
    char folder[4300];
    (void)state;
    assert_status(wa_safetensors_open(source_path("torchvision_v1"), &file), 0,
                  "");
    snprintf(folder, sizeof folder, "%s", folder_named(""));
    write_shards(file, folder, 3);
    assert_same(folder_named(INDEX), file, INDEX);
    assert_same(folder, file, INDEX);
    folder[strlen(folder) - 1] = 0; /* without its separator */
    assert_same(folder, file, INDEX);
    assert_status(
        wa_safetensors_open(folder_named("model-00002-of-00003.safetensors"),
                            &none),
        WINATTN_INVALID_FILE,
        "is one of 3 shards, which are opened together by their index, " INDEX
        ", or by the folder");
    assert_null(none);
    remove_all(folder_named("model-00003-of-00003.safetensors"));
    assert_status(wa_safetensors_open(folder, &none), WINATTN_INVALID_FILE,
                  "shard model-00003-of-00003.safetensors: cannot be read");
    write_shards(file, folder, 1);
    assert_same(folder_named("model-00001-of-00001.safetensors"), file,
                "00001");
    write_header("model.safetensors", "{}", 0);
    assert_status(wa_safetensors_open(folder, &none), 0, "");
    assert_int_equal(wa_safetensors_count(none), 0);
    assert_non_null(strstr(wa_safetensors_path(none), "/model.safetensors"));
    wa_safetensors_close(none);
    wa_safetensors_close(file);
}

/* config.json, which says what windows are, is looked for beside the file that
 * was opened, whatever path opened it. */
static void test_weights(void **state)
{
    static const char *const paths[] = {INDEX, ""};
    wa_safetensors *file;
    winattn_swin_weights *want, *got;
    (void)state;
    want = opened("transformers_v2");
    file = tensors_of("transformers_v2");
    write_shards(file, folder_named(""), 2);
    remove_all(folder_named("model.safetensors"));
    for (size_t i = 0; i < 2; i++) {
        remove_all(folder_named("config.json"));
        assert_status(
            winattn_swin_weights_open(folder_named(paths[i]), NULL, &got),
            WINATTN_INVALID_FILE, "windows");
        write_text("config.json", "{\"model_type\":\"swinv2\",\"window_size\":"
                                  "4,\"image_size\":[64,96]}");
        assert_status(
            winattn_swin_weights_open(folder_named(paths[i]), NULL, &got), 0,
            "");
        assert_int_equal(got->count, want->count);
        assert_memory_equal(got->values, want->values,
                            (size_t)want->count * sizeof(float));
        winattn_swin_weights_destroy(got);
    }
    winattn_swin_weights_destroy(want);
    wa_safetensors_close(file);
}

#define MAP(map) "{\"weight_map\":{" map "}}"

static const struct {
    const char *index, *culprit; /* NULL: it is good */
} indices[] = {
    {MAP("\"a\":\"a.st\""), NULL},
    {MAP("\"b\":\"b\",\"a\":\"a.st\"") " \r\n\t", NULL},
    {MAP("\"a\":\"ab\",\"b\":\"ab\""), NULL},
    {"{\"metadata\":7,\"x\":[]," /**/
     "\"weight_map\":{\"a\":\"a.st\",\"b\":\"b\"}}",
     NULL},
    /* no index */
    {"", "the index does not start with {"},
    {"[]", "the index does not start with {"},
    {"{\"weight_map\":{\"a\":\"a.st\"}", "the index is no JSON"},
    {MAP("\"a\":\"a.st\"") "}", "the index goes on"},
    {MAP("\"a\\u0000\":\"a.st\""), "the index has a character 0"},
    {"{}", "no weight_map"},
    {"{\"weight_map\":[\"a.st\"]}", "no weight_map"},
    {MAP(""), "no weight_map"},
    {"{\"weight_map\":{\"a\":\"a.st\"},\"weight_map\":{\"b\":\"b\"}}", "two"},
    /* names that are none, or lead elsewhere */
    {MAP("\"\":\"a.st\""), "name is empty"},
    {MAP("\"\\u00e4\":\"a.st\""), "printable"},
    {MAP("\"a\":7"), "a: the index does not say"},
    {MAP("\"a\":\"\""), "a: the index does not say"},
    {MAP("\"a\":\".\""), "a: the index does not say"},
    {MAP("\"a\":\"..\""), "a: the index does not say"},
    {MAP("\"a\":\"../a.st\""), "a: the index does not say"},
    {MAP("\"a\":\"./a.st\""), "a: the index does not say"},
    {MAP("\"a\":\"/a.st\""), "a: the index does not say"},
    {MAP("\"a\":\"x\\\\a.st\""), "a: the index does not say"},
    {MAP("\"a\":\"C:a.st\""), "a: the index does not say"},
    {MAP("\"a\":\"a.st\\n\""), "a: the index does not say"},
    /* what shards have */
    {MAP("\"a\":\"c.st\""), "shard c.st: cannot be read"},
    {MAP("\"a\":\"a.st\",\"x\":\"a.st\""), "shard a.st: x: the shard lacks"},
    {MAP("\"a\":\"ab\""), "shard ab: b: the shard has this tensor"},
    {MAP("\"a\":\"b\",\"b\":\"a.st\""), "shard a.st: a: the shard has this"},
    {MAP("\"a\":\"a.st\",\"a\":\"a.st\""), "a: is twice in the index"},
    {MAP("\"a\":\"a.st\",\"a\":\"ab\",\"b\":\"ab\""), "a: is there twice"},
    {MAP("\"a\":\"a.st\",\"b\":\"cut\""), "shard cut: has 3 bytes"},
    {MAP("\"a\":\"index.json\""), "shard index.json: is cut"},
};

static void test_indices(void **state)
{
    wa_safetensors *file;
    (void)state;
    write_header("a.st", "{" TENSOR("a", "U8", "[1]", "[0,1]") "}", 1);
    write_header("b", "{" TENSOR("b", "U8", "[2]", "[0,2]") "}", 2);
    write_header("ab",
                 "{" TENSOR("b", "U8", "[1]",
                            "[0,1]") "," TENSOR("a", "U8", "[1]", "[1,2]") "}",
                 2);
    write_text("cut", "abc");
    for (size_t i = 0; i < sizeof indices / sizeof *indices; i++) {
        const char *culprit = indices[i].culprit;
        write_text("index.json", indices[i].index);
        assert_status(wa_safetensors_open(folder_named("index.json"), &file),
                      culprit ? WINATTN_INVALID_FILE : 0,
                      culprit ? culprit : "");
        assert_int_equal(file == NULL, culprit != NULL);
        wa_safetensors_close(file);
    }
}

/* Neither is a model's: refused before it is read, or before shards are. */
static void test_large_indices(void **state)
{
    const size_t length = ((size_t)4 << 20) + 1;
    char *text = malloc(length + 1), *at = text;
    wa_safetensors *file;
    (void)state;
    memset(text, ' ', length);
    text[0] = '{';
    text[1] = '}';
    text[length] = 0;
    write_text("index.json", text);
    assert_status(wa_safetensors_open(folder_named("index.json"), &file),
                  WINATTN_INVALID_FILE, "more than 4194304");
    at += sprintf(at, "{\"weight_map\":");
    for (int i = 0; i <= 1024; i++)
        at += sprintf(at, "%c\"%d\":\"%d\"", i ? ',' : '{', i, i);
    sprintf(at, "}}");
    write_text("index.json", text);
    assert_status(wa_safetensors_open(folder_named("index.json"), &file),
                  WINATTN_INVALID_FILE, "has 1025 shards, more than 1024");
    free(text);
}

/* ---- Numbers ---- */

static float one_float(wa_tensor_type type, uint32_t bits)
{
    unsigned char bytes[5];
    float value = 0;
    for (int i = 0; i < 4; i++)
        bytes[1 + i] = (unsigned char)(bits >> (8 * i));
    const wa_file_tensor tensor = {
        .name = "x", .type = type, .count = 1, .bytes = bytes + 1};
    assert_status(wa_tensor_floats(&tensor, &value), 0, "");
    return value;
}

static void test_floats(void **state)
{
    (void)state;
    assert_true(one_float(WA_TENSOR_FP32, 0x3fc00000) == 1.5F);
    assert_true(one_float(WA_TENSOR_BF16, 0xbfc0) == -1.5F);
    assert_true(one_float(WA_TENSOR_FP16, 0x3e00) == 1.5F);
    for (uint32_t i = 0; i < 0x10000; i++) {
        const uint16_t bits = (uint16_t)i;
        const double want = kind_read(KIND_FP16, &bits);
        const float got = one_float(WA_TENSOR_FP16, i);
        assert_true(isnan(want) ? isnan(got) : got == want);
        assert_int_equal(signbit(got) != 0, i >> 15);
    }
    const wa_file_tensor other = {
        .name = "x", .type_name = "I8", .type = WA_TENSOR_OTHER, .count = 1};
    float value;
    assert_status(wa_tensor_floats(&other, &value), WINATTN_INVALID_FILE,
                  "x: is of type I8");
}

static void test_integers(void **state)
{
    unsigned char bytes[17] = {0, 1, 2, 0, 0, 0, 0, 0, 0};
    (void)state;
    memset(bytes + 9, 0xff, 8);
    const wa_file_tensor tensor = {.type = WA_TENSOR_INT64,
                                   .bytes = bytes + 1};
    assert_int_equal(wa_tensor_integer(&tensor, 0), 513);
    assert_int_equal(wa_tensor_integer(&tensor, 1), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_large_headers),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_long_header),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_indices),
        cmocka_unit_test(test_large_indices),
        cmocka_unit_test(test_floats),
        cmocka_unit_test(test_integers),
    };
    if (!scratch_make())
        return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_remove();
    return failed;
}
