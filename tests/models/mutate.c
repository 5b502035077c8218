/* SPDX-License-Identifier: Apache-2.0
 * Runs a driver on its first inputs, changed at random.
 *
 *   fuzz_NAME ROUNDS SEED [FIRST]   from round FIRST on, 0; a round that ends
 *                                   the program is printed
 *   fuzz_NAME --write FOLDER        first inputs for libFuzzer */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"

#define MOST_INPUTS 32
#define MOST_CHANGES 3
#define HEAD 4096 /* where files say what they have */

static unsigned long round_now;
static const char *seed_text = "";

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
static void move_bytes(file_bytes *f, size_t at, size_t count, bool doubles)
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

/* The next digit from there on becomes another one of `to`. */
static void change_digit(file_bytes *f, size_t at, const char *to,
                         uint64_t *state)
{
    while (at < f->size && (f->bytes[at] < '0' || f->bytes[at] > '9'))
        at++;
    if (at < f->size)
        f->bytes[at] = (unsigned char)to[draw(state) % strlen(to)];
}

static void change(file_bytes *f, uint64_t *state)
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
    default:
        change_digit(f, at, "0123456789", state);
    }
}

/* A header of another length is still one, where the file says so. */
static void mend_length(file_bytes *f, size_t before)
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

static void run_round(const file_bytes *from, uint64_t *state)
{
    file_bytes f = {malloc(from->size + 1), from->size};
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
    LLVMFuzzerTestOneInput(exact, f.size);
    free(exact);
    free(f.bytes);
}

/* ---- The program ---- */

static int write_all(const char *folder, const file_bytes *inputs,
                     size_t count)
{
    mkdir(folder, 0700);
    for (size_t i = 0; i < count; i++) {
        char path[2048];
        snprintf(path, sizeof path, "%s/%zu", folder, i);
        FILE *file = fopen(path, "wb");
        if (!file ||
            fwrite(inputs[i].bytes, 1, inputs[i].size, file) !=
                inputs[i].size ||
            fclose(file) != 0) {
            perror(path);
            return 1;
        }
    }
    return 0;
}

static void run(const file_bytes *inputs, size_t count, unsigned long rounds,
                unsigned long first)
{
    const uint64_t seed = strtoull(seed_text, NULL, 10);
    for (size_t i = 0; i < count; i++)
        LLVMFuzzerTestOneInput(inputs[i].bytes, inputs[i].size);
    for (unsigned long i = first; i < first + rounds; i++) {
        uint64_t state = (seed << 32) + i;
        draw(&state);
        round_now = i;
        run_round(&inputs[draw(&state) % count], &state);
    }
    printf("%lu rounds of seed %s\n", rounds, seed_text);
}

int main(int argc, char **argv)
{
    file_bytes inputs[MOST_INPUTS];
    int status = 0;
    if (argc < 3) {
        fprintf(stderr, "usage: %s ROUNDS SEED [FIRST] | --write FOLDER\n",
                argv[0]);
        return 2;
    }
    signal(SIGABRT, on_abort);
    const size_t count = first_inputs(inputs, MOST_INPUTS);
    if (strcmp(argv[1], "--write") == 0) {
        status = write_all(argv[2], inputs, count);
    } else {
        seed_text = argv[2];
        run(inputs, count, strtoul(argv[1], NULL, 10),
            argc > 3 ? strtoul(argv[3], NULL, 10) : 0);
    }
    for (size_t i = 0; i < count; i++)
        free(inputs[i].bytes);
    return status;
}
