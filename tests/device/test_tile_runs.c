/* SPDX-License-Identifier: Apache-2.0
 * Which tiles of keys warpgroups compute (cl/hopper/tile_runs.cl), on any
 * device: all that a row sees, once; what is said to be seen entirely is; and
 * the work tiles of a launch are dealt, each once, long ones first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/runner.h"
#include "program/source.h"

#include "../cl/common/args.h"

#define CASES 60
#define BLOCK_ROWS 192u
#define WARPGROUPS (BLOCK_ROWS / 64)
#define TILE_KEYS 64u
#define MOST_TILES 64u

/* Of a tile of keys, as the kernel below says it. */
typedef struct told_tile {
    cl_uint first, end;
    cl_uint computed, whole;
} told_tile;

/* Of a work tile and a warpgroup. */
typedef struct told {
    cl_uint window, head, row, tiles;
    told_tile tile[MOST_TILES];
} told;

static const char kernel_text[] =
    "typedef struct { uint first, end, computed, whole; } told_tile;\n"
    "typedef struct { uint window, head, row, tiles;\n"
    "    told_tile tile[64]; } told;\n"
    "__kernel void tell(const forward_args args, __global told *all)\n"
    "{\n"
    "    const uint item = get_global_id(0);\n"
    "    const work_tile t = deal_work_tile(&args, item / 3);\n"
    "    const uint last = args.queries - 1;\n"
    "    const uint own = t.row + item % 3 * 64;\n"
    "    const key_loop loop = loop_between(&args,\n"
    "        visible_span(&args, t.row),\n"
    "        visible_span(&args, min(t.row + BLOCK_ROWS - 1, last)));\n"
    "    const tile_runs runs = find_runs(&args, &loop,\n"
    "        visible_span(&args, min(own, last)),\n"
    "        visible_span(&args, min(own + 63, last)));\n"
    "    __global told *to = all + item;\n"
    "    to->window = (uint)t.window;\n"
    "    to->head = t.head;\n"
    "    to->row = t.row;\n"
    "    to->tiles = loop.blocks;\n"
    "    for (uint i = 0; i < min(loop.blocks, 64u); i++) {\n"
    "        const key_tile k = find_key_tile(&loop, &runs, i);\n"
    "        to->tile[i].first = k.first;\n"
    "        to->tile[i].end = k.end;\n"
    "        to->tile[i].whole = k.whole;\n"
    "        to->tile[i].computed = i < runs.sink_end ||\n"
    "                               (i >= runs.window && i < runs.end);\n"
    "    }\n"
    "}\n";

