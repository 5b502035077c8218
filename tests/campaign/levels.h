/* SPDX-License-Identifier: Apache-2.0
 * Plans of the public interfaces and calls of them, behind one interface:
 * descriptors drawn at random, and what each tensor of a call must have, by
 * what the headers say of it and not by the library's code. winattn.h has one
 * level (core_level.c), winattn_models.h has four: linear layer, window
 * attention, block, model (models_levels.c). */
#ifndef CAMPAIGN_LEVELS_H
#define CAMPAIGN_LEVELS_H

#include "kit/cases.h"
#include "kit/meaning.h"
#include "winattn_models.h"

/* Somebody to tell what is wrong; the program has it. */
void report(const char *what, const char *detail);

/* ---- Options ---- */

/* How long a campaign runs, as its command line says; what the program sets
 * are the defaults. */
typedef struct campaign_options {
    const char *count_option; /* that says how many: --cases, say */
    unsigned long seed;       /* --seed: of the first */
    unsigned long count;
    const char *folder; /* --folder; NULL: there is no such option */
} campaign_options;

/* Ends the program with status 2 at an option that is none. */
void options_read(campaign_options *options, int count, char **arguments);

/* ---- Draws ---- */

/* True in so many of 100 cases. */
bool chance(random_state *r, int percent);
/* One of the whole numbers that follow. */
#define ONE_OF(r, ...)                                                        \
    one_of(r, (const cl_ulong[]){__VA_ARGS__},                                \
           sizeof((const cl_ulong[]){__VA_ARGS__}) / sizeof(cl_ulong))
cl_ulong one_of(random_state *r, const cl_ulong *list, size_t count);
cl_uint below(random_state *r, cl_uint count); /* 0 to count - 1 */
/* A number that programs get wrong: a power of two, its neighbours, ... */
cl_ulong special_number(random_state *r);

bool text_starts(const char *text, const char *start);

/* ---- Fields of structs ---- */

typedef struct field {
    const char *name;
    size_t place, bytes;
    bool is_float;
} field;
#define FIELD_OF(type, name, is_float)                                        \
    {                                                                         \
#name, offsetof(type, name), sizeof(((type *)NULL)->name), is_float   \
    }

/* Those behind the first `plain` are drawn less often. No pointers, and not
 * struct_size. */
typedef struct field_list {
    const field *all;
    size_t plain, count;
} field_list;

/* Those that are not 0, in one line; the length of what was written. */
size_t print_fields(const field_list *list, const void *from, char *text,
                    size_t size);
void spoil_field(random_state *r, const field_list *list, void *of);

/* ---- Levels ---- */

/* A descriptor, and where it is one of a model, the shape of its weights. */
typedef struct level_desc {
    const struct level *of;
    union {
        winattn_desc core;
        winattn_linear_desc linear;
        winattn_window_attention_desc attention;
        winattn_block_desc block;
        winattn_model_desc model;
        unsigned char bytes[sizeof(winattn_desc)];
    } u;
    winattn_swin_config config;
    winattn_swin_weights *weights; /* own; once it is prepared */
    cl_int *index;                 /* what core.table.index points to; own */
    char *build_options;           /* the same of core.build_options */
    bool is_spoilt;                /* it may be wrong */
} level_desc;

