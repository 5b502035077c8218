/* SPDX-License-Identifier: Apache-2.0
 * The cache's files damaged (that each bit and each length counts,
 * device/cache_bytes.c says), what is no file of the cache, processes that
 * read while another spoils, a folder that comes and goes. Plans are made all
 * the same, as without a cache; no damaged binary reaches the driver; what was
 * damaged is written anew.
 *
 *   fuzz_files FOLDER [rounds]
 *     FOLDER  need not exist; its content is lost
 *     rounds  of plans that each process makes */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kit/cases.h"
#include "kit/devices.h"
#include "kit/scratch.h"
#include "standin.h"

#define PATH_SIZE 2048
#define MOST_FILES 32
#define MOST_BYTES 65536
#define READERS 3
#define HEAD_DIM 4
#define OTHER_HEAD_DIM 8 /* for which keys and binaries have the same size */

static const char *own_path, *folder;
static unsigned long rounds = 200;
static unsigned long plans, findings;

/* ---- Plans ---- */

/* Small kernels of both passes, on a device without matrix units; so are their
 * files. */
static winattn_desc problem(cl_uint head_dim)
{
    winattn_desc desc =
        case_desc_of("heads=1 queries=8 bias=table_same table=8", 3);
    desc.head_dim = head_dim;
    return desc;
}

static void report(const char *what, const char *detail)
{
    findings++;
    printf("FINDING %s %s\n", what, detail);
    fflush(stdout);
}

/* Makes a plan and takes its description up to the lines of the cache and of
 * where the program came from; an empty one if there is no plan. */
static void describe_plan(cl_uint head_dim, char *text, size_t size)
{
    const winattn_desc desc = problem(head_dim);
    const cl_device_id id = standin_device(made_up_device("PoCL"));
    const cl_context context = standin_context(1, &id);
    winattn_plan *plan;
    text[0] = 0;
    if (winattn_plan_create(context, id, &desc, &plan) != WINATTN_SUCCESS) {
        report("a plan was refused:", winattn_last_reason());
    } else {
        winattn_plan_describe(plan, size, text, NULL);
        char *cache = strstr(text, "cache: ");
        char *program = strstr(text, "program: ");
        if (cache)
            *cache = 0;
        else if (program)
            *program = 0;
        winattn_plan_destroy(plan);
    }
    clReleaseContext(context);
    if (++plans % 64 == 0)
        standin_forget();
}

/* As of a plan without a cache. */
static char expected[16384];

static void check_plan(const char *where)
{
    static char text[sizeof expected];
    const unsigned long damaged = standin_binaries_given().damaged;
    describe_plan(HEAD_DIM, text, sizeof text);
    if (strcmp(text, expected) != 0)
        report("another plan than without a cache:", where);
    if (standin_binaries_given().damaged != damaged)
        report("the driver was given a damaged binary:", where);
    if (standin_wrong(NULL) || standin_alive())
        report("stand-in:",
               standin_wrong(NULL) ? standin_wrong(NULL) : standin_alive());
}

/* ---- Files ---- */

typedef struct kept_file {
    char path[PATH_SIZE];
    unsigned char bytes[MOST_BYTES];
    size_t size;
} kept_file;
static kept_file files[MOST_FILES], other_files[MOST_FILES];
static size_t file_count, other_count;

static void path_in_folder(char path[PATH_SIZE], const char *name)
{
    if (snprintf(path, PATH_SIZE, "%s/%s", folder, name) >= PATH_SIZE)
        exit(2);
}

static size_t read_whole(const char *path, unsigned char *bytes)
{
    FILE *file = fopen(path, "rb");
    const size_t size = file ? fread(bytes, 1, MOST_BYTES, file) : 0;
    if (file)
        fclose(file);
    return size;
}

/* Reads what is in the folder; returns how many files. */
static size_t read_files(kept_file *all)
{
    DIR *entries = opendir(folder);
    const struct dirent *item;
    size_t count = 0;
    while (entries && (item = readdir(entries)) != NULL)
        if (strstr(item->d_name, ".winattn") && count < MOST_FILES) {
            kept_file *file = &all[count++];
            path_in_folder(file->path, item->d_name);
            file->size = read_whole(file->path, file->bytes);
        }
    if (entries)
        closedir(entries);
    return count;
}

/* The files of the plan, as they should be, and those of another. */
static void keep_files(void)
{
    static char text[sizeof expected];
    remove_all(folder);
    describe_plan(OTHER_HEAD_DIM, text, sizeof text);
    other_count = read_files(other_files);
    remove_all(folder);
    check_plan("a new folder");
    file_count = read_files(files);
    if (file_count < 3)
        report("fewer files than kernels in", folder);
}

static void check_file(const kept_file *file, const char *where)
{
    static unsigned char now[MOST_BYTES];
    struct stat info;
    if (lstat(file->path, &info) != 0 || !S_ISREG(info.st_mode) ||
        read_whole(file->path, now) != file->size ||
        memcmp(now, file->bytes, file->size) != 0) {
        report("a file is not written anew:", where);
        unlink(file->path);
        write_bytes(file->path, file->bytes, file->size);
    }
}

/* ---- What is no file of the cache ---- */

#define DAMAGES 8
#define WAYS (DAMAGES + 9)

/* A bit of a quarter of the file flipped, or only those before it left. */
static void damage_file(const kept_file *file, int how)
{
    static unsigned char bytes[MOST_BYTES];
    const size_t place = file->size * (size_t)(how % 4) / 4;
    memcpy(bytes, file->bytes, file->size);
    bytes[place] ^= (unsigned char)(1u << how % 4);
    write_bytes(file->path, bytes, how < 4 ? file->size : place);
}

