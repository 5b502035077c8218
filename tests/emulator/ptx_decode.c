/* SPDX-License-Identifier: Apache-2.0
 * Statements: guards, names with their modifiers, operands. */
#include "ptx_read.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_OPERANDS = 160 };

/* ---- Names ---- */

/* Beside integers and floats of 32 bits. */
enum {
    PAIRS = 1,        /* of integers */
    HALVES = 2,       /* pairs of fp16 */
    FLOATS = 4,       /* fp16, too */
    SHORT_FLOATS = 8, /* bf16 and TF32 */
    NO_INTEGERS = 16,
    KINDS = 32, /* the name must say which operation is meant */
    BF16_PAIRS = 64
};

/* The first that fits counts. */
static const struct form {
    const char *name;
    ptx_function *run;
    ptx_rule rule;
    unsigned char least; /* operands that the function looks at */
    unsigned char types;
    bool is_collective;
} forms[] = {
    {"cp.async.mbarrier.arrive.noinc", run_copy_arrive, RULE_NONE, 1, 0,
     false},
    {"cp.async.commit_group", run_copy_commit, RULE_NONE, 0, 0, false},
    {"cp.async.wait_group", run_copy_wait, RULE_NONE, 1, 0, false},
    {"cp.async.wait_all", run_copy_wait, RULE_NONE, 0, 0, false},
    {"cp.async.bulk.tensor.4d.shared::cluster.global.tile"
     ".mbarrier::complete_tx::bytes",
     run_copy_box, RULE_NONE, 7, 0, false},
    {"cp.async.cg", run_copy, RULE_NONE, 3, 0, false},
    {"cp.async.ca", run_copy, RULE_NONE, 3, 0, false},
    {"mbarrier.init", run_barrier_make, RULE_NONE, 2, 0, false},
    {"mbarrier.arrive.expect_tx", run_barrier_expect, RULE_ATOMIC, 3, 0,
     false},
    {"mbarrier.arrive", run_barrier_arrive, RULE_ATOMIC, 2, 0, false},
    {"mbarrier.try_wait.parity", run_barrier_try, RULE_ATOMIC, 3, 0, false},
    {"wgmma.fence", run_nothing, RULE_NONE, 0, 0, true},
    {"wgmma.mma_async", run_multiply_group, RULE_GROUP_PRODUCT, 5, NO_INTEGERS,
     true},
    {"wgmma.commit_group", run_commit_products, RULE_NONE, 0, 0, true},
    {"wgmma.wait_group", run_await_products, RULE_NONE, 1, 0, true},
    {"mma", run_multiply_wave, RULE_PRODUCT, 14, NO_INTEGERS, true},
    {"ldmatrix", run_load_matrices, RULE_MEMORY, 1, 0, true},
    {"stmatrix", run_store_matrices, RULE_STORE, 1, 0, true},
    {"unit.product", run_unit, RULE_UNIT, 0,
     NO_INTEGERS | FLOATS | SHORT_FLOATS, true},
    {"unit.permlanex16", run_permute, RULE_PERMUTE, 4, 0, true},
    {"unit.bpermute", run_permute, RULE_PERMUTE, 3, 0, true},
    {"unit.ballot", run_ballot, RULE_WAVE, 2, 0, true},
    {"bar.warp.sync", run_sync_wave, RULE_NONE, 0, 0, true},
    {"bar.sync", run_barrier, RULE_NONE, 1, 0, true},
    {"barrier.sync", run_barrier, RULE_NONE, 1, 0, true},
    {"shfl.sync", run_shuffle, RULE_SHUFFLE, 5, KINDS, true},
    {"vote.sync", run_vote, RULE_WAVE, 2, KINDS, true},
    {"redux.sync", run_reduce, RULE_WAVE, 2, KINDS, true},
    {"setmaxnreg.inc", run_nothing, RULE_NONE, 0, 0, true},
    {"setmaxnreg.dec", run_nothing, RULE_NONE, 0, 0, true},
    {"fence.proxy.async", run_show, RULE_NONE, 0, 0, false},
    {"fence.proxy.tensormap::generic.acquire.gpu", run_acquire_map, RULE_NONE,
     1, 0, false},
    {"fence", run_nothing, RULE_NONE, 0, 0, false},
    {"membar", run_nothing, RULE_NONE, 0, 0, false},
    {"mov", run_move, RULE_MOVE, 2, FLOATS, false},
    {"cvta", run_move, RULE_MOVE, 2, 0, false},
    {"ld", run_load, RULE_MEMORY, 1, FLOATS, false},
    {"st", run_store, RULE_STORE, 1, FLOATS, false},
    {"atom", run_atomic, RULE_ATOMIC, 3, KINDS, false},
    {"add", run_add, RULE_PLAIN, 3, PAIRS | HALVES, false},
    {"sub", run_sub, RULE_PLAIN, 3, HALVES, false},
    {"mul", run_multiply, RULE_PLAIN, 3, HALVES, false},
    {"mad", run_multiply_add, RULE_PLAIN, 4, 0, false},
    {"fma", run_fuse, RULE_PLAIN, 4, HALVES | BF16_PAIRS, false},
    {"div", run_divide, RULE_PLAIN, 3, 0, false},
    {"rem", run_remainder, RULE_PLAIN, 3, 0, false},
    {"min", run_minimum, RULE_PLAIN, 3, PAIRS | HALVES, false},
    {"max", run_maximum, RULE_PLAIN, 3, PAIRS | HALVES, false},
    {"abs", run_absolute, RULE_PLAIN, 2, FLOATS, false},
    {"neg", run_negate, RULE_PLAIN, 2, FLOATS, false},
    {"and", run_and, RULE_BITS, 3, 0, false},
    {"or", run_or, RULE_BITS, 3, 0, false},
    {"xor", run_xor, RULE_BITS, 3, 0, false},
    {"not", run_not, RULE_PLAIN, 2, 0, false},
    {"shl", run_shift_left, RULE_SHIFT, 3, 0, false},
    {"shr", run_shift_right, RULE_SHIFT, 3, 0, false},
    {"bfe", run_extract, RULE_PLAIN, 4, 0, false},
    {"bfi", run_insert, RULE_PLAIN, 5, 0, false},
    {"popc", run_count_ones, RULE_PLAIN, 2, 0, false},
    {"clz", run_count_zeros, RULE_PLAIN, 2, 0, false},
    {"setp", run_compare, RULE_PLAIN, 3, FLOATS, false},
    {"selp", run_select, RULE_SELECT, 4, FLOATS, false},
    {"cvt", run_convert, RULE_CONVERT, 2, FLOATS | HALVES | SHORT_FLOATS,
     false},
    {"sqrt", run_square_root, RULE_PLAIN, 2, 0, false},
    {"rcp", run_reciprocal, RULE_PLAIN, 2, 0, false},
    {"rsqrt", run_reciprocal_root, RULE_PLAIN, 2, 0, false},
    {"ex2", run_exp2, RULE_PLAIN, 2, 0, false},
    {"lg2", run_log2, RULE_PLAIN, 2, 0, false},
};

