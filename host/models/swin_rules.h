/* SPDX-License-Identifier: Apache-2.0
 * What libraries make of the same Swin: where their models differ. */
#ifndef WINATTN_SWIN_RULES_H
#define WINATTN_SWIN_RULES_H

#include "models/swin_weights.h"

/* Which sides of a map are compared with those of a window. */
typedef enum wa_swin_sides {
    WA_SIDES_NONE,    /* none */
    WA_SIDES_EACH,    /* each of its own axis */
    WA_SIDES_SHORTER, /* the shorter one, for both axes */
    WA_SIDES_HEIGHT   /* the height, for both axes */
} wa_swin_sides;

/* One library's models of one generation. */
typedef struct wa_swin_rules {
    const char *name; /* for people */
    winattn_swin_rules rules;
    cl_uint generation;
    /* A window becomes no larger than these sides of its stage's map, in the
     * pictures that the model is made for. */
    wa_swin_sides bounds;
    /* Blocks are shifted where these sides are larger than the window; where
     * both axes share a side, both are shifted or none. */
    wa_swin_sides shifts;
    /* That is settled when the model is made, for pictures of config.image,
     * and stays for pictures of other sizes. */
    bool is_settled;
    bool floors; /* an odd map's half is rounded down where that settles */
    bool rolls_first;   /* maps are rolled, then padded to whole windows */
    bool pads_pictures; /* to whole patches, by zeros behind the norm */
    bool keeps_eps;     /* norms of patches and mergers have 1e-5 always */
    /* Pictures of crop x crop are resized to crop * numerator / denominator
     * first, of both sides if both are 1. 0: as the named model says. */
    uint32_t numerator, denominator;
} wa_swin_rules;

/* The rules that config.rules names; without a name torchvision's. */
const wa_swin_rules *wa_swin_rules_of(const wa_swin_config *config);

/* The name of rules for people; NULL: there are no such. */
const char *wa_swin_rules_name(winattn_swin_rules rules);

/* Appends what the model's rules mean for it: "computed as timm does ...". */
void wa_swin_rules_say(const wa_swin_config *config, char *text, size_t size);

/* Windows of a stage become as small as the rules have them for pictures of
 * config.image; as they are where that is 0. */
void wa_swin_bound_window(const wa_swin_config *config, uint32_t stage,
                          cl_uint window[2]);

/* How far every second block of a stage is shifted on a map of that size. */
void wa_swin_shift(const wa_swin_config *config, uint32_t stage,
                   const uint32_t size[2], uint32_t shift[2]);

/* Resizing of pictures that are cut to config.crop; zeros: not known. */
void wa_swin_resize(const wa_swin_config *config, const cl_uint named[2],
                    cl_uint resize[2]);

/* Patches along an axis of `pixels`. */
uint32_t wa_swin_patches(const wa_swin_config *config, int axis,
                         uint32_t pixels);

#endif
