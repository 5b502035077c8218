/* SPDX-License-Identifier: Apache-2.0
 * Kept programs: the bytes, the folder, and plans that come from them. What is
 * damaged or foreign must be noticed, and must never do harm. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/os.h"
#include "kit/run.h"
#include "program/cache.h"
#include "program/entry.h"
#include "program/program.h"
#include "program/program_set.h"

static test_device device;
static const char *own_path;
static char scratch[4096];

/* ---- Helpers ---- */

static uint32_t random_below(uint64_t *state, uint32_t limit)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % limit);
}

/* Under `scratch`; not made. */
static const char *folder_named(const char *name)
{
    static char path[4200];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    return path;
}

static void write_bytes(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* Calls for each of the cache's files in the folder; returns how many. */
static int for_files(const char *folder,
                     void (*visit)(const char *path, void *data), void *data)
{
    DIR *open_folder = opendir(folder);
    const struct dirent *item;
    int count = 0;
    while (open_folder && (item = readdir(open_folder)) != NULL) {
        char path[4600];
        if (!strstr(item->d_name, ".winattn"))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, item->d_name);
        if (visit)
            visit(path, data);
        count++;
    }
    if (open_folder)
        closedir(open_folder);
    return count;
}

static void remove_all(const char *path)
{
    DIR *folder = opendir(path);
    const struct dirent *item;
    while (folder && (item = readdir(folder)) != NULL) {
        char below[4600];
        if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0)
            continue;
        snprintf(below, sizeof below, "%s/%s", path, item->d_name);
        remove_all(below);
    }
    if (folder)
        closedir(folder);
    remove(path);
}

/* An entry of a few hundred bytes, to be freed. */
static unsigned char *small_entry(size_t *size)
{
    unsigned char binary[150];
    for (size_t i = 0; i < sizeof binary; i++)
        binary[i] = (unsigned char)(i * 37);
    const char *key = "winattn: 1\noptions: -DX=1\n";
    const wa_entry entry = {key, strlen(key), binary, sizeof binary};
    *size = wa_entry_size(&entry);
    unsigned char *bytes = malloc(*size);
    assert_non_null(bytes);
    wa_entry_write(&entry, bytes);
    return bytes;
}

/* ---- Bytes ---- */

/* A copy of its own, so that a sanitizer sees each read past the end. */
static const char *read_copy(const unsigned char *bytes, size_t size,
                             const char *(*read)(const unsigned char *,
                                                 size_t))
{
    unsigned char *copy = malloc(size ? size : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    const char *wrong = read(copy, size);
    free(copy);
    return wrong;
}

static const char *read_entry(const unsigned char *bytes, size_t size)
{
    wa_entry entry;
    const char *wrong = wa_entry_read(bytes, size, &entry);
    return !wrong && wa_entry_size(&entry) != size ? "size" : wrong;
}

static const char *ignore_entry(void *data, const wa_entry *entry)
{
    (void)entry;
    ++*(int *)data;
    return NULL;
}

static const char *read_blob(const unsigned char *bytes, size_t size)
{
    int count = 0;
    const char *wrong = wa_blob_read(bytes, size, ignore_entry, &count);
    if (wrong)
        assert_int_equal(count, 0);
    return wrong;
}

/* No part and no altered copy of the bytes is taken for sound. */
static void refuses_damage(const unsigned char *bytes, size_t size,
                           const char *(*read)(const unsigned char *, size_t))
{
    unsigned char *bad = malloc(size + 64);
    assert_non_null(bad);
    assert_null(read_copy(bytes, size, read));
    for (size_t length = 0; length < size; length++)
        assert_non_null(read_copy(bytes, length, read));
    memcpy(bad, bytes, size);
    memset(bad + size, 0, 64);
    assert_non_null(read_copy(bad, size + 1, read));
    assert_non_null(read_copy(bad, size + 64, read));
    for (size_t bit = 0; bit < size * 8; bit++) {
        memcpy(bad, bytes, size);
        bad[bit / 8] ^= (unsigned char)(1u << bit % 8);
        if (!read_copy(bad, size, read))
            fail_msg("bit %zu is not noticed", bit);
    }
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        uint64_t state = seed;
        memcpy(bad, bytes, size);
        const uint32_t changes = 1 + random_below(&state, 20);
        for (uint32_t i = 0; i < changes; i++)
            bad[random_below(&state, (uint32_t)size)] =
                (unsigned char)random_below(&state, 256);
        size_t length = size;
        if (random_below(&state, 2))
            length = random_below(&state, (uint32_t)size + 1);
        if ((length != size || memcmp(bad, bytes, size) != 0) &&
            !read_copy(bad, length, read))
            fail_msg("damage of seed %llu is not noticed",
                     (unsigned long long)seed);
    }
    free(bad);
}

static void entries_are_checked(void **state)
{
    (void)state;
    size_t size;
    wa_entry entry;
    unsigned char *bytes = small_entry(&size);
    assert_null(wa_entry_read(bytes, size, &entry));
    assert_int_equal(entry.binary_size, 150);
    assert_int_equal(entry.binary[2], 74);
    assert_memory_equal(entry.key, "winattn: 1\n", 11);
    refuses_damage(bytes, size, read_entry);
    free(bytes);
}

