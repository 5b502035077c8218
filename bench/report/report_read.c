/* SPDX-License-Identifier: Apache-2.0
 * Reads reports from JSON files; nothing in a file is trusted. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "report/report.h"

#ifndef BENCH_HAS_CJSON

bool report_read_json(report *r, const char *path,
                      char reason[REPORT_REASON_SIZE])
{
    (void)r;
    snprintf(reason, REPORT_REASON_SIZE,
             "%.200s: this program was built without cJSON (Debian: "
             "libcjson-dev), which reads JSON",
             path);
    return false;
}

#else

#include <cjson/cJSON.h>

#define MOST_BYTES (64L * 1024 * 1024)

typedef struct reader {
    const char *path;
    char *reason;
} reader;

static bool refuse(const reader *in, const char *what, const char *name)
{
    snprintf(in->reason, REPORT_REASON_SIZE, "%.200s: %s%s%s", in->path, what,
             name ? " " : "", name ? name : "");
    return false;
}

static char *read_file(const reader *in, size_t *length)
{
    char *text = NULL;
    FILE *file = fopen(in->path, "rb");
    if (!file) {
        refuse(in, "cannot be opened", NULL);
        return NULL;
    }
    long size = -1;
    if (fseek(file, 0, SEEK_END) == 0)
        size = ftell(file);
    if (size < 0 || size > MOST_BYTES || fseek(file, 0, SEEK_SET) != 0)
        refuse(in, "no file, or too large", NULL);
    else if (!(text = malloc((size_t)size + 1)) ||
             fread(text, 1, (size_t)size, file) != (size_t)size) {
        refuse(in, "cannot be read", NULL);
        free(text);
        text = NULL;
    }
    fclose(file);
    if (text) {
        text[size] = 0;
        *length = (size_t)size;
    }
    return text;
}

/* A text that fits. Files hold no control characters; they could do harm on a
 * terminal. */
static bool get_text(const reader *in, const cJSON *object, const char *name,
                     char *to, size_t size)
{
    const cJSON *member = cJSON_GetObjectItemCaseSensitive(object, name);
    if (!cJSON_IsString(member))
        return refuse(in, "no text", name);
    const char *text = member->valuestring;
    if (strlen(text) >= size)
        return refuse(in, "too long a text", name);
    memcpy(to, text, strlen(text) + 1);
    wa_make_plain(to, "");
    return strcmp(to, text) == 0 ||
           refuse(in, "control characters in, or no UTF-8:", name);
}

/* A number that is not negative; null is NaN where that is legal. */
static bool get_number(const reader *in, const cJSON *object, const char *name,
                       bool null_is_legal, double *to)
{
    const cJSON *member = cJSON_GetObjectItemCaseSensitive(object, name);
    if (null_is_legal && cJSON_IsNull(member)) {
        *to = NAN;
        return true;
    }
    if (!cJSON_IsNumber(member) || !(member->valuedouble >= 0) ||
        !isfinite(member->valuedouble))
        return refuse(in, "no number", name);
    *to = member->valuedouble;
    return true;
}

static bool has(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name) != NULL;
}

/* The same of a number that older files have not: NaN there. */
static bool get_new_number(const reader *in, const cJSON *object,
                           const char *name, double *to)
{
    *to = NAN;
    return !has(object, name) || get_number(in, object, name, true, to);
}

/* The chain, which older files have not: none there. */
static bool get_chain(const reader *in, const cJSON *object, report_row *to)
{
    to->chain = to->moves = 0;
    to->chain_error = NAN;
    to->chain_note[0] = 0;
    return !has(object, "chain") ||
           (get_number(in, object, "chain", false, &to->chain) &&
            (!has(object, "moves") ||
             get_number(in, object, "moves", false, &to->moves)) &&
            get_number(in, object, "chain_error", true, &to->chain_error) &&
            get_text(in, object, "chain_note", to->chain_note,
                     sizeof to->chain_note));
}

#define TEXT(field, name)                                                     \
    get_text(in, object, name, to->field, sizeof to->field)
#define NUMBER(field, name) get_number(in, object, name, false, &to->field)

/* A text that older files have not: "" there. */
static bool get_new_text(const reader *in, const cJSON *object,
                         const char *name, char *to, size_t size)
{
    to[0] = 0;
    return !has(object, name) || get_text(in, object, name, to, size);
}

