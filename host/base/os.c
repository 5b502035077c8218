/* SPDX-License-Identifier: Apache-2.0
 * The one file that calls the operating system. */
#ifndef _WIN32
#define _POSIX_C_SOURCE 200809L
#endif
#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_SIZE 4096
/* Processes that write at once, and what crashed ones left behind. */
#define TEMPORARY_NAMES 100

#ifdef _WIN32
#include <windows.h>

struct wa_lock {
    SRWLOCK os;
};
static SRWLOCK global_lock = SRWLOCK_INIT;
static SRWLOCK cache_lock = SRWLOCK_INIT;
static SRWLOCK tuning_lock = SRWLOCK_INIT;

wa_lock *wa_lock_create(void)
{
    wa_lock *lock = malloc(sizeof *lock);
    if (lock)
        InitializeSRWLock(&lock->os);
    return lock;
}

void wa_lock_destroy(wa_lock *lock) { free(lock); }
void wa_lock_take(wa_lock *lock) { AcquireSRWLockExclusive(&lock->os); }
void wa_lock_release(wa_lock *lock) { ReleaseSRWLockExclusive(&lock->os); }
void wa_global_lock_take(void) { AcquireSRWLockExclusive(&global_lock); }
void wa_global_lock_release(void) { ReleaseSRWLockExclusive(&global_lock); }
void wa_cache_lock_take(void) { AcquireSRWLockExclusive(&cache_lock); }
void wa_cache_lock_release(void) { ReleaseSRWLockExclusive(&cache_lock); }
void wa_tuning_lock_take(void) { AcquireSRWLockExclusive(&tuning_lock); }
void wa_tuning_lock_release(void) { ReleaseSRWLockExclusive(&tuning_lock); }

typedef struct wide_path {
    wchar_t text[PATH_SIZE];
} wide_path;

static bool widen(const char *path, wide_path *wide)
{
    return MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1,
                               wide->text, PATH_SIZE) > 0;
}

static bool narrow(const wchar_t *wide, char *text, size_t size)
{
    return WideCharToMultiByte(CP_UTF8, 0, wide, -1, text, (int)size, NULL,
                               NULL) > 0;
}

wa_setting wa_environment(const char *name, char *value, size_t size)
{
    wide_path wide_name, wide;
    if (!widen(name, &wide_name))
        return WA_UNSET;
    SetLastError(ERROR_SUCCESS);
    const DWORD length =
        GetEnvironmentVariableW(wide_name.text, wide.text, PATH_SIZE);
    if (length == 0 && GetLastError() != 0)
        return WA_UNSET;
    if (length >= PATH_SIZE)
        return WA_TOO_LONG;
    wide.text[length] = 0;
    return narrow(wide.text, value, size) ? WA_SET : WA_TOO_LONG;
}

wa_setting wa_user_cache_folder(char *path, size_t size)
{
    const wa_setting set = wa_environment("LOCALAPPDATA", path, size);
    return set == WA_SET && !path[0] ? WA_UNSET : set;
}

/* The user's folders are private unless he changes that. */
static bool make_one_folder(const char *path)
{
    wide_path wide;
    return widen(path, &wide) && (CreateDirectoryW(wide.text, NULL) ||
                                  GetLastError() == ERROR_ALREADY_EXISTS);
}

bool wa_folder_is_own(const char *path)
{
    wide_path wide;
    if (!widen(path, &wide))
        return false;
    const DWORD attributes = GetFileAttributesW(wide.text);
    return attributes != INVALID_FILE_ATTRIBUTES &&
           (attributes & FILE_ATTRIBUTE_DIRECTORY) != 0;
}

/* Access control lists are known when a file is made, not before. */
static bool takes_files(const char *path)
{
    (void)path;
    return true;
}

