/* SPDX-License-Identifier: Apache-2.0
 * Reads types, kernels and their local arrays out of a program's tokens. */
#include "kernels.h"

#include <stdio.h>
#include <stdlib.h>

#include "internal.h"
#include "preprocess.h"

/* A type's size and alignment. */
typedef struct type_facts {
    token name;
    size_t size, alignment;
} type_facts;

typedef struct source_reader {
    preprocessor *p;
    type_facts *types; /* that the source defines */
    size_t type_count;
    kernel_list kernels;
} source_reader;

/* ---- Types ---- */

/* "float" and "float4"; a vector of 3 takes the room of 4. */
static bool find_built_in(const token *name, type_facts *type)
{
    static const struct {
        const char *name;
        size_t size;
    } scalars[] = {{"char", 1}, {"uchar", 1}, {"short", 2}, {"ushort", 2},
                   {"half", 2}, {"int", 4},   {"uint", 4},  {"float", 4},
                   {"long", 8}, {"ulong", 8}, {"size_t", 8}};
    for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++) {
        const size_t length = strlen(scalars[i].name);
        if (name->length < length ||
            memcmp(name->at, scalars[i].name, length) != 0)
            continue;
        size_t lanes = 0;
        for (size_t k = length; k < name->length; k++)
            lanes = lanes * 10 + (size_t)(name->at[k] - '0');
        if (name->length == length)
            lanes = 1;
        if (lanes != 1 && lanes != 2 && lanes != 3 && lanes != 4 &&
            lanes != 8 && lanes != 16)
            continue;
        type->size = scalars[i].size * (lanes == 3 ? 4 : lanes);
        type->alignment = type->size;
        return true;
    }
    return false;
}

static bool find_type(const source_reader *in, const token *name,
                      type_facts *type)
{
    for (size_t i = in->type_count; i-- > 0;)
        if (in->types[i].name.length == name->length &&
            memcmp(in->types[i].name.at, name->at, name->length) == 0) {
            *type = in->types[i];
            return true;
        }
    return find_built_in(name, type);
}

static void add_type(source_reader *in, const token *name, size_t size,
                     size_t alignment)
{
    const type_facts type = {*name, size, alignment};
    in->types = own_grow(in->types, in->type_count, sizeof type);
    in->types[in->type_count++] = type;
}

static size_t round_up(size_t x, size_t to) { return (x + to - 1) / to * to; }

/* Behind the closing one of what tokens[0] opens; count if there is none. */
static size_t skip_pair(const token *tokens, size_t count, const char *open,
                        const char *close)
{
    size_t depth = 0;
    for (size_t i = 0; i < count; i++) {
        depth += token_is(&tokens[i], open);
        depth -= token_is(&tokens[i], close);
        if (depth == 0)
            return i + 1;
    }
    return count;
}

/* "[a][b]" from tokens[0] on: the product; 1 if there is none. *taken: tokens.
 */
static size_t read_extents(const token *tokens, size_t count, size_t *taken)
{
    size_t elements = 1;
    *taken = 0;
    while (*taken < count && token_is(&tokens[*taken], "[")) {
        const size_t length =
            skip_pair(tokens + *taken, count - *taken, "[", "]");
        int64_t extent = 0;
        if (!preprocess_evaluate(tokens + *taken + 1, length - 2, &extent) ||
            extent <= 0)
            wrong("an array of %lld elements near \"%.40s\"",
                  (long long)extent, tokens[*taken].at);
        elements *= (size_t)extent;
        *taken += length;
    }
    return elements;
}

/* "type a, b[2];" of a struct, up to the semicolon. False: a pointer, or of a
 * type that nothing is known of; such structs are no arguments. */
static bool add_members(const source_reader *in, const token *tokens,
                        size_t count, size_t *size, size_t *alignment)
{
    type_facts type;
    if (count < 2 || !find_type(in, &tokens[0], &type))
        return false;
    for (size_t i = 1; i < count;) {
        size_t taken;
        if (!token_is_name(&tokens[i]))
            return false;
        const size_t elements =
            read_extents(tokens + i + 1, count - i - 1, &taken);
        *size = round_up(*size, type.alignment) + elements * type.size;
        if (type.alignment > *alignment)
            *alignment = type.alignment;
        i += taken + 2; /* the name, the comma */
    }
    return true;
}