/* `file`: the whole of it, which says the version in older ones. */
static bool get_device(const reader *in, const cJSON *file,
                       const cJSON *object, report_device *to)
{
    if (!TEXT(platform, "platform") || !TEXT(name, "name") ||
        !TEXT(driver, "driver") || !TEXT(date, "date") ||
        !TEXT(source, "source") || !NUMBER(copy_bandwidth, "copy_bandwidth") ||
        !NUMBER(fma_rate, "fma_rate") ||
        !get_new_text(in, has(object, "winattn") ? object : file, "winattn",
                      to->version, sizeof to->version) ||
        !get_new_text(in, object, "commit", to->commit, sizeof to->commit) ||
        !get_new_text(in, object, "regime", to->regime, sizeof to->regime))
        return false;
    /* a file that was merged before knows the first source */
    if (!to->source[0]) {
        const char *slash = strrchr(in->path, '/');
        snprintf(to->source, sizeof to->source, "%s",
                 slash ? slash + 1 : in->path);
    }
    return true;
}

static bool get_row(const reader *in, const cJSON *object, size_t devices,
                    size_t first_device, report_row *to)
{
    double device;
    if (!get_number(in, object, "device", false, &device) ||
        !TEXT(name, "case") || !TEXT(whole, "whole") || !TEXT(text, "text") ||
        !TEXT(dtype, "dtype") || !TEXT(pass, "pass") || !TEXT(tier, "tier") ||
        !TEXT(failure, "failure") || !TEXT(unfused_note, "unfused_note") ||
        !TEXT(command, "command") || !NUMBER(seconds, "seconds") ||
        !NUMBER(bytes, "bytes") || !NUMBER(operations, "operations") ||
        !NUMBER(unfused, "unfused") || !NUMBER(unfused_part, "unfused_part") ||
        !NUMBER(cold, "cold") || !NUMBER(warm, "warm") ||
        !get_number(in, object, "error", true, &to->error) ||
        !get_number(in, object, "unfused_error", true, &to->unfused_error) ||
        !get_new_number(in, object, "memory_mb", &to->memory) ||
        !get_new_number(in, object, "unfused_memory_mb",
                        &to->unfused_memory) ||
        !get_new_text(in, object, "refused", to->refused,
                      sizeof to->refused) ||
        !get_chain(in, object, to))
        return false;
    if (device != floor(device) || device >= (double)devices)
        return refuse(in, "a row of a device that is not there", NULL);
    if (!to->failure[0] && !(to->seconds > 0))
        return refuse(in, "a row with neither time nor failure", NULL);
    to->device = first_device + (size_t)device;
    return true;
}

static bool get_all(const reader *in, const cJSON *root, report *r)
{
    const size_t first_device = r->device_count;
    const cJSON *object;
    const cJSON *format = cJSON_GetObjectItemCaseSensitive(root, "format");
    const cJSON *devices = cJSON_GetObjectItemCaseSensitive(root, "devices");
    const cJSON *rows = cJSON_GetObjectItemCaseSensitive(root, "rows");
    if (!cJSON_IsNumber(format))
        return refuse(in,
                      "no report of winattn-bench, or of one that did "
                      "not number its formats",
                      NULL);
    if (format->valuedouble != REPORT_FORMAT) {
        char number[64];
        snprintf(number, sizeof number, "%g, this program reads %d",
                 format->valuedouble, REPORT_FORMAT);
        return refuse(in, "has format", number);
    }
    if (!cJSON_IsArray(devices) || !cJSON_IsArray(rows))
        return refuse(in, "no devices or no rows", NULL);
    cJSON_ArrayForEach(object, devices)
    {
        report_device *device = report_add_device(r);
        if (!device)
            return refuse(in, "out of memory", NULL);
        if (!get_device(in, root, object, device))
            return false;
    }
    const size_t count = r->device_count - first_device;
    cJSON_ArrayForEach(object, rows)
    {
        report_row *row = report_add_row(r);
        if (!row)
            return refuse(in, "out of memory", NULL);
        if (!get_row(in, object, count, first_device, row))
            return false;
    }
    return true;
}

bool report_read_json(report *r, const char *path,
                      char reason[REPORT_REASON_SIZE])
{
    const reader in = {path, reason};
    const size_t devices = r->device_count, rows = r->row_count;
    size_t length;
    char *text = read_file(&in, &length);
    if (!text)
        return false;
    const char *end = text;
    /* with its 0, so that nothing may follow */
    cJSON *root = cJSON_ParseWithLengthOpts(text, length + 1, &end, 1);
    bool good = root != NULL;
    if (!good) {
        char place[32];
        snprintf(place, sizeof place, "at byte %zu", (size_t)(end - text));
        refuse(&in, "damaged: no JSON", place);
    } else {
        good = get_all(&in, root, r);
        cJSON_Delete(root);
    }
    free(text);
    if (!good) {
        r->device_count = devices;
        r->row_count = rows;
    }
    return good;
}

#endif