/* Which operation, of functions that have several. */
static const struct {
    const char *name;
    char kind;
} kinds[] = {
    {"add", '+'},    {"min", 'm'},  {"max", 'M'},  {"and", '&'},  {"or", '|'},
    {"xor", '^'},    {"exch", '='}, {"cas", '?'},  {"all", 'A'},  {"any", 'E'},
    {"ballot", 'B'}, {"up", 'u'},   {"down", 'd'}, {"bfly", 'b'}, {"idx", 'i'},
};

static const struct {
    const char *name;
    ptx_compare compare;
    bool is_unordered;
} compares[] = {
    {"eq", COMPARE_EQ, false},   {"ne", COMPARE_NE, false},
    {"lt", COMPARE_LT, false},   {"le", COMPARE_LE, false},
    {"gt", COMPARE_GT, false},   {"ge", COMPARE_GE, false},
    {"equ", COMPARE_EQ, true},   {"neu", COMPARE_NE, true},
    {"ltu", COMPARE_LT, true},   {"leu", COMPARE_LE, true},
    {"gtu", COMPARE_GT, true},   {"geu", COMPARE_GE, true},
    {"num", COMPARE_NUM, false}, {"nan", COMPARE_NAN, false},
};

static const struct {
    const char *name;
    ptx_width width;
} types[] = {
    {"pred", {TYPE_PRED, 1}},          {"b8", {TYPE_BITS, 8}},
    {"b16", {TYPE_BITS, 16}},          {"b32", {TYPE_BITS, 32}},
    {"b64", {TYPE_BITS, 64}},          {"u8", {TYPE_UNSIGNED, 8}},
    {"u16", {TYPE_UNSIGNED, 16}},      {"u32", {TYPE_UNSIGNED, 32}},
    {"u64", {TYPE_UNSIGNED, 64}},      {"s8", {TYPE_SIGNED, 8}},
    {"s16", {TYPE_SIGNED, 16}},        {"s32", {TYPE_SIGNED, 32}},
    {"s64", {TYPE_SIGNED, 64}},        {"f16", {TYPE_FLOAT, 16}},
    {"f32", {TYPE_FLOAT, 32}},         {"bf16", {TYPE_BF16, 16}},
    {"tf32", {TYPE_TF32, 32}},         {"u16x2", {TYPE_PAIR, 32}},
    {"s16x2", {TYPE_SIGNED_PAIR, 32}}, {"f16x2", {TYPE_HALVES, 32}},
    {"bf16x2", {TYPE_BF16S, 32}},
};

