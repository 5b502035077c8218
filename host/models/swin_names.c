/* SPDX-License-Identifier: Apache-2.0
 * Tables of names, one for each library. */
#include "models/swin_names.h"

#include <stdio.h>
#include <string.h>

/* Microsoft's and timm's names, which differ in the head and in where the
 * merging stands: with the stage before it, or with the one after. */
#define TIMM_NAMES                                                            \
    .patch = "patch_embed.proj", .patch_norm = "patch_embed.norm",            \
    .norm = "norm", .stages = "layers.", .blocks = ".blocks.", .step = 1,     \
    .parts = {[WA_PART_NORM1] = "norm1",                                      \
              [WA_PART_NORM2] = "norm2",                                      \
              [WA_PART_QKV] = "attn.qkv",                                     \
              [WA_PART_PROJ] = "attn.proj",                                   \
              [WA_PART_FC1] = "mlp.fc1",                                      \
              [WA_PART_FC2] = "mlp.fc2",                                      \
              [WA_PART_ATTENTION] = "attn",                                   \
              [WA_PART_POSITION_MLP] = "attn.cpb_mlp",                        \
              [WA_PART_MERGE_NORM] = "downsample.norm",                       \
              [WA_PART_MERGE_LINEAR] = "downsample.reduction"}

#define TRANSFORMERS_NAMES                                                    \
    .patch = "embeddings.patch_embeddings.projection",                        \
    .patch_norm = "embeddings.norm", .norm = "layernorm",                     \
    .head = "classifier", .stages = "encoder.layers.", .blocks = ".blocks.",  \
    .step = 1

static const char module_positions[] =
    "attention.relative_position_bias.continuous_position_bias_mlp";

static const wa_swin_names all_names[] = {
    {.origin = "torchvision",
     .patch = "features.0.0",
     .patch_norm = "features.0.2",
     .norm = "norm",
     .head = "head",
     .stages = "features.",
     .blocks = ".",
     .step = 2,
     .first = 1,
     .merge = 2,
     .parts = {[WA_PART_NORM1] = "norm1",
               [WA_PART_NORM2] = "norm2",
               [WA_PART_QKV] = "attn.qkv",
               [WA_PART_PROJ] = "attn.proj",
               [WA_PART_FC1] = "mlp.0",
               [WA_PART_FC2] = "mlp.3",
               [WA_PART_ATTENTION] = "attn",
               [WA_PART_POSITION_MLP] = "attn.cpb_mlp",
               [WA_PART_MERGE_NORM] = "norm",
               [WA_PART_MERGE_LINEAR] = "reduction"}},
    {.origin = "timm", .head = "head.fc", .merge = 1, TIMM_NAMES},
    {.origin = "Microsoft", .head = "head", TIMM_NAMES},
    {.origin = "transformers",
     TRANSFORMERS_NAMES,
     .parts = {[WA_PART_NORM1] = "layernorm_before",
               [WA_PART_NORM2] = "layernorm_after",
               [WA_PART_QUERY] = "attention.self.query",
               [WA_PART_KEY] = "attention.self.key",
               [WA_PART_VALUE] = "attention.self.value",
               [WA_PART_PROJ] = "attention.output.dense",
               [WA_PART_FC1] = "intermediate.dense",
               [WA_PART_FC2] = "output.dense",
               [WA_PART_ATTENTION] = "attention.self",
               [WA_PART_POSITION_MLP] =
                   "attention.self.continuous_position_bias_mlp",
               [WA_PART_MERGE_NORM] = "downsample.norm",
               [WA_PART_MERGE_LINEAR] = "downsample.reduction"}},
    /* what its modules have inside since version 5 */
    {.origin = "transformers (modules)",
     TRANSFORMERS_NAMES,
     .parts = {[WA_PART_NORM1] = "layernorm_before",
               [WA_PART_NORM2] = "layernorm_after",
               [WA_PART_QUERY] = "attention.q_proj",
               [WA_PART_KEY] = "attention.k_proj",
               [WA_PART_VALUE] = "attention.v_proj",
               [WA_PART_PROJ] = "attention.o_proj",
               [WA_PART_FC1] = "mlp.fc1",
               [WA_PART_FC2] = "mlp.fc2",
               [WA_PART_ATTENTION] = "attention.relative_position_bias",
               [WA_PART_POSITION_MLP] = module_positions,
               [WA_PART_MERGE_NORM] = "downsample.norm",
               [WA_PART_MERGE_LINEAR] = "downsample.reduction"}},
};

