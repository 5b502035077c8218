/* SPDX-License-Identifier: Apache-2.0
 * Calls Linux, macOS and their like. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/os_parts.h"

struct wa_lock {
    pthread_mutex_t os;
};
static pthread_mutex_t global_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t tuning_lock = PTHREAD_MUTEX_INITIALIZER;

wa_lock *wa_lock_create(void)
{
    wa_lock *lock = malloc(sizeof *lock);
    if (lock && pthread_mutex_init(&lock->os, NULL) != 0) {
        free(lock);
        lock = NULL;
    }
    return lock;
}

void wa_lock_destroy(wa_lock *lock)
{
    if (lock)
        pthread_mutex_destroy(&lock->os);
    free(lock);
}

void wa_lock_take(wa_lock *lock) { pthread_mutex_lock(&lock->os); }
void wa_lock_release(wa_lock *lock) { pthread_mutex_unlock(&lock->os); }
void wa_global_lock_take(void) { pthread_mutex_lock(&global_lock); }
void wa_global_lock_release(void) { pthread_mutex_unlock(&global_lock); }
void wa_cache_lock_take(void) { pthread_mutex_lock(&cache_lock); }
void wa_cache_lock_release(void) { pthread_mutex_unlock(&cache_lock); }
void wa_tuning_lock_take(void) { pthread_mutex_lock(&tuning_lock); }
void wa_tuning_lock_release(void) { pthread_mutex_unlock(&tuning_lock); }

wa_setting wa_environment(const char *name, char *value, size_t size)
{
    const char *text = getenv(name);
    if (!text)
        return WA_UNSET;
    if (strlen(text) >= size)
        return WA_TOO_LONG;
    memcpy(value, text, strlen(text) + 1);
    return WA_SET;
}

/* That the variable names, if its path is an absolute one: the XDG Base
 * Directory Specification ignores relative paths, and so does this of HOME. */
static wa_setting absolute_folder(const char *name, char *path, size_t size)
{
    const char *text = getenv(name);
    return text && text[0] == '/' ? wa_environment(name, path, size)
                                  : WA_UNSET;
}

wa_setting wa_user_cache_folder(char *path, size_t size)
{
    char home[WA_PATH_SIZE];
#ifdef __APPLE__
    static const char below[] = "Library/Caches";
#else
    static const char below[] = ".cache";
    const wa_setting xdg = absolute_folder("XDG_CACHE_HOME", path, size);
    if (xdg != WA_UNSET)
        return xdg;
#endif
    const wa_setting set = absolute_folder("HOME", home, sizeof home);
    if (set != WA_SET)
        return set;
    const int length = snprintf(path, size, "%s/%s", home, below);
    return length > 0 && (size_t)length < size ? WA_SET : WA_TOO_LONG;
}

bool wa_make_one_folder(const char *path)
{
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

/* Of a folder or of a file in it. */
static const char *distrust(const struct stat *info)
{
    return info->st_uid != geteuid() ? "its folder belongs to somebody else"
           : info->st_mode & S_IWOTH ? "everybody may write to its folder"
           : info->st_mode & S_IWGRP ? "a group may write to its folder"
                                     : NULL;
}

const char *wa_folder_trouble(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return NULL;
    return S_ISDIR(info.st_mode) ? distrust(&info) : WA_NO_FOLDER;
}

bool wa_place_enter(const char *path, wa_place *place)
{
    struct stat info;
    place->handle = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (place->handle < 0)
        return false;
    if (fstat(place->handle, &info) == 0 && !distrust(&info))
        return true;
    close(place->handle);
    return false;
}

void wa_place_leave(const wa_place *place) { close(place->handle); }

bool wa_folder_takes_files(const char *path)
{
    return access(path, W_OK | X_OK) == 0;
}

/* Closes the file. */
static wa_file_answer read_whole(int file, bool must_be_own, size_t most,
                                 unsigned char **bytes, size_t *size)
{
    struct stat info;
    size_t done = 0, all = 0;
    bool short_of_memory = false;
    if (file < 0)
        return WA_FILE_UNREADABLE;
    *bytes = NULL;
    if (fstat(file, &info) == 0 && S_ISREG(info.st_mode) &&
        !(must_be_own && distrust(&info)) && info.st_size >= 0 &&
        (uintmax_t)info.st_size <= most) {
        all = (size_t)info.st_size;
        *bytes = malloc(all + 1);
        short_of_memory = !*bytes;
    }
    while (*bytes && done < all) {
        const ssize_t count = read(file, *bytes + done, all - done);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            break;
        done += (size_t)count;
    }
    close(file);
    *size = done;
    if (*bytes && done == all)
        return WA_FILE_READ;
    free(*bytes);
    return short_of_memory ? WA_FILE_NO_MEMORY : WA_FILE_UNREADABLE;
}

wa_file_answer wa_file_read(const char *path, size_t most,
                            unsigned char **bytes, size_t *size)
{
    return read_whole(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), false,
                      most, bytes, size);
}