wa_file_answer wa_file_read(const char *path, size_t most,
                            unsigned char **bytes, size_t *size)
{
    wide_path wide;
    LARGE_INTEGER length;
    DWORD done = 0;
    bool short_of_memory = false;
    if (!widen(path, &wide))
        return WA_FILE_UNREADABLE;
    const HANDLE file =
        CreateFileW(wide.text, GENERIC_READ,
                    FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
                    NULL, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, NULL);
    if (file == INVALID_HANDLE_VALUE)
        return WA_FILE_UNREADABLE;
    *bytes = NULL;
    if (GetFileSizeEx(file, &length) && length.QuadPart < 0x7fffffff &&
        (uint64_t)length.QuadPart <= most) {
        *bytes = malloc((size_t)length.QuadPart + 1);
        short_of_memory = !*bytes;
    }
    const bool read =
        *bytes &&
        ReadFile(file, *bytes, (DWORD)length.QuadPart, &done, NULL) &&
        done == (DWORD)length.QuadPart;
    CloseHandle(file);
    if (!read)
        free(*bytes);
    *size = done;
    return read              ? WA_FILE_READ
           : short_of_memory ? WA_FILE_NO_MEMORY
                             : WA_FILE_UNREADABLE;
}

wa_file_answer wa_file_map_open(const char *path, wa_file_map *map)
{
    wide_path wide;
    LARGE_INTEGER length = {0};
    HANDLE whole = NULL;
    bool short_of_memory = false;
    *map = (wa_file_map){0};
    if (!widen(path, &wide))
        return WA_FILE_UNREADABLE;
    const HANDLE file =
        CreateFileW(wide.text, GENERIC_READ, FILE_SHARE_READ, NULL,
                    OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, NULL);
    if (file == INVALID_HANDLE_VALUE)
        return WA_FILE_UNREADABLE;
    const bool known = GetFileSizeEx(file, &length) && length.QuadPart >= 0;
    if (known && length.QuadPart > 0) {
        short_of_memory = (uint64_t)length.QuadPart > SIZE_MAX;
        if (!short_of_memory)
            whole = CreateFileMappingW(file, NULL, PAGE_READONLY, 0, 0, NULL);
        if (whole) {
            map->bytes = MapViewOfFile(whole, FILE_MAP_READ, 0, 0, 0);
            short_of_memory = !map->bytes;
            CloseHandle(whole);
        }
    }
    CloseHandle(file);
    if (map->bytes)
        map->size = (size_t)length.QuadPart;
    if (map->bytes || (known && length.QuadPart == 0))
        return WA_FILE_READ;
    return short_of_memory ? WA_FILE_NO_MEMORY : WA_FILE_UNREADABLE;
}

void wa_file_map_close(wa_file_map *map)
{
    if (map->bytes)
        UnmapViewOfFile(map->bytes);
    *map = (wa_file_map){0};
}

/* Fails if the file exists; *exists then says so. */
static bool write_new_file(const char *path, const unsigned char *bytes,
                           size_t size, bool *exists)
{
    wide_path wide;
    DWORD done = 0;
    *exists = false;
    if (!widen(path, &wide) || size > 0x7fffffff)
        return false;
    const HANDLE file = CreateFileW(wide.text, GENERIC_WRITE, 0, NULL,
                                    CREATE_NEW, FILE_ATTRIBUTE_NORMAL, NULL);
    if (file == INVALID_HANDLE_VALUE) {
        *exists = GetLastError() == ERROR_FILE_EXISTS;
        return false;
    }
    const bool written =
        WriteFile(file, bytes, (DWORD)size, &done, NULL) && done == size;
    if (CloseHandle(file) && written)
        return true;
    DeleteFileW(wide.text);
    return false;
}

static bool rename_over(const char *from, const char *to)
{
    wide_path wide_from, wide_to;
    return widen(from, &wide_from) && widen(to, &wide_to) &&
           MoveFileExW(wide_from.text, wide_to.text,
                       MOVEFILE_REPLACE_EXISTING);
}

static void remove_file(const char *path)
{
    wide_path wide;
    if (widen(path, &wide))
        DeleteFileW(wide.text);
}

unsigned long wa_process_number(void) { return GetCurrentProcessId(); }
static bool is_separator(char c) { return c == '/' || c == '\\'; }

static uint64_t joined(DWORD high, DWORD low)
{
    return (uint64_t)high << 32 | low;
}

static uint64_t clock_ticks(void)
{
    FILETIME time;
    GetSystemTimeAsFileTime(&time);
    return joined(time.dwHighDateTime, time.dwLowDateTime);
}

