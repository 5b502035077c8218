/* SPDX-License-Identifier: Apache-2.0
 * Tokens, directives and macros. Expressions are in evaluate.c. */
#include "preprocess.h"

#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define SLOTS 4096u /* for macros; a power of two, far more than there are */
#define MOST_PARAMETERS 16
#define MOST_NESTED 32

typedef struct macro {
    token name;
    bool takes_arguments;
    size_t parameter_count;
    token parameters[MOST_PARAMETERS];
    token_list body;
    bool busy; /* it is being replaced: not again within itself */
} macro;

/* Texts that ## made. */
typedef struct own_text {
    struct own_text *next;
    char text[];
} own_text;

/* Of an #if: is its present branch compiled, was one, is the whole? */
typedef struct branch {
    bool is_active, was_active, outer;
} branch;

struct preprocessor {
    macro *macros[SLOTS];
    token_list tokens;
    own_text *texts;
    branch branches[MOST_NESTED];
    size_t depth;
};

/* ---- Tokens ---- */

bool token_is(const token *t, const char *text)
{
    return strlen(text) == t->length && memcmp(t->at, text, t->length) == 0;
}

static bool starts_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool token_is_name(const token *t) { return starts_name(t->at[0]); }

static void append(token_list *list, token t)
{
    list->all = own_grow(list->all, list->count, sizeof t);
    list->all[list->count++] = t;
}

void token_list_free(token_list *list)
{
    free(list->all);
    memset(list, 0, sizeof *list);
}

/* Where blanks, joined lines and comments end; at the end of the line, unless
 * a comment goes on behind it. */
static const char *skip_blanks(const char *at)
{
    for (;;) {
        if (*at == ' ' || *at == '\t' || *at == '\r') {
            at++;
        } else if (at[0] == '\\' && at[1] == '\n') {
            at += 2;
        } else if (at[0] == '/' && at[1] == '*') {
            const char *end = strstr(at + 2, "*/");
            at = end ? end + 2 : at + strlen(at);
        } else if (at[0] == '/' && at[1] == '/') {
            at += strcspn(at, "\n");
        } else {
            return at;
        }
    }
}

static size_t token_length(const char *at)
{
    static const char *const pairs[] = {
        "&&", "||", "==", "!=", "<=", ">=", "<<", ">>", "##", "->"};
    size_t length = 1;
    if (starts_name(*at) || is_digit(*at)) {
        while (starts_name(at[length]) || is_digit(at[length]) ||
               (is_digit(*at) && at[length] == '.'))
            length++;
        return length;
    }
    if (*at == '"' || *at == '\'') {
        while (at[length] && at[length] != *at && at[length] != '\n')
            length += at[length] == '\\' && at[length + 1] ? 2 : 1;
        return at[length] == *at ? length + 1 : length;
    }
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (strncmp(at, pairs[i], 2) == 0)
            return 2;
    return 1;
}

/* The rest of a line, joined ones included; returns where the next starts. */
static const char *read_line(const char *at, token_list *list)
{
    for (;;) {
        at = skip_blanks(at);
        if (*at == 0)
            return at;
        if (*at == '\n')
            return at + 1;
        const token t = {at, token_length(at)};
        append(list, t);
        at += t.length;
    }
}

/* The same without looking at it. */
static const char *skip_line(const char *at)
{
    for (;;) {
        at += strcspn(at, "\n\\/");
        if (*at == 0)
            return at;
        if (*at == '\n')
            return at + 1;
        const char *after = skip_blanks(at);
        at = after == at ? at + 1 : after;
    }
}

/* ---- Macros ---- */

static size_t slot_of(const token *name)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < name->length; i++)
        hash = (hash ^ (unsigned char)name->at[i]) * 16777619u;
    return hash % SLOTS;
}

static bool same(const token *a, const token *b)
{
    return a->length == b->length && memcmp(a->at, b->at, a->length) == 0;
}

static macro *find_macro(const preprocessor *p, const token *name)
{
    size_t slot = slot_of(name);
    while (p->macros[slot] && !same(&p->macros[slot]->name, name))
        slot = (slot + 1) % SLOTS;
    return p->macros[slot];
}

static macro *add_macro(preprocessor *p, token name)
{
    size_t slot = slot_of(&name);
    while (p->macros[slot] && !same(&p->macros[slot]->name, &name))
        slot = (slot + 1) % SLOTS;
    macro *made = p->macros[slot];
    if (made)
        token_list_free(&made->body);
    else
        made = p->macros[slot] = own_calloc(1, sizeof *made);
    made->name = name;
    return made;
}

