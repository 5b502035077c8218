/* SPDX-License-Identifier: Apache-2.0
 * The cache's folder: which it is, who may read it, what happens to files in
 * it. */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/os.h"
#include "cache.h"
#include "program/cache.h"
#include "program/cache_record.h"

static void store_text(const char *key, const char *text)
{
    wa_cache_store(key, (const unsigned char *)text, strlen(text));
}

static void assert_cached(const char *key, const char *text)
{
    unsigned char *file;
    wa_cache_record record;
    assert_int_equal(wa_cache_load(key, &file, &record), WINATTN_SUCCESS);
    assert_non_null(file);
    assert_int_equal(record.binary_size, strlen(text));
    assert_memory_equal(record.binary, text, record.binary_size);
    free(file);
}

static void assert_not_cached(const char *key)
{
    unsigned char *file;
    wa_cache_record record;
    assert_int_equal(wa_cache_load(key, &file, &record), WINATTN_SUCCESS);
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
    use_folder("a/b/c", folder);
    assert_not_cached("one");
    assert_int_equal(stat(folder, &info), -1); /* reading makes nothing */
    assert_true(wa_cache_stores());
    store_text("one", "first");
    assert_cached("one", "first");
    store_text("one", "second");
    assert_cached("one", "second");
    assert_not_cached("two");
    assert_int_equal(for_files(folder, NULL, NULL), 1);
    /* nobody else may look in or write; Windows has no modes */
    assert_int_equal(stat(folder, &info), 0);
#ifndef _WIN32
    assert_int_equal(info.st_mode & 0777, 0700);
#endif
    path_of_key(folder, "one", path);
    assert_int_equal(stat(path, &info), 0);
#ifndef _WIN32
    assert_int_equal(info.st_mode & 0777, 0600);
#endif
    /* a file under the name of another key, as if the hashes were equal */
    path_of_key(folder, "two", other);
    assert_int_equal(rename(path, other), 0);
    assert_not_cached("two");
    store_text("two", "own");
    assert_cached("two", "own");
}

#ifndef _WIN32
/* Windows has no modes. */
static void what_others_write_is_not_loaded(void **state)
{
    static const struct {
        mode_t mode;
        const char *word;
    } open_to[] = {{0777, "everybody"}, {0770, "group"}, {0702, "everybody"}};
    (void)state;
    char folder[4200], path[4600], moved[4600];
    use_folder("open", folder);
    assert_null(wa_cache_trouble()); /* it will be made */
    store_text("key", "own");
    path_of_key(folder, "key", path);
    snprintf(moved, sizeof moved, "%s/moved", folder);
    for (size_t i = 0; i < sizeof open_to / sizeof *open_to; i++) {
        assert_int_equal(chmod(folder, open_to[i].mode), 0);
        assert_false(wa_cache_stores());
        assert_not_cached("key");
        assert_non_null(wa_cache_trouble());
        assert_non_null(strstr(wa_cache_trouble(), open_to[i].word));
        store_text("other", "is not stored");
        assert_int_equal(for_files(folder, NULL, NULL), 1);
        assert_int_equal(chmod(folder, 0755), 0);
        assert_null(wa_cache_trouble());
        assert_cached("key", "own");

        assert_int_equal(chmod(path, open_to[i].mode & 0666), 0);
        assert_not_cached("key");
        assert_int_equal(chmod(path, 0644), 0);
    }
    /* a link, be it to an own file */
    assert_int_equal(rename(path, moved), 0);
    assert_int_equal(symlink(moved, path), 0);
    assert_not_cached("key");
    store_text("key", "again");
    assert_cached("key", "again");
    if (geteuid() != 0)
        return;
    /* files and folders of somebody else */
    assert_int_equal(chown(path, 65534, (gid_t)-1), 0);
    assert_not_cached("key");
    assert_int_equal(chown(path, 0, (gid_t)-1), 0);
    assert_cached("key", "again");
    assert_int_equal(chown(folder, 65534, (gid_t)-1), 0);
    assert_not_cached("key");
    assert_non_null(strstr(wa_cache_trouble(), "somebody else"));
}
#endif

