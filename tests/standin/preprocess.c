/* SPDX-License-Identifier: Apache-2.0
 * Tokens, directives and macros. Expressions are in evaluate.c. */
#include "preprocess.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define SLOTS 2048u /* for macros; a power of two, more than there are */
#define MOST_PARAMETERS 16
#define MOST_NESTED 32

typedef struct macro {
    token name;        /* of length 0: there is none in this slot */
    const char *text;  /* behind the name */
    token_list tokens; /* of the text, once the macro is used */
    size_t parameters; /* how many; each is a token and a comma or the end */
    size_t body;       /* the first token of it */
    bool busy;         /* it is being replaced: not again within itself */
} macro;

/* Texts that ## made, or options. */
typedef struct own_text {
    struct own_text *next;
    char text[];
} own_text;

/* Of an #if: is its present branch compiled, was one, is the whole? */
typedef struct branch {
    bool is_active, was_active, outer;
} branch;

struct preprocessor {
    macro macros[SLOTS];
    size_t macro_count;
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
            for (at += 2; *at && !(at[0] == '*' && at[1] == '/'); at++)
                ;
            at += *at ? 2 : 0;
        } else if (at[0] == '/' && at[1] == '/') {
            at += strcspn(at, "\n");
        } else {
            return at;
        }
    }
}

