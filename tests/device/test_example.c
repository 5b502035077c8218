/* SPDX-License-Identifier: Apache-2.0
 * What the example printed, against the oracle.
 *
 *   test_example PICTURE OUTPUT
 *
 * PICTURE is the example's argument, OUTPUT a file with what it wrote. */
#include <math.h>
#include <stdio.h>

#include "kit/oracle.h"
#include "kit/run.h"

#define WINDOWS 4
#define HEADS 3
#define TOKENS 49
#define DIM 16

static unsigned char pixel[56][56][3];
static float y[WINDOWS][HEADS][TOKENS][DIM];

/* All of the file and nothing behind it. */
static bool read_file(const char *name, const char *start, void *to,
                      size_t size)
{
    FILE *file = fopen(name, "rb");
    bool whole = file != NULL;
    for (; whole && *start; start++)
        whole = fgetc(file) == *start;
    whole = whole && fread(to, 1, size, file) == size && fgetc(file) == EOF;
    if (file)
        fclose(file);
    if (!whole)
        fprintf(stderr, "%s is not what it should be\n", name);
    return whole;
}

/* Channel 4 y + x of a token is pixel y, x of its patch of 4 x 4. */
static void read_tokens(size_t window, size_t colour, double *x)
{
    for (size_t token = 0; token < TOKENS; token++)
        for (size_t c = 0; c < DIM; c++) {
            const size_t row = window / 2 * 28 + token / 7 * 4 + c / 4;
            const size_t column = window % 2 * 28 + token % 7 * 4 + c % 4;
            x[token * DIM + c] =
                (float)pixel[row][column][colour] / 255 - 0.5f;
        }
}

/* Error of one window-head as a fraction of what is allowed. */
static double error_of(size_t window, size_t head)
{
    double x[TOKENS * DIM], o[TOKENS * DIM], o_size[TOKENS * DIM];
    double lse[TOKENS], lse_size[TOKENS], largest;
    double error2 = 0, norm2 = 0, size2 = 0;
    read_tokens(window, head, x);
    const oracle_problem p = {.queries = TOKENS,
                              .keys = TOKENS,
                              .dim = DIM,
                              .q = x,
                              .k = x,
                              .v = x,
                              .scale = 0.25};
    oracle_forward(&p, o, o_size, lse, lse_size, &largest);
    for (size_t i = 0; i < TOKENS * DIM; i++) {
        const double error = (double)y[window][head][i / DIM][i % DIM] - o[i];
        error2 += error * error;
        norm2 += o[i] * o[i];
        size2 += o_size[i] * o_size[i];
    }
    return sqrt(error2) / (promised_error(WINATTN_FP32) *
                           fmax(sqrt(norm2), sqrt(size2) / 10));
}

int main(int count, char **names)
{
    double worst = 0;
    int wrong = 0;
    if (count != 3 ||
        !read_file(names[1], "P6 56 56 255\n", pixel, sizeof pixel) ||
        !read_file(names[2], "", y, sizeof y))
        return 2;
    for (size_t window = 0; window < WINDOWS; window++)
        for (size_t head = 0; head < HEADS; head++) {
            const double error = error_of(window, head);
            worst = fmax(worst, error);
            wrong += !(error <= 1); /* NaN too */
        }
    printf("largest error: %.3f of the allowed; %d of %d window-heads wrong\n",
           worst, wrong, WINDOWS * HEADS);
    return wrong != 0;
}