/* All other damage is that of its bytes (cache_bytes.c). */
static void folders_are_no_files(void **state)
{
    (void)state;
    char folder[4200], path[4600];
    use_folder("damaged", folder);
    store_text("key", "some binary");
    path_of_key(folder, "key", path);
    write_bytes(path, "some", 4);
    assert_not_cached("key");
    store_text("key", "some binary");
    assert_cached("key", "some binary");
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

/* Whose folders the caches of the user's programs are in, and where. */
#if defined(_WIN32)
#define HOME "LOCALAPPDATA"
#define BELOW_HOME "/winattn"
#define KNOWS_XDG false
#elif defined(__APPLE__)
#define HOME "HOME"
#define BELOW_HOME "/Library/Caches/winattn"
#define KNOWS_XDG false
#else
#define HOME "HOME"
#define BELOW_HOME "/.cache/winattn"
#define KNOWS_XDG true
#endif

/* Folders that the environment and the interface may name. */
static struct {
    char api[4200], variable[4200], xdg[4200], home[4200];
    char below_xdg[4300], below_home[4300]; /* the cache's in them */
} places;

static void name_places(void)
{
    use_folder("api", places.api);
    use_folder("variable", places.variable);
    use_folder("xdg", places.xdg);
    use_folder("home", places.home);
    snprintf(places.below_home, sizeof places.below_home, "%s" BELOW_HOME,
             places.home);
    snprintf(places.below_xdg, sizeof places.below_xdg, "%s%s",
             KNOWS_XDG ? places.xdg : places.below_home,
             KNOWS_XDG ? "/winattn" : "");
}

static void first_named_is_taken(void)
{
    setenv(HOME, places.home, 1);
    setenv("XDG_CACHE_HOME", places.xdg, 1);
    setenv("WINATTN_CACHE_DIR", places.variable, 1);
    winattn_set_cache_dir(places.api);
    assert_stores_in(places.api);
    winattn_set_cache_dir(NULL);
    assert_stores_in(places.variable);
    unsetenv("WINATTN_CACHE_DIR");
    assert_stores_in(places.below_xdg);
    setenv("XDG_CACHE_HOME", "relative", 1);
    assert_stores_in(places.below_home);
    unsetenv("XDG_CACHE_HOME");
    assert_stores_in(places.below_home);
    setenv("WINATTN_CACHE", "1", 1);
    assert_stores_in(places.below_home);
}

static void may_be_off(void)
{
    unsetenv(HOME);
    assert_false(wa_cache_stores());
    setenv(HOME, places.home, 1);
    setenv("WINATTN_CACHE_DIR", "", 1);
    assert_false(wa_cache_stores());
    unsetenv("WINATTN_CACHE_DIR");
    winattn_set_cache_dir("");
    assert_false(wa_cache_stores());
    store_text("key", "text");
    assert_not_cached("key");
    winattn_set_cache_dir(places.api);
    setenv("WINATTN_CACHE", "0", 1);
    assert_false(wa_cache_stores());
    store_text("key", "text");
    unsetenv("WINATTN_CACHE");
    assert_not_cached("key");
    assert_true(wa_cache_stores());
}

/* A path that is too long is none, and no reason to take another. */
static void long_path_is_none(void)
{
    static const char *const names[] = {"WINATTN_CACHE_DIR", "XDG_CACHE_HOME",
                                        HOME};
    char too_long[5000];
    assert_null(wa_cache_trouble());
    memset(too_long, 'x', sizeof too_long - 1);
    too_long[sizeof too_long - 1] = 0;
    too_long[0] = '/';
    winattn_set_cache_dir(NULL);
    setenv("XDG_CACHE_HOME", places.xdg, 1);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (i == 1 && !KNOWS_XDG)
            continue;
        setenv(names[i], too_long, 1);
        assert_false(wa_cache_stores());
        assert_non_null(wa_cache_trouble());
        store_text("key", "text");
        assert_int_equal(for_files(places.below_xdg, NULL, NULL), 0);
        assert_int_equal(for_files(places.below_home, NULL, NULL), 0);
        unsetenv(names[i]);
    }
    setenv(HOME, places.home, 1);
    winattn_set_cache_dir(places.api);
    assert_int_equal(winattn_set_cache_dir(too_long),
                     WINATTN_INVALID_ARGUMENT);
    assert_stores_in(places.api); /* as before */
}

static void folder_is_chosen(void **state)
{
    (void)state;
    name_places();
    first_named_is_taken();
    may_be_off();
    long_path_is_none();
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
    winattn_set_cache_dir(path);
    assert_non_null(wa_cache_trouble());
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
    use_folder("pruned", folder);
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

void *hammer(void *unused)
{
    char text[20000];
    bool ok = true;
    (void)unused;
    memset(text, 'x', sizeof text);
    for (uint64_t i = 1; i <= 200; i++) {
        uint64_t random = i * 77777;
        unsigned char *file;
        wa_cache_record record;
        wa_cache_store("hammered", (const unsigned char *)text,
                       1 + random_below(&random, sizeof text));
        if (wa_cache_load("hammered", &file, &record) != WINATTN_SUCCESS ||
            !file) {
            ok = false;
            continue;
        }
        for (size_t at = 0; at < record.binary_size; at += 997)
            ok = ok && record.binary[at] == 'x';
        free(file);
    }
    return ok ? NULL : "";
}

static void writers_do_not_meet(void **state)
{
    (void)state;
    char folder[4200];
    use_folder("hammered", folder);
    store_text("hammered", "x");
    const pid_t children[2] = {start_child("hammer", folder),
                               start_child("hammer", folder)};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hammer, NULL), 0);
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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(stores_and_loads),
#ifndef _WIN32
    cmocka_unit_test(what_others_write_is_not_loaded),
#endif
    cmocka_unit_test(folders_are_no_files),
    cmocka_unit_test(folder_is_chosen),
    cmocka_unit_test(folder_cannot_be_made),
    cmocka_unit_test(oldest_go_first),
    cmocka_unit_test(writers_do_not_meet),
};
const test_group cache_folder = TEST_GROUP(NULL, tests);