static const char roundings[] = "nzmp";

/* What changes nothing here: all is done in order, in one memory. */
static const char *const without_effect[] = {
    "sync", "aligned", "volatile", "relaxed", "acquire", "release", "cta",
    "gpu",  "sys",     "nc",       "lo",      "uni",     "to",      "row",
    "col",  "m8n8",    "full",     "m64",     "async",   "proxy"};

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

static bool set_space(ptx_instruction *i, const char *word)
{
    if (strcmp(word, "global") == 0 || strcmp(word, "const") == 0)
        i->space = SPACE_GLOBAL;
    else if (strcmp(word, "shared") == 0 || strcmp(word, "shared::cta") == 0)
        i->space = SPACE_SHARED;
    else if (strcmp(word, "local") == 0)
        i->space = SPACE_LOCAL;
    else if (strcmp(word, "param") == 0)
        i->space = SPACE_PARAM;
    else
        return false;
    return true;
}

static bool set_flag(ptx_instruction *i, const char *word)
{
    const struct {
        const char *name;
        bool *flag;
    } flags[] = {{"ftz", &i->ftz},
                 {"sat", &i->saturates},
                 {"wide", &i->is_wide},
                 {"hi", &i->is_high},
                 {"approx", &i->is_approximate},
                 {"trans", &i->transposes}};
    for (size_t n = 0; n < COUNT_OF(flags); n++)
        if (strcmp(word, flags[n].name) == 0)
            return *flags[n].flag = true;
    return false;
}

/* .v4, .x2, .m64n128k16, .m16n8k8 */
static bool set_count(ptx_instruction *i, const char *word)
{
    unsigned m, n, k;
    int end = 0;
    if ((word[0] == 'v' || word[0] == 'x') && word[1] >= '1' &&
        word[1] <= '4' && !word[2]) {
        i->count = (unsigned)(word[1] - '0');
        return true;
    }
    if (sscanf(word, "m%un%uk%u%n", &m, &n, &k, &end) == 3 && !word[end]) {
        i->count = m == 64 ? n : k;
        i->depth = k;
        return (k == 8 || k == 16) &&
               (m == 64 ? n % 8 == 0 && n <= 256 : m == 16 && n == 8);
    }
    return false;
}

