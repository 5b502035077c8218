/* SPDX-License-Identifier: Apache-2.0
 * The one table of what libraries do with a Swin, each in its own way. Where
 * a library refuses to compute (Microsoft's models take pictures of one size
 * only), winattn goes on as torchvision does. */
#include "models/swin_rules.h"

#include "base/text.h"

/* Seen in torchvision 0.29 (models/swin_transformer.py), timm 1.0.31 and
 * transformers 5.24 (models/swin, swinv2), and Microsoft's repository
 * (models/swin_transformer.py, swin_transformer_v2.py, data/build.py). */
static const wa_swin_rules all_rules[] = {
    {.name = "torchvision",
     .rules = WINATTN_SWIN_RULES_TORCHVISION,
     .shifts = WA_SIDES_EACH},
    {.name = "timm",
     .rules = WINATTN_SWIN_RULES_TIMM,
     .bounds = WA_SIDES_EACH,
     .shifts = WA_SIDES_EACH,
     .is_settled = true,
     .rolls_first = true,
     .numerator = 10,
     .denominator = 9},
    {.name = "Microsoft",
     .rules = WINATTN_SWIN_RULES_MICROSOFT,
     .bounds = WA_SIDES_SHORTER,
     .shifts = WA_SIDES_SHORTER,
     .numerator = 256,
     .denominator = 224},
    /* bounds: its Swin keeps tables of whole windows, and fails on maps that
     * are smaller */
    {.name = "transformers",
     .rules = WINATTN_SWIN_RULES_TRANSFORMERS,
     .generation = 1,
     .shifts = WA_SIDES_SHORTER,
     .pads_pictures = true,
     .keeps_eps = true,
     .numerator = 1,
     .denominator = 1},
    {.name = "transformers",
     .rules = WINATTN_SWIN_RULES_TRANSFORMERS,
     .generation = 2,
     .bounds = WA_SIDES_HEIGHT,
     .shifts = WA_SIDES_HEIGHT,
     .is_settled = true,
     .floors = true,
     .pads_pictures = true,
     .keeps_eps = true,
     .numerator = 1,
     .denominator = 1},
};

#define RULES (sizeof all_rules / sizeof *all_rules)

/* timm's weights for such pictures and larger ones are not cut. */
#define TIMM_UNCUT 384

const wa_swin_rules *wa_swin_rules_of(const wa_swin_config *config)
{
    for (size_t i = 0; i < RULES; i++)
        if (all_rules[i].rules == config->rules &&
            (!all_rules[i].generation ||
             all_rules[i].generation == config->generation))
            return &all_rules[i];
    return &all_rules[0];
}

const char *wa_swin_rules_name(winattn_swin_rules rules)
{
    for (size_t i = 0; i < RULES; i++)
        if (all_rules[i].rules == rules)
            return all_rules[i].name;
    return NULL;
}

void wa_swin_rules_say(const wa_swin_config *config, char *text, size_t size)
{
    static const char *const shifts[] = {
        [WA_SIDES_EACH] = "each axis that is longer than its window",
        [WA_SIDES_SHORTER] = "both axes where the shorter one is longer than "
                             "its window",
        [WA_SIDES_HEIGHT] = "both axes where the height is more than its "
                            "window"};
    const wa_swin_rules *rules = wa_swin_rules_of(config);
    wa_append(text, size, "computed as %s does: windows of", rules->name);
    for (uint32_t i = 0; i < config->stages; i++)
        wa_append(text, size, "%s %ux%u", i ? "," : "",
                  (unsigned)config->window[i][0],
                  (unsigned)config->window[i][1]);
    wa_append(text, size, ", shifted %s", shifts[rules->shifts]);
    if (rules->is_settled && config->image[0])
        wa_append(text, size, " in pictures of %ux%u",
                  (unsigned)config->image[0], (unsigned)config->image[1]);
    wa_append(text, size, ", %s",
              rules->rolls_first ? "rolled, then padded"
                                 : "padded, then rolled");
}

uint32_t wa_swin_patches(const wa_swin_config *config, int axis,
                         uint32_t pixels)
{
    const uint32_t patch = config->patch[axis];
    const bool pads = wa_swin_rules_of(config)->pads_pictures;
    return pixels / patch + (pads && pixels % patch != 0);
}

/* The map of a stage in pictures of config.image. */
static void settled_size(const wa_swin_config *config, uint32_t stage,
                         uint32_t size[2])
{
    const bool floors = wa_swin_rules_of(config)->floors;
    for (int a = 0; a < 2; a++) {
        size[a] = config->image[a] / config->patch[a];
        for (uint32_t i = 0; i < stage; i++)
            size[a] = size[a] / 2 + (!floors && size[a] % 2);
    }
}

/* The side of a map that is compared with a window of `axis`. */
static uint32_t side_of(wa_swin_sides sides, const uint32_t size[2], int axis)
{
    if (sides == WA_SIDES_EACH)
        return size[axis];
    return sides == WA_SIDES_HEIGHT || size[0] < size[1] ? size[0] : size[1];
}

void wa_swin_bound_window(const wa_swin_config *config, uint32_t stage,
                          cl_uint window[2])
{
    const wa_swin_sides bounds = wa_swin_rules_of(config)->bounds;
    uint32_t size[2];
    if (bounds == WA_SIDES_NONE || !config->image[0] || !config->image[1] ||
        !config->patch[0] || !config->patch[1])
        return;
    settled_size(config, stage, size);
    for (int a = 0; a < 2; a++) {
        const uint32_t side = side_of(bounds, size, a);
        window[a] = window[a] < side ? window[a] : side;
    }
}

void wa_swin_shift(const wa_swin_config *config, uint32_t stage,
                   const uint32_t size[2], uint32_t shift[2])
{
    const wa_swin_rules *rules = wa_swin_rules_of(config);
    const cl_uint *window = config->window[stage];
    uint32_t judged[2] = {size[0], size[1]};
    if (rules->is_settled && config->image[0])
        settled_size(config, stage, judged);
    for (int a = 0; a < 2; a++)
        shift[a] =
            side_of(rules->shifts, judged, a) > window[a] ? window[a] / 2 : 0;
}

void wa_swin_resize(const wa_swin_config *config, const cl_uint named[2],
                    cl_uint resize[2])
{
    const wa_swin_rules *rules = wa_swin_rules_of(config);
    const cl_uint *crop = config->crop;
    resize[0] = resize[1] = 0;
    if (!rules->denominator) {
        resize[0] = named[0];
        resize[1] = named[1];
    } else if (rules->numerator == rules->denominator) {
        resize[0] = crop[0];
        resize[1] = crop[1];
    } else if (crop[0] == crop[1]) {
        resize[0] =
            rules->rules == WINATTN_SWIN_RULES_TIMM && crop[0] >= TIMM_UNCUT
                ? crop[0]
                : (cl_uint)((uint64_t)crop[0] * rules->numerator /
                            rules->denominator);
    }
}
