/* SPDX-License-Identifier: Apache-2.0
 * Stands for safetensors_header.c and swin_keys.c in a build without cJSON.
 */
#include "base/status.h"
#include "models/safetensors_header.h"
#include "models/swin_file.h"

static winattn_status fail(void)
{
    return WA_UNSUPPORTED("safetensors files cannot be read: the library was "
                          "built without cJSON");
}

winattn_status wa_header_read(const char *text, size_t size,
                              const unsigned char *data, uint64_t data_size,
                              wa_header *header)
{
    (void)text, (void)size, (void)data, (void)data_size;
    *header = (wa_header){0};
    return fail();
}

void wa_header_free(wa_header *header) { (void)header; }

winattn_status wa_index_read(const char *text, size_t size, wa_index *index)
{
    (void)text, (void)size;
    *index = (wa_index){0};
    return fail();
}

void wa_index_free(wa_index *index) { (void)index; }

winattn_status wa_swin_beside_read(const char *path, const wa_swin_file *file,
                                   const wa_swin_config *config,
                                   wa_swin_beside *beside)
{
    (void)path, (void)file, (void)config;
    *beside = (wa_swin_beside){0};
    return WINATTN_SUCCESS;
}
