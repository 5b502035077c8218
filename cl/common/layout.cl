/* SPDX-License-Identifier: Apache-2.0
 * Where the parts of a tensor start, in elements: planes, and elements of what
 * has no tokens. Those of tokens are found in tokens.cl. */
#include "common/language.cl"

/* Offset of the plane of a window's grid (or of the window) and a head. */
INLINE ulong plane(const tensor_layout *layout, ulong window, uint head)
{
    return layout->offset + window * layout->window + head * layout->head;
}

/* Of a tensor without tokens on a grid: bias, mask, regions, sums. */
INLINE ulong element(const tensor_layout *layout, uint row, uint column)
{
    return (ulong)row * layout->row + (ulong)column * layout->column;
}
