/* SPDX-License-Identifier: Apache-2.0
 * Reads the arguments of launches as kernels of the library of models do. */
#include "models_levels.h"

#include <stdlib.h>
#include <string.h>

#include "standin.h"

#include "../../cl/common/args.h"
#include "../../cl/models/linear_args.h"
#include "../../cl/models/row_args.h"

/* What a launch reads of a buffer, or writes. */
typedef struct range {
    cl_mem buffer;
    wide start, end; /* bytes */
} range;

/* How far a linear layer's launches have come, and attention between two of
 * them. */
typedef struct progress {
    const char *kernel;
    wide next, rows;
    range y;            /* of the last linear layer */
    cl_ulong first;     /* its first element */
    cl_uint columns;    /* and those of a row */
    bool has_attention; /* since then, which reads y and writes from o on */
    cl_ulong o;
} progress;

static cl_ulong option(const standin_launch *l, const char *name)
{
    const char *at = strstr(l->options, name);
    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

static cl_uint element_bytes(const standin_launch *l)
{
    return option(l, "-DDTYPE=") == WINATTN_FP32 ? 4 : 2;
}

/* `count` elements of argument `index`, from element `first` on. */
static range range_of(const standin_launch *l, cl_uint index, wide first,
                      wide count, cl_uint bytes)
{
    const range r = {index < l->argument_count ? l->arguments[index].buffer
                                               : NULL,
                     first * bytes, (first + count) * bytes};
    return r;
}

static const char *range_fault(const range *r)
{
    size_t size = 0;
    if (r->start == r->end)
        return NULL;
    if (!r->buffer)
        return "a launch lacks a buffer";
    clGetMemObjectInfo(r->buffer, CL_MEM_SIZE, sizeof size, &size, NULL);
    return r->end > size ? "a launch goes beyond a buffer's end" : NULL;
}

/* in_place: they may be one and the same. */
static const char *overlap_fault(const range *written, const range *is_read,
                                 bool in_place)
{
    const bool apart = written->buffer != is_read->buffer ||
                       written->end <= is_read->start ||
                       is_read->end <= written->start;
    if (apart || (in_place && written->start == is_read->start))
        return NULL;
    return "a launch writes to what it reads";
}

/* The first `count` ranges are read, the last is written. */
static const char *ranges_fault(const range *all, size_t count,
                                unsigned in_place)
{
    const char *fault = NULL;
    for (size_t i = 0; i <= count && !fault; i++)
        fault = range_fault(&all[i]);
    for (size_t i = 0; i < count && !fault; i++)
        if (all[i].start != all[i].end)
            fault =
                overlap_fault(&all[count], &all[i], (in_place >> i & 1u) != 0);
    return fault;
}

/* Do `bytes` divide it all? */
static bool divides(cl_uint bytes, wide a, wide b, wide c)
{
    return a % bytes == 0 && b % bytes == 0 && c % bytes == 0;
}

/* ---- Linear layers ---- */

static wide matrix(wide rows, wide stride, wide columns)
{
    return rows ? (rows - 1) * stride + columns : 0;
}

static const char *wide_fault(const standin_launch *l, const linear_args *a)
{
    const cl_uint size = element_bytes(l);
    const bool has_bias = option(l, "-DHAS_BIAS=") != 0;
    const bool has_residual = option(l, "-DHAS_RESIDUAL=") != 0;
    if (((a->flags & LINEAR_WIDE_X) != 0 &&
         !divides(16, (wide)a->x * size, (wide)a->x_stride * size,
                  (wide)a->in * size)) ||
        ((a->flags & LINEAR_WIDE_WEIGHT) != 0 &&
         !divides(16, (wide)a->weight * size, (wide)a->weight_stride * size,
                  (wide)a->in * size)) ||
        ((a->flags & LINEAR_WIDE_OUT) != 0 &&
         !(divides(16, (wide)a->y * size, (wide)a->y_stride * size,
                   has_bias ? (wide)a->bias * size : 0) &&
           (!has_residual || divides(16, (wide)a->residual * size,
                                     (wide)a->residual_stride * size, 0)))))
        return "vectors that are not where a linear layer takes them";
    return NULL;
}

/* Work-groups of a launch: so many for each block of rows. */
static const char *take_rows(const standin_launch *l, const linear_args *a,
                             wide block_rows, wide groups_of_rows, progress *p)
{
    const wide groups = l->global / l->local;
    if (block_rows == 0 || groups % groups_of_rows != 0)
        return "work-groups that share no blocks of rows";
    if (a->first_row == 0) {
        if (p->next < p->rows)
            return "rows that no launch computes";
        p->kernel = l->kernel;
        p->next = 0;
        p->rows = a->rows;
    }
    if (!p->kernel || strcmp(p->kernel, l->kernel) != 0 ||
        a->first_row != p->next)
        return "a launch that does not go on where the last one ended";
    const wide lines = groups / groups_of_rows;
    if (text_starts(l->kernel, "linear_resident_")) {
        /* each takes one block after the other, as far as there are rows */
        if (lines == 0 || (lines - 1) * block_rows >= p->rows)
            return "work-groups without rows";
        p->next = p->rows;
        return NULL;
    }
    const wide end = p->next + lines * block_rows;
    if (end >= p->rows + block_rows)
        return "a launch beyond the last row";
    p->next = end;
    return NULL;
}

/* q, k and v stand side by side in what the projection wrote; what the
 * attention writes is the other projection's x, and lies elsewhere. */
static const char *attention_fault(const standin_launch *l, progress *p)
{
    forward_args a;
    memcpy(&a, l->arguments[0].bytes, sizeof a);
    const cl_ulong c = p->columns / 3;
    p->has_attention = true;
    p->o = a.o.offset;
    return a.q.offset == p->first && a.k.offset == p->first + c &&
                   a.v.offset == p->first + 2 * c
               ? NULL
               : "q, k and v are not where the projection put them";
}

static const char *between_fault(const linear_args *a, const range *x,
                                 const progress *p)
{
    if (!p->has_attention)
        return NULL;
    return a->x != p->o ? "the attention's result is not what is projected"
                        : overlap_fault(x, &p->y, false);
}

static const char *linear_fault(const standin_launch *l, progress *p)
{
    linear_args a;
    memcpy(&a, l->arguments[0].bytes, sizeof a);
    const cl_uint size = element_bytes(l);
    const bool has_bias = option(l, "-DHAS_BIAS=") != 0;
    const bool has_residual = option(l, "-DHAS_RESIDUAL=") != 0;
    const wide columns = option(l, "-DBLOCK_COLUMNS=");
    const range all[] = {
        range_of(l, 1, a.x,
                 option(l, "-DNEIGHBOURS=") ? a.rows * a.in
                                            : matrix(a.rows, a.x_stride, a.in),
                 size),
        range_of(l, 2, a.weight, matrix(a.out, a.weight_stride, a.in), size),
        range_of(l, 3, a.bias, has_bias ? a.out : 0, size),
        range_of(l, 4, a.residual,
                 has_residual ? matrix(a.rows, a.residual_stride, a.out) : 0,
                 size),
        range_of(l, 5, a.y, matrix(a.rows, a.y_stride, a.out), size)};
    const char *fault = ranges_fault(all, 4, 1u << 3);
    if (!fault)
        fault = wide_fault(l, &a);
    if (!fault && columns == 0)
        fault = "a linear layer without blocks of columns";
    if (!fault && a.first_row == 0)
        fault = between_fault(&a, &all[0], p);
    p->has_attention = false;
    p->y = all[4];
    p->first = a.y;
    p->columns = a.out;
    return fault ? fault
                 : take_rows(l, &a, option(l, "-DBLOCK_ROWS="),
                             (a.out + columns - 1) / columns, p);
}

/* ---- Rows ---- */

/* Elements of the maps whose neighbours are merged to so many rows; maps have
 * half as many rows and columns then, rounded up. */
static wide merged_from(wide rows, wide height, wide width, wide row_size)
{
    const wide of_map = ((height + 1) / 2) * ((width + 1) / 2);
    return of_map == 0 || rows % of_map != 0
               ? 0
               : rows / of_map * height * width * (row_size / 4);
}

static const char *aligned_fault(const standin_launch *l, cl_uint flags,
                                 wide a, wide b, wide c)
{
    const cl_uint size = element_bytes(l);
    const cl_uint access = (cl_uint)option(l, "-DROW_ACCESS=");
    const cl_uint bytes = access * size < 16 ? access * size : 16;
    return (flags & ROW_ALIGNED) == 0 || bytes == 0 ||
                   divides(bytes, a * size, b * size, c * size)
               ? NULL
               : "chunks that are not where a kernel of rows takes them";
}

/* Kernels of norms: norm_rows, pool_rows. */
static const char *norm_fault(const standin_launch *l)
{
    norm_args a;
    memcpy(&a, l->arguments[0].bytes, sizeof a);
    const bool pools = text_starts(l->kernel, "pool_rows");
    const bool adds = option(l, "-DADDS=") != 0;
    const bool merges = option(l, "-DNEIGHBOURS=") != 0;
    const cl_uint size = element_bytes(l), at = pools ? 2 : 3;
    const wide row = option(l, "-DROW_SIZE="), rows = a.rows;
    const wide from = pools    ? rows * a.tokens * row
                      : merges ? merged_from(rows, a.height, a.width, row)
                               : matrix(rows, a.stride, row);
    const range all[] = {range_of(l, 1, a.from, from, size),
                         range_of(l, 2, a.other, adds ? rows * row : 0, size),
                         range_of(l, at, a.weight, row, size),
                         range_of(l, at + 1, a.bias, row, size),
                         range_of(l, at + 2, a.to, rows * row, size)};
    const char *fault = ranges_fault(all, 4, pools || merges ? 0 : 3);
    if (!fault && from == 0)
        fault = "rows that no map has";
    if (!fault && (wide)(l->global / l->local) * a.group_rows < rows)
        fault = "rows that no work-group has";
    if (!fault)
        fault = aligned_fault(l, a.flags, a.from, a.to, a.other);
    if (!fault && !pools && !merges)
        fault = aligned_fault(l, a.flags, a.stride, 0, 0);
    return fault ? fault : aligned_fault(l, a.flags, a.weight, a.bias, 0);
}

static const char *merge_fault(const standin_launch *l)
{
    merge_args a;
    memcpy(&a, l->arguments[0].bytes, sizeof a);
    const cl_uint size = element_bytes(l);
    const wide row = option(l, "-DROW_SIZE=");
    const wide access = option(l, "-DROW_ACCESS=");
    const wide from = merged_from(a.rows, a.height, a.width, row);
    const range all[] = {range_of(l, 1, a.from, from, size),
                         range_of(l, 2, a.to, a.rows * row, size)};
    const char *fault = ranges_fault(all, 1, 0);
    if (!fault && from == 0)
        fault = "rows that no map has";
    if (!fault && (access == 0 || l->global < a.rows * (row / access)))
        fault = "chunks that no work-item has";
    return fault ? fault : aligned_fault(l, a.flags, a.from, a.to, 0);
}

static const char *embed_fault(const standin_launch *l)
{
    embed_args a;
    memcpy(&a, l->arguments[0].bytes, sizeof a);
    const wide channels = option(l, "-DPICTURE_CHANNELS=");
    const wide height = option(l, "-DPATCH_HEIGHT=");
    const wide width = option(l, "-DPATCH_WIDTH=");
    const wide lines = channels * height, of_picture = (wide)a.down * a.across;
    if (lines == 0 || width == 0 || of_picture == 0 ||
        a.items % (lines * of_picture) != 0 ||
        (wide)(a.down - 1) * height >= a.height ||
        (wide)(a.across - 1) * width >= a.width)
        return "patches that no picture has";
    const wide pictures = a.items / (lines * of_picture);
    const range all[] = {
        range_of(l, 1, a.from, pictures * a.height * a.width * channels,
                 option(l, "-DPICTURE=") == 0 ? 1 : 4),
        range_of(l, 2, a.to, a.items * width, element_bytes(l))};
    const char *fault = ranges_fault(all, 1, 0);
    return fault                 ? fault
           : l->global < a.items ? "lines that no work-item has"
                                 : NULL;
}

/* ---- All launches ---- */

static const char *launch_fault(const standin_launch *l, progress *p)
{
    const char *name = l->kernel;
    /* that kernels number in 32 bits */
    if (l->global / l->local > UINT32_MAX)
        return "more work-groups than kernels can number";
    if (text_starts(name, "forward_"))
        return attention_fault(l, p);
    if (text_starts(name, "linear_"))
        return linear_fault(l, p);
    if (strcmp(name, "norm_rows") == 0 || strcmp(name, "pool_rows") == 0)
        return norm_fault(l);
    if (strcmp(name, "merge_patches") == 0)
        return merge_fault(l);
    return strcmp(name, "embed_patches") == 0 ? embed_fault(l) : NULL;
}

const char *models_launches_fault(bool is_cut)
{
    const standin_launch *all;
    const size_t count = standin_launches(&all);
    progress p;
    memset(&p, 0, sizeof p);
    for (size_t i = 0; i < count; i++) {
        const char *fault = launch_fault(&all[i], &p);
        if (fault)
            return fault;
    }
    return count == 0                   ? "nothing is launched"
           : !is_cut && p.next < p.rows ? "rows that no launch computes"
                                        : NULL;
}
