/* SPDX-License-Identifier: Apache-2.0
 * Accesses to memory, to whom they are of concern: local, global or private
 * memory. */
#include "ptx_races.h"
#include "ptx_unset.h"

static bool is_local(const ptx_group *group, const unsigned char *at)
{
    return at >= group->shared &&
           at < group->shared + group->kernel->shared_bytes;
}

static bool is_global(const ptx_group *group, const unsigned char *at)
{
    return group->recent.start && at >= group->recent.start &&
           (size_t)(at - group->recent.start) < group->recent.bytes;
}

unsigned ptx_reads(ptx_wave *wave, unsigned lane, const unsigned char *at,
                   size_t size, unsigned count)
{
    const ptx_group *group = wave->group;
    unsigned unset = 0;
    if (is_local(group, at)) {
        const size_t offset = (size_t)(at - group->shared);
        for (unsigned n = 0; n < count; n++)
            unset |=
                (unsigned)ptx_local_read(wave, lane, offset + n * size, size)
                << n;
    } else if (is_global(group, at)) {
        ptx_global_read(wave, lane, at, size * count);
    } else {
        for (unsigned n = 0; n < count; n++)
            unset |= (unsigned)ptx_private_is_unset(wave, at + n * size, size)
                     << n;
    }
    return unset;
}

void ptx_writes(ptx_wave *wave, unsigned lane, const unsigned char *at,
                size_t bytes, bool changes)
{
    const ptx_group *group = wave->group;
    if (is_local(group, at))
        ptx_local_write(wave, lane, (size_t)(at - group->shared), bytes,
                        changes);
    else if (is_global(group, at))
        ptx_global_write(wave, lane, at, bytes);
}

void ptx_changes(ptx_wave *wave, unsigned lane, const unsigned char *at,
                 size_t bytes)
{
    const ptx_group *group = wave->group;
    if (is_local(group, at))
        ptx_local_atomic(wave, lane, (size_t)(at - group->shared), bytes);
    else if (is_global(group, at))
        ptx_global_atomic(wave, lane, at, bytes);
}
