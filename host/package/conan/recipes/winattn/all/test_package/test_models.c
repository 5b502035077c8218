/* SPDX-License-Identifier: Apache-2.0
 * Is the library of models there, of the header's version, and can it read
 * files of weights? Needs no device. */
#include <stdio.h>
#include <winattn_models.h>

/* A file of safetensors without a tensor, which is read and then refused. */
static int write_file(const char *path)
{
    static const char bytes[] = "\2\0\0\0\0\0\0\0{}";
    FILE *file = fopen(path, "wb");
    size_t written = file ? fwrite(bytes, 1, sizeof bytes - 1, file) : 0;
    return file && fclose(file) == 0 && written == sizeof bytes - 1;
}

int main(void)
{
    static const char path[] = "test_models.safetensors";
    winattn_swin_weights *weights;
    winattn_status status;
    if (!write_file(path))
        return 1;
    status = winattn_swin_weights_open(path, NULL, &weights);
    remove(path);
    printf("winattn_models %d, %s: %s\n", winattn_models_version(),
           winattn_status_name(status), winattn_last_reason());
    return winattn_models_version() != WINATTN_VERSION ||
           status != WINATTN_INVALID_FILE;
}
