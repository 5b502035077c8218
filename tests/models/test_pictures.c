/* SPDX-License-Identifier: Apache-2.0
 * Pictures from files and their resizing, compared with Pillow and
 * torchvision; and those that are refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/resource.h>
#endif

#include "bombs.h"
#include "kit/asserts.h"
#include "kit/scratch.h"
#include "swin/files.h"
#include "swin/picture.h"
#include "winattn_models.h"

static const char *picture_path(const char *name)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/pictures/%s", GOLDEN_FOLDER, name);
    return path;
}

/* Are the pixels those of the golden file, each number at most `off` away? */
static void assert_pixels(const unsigned char *got, size_t height,
                          size_t width, const char *golden, int off)
{
    char name[128];
    snprintf(name, sizeof name, "pictures/%s", golden);
    npy_array want = loaded(name, "pixels");
    assert_int_equal(want.axes, 3);
    assert_int_equal(want.extent[0], height);
    assert_int_equal(want.extent[1], width);
    for (size_t i = 0; i < want.count; i++)
        if (abs((int)want.value[i] - got[i]) > off)
            fail_msg("%s: number %zu is %d, not %d", golden, i, got[i],
                     (int)want.value[i]);
    npy_free(&want);
}

/* ---- Decoding ---- */

#ifdef SWIN_HAS_PNG
#define PNG_SAYS(culprit) culprit
#else
#define PNG_SAYS(culprit) "built without"
#endif
#ifdef SWIN_HAS_JPEG
#define JPEG_SAYS(culprit) culprit
#else
#define JPEG_SAYS(culprit) "built without"
#endif

/* Decoders of JPEG may round differently, but for inks.jpg, whose blocks have
 * one colour each. */
static void test_files(void **state)
{
    (void)state;
    for (size_t i = 0; golden_pictures[i]; i++) {
        const char *name = golden_pictures[i];
        const bool is_jpeg = strstr(name, ".jpg") != NULL;
        const char *excuse = is_jpeg                ? JPEG_SAYS("")
                             : strstr(name, ".png") ? PNG_SAYS("")
                                                    : "";
        char golden[64], reason[REASON_SIZE] = "";
        picture p;
        if (picture_read(picture_path(name), true, &p, reason) != !excuse[0] ||
            !strstr(reason, excuse))
            fail_msg("%s: %s", name, reason);
        if (excuse[0])
            continue;
        snprintf(golden, sizeof golden, "%s", name);
        *strchr(golden, '.') = '_';
        assert_pixels(p.pixels, p.height, p.width, golden,
                      is_jpeg && strcmp(name, "inks.jpg") != 0 ? 2 : 0);
        picture_free(&p);
    }
}

/* ---- EXIF ---- */

static void test_as_stored(void **state)
{
    (void)state;
#ifdef SWIN_HAS_PNG
    picture stored, upright;
    char reason[REASON_SIZE] = "";
    const char *path = picture_path("turned_6.png");
    assert_true(picture_read(path, true, &upright, reason));
    assert_true(picture_read(path, false, &stored, reason));
    assert_int_equal(stored.height, upright.width);
    assert_int_equal(stored.width, upright.height);
    for (size_t y = 0; y < stored.height; y++)
        for (size_t x = 0; x < stored.width; x++)
            assert_memory_equal(stored.pixels + 3 * (y * stored.width + x),
                                upright.pixels + 3 * (x * upright.width +
                                                      stored.height - 1 - y),
                                3);
    picture_free(&stored);
    picture_free(&upright);
#endif
}

/* One entry, of which the number is in `entry` from byte 8 on. */
static unsigned orientation_in(const char *head, const char *entry)
{
    unsigned char block[8 + 2 + 12];
    memcpy(block, head, 10);
    memcpy(block + 10, entry, 12);
    return exif_orientation(block, sizeof block);
}

#define LITTLE "II*\0\x8\0\0\0\x1\0"
#define BIG "MM\0*\0\0\0\x8\0\x1"

