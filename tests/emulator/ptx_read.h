/* SPDX-License-Identifier: Apache-2.0
 * Reading of PTX: what the text's parts share. */
#ifndef TESTS_EMULATOR_PTX_READ_H
#define TESTS_EMULATOR_PTX_READ_H

#include "ptx_code.h"

#include <setjmp.h>

enum { MOST_WORD = 128, MOST_SCOPES = 32 };

/* Names, and of registers with a prefix ("%r<9>") how many there are. */
typedef enum ptx_meaning {
    MEANS_REGISTER,
    MEANS_SHARED,
    MEANS_DYNAMIC,
    MEANS_PRIVATE,
    MEANS_DATA,
    MEANS_PARAMETER,
    MEANS_LABEL
} ptx_meaning;
typedef struct ptx_name {
    char name[MOST_WORD];
    ptx_meaning meaning;
    uint64_t number; /* register, offset, or instruction */
    size_t count;    /* of registers with numbers; 0: the name itself */
    unsigned scope;
} ptx_name;

/* A branch to a name that may come later. */
typedef struct ptx_jump {
    size_t instruction;
    char label[MOST_WORD];
    unsigned scope;
} ptx_jump;

typedef struct ptx_reader {
    const char *at;
    unsigned line;
    char word[MOST_WORD]; /* the next token; empty at the end */
    ptx_module *module;
    ptx_kernel *kernel; /* being read */
    ptx_code *code;
    ptx_name *names;
    size_t name_count, name_room;
    ptx_jump *jumps;
    size_t jump_count, jump_room;
    size_t instruction_room, constant_room, kernel_room;
    unsigned scope;
    size_t private_bytes, shared_bytes, dynamic_align;
    jmp_buf failed;
    char *reason;
    size_t reason_size;
} ptx_reader;

/* Ends reading. */
__attribute__((format(printf, 2, 3), noreturn)) void
ptx_reject(ptx_reader *r, const char *format, ...);
void ptx_next(ptx_reader *r);
bool ptx_is(const ptx_reader *r, const char *word);
bool ptx_accept(ptx_reader *r, const char *word);
void ptx_expect(ptx_reader *r, const char *word);
uint64_t ptx_integer(ptx_reader *r);
/* The innermost one that is known. */
const ptx_name *ptx_find(const ptx_reader *r, const char *name,
                         uint64_t *number);
void *ptx_own(ptx_module *module, size_t bytes);
/* A new register with something in it. */
uint32_t ptx_constant_register(ptx_reader *r, ptx_filling filling,
                               uint64_t number);
/* From its name on, or from its guard, to its semicolon. */
void ptx_read_instruction(ptx_reader *r);

#endif