/* The struct of a call. */
typedef union level_call {
    winattn_forward forward;
    winattn_backward backward;
    winattn_linear linear;
    winattn_window_attention attention;
    winattn_block block;
    winattn_model_call model;
    unsigned char bytes[sizeof(winattn_backward)];
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

/* A function that enqueues. */
typedef struct call_kind {
    size_t size, least; /* of its struct: this program's, the oldest one's */
    size_t workspace;   /* where it is in the struct */
    cl_uint workspace_aligned;
    /* so many launches of a call are followed; then the device is out of
     * resources */
    unsigned long most_launches;
    /* the event is a marker's, perhaps, where the queue is in order */
    bool has_marker;
    /* may plans of this descriptor be called so? NULL: all */
    bool (*applies)(const level_desc *desc);
    /* what is no tensor: drawn, drawn small, spoilt; NULL: there is nothing */
    void (*draw)(random_state *r, const level_desc *desc, level_call *call);
    void (*draw_small)(random_state *r, level_call *call);
    void (*spoil)(random_state *r, level_call *call);
    /* is nothing computed, and no tensor looked at? NULL: never */
    bool (*is_empty)(const level_desc *desc, const level_call *call);
    void (*list)(random_state *r, const level_desc *desc,
                 const level_call *call, slot_list *slots);
    /* *is_sure: a call without so many bytes must be refused */
    winattn_status (*workspace_size)(const level_desc *desc, const void *plan,
                                     const level_call *call, size_t *size,
                                     bool *is_sure);
    winattn_status (*enqueue)(const void *plan, cl_command_queue queue,
                              const void *call, cl_uint wait_count,
                              const cl_event *wait_list, cl_event *event);
    /* What is wrong with a call that was taken and its launches since
     * standin_forget; NULL: nothing. is_cut: the device ran out of resources.
     */
    const char *(*fault)(const level_desc *desc, const level_call *call,
                         bool is_cut);
} call_kind;

typedef struct level {
    const char *name;
    cl_uint weight;               /* how often it is drawn */
    size_t desc_size, desc_least; /* as of a call */
    size_t tier;                  /* where it is in a descriptor */
    const field_list *fields;
    const field_list *config_fields; /* NULL: there is no config */
    /* fills in u and config: what models have; what is small, and right */
    void (*draw)(random_state *r, level_desc *desc);
    void (*draw_small)(random_state *r, level_desc *desc);
    /* once it is spoilt, or not; NULL: nothing is to be done */
    void (*finish)(random_state *r, level_desc *desc);
    /* what its plan is made of; NULL: no more than the descriptor */
    winattn_status (*prepare)(random_state *r, level_desc *desc);
    /* gives back what the descriptor owns; for any number of times */
    void (*release)(level_desc *desc);
    winattn_status (*create)(const level_desc *desc, const void *given,
                             cl_context context, cl_device_id device,
                             void **plan);
    void (*destroy)(void *plan);
    winattn_status (*describe)(const void *plan, size_t size, char *text,
                               size_t *needed);
    /* reports what is wrong with a plan; NULL: there is nothing more to see */
    void (*check)(const level_desc *desc, const void *plan, cl_context context,
                  cl_device_id device);
    const call_kind *kinds;
    size_t kind_count;
} level;

/* Those of the program, of models in this order. */
enum { LEVEL_LINEAR, LEVEL_ATTENTION, LEVEL_BLOCK, LEVEL_MODEL, LEVELS };
extern const level levels[];
extern const size_t level_count;

const level *level_draw(random_state *r);
/* Draws a descriptor, which is right unless it is spoilt. */
level_desc level_make(random_state *r, const level *of);
/* Sets a field of the descriptor, where it has one of that name. */
void level_set(level_desc *desc, const char *name, cl_ulong value);
/* The fields that are not 0, in one line. */
void level_print(const level_desc *desc, char *text, size_t size);

/* Gives a call the tensors that list() wants, all in one buffer that is large
 * enough, each in a place of its own; returns where in the call the first of
 * them is, which is needed. */
size_t level_give_tensors(random_state *r, const level_desc *desc,
                          const call_kind *kind, cl_mem memory,
                          level_call *call);

/* The functions of plans that are of a type as their names say. */
#define PLAN_FUNCTIONS(type)                                                  \
    static void destroy_##type(void *plan) { type##_destroy(plan); }          \
    static winattn_status describe_##type(const void *plan, size_t size,      \
                                          char *text, size_t *needed)         \
    {                                                                         \
        return type##_describe(plan, size, text, needed);                     \
    }
#define ENQUEUE_FUNCTION(name)                                                \
    static winattn_status enqueue_##name(                                     \
        const void *plan, cl_command_queue queue, const void *call,           \
        cl_uint wait_count, const cl_event *wait_list, cl_event *event)       \
    {                                                                         \
        return winattn_enqueue_##name(plan, queue, call, wait_count,          \
                                      wait_list, event);                      \
    }

#endif