static void test_exif(void **state)
{
    static const struct {
        const char *head, *entry;
        unsigned orientation;
    } rows[] = {
        {LITTLE, "\x12\1\3\0\1\0\0\0\6\0\xff\xff", 6},
        {LITTLE, "\x12\1\4\0\1\0\0\0\x8\0\0\0", 8},
        {LITTLE, "\x12\1\4\0\1\0\0\0\6\0\1\0", 1},
        {LITTLE, "\x12\1\1\0\1\0\0\0\2\xff\xff\xff", 2},
        {LITTLE, "\x12\1\3\0\2\0\0\0\6\0\0\0", 1}, /* two numbers */
        {LITTLE, "\x12\1\2\0\1\0\0\0\6\0\0\0", 1}, /* a text */
        {LITTLE, "\x12\1\xff\xff\1\0\0\0\6\0\0\0", 1},
        {LITTLE, "\x12\1\3\0\1\0\0\0\0\0\0\0", 1}, /* 0 to 8 are not all */
        {LITTLE, "\x12\1\3\0\1\0\0\0\x9\0\0\0", 1},
        {LITTLE, "\x13\1\3\0\1\0\0\0\6\0\0\0", 1}, /* another tag */
        {BIG, "\1\x12\0\3\0\0\0\1\0\5\xff\xff", 5},
        {BIG, "\1\x12\0\4\0\0\0\1\0\0\0\3", 3},
        {BIG, "\x12\1\0\3\0\0\0\1\0\5\0\0", 1},
        {"IM*\0\x8\0\0\0\x1\0", "\x12\1\3\0\1\0\0\0\6\0\0\0", 1},
        {"II*\0\xff\xff\xff\xff\1\0", "\x12\1\3\0\1\0\0\0\6\0\0\0",
         1}, /* a directory beyond the end */
        {"II*\0\x8\0\0\0\xff\xff", "\x12\1\3\0\1\0\0\0\6\0\0\0",
         6}, /* entries beyond the end */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (orientation_in(rows[i].head, rows[i].entry) != rows[i].orientation)
            fail_msg("block %zu has not orientation %u", i,
                     rows[i].orientation);
    /* cut anywhere */
    for (size_t size = 0; size < 22; size++) {
        unsigned char *part = malloc(size + 1);
        memcpy(part, LITTLE "\x12\1\3\0\1\0\0\0\6\0\0\0", size);
        part = realloc(part, size ? size : 1);
        assert_int_equal(exif_orientation(part, size), 1);
        free(part);
    }
}

/* ---- Refusals ---- */

static void assert_refused(const void *bytes, size_t size, const char *culprit)
{
    picture p;
    char reason[REASON_SIZE] = "";
    if (picture_decode(bytes, size, true, &p, reason))
        fail_msg("%s is not seen", culprit);
    assert_null(p.pixels);
    if (!strstr(reason, culprit))
        fail_msg("\"%s\" does not say %s", reason, culprit);
}

static void test_bad_ppm(void **state)
{
    static const struct {
        const char *text, *culprit;
    } rows[] = {
        {"", "no PPM"},
        {"P3 1 1 255 1 1 1", "no PPM"},
        {"P6", "no width"},
        {"P6 1 1", "no width"},
        {"P6 1 1 255", "no width"},
        {"P6 1 1 0 ...", "no width"},
        {"P6 1 1 65536 ...", "no width"},
        {"P6 -1 1 255 ...", "no width"},
        {"P6 99999999999999999999 1 255 ...", "no width"},
        {"P61 1 255 ...", "no width"},
        {"P6 1x1 255 ...", "no width"},
        {"P6 # 1 1 255 ...", "no width"},
        {"P6 1 1 255 ..", "cut"},
        {"P6 1 1 256 .....", "cut"},
        {"P6 0 1 255 ...", "sides"},
        {"P5 1 0 255 ...", "sides"},
        {"P6 65535 65535 255 ...", "cut"},
        {"P5 1 1 45 .", "larger than 45"},
        {"P5 1 1 11821 ./", "larger than 11821"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_refused(rows[i].text, strlen(rows[i].text), rows[i].culprit);
    picture p;
    char reason[REASON_SIZE];
    assert_true(picture_decode((const unsigned char *)"P5 1 1 46 .", 11, true,
                               &p, reason));
    assert_int_equal(p.pixels[0], 255);
    picture_free(&p);
    assert_false(picture_read("no/such/file", true, &p, reason));
    assert_true(reason[0]);
}

/* Every length of a file but the whole one. */
static void check_cut(const char *name)
{
    unsigned char bytes[8192];
    FILE *file = fopen(picture_path(name), "rb");
    assert_non_null(file);
    const size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    assert_true(size > 0 && size < sizeof bytes);
    for (size_t length = 0; length < size; length++) {
        /* of its own, so that sanitizers see what is read behind it */
        unsigned char *part = malloc(length + 1);
        memcpy(part, bytes, length);
        part = realloc(part, length ? length : 1);
        assert_refused(part, length, "");
        free(part);
    }
}

static void test_cut(void **state)
{
    (void)state;
    check_cut("wide.ppm");
    check_cut("grey.ppm");
#ifdef SWIN_HAS_PNG
    check_cut("interlaced.png");
    check_cut("palette.png");
    check_cut("wide.png");
#endif
#ifdef SWIN_HAS_JPEG
    check_cut("progressive.jpg");
    check_cut("grey.jpg");
#endif
}

/* ---- Costs ---- */

static void refuse(bomb b, const char *culprit)
{
    assert_refused(b.bytes, b.size, culprit);
    free(b.bytes);
}

/* More memory or work than their few bytes may make, or what libpng would
 * inflate for nothing. */
static void test_costs(void **state)
{
    (void)state;
    refuse(bomb_png(65535, 65535, 8, 0), PNG_SAYS("sides"));
    refuse(bomb_png(8192, 16384, 16, 0), PNG_SAYS("more work"));
    refuse(bomb_png(1, 1, 8, 200000), PNG_SAYS("more data than its pixels"));
    refuse(bomb_jpeg(0xc2, 16376, 8192, 0), JPEG_SAYS("MiB of memory"));
    refuse(bomb_jpeg(0xc9, 16376, 8192, 0), ""); /* arithmetic coding */
    refuse(bomb_jpeg(0xc2, 5904, 5904, 42), JPEG_SAYS("more work"));
}

static size_t most_memory(void)
{
#if defined __linux__ && !defined __SANITIZE_ADDRESS__
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return (size_t)usage.ru_maxrss / 1024;
#else
    return 0;
#endif
}

/* Texts are not inflated. Before what else needs memory. */
static void test_texts(void **state)
{
    picture p;
    char reason[REASON_SIZE] = "";
    bomb b = bomb_texts(40, (size_t)7 << 20);
    const size_t before = most_memory();
    (void)state;
    if (!picture_decode(b.bytes, b.size, true, &p, reason) &&
        !strstr(reason, PNG_SAYS("nothing")))
        fail_msg("texts: %s", reason);
    picture_free(&p);
    assert_true(most_memory() - before < 64);
    free(b.bytes);
}

/* Files without an end are read no further than it takes. */
static void test_endless(void **state)
{
    (void)state;
#ifdef __linux__
    picture p;
    char reason[REASON_SIZE] = "";
    assert_false(picture_read("/dev/zero", true, &p, reason));
    assert_non_null(strstr(reason, "no PPM"));
#endif
}

/* ---- Resizing ---- */

typedef struct fit {
    cl_uint resize[2], crop[2];
    winattn_filter filter;
} fit;

static const fit fits[] = {
    {{32, 0}, {32, 32}, WINATTN_FILTER_BICUBIC},
    {{32, 0}, {32, 32}, WINATTN_FILTER_BILINEAR},
    {{19, 0}, {18, 17}, WINATTN_FILTER_BICUBIC},
    {{61, 0}, {33, 40}, WINATTN_FILTER_BICUBIC},
    {{45, 0}, {44, 42}, WINATTN_FILTER_BICUBIC},
    {{30, 27}, {30, 27}, WINATTN_FILTER_BICUBIC},
    {{52, 0}, {31, 29}, WINATTN_FILTER_BILINEAR},
};

static winattn_swin_config config_of(const fit *f)
{
    winattn_swin_config config = {.struct_size = sizeof config};
    assert_status(winattn_swin_config_find("swin_t", &config), 0, "");
    memcpy(config.resize, f->resize, sizeof f->resize);
    memcpy(config.crop, f->crop, sizeof f->crop);
    config.filter = f->filter;
    return config;
}

/* colour.png, from pixels that are golden, too */
static unsigned char *colour(size_t row_bytes)
{
    npy_array a = loaded("pictures/colour_png", "pixels");
    unsigned char *pixels = malloc(row_bytes * a.extent[0]);
    memset(pixels, 77, row_bytes * a.extent[0]);
    for (size_t i = 0; i < a.count; i++)
        pixels[i / (3 * a.extent[1]) * row_bytes + i % (3 * a.extent[1])] =
            (unsigned char)a.value[i];
    npy_free(&a);
    return pixels;
}

static void test_fits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof fits / sizeof *fits; i++) {
        char golden[32];
        const size_t row_bytes = i % 2 ? 200 : 183;
        const winattn_swin_config config = config_of(&fits[i]);
        unsigned char *pixels = colour(row_bytes);
        unsigned char *fitted =
            malloc((size_t)3 * fits[i].crop[0] * fits[i].crop[1]);
        assert_status(winattn_fit_picture(&config, 45, 61,
                                          i % 2 ? row_bytes : 0, pixels,
                                          fitted),
                      0, "");
        snprintf(golden, sizeof golden, "fit_%zu", i);
        assert_pixels(fitted, fits[i].crop[0], fits[i].crop[1], golden, 0);
        free(fitted);
        free(pixels);
    }
}

/* Mean and deviation are ImageNet's. */
static void test_normal(void **state)
{
    (void)state;
    const winattn_swin_config config = config_of(&fits[0]);
    unsigned char *pixels = colour(183), fitted[3 * 32 * 32];
    npy_array want = loaded("pictures/fit_0", "normal");
    double *got = malloc(want.count * sizeof *got);
    assert_status(winattn_fit_picture(&config, 45, 61, 0, pixels, fitted), 0,
                  "");
    assert_int_equal(want.count, sizeof fitted);
    for (size_t i = 0; i < want.count; i++) {
        const size_t c = i / (32 * 32), at = i % (32 * 32);
        got[i] = (fitted[3 * at + c] / 255.0 - config.mean[c]) /
                 config.deviation[c];
    }
    assert_close("normal", got, want.value, want.count, 1e-6);
    free(got);
    free(pixels);
    npy_free(&want);
}

static void test_bad_fits(void **state)
{
    static const struct {
        cl_uint height, width;
        size_t row_bytes;
        cl_uint resize, crop;
        int filter;
        winattn_status status;
        const char *culprit;
    } rows[] = {
        {2, 2, 0, 2, 2, 0, WINATTN_SUCCESS, ""},
        {0, 2, 0, 2, 2, 0, WINATTN_INVALID_ARGUMENT, "sides"},
        {2, 65536, 0, 2, 2, 0, WINATTN_INVALID_ARGUMENT, "sides"},
        {2, 2, 5, 2, 2, 0, WINATTN_INVALID_LAYOUT, "row_bytes"},
        {2, 2, 0, 2, 3, 0, WINATTN_INVALID_ARGUMENT, "middle"},
        {2, 2, 0, 2, 0, 0, WINATTN_INVALID_ARGUMENT, "crop[0]"},
        {2, 2, 0, 20000, 2, 0, WINATTN_INVALID_ARGUMENT, "resize[0]"},
        {2, 2, 0, 2, 2, 7, WINATTN_INVALID_ARGUMENT, "filter"},
    };
    unsigned char pixels[12] = {0}, fitted[12];
    winattn_swin_config c;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const fit small = {{rows[i].resize, 0},
                           {rows[i].crop, 2},
                           (winattn_filter)rows[i].filter};
        c = config_of(&small);
        assert_status(winattn_fit_picture(&c, rows[i].height, rows[i].width,
                                          rows[i].row_bytes, pixels, fitted),
                      rows[i].status, rows[i].culprit);
    }
    assert_status(winattn_fit_picture(&c, 2, 2, 0, NULL, fitted),
                  WINATTN_INVALID_ARGUMENT, "pixels");
    assert_status(winattn_fit_picture(NULL, 2, 2, 0, pixels, fitted),
                  WINATTN_INVALID_ARGUMENT, "config");
}

/* ---- .npy ---- */

static void test_npy(void **state)
{
    static const uint64_t extent[NPY_AXES] = {1, 2, 1, 3};
    static const float values[6] = {1, -2, 0.5F, 4, 5, 1e-30F};
    (void)state;
    assert_true(npy_write(folder_named("own_array.npy"), 4, extent, values));
    npy_array read = npy_read(folder_named(""), "own", "array");
    assert_non_null(read.value);
    assert_int_equal(read.axes, 4);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(read.extent[i], extent[i]);
    for (size_t i = 0; i < 6; i++)
        assert_true(read.value[i] == values[i]);
    npy_free(&read);
    assert_false(npy_write("no/such/folder/x.npy", 4, extent, values));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),     cmocka_unit_test(test_files),
        cmocka_unit_test(test_as_stored), cmocka_unit_test(test_exif),
        cmocka_unit_test(test_bad_ppm),   cmocka_unit_test(test_cut),
        cmocka_unit_test(test_costs),     cmocka_unit_test(test_endless),
        cmocka_unit_test(test_fits),      cmocka_unit_test(test_normal),
        cmocka_unit_test(test_bad_fits),  cmocka_unit_test(test_npy),
    };
    if (!scratch_make())
        return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_remove();
    return failed;
}
