/* SPDX-License-Identifier: Apache-2.0
 * Pictures: read or refused with a reason; what was read can be fitted. */
#include <string.h>

#include "bombs.h"
#include "campaign/fuzz.h"
#include "kit/asserts.h"
#include "swin/files.h"
#include "swin/picture.h"
#include "winattn_models.h"

void add_first_inputs(void)
{
    static const unsigned char block[] = "MM\0*\0\0\0\x8\0\2"
                                         "\1\x0e\0\2\0\0\0\4abc\0"
                                         "\1\x12\0\3\0\0\0\1\0\6\0";
    for (size_t i = 0; golden_pictures[i]; i++) {
        char path[1024], reason[REASON_SIZE];
        size_t size;
        snprintf(path, sizeof path, "%s/pictures/%s", GOLDEN_FOLDER,
                 golden_pictures[i]);
        unsigned char *bytes =
            read_file(path, 1 << 20, NULL, &size, reason, sizeof reason);
        EXPECT(bytes, reason);
        add_input(bytes, size);
        free(bytes);
    }
    add_input(block, sizeof block); /* EXIF by itself */
}

static void read_picture(const uint8_t *data, size_t size)
{
    static unsigned char fitted[3 * 8 * 9];
    picture p;
    char reason[REASON_SIZE] = "";
    winattn_swin_config config = {.struct_size = sizeof config};
    if (!picture_decode(data, size, size % 4 != 0, &p, reason)) {
        EXPECT(reason[0] && !p.pixels, "a refusal without a reason");
        return;
    }
    EXPECT(winattn_swin_config_find("swin_t", &config) == 0, "swin_t");
    config.resize[0] = 10;
    config.crop[0] = 8;
    config.crop[1] = 9;
    EXPECT(winattn_fit_picture(&config, p.height, p.width, 0, p.pixels,
                               fitted) == 0,
           winattn_last_reason());
    picture_free(&p);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    const unsigned orientation = exif_orientation(data, size);
    EXPECT(orientation >= 1 && orientation <= 8, "an orientation of its own");
    read_picture(data, size);
    if (size > 8 && data[0] == 0x89) { /* where no CRC tells */
        unsigned char *png = malloc(size);
        memcpy(png, data, size);
        png_mend(png, size);
        read_picture(png, size);
        free(png);
    }
}
