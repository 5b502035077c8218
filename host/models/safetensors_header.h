/* SPDX-License-Identifier: Apache-2.0
 * What files of safetensors are inside: headers, indices of shards, and what
 * becomes of them. */
#ifndef WINATTN_SAFETENSORS_HEADER_H
#define WINATTN_SAFETENSORS_HEADER_H

#include "base/os.h"
#include "models/safetensors.h"

/* A Swin's is a twentieth of this. cJSON takes up to 40 times as much. */
#define WA_HEADER_MOST ((uint64_t)4 << 20)

typedef struct wa_header {
    wa_file_tensor *tensors; /* in the header's order, their names perhaps */
    size_t count;            /* not unique, their places perhaps shared */
    char *names;
} wa_header;

/* Each tensor as it should be by itself: with a name, a type that is known,
 * and as many bytes inside the data as its shape needs. */
winattn_status wa_header_read(const char *text, size_t size,
                              const unsigned char *data, uint64_t data_size,
                              wa_header *header);
void wa_header_free(wa_header *header);

/* Tensors in the order of their names, each of them once. */
winattn_status wa_header_sort(wa_header *header);

/* Which shard has which tensor. */
typedef struct wa_index_entry {
    const char *shard, *tensor;
} wa_index_entry;

typedef struct wa_index {
    wa_index_entry *entries; /* in the order of shards, of tensors in each; */
    size_t count;            /* 1 or more, none twice */
    void *json;              /* which has the names */
} wa_index;

/* Names of shards are those of files in the index's own folder. */
winattn_status wa_index_read(const char *text, size_t size, wa_index *index);
void wa_index_free(wa_index *index);

struct wa_safetensors {
    wa_header header; /* sorted; its names are its own, or shards' */
    wa_file_map map;  /* empty where bytes are the caller's, or shards' */
    wa_safetensors **shards; /* of a set */
    size_t shard_count;
    char *path; /* NULL: a shard, or in memory */
};

#endif
