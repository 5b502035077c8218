/* SPDX-License-Identifier: Apache-2.0
 * What models do row by row between their linear layers: norms, patches of
 * pictures, merged patches, means over tokens (cl/models/). */
#ifndef WINATTN_ROWS_H
#define WINATTN_ROWS_H

#include "launch/chain.h"
#include "session/session.h"

#include "winattn_models.h"

typedef enum wa_row_job {
    WA_ROW_NORM,       /* to = norm(from) */
    WA_ROW_NORM_ADD,   /* to = other + norm(from) */
    WA_ROW_MERGE,      /* to = four neighbours of a map */
    WA_ROW_MERGE_NORM, /* to = norm(four neighbours of a map) */
    WA_ROW_STATISTICS, /* to = mean and squared distances from it, fp32 */
    WA_ROW_POOL,       /* to = mean over tokens of norm(from) */
    WA_ROW_EMBED       /* to = patches of pictures */
} wa_row_job;

typedef struct wa_row_desc {
    wa_row_job job;
    winattn_dtype dtype;
    bool on_cpu;       /* one work-item takes a row */
    uint32_t row_size; /* elements of a row of the result */
    /* WA_ROW_EMBED: as the switches PICTURE, PICTURE_CHANNELS and PATCH_ have
     * it; a row then is a patch of all channels. */
    uint32_t picture, picture_channels, patch[2];
    const char *build_options;
} wa_row_desc;

/* A kernel and how its work-groups divide rows. */
typedef struct wa_row_plan {
    wa_row_desc desc;
    cl_kernel kernel;
    uint32_t access;      /* elements that a work-item takes at once */
    uint32_t team, teams; /* work-items of a row; rows at once */
    uint32_t flat_group;  /* work-items of a group without teams */
    uint32_t compute_units;
} wa_row_plan;

/* Tensors of a call; the caller has checked them. Those that the job does not
 * have are ignored. Rows follow each other. */
typedef struct wa_row_call {
    uint64_t rows; /* of the result */
    winattn_tensor from, other, weight, bias, to;
    uint32_t stride; /* WA_ROW_NORM: from row to row of `from`; 0: row_size */
    float eps;
    uint64_t tokens;           /* WA_ROW_POOL: of an image */
    uint32_t height, width;    /* of the map that is merged, or of a picture */
    uint32_t down, across;     /* WA_ROW_EMBED: patches of a picture */
    float factor[4], shift[4]; /* WA_ROW_EMBED: of each channel */
} wa_row_call;

/* Does a work-item take a row on this tier? */
bool wa_row_on_cpu(const wa_session *session, winattn_tier tier);

/* Chooses the shape for the device; the kernel's name and -D options. */
const char *wa_row_lay_out(const wa_row_desc *desc, const wa_device *device,
                           wa_row_plan *plan, char *defines, size_t size);

/* The same, and builds the kernel; to be released also after a failure.
 */
winattn_status wa_row_plan_make(wa_session *session, const wa_row_desc *desc,
                                wa_row_plan *plan);
void wa_row_plan_release(wa_row_plan *plan);

/* Appends the launch. The kernel must not be used by another thread meanwhile.
 */
winattn_status wa_row_append(const wa_row_plan *plan, const wa_row_call *call,
                             wa_kernel_chain *chain);

/* Bytes that a call of so many rows moves, each tensor once; of WA_ROW_POOL:
 * of rows that are read, and without the few that are written. */
uint64_t wa_row_bytes(const wa_row_plan *plan, uint64_t rows);

/* "norm: norm_rows, ..." and "norm bytes: ..." */
void wa_row_describe(const wa_row_plan *plan, const char *name, uint64_t rows,
                     char *text, size_t size);

#endif
