/* SPDX-License-Identifier: Apache-2.0
 * Modules, kernels, scopes and variables. */
#include "ptx_read.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct ptx_owned {
    struct ptx_owned *next;
    uint64_t bytes[];
};

void *ptx_own(ptx_module *module, size_t bytes)
{
    struct ptx_owned *owned = calloc(1, sizeof *owned + bytes);
    if (!owned)
        return NULL;
    owned->next = module->data->owned;
    module->data->owned = owned;
    return owned->bytes;
}

void *ptx_grown(void *all, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return all;
    *room = 2 * *room + 16;
    void *grown = realloc(all, *room * size);
    if (!grown)
        abort(); /* a test, whose memory has ended */
    memset((char *)grown + count * size, 0, (*room - count) * size);
    return grown;
}

/* ---- Words ---- */

void ptx_reject(ptx_reader *r, const char *format, ...)
{
    va_list arguments;
    const int start =
        snprintf(r->reason, r->reason_size, "PTX, line %u: ", r->line);
    va_start(arguments, format);
    if (start >= 0 && (size_t)start < r->reason_size)
        vsnprintf(r->reason + start, r->reason_size - (size_t)start, format,
                  arguments);
    va_end(arguments);
    longjmp(r->failed, 1);
}

static void skip_blanks(ptx_reader *r)
{
    for (;; r->at++) {
        if (r->at[0] == '/' && r->at[1] == '/')
            r->at += strcspn(r->at, "\n");
        if (*r->at == '\n')
            r->line++;
        else if (!isspace((unsigned char)*r->at))
            return;
    }
}

static bool is_in_word(const char *at)
{
    return isalnum((unsigned char)*at) || strchr("_$%.", *at) != NULL;
}

void ptx_next(ptx_reader *r)
{
    size_t length = 0;
    skip_blanks(r);
    if (*r->at && !is_in_word(r->at))
        r->word[length++] = *r->at++;
    else
        while (*r->at &&
               (is_in_word(r->at) || (r->at[0] == ':' && r->at[1] == ':') ||
                (length > 0 && r->at[0] == ':' && r->at[-1] == ':'))) {
            if (length == MOST_WORD - 1)
                ptx_reject(r, "a word that is too long");
            r->word[length++] = *r->at++;
        }
    r->word[length] = 0;
}

bool ptx_is(const ptx_reader *r, const char *word)
{
    return strcmp(r->word, word) == 0;
}

bool ptx_accept(ptx_reader *r, const char *word)
{
    if (!ptx_is(r, word))
        return false;
    ptx_next(r);
    return true;
}

void ptx_expect(ptx_reader *r, const char *word)
{
    if (!ptx_accept(r, word))
        ptx_reject(r, "\"%s\" in place of \"%s\"", r->word, word);
}

uint64_t ptx_integer(ptx_reader *r)
{
    const bool negative = ptx_accept(r, "-");
    char *end;
    const uint64_t number = strtoull(r->word, &end, 0);
    if (end == r->word || strcmp(end, "U") * strcmp(end, "") != 0)
        ptx_reject(r, "\"%s\" is no integer", r->word);
    ptx_next(r);
    return negative ? -number : number;
}

/* ---- Names ---- */

const ptx_name *ptx_find(const ptx_reader *r, const char *name,
                         uint64_t *number)
{
    size_t prefix = strlen(name);
    while (prefix > 0 && isdigit((unsigned char)name[prefix - 1]))
        prefix--;
    for (size_t i = r->name_count; i-- > 0;) {
        const ptx_name *known = &r->names[i];
        if (known->count == 0) {
            *number = known->number;
            if (strcmp(known->name, name) == 0)
                return known;
        } else if (name[prefix] && strlen(known->name) == prefix &&
                   strncmp(known->name, name, prefix) == 0) {
            const uint64_t index = strtoull(name + prefix, NULL, 10);
            *number = known->number + index;
            if (index < known->count)
                return known;
        }
    }
    return NULL;
}

