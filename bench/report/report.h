/* SPDX-License-Identifier: Apache-2.0
 * What a bench run found. report.c holds it and makes a file of it, table.c
 * prints it. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>

/* The number of the JSON form; bench/merge reads no file of another one. */
#define REPORT_FORMAT 1
#define REPORT_REASON_SIZE 512

typedef struct report_device {
    char platform[128];
    char name[128];
    char driver[128];
    char date[32];         /* of its run, UTC, ISO 8601 */
    char version[32];      /* of winattn */
    char commit[64];       /* of git describe; "" outside git */
    char regime[16];       /* how it was timed */
    double copy_bandwidth; /* bytes read + written per second */
    double fma_rate;       /* fp32 operations per second */
} report_device;

/* What became of a row; of this run, files have the failure's text. */
typedef enum report_outcome {
    REPORT_MEASURED,
    REPORT_UNSUPPORTED, /* the library has no kernel for it here */
    REPORT_NO_MEMORY,
    REPORT_NO_TIME,
    REPORT_FAILED /* a call did, or what it computed is wrong */
} report_outcome;

/* What a row or comparison says that was left out. */
#define REPORT_NO_TIME_NOTE "no time was left"

typedef struct report_row {
    size_t device;     /* index */
    char name[64];     /* of the workload, with ":w64" where shrunk */
    char whole[256];   /* the case before it was shrunk */
    char text[256];    /* the case, as the option --case takes it */
    char dtype[8];     /* "fp32", "fp16", "bf16" */
    char pass[16];     /* "forward", "backward", "both" */
    char tier[16];     /* "" where the plan failed */
    char refused[160]; /* what the plan did without, as it failed, or "" */
    double seconds;    /* of one call; 0 where it failed */
    double bytes;      /* that the call must move at least */
    double operations; /* an FMA counts 2 */
    double error;      /* relative, on sampled windows; NaN: unknown */
    /* MB of device memory besides the tensors that the caller has, with all
     * windows at once; NaN: unknown. */
    double memory, unfused_memory;
    /* One kernel after the other, see unfused.h; of a case on grids with
     * `moves` of tokens around them. */
    double unfused;         /* seconds of one call; 0: not measured */
    double moves;           /* seconds of these, at the copy bandwidth */
    double unfused_part;    /* of the windows that was timed */
    double unfused_error;   /* as above */
    char unfused_note[160]; /* why it was not measured */
    report_outcome outcome;
    char failure[256]; /* "" if there are times */
    char command[704]; /* that measures this row again */
} report_row;

typedef struct report {
    size_t device_count, row_count;
    report_device *devices;
    report_row *rows;
} report;

void report_start(report *r);
void report_free(report *r);
/* Appended with zeros and returned; NULL: out of memory. The next call may
 * move them. */
report_device *report_add_device(report *r);
report_row *report_add_row(report *r);
/* Appends a word to the row's command, as a shell takes it. */
void report_add_word(report_row *row, const char *text);
/* The present time as report_device.date has it. */
void report_date(char date[32]);
/* What report_device.version and .commit are of this program. (commit.c, which
 * each build makes by commit.cmake) */
extern const char *const report_version, *const report_commit;

/* Fractions of the row's device's ceilings; 0 where unknown. */
double report_of_copy(const report *r, const report_row *row);
double report_of_fma(const report *r, const report_row *row);
/* The larger of both: 1 is what no kernel on this device can exceed. */
double report_of_ceiling(const report *r, const report_row *row);
/* How many times as fast as the unfused kernels; 0 where unknown. */
double report_speed_up(const report *r, const report_row *row);

/* Shrunk workloads stand under the name of the whole one: the length of the
 * name without its ":w64". */
size_t report_base_length(const char *name);
/* Is it the first row of its case? */
bool report_first_of_case(const report *r, size_t row);

/* What a case computes, as a summary tells apart. */
typedef enum report_kind {
    REPORT_WINDOW, /* windows that lie together */
    REPORT_MAP,    /* on a grid */
    REPORT_SLIDING,
    REPORT_KINDS
} report_kind;
/* The geometric mean of what `of` says of a device's rows of that kind and
 * pass, of those where it is above 0; 0 where there are none. */
double report_mean(const report *r, size_t device, report_kind kind,
                   const char *pass,
                   double (*of)(const report *r, const report_row *row));

/* Rows of an outcome. */
size_t report_outcomes(const report *r, report_outcome outcome);
/* How many lines of a comparison have no times, of no device. */
size_t report_without_result(const report *r);

/* False if the file could not be written. */
bool report_write_json(const report *r, const char *path);

#endif