/* What follows "typedef", without the semicolon. */
static void read_typedef(source_reader *in, const token *tokens, size_t count)
{
    size_t size = 0, alignment = 1, start = 0;
    if (count < 2)
        return;
    while (start < count && !token_is(&tokens[start], "{"))
        start++;
    if (start == count) { /* another name for a type */
        type_facts type;
        if (count == 2 && find_type(in, &tokens[0], &type))
            add_type(in, &tokens[1], type.size, type.alignment);
        return;
    }
    for (size_t i = ++start; i < count; i++)
        if (token_is(&tokens[i], ";")) {
            if (!add_members(in, tokens + start, i - start, &size, &alignment))
                return;
            start = i + 1;
        }
    add_type(in, &tokens[count - 1], round_up(size, alignment), alignment);
}

/* ---- Kernels ---- */

static void add_parameter(const source_reader *in, kernel_facts *kernel,
                          const token *tokens, size_t count)
{
    kernel_parameter parameter = {false, 0};
    type_facts type;
    for (size_t i = 0; i < count; i++)
        if (token_is(&tokens[i], "*")) {
            parameter.is_buffer = true;
            parameter.size = sizeof(void *);
        } else if (!parameter.is_buffer && find_type(in, &tokens[i], &type)) {
            parameter.size = type.size;
        }
    if (parameter.size == 0 ||
        kernel->parameter_count == KERNEL_MOST_PARAMETERS)
        wrong("%s: parameter %u cannot be read", kernel->name,
              kernel->parameter_count);
    else
        kernel->parameters[kernel->parameter_count++] = parameter;
}

/* From the opening parenthesis on; returns the tokens up to the closing one.
 */
static size_t read_parameters(const source_reader *in, kernel_facts *kernel,
                              const token *tokens, size_t count)
{
    const size_t length = skip_pair(tokens, count, "(", ")");
    size_t start = 1;
    for (size_t i = 1; i < length; i++)
        if (token_is(&tokens[i], ",") || i == length - 1) {
            const bool is_void =
                i == start + 1 && token_is(&tokens[start], "void");
            if (i > start && !is_void)
                add_parameter(in, kernel, tokens + start, i - start);
            start = i + 1;
        }
    return length;
}

/* "((reqd_work_group_size(x, 1, 1)))" */
static void read_attribute(kernel_facts *kernel, const token *tokens,
                           size_t count)
{
    size_t i = 0;
    int64_t items = 0;
    while (i < count && !token_is(&tokens[i], "reqd_work_group_size"))
        i++;
    if (i == count)
        return;
    size_t end = i + 2, depth = 0;
    while (end < count && !(depth == 0 && token_is(&tokens[end], ","))) {
        depth += token_is(&tokens[end], "(");
        depth -= token_is(&tokens[end], ")");
        end++;
    }
    if (!preprocess_evaluate(tokens + i + 2, end - i - 2, &items))
        wrong("a work-group's size cannot be read");
    kernel->work_group = (size_t)items;
}

/* All between __kernel and the body. */
static void read_head(const source_reader *in, kernel_facts *kernel,
                      const token *tokens, size_t count)
{
    for (size_t i = 0; i + 1 < count; i++) {
        if (token_is(&tokens[i], "__attribute__")) {
            const size_t length =
                skip_pair(tokens + i + 1, count - i - 1, "(", ")");
            read_attribute(kernel, tokens + i + 1, length);
            i += length;
        } else if (token_is(&tokens[i + 1], "(")) {
            snprintf(kernel->name, sizeof kernel->name, "%.*s",
                     (int)tokens[i].length, tokens[i].at);
            i += read_parameters(in, kernel, tokens + i + 1, count - i - 1);
        }
    }
}

/* "type a[2][3], b __attribute__((aligned(128)));" behind __local; pointers
 * take no local memory. */