static void replace_file(const kept_file *file, int how)
{
    static unsigned char bytes[MOST_BYTES];
    static const char *const targets[] = {"/dev/zero", "/nowhere/at/all"};
    unlink(file->path);
    switch (how) {
    case 0:
        memcpy(bytes, file->bytes, file->size);
        bytes[file->size] = 'x';
        write_bytes(file->path, bytes, file->size + 1);
        break;
    case 1:
    case 3:
        memset(bytes, how == 1 ? 0 : 0xff, file->size);
        write_bytes(file->path, bytes, file->size);
        break;
    case 2: /* a sound one of another program, of the same size */
        for (size_t i = 0; i < other_count; i++)
            if (other_files[i].size == file->size)
                write_bytes(file->path, other_files[i].bytes, file->size);
        break;
    case 4:
        if (mkfifo(file->path, 0600) != 0)
            perror("mkfifo");
        break;
    case 5:
    case 6:
    case 7: /* a loop */
        if (symlink(how == 7 ? file->path : targets[how - 5], file->path) != 0)
            perror("symlink");
        break;
    default: /* larger than anything that is kept; takes no room */
        write_bytes(file->path, file->bytes, file->size);
        if (truncate(file->path, (off_t)1 << 32) != 0)
            perror("truncate");
    }
}

static unsigned long replace_files(void)
{
    char where[96];
    unsigned long done = 0;
    for (size_t i = 0; i < file_count; i++)
        for (int how = 0; how < WAYS; how++, done++) {
            if (how < DAMAGES)
                damage_file(&files[i], how);
            else
                replace_file(&files[i], how - DAMAGES);
            snprintf(where, sizeof where, "damaged or foreign file %d", how);
            check_plan(where);
            check_file(&files[i], where);
        }
    /* a folder in place of a file stays, and does no harm */
    unlink(files[0].path);
    if (mkdir(files[0].path, 0700) != 0)
        perror("mkdir");
    check_plan("a folder in place of a file");
    rmdir(files[0].path);
    check_plan("nothing in place of a file");
    check_file(&files[0], "nothing in place of a file");
    return done + 2;
}

/* ---- Several processes ---- */

static int make_plans(void)
{
    findings = 0;
    for (unsigned long i = 0; i < rounds; i++)
        check_plan("beside other processes");
    fflush(stdout);
    return findings != 0;
}

/* By exec, as the library serves no child of fork that goes on. */
static pid_t start_reader(void)
{
    char number[24];
    snprintf(number, sizeof number, "%lu", rounds);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        execl(own_path, own_path, folder, number, "reader", (char *)NULL);
        _exit(99);
    }
    return child;
}

/* Runs until the readers have ended. */
static void spoil_files(random_state *r)
{
    kept_file *file = &files[random_int(r, 0, (int)file_count - 1)];
    const long place = random_int(r, 0, (int)file->size - 1);
    FILE *open_file;
    switch (random_int(r, 0, 4)) {
    case 0:
        unlink(file->path);
        break;
    case 1:
        if (truncate(file->path, place) != 0)
            break; /* it is not there just now */
        break;
    case 2: /* in place, as no sound program does */
        open_file = fopen(file->path, "r+b");
        if (open_file) {
            fseek(open_file, place, SEEK_SET);
            fputc(random_int(r, 0, 255), open_file);
            fclose(open_file);
        }
        break;
    case 3:
        remove_all(folder);
        break;
    default: /* a file where the folder was */
        remove_all(folder);
        open_file = fopen(folder, "wb");
        if (open_file)
            fclose(open_file);
        usleep(500);
        unlink(folder);
    }
    usleep(200);
}

/* Readers beside each other, and with a spoiler too. */
static unsigned long race(bool spoils)
{
    pid_t readers[READERS];
    unsigned long spoilt = 0;
    random_state r = random_seeded(1);
    int left = READERS, status;
    for (int i = 0; i < READERS; i++) {
        readers[i] = start_reader();
        if (readers[i] < 0) {
            perror("fork");
            exit(2);
        }
    }
    while (left > 0) {
        const pid_t ended = waitpid(-1, &status, spoils ? WNOHANG : 0);
        if (ended > 0) {
            left--;
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
                report("a process beside others:", "see above");
        } else if (spoils) {
            spoil_files(&r);
            spoilt++;
        }
    }
    return spoilt;
}

int main(int count, char **arguments)
{
    if (count < 2)
        return 2;
    own_path = arguments[0];
    folder = arguments[1];
    if (count > 2)
        rounds = strtoul(arguments[2], NULL, 10);
    winattn_set_cache_dir("");
    describe_plan(HEAD_DIM, expected, sizeof expected);
    winattn_set_cache_dir(folder);
    if (count > 3) /* a reader */
        return make_plans();
    keep_files();
    const unsigned long foreign = replace_files();
    race(false);
    for (size_t i = 0; i < file_count; i++)
        check_file(&files[i], "processes beside each other");
    const unsigned long spoilt = race(true);
    keep_files(); /* and a folder that is whole again is used */
    const standin_binaries before = standin_binaries_given();
    check_plan("at the end");
    if (standin_binaries_given().sound < before.sound + file_count)
        report("the cache is not used", "");
    printf("files %zu: damaged or foreign ones %lu; %d processes of %lu "
           "plans, twice, spoilt %lu times; plans %lu; findings %lu\n",
           file_count, foreign, READERS, rounds, spoilt, plans, findings);
    remove_all(folder);
    standin_reset();
    return findings != 0;
}