static bool set_rounding(ptx_instruction *i, const char *word)
{
    const size_t length = strlen(word);
    const char *mode = length > 1 ? strchr(roundings, word[1]) : NULL;
    if (strcmp(word, "rna") == 0) {
        i->rounding = ROUND_NEAREST; /* to TF32 */
        return true;
    }
    if (word[0] != 'r' || !mode || length > 3 ||
        (length == 3 && word[2] != 'i'))
        return false;
    i->rounding = (ptx_rounding)(ROUND_NEAREST + (mode - roundings));
    i->to_integer = length == 3;
    return true;
}

static bool set_type(ptx_instruction *i, const char *word)
{
    for (size_t n = 0; n < COUNT_OF(types); n++)
        if (strcmp(word, types[n].name) == 0) {
            if (i->width.type == TYPE_NONE)
                i->width = types[n].width;
            else if (i->inner.type == TYPE_NONE)
                i->inner = types[n].width;
            i->from = types[n].width;
            return true;
        }
    return false;
}

static bool set_operation(ptx_instruction *i, const char *word)
{
    const bool compares_now = i->run == run_compare;
    for (size_t n = 0; compares_now && n < COUNT_OF(compares); n++)
        if (strcmp(word, compares[n].name) == 0) {
            i->compare = compares[n].compare;
            i->is_unordered = compares[n].is_unordered;
            return true;
        }
    for (size_t n = 0; n < COUNT_OF(kinds); n++)
        if (strcmp(word, kinds[n].name) == 0) {
            i->kind = kinds[n].kind;
            return true;
        }
    return false;
}

static bool set_modifier(ptx_instruction *i, const char *word)
{
    if (i->run == run_unit && !i->unit)
        return (i->unit = ptx_unit_named(word)) != NULL;
    if (set_type(i, word) || set_space(i, word) || set_flag(i, word) ||
        set_operation(i, word) || set_rounding(i, word) || set_count(i, word))
        return true;
    for (size_t n = 0; n < COUNT_OF(without_effect); n++)
        if (strcmp(word, without_effect[n]) == 0)
            return true;
    return false;
}

/* Does the function compute numbers of this type? */
static bool type_is_known(const ptx_instruction *i, unsigned known)
{
    switch (i->width.type) {
    case TYPE_PAIR:
    case TYPE_SIGNED_PAIR:
        return known & PAIRS;
    case TYPE_HALVES:
        return known & HALVES;
    case TYPE_BF16S:
        return known & (SHORT_FLOATS | BF16_PAIRS);
    case TYPE_BF16:
    case TYPE_TF32:
        return known & SHORT_FLOATS;
    case TYPE_FLOAT:
        return i->width.bits == 32 || known & FLOATS;
    default:
        return !(known & NO_INTEGERS);
    }
}

/* Does it compute what all of the name asks for, and not something near? */
static bool form_is_known(const ptx_instruction *i, const struct form *f)
{
    const bool is_float = i->width.type == TYPE_FLOAT ||
                          i->width.type == TYPE_HALVES ||
                          i->width.type == TYPE_BF16S;
    if (i->saturates || !type_is_known(i, f->types))
        return false;
    if (is_float && i->rounding > ROUND_NEAREST && i->run != run_convert)
        return false;
    if (i->run == run_atomic && is_float && i->kind != '+')
        return false;
    if (i->run == run_unit && (!i->unit || i->width.bits != 16))
        return false;
    return !(f->types & KINDS) || i->kind;
}

