/* SPDX-License-Identifier: Apache-2.0
 * How the producer of a linear layer brings panels of matrices. */
#include "hopper/linear_layer.cl"

/* Rows that the producer's work-items have at a time, eight each. */
#define FETCHED_ROWS (WARPGROUP / 8)

/* Rows of a matrix, of which those past the last are like it. */
typedef struct panel_rows {
    __global const storage *from; /* of the panel, in row 0 */
    ulong stride;
    uint first, last;
    uint chunks; /* of 16 bytes that rows have in the panel */
    int wide;    /* rows allow copies of 16 bytes */
} panel_rows;

INLINE void fetch_panel(uint to, const panel_rows *p, const uint count,
                        uint item)
{
    const uint chunk = item % 8;
    uint row = item / 8;
    __global const storage *from = p->from + chunk * CHUNK;
    to += row * ROW_BYTES + (chunk ^ row % 8) * 16;
    if (chunk >= p->chunks)
        return;
    if (p->wide && p->first + count - 1 <= p->last) {
        from += (p->first + row) * p->stride;
        UNROLL_FOR (uint i = 0; i < count; i += FETCHED_ROWS) {
            copy_chunk(to + i * ROW_BYTES, from);
            from += FETCHED_ROWS * p->stride;
        }
        return;
    }
    NO_UNROLL_FOR (; row < count; row += FETCHED_ROWS) {
        __global const storage *own =
            from + min(p->first + row, p->last) * p->stride;
        if (p->wide)
            copy_chunk(to, own);
        else
            fetch_elements(to, own);
        to += FETCHED_ROWS * ROW_BYTES;
    }
}

/* How many there are of `numbers` from a panel's first on. */
INLINE uint chunks_of(int numbers)
{
    return (uint)clamp(numbers, 0, STAGE_DIMS) / CHUNK;
}
