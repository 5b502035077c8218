/* SPDX-License-Identifier: Apache-2.0
 * Pictures: read or refused with a reason; what was read can be fitted. */
#include <string.h>

#include "fuzz.h"
#include "swin/picture_file.h"
#include "swin/read_file.h"
#include "winattn_models.h"

size_t first_inputs(file_bytes *inputs, size_t most)
{
    static const char *const names[] = {
        "alpha.png",       "bits.png",   "grey.png", "interlaced.png",
        "palette.png",     "wide.png",   "cmyk.jpg", "grey.jpg",
        "progressive.jpg", "colour.jpg", "grey.ppm", "wide.ppm",
    };
    size_t count = 0;
    for (; count < sizeof names / sizeof *names && count < most; count++) {
        char path[1024], reason[REASON_SIZE];
        snprintf(path, sizeof path, "%s/pictures/%s", GOLDEN_FOLDER,
                 names[count]);
        inputs[count].bytes = read_file(path, 1 << 20, &inputs[count].size,
                                        reason, sizeof reason);
        EXPECT(inputs[count].bytes, reason);
    }
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char fitted[3 * 8 * 9];
    picture p;
    char reason[REASON_SIZE] = "";
    winattn_swin_config config = {.struct_size = sizeof config};
    if (!picture_decode(data, size, &p, reason)) {
        EXPECT(reason[0] && !p.pixels, "a refusal without a reason");
        return 0;
    }
    EXPECT(winattn_swin_config_find("swin_t", &config) == 0, "swin_t");
    config.resize[0] = 10;
    config.crop[0] = 8;
    config.crop[1] = 9;
    EXPECT(winattn_fit_picture(&config, p.height, p.width, 0, p.pixels,
                               fitted) == 0,
           winattn_last_reason());
    picture_free(&p);
    return 0;
}