static bool decode(ptx_instruction *i, const char *name)
{
    const struct form *f = forms, *end = forms + COUNT_OF(forms);
    size_t length = 0;
    for (; f < end; f++) {
        length = strlen(f->name);
        if (strncmp(name, f->name, length) == 0 &&
            (name[length] == '.' || !name[length]))
            break;
    }
    if (f == end)
        return false;
    i->run = f->run;
    i->rule = f->rule;
    i->least = f->least;
    i->is_collective = f->is_collective;
    for (const char *rest = name + length; *rest == '.'; rest += length) {
        char word[MOST_WORD];
        length = strcspn(++rest, ".");
        snprintf(word, sizeof word, "%.*s", (int)length, rest);
        if (!set_modifier(i, word))
            return false;
    }
    i->count = i->count ? i->count : 1;
    i->is_sealed = i->run == run_multiply_group ||
                   i->run == run_await_products ||
                   i->run == run_commit_products;
    return form_is_known(i, f);
}

/* ---- Operands ---- */

/* Launches have one dimension, and no offset. */
static const struct {
    const char *name;
    ptx_filling filling;
    uint64_t number;
} specials[] = {
    {"%tid.x", FILL_ITEM, 0},     {"%ctaid.x", FILL_GROUP, 0},
    {"%ntid.x", FILL_ITEMS, 0},   {"%nctaid.x", FILL_GROUPS, 0},
    {"%tid.y", FILL_NUMBER, 0},   {"%ctaid.y", FILL_NUMBER, 0},
    {"%ntid.y", FILL_NUMBER, 1},  {"%nctaid.y", FILL_NUMBER, 1},
    {"%tid.z", FILL_NUMBER, 0},   {"%ctaid.z", FILL_NUMBER, 0},
    {"%ntid.z", FILL_NUMBER, 1},  {"%nctaid.z", FILL_NUMBER, 1},
    {"%envreg3", FILL_NUMBER, 0}, {"%envreg4", FILL_NUMBER, 0},
    {"%envreg5", FILL_NUMBER, 0}, {"%kernarg", FILL_ARGUMENTS, 0},
};

/* A variable is its address, and a number may be added. */
static uint32_t named_register(ptx_reader *r)
{
    static const ptx_filling fillings[] = {[MEANS_SHARED] = FILL_SHARED,
                                           [MEANS_DYNAMIC] = FILL_DYNAMIC,
                                           [MEANS_PRIVATE] = FILL_PRIVATE,
                                           [MEANS_DATA] = FILL_DATA,
                                           [MEANS_PARAMETER] = FILL_NUMBER};
    uint64_t number;
    const ptx_name *name = ptx_find(r, r->word, &number);
    for (size_t i = 0; i < COUNT_OF(specials); i++)
        if (ptx_accept(r, specials[i].name))
            return ptx_constant_register(r, specials[i].filling,
                                         specials[i].number);
    if (!name || name->meaning == MEANS_LABEL)
        ptx_reject(r, "\"%s\" is not known", r->word);
    ptx_next(r);
    if (name->meaning == MEANS_REGISTER)
        return (uint32_t)number;
    if (ptx_accept(r, "+"))
        number += ptx_integer(r);
    return ptx_constant_register(r, fillings[name->meaning], number);
}

static uint32_t read_value(ptx_reader *r)
{
    const char *word = r->word;
    uint64_t number;
    if (ptx_is(r, "_")) { /* nobody reads it */
        ptx_next(r);
        return (uint32_t)r->code->register_count++;
    }
    if (word[0] == '0' && (word[1] == 'f' || word[1] == 'd')) {
        number = strtoull(word + 2, NULL, 16);
        ptx_next(r);
        return ptx_constant_register(r, FILL_NUMBER, number);
    }
    if (word[0] == '-' || (word[0] >= '0' && word[0] <= '9'))
        return ptx_constant_register(r, FILL_NUMBER, ptx_integer(r));
    return named_register(r);
}

static void add_operand(ptx_reader *r, ptx_operand *all, unsigned *count);

/* As many as are in braces, behind the first brace. */
static void add_list(ptx_reader *r, ptx_operand *all, unsigned *count)
{
    do
        add_operand(r, all, count);
    while (!ptx_accept(r, "}") && (ptx_expect(r, ","), true));
}

