/* SPDX-License-Identifier: Apache-2.0
 * Runs a driver on its first inputs, changed at random.
 *
 *   fuzz_NAME ROUNDS SEED [FIRST]   from round FIRST on, 0; a round that ends
 *                                   the program is printed */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

#define MOST_INPUTS 64
#define MOST_CHANGES 3
#define HEAD 4096 /* where files say what they have */

typedef struct input {
    unsigned char *bytes;
    size_t size;
} input;

static input inputs[MOST_INPUTS];
static size_t input_count;
static unsigned long round_now;
static const char *seed_text = "";

void add_input(const void *bytes, size_t size)
{
    EXPECT(input_count < MOST_INPUTS, "inputs");
    input *made = &inputs[input_count++];
    *made = (input){malloc(size + 1), size};
    memcpy(made->bytes, bytes, size);
}

void add_text(const char *text) { add_input(text, strlen(text)); }

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void on_abort(int signal_number)
{
    (void)signal_number;
    fprintf(stderr, "round %lu of seed %s\n", round_now, seed_text);
    fflush(stderr);
}

/* ---- Changes ---- */

/* Takes `count` bytes out, or doubles them. */
static void move_bytes(input *f, size_t at, size_t count, bool doubles)
{
    if (count > f->size - at)
        count = f->size - at;
    if (!doubles) {
        memmove(f->bytes + at, f->bytes + at + count, f->size - at - count);
        f->size -= count;
        return;
    }
    f->bytes = realloc(f->bytes, f->size + count + 1);
    memmove(f->bytes + at + count, f->bytes + at, f->size - at);
    f->size += count;
}

/* Puts what another input has from a place on there, to its end. */
static void join(input *f, size_t at, uint64_t *state)
{
    const input *other = &inputs[draw(state) % input_count];
    const size_t from = (size_t)draw(state) % (other->size + 1);
    f->size = at + other->size - from;
    f->bytes = realloc(f->bytes, f->size + 1);
    memcpy(f->bytes + at, other->bytes + from, other->size - from);
}

/* The next digit from there on becomes another one of `to`. */
static void change_digit(input *f, size_t at, const char *to, uint64_t *state)
{
    while (at < f->size && (f->bytes[at] < '0' || f->bytes[at] > '9'))
        at++;
    if (at < f->size)
        f->bytes[at] = (unsigned char)to[draw(state) % strlen(to)];
}

static void change(input *f, uint64_t *state)
{
    static const unsigned char extremes[] = {0, 1, 0x7f, 0x80, 0xff};
    if (f->size == 0)
        return;
    const bool in_head = draw(state) % 4 != 0 && f->size > HEAD;
    const size_t at = (size_t)draw(state) % (in_head ? HEAD : f->size);
    const size_t count = 1 + (size_t)draw(state) % 400;
    switch (draw(state) % 12) {
    case 0:
        f->bytes[at] ^= (unsigned char)(1u << draw(state) % 8);
        break;
    case 1:
        f->bytes[at] = extremes[draw(state) % sizeof extremes];
        break;
    case 2:
        move_bytes(f, at, count, false);
        break;
    case 3:
        move_bytes(f, at, count, true);
        break;
    case 4:
        f->size = draw(state) % 4 ? f->size : at;
        break;
    case 5:
        change_digit(f, at, "-.eE[]{}\",: ", state);
        break;
    case 6:
        join(f, at, state);
        break;
    default:
        change_digit(f, at, "0123456789", state);
    }
}

/* A header of another length is still one, where the file says so. */
static void mend_length(input *f, size_t before)
{
    uint64_t length = 0;
    if (f->size < 9 || f->bytes[8] != '{')
        return;
    for (int i = 0; i < 8; i++)
        length |= (uint64_t)f->bytes[i] << (8 * i);
    length += f->size - before;
    for (int i = 0; i < 8; i++)
        f->bytes[i] = (unsigned char)(length >> (8 * i));
}

static void run_round(const input *from, uint64_t *state)
{
    input f = {malloc(from->size + 1), from->size};
    memcpy(f.bytes, from->bytes, from->size);
    const uint64_t changes = 1 + draw(state) % MOST_CHANGES;
    for (uint64_t i = 0; i < changes; i++)
        change(&f, state);
    if (draw(state) % 8)
        mend_length(&f, from->size);
    /* no byte more than the input has, so that a sanitizer sees what is read
     * behind it */
    unsigned char *exact = malloc(f.size ? f.size : 1);
    memcpy(exact, f.bytes, f.size);
    fuzz_one(exact, f.size);
    free(exact);
    free(f.bytes);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: %s ROUNDS SEED [FIRST]\n", argv[0]);
        return 2;
    }
    const unsigned long rounds = strtoul(argv[1], NULL, 10);
    const unsigned long first = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
    seed_text = argv[2];
    const uint64_t seed = strtoull(seed_text, NULL, 10);
    signal(SIGABRT, on_abort);
    add_first_inputs();
    for (size_t i = 0; i < input_count; i++)
        fuzz_one(inputs[i].bytes, inputs[i].size);
    for (unsigned long i = first; i < first + rounds; i++) {
        uint64_t state = (seed << 32) + i;
        draw(&state);
        round_now = i;
        run_round(&inputs[draw(&state) % input_count], &state);
    }
    printf("%lu rounds of seed %s\n", rounds, seed_text);
    for (size_t i = 0; i < input_count; i++)
        free(inputs[i].bytes);
    return 0;
}