void wa_folder_visit(const char *path, wa_file_visitor *visit, void *data)
{
    char pattern[PATH_SIZE], name[PATH_SIZE];
    wide_path wide;
    WIN32_FIND_DATAW found;
    const int length = snprintf(pattern, sizeof pattern, "%s/*", path);
    if (length < 0 || (size_t)length >= sizeof pattern ||
        !widen(pattern, &wide))
        return;
    const HANDLE search = FindFirstFileW(wide.text, &found);
    if (search == INVALID_HANDLE_VALUE)
        return;
    const double now = (double)clock_ticks();
    do {
        if ((found.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) == 0 &&
            narrow(found.cFileName, name, sizeof name))
            visit(data, name, joined(found.nFileSizeHigh, found.nFileSizeLow),
                  (now - (double)joined(found.ftLastWriteTime.dwHighDateTime,
                                        found.ftLastWriteTime.dwLowDateTime)) *
                      1e-7);
    } while (FindNextFileW(search, &found));
    FindClose(search);
}

#else
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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
    char home[PATH_SIZE];
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

static bool make_one_folder(const char *path)
{
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

bool wa_folder_is_own(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode) &&
           info.st_uid == geteuid() && (info.st_mode & S_IWOTH) == 0;
}

static bool takes_files(const char *path)
{
    return access(path, W_OK | X_OK) == 0;
}

wa_file_answer wa_file_read(const char *path, size_t most,
                            unsigned char **bytes, size_t *size)
{
    struct stat info;
    size_t done = 0, all = 0;
    bool short_of_memory = false;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return WA_FILE_UNREADABLE;
    *bytes = NULL;
    if (fstat(file, &info) == 0 && S_ISREG(info.st_mode) &&
        info.st_size >= 0 && (uintmax_t)info.st_size <= most) {
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

/* Fails if the file exists; *exists then says so. */
static bool write_new_file(const char *path, const unsigned char *bytes,
                           size_t size, bool *exists)
{
    size_t done = 0;
    const int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
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
    unlink(path);
    return false;
}

static bool rename_over(const char *from, const char *to)
{
    return rename(from, to) == 0;
}

static void remove_file(const char *path) { unlink(path); }
unsigned long wa_process_number(void) { return (unsigned long)getpid(); }
static bool is_separator(char c) { return c == '/'; }

static uint64_t clock_ticks(void)
{
    struct timespec time = {0};
    clock_gettime(CLOCK_REALTIME, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

void wa_folder_visit(const char *path, wa_file_visitor *visit, void *data)
{
    DIR *folder = opendir(path);
    const struct dirent *item;
    const time_t now = time(NULL);
    if (!folder)
        return;
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
#endif

/* ---- The same everywhere ---- */

/* A process's number may come again, but not at the same time. */
wa_unique wa_unique_take(void)
{
    static uint64_t calls; /* guarded by the cache's lock */
    wa_unique numbers = {.time = clock_ticks(),
                         .process = wa_process_number()};
    wa_cache_lock_take();
    numbers.call = calls++;
    wa_cache_lock_release();
    return numbers;
}

bool wa_folder_make(const char *path)
{
    char part[PATH_SIZE];
    const size_t length = strlen(path);
    if (length == 0 || length >= sizeof part)
        return false;
    if (wa_folder_is_own(path))
        return takes_files(path);
    memcpy(part, path, length + 1);
    for (size_t i = 1; i < length; i++)
        if (is_separator(part[i])) {
            part[i] = 0;
            make_one_folder(part); /* only the last one must succeed */
            part[i] = path[i];
        }
    return make_one_folder(part) && wa_folder_is_own(path) &&
           takes_files(path);
}

static bool join(const char *folder, const char *name, char path[PATH_SIZE])
{
    const int length = snprintf(path, PATH_SIZE, "%s/%s", folder, name);
    return length > 0 && length < PATH_SIZE;
}

bool wa_file_replace(const char *folder, const char *name,
                     const unsigned char *bytes, size_t size)
{
    char from[PATH_SIZE], to[PATH_SIZE], temporary[64];
    bool written = false, exists = true;
    if (!join(folder, name, to))
        return false;
    for (int i = 0; !written && exists && i < TEMPORARY_NAMES; i++) {
        snprintf(temporary, sizeof temporary, WA_TEMPORARY "%lu-%d",
                 wa_process_number(), i);
        if (!join(folder, temporary, from))
            return false;
        written = write_new_file(from, bytes, size, &exists);
    }
    if (written && !rename_over(from, to)) {
        remove_file(from);
        written = false;
    }
    return written;
}

void wa_file_remove(const char *folder, const char *name)
{
    char path[PATH_SIZE];
    if (join(folder, name, path))
        remove_file(path);
}
