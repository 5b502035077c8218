/* SPDX-License-Identifier: Apache-2.0
 * Resizes pictures of 8 bits with the arithmetic of Pillow's resize, so that
 * models see what they were trained with: along lines first, then along
 * columns, with weights of 22 bits of fraction, rounded to 8 bits after each.
 */
#include <math.h>
#include <stdlib.h>

#include "base/status.h"
#include "base/struct.h"
#include "models/levels.h"
#include "winattn_models.h"

#define SIDE_MOST 65535u
#define FITTED_MOST 16384u
#define FRACTION_BITS 22
#define COLOURS 3u

/* Positions first, first + 1, ... of the source, with a weight each. */
typedef struct span {
    uint32_t first, count;
} span;

/* The spans of some positions of the result; weights of span i from i *
 * stride on. */
typedef struct weighting {
    span *spans;
    int32_t *weights;
    size_t stride;
} weighting;

static double filter_at(winattn_filter filter, double x)
{
    x = fabs(x);
    if (filter == WINATTN_FILTER_BILINEAR)
        return x < 1 ? 1 - x : 0;
    if (x < 1) /* Keys 1981, equation 15, with a = -1/2 */
        return (1.5 * x - 2.5) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * -0.5 : 0;
}

static void weighting_free(weighting *w)
{
    free(w->spans);
    free(w->weights);
    *w = (weighting){0};
}

/* Weights of `count` positions from `first` on, where `from` positions become
 * `to`. */
static winattn_status weigh(uint32_t from, uint64_t to, uint64_t first,
                            uint32_t count, winattn_filter filter,
                            weighting *w)
{
    const double scale = from / (double)to;
    const double stretch = scale > 1 ? scale : 1;
    const double reach = (filter == WINATTN_FILTER_BILINEAR ? 1 : 2) * stretch;
    w->stride = (size_t)ceil(reach) * 2 + 1;
    w->spans = calloc(count, sizeof *w->spans);
    w->weights = calloc(count * w->stride, sizeof *w->weights);
    double *exact = calloc(w->stride, sizeof *exact);
    if (!w->spans || !w->weights || !exact) {
        free(exact);
        weighting_free(w);
        return wa_fail_memory();
    }
    for (uint32_t i = 0; i < count; i++) {
        const double centre = ((double)(first + i) + 0.5) * scale;
        const double low = centre - reach + 0.5, high = centre + reach + 0.5;
        const uint32_t begin = low > 0 ? (uint32_t)low : 0;
        const uint32_t end = high < from ? (uint32_t)high : from;
        double sum = 0;
        for (uint32_t j = begin; j < end; j++) {
            exact[j - begin] = filter_at(filter, (j - centre + 0.5) / stretch);
            sum += exact[j - begin];
        }
        w->spans[i] = (span){begin, end - begin};
        for (uint32_t j = 0; j < end - begin; j++)
            w->weights[i * w->stride + j] =
                (int32_t)round(exact[j] / sum * (1 << FRACTION_BITS));
    }
    free(exact);
    return WINATTN_SUCCESS;
}