/* What libraries put before the names of a model inside another one. */
static const char *const prefixes[] = {"", "swin.", "swinv2."};

void wa_name_rest(const char *prefix, const char *part, const char *suffix,
                  char name[WA_NAME_SIZE])
{
    snprintf(name, WA_NAME_SIZE, "%s%s.%s", prefix, part, suffix);
}

void wa_name_block(const wa_swin_names *names, const char *prefix,
                   uint32_t stage, uint32_t block, wa_swin_part part,
                   const char *suffix, char name[WA_NAME_SIZE])
{
    snprintf(name, WA_NAME_SIZE, "%s%s%u%s%u.%s.%s", prefix, names->stages,
             (unsigned)(names->step * stage + names->first), names->blocks,
             (unsigned)block, names->parts[part], suffix);
}

void wa_name_merge(const wa_swin_names *names, const char *prefix,
                   uint32_t stage, wa_swin_part part, const char *suffix,
                   char name[WA_NAME_SIZE])
{
    snprintf(name, WA_NAME_SIZE, "%s%s%u.%s.%s", prefix, names->stages,
             (unsigned)(names->step * stage + names->merge),
             names->parts[part], suffix);
}

static bool has_patch(const wa_safetensors *file, const wa_swin_names *names,
                      const char *prefix)
{
    char name[WA_NAME_SIZE];
    wa_name_rest(prefix, names->patch, "weight", name);
    return wa_safetensors_find(file, name) != NULL;
}

/* Has it also a block and, in which some names differ, the first merging of
 * such names, or where there is but one stage, the head? */
static bool has_all(const wa_safetensors *file, const wa_swin_names *names,
                    const char *prefix)
{
    char block[WA_NAME_SIZE], next[WA_NAME_SIZE], last[WA_NAME_SIZE];
    wa_name_block(names, prefix, 0, 0, WA_PART_PROJ, "weight", block);
    wa_name_block(names, prefix, 1, 0, WA_PART_PROJ, "weight", next);
    if (wa_safetensors_find(file, next))
        wa_name_merge(names, prefix, 0, WA_PART_MERGE_LINEAR, "weight", last);
    else
        wa_name_rest("", names->head, "weight", last);
    return has_patch(file, names, prefix) &&
           wa_safetensors_find(file, block) && wa_safetensors_find(file, last);
}

const wa_swin_names *wa_swin_names_of(const wa_safetensors *file,
                                      const char **prefix)
{
    /* where a file lacks something, its other names are as good as any */
    for (int strict = 1; strict >= 0; strict--)
        for (size_t i = 0; i < sizeof all_names / sizeof *all_names; i++)
            for (size_t j = 0; j < sizeof prefixes / sizeof *prefixes; j++)
                if (strict ? has_all(file, &all_names[i], prefixes[j])
                           : has_patch(file, &all_names[i], prefixes[j])) {
                    *prefix = prefixes[j];
                    return &all_names[i];
                }
    return NULL;
}

bool wa_name_is_buffer(const char *name)
{
    static const char *const buffers[] = {
        "relative_position_index", "relative_coords_table", "attn_mask"};
    const char *last = strrchr(name, '.');
    for (size_t i = 0; last && i < sizeof buffers / sizeof *buffers; i++)
        if (strcmp(last + 1, buffers[i]) == 0)
            return true;
    return false;
}
