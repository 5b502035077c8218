/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/verdict.h"

/* Times of one kernel differ by less on a device that does nothing else. */
#define QUIET_SPREAD 0.15

void verdict_explain(FILE *to, const bench_device *device)
{
    fprintf(to,
            "  us: one call; copy: the part of %.1f GB/s, at which the device "
            "copies now;\n"
            "  error: against double precision; cost: what the planner "
            "expects, the least first\n",
            device->copy_bandwidth * 1e-9);
}

/* The median; *spread: how far the times of one kernel lie apart, as a part of
 * it. */
static double median(double *times, double *spread)
{
    measure_sort(times, VERDICT_TURNS);
    const double middle = times[VERDICT_TURNS / 2];
    *spread = (times[VERDICT_TURNS - 1] - times[0]) / middle;
    return middle;
}

static bool write_row(FILE *to, const verdict_job *j, double with_row,
                      double without, const char *row)
{
    FILE *file = j->output ? fopen(j->output, "a") : to;
    bool good = file != NULL;
    if (file) {
        good =
            fprintf(file,
                    "# %s, driver %s, winattn %d.%d.%d: %s: %.1f us "
                    "instead of %.1f\n%s\n",
                    j->device->name, j->device->driver, WINATTN_VERSION_MAJOR,
                    WINATTN_VERSION_MINOR, WINATTN_VERSION_PATCH, j->what,
                    with_row * 1e6, without * 1e6, row) > 0;
        good = (file == to ? fflush(file) : fclose(file)) == 0 && good;
    }
    if (!good) /* it took minutes to find */
        fprintf(stderr, "%s cannot be written; the row is\n%s\n",
                j->output ? j->output : "the output", row);
    return good;
}

bool verdict_report(FILE *to, const verdict_job *j, verdict_times *times,
                    const char *row)
{
    double spread, other_spread;
    const double with_row = median(times->with_row, &spread);
    const double without = median(times->without, &other_spread);
    const bool wins = without / with_row - 1 >= j->gain;
    fprintf(to,
            "  %.1f us, plan's own choice %.1f us (%.2fx): ", with_row * 1e6,
            without * 1e6, without / with_row);
    if (wins)
        fputs("a row\n", to);
    else
        fprintf(to, "no row, which takes %.0f%% (--gain)\n", 100 * j->gain);
    spread = spread > other_spread ? spread : other_spread;
    if (spread > QUIET_SPREAD)
        fprintf(to,
                "  times of the same kernel differed by %.0f%%, so that this "
                "says little: something\n  else used the device, or the time "
                "was short. Try again when it is idle, or with\n  more "
                "--seconds\n",
                100 * spread);
    return !wins || write_row(to, j, with_row, without, row);
}