static size_t token_length(const char *at)
{
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
    const bool is_twice = at[1] == *at && strchr("&|=<>#", *at);
    const bool is_compared = at[1] == '=' && strchr("!<>", *at);
    return is_twice || is_compared ? 2 : 1;
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

/* The macro's slot, or the one for it. */
static macro *slot_for(preprocessor *p, const token *name)
{
    size_t slot = slot_of(name);
    while (p->macros[slot].name.length != 0 &&
           !same(&p->macros[slot].name, name))
        slot = (slot + 1) % SLOTS;
    return &p->macros[slot];
}

static macro *find_macro(preprocessor *p, const token *name)
{
    macro *found = slot_for(p, name);
    return found->name.length != 0 ? found : NULL;
}

/* What is behind "#define" names a macro. */
static void define(preprocessor *p, const char *at)
{
    const token name = {at, token_length(at)};
    macro *made = slot_for(p, &name);
    if (made->name.length == 0 && ++p->macro_count == SLOTS) {
        wrong("a source has more than %u macros", SLOTS - 1);
        exit(EXIT_FAILURE); /* the search for a slot would not end */
    }
    token_list_free(&made->tokens);
    made->name = name;
    made->text = at + name.length;
}

static bool takes_arguments(const macro *m) { return *m->text == '('; }

/* "(a, b) body", or a body. */
static void read_macro(macro *m)
{
    if (m->tokens.count > 0)
        return;
    read_line(m->text, &m->tokens);
    m->parameters = m->body = 0;
    if (takes_arguments(m))
        while (m->body < m->tokens.count &&
               !token_is(&m->tokens.all[m->body++], ")"))
            m->parameters += token_is_name(&m->tokens.all[m->body]);
}

/* Room for a text of that length. */
static char *text_new_for(preprocessor *p, size_t length)
{
    own_text *made = own_calloc(1, sizeof *made + length + 1);
    made->next = p->texts;
    p->texts = made;
    return made->text;
}

/* ---- Replacement ---- */

static void expand_into(preprocessor *p, const token *tokens, size_t count,
                        token_list *to);

static token paste(preprocessor *p, const token *a, const token *b)
{
    char *text = text_new_for(p, a->length + b->length);
    memcpy(text, a->at, a->length);
    memcpy(text + a->length, b->at, b->length);
    return (token){text, a->length + b->length};
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
    const token *all = m->tokens.all;
    bool pastes = false;
    for (size_t i = m->body; i < m->tokens.count; i++) {
        const token *t = &all[i];
        const bool before_paste =
            i + 1 < m->tokens.count && token_is(&all[i + 1], "##");
        const size_t start = to->count;
        size_t parameter = 0;
        if (token_is(t, "##")) {
            pastes = to->count > 0;
            continue;
        }
        while (parameter < m->parameters && !same(&all[1 + 2 * parameter], t))
            parameter++;
        if (parameter == m->parameters) {
            append(to, *t);
        } else if (pastes || before_paste) {
            for (size_t k = 0; k < arguments[parameter].count; k++)
                append(to, arguments[parameter].tokens[k]);
        } else {
            const token_list *given = &arguments[parameter].expanded;
            for (size_t k = 0; k < given->count; k++)
                append(to, given->all[k]);
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
    read_macro(m);
    for (size_t i = 0; i < m->parameters; i++)
        expand_into(p, arguments[i].tokens, arguments[i].count,
                    &arguments[i].expanded);
    substitute(p, m, arguments, &made);
    m->busy = true;
    expand_into(p, made.all, made.count, to);
    m->busy = false;
    token_list_free(&made);
    for (size_t i = 0; i < m->parameters; i++)
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
        } else if (!takes_arguments(m)) {
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

/* Does what is behind "#if"? */
static bool holds(preprocessor *p, const char *at)
{
    static const char *const digits[] = {"0", "1"};
    token_list line = {NULL, 0}, known = {NULL, 0};
    int64_t value = 0;
    read_line(at, &line);
    for (size_t i = 0; i < line.count; i++) {
        token t = line.all[i];
        if (token_is(&t, "defined")) {
            const bool in_parentheses =
                i + 1 < line.count && token_is(&line.all[i + 1], "(");
            const size_t name = i + (in_parentheses ? 2 : 1);
            if (name < line.count) {
                t.at = digits[find_macro(p, &line.all[name]) != NULL];
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
    token_list_free(&line);
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

/* What is behind "#". */
static void obey(preprocessor *p, const char *at)
{
    const token word = {at, token_length(at)};
    const char *rest = skip_blanks(at + word.length);
    branch *b = p->depth ? &p->branches[p->depth - 1] : NULL;
    if (token_is(&word, "ifdef") || token_is(&word, "ifndef")) {
        const token name = {rest, token_length(rest)};
        enter(p, (find_macro(p, &name) != NULL) == token_is(&word, "ifdef"));
    } else if (token_is(&word, "if")) {
        enter(p, is_active(p) && holds(p, rest));
    } else if (token_is(&word, "elif") && b) {
        b->is_active = !b->was_active && b->outer && holds(p, rest);
        b->was_active = b->was_active || b->is_active;
    } else if (token_is(&word, "else") && b) {
        b->is_active = !b->was_active;
    } else if (token_is(&word, "endif") && b) {
        p->depth--;
    } else if (token_is(&word, "define") && is_active(p)) {
        define(p, rest);
    }
}

static void read_text(preprocessor *p, const char *at)
{
    while (*at) {
        at = skip_blanks(at);
        if (*at == '#')
            obey(p, skip_blanks(at + 1));
        at = *at != '#' && is_active(p) ? read_line(at, &p->tokens)
                                        : skip_line(at);
    }
}

/* -D NAME and -DNAME=text as lines of a source. */
static const char *definitions_of(preprocessor *p, const char *options)
{
    char *text = text_new_for(p, 16 + 8 * strlen(options)), *to = text;
    for (const char *at = options; (at = strstr(at, "-D")) != NULL;) {
        const bool starts = at == options || at[-1] == ' ';
        at += 2;
        if (!starts)
            continue;
        at += strspn(at, " ");
        const int name = (int)strcspn(at, "= "), all = (int)strcspn(at, " ");
        to += all > name ? sprintf(to, "#define %.*s %.*s\n", name, at,
                                   all - name - 1, at + name + 1)
                         : sprintf(to, "#define %.*s 1\n", name, at);
        at += all;
    }
    return text;
}

preprocessor *preprocess(const char *source, const char *options)
{
    preprocessor *p = own_calloc(1, sizeof *p);
    read_text(p, "#define __OPENCL_VERSION__ 120\n"
                 "#define __OPENCL_C_VERSION__ 120\n");
    read_text(p, definitions_of(p, options));
    read_text(p, source);
    return p;
}

const token_list *preprocess_tokens(const preprocessor *p)
{
    return &p->tokens;
}

void preprocess_free(preprocessor *p)
{
    while (p->texts) {
        own_text *next = p->texts->next;
        free(p->texts);
        p->texts = next;
    }
    for (size_t i = 0; i < SLOTS; i++)
        token_list_free(&p->macros[i].tokens);
    token_list_free(&p->tokens);
    free(p);
}
