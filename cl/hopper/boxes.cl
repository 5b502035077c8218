/* SPDX-License-Identifier: Apache-2.0
 * Rows that come as boxes of a tensor map (matrix/tensor_maps.cl; PTX ISA,
 * "cp.async.bulk.tensor"): one work-item asks for a tile, and the barrier that
 * says it is filled counts its bytes. Products see them without a fence. */
#include "hopper/mbarrier.cl"
#include "matrix/tensor_maps.cl"

typedef char panels_are_boxes
    [MAP_CHANNELS == PANEL_CHANNELS && MAP_ROWS == WARPGROUP_ROWS ? 1 : -1];

/* Before a work-item's first copy by the map, which another launch wrote. */
INLINE void acquire_map(__global const ulong *map)
{
    __asm__ volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], %1;"
                     :
                     : "l"((size_t)map), "n"(TENSOR_MAP_BYTES)
                     : "memory");
}

/* And that as many bytes are to come. */
INLINE void arrive_expecting(uint at, uint bytes)
{
    __asm__ volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                     :
                     : "r"(at), "r"(bytes)
                     : "memory");
}

INLINE void copy_box(uint to, __global const ulong *map, uint channel,
                     uint row, uint head, uint window, uint filled)
{
    __asm__ volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile"
        ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];"
        :
        : "r"(to), "l"((size_t)map), "r"(channel), "r"(row), "r"(head),
          "r"(window), "r"(filled)
        : "memory");
}

/* A head of a mapped tensor. */
typedef struct mapped_plane {
    __global const ulong *map;
    uint head, window; /* of the launch */
} mapped_plane;

INLINE mapped_plane find_mapped_plane(__global float *workspace,
                                      const backward_args *args, uint n,
                                      ulong window, uint head)
{
    const mapped_plane p = {tensor_map(workspace, args, n), head,
                            (uint)(window - args->forward.first_window)};
    return p;
}

/* 64 rows from `first` on, with zeros past the last one; the barrier expects
 * KEY_BYTES for them. */
INLINE void fetch_box(uint to, const mapped_plane *plane, uint first,
                      uint filled)
{
    UNROLL_FOR (uint panel = 0; panel < PANELS; panel++)
        copy_box(to + panel * (MAP_ROWS * ROW_BYTES), plane->map,
                 panel * PANEL_CHANNELS, first, plane->head, plane->window,
                 filled);
}
