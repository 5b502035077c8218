/* SPDX-License-Identifier: Apache-2.0
 * Expressions of whole numbers, as #if and the sizes of arrays have them. */
#include "preprocess.h"

#include <stdlib.h>
#include <string.h>

typedef struct reader {
    const token *at, *end;
    bool is_good;
} reader;

static int64_t read_choice(reader *in);

static bool take(reader *in, const char *text)
{
    if (in->at == in->end || !token_is(in->at, text))
        return false;
    in->at++;
    return true;
}

/* "(uint)" and the like: numbers here are wide enough without. */
static bool take_cast(reader *in)
{
    static const char *const types[] = {"int", "uint", "long", "ulong",
                                        "size_t"};
    if (in->end - in->at < 3 || !token_is(&in->at[0], "(") ||
        !token_is(&in->at[2], ")"))
        return false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (token_is(&in->at[1], types[i])) {
            in->at += 3;
            return true;
        }
    return false;
}

static int64_t read_number(const token *t)
{
    char text[32];
    const size_t length =
        t->length < sizeof text ? t->length : sizeof text - 1;
    memcpy(text, t->at, length);
    text[length] = 0;
    return (int64_t)strtoull(text, NULL, 0);
}

static int64_t read_value(reader *in)
{
    if (take_cast(in))
        return read_value(in);
    if (take(in, "!"))
        return !read_value(in);
    if (take(in, "-"))
        return (int64_t)(0 - (uint64_t)read_value(in));
    if (take(in, "+"))
        return read_value(in);
    if (take(in, "~"))
        return ~read_value(in);
    if (take(in, "(")) {
        const int64_t value = read_choice(in);
        in->is_good = take(in, ")") && in->is_good;
        return value;
    }
    if (in->at == in->end) {
        in->is_good = false;
        return 0;
    }
    const token *t = in->at++;
    if (t->at[0] >= '0' && t->at[0] <= '9')
        return read_number(t);
    in->is_good = in->is_good && token_is_name(t);
    return 0;
}

/* Operators by how strongly they bind, the weakest first. */
static const struct {
    const char *text;
    int strength;
} operators[] = {{"||", 0}, {"&&", 1}, {"|", 2},  {"^", 3}, {"&", 4},
                 {"==", 5}, {"!=", 5}, {"<", 6},  {">", 6}, {"<=", 6},
                 {">=", 6}, {"<<", 7}, {">>", 7}, {"+", 8}, {"-", 8},
                 {"*", 9},  {"/", 9},  {"%", 9}};
#define OPERATORS (sizeof operators / sizeof *operators)
#define STRONGEST 9

static int64_t combine(const char *sign, int64_t a, int64_t b)
{
    const uint64_t x = (uint64_t)a, y = (uint64_t)b;
    switch (sign[0]) {
    case '|':
        return sign[1] ? a || b : a | b;
    case '&':
        return sign[1] ? a && b : a & b;
    case '^':
        return a ^ b;
    case '=':
        return a == b;
    case '!':
        return a != b;
    case '<':
        return sign[1] == '<'   ? (int64_t)(x << (y & 63))
               : sign[1] == '=' ? a <= b
                                : a < b;
    case '>':
        return sign[1] == '>'   ? (int64_t)(x >> (y & 63))
               : sign[1] == '=' ? a >= b
                                : a > b;
    case '+':
        return (int64_t)(x + y);
    case '-':
        return (int64_t)(x - y);
    case '*':
        return (int64_t)(x * y);
    case '/':
        return b == 0 || b == -1 ? (int64_t)(0 - x * (b != 0)) : a / b;
    default:
        return b == 0 || b == -1 ? 0 : a % b;
    }
}

static int64_t read_binary(reader *in, int strength)
{
    if (strength > STRONGEST)
        return read_value(in);
    int64_t value = read_binary(in, strength + 1);
    for (;;) {
        size_t i = 0;
        while (i < OPERATORS && !(operators[i].strength == strength &&
                                  take(in, operators[i].text)))
            i++;
        if (i == OPERATORS)
            return value;
        value =
            combine(operators[i].text, value, read_binary(in, strength + 1));
    }
}

static int64_t read_choice(reader *in)
{
    const int64_t value = read_binary(in, 0);
    if (!take(in, "?"))
        return value;
    const int64_t yes = read_choice(in);
    in->is_good = take(in, ":") && in->is_good;
    const int64_t no = read_choice(in);
    return value ? yes : no;
}

bool preprocess_evaluate(const token *tokens, size_t count, int64_t *value)
{
    reader in = {tokens, tokens + count, true};
    *value = read_choice(&in);
    return in.is_good && in.at == in.end;
}