/* Of a line "NAME body" or "NAME(a, b) body". */
static void define(preprocessor *p, const token *line, size_t count)
{
    if (count == 0 || !token_is_name(line))
        return;
    macro *made = add_macro(p, line[0]);
    size_t i = 1;
    made->takes_arguments = count > 1 && token_is(&line[1], "(") &&
                            line[1].at == line[0].at + line[0].length;
    made->parameter_count = 0;
    if (made->takes_arguments)
        for (i = 2; i < count && !token_is(&line[i - 1], ")"); i++)
            if (token_is_name(&line[i]) &&
                made->parameter_count < MOST_PARAMETERS)
                made->parameters[made->parameter_count++] = line[i];
    for (; i < count; i++)
        append(&made->body, line[i]);
}

/* -D NAME, -DNAME=text. */
static void define_options(preprocessor *p, const char *options)
{
    static const char one[] = "1";
    const char *at = options;
    while ((at = strstr(at, "-D")) != NULL) {
        const bool starts = at == options || at[-1] == ' ';
        at += 2;
        if (!starts)
            continue;
        at += strspn(at, " ");
        const token name = {at, strcspn(at, "= ")};
        at += name.length;
        if (name.length == 0)
            continue;
        macro *made = add_macro(p, name);
        token t = {one, 1};
        if (*at == '=') {
            const char *end = at + strcspn(at, " ");
            for (at++; at < end; at += t.length) {
                t.at = at;
                t.length = token_length(at);
                append(&made->body, t);
            }
        } else {
            append(&made->body, t);
        }
    }
}

/* ---- Replacement ---- */

static void expand_into(preprocessor *p, const token *tokens, size_t count,
                        token_list *to);

static token paste(preprocessor *p, const token *a, const token *b)
{
    own_text *made = own_calloc(1, sizeof *made + a->length + b->length + 1);
    memcpy(made->text, a->at, a->length);
    memcpy(made->text + a->length, b->at, b->length);
    made->next = p->texts;
    p->texts = made;
    const token t = {made->text, a->length + b->length};
    return t;
}

/* An argument as it was written, and with its macros replaced. */
typedef struct macro_argument {
    const token *tokens;
    size_t count;
    token_list expanded;
} macro_argument;

static void substitute(preprocessor *p, const macro *m,
                       const macro_argument *arguments, token_list *to)
{
    const token_list *body = &m->body;
    bool pastes = false;
    for (size_t i = 0; i < body->count; i++) {
        const token *t = &body->all[i];
        const bool before_paste =
            i + 1 < body->count && token_is(&body->all[i + 1], "##");
        const size_t start = to->count;
        size_t parameter = 0;
        if (token_is(t, "##")) {
            pastes = to->count > 0;
            continue;
        }
        while (parameter < m->parameter_count &&
               !same(&m->parameters[parameter], t))
            parameter++;
        if (parameter == m->parameter_count) {
            append(to, *t);
        } else if (pastes || before_paste) {
            for (size_t k = 0; k < arguments[parameter].count; k++)
                append(to, arguments[parameter].tokens[k]);
        } else {
            const token_list *all = &arguments[parameter].expanded;
            for (size_t k = 0; k < all->count; k++)
                append(to, all->all[k]);
        }
        if (pastes && to->count > start && start > 0) {
            to->all[start - 1] =
                paste(p, &to->all[start - 1], &to->all[start]);
            memmove(&to->all[start], &to->all[start + 1],
                    (to->count - start - 1) * sizeof *to->all);
            to->count--;
        }
        pastes = false;
    }
}

/* From behind the opening parenthesis; returns the tokens up to and with the
 * closing one, 0 if it is missing. */
static size_t read_arguments(const token *tokens, size_t count,
                             macro_argument arguments[MOST_PARAMETERS])
{
    size_t depth = 0, number = 0, start = 0;
    for (size_t i = 0; i < count; i++) {
        const bool closes = token_is(&tokens[i], ")");
        if (depth == 0 && (closes || token_is(&tokens[i], ","))) {
            if (number < MOST_PARAMETERS) {
                arguments[number].tokens = tokens + start;
                arguments[number++].count = i - start;
            }
            start = i + 1;
            if (closes)
                return i + 1;
        } else if (closes) {
            depth--;
        } else if (token_is(&tokens[i], "(")) {
            depth++;
        }
    }
    return 0;
}

static void replace(preprocessor *p, macro *m, macro_argument *arguments,
                    token_list *to)
{
    token_list made = {NULL, 0};
    for (size_t i = 0; i < m->parameter_count; i++)
        expand_into(p, arguments[i].tokens, arguments[i].count,
                    &arguments[i].expanded);
    substitute(p, m, arguments, &made);
    m->busy = true;
    expand_into(p, made.all, made.count, to);
    m->busy = false;
    token_list_free(&made);
    for (size_t i = 0; i < m->parameter_count; i++)
        token_list_free(&arguments[i].expanded);
}