static cl_kernel build(void)
{
    static const char options[] =
        "-cl-std=CL1.2 -DVARIANT=2 -DDTYPE=1 -DHEAD_DIM=64 -DBIAS=0 -DMASK=0 "
        "-DADJACENT_KEYS=1 -DBLOCK_ROWS=192 -DBLOCK_KEYS=64 -DHAS_FMA=1 "
        "-DSTAGES=3";
    char *source;
    cl_int error;
    assert_int_equal(wa_source_of_kernel("tile_runs", &source),
                     WINATTN_SUCCESS);
    assert_non_null(source);
    const char *texts[] = {source, kernel_text};
    cl_program program =
        clCreateProgramWithSource(device.context, 2, texts, NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
    assert_int_equal(
        clBuildProgram(program, 1, &device.id, options, NULL, NULL),
        CL_SUCCESS);
    cl_kernel kernel = clCreateKernel(program, "tell", &error);
    assert_int_equal(error, CL_SUCCESS);
    clReleaseProgram(program);
    free(source);
    return kernel;
}

static forward_args random_args(random_state *r)
{
    forward_args args;
    memset(&args, 0, sizeof args);
    const cl_uint windows = (cl_uint)random_int(r, 1, 2);
    args.heads = (cl_uint)random_int(r, 1, 3);
    args.queries = (cl_uint)random_int(r, 1, 900);
    args.query_offset =
        random_int(r, 0, 1) ? (cl_uint)random_int(r, 0, 900) : 0;
    args.keys = (cl_uint)random_int(r, 1, 1800);
    args.block = (cl_uint)random_int(r, 1, random_int(r, 0, 1) ? 300 : 64);
    args.first_block = (cl_uint)random_int(r, 1, (int)args.block);
    args.window = (cl_uint)random_int(r, 0, 9);
    args.sink = random_int(r, 0, 1) ? (cl_uint)random_int(r, 0, 900) : 0;
    args.flags = args.window ? ARG_WINDOW_BOUNDED : 0;
    args.block_rows = BLOCK_ROWS;
    args.row_blocks = (args.queries + BLOCK_ROWS - 1) / BLOCK_ROWS;
    args.short_row_blocks = (cl_uint)random_int(r, 0, (int)args.row_blocks);
    args.work_tiles = windows * args.heads * args.row_blocks;
    return args;
}

static cl_uint block_of(const forward_args *args, cl_uint token)
{
    return token < args->first_block
               ? 0
               : 1 + (token - args->first_block) / args->block;
}

static bool sees(const forward_args *args, cl_uint query, cl_uint key)
{
    const cl_uint own = block_of(args, query + args->query_offset);
    const cl_uint other = block_of(args, key);
    const bool near = args->window == 0 || other + args->window > own;
    return other <= own && (near || key < args->sink);
}

/* Tiles that the warpgroup computes and that have the key. */
static const told_tile *find_tile(const told *t, cl_uint key, int *count)
{
    const told_tile *found = NULL;
    *count = 0;
    for (cl_uint i = 0; i < t->tiles; i++)
        if (t->tile[i].computed && key >= t->tile[i].first &&
            key < t->tile[i].end) {
            found = &t->tile[i];
            ++*count;
        }
    return found;
}

static void check_rows(const forward_args *args, const told *t, cl_uint group)
{
    const cl_uint first = t->row + group * 64;
    for (cl_uint row = first; row < first + 64 && row < args->queries; row++)
        for (cl_uint key = 0; key < args->keys; key++) {
            int count;
            const told_tile *tile = find_tile(t, key, &count);
            if (sees(args, row, key))
                assert_int_equal(count, 1);
            else if (tile)
                assert_false(tile->whole);
        }
    for (cl_uint i = 0; i < t->tiles; i++)
        if (t->tile[i].computed && t->tile[i].whole)
            assert_int_equal(t->tile[i].end - t->tile[i].first, TILE_KEYS);
}

/* Each work tile once, those with fewer blocks last, the longest first. */
static void check_order(const forward_args *args, const told *all)
{
    bool *dealt = calloc(args->work_tiles, sizeof *dealt);
    cl_uint last = UINT32_MAX;
    assert_non_null(dealt);
    for (cl_uint i = 0; i < args->work_tiles; i++) {
        const told *t = all + (size_t)i * WARPGROUPS;
        const cl_uint block = t->row / BLOCK_ROWS;
        const cl_uint number =
            (t->window * args->heads + t->head) * args->row_blocks + block;
        assert_true(t->head < args->heads && number < args->work_tiles);
        assert_false(dealt[number]);
        dealt[number] = true;
        if (block < args->short_row_blocks) {
            assert_true(block <= last);
            last = block;
        } else {
            assert_int_equal(last, UINT32_MAX);
        }
    }
    free(dealt);
}

static void rows_get_what_they_see(void **state)
{
    const cl_kernel kernel = build();
    random_state r = random_seeded(7);
    (void)state;
    for (int round = 0; round < CASES; round++) {
        const forward_args args = random_args(&r);
        const size_t items = (size_t)args.work_tiles * WARPGROUPS;
        told *all = calloc(items, sizeof *all);
        cl_int error;
        assert_non_null(all);
        cl_mem buffer = clCreateBuffer(
            device.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
            items * sizeof *all, all, &error);
        assert_int_equal(error, CL_SUCCESS);
        assert_int_equal(clSetKernelArg(kernel, 0, sizeof args, &args), 0);
        assert_int_equal(clSetKernelArg(kernel, 1, sizeof buffer, &buffer), 0);
        assert_int_equal(clEnqueueNDRangeKernel(device.queue, kernel, 1, NULL,
                                                &items, NULL, 0, NULL, NULL),
                         CL_SUCCESS);
        assert_int_equal(clEnqueueReadBuffer(device.queue, buffer, CL_TRUE, 0,
                                             items * sizeof *all, all, 0, NULL,
                                             NULL),
                         CL_SUCCESS);
        for (size_t i = 0; i < items; i++) {
            assert_in_range(all[i].tiles, 0, MOST_TILES);
            check_rows(&args, &all[i], (cl_uint)(i % WARPGROUPS));
        }
        check_order(&args, all);
        clReleaseMemObject(buffer);
        free(all);
    }
    clReleaseKernel(kernel);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_get_what_they_see),
    };
    const test_group groups[] = {TEST_GROUP(NULL, tests)};
    const test_program program = {.words = {WORD_FIRST, WORD_COUNT},
                                  TEST_GROUPS(groups)};
    return runner_main(&program, count, arguments);
}
