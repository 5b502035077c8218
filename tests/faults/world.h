/* SPDX-License-Identifier: Apache-2.0
 * What a caller of the library has, on a device of the stand-in: everything
 * that is needed to call any function of it again and again, each time from
 * the same start. */
#ifndef FAULTS_WORLD_H
#define FAULTS_WORLD_H

#include <stdbool.h>

#include "campaign/levels.h"
#include "standin.h"

typedef struct scenario {
    const char *name;
    const char *device;  /* of kit/devices.h */
    const char *problem; /* as a case */
    cl_bitfield passes;  /* 0: forward */
    bool out_of_order;
    /* Programs are kept in files; `warm`: those of earlier runs are there. */
    bool has_cache, is_warm;
    const char *refused; /* kernels that the compiler refuses; NULL: none */
    cl_uint generation;  /* of the models; 0: the scenario has none */
} scenario;

#define MOST_BLOB 65536
#define MOST_OUTCOME 8192

/* The start of every run: no plan and no programs. */
typedef struct world {
    const scenario *is;
    winattn_desc desc; /* its problem's */
    cl_device_id id;
    cl_context context;
    cl_command_queue queue;
    cl_mem memory;
    winattn_plan *plan;
    winattn_programs *programs;
    size_t level;                  /* whose objects the steps make and use */
    unsigned char blob[MOST_BLOB]; /* of all that the scenario's plan builds */
    size_t blob_size;
    char outcome[MOST_OUTCOME]; /* of the last step that succeeded, as text */
} world;

/* A folder of its own below that of the process. */
void world_set_folder(const char *folder);

void world_open(world *w, const scenario *is);
/* Destroys and releases everything. */
void world_close(world *w);

/* Files of the cache. */
unsigned world_files(void);

/* A call of one of the library's functions, or two that belong together. What
 * it gives is in w->outcome then. None of them allocates by itself. */
typedef winattn_status step(world *w);
step create_plan, create_other_plan, create_programs, import_blob, export_blob,
    load_rows, forget_rows, set_folder, describe_plan, workspace_size;

/* Makes a call of that kind, which must have an event, or have failed. The
 * outcome is what it launched. */
winattn_status world_call(world *w, const level_desc *desc, const void *plan,
                          const call_kind *kind);

/* Launches on the caller's queue since standin_forget. */
size_t world_launches(const world *w);

#endif