static void blobs_are_checked(void **state)
{
    (void)state;
    unsigned char blob[2048];
    size_t size;
    unsigned char *bytes = small_entry(&size);
    for (uint32_t count = 0; count <= 3; count++) {
        const size_t all = WA_BLOB_HEADER + count * size;
        wa_blob_write_header(blob, count, all);
        for (uint32_t i = 0; i < count; i++)
            memcpy(blob + WA_BLOB_HEADER + i * size, bytes, size);
        refuses_damage(blob, all, read_blob);
        /* a count or a size that does not fit what is there */
        wa_blob_write_header(blob, count + 1, all);
        assert_non_null(read_copy(blob, all, read_blob));
        wa_blob_write_header(blob, UINT32_MAX, all);
        assert_non_null(read_copy(blob, all, read_blob));
        wa_blob_write_header(blob, count, SIZE_MAX);
        assert_non_null(read_copy(blob, all, read_blob));
    }
    free(bytes);
}

/* Impossible sizes, in headers that are otherwise good. */
static void sizes_are_not_believed(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0,
                                     1,
                                     100,
                                     UINT32_MAX,
                                     (uint64_t)UINT32_MAX + 1,
                                     INT64_MAX,
                                     UINT64_MAX,
                                     UINT64_MAX - 63,
                                     UINT64_MAX - 200};
    size_t size;
    unsigned char *bytes = small_entry(&size);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++) {
            for (int byte = 0; byte < 4; byte++)
                bytes[12 + byte] = (unsigned char)(sizes[i] >> 8 * byte);
            for (int byte = 0; byte < 8; byte++)
                bytes[16 + byte] = (unsigned char)(sizes[j] >> 8 * byte);
            assert_non_null(read_copy(bytes, size, read_entry));
        }
    free(bytes);
}

/* ---- Folder ---- */

static void store_text(const char *key, const char *text)
{
    wa_cache_store(key, (const unsigned char *)text, strlen(text));
}

static void assert_cached(const char *key, const char *text)
{
    unsigned char *file;
    wa_entry entry;
    assert_int_equal(wa_cache_load(key, &file, &entry), WINATTN_SUCCESS);
    assert_non_null(file);
    assert_int_equal(entry.binary_size, strlen(text));
    assert_memory_equal(entry.binary, text, entry.binary_size);
    free(file);
}

static void assert_not_cached(const char *key)
{
    unsigned char *file;
    wa_entry entry;
    assert_int_equal(wa_cache_load(key, &file, &entry), WINATTN_SUCCESS);
    assert_null(file);
}

static void path_of_key(const char *folder, const char *key, char path[4600])
{
    char name[WA_CACHE_NAME_SIZE];
    wa_cache_file_name(key, name);
    snprintf(path, 4600, "%s/%s", folder, name);
}