/* One, and where an address has a list behind it that, too. */
static void add_operand(ptx_reader *r, ptx_operand *all, unsigned *count)
{
    if (*count == MOST_OPERANDS)
        ptx_reject(r, "too many operands");
    ptx_operand *to = &all[(*count)++];
    memset(to, 0, sizeof *to);
    to->is_address = ptx_accept(r, "[");
    to->reg = read_value(r);
    if (ptx_accept(r, "+"))
        to->offset = (int64_t)ptx_integer(r);
    if (to->is_address && ptx_accept(r, ",")) {
        ptx_expect(r, "{");
        add_list(r, all, count);
    }
    if (to->is_address)
        ptx_expect(r, "]");
    else if (to->offset)
        ptx_reject(r, "a sum that is no address");
}

/* All, with those in braces one after the other. */
static void read_operands(ptx_reader *r, ptx_instruction *i)
{
    ptx_operand all[MOST_OPERANDS];
    unsigned count = 0, lists = 0;
    while (!ptx_accept(r, ";")) {
        const unsigned first = count;
        if (ptx_accept(r, "{"))
            add_list(r, all, &count);
        else
            add_operand(r, all, &count);
        if (lists++ == 0)
            i->lead = count - first;
        if (!ptx_accept(r, ",") && !ptx_is(r, ";"))
            ptx_reject(r, "\"%s\" after an operand", r->word);
    }
    ptx_operand *kept = ptx_own(r->module, count * sizeof *kept);
    if (!kept)
        ptx_reject(r, "out of memory");
    memcpy(kept, all, count * sizeof *kept);
    i->operands = kept;
    i->operand_count = count;
}

/* ---- Statements ---- */

static void read_guard(ptx_reader *r, ptx_instruction *i)
{
    i->guard = -1;
    if (ptx_accept(r, "@")) {
        i->guard_is_inverse = ptx_accept(r, "!");
        i->guard = (int)named_register(r);
    }
}

static void read_jump(ptx_reader *r, ptx_instruction *i, size_t number)
{
    i->is_branch = true;
    r->jumps =
        ptx_grown(r->jumps, r->jump_count, &r->jump_room, sizeof *r->jumps);
    ptx_jump *jump = &r->jumps[r->jump_count++];
    jump->instruction = number;
    jump->scope = r->scope;
    memcpy(jump->label, r->word, sizeof jump->label);
    ptx_next(r);
    ptx_expect(r, ";");
}

static unsigned least_operands(const ptx_instruction *i)
{
    switch (i->rule) {
    case RULE_UNIT:
        return ptx_unit_operands(i->unit);
    case RULE_GROUP_PRODUCT:
        return i->least + i->count / 2;
    case RULE_MEMORY:
    case RULE_STORE:
        return i->least + i->count;
    default:
        return i->least + (i->run == run_compare && i->kind);
    }
}

void ptx_read_instruction(ptx_reader *r)
{
    ptx_code *code = r->code;
    code->instructions =
        ptx_grown(code->instructions, code->instruction_count,
                  &r->instruction_room, sizeof *code->instructions);
    const size_t number = code->instruction_count++;
    ptx_instruction *i = &code->instructions[number];
    memset(i, 0, sizeof *i);
    i->line = r->line;
    read_guard(r, i);
    if (ptx_accept(r, "bra") || ptx_accept(r, "bra.uni")) {
        read_jump(r, i, number);
        return;
    }
    if (ptx_accept(r, "ret") || ptx_accept(r, "exit")) {
        i->is_end = true;
        ptx_expect(r, ";");
        return;
    }
    if (!decode(i, r->word))
        ptx_reject(r, "instruction \"%s\" is not known", r->word);
    ptx_next(r);
    read_operands(r, i);
    if (i->operand_count < least_operands(i))
        ptx_reject(r, "operands are missing");
    i->is_move = i->run == run_move && i->operand_count == 2;
}
