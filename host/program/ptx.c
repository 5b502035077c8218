/* SPDX-License-Identifier: Apache-2.0
 * Reads PTX line by line, and trusts none of it. */
#include "program/ptx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"

#define ANY_MARK "//@"
#define MARK "//@ "
#define DIRECTIVE "//@! "
#define BUILD "// build "
/* What OpenCL's compiler writes for the devices that have the target. */
#define PLAIN_TARGET ".target sm_90"
#define MOST_DIRECTIVES 4

/* Part of a text; not terminated. */
typedef struct piece {
    const char *text;
    size_t size;
} piece;

/* What a first reading finds. */
typedef struct findings {
    unsigned versions, targets, entries, sizes, marks;
    unsigned directive_count;
    piece directives[MOST_DIRECTIVES];
} findings;

bool wa_ptx_is_marked(const char *kernel)
{
    static const char ending[] = "_wgmma";
    const size_t length = strlen(kernel), last = sizeof ending - 1;
    return length >= last && strcmp(kernel + length - last, ending) == 0;
}

static winattn_status refuse(const char *why)
{
    return WA_BAD_DEVICE(
        "the driver's binary cannot be made one for " WA_PTX_TARGET ": %s",
        why);
}

/* The next line, without its end; false at the end of the text. */
static bool next_line(piece *rest, piece *line)
{
    if (rest->size == 0)
        return false;
    const char *end = memchr(rest->text, '\n', rest->size);
    line->text = rest->text;
    line->size = end ? (size_t)(end - rest->text) : rest->size;
    const size_t taken = line->size + (end != NULL);
    rest->text += taken;
    rest->size -= taken;
    return true;
}

static bool starts_with(piece line, const char *prefix)
{
    const size_t size = strlen(prefix);
    return line.size >= size && memcmp(line.text, prefix, size) == 0;
}

/* Does a word stand in it, not as a part of one? */
static bool has_word(piece line, const char *word)
{
    const size_t size = strlen(word);
    for (size_t i = 0; i + size <= line.size; i++)
        if (memcmp(line.text + i, word, size) == 0 &&
            (i == 0 || strchr(" \t", line.text[i - 1])) &&
            (i + size == line.size || strchr(" \t", line.text[i + size])))
            return true;
    return false;
}

static piece without_indent(piece line)
{
    while (line.size > 0 && (*line.text == ' ' || *line.text == '\t')) {
        line.text++;
        line.size--;
    }
    return line;
}

/* A directive is a word and a number: nothing that could be more than one. */
static bool is_directive(piece text)
{
    size_t i = 1;
    if (text.size < 2 || text.text[0] != '.')
        return false;
    while (i < text.size && text.text[i] >= 'a' && text.text[i] <= 'z')
        i++;
    if (i == 1 || i == text.size || text.text[i++] != ' ' || i == text.size)
        return false;
    while (i < text.size && text.text[i] >= '0' && text.text[i] <= '9')
        i++;
    return i == text.size;
}

static bool is_comment(piece line) { return starts_with(line, "//"); }

/* "sm_90", then another word or nothing. */
static bool is_plain_target(piece line)
{
    const size_t size = strlen(PLAIN_TARGET);
    return starts_with(line, PLAIN_TARGET) &&
           (line.size == size || strchr(", \t\r", line.text[size]));
}

static winattn_status read_line(piece line, findings *found)
{
    const piece text = without_indent(line);
    if (starts_with(text, DIRECTIVE)) {
        const piece directive = {text.text + strlen(DIRECTIVE),
                                 text.size - strlen(DIRECTIVE)};
        if (found->sizes == 0)
            return refuse("a directive stands in front of its kernel");
        if (found->directive_count == MOST_DIRECTIVES)
            return refuse("it has too many directives");
        if (!is_directive(directive))
            return refuse("what is marked as a directive is none");
        found->directives[found->directive_count++] = directive;
    } else if (starts_with(text, MARK)) {
        found->marks++;
    } else if (starts_with(text, ANY_MARK)) {
        return refuse("it has a mark of a kind that is not known");
    } else if (is_comment(text)) {
        return WINATTN_SUCCESS;
    } else if (starts_with(text, ".version ")) {
        found->versions++;
    } else if (starts_with(text, ".target ")) {
        found->targets++;
        if (!is_plain_target(text))
            return refuse("its target is not sm_90");
    } else if (starts_with(text, ".reqntid ")) {
        found->sizes++;
    } else if (has_word(text, ".entry")) {
        found->entries++;
    }
    return WINATTN_SUCCESS;
}