wa_file_answer wa_place_read(const wa_place *place, const char *name,
                             size_t most, unsigned char **bytes, size_t *size)
{
    return read_whole(openat(place->handle, name,
                             O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW),
                      true, most, bytes, size);
}

wa_file_answer wa_file_map_open(const char *path, wa_file_map *map)
{
    struct stat info;
    wa_file_answer answer = WA_FILE_UNREADABLE;
    *map = (wa_file_map){0};
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return WA_FILE_UNREADABLE;
    if (fstat(file, &info) == 0 && S_ISREG(info.st_mode) &&
        info.st_size >= 0) {
        void *bytes = MAP_FAILED;
        if (info.st_size > 0 && (uintmax_t)info.st_size <= SIZE_MAX)
            bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE,
                         file, 0);
        if (bytes != MAP_FAILED) {
            map->bytes = bytes;
            map->size = (size_t)info.st_size;
        }
        answer =
            map->bytes || info.st_size == 0 ? WA_FILE_READ : WA_FILE_NO_MEMORY;
    }
    close(file);
    return answer;
}

void wa_file_map_close(wa_file_map *map)
{
    if (map->bytes)
        munmap((void *)(uintptr_t)map->bytes, map->size);
    *map = (wa_file_map){0};
}

bool wa_place_write_new(const wa_place *place, const char *name,
                        const unsigned char *bytes, size_t size, bool *exists)
{
    size_t done = 0;
    const int file = openat(place->handle, name,
                            O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    *exists = file < 0 && errno == EEXIST;
    if (file < 0)
        return false;
    while (done < size) {
        const ssize_t count = write(file, bytes + done, size - done);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            break;
        done += (size_t)count;
    }
    if (close(file) == 0 && done == size)
        return true;
    unlinkat(place->handle, name, 0);
    return false;
}

bool wa_place_rename(const wa_place *place, const char *from, const char *to)
{
    return renameat(place->handle, from, place->handle, to) == 0;
}

void wa_place_remove(const wa_place *place, const char *name)
{
    unlinkat(place->handle, name, 0);
}

unsigned long wa_process_number(void) { return (unsigned long)getpid(); }
bool wa_is_separator(char c) { return c == '/'; }

uint64_t wa_clock_ticks(void)
{
    struct timespec time = {0};
    clock_gettime(CLOCK_REALTIME, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

void wa_folder_visit(const char *path, wa_file_visitor *visit, void *data)
{
    wa_place place;
    const struct dirent *item;
    const time_t now = time(NULL);
    if (!wa_place_enter(path, &place))
        return;
    DIR *folder = fdopendir(place.handle); /* takes the handle */
    if (!folder) {
        wa_place_leave(&place);
        return;
    }
    while ((item = readdir(folder)) != NULL) {
        struct stat info;
        if (fstatat(dirfd(folder), item->d_name, &info, AT_SYMLINK_NOFOLLOW) ==
                0 &&
            S_ISREG(info.st_mode))
            visit(data, item->d_name, (uint64_t)info.st_size,
                  difftime(now, info.st_mtime));
    }
    closedir(folder);
}
