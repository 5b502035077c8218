/* SPDX-License-Identifier: Apache-2.0
 * As much of C's preprocessor as the library's kernels use, to find out what
 * a program's options make of its source. */
#ifndef STANDIN_PREPROCESS_H
#define STANDIN_PREPROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Points into the source, or into what the preprocessor owns. */
typedef struct token {
    const char *at;
    size_t length;
} token;

typedef struct token_list {
    token *all;
    size_t count;
} token_list;

bool token_is(const token *t, const char *text);
bool token_is_name(const token *t);

typedef struct preprocessor preprocessor;

/* Reads a source that lives as long as this. Options other than -D are passed
 * over. No macro of the kernels is undefined or gets a second meaning, so
 * their names can be replaced later, where somebody wants to know. */
preprocessor *preprocess(const char *source, const char *options);
void preprocess_free(preprocessor *p);

/* The tokens that are compiled, with names of macros as they are. */
const token_list *preprocess_tokens(const preprocessor *p);

/* With macros replaced; to be freed by token_list_free. What a macro becomes
 * is looked through again by itself: it cannot end in the name of one whose
 * arguments follow after it. */
token_list preprocess_expand(preprocessor *p, const token *tokens,
                             size_t count);
void token_list_free(token_list *list);

/* The value of an expression of whole numbers, whose macros were replaced;
 * other names are 0. False if it is none. */
bool preprocess_evaluate(const token *tokens, size_t count, int64_t *value);

#endif
