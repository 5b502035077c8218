/* SPDX-License-Identifier: Apache-2.0
 * Tables of names, one for each library. */
#include "models/swin_file.h"

#include <string.h>

#include "base/status.h"
#include "base/text.h"

/* Microsoft's and timm's names, which differ in the head and in where the
 * merging stands: with the stage before it, or with the one after. */
#define TIMM_NAMES                                                            \
    .patch = "patch_embed.proj", .patch_norm = "patch_embed.norm",            \
    .norm = "norm", .blocks = ".blocks.", .step = 1,                          \
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
    .rules = WINATTN_SWIN_RULES_TRANSFORMERS, .inner = {"swin.", "swinv2."},  \
    .patch = "embeddings.patch_embeddings.projection",                        \
    .patch_norm = "embeddings.norm", .norm = "layernorm",                     \
    .head = "classifier", .stages = "encoder.layers.", .blocks = ".blocks.",  \
    .step = 1

static const char module_positions[] =
    "attention.relative_position_bias.continuous_position_bias_mlp";

static const wa_swin_names all_names[] = {
    {.origin = "torchvision",
     .rules = WINATTN_SWIN_RULES_TORCHVISION,
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
    /* In front of timm's, as its mergers of later stages have names that
     * timm's have, too, but timm's first stage has none. */
    {.origin = "Microsoft",
     .rules = WINATTN_SWIN_RULES_MICROSOFT,
     .head = "head",
     .stages = "layers.",
     TIMM_NAMES},
    {.origin = "timm",
     .rules = WINATTN_SWIN_RULES_TIMM,
     .head = "head.fc",
     .stages = "layers.",
     .merge = 1,
     TIMM_NAMES},
    {.origin = "timm (features_only)",
     .rules = WINATTN_SWIN_RULES_TIMM,
     .head = "head.fc",
     .stages = "layers_",
     .merge = 1,
     TIMM_NAMES},
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

void wa_name_rest(const char *prefix, const char *part, const char *suffix,
                  char name[WA_NAME_SIZE])
{
    name[0] = 0;
    wa_append(name, WA_NAME_SIZE, "%s%s.%s", prefix, part, suffix);
}

void wa_name_block(const wa_swin_names *names, const char *prefix,
                   uint32_t stage, uint32_t block, wa_swin_part part,
                   const char *suffix, char name[WA_NAME_SIZE])
{
    name[0] = 0;
    wa_append(name, WA_NAME_SIZE, "%s%s%u%s%u.%s.%s", prefix, names->stages,
              (unsigned)(names->step * stage + names->first), names->blocks,
              (unsigned)block, names->parts[part], suffix);
}

void wa_name_merge(const wa_swin_names *names, const char *prefix,
                   uint32_t stage, wa_swin_part part, const char *suffix,
                   char name[WA_NAME_SIZE])
{
    name[0] = 0;
    wa_append(name, WA_NAME_SIZE, "%s%s%u.%s.%s", prefix, names->stages,
              (unsigned)(names->step * stage + names->merge),
              names->parts[part], suffix);
}

static bool has_block(const wa_safetensors *file, const wa_swin_names *names,
                      const wa_swin_prefix *prefix, uint32_t stage)
{
    char name[WA_NAME_SIZE];
    wa_name_block(names, prefix->model, stage, 0, WA_PART_PROJ, "weight",
                  name);
    return wa_safetensors_find(file, name) != NULL;
}

/* Has the file that in which some names differ: a part of the first merging
 * or, where there is but one stage, of the head? */
static bool has_mark(const wa_safetensors *file, const wa_swin_names *names,
                     const wa_swin_prefix *prefix)
{
    static const char *const suffixes[] = {"weight", "bias"};
    const bool merges = has_block(file, names, prefix, 1);
    char name[WA_NAME_SIZE];
    for (size_t i = 0; i < 3; i++) {
        const char *suffix = suffixes[i % 2];
        if (merges)
            wa_name_merge(names, prefix->model, 0,
                          i < 2 ? WA_PART_MERGE_NORM : WA_PART_MERGE_LINEAR,
                          suffix, name);
        else
            wa_name_rest(prefix->wrapper, names->head, suffix, name);
        if (wa_safetensors_find(file, name))
            return true;
    }
    return false;
}

/* Does the name end with that part's, at a point? Then what is before it is
 * the model's prefix. */
static bool split(const char *name, const wa_swin_names *names,
                  wa_swin_prefix *prefix)
{
    char end[WA_NAME_SIZE];
    wa_name_rest("", names->patch, "weight", end);
    const size_t length = strlen(name), tail = strlen(end);
    if (length < tail || length >= WA_NAME_SIZE ||
        strcmp(name + length - tail, end) != 0 ||
        (length > tail && name[length - tail - 1] != '.'))
        return false;
    memcpy(prefix->model, name, length - tail);
    prefix->model[length - tail] = 0;
    memcpy(prefix->wrapper, prefix->model, length - tail + 1);
    for (size_t i = 0; i < WA_INNER_NAMES && names->inner[i]; i++) {
        const size_t size = strlen(names->inner[i]);
        if (length - tail >= size &&
            strcmp(prefix->model + length - tail - size, names->inner[i]) == 0)
            prefix->wrapper[length - tail - size] = 0;
    }
    return true;
}

/* The patch embedding under such names; where several have it, the file has
 * several models. */
static winattn_status find_patch(const wa_safetensors *file,
                                 const wa_swin_names *names, bool *found,
                                 wa_swin_prefix *prefix)
{
    wa_swin_prefix other;
    *found = false;
    for (size_t i = 0; i < wa_safetensors_count(file); i++) {
        const char *name = wa_safetensors_at(file, i)->name;
        if (!split(name, names, *found ? &other : prefix))
            continue;
        if (*found)
            return WA_BAD_FILE("the file has several models: one behind "
                               "\"%.64s\" and one behind \"%.64s\"",
                               prefix->model, other.model);
        *found = true;
    }
    return WINATTN_SUCCESS;
}

winattn_status wa_swin_names_of(const wa_safetensors *file,
                                const wa_swin_names **names,
                                wa_swin_prefix *prefix)
{
    /* where a file lacks something, its other names are as good as any */
    for (int strict = 2; strict >= 0; strict--)
        for (size_t i = 0; i < sizeof all_names / sizeof *all_names; i++) {
            bool found;
            *names = &all_names[i];
            WA_TRY(find_patch(file, *names, &found, prefix));
            if (found && (strict < 1 || has_block(file, *names, prefix, 0)) &&
                (strict < 2 || has_mark(file, *names, prefix)))
                return WINATTN_SUCCESS;
        }
    return WA_BAD_FILE(
        "the file has no patch embedding under a name that torchvision, timm, "
        "Microsoft or transformers give it in a Swin");
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