static winattn_status read_text(piece rest, findings *found)
{
    piece line;
    memset(found, 0, sizeof *found);
    while (next_line(&rest, &line))
        WA_TRY(read_line(line, found));
    if (found->versions != 1 || found->targets != 1)
        return refuse("it is no PTX");
    if (found->entries != 1)
        return refuse("it does not have one kernel");
    if (found->sizes != 1)
        return refuse("its kernel does not say the size of its work-groups");
    if (found->marks == 0)
        return refuse("it has lost its marks");
    return WINATTN_SUCCESS;
}

static void put_line(wa_output *to, piece line)
{
    wa_put(to, line.text, line.size);
    wa_put(to, "\n", 1);
}

static void write_text(piece rest, const findings *found, const char *build,
                       wa_output *to)
{
    piece line;
    while (next_line(&rest, &line)) {
        const piece text = without_indent(line);
        const size_t target = strlen(PLAIN_TARGET);
        if (starts_with(text, DIRECTIVE))
            continue;
        if (starts_with(text, MARK)) {
            put_line(to, (piece){text.text + strlen(MARK),
                                 text.size - strlen(MARK)});
        } else if (is_plain_target(text)) {
            wa_put(to, text.text, target);
            wa_put(to, "a", 1);
            put_line(to, (piece){text.text + target, text.size - target});
        } else {
            put_line(to, line);
        }
        if (starts_with(text, ".reqntid "))
            for (unsigned i = 0; i < found->directive_count; i++)
                put_line(to, found->directives[i]);
    }
    if (build) {
        wa_put(to, BUILD, strlen(BUILD));
        put_line(to, (piece){build, strlen(build)});
    }
}

winattn_status wa_ptx_rewrite(const unsigned char *text, size_t size,
                              const char *build, unsigned char **result,
                              size_t *result_size)
{
    piece all = {(const char *)text, size};
    findings found;
    wa_output to = {NULL, 0};
    *result = NULL;
    *result_size = 0;
    while (all.size > 0 && all.text[all.size - 1] == 0)
        all.size--;
    if (all.size > WA_PTX_MOST_BYTES)
        return refuse("it is too long");
    if (memchr(all.text, 0, all.size))
        return refuse("it is no text");
    WA_TRY(read_text(all, &found));
    write_text(all, &found, build, &to);
    to.text = malloc(to.size + 1);
    WA_TRY_MEMORY(to.text);
    to.size = 0;
    write_text(all, &found, build, &to);
    to.text[to.size] = 0;
    *result = (unsigned char *)to.text;
    *result_size = to.size;
    return WINATTN_SUCCESS;
}

/* Warnings of ptxas that products are computed one after the other, C7510 to
 * C7520, or that registers are not dealt, C7508; in words where numbers
 * change. */
static bool is_complaint(piece line)
{
    for (size_t i = 0; i + 6 <= line.size; i++)
        if (memcmp(line.text + i, "(C75", 4) == 0)
            return true;
    for (size_t i = 0; i + 8 <= line.size; i++)
        if (memcmp(line.text + i, "serializ", 8) == 0)
            return true;
    return false;
}

winattn_status wa_ptx_check_log(const char *log)
{
    piece rest = {log, strlen(log)}, line;
    while (next_line(&rest, &line))
        if (is_complaint(line))
            return WA_BAD_DEVICE("the compiler says: %.*s",
                                 (int)(line.size < 160 ? line.size : 160),
                                 line.text);
    return WINATTN_SUCCESS;
}