static void add_locals(const source_reader *in, kernel_facts *kernel,
                       const token *tokens, size_t count)
{
    type_facts type;
    if (count < 2 || token_is(&tokens[0], "const") ||
        !token_is_name(&tokens[1]))
        return;
    if (!find_type(in, &tokens[0], &type)) {
        wrong("%s: nothing is known of the local type %.*s", kernel->name,
              (int)tokens[0].length, tokens[0].at);
        return;
    }
    for (size_t i = 1; i < count && token_is_name(&tokens[i]);) {
        size_t taken;
        if (token_is(&tokens[i], "__attribute__"))
            break;
        const size_t elements =
            read_extents(tokens + i + 1, count - i - 1, &taken);
        kernel->local_bytes += elements * type.size;
        i += taken + 2;
    }
}

static void read_body(const source_reader *in, kernel_facts *kernel,
                      const token *tokens, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!token_is(&tokens[i], "__local") ||
            (i > 0 && !token_is(&tokens[i - 1], ";") &&
             !token_is(&tokens[i - 1], "{") && !token_is(&tokens[i - 1], "}")))
            continue;
        size_t end = i + 1;
        while (end < count && !token_is(&tokens[end], ";"))
            end++;
        add_locals(in, kernel, tokens + i + 1, end - i - 1);
    }
}

/* Is it __kernel, or a macro with arguments that begins with it? */
static bool starts_kernel(source_reader *in, const token *tokens, size_t count)
{
    if (token_is(&tokens[0], "__kernel"))
        return true;
    if (count < 2 || !token_is_name(&tokens[0]) || !token_is(&tokens[1], "("))
        return false;
    const size_t length = 1 + skip_pair(tokens + 1, count - 1, "(", ")");
    token_list all = preprocess_expand(in->p, tokens, length);
    const bool starts = all.count > 0 && token_is(&all.all[0], "__kernel");
    token_list_free(&all);
    return starts;
}

/* From there on; returns the tokens up to the end of the body. */
static size_t read_kernel(source_reader *in, const token *tokens, size_t count)
{
    kernel_facts kernel;
    size_t body = 0;
    memset(&kernel, 0, sizeof kernel);
    while (body < count && !token_is(&tokens[body], "{"))
        body++;
    const size_t length = skip_pair(tokens + body, count - body, "{", "}");
    token_list head = preprocess_expand(in->p, tokens, body);
    token_list all = preprocess_expand(in->p, tokens + body, length);
    read_head(in, &kernel, head.all, head.count);
    read_body(in, &kernel, all.all, all.count);
    token_list_free(&head);
    token_list_free(&all);
    in->kernels.all =
        own_grow(in->kernels.all, in->kernels.count, sizeof kernel);
    in->kernels.all[in->kernels.count++] = kernel;
    return body + length;
}

/* "typedef" and what it defines, with the semicolon. */
static size_t read_definition(source_reader *in, const token *tokens,
                              size_t count)
{
    size_t end = 1;
    while (end < count && !token_is(&tokens[end], ";"))
        end += token_is(&tokens[end], "{")
                   ? skip_pair(tokens + end, count - end, "{", "}")
                   : 1;
    token_list all = preprocess_expand(in->p, tokens + 1, end - 1);
    read_typedef(in, all.all, all.count);
    token_list_free(&all);
    return end + 1;
}

kernel_list kernels_read(const char *source, const char *options)
{
    source_reader in = {preprocess(source, options), NULL, 0, {NULL, 0}};
    const token_list *tokens = preprocess_tokens(in.p);
    for (size_t i = 0; i < tokens->count;) {
        const token *at = &tokens->all[i];
        const size_t left = tokens->count - i;
        if (starts_kernel(&in, at, left))
            i += read_kernel(&in, at, left);
        else if (token_is(at, "typedef"))
            i += read_definition(&in, at, left);
        else if (token_is(at, "{")) /* a function's body */
            i += skip_pair(at, left, "{", "}");
        else
            i++;
    }
    free(in.types);
    preprocess_free(in.p);
    return in.kernels;
}

void kernels_free(kernel_list *list)
{
    free(list->all);
    memset(list, 0, sizeof *list);
}

const kernel_facts *kernels_find(const kernel_list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->all[i].name, name) == 0)
            return &list->all[i];
    return NULL;
}
