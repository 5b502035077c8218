/* SPDX-License-Identifier: Apache-2.0
 * Binaries of NVIDIA's driver are PTX: here one kernel with a mark and a
 * directive (host/program/ptx.h), and as comments what the stand-in knows of
 * it. Only what was rewritten for sm_90a is taken back. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>

#define PLAIN_HEAD ".version 9.0\n.target sm_90, texmode_independent\n"
#define HEAD ".version 9.0\n.target sm_90a, texmode_independent\n"
#define COMMENT "// "
#define PLAIN_BODY                                                            \
    "{\n\t//@! .maxnreg 96\n\t//@ fence.proxy.async;\n\tret;\n}\n"
#define BODY "{\nfence.proxy.async;\n\tret;\n}\n"
#define DIRECTIVE ".maxnreg 96\n"

bool ptx_is_for(const kernel_list *kernels)
{
    static const char ending[] = "_wgmma";
    const size_t last = sizeof ending - 1;
    if (kernels->count != 1)
        return false;
    const char *name = kernels->all[0].name;
    return strlen(name) > last &&
           strcmp(name + strlen(name) - last, ending) == 0;
}

/* The entry with what stands in front of its body. */
static void write_entry(char *entry, size_t size, const kernel_facts *kernel,
                        bool rewritten)
{
    snprintf(entry, size, ".entry %s()\n.reqntid %zu, 1, 1\n%s", kernel->name,
             kernel->work_group, rewritten ? DIRECTIVE : "");
}

static const char digits[] = "0123456789abcdef";

char *ptx_write(const unsigned char *binary, size_t size,
                const kernel_facts *kernel, bool rewritten)
{
    char *text = own_calloc(2 * size + 1024, 1), *to = text;
    char entry[256];
    to += sprintf(to, "%s" COMMENT, rewritten ? HEAD : PLAIN_HEAD);
    for (size_t i = 0; i < size; i++) {
        *to++ = digits[binary[i] / 16];
        *to++ = digits[binary[i] % 16];
    }
    write_entry(entry, sizeof entry, kernel, rewritten);
    sprintf(to, "\n%s%s", entry, rewritten ? BODY : PLAIN_BODY);
    return text;
}

bool ptx_starts(const char *text)
{
    return strncmp(text, ".version", strlen(".version")) == 0;
}

unsigned char *ptx_read(const char *text, size_t *size)
{
    const char *at = text + strlen(HEAD COMMENT);
    if (strncmp(text, HEAD COMMENT, strlen(HEAD COMMENT)) != 0)
        return NULL;
    *size = strspn(at, digits) / 2;
    unsigned char *binary = own_calloc(*size + 1, 1);
    for (size_t i = 0; i < 2 * *size; i++)
        binary[i / 2] = (unsigned char)(binary[i / 2] * 16 +
                                        (strchr(digits, at[i]) - digits));
    return binary;
}

bool ptx_ends_well(const char *text, const kernel_facts *kernel)
{
    char entry[256];
    write_entry(entry, sizeof entry, kernel, true);
    const char *at = strstr(text, entry);
    if (!at || strncmp(at + strlen(entry), BODY, strlen(BODY)) != 0)
        return false;
    at += strlen(entry) + strlen(BODY);
    /* nothing more, or a comment */
    return !*at || (strncmp(at, COMMENT, strlen(COMMENT)) == 0 &&
                    at[strcspn(at, "\n")] && !at[strcspn(at, "\n") + 1]);
}