static void expand_into(preprocessor *p, const token *tokens, size_t count,
                        token_list *to)
{
    for (size_t i = 0; i < count; i++) {
        macro_argument arguments[MOST_PARAMETERS];
        memset(arguments, 0, sizeof arguments);
        macro *m =
            token_is_name(&tokens[i]) ? find_macro(p, &tokens[i]) : NULL;
        if (!m || m->busy) {
            append(to, tokens[i]);
        } else if (!m->takes_arguments) {
            replace(p, m, arguments, to);
        } else if (i + 1 < count && token_is(&tokens[i + 1], "(")) {
            const size_t taken =
                read_arguments(tokens + i + 2, count - i - 2, arguments);
            replace(p, m, arguments, to);
            i += taken ? taken + 1 : count;
        } else {
            append(to, tokens[i]);
        }
    }
}

token_list preprocess_expand(preprocessor *p, const token *tokens,
                             size_t count)
{
    token_list list = {NULL, 0};
    expand_into(p, tokens, count, &list);
    return list;
}

/* ---- Directives ---- */

static bool holds(preprocessor *p, const token *line, size_t count)
{
    static const char *const digits[] = {"0", "1"};
    token_list known = {NULL, 0};
    int64_t value = 0;
    for (size_t i = 0; i < count; i++) {
        token t = line[i];
        if (token_is(&t, "defined")) {
            const bool in_parentheses =
                i + 1 < count && token_is(&line[i + 1], "(");
            const size_t name = i + (in_parentheses ? 2 : 1);
            if (name < count) {
                t.at = digits[find_macro(p, &line[name]) != NULL];
                t.length = 1;
            }
            i = name + in_parentheses;
        }
        append(&known, t);
    }
    token_list all = preprocess_expand(p, known.all, known.count);
    preprocess_evaluate(all.all, all.count, &value);
    token_list_free(&all);
    token_list_free(&known);
    return value != 0;
}

static bool is_active(const preprocessor *p)
{
    return p->depth == 0 || (p->branches[p->depth - 1].outer &&
                             p->branches[p->depth - 1].is_active);
}

static void enter(preprocessor *p, bool holds_here)
{
    const branch b = {holds_here, holds_here, is_active(p)};
    if (p->depth < MOST_NESTED)
        p->branches[p->depth++] = b;
}

static void obey(preprocessor *p, const token *line, size_t count)
{
    const token *rest = line + 1;
    if (count == 0)
        return;
    branch *b = p->depth ? &p->branches[p->depth - 1] : NULL;
    if (token_is(line, "ifdef") || token_is(line, "ifndef")) {
        const bool defined = count > 1 && find_macro(p, rest) != NULL;
        enter(p, defined == token_is(line, "ifdef"));
    } else if (token_is(line, "if")) {
        enter(p, is_active(p) && holds(p, rest, count - 1));
    } else if (token_is(line, "elif") && b) {
        b->is_active = !b->was_active && b->outer && holds(p, rest, count - 1);
        b->was_active = b->was_active || b->is_active;
    } else if (token_is(line, "else") && b) {
        b->is_active = !b->was_active;
    } else if (token_is(line, "endif") && b) {
        p->depth--;
    } else if (token_is(line, "define") && is_active(p)) {
        define(p, rest, count - 1);
    }
}

preprocessor *preprocess(const char *source, const char *options)
{
    static const char *const of_the_compiler =
        "-D__OPENCL_VERSION__=120 -D__OPENCL_C_VERSION__=120";
    preprocessor *p = own_calloc(1, sizeof *p);
    define_options(p, of_the_compiler);
    define_options(p, options);
    for (const char *at = source; *at;) {
        at = skip_blanks(at);
        if (*at == '#') {
            token_list line = {NULL, 0};
            at = read_line(at + 1, &line);
            obey(p, line.all, line.count);
            token_list_free(&line);
        } else if (is_active(p)) {
            at = read_line(at, &p->tokens);
        } else {
            at = skip_line(at);
        }
    }
    return p;
}

const token_list *preprocess_tokens(const preprocessor *p)
{
    return &p->tokens;
}

void preprocess_free(preprocessor *p)
{
    for (size_t i = 0; i < SLOTS; i++)
        if (p->macros[i]) {
            token_list_free(&p->macros[i]->body);
            free(p->macros[i]);
        }
    while (p->texts) {
        own_text *next = p->texts->next;
        free(p->texts);
        p->texts = next;
    }
    token_list_free(&p->tokens);
    free(p);
}
