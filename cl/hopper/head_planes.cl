/* SPDX-License-Identifier: Apache-2.0
 * A head's rows in sliding attention, as the producer copies them. */
#include "common/problem.cl"

typedef struct row_plane {
    __global const storage *rows;
    uint pitch; /* elements from row to row */
    uint last;  /* row */
} row_plane;

INLINE row_plane plane_of(__global const storage *tensor,
                          const tensor_layout *layout, ulong window, uint head,
                          uint rows)
{
    const row_plane p = {tensor + plane(layout, window, head), layout->row,
                         rows - 1};
    return p;
}
