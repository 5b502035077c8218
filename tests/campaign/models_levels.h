/* SPDX-License-Identifier: Apache-2.0
 * The levels of winattn_models.h - linear layer, window attention, block,
 * model - behind one interface: descriptors drawn at random, plans of them,
 * and what each tensor of a call must have, worked out by itself. */
#ifndef CAMPAIGN_MODELS_LEVELS_H
#define CAMPAIGN_MODELS_LEVELS_H

#include "descriptors.h"

#include "winattn_models.h"

typedef enum level_id {
    LEVEL_LINEAR,
    LEVEL_ATTENTION,
    LEVEL_BLOCK,
    LEVEL_MODEL,
    LEVELS
} level_id;

/* A descriptor, and where it is one of a model, the shape of its weights. */
typedef struct level_desc {
    level_id level;
    union {
        winattn_linear_desc linear;
        winattn_window_attention_desc attention;
        winattn_block_desc block;
        winattn_model_desc model;
        unsigned char bytes[sizeof(winattn_block_desc)];
    } u;
    winattn_swin_config config;
    bool is_spoilt; /* it may be wrong */
} level_desc;

/* The struct of a call, of whichever level. */
typedef union level_call {
    winattn_linear linear;
    winattn_window_attention attention;
    winattn_block block;
    winattn_model_call model;
    unsigned char bytes[sizeof(winattn_block)];
} level_call;

/* A tensor of a call. */
typedef struct slot {
    const char *name;
    size_t place;          /* in the call */
    wide bytes;            /* from its offset on */
    cl_uint element_bytes; /* of which its offset is a multiple */
    cl_uint aligned;       /* where it is put, at least */
    bool is_used;          /* the plan knows it */
    bool is_wanted;        /* is_used, and not left out at random */
    bool is_optional;      /* it may be left out */
    bool is_read, is_written;
} slot;

#define MOST_SLOTS 24
typedef struct slot_list {
    slot all[MOST_SLOTS];
    size_t count;
} slot_list;

/* Draws one, which is right unless it is spoilt. */
level_desc level_draw(random_state *r);
/* The fields that are not 0, in one line. */
void level_print(const level_desc *desc, char *text, size_t size);

const char *level_name(level_id level);
size_t level_desc_size(level_id level);
/* What an older program's struct has. */
size_t level_desc_least(level_id level);
size_t level_call_size(level_id level);
cl_uint level_dtype_bytes(const level_desc *desc);

/* given: the descriptor as it is passed, or NULL. */
winattn_status level_create(const level_desc *desc, const void *given,
                            cl_context context, cl_device_id device,
                            const winattn_swin_weights *weights, void **plan);
void level_destroy(level_id level, void *plan);
winattn_status level_describe(level_id level, const void *plan, size_t size,
                              char *text, size_t *needed);
winattn_status level_workspace(level_id level, const void *plan,
                               const level_call *call, size_t *size);
winattn_status level_enqueue(level_id level, const void *plan,
                             cl_command_queue queue, const void *call,
                             cl_uint wait_count, const cl_event *wait_list,
                             cl_event *event);

/* Fills in what is no tensor of a call, and lists the tensors. */
void level_draw_call(random_state *r, const level_desc *desc,
                     level_call *call);
slot_list level_slots(random_state *r, const level_desc *desc,
                      const level_call *call);

#endif