static void define(ptx_reader *r, const char *name, ptx_meaning meaning,
                   uint64_t number, size_t count)
{
    r->names =
        ptx_grown(r->names, r->name_count, &r->name_room, sizeof *r->names);
    ptx_name *to = &r->names[r->name_count++];
    snprintf(to->name, sizeof to->name, "%s", name);
    to->meaning = meaning;
    to->number = number;
    to->count = count;
    to->scope = r->scope;
}

uint32_t ptx_constant_register(ptx_reader *r, ptx_filling filling,
                               uint64_t number)
{
    ptx_code *code = r->code;
    for (size_t i = 0; i < code->constant_count; i++)
        if (code->constants[i].filling == filling &&
            code->constants[i].number == number)
            return code->constants[i].reg;
    code->constants = ptx_grown(code->constants, code->constant_count,
                                &r->constant_room, sizeof *code->constants);
    ptx_constant *to = &code->constants[code->constant_count++];
    to->reg = (uint32_t)code->register_count++;
    to->filling = filling;
    to->number = number;
    return to->reg;
}

/* ---- Variables ---- */

static unsigned bits_named(ptx_reader *r)
{
    static const char *const names[] = {
        ".pred", ".b8",  ".u8",  ".s8",  ".b16", ".u16", ".s16", ".f16",
        ".b32",  ".u32", ".s32", ".f32", ".b64", ".u64", ".s64", ".f64"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (ptx_accept(r, names[i]))
            return i == 0 ? 1 : 8u << (i / 4);
    ptx_reject(r, "\"%s\" is no type", r->word);
}

static void read_registers(ptx_reader *r)
{
    bits_named(r);
    do {
        char name[MOST_WORD];
        size_t count = 0;
        memcpy(name, r->word, sizeof name);
        ptx_next(r);
        if (ptx_accept(r, "<")) {
            count = ptx_integer(r);
            ptx_expect(r, ">");
        }
        define(r, name, MEANS_REGISTER, r->code->register_count, count);
        r->code->register_count += count ? count : 1;
    } while (ptx_accept(r, ","));
    ptx_expect(r, ";");
}

static size_t aligned(size_t offset, size_t alignment)
{
    return (offset + alignment - 1) / alignment * alignment;
}

/* .align and type, of which the size is given back. */
static size_t read_type(ptx_reader *r, size_t *alignment)
{
    *alignment = 0;
    if (ptx_accept(r, ".align"))
        *alignment = ptx_integer(r);
    const size_t size = bits_named(r) / 8;
    *alignment = *alignment ? *alignment : size;
    return size;
}

/* [n] or nothing. */
static size_t read_count(ptx_reader *r)
{
    if (!ptx_accept(r, "["))
        return 1;
    const size_t count = ptx_integer(r);
    ptx_expect(r, "]");
    return count;
}

static void read_values(ptx_reader *r, unsigned char *to, size_t size,
                        size_t count)
{
    const bool braces = ptx_accept(r, "{");
    for (size_t i = 0; i < count && !ptx_is(r, "}"); i++) {
        const uint64_t value = ptx_integer(r);
        memcpy(to + i * size, &value, size); /* little-endian */
        if (!ptx_accept(r, ","))
            break;
    }
    if (braces)
        ptx_expect(r, "}");
}

static void read_variable(ptx_reader *r, ptx_meaning meaning)
{
    size_t alignment;
    const size_t size = read_type(r, &alignment);
    char name[MOST_WORD];
    memcpy(name, r->word, sizeof name);
    ptx_next(r);
    const size_t count = read_count(r), bytes = size * count;
    ptx_data *data = r->module->data;
    size_t *used = meaning == MEANS_SHARED    ? &r->shared_bytes
                   : meaning == MEANS_PRIVATE ? &r->private_bytes
                                              : &data->size;
    const size_t offset = aligned(*used, alignment);
    *used = offset + bytes;
    define(r, name, meaning, offset, 0);
    if (meaning == MEANS_DATA) {
        data->bytes = realloc(data->bytes, data->size + 1);
        if (!data->bytes)
            ptx_reject(r, "out of memory");
        memset(data->bytes + offset, 0, bytes);
        if (ptx_accept(r, "="))
            read_values(r, data->bytes + offset, size, count);
    }
    ptx_expect(r, ";");
}

/* All that have no size begin at one place. */
static void read_dynamic(ptx_reader *r)
{
    size_t alignment;
    ptx_expect(r, ".shared");
    read_type(r, &alignment);
    define(r, r->word, MEANS_DYNAMIC, 0, 0);
    ptx_next(r);
    ptx_expect(r, "[");
    ptx_expect(r, "]");
    ptx_expect(r, ";");
    if (alignment > r->dynamic_align)
        r->dynamic_align = alignment;
}

static bool read_declaration(ptx_reader *r)
{
    if (ptx_accept(r, ".shared"))
        read_variable(r, MEANS_SHARED);
    else if (ptx_accept(r, ".extern"))
        read_dynamic(r);
    else if (ptx_accept(r, ".local"))
        read_variable(r, MEANS_PRIVATE);
    else if (ptx_accept(r, ".const") || ptx_accept(r, ".global"))
        read_variable(r, MEANS_DATA);
    else if (ptx_accept(r, ".reg"))
        read_registers(r);
    else
        return false;
    return true;
}

/* ---- Kernels ---- */

static void read_parameter(ptx_reader *r, ptx_parameter *to)
{
    size_t alignment, given = 0;
    ptx_expect(r, ".param");
    if (ptx_accept(r, ".align"))
        given = ptx_integer(r);
    const size_t size = read_type(r, &alignment);
    if (ptx_accept(r, ".ptr")) {
        to->is_pointer = true;
        if (!ptx_accept(r, ".global") && !ptx_accept(r, ".const"))
            ptx_reject(r, "a pointer to \"%s\"", r->word);
        if (ptx_accept(r, ".align"))
            ptx_integer(r);
    }
    const size_t at =
        aligned(r->kernel->parameter_bytes, given ? given : alignment);
    define(r, r->word, MEANS_PARAMETER, at, 0);
    ptx_next(r);
    to->size = size * read_count(r);
    to->offset = at;
    r->kernel->parameter_bytes = at + to->size;
}

static void read_parameters(ptx_reader *r)
{
    enum { MOST = 64 };
    ptx_parameter *all = ptx_own(r->module, MOST * sizeof *all);
    size_t count = 0;
    if (!all)
        ptx_reject(r, "out of memory");
    r->kernel->parameters = all;
    if (!ptx_accept(r, "("))
        return;
    while (!ptx_accept(r, ")")) {
        if (count == MOST)
            ptx_reject(r, "too many parameters");
        read_parameter(r, &all[count++]);
        ptx_accept(r, ",");
    }
    r->kernel->parameter_count = count;
}

static void read_head(ptx_reader *r)
{
    while (!ptx_accept(r, "{")) {
        const bool is_size = ptx_is(r, ".reqntid");
        if (r->word[0] != '.')
            ptx_reject(r, "\"%s\" before a kernel's body", r->word);
        ptx_next(r);
        const size_t number = ptx_integer(r);
        if (is_size)
            r->kernel->required_items = number;
        while (ptx_accept(r, ","))
            ptx_integer(r);
    }
}

/* ---- Scopes ---- */

static void end_scope(ptx_reader *r)
{
    size_t kept = 0;
    for (size_t i = 0; i < r->jump_count; i++) {
        ptx_jump jump = r->jumps[i];
        uint64_t number;
        const ptx_name *name = ptx_find(r, jump.label, &number);
        if (jump.scope == r->scope && name && name->meaning == MEANS_LABEL &&
            name->scope == r->scope) {
            r->code->instructions[jump.instruction].target = (uint32_t)number;
            continue;
        }
        if (jump.scope == r->scope)
            jump.scope--;
        if (jump.scope == 0)
            ptx_reject(r, "no label %s", jump.label);
        r->jumps[kept++] = jump;
    }
    r->jump_count = kept;
    while (r->name_count > 0 && r->names[r->name_count - 1].scope == r->scope)
        r->name_count--;
    r->scope--;
}

static bool read_label(ptx_reader *r)
{
    skip_blanks(r);
    if (r->at[0] != ':' || strchr("@{};.", r->word[0]))
        return false;
    define(r, r->word, MEANS_LABEL, r->code->instruction_count, 0);
    ptx_next(r);
    ptx_expect(r, ":");
    return true;
}

static void read_body(ptx_reader *r)
{
    const unsigned outside = r->scope - 1;
    while (r->scope > outside) {
        if (ptx_accept(r, "{")) {
            if (++r->scope == MOST_SCOPES)
                ptx_reject(r, "too many scopes");
        } else if (ptx_is(r, "}")) {
            end_scope(r);
            ptx_next(r);
        } else if (ptx_accept(r, ".pragma")) {
            while (!ptx_accept(r, ";"))
                ptx_next(r);
        } else if (ptx_is(r, "")) {
            ptx_reject(r, "the text ends in a kernel");
        } else if (!ptx_accept(r, ";") && !read_declaration(r) &&
                   !read_label(r)) {
            ptx_read_instruction(r);
        }
    }
}

static void read_kernel(ptx_reader *r)
{
    ptx_module *module = r->module;
    module->kernels = ptx_grown(module->kernels, module->kernel_count,
                                &r->kernel_room, sizeof *module->kernels);
    r->kernel = &module->kernels[module->kernel_count++];
    r->code = ptx_own(module, sizeof *r->code);
    char *name = ptx_own(module, MOST_WORD);
    if (!name || !r->code)
        ptx_reject(r, "out of memory");
    memcpy(name, r->word, MOST_WORD);
    r->kernel->name = name;
    r->kernel->code = r->code;
    r->code->data = module->data;
    r->instruction_room = r->constant_room = 0;
    const size_t shared = r->shared_bytes, dynamic = r->dynamic_align;
    r->private_bytes = 0;
    ptx_next(r);
    r->scope++;
    read_parameters(r);
    read_head(r);
    read_body(r);
    r->kernel->shared_bytes = r->shared_bytes;
    r->kernel->private_bytes = r->private_bytes;
    r->kernel->dynamic_align = r->dynamic_align;
    r->shared_bytes = shared;
    r->dynamic_align = dynamic;
}

static void skip_line(ptx_reader *r)
{
    r->at += strcspn(r->at, "\n");
    ptx_next(r);
}

static void read_module(ptx_reader *r)
{
    ptx_next(r);
    while (!ptx_is(r, "")) {
        if (ptx_is(r, ".version") || ptx_is(r, ".target") ||
            ptx_is(r, ".address_size"))
            skip_line(r);
        else if (ptx_accept(r, ".entry"))
            read_kernel(r);
        else if (!ptx_accept(r, ".visible") && !ptx_accept(r, ".weak") &&
                 !read_declaration(r))
            ptx_reject(r, "\"%s\" is not understood", r->word);
    }
}

ptx_module *ptx_read(const char *text, char *reason, size_t reason_size)
{
    ptx_module *volatile module = calloc(1, sizeof *module);
    ptx_reader *reader = calloc(1, sizeof *reader);
    ptx_data *data = calloc(1, sizeof *data);
    if (module)
        module->data = data;
    if (module && data && reader) {
        reader->at = text;
        reader->line = 1;
        reader->module = module;
        reader->reason = reason;
        reader->reason_size = reason_size;
        if (setjmp(reader->failed) == 0) {
            read_module(reader);
        } else {
            ptx_free(module);
            module = NULL;
        }
        free(reader->names);
        free(reader->jumps);
    } else {
        snprintf(reason, reason_size, "out of memory");
        free(data);
        free(module);
        module = NULL;
    }
    free(reader);
    return module;
}

void ptx_free(ptx_module *module)
{
    if (!module)
        return;
    for (size_t i = 0; i < module->kernel_count; i++)
        if (module->kernels[i].code) {
            free(module->kernels[i].code->instructions);
            free(module->kernels[i].code->constants);
        }
    for (struct ptx_owned *owned = module->data->owned; owned;) {
        struct ptx_owned *next = owned->next;
        free(owned);
        owned = next;
    }
    free(module->data->bytes);
    free(module->data);
    free(module->kernels);
    free(module);
}