static void stores_and_loads(void **state)
{
    (void)state;
    char folder[4200], path[4600], other[4600];
    struct stat info;
    snprintf(folder, sizeof folder, "%s", folder_named("a/b/c"));
    assert_int_equal(winattn_set_cache_dir(folder), WINATTN_SUCCESS);
    assert_not_cached("one");
    assert_int_equal(stat(folder, &info), -1); /* reading makes nothing */
    assert_true(wa_cache_stores());
    store_text("one", "first");
    assert_cached("one", "first");
    store_text("one", "second");
    assert_cached("one", "second");
    assert_not_cached("two");
    assert_int_equal(for_files(folder, NULL, NULL), 1);
    /* nobody else may look in or write */
    assert_int_equal(stat(folder, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    path_of_key(folder, "one", path);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    /* a file under the name of another key, as if the hashes were equal */
    path_of_key(folder, "two", other);
    assert_int_equal(rename(path, other), 0);
    assert_not_cached("two");
    store_text("two", "own");
    assert_cached("two", "own");
    /* what everybody can write to is not trusted */
    assert_int_equal(chmod(folder, 0777), 0);
    assert_false(wa_cache_stores());
    assert_not_cached("two");
    assert_int_equal(chmod(folder, 0700), 0);
    assert_cached("two", "own");
}

static void damaged_files_are_rewritten(void **state)
{
    (void)state;
    char folder[4200], path[4600];
    unsigned char *bytes;
    size_t size;
    snprintf(folder, sizeof folder, "%s", folder_named("damaged"));
    winattn_set_cache_dir(folder);
    store_text("key", "some binary");
    path_of_key(folder, "key", path);
    assert_int_equal(wa_file_read(path, 4096, &bytes, &size), WA_FILE_READ);
    for (size_t length = 0; length < size; length++) {
        write_bytes(path, bytes, length);
        assert_not_cached("key");
    }
    for (uint64_t seed = 1; seed <= 300; seed++) {
        uint64_t random = seed;
        const size_t at = random_below(&random, (uint32_t)size);
        bytes[at] ^= (unsigned char)(1 + random_below(&random, 255));
        write_bytes(path, bytes, size);
        assert_not_cached("key");
        free(bytes);
        store_text("key", "some binary");
        assert_cached("key", "some binary");
        assert_int_equal(wa_file_read(path, 4096, &bytes, &size),
                         WA_FILE_READ);
    }
    /* something after the end */
    bytes = realloc(bytes, size + 1);
    assert_non_null(bytes);
    bytes[size] = 0;
    write_bytes(path, bytes, size + 1);
    assert_not_cached("key");
    free(bytes);
    /* no file, but a folder */
    remove(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_not_cached("key");
    store_text("key", "some binary");
    assert_not_cached("key");
}

/* The folder that is used is the one where a file appears. */
static void assert_stores_in(const char *folder)
{
    remove_all(folder);
    store_text("key", "text");
    assert_int_equal(for_files(folder, NULL, NULL), 1);
    assert_cached("key", "text");
    remove_all(folder);
}

static void folder_is_chosen(void **state)
{
    (void)state;
    char api[4200], variable[4200], xdg[4200], below_xdg[4300], home[4200],
        below_home[4300], too_long[5000];
    snprintf(api, sizeof api, "%s", folder_named("api"));
    snprintf(variable, sizeof variable, "%s", folder_named("variable"));
    snprintf(xdg, sizeof xdg, "%s", folder_named("xdg"));
    snprintf(below_xdg, sizeof below_xdg, "%s/winattn", xdg);
    snprintf(home, sizeof home, "%s", folder_named("home"));
#ifdef __APPLE__
    snprintf(below_home, sizeof below_home, "%s/Library/Caches/winattn", home);
    snprintf(below_xdg, sizeof below_xdg, "%s", below_home);
#else
    snprintf(below_home, sizeof below_home, "%s/.cache/winattn", home);
#endif
    setenv("HOME", home, 1);
    setenv("XDG_CACHE_HOME", xdg, 1);
    setenv("WINATTN_CACHE_DIR", variable, 1);
    winattn_set_cache_dir(api);
    assert_stores_in(api);
    winattn_set_cache_dir(NULL);
    assert_stores_in(variable);
    unsetenv("WINATTN_CACHE_DIR");
    assert_stores_in(below_xdg);
    setenv("XDG_CACHE_HOME", "relative", 1);
    assert_stores_in(below_home);
    unsetenv("XDG_CACHE_HOME");
    assert_stores_in(below_home);
    setenv("WINATTN_CACHE", "1", 1);
    assert_stores_in(below_home);

    /* off */
    unsetenv("HOME");
    assert_false(wa_cache_stores());
    setenv("HOME", home, 1);
    setenv("WINATTN_CACHE_DIR", "", 1);
    assert_false(wa_cache_stores());
    unsetenv("WINATTN_CACHE_DIR");
    winattn_set_cache_dir("");
    assert_false(wa_cache_stores());
    store_text("key", "text");
    assert_not_cached("key");
    winattn_set_cache_dir(api);
    setenv("WINATTN_CACHE", "0", 1);
    assert_false(wa_cache_stores());
    store_text("key", "text");
    unsetenv("WINATTN_CACHE");
    assert_not_cached("key");
    assert_true(wa_cache_stores());

    /* a path that is too long is none, and no reason to take another */
    assert_null(wa_cache_trouble());
    memset(too_long, 'x', sizeof too_long - 1);
    too_long[sizeof too_long - 1] = 0;
    too_long[0] = '/';
    winattn_set_cache_dir(NULL);
    setenv("XDG_CACHE_HOME", xdg, 1);
    static const char *const names[] = {"WINATTN_CACHE_DIR",
#ifndef __APPLE__
                                        "XDG_CACHE_HOME",
#endif
                                        "HOME"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        setenv(names[i], too_long, 1);
        assert_false(wa_cache_stores());
        assert_non_null(wa_cache_trouble());
        store_text("key", "text");
        assert_int_equal(for_files(below_xdg, NULL, NULL), 0);
        assert_int_equal(for_files(below_home, NULL, NULL), 0);
        unsetenv(names[i]);
    }
    setenv("HOME", home, 1);
    winattn_set_cache_dir(api);
    assert_int_equal(winattn_set_cache_dir(too_long),
                     WINATTN_INVALID_ARGUMENT);
    assert_stores_in(api); /* as before */
}

/* A file is where the folder should be, or above it. */
static void folder_cannot_be_made(void **state)
{
    (void)state;
    char path[4200], below[4300];
    snprintf(path, sizeof path, "%s", folder_named("file"));
    snprintf(below, sizeof below, "%s/below", path);
    write_bytes(path, "x", 1);
    const char *const folders[] = {path, below};
    for (int i = 0; i < 2; i++) {
        winattn_set_cache_dir(folders[i]);
        assert_false(wa_cache_stores());
        store_text("key", "text");
        assert_not_cached("key");
    }
}

static void set_age(const char *path, long seconds)
{
    struct timespec times[2];
    assert_int_equal(clock_gettime(CLOCK_REALTIME, &times[0]), 0);
    times[0].tv_sec -= seconds;
    times[1] = times[0];
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void oldest_go_first(void **state)
{
    (void)state;
    char folder[4200], path[4600], foreign[4600], fresh[4600], left[4600],
        key[16], text[101];
    snprintf(folder, sizeof folder, "%s", folder_named("pruned"));
    winattn_set_cache_dir(folder);
    memset(text, 'x', 100);
    text[100] = 0;
    struct stat info;
    for (int i = 0; i < 20; i++) {
        snprintf(key, sizeof key, "key %02d", i);
        store_text(key, text);
        path_of_key(folder, key, path);
        set_age(path, 100 + 100 * i);
    }
    assert_int_equal(stat(path, &info), 0);
    snprintf(foreign, sizeof foreign, "%s/keep.txt", folder);
    snprintf(fresh, sizeof fresh, "%s/" WA_TEMPORARY "1-0", folder);
    snprintf(left, sizeof left, "%s/" WA_TEMPORARY "2-0", folder);
    write_bytes(foreign, "x", 1);
    set_age(foreign, 1000000);
    write_bytes(fresh, "x", 1);
    write_bytes(left, "x", 1);
    set_age(left, 100000);

    wa_cache_prune(folder, UINT64_MAX, SIZE_MAX);
    assert_int_equal(for_files(folder, NULL, NULL), 20);
    assert_int_equal(access(foreign, F_OK), 0);
    assert_int_equal(access(fresh, F_OK), 0);
    assert_int_equal(access(left, F_OK), -1);
    wa_cache_prune(folder, UINT64_MAX, 15);
    assert_int_equal(for_files(folder, NULL, NULL), 15);
    wa_cache_prune(folder, (uint64_t)info.st_size * 4 + 1, SIZE_MAX);
    assert_int_equal(for_files(folder, NULL, NULL), 4);
    for (int i = 0; i < 20; i++) {
        snprintf(key, sizeof key, "key %02d", i);
        if (i < 4)
            assert_cached(key, text);
        else
            assert_not_cached(key);
    }
    assert_int_equal(access(foreign, F_OK), 0);
    wa_cache_prune(folder_named("is not there"), 0, 0);
}

/* Writes and reads one key, again and again: what is read is always whole.
 * Several threads and processes do so at once. */
static void *hammer(void *folder)
{
    char text[20000];
    bool ok = true;
    (void)folder;
    memset(text, 'x', sizeof text);
    for (uint64_t i = 1; i <= 200; i++) {
        uint64_t random = i * 77777;
        unsigned char *file;
        wa_entry entry;
        wa_cache_store("hammered", (const unsigned char *)text,
                       1 + random_below(&random, sizeof text));
        if (wa_cache_load("hammered", &file, &entry) != WINATTN_SUCCESS ||
            !file) {
            ok = false;
            continue;
        }
        for (size_t at = 0; at < entry.binary_size; at += 997)
            ok = ok && entry.binary[at] == 'x';
        free(file);
    }
    return ok ? NULL : "";
}

/* Runs this program again, as `mode` in the folder. */
static pid_t start_child(const char *mode, const char *folder)
{
    const pid_t child = fork();
    if (child == 0) {
        execl(own_path, own_path, mode, folder, (char *)NULL);
        _exit(99);
    }
    assert_true(child > 0);
    return child;
}

static void assert_child_succeeds(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void writers_do_not_meet(void **state)
{
    (void)state;
    char folder[4200];
    snprintf(folder, sizeof folder, "%s", folder_named("hammered"));
    winattn_set_cache_dir(folder);
    store_text("hammered", "x");
    const pid_t children[2] = {start_child("hammer", folder),
                               start_child("hammer", folder)};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hammer, folder), 0);
    for (int i = 0; i < 3; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    for (int i = 0; i < 2; i++)
        assert_child_succeeds(children[i]);
    assert_int_equal(for_files(folder, NULL, NULL), 1);
    char path[4600];
    path_of_key(folder, "hammered", path);
    remove(path);
    assert_int_equal(rmdir(folder), 0); /* no temporary file is left */
}

/* ---- Plans ---- */

/* What a run of a plan gave. */
typedef struct outcome {
    unsigned built;        /* programs, from source */
    char origin[40];       /* as the plan describes it */
    unsigned char o[8192]; /* the buffer that holds the result */
} outcome;

#define CPU_CASE "tier=cpu windows=2 heads=1 queries=10 dim=8"
#define LOCAL_CASE "tier=local windows=2 heads=1 queries=10 dim=8 bias=same"

static void describe_origin(const winattn_plan *plan, char origin[40])
{
    char text[4096];
    assert_int_equal(winattn_plan_describe(plan, sizeof text, text, NULL),
                     WINATTN_SUCCESS);
    const char *line = strstr(text, "\nprogram: ");
    assert_non_null(line);
    assert_int_equal(sscanf(line, "\nprogram: %39[^\n]", origin), 1);
}

/* Creates a plan, runs it, and checks the result. */
static void run_plan(cl_context context, cl_device_id id,
                     cl_command_queue queue, const char *text, outcome *result)
{
    test_case c = case_default();
    test_device on = device;
    device_buffers buffers;
    case_result checked;
    winattn_plan *plan;
    on.context = context;
    on.id = id;
    on.queue = queue;
    memset(result, 0, sizeof *result);
    memset(&checked, 0, sizeof checked);
    assert_true(case_parse(text, &c, NULL));
    case_buffers *data = data_make(&c);
    assert_non_null(data);
    assert_true(buffers_create(&on, data, &buffers));
    const winattn_desc desc = data_desc(data);
    const unsigned before = wa_programs_built();
    if (winattn_plan_create(context, id, &desc, &plan) != WINATTN_SUCCESS)
        fail_msg("%s", winattn_last_reason());
    result->built = wa_programs_built() - before;
    assert_string_equal(winattn_last_reason(), "");
    describe_origin(plan, result->origin);
    const winattn_forward forward = buffers_forward(data, &buffers);
    assert_int_equal(
        winattn_enqueue_forward(plan, queue, &forward, 0, NULL, NULL),
        WINATTN_SUCCESS);
    if (!buffers_check(queue, data, &buffers, 0, &checked))
        fail_msg("%s", checked.failure);
    const int o = data->tensor[T_O].buffer;
    assert_true(data->buffer[o].size <= sizeof result->o);
    assert_int_equal(clEnqueueReadBuffer(queue, buffers.mem[o], CL_TRUE, 0,
                                         data->buffer[o].size, result->o, 0,
                                         NULL, NULL),
                     CL_SUCCESS);
    winattn_plan_destroy(plan);
    buffers_release(&buffers);
    data_free(data);
}

static void run_here(const char *text, outcome *result)
{
    run_plan(device.context, device.id, device.queue, text, result);
}

/* Some drivers give no binaries; then all is built from source, and there is
 * nothing more to test. */
static bool gives_binaries(void)
{
    static int known = -1;
    outcome first;
    if (known < 0) {
        char folder[4200];
        snprintf(folder, sizeof folder, "%s", folder_named("tried"));
        winattn_set_cache_dir(folder);
        run_here(CPU_CASE, &first);
        known = for_files(folder, NULL, NULL) > 0;
        if (!known)
            printf("the driver gives no binaries\n");
    }
    return known;
}

static void warm_is_like_cold(void **state)
{
    (void)state;
    static const char *const cases[] = {CPU_CASE, LOCAL_CASE};
    outcome cold, warm;
    if (!gives_binaries())
        skip();
    winattn_set_cache_dir(folder_named("warm"));
    for (int i = 0; i < 2; i++) {
        run_here(cases[i], &cold);
        assert_int_equal(cold.built, 1);
        assert_string_equal(cold.origin, "compiled from source");
        run_here(cases[i], &warm);
        assert_int_equal(warm.built, 0);
        assert_string_equal(warm.origin, "from the cache");
        assert_memory_equal(warm.o, cold.o, sizeof cold.o);
    }
    /* elsewhere, and off */
    winattn_set_cache_dir(folder_named("elsewhere"));
    run_here(CPU_CASE, &cold);
    assert_int_equal(cold.built, 1);
    winattn_set_cache_dir("");
    run_here(CPU_CASE, &cold);
    assert_int_equal(cold.built, 1);
    winattn_set_cache_dir(folder_named("warm"));
    run_here(CPU_CASE, &warm);
    assert_int_equal(warm.built, 0);
}

/* Options are part of the key, and so is a failed build no entry. */
static void options_matter(void **state)
{
    (void)state;
    test_case c = case_default();
    winattn_plan *plan;
    char origin[40];
    if (!gives_binaries())
        skip();
    winattn_set_cache_dir(folder_named("options"));
    assert_true(case_parse(CPU_CASE, &c, NULL));
    winattn_desc desc = case_desc(&c);
    const char *const options[] = {"-DUNUSED=1", "-DUNUSED=2"};
    for (int i = 0; i < 4; i++) {
        desc.build_options = options[i % 2];
        assert_int_equal(
            winattn_plan_create(device.context, device.id, &desc, &plan),
            WINATTN_SUCCESS);
        describe_origin(plan, origin);
        assert_string_equal(origin,
                            i < 2 ? "compiled from source" : "from the cache");
        winattn_plan_destroy(plan);
    }
    for (int i = 0; i < 2; i++) {
        desc.build_options = "-Dforward_args=int";
        assert_int_equal(
            winattn_plan_create(device.context, device.id, &desc, &plan),
            CL_BUILD_PROGRAM_FAILURE);
        assert_true(strlen(winattn_last_build_log()) > 10);
    }
}

/* What is done to a file. */
typedef enum damage {
    EMPTY,
    CUT,
    FLIPPED,
    FOREIGN,    /* sound, but of another key */
    NO_PROGRAM, /* sound, but the driver must refuse it */
    DAMAGES
} damage;

static void spoil(const char *path, void *data)
{
    const damage how = *(const damage *)data;
    unsigned char *bytes, *bad;
    size_t size;
    wa_entry entry;
    static unsigned char rubbish[16384];
    assert_int_equal(wa_file_read(path, SIZE_MAX, &bytes, &size),
                     WA_FILE_READ);
    assert_null(wa_entry_read(bytes, size, &entry));
    switch (how) {
    case EMPTY:
        write_bytes(path, bytes, 0);
        break;
    case CUT:
        write_bytes(path, bytes, size / 2);
        break;
    case FLIPPED:
        bytes[size - 100] ^= 4;
        write_bytes(path, bytes, size);
        break;
    case FOREIGN:
        entry.key_size--;
        bad = malloc(size);
        assert_non_null(bad);
        wa_entry_write(&entry, bad);
        write_bytes(path, bad, wa_entry_size(&entry));
        free(bad);
        break;
    case NO_PROGRAM:
        for (size_t i = 0; i < sizeof rubbish; i++)
            rubbish[i] = (unsigned char)(i * 2654435761u >> 13);
        entry.binary = rubbish;
        entry.binary_size = sizeof rubbish;
        bad = malloc(wa_entry_size(&entry));
        assert_non_null(bad);
        wa_entry_write(&entry, bad);
        write_bytes(path, bad, wa_entry_size(&entry));
        free(bad);
        break;
    case DAMAGES:
        break;
    }
    free(bytes);
}

static void damaged_programs_are_rebuilt(void **state)
{
    (void)state;
    outcome good, again;
    char folder[4200];
    if (!gives_binaries())
        skip();
    snprintf(folder, sizeof folder, "%s", folder_named("spoilt"));
    winattn_set_cache_dir(folder);
    run_here(CPU_CASE, &good);
    for (damage how = 0; how < DAMAGES; how++) {
        /* rusticl 22.3 aborts the process instead */
        if (how == NO_PROGRAM && strncmp(device.name, "rusticl", 7) == 0)
            continue;
        assert_true(for_files(folder, spoil, &how) > 0);
        run_here(CPU_CASE, &again);
        assert_int_equal(again.built, 1);
        assert_memory_equal(again.o, good.o, sizeof good.o);
        run_here(CPU_CASE, &again);
        assert_int_equal(again.built, 0);
    }
}

static void plans_do_without_a_folder(void **state)
{
    (void)state;
    outcome result;
    char path[4200];
    snprintf(path, sizeof path, "%s", folder_named("no folder"));
    write_bytes(path, "x", 1);
    winattn_set_cache_dir(path);
    run_here(CPU_CASE, &result);
    assert_int_equal(result.built, 1);
}

static void processes_share(void **state)
{
    (void)state;
    char folder[4200];
    outcome result;
    if (!gives_binaries())
        skip();
    snprintf(folder, sizeof folder, "%s", folder_named("shared"));
    const pid_t children[2] = {start_child("plan", folder),
                               start_child("plan", folder)};
    for (int i = 0; i < 2; i++)
        assert_child_succeeds(children[i]);
    winattn_set_cache_dir(folder);
    run_here(CPU_CASE, &result);
    assert_int_equal(result.built, 0);
    run_here(LOCAL_CASE, &result);
    assert_int_equal(result.built, 0);
}

/* A part of a device, in a context of its own. */
static void parts_of_devices(void **state)
{
    (void)state;
    const cl_device_partition_property units[] = {
        CL_DEVICE_PARTITION_BY_COUNTS, 1,
        CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0};
    cl_device_id part = NULL;
    cl_uint count = 0, parts = 0;
    cl_int error;
    outcome cold, warm;
    /* rusticl 22.3 crashes where it could refuse */
    clGetDeviceInfo(device.id, CL_DEVICE_PARTITION_MAX_SUB_DEVICES,
                    sizeof parts, &parts, NULL);
    if (!gives_binaries() || parts < 2 ||
        clCreateSubDevices(device.id, units, 1, &part, &count) != CL_SUCCESS)
        skip();
    cl_context context = clCreateContext(NULL, 1, &part, NULL, NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
    cl_command_queue queue = clCreateCommandQueue(context, part, 0, &error);
    assert_int_equal(error, CL_SUCCESS);
    winattn_set_cache_dir(folder_named("part"));
    run_plan(context, part, queue, CPU_CASE, &cold);
    run_plan(context, part, queue, CPU_CASE, &warm);
    assert_int_equal(warm.built, 0);
    assert_memory_equal(warm.o, cold.o, sizeof cold.o);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
    clReleaseDevice(part);
}

/* ---- Blobs ---- */

static winattn_programs *make_programs(void)
{
    winattn_programs *programs;
    assert_int_equal(
        winattn_programs_create(device.context, device.id, &programs),
        WINATTN_SUCCESS);
    return programs;
}

static unsigned char *export_all(const winattn_programs *programs,
                                 size_t *size)
{
    assert_int_equal(winattn_programs_export(programs, 0, NULL, size),
                     WINATTN_SUCCESS);
    unsigned char *blob = malloc(*size);
    assert_non_null(blob);
    assert_int_equal(winattn_programs_export(programs, *size, blob, NULL),
                     WINATTN_SUCCESS);
    return blob;
}

static void programs_stay(void **state)
{
    (void)state;
    outcome result;
    winattn_set_cache_dir("");
    winattn_programs *programs = make_programs();
    run_here(CPU_CASE, &result);
    assert_int_equal(result.built, 1);
    run_here(CPU_CASE, &result);
    assert_int_equal(result.built, 0);
    winattn_programs_destroy(programs);
    run_here(CPU_CASE, &result);
    assert_int_equal(result.built, 1);
}

static void blobs_travel(void **state)
{
    (void)state;
    outcome cold[2], warm;
    size_t size, size_again, needed = 0;
    if (!gives_binaries())
        skip();
    winattn_set_cache_dir("");
    winattn_programs *programs = make_programs();
    run_here(CPU_CASE, &cold[0]);
    run_here(LOCAL_CASE, &cold[1]);
    unsigned char *blob = export_all(programs, &size);
    assert_int_equal(
        winattn_programs_export(programs, size - 1, blob, &needed),
        WINATTN_INVALID_ARGUMENT);
    assert_int_equal(needed, size);
    winattn_programs_destroy(programs);

    /* as in another process: nothing of it is left */
    programs = make_programs();
    assert_int_equal(winattn_programs_import(programs, size, blob),
                     WINATTN_SUCCESS);
    assert_int_equal(winattn_programs_import(programs, size, blob),
                     WINATTN_SUCCESS);
    run_here(CPU_CASE, &warm);
    assert_int_equal(warm.built, 0);
    assert_string_equal(warm.origin, "imported");
    assert_memory_equal(warm.o, cold[0].o, sizeof warm.o);
    /* used and unused, both go out again */
    unsigned char *second = export_all(programs, &size_again);
    winattn_programs_destroy(programs);
    programs = make_programs();
    assert_int_equal(winattn_programs_import(programs, size_again, second),
                     WINATTN_SUCCESS);
    run_here(LOCAL_CASE, &warm);
    assert_int_equal(warm.built, 0);
    assert_memory_equal(warm.o, cold[1].o, sizeof warm.o);
    run_here(CPU_CASE, &warm);
    assert_int_equal(warm.built, 0);
    winattn_programs_destroy(programs);
    free(second);
    free(blob);
}

static void assert_refused(winattn_programs *programs, const void *blob,
                           size_t size, const char *culprit)
{
    unsigned char *copy = malloc(size ? size : 1);
    assert_non_null(copy);
    memcpy(copy, blob, size);
    assert_int_equal(winattn_programs_import(programs, size, copy),
                     WINATTN_INVALID_BLOB);
    if (!strstr(winattn_last_reason(), culprit))
        fail_msg("\"%s\" does not name \"%s\"", winattn_last_reason(),
                 culprit);
    free(copy);
}

static void bad_blobs_are_refused(void **state)
{
    (void)state;
    outcome result;
    size_t size;
    if (!gives_binaries())
        skip();
    winattn_set_cache_dir("");
    winattn_programs *programs = make_programs();
    run_here(CPU_CASE, &result);
    unsigned char *blob = export_all(programs, &size);
    winattn_programs_destroy(programs);
    programs = make_programs();
    for (size_t length = 0; length < 300; length++)
        assert_refused(programs, blob, length, "blob");
    for (uint64_t seed = 1; seed <= 300; seed++) {
        uint64_t random = seed;
        const size_t at = random_below(&random, (uint32_t)size);
        const unsigned char bit =
            (unsigned char)(1u << random_below(&random, 8));
        assert_refused(programs, blob, random_below(&random, (uint32_t)size),
                       "blob");
        blob[at] ^= bit;
        assert_refused(programs, blob, size, "blob");
        blob[at] ^= bit;
    }
    /* nothing of all that was taken */
    run_here(CPU_CASE, &result);
    assert_int_equal(result.built, 1);
    winattn_programs_destroy(programs);
    free(blob);
}

/* A blob of one entry with this key. */
static unsigned char *blob_with_key(const char *key, size_t key_size,
                                    size_t *size)
{
    const wa_entry entry = {key, key_size, (const unsigned char *)"binary", 6};
    *size = WA_BLOB_HEADER + wa_entry_size(&entry);
    unsigned char *blob = malloc(*size);
    assert_non_null(blob);
    wa_blob_write_header(blob, 1, *size);
    wa_entry_write(&entry, blob + WA_BLOB_HEADER);
    return blob;
}

/* Sound, but of another version, device or driver. */
static void foreign_blobs_are_refused(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "winattn: ", "platform: ",     "platform version: ",
        "vendor: ",  "device: ",       "device version: ",
        "driver: ",  "address bits: ", "program: ",
        "source: "};
    wa_recipe recipe;
    size_t size;
    winattn_programs *programs = make_programs();
    assert_int_equal(
        wa_recipe_of_kernel(device.id, "forward_cpu", "-DX", &recipe),
        WINATTN_SUCCESS);
    const size_t length = strlen(recipe.key);
    unsigned char *blob = blob_with_key(recipe.key, length, &size);
    assert_int_equal(winattn_programs_import(programs, size, blob),
                     WINATTN_SUCCESS);
    free(blob);
    char *key = malloc(length + 2);
    assert_non_null(key);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        memcpy(key, recipe.key, length + 1);
        char *line = strstr(key, lines[i]);
        assert_non_null(line);
        line += strlen(lines[i]);
        memmove(line + 1, line, strlen(line) + 1);
        *line = '#';
        blob = blob_with_key(key, length + 1, &size);
        assert_refused(programs, blob, size,
                       strcmp(lines[i], "program: ") == 0 ? "source: "
                                                          : lines[i]);
        free(blob);
    }
    /* keys that end early, or hold a 0 */
    for (size_t cut = 1; cut + 20 < length; cut += 7) {
        blob = blob_with_key(recipe.key, cut, &size);
        assert_int_equal(winattn_programs_import(programs, size, blob),
                         strstr(recipe.key, "options: ") - recipe.key <=
                                 (ptrdiff_t)cut + 1
                             ? WINATTN_SUCCESS
                             : WINATTN_INVALID_BLOB);
        free(blob);
    }
    memcpy(key, recipe.key, length + 1);
    key[length - 3] = 0;
    blob = blob_with_key(key, length, &size);
    assert_refused(programs, blob, size, "blob");
    free(blob);
    free(key);
    wa_recipe_free(&recipe);
    winattn_programs_destroy(programs);
}

static void arguments_are_checked(void **state)
{
    (void)state;
    winattn_programs *programs = (winattn_programs *)&device;
    size_t size = 0;
    char byte = 0;
    assert_int_equal(winattn_programs_create(NULL, device.id, &programs),
                     WINATTN_INVALID_ARGUMENT);
    assert_null(programs);
    assert_int_equal(winattn_programs_create(device.context, NULL, &programs),
                     WINATTN_INVALID_ARGUMENT);
    assert_int_equal(winattn_programs_create(device.context, device.id, NULL),
                     WINATTN_INVALID_ARGUMENT);
    assert_int_equal(winattn_programs_import(NULL, 1, &byte),
                     WINATTN_INVALID_ARGUMENT);
    assert_int_equal(winattn_programs_export(NULL, 0, NULL, &size),
                     WINATTN_INVALID_ARGUMENT);
    winattn_programs_destroy(NULL);
    programs = make_programs();
    assert_int_equal(winattn_programs_import(programs, 1, NULL),
                     WINATTN_INVALID_ARGUMENT);
    assert_int_equal(winattn_programs_import(programs, 1, &byte),
                     WINATTN_INVALID_BLOB);
    assert_int_equal(winattn_programs_export(programs, 5, NULL, &size),
                     WINATTN_INVALID_ARGUMENT);
    /* nothing to export is a blob too */
    unsigned char *blob = export_all(programs, &size);
    assert_int_equal(winattn_programs_import(programs, size, blob),
                     WINATTN_SUCCESS);
    free(blob);
    winattn_programs_destroy(programs);
}

/* What start_child starts; 0 if all went well. */
static int be_child(const char *mode, const char *folder)
{
    winattn_set_cache_dir(folder);
    if (strcmp(mode, "hammer") == 0)
        return hammer(NULL) != NULL;
    outcome result;
    char reason[256];
    if (!device_open(&device, reason))
        return 2;
    winattn_set_cache_dir(folder);
    run_here(CPU_CASE, &result);
    run_here(LOCAL_CASE, &result);
    run_here(CPU_CASE, &result);
    device_close(&device);
    return result.built != 0;
}

int main(int count, char **texts)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_are_checked),
        cmocka_unit_test(blobs_are_checked),
        cmocka_unit_test(sizes_are_not_believed),
        cmocka_unit_test(stores_and_loads),
        cmocka_unit_test(damaged_files_are_rewritten),
        cmocka_unit_test(folder_is_chosen),
        cmocka_unit_test(folder_cannot_be_made),
        cmocka_unit_test(oldest_go_first),
        cmocka_unit_test(writers_do_not_meet),
        cmocka_unit_test(warm_is_like_cold),
        cmocka_unit_test(options_matter),
        cmocka_unit_test(damaged_programs_are_rebuilt),
        cmocka_unit_test(plans_do_without_a_folder),
        cmocka_unit_test(processes_share),
        cmocka_unit_test(parts_of_devices),
        cmocka_unit_test(programs_stay),
        cmocka_unit_test(blobs_travel),
        cmocka_unit_test(bad_blobs_are_refused),
        cmocka_unit_test(foreign_blobs_are_refused),
        cmocka_unit_test(arguments_are_checked),
    };
    char reason[256];
    unsetenv("WINATTN_CACHE");
    unsetenv("WINATTN_CACHE_DIR");
    own_path = texts[0];
    if (count == 3)
        return be_child(texts[1], texts[2]);
    if (!device_open(&device, reason)) {
        fprintf(stderr, "%s\n", reason);
        return 1;
    }
    printf("device: %s\n", device.name);
    if (!getcwd(scratch, sizeof scratch - 32))
        return 1;
    strcat(scratch, "/cache_XXXXXX");
    if (!mkdtemp(scratch))
        return 1;
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    remove_all(scratch);
    device_close(&device);
    return failures;
}