/* One number: what lies `step` bytes apart, weighted. */
static unsigned char sum_span(const unsigned char *from, size_t step,
                              const int32_t *weights, uint32_t count)
{
    int32_t sum = 1 << (FRACTION_BITS - 1);
    for (uint32_t i = 0; i < count; i++)
        sum += from[i * step] * weights[i];
    sum >>= FRACTION_BITS;
    return (unsigned char)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* Where the middle starts; halves go to the even side, as torchvision rounds.
 */
static uint64_t middle(uint64_t whole, uint64_t part)
{
    const uint64_t rest = whole - part;
    return rest / 2 + (rest % 4 == 3);
}

typedef struct fitting {
    uint64_t height, width; /* after resizing */
    weighting lines, columns;
    unsigned char *narrow; /* lines that are needed, already resized */
} fitting;

/* Sizes after resizing. */
static void set_sizes(const winattn_swin_config *config, uint32_t height,
                      uint32_t width, fitting *f)
{
    const cl_uint side = config->resize[0];
    const uint32_t least = height < width ? height : width;
    f->height = config->resize[0];
    f->width = config->resize[1];
    if (!config->resize[1]) {
        f->height = (uint64_t)((double)side * height / least);
        f->width = (uint64_t)((double)side * width / least);
    }
}

static winattn_status resize(const winattn_swin_config *config,
                             uint32_t height, uint32_t width, size_t row_bytes,
                             const unsigned char *pixels, fitting *f,
                             unsigned char *fitted)
{
    const cl_uint lines = config->crop[0], columns = config->crop[1];
    const size_t line = (size_t)COLOURS * columns;
    WA_TRY(weigh(height, f->height, middle(f->height, lines), lines,
                 config->filter, &f->lines));
    WA_TRY(weigh(width, f->width, middle(f->width, columns), columns,
                 config->filter, &f->columns));
    const span last = f->lines.spans[lines - 1];
    const uint32_t begin = f->lines.spans[0].first;
    const uint32_t end = last.first + last.count;
    f->narrow = malloc((end - begin) * line);
    WA_TRY_MEMORY(f->narrow);
    for (uint32_t y = begin; y < end; y++)
        for (uint32_t i = 0; i < columns; i++) {
            const span s = f->columns.spans[i];
            for (uint32_t c = 0; c < COLOURS; c++)
                f->narrow[(y - begin) * line + (size_t)COLOURS * i + c] =
                    sum_span(
                        pixels + y * row_bytes + (size_t)COLOURS * s.first + c,
                        COLOURS, f->columns.weights + i * f->columns.stride,
                        s.count);
        }
    for (uint32_t y = 0; y < lines; y++)
        for (size_t i = 0; i < line; i++) {
            const span s = f->lines.spans[y];
            fitted[y * line + i] =
                sum_span(f->narrow + (s.first - begin) * line + i, line,
                         f->lines.weights + y * f->lines.stride, s.count);
        }
    return WINATTN_SUCCESS;
}

static winattn_status check(const winattn_swin_config *config, cl_uint height,
                            cl_uint width, size_t row_bytes)
{
    if (!height || height > SIDE_MOST || !width || width > SIDE_MOST)
        return WA_INVALID("a picture of %u x %u pixels: sides are 1 to %u",
                          (unsigned)height, (unsigned)width, SIDE_MOST);
    if (row_bytes < (size_t)COLOURS * width || row_bytes > SIZE_MAX / height)
        return WA_BAD_LAYOUT("row_bytes is %llu, for %u pixels of a row",
                             (unsigned long long)row_bytes, (unsigned)width);
    for (int i = 0; i < 2; i++)
        if (config->resize[i] > FITTED_MOST || !config->resize[0] ||
            !config->crop[i] || config->crop[i] > FITTED_MOST)
            return WA_INVALID(
                "config.resize[%d] or config.crop[%d] is not between 1 and %u",
                i, i, FITTED_MOST);
    if (config->filter != WINATTN_FILTER_BICUBIC &&
        config->filter != WINATTN_FILTER_BILINEAR)
        return WA_INVALID("config.filter is %d, which is none",
                          (int)config->filter);
    return WINATTN_SUCCESS;
}

winattn_status winattn_fit_picture(const winattn_swin_config *config,
                                   cl_uint height, cl_uint width,
                                   size_t row_bytes,
                                   const unsigned char *pixels,
                                   unsigned char *fitted)
{
    winattn_swin_config own;
    fitting f = {0};
    WA_TRY(wa_models_begin());
    WA_TRY(
        wa_read_struct("swin_config", config, &own, sizeof own, sizeof own));
    if (!pixels || !fitted)
        return WA_INVALID("pixels or fitted is NULL");
    row_bytes = row_bytes ? row_bytes : (size_t)COLOURS * width;
    WA_TRY(check(&own, height, width, row_bytes));
    set_sizes(&own, height, width, &f);
    if (f.height < own.crop[0] || f.width < own.crop[1])
        return WA_INVALID(
            "a picture resized to %llu x %llu has no %u x %u in its middle",
            (unsigned long long)f.height, (unsigned long long)f.width,
            (unsigned)own.crop[0], (unsigned)own.crop[1]);
    const winattn_status status =
        resize(&own, height, width, row_bytes, pixels, &f, fitted);
    weighting_free(&f.lines);
    weighting_free(&f.columns);
    free(f.narrow);
    return status;
}
