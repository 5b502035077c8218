/* SPDX-License-Identifier: Apache-2.0
 * Calls Windows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

#include "base/os_parts.h"

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
    wchar_t text[WA_PATH_SIZE];
} wide_path;

static bool widen(const char *path, wide_path *wide)
{
    return MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1,
                               wide->text, WA_PATH_SIZE) > 0;
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
        GetEnvironmentVariableW(wide_name.text, wide.text, WA_PATH_SIZE);
    if (length == 0 && GetLastError() != 0)
        return WA_UNSET;
    if (length >= WA_PATH_SIZE)
        return WA_TOO_LONG;
    wide.text[length] = 0;
    return narrow(wide.text, value, size) ? WA_SET : WA_TOO_LONG;
}

wa_setting wa_user_cache_folder(char *path, size_t size)
{
    const wa_setting set = wa_environment("LOCALAPPDATA", path, size);
    return set == WA_SET && !path[0] ? WA_UNSET : set;
}

bool wa_make_one_folder(const char *path)
{
    wide_path wide;
    return widen(path, &wide) && (CreateDirectoryW(wide.text, NULL) ||
                                  GetLastError() == ERROR_ALREADY_EXISTS);
}

const char *wa_folder_trouble(const char *path)
{
    wide_path wide;
    const DWORD attributes = widen(path, &wide) ? GetFileAttributesW(wide.text)
                                                : INVALID_FILE_ATTRIBUTES;
    return attributes == INVALID_FILE_ATTRIBUTES ||
                   (attributes & FILE_ATTRIBUTE_DIRECTORY) != 0
               ? NULL
               : WA_NO_FOLDER;
}

bool wa_place_enter(const char *path, wa_place *place)
{
    wide_path wide;
    place->path = path;
    return widen(path, &wide) &&
           GetFileAttributesW(wide.text) != INVALID_FILE_ATTRIBUTES &&
           !wa_folder_trouble(path);
}

void wa_place_leave(const wa_place *place) { (void)place; }

static bool widen_in(const char *folder, const char *name, wide_path *wide)
{
    char path[WA_PATH_SIZE];
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    return length > 0 && length < WA_PATH_SIZE && widen(path, wide);
}

bool wa_folder_takes_files(const char *path)
{
    (void)path;
    return true;
}

static wa_file_answer read_whole(const wide_path *path, size_t most,
                                 unsigned char **bytes, size_t *size)
{
    LARGE_INTEGER length;
    DWORD done = 0;
    bool short_of_memory = false;
    const HANDLE file =
        CreateFileW(path->text, GENERIC_READ,
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

wa_file_answer wa_file_read(const char *path, size_t most,
                            unsigned char **bytes, size_t *size)
{
    wide_path wide;
    return widen(path, &wide) ? read_whole(&wide, most, bytes, size)
                              : WA_FILE_UNREADABLE;
}

wa_file_answer wa_place_read(const wa_place *place, const char *name,
                             size_t most, unsigned char **bytes, size_t *size)
{
    wide_path wide;
    return widen_in(place->path, name, &wide)
               ? read_whole(&wide, most, bytes, size)
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

bool wa_place_write_new(const wa_place *place, const char *name,
                        const unsigned char *bytes, size_t size, bool *exists)
{
    wide_path wide;
    DWORD done = 0;
    *exists = false;
    if (!widen_in(place->path, name, &wide) || size > 0x7fffffff)
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

bool wa_place_rename(const wa_place *place, const char *from, const char *to)
{
    wide_path wide_from, wide_to;
    return widen_in(place->path, from, &wide_from) &&
           widen_in(place->path, to, &wide_to) &&
           MoveFileExW(wide_from.text, wide_to.text,
                       MOVEFILE_REPLACE_EXISTING);
}

void wa_place_remove(const wa_place *place, const char *name)
{
    wide_path wide;
    if (widen_in(place->path, name, &wide))
        DeleteFileW(wide.text);
}

unsigned long wa_process_number(void) { return GetCurrentProcessId(); }
bool wa_is_separator(char c) { return c == '/' || c == '\\'; }

static uint64_t joined(DWORD high, DWORD low)
{
    return (uint64_t)high << 32 | low;
}

uint64_t wa_clock_ticks(void)
{
    FILETIME time;
    GetSystemTimeAsFileTime(&time);
    return joined(time.dwHighDateTime, time.dwLowDateTime);
}

void wa_folder_visit(const char *path, wa_file_visitor *visit, void *data)
{
    char name[WA_PATH_SIZE];
    wide_path wide;
    WIN32_FIND_DATAW found;
    if (!widen_in(path, "*", &wide))
        return;
    const HANDLE search = FindFirstFileW(wide.text, &found);
    if (search == INVALID_HANDLE_VALUE)
        return;
    const double now = (double)wa_clock_ticks();
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
