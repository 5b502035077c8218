/* SPDX-License-Identifier: Apache-2.0
 * A program with functions of its own that have names of winattn's inner ones:
 * neither library may call them, though a program's come first where a shared
 * library's names are looked up. */
#include <stdio.h>
#include <string.h>

#include <winattn_models.h>

int wa_fail(int status, const char *format, ...);
void wa_append(char *text, size_t size, const char *format, ...);
void wa_forget_failure(void);
int wa_read_struct(void);

static int calls;

int wa_fail(int status, const char *format, ...)
{
    (void)status;
    (void)format;
    return calls++ * 0;
}

void wa_append(char *text, size_t size, const char *format, ...)
{
    (void)text;
    (void)size;
    (void)format;
    calls++;
}

void wa_forget_failure(void) { calls++; }
int wa_read_struct(void) { return calls++ * 0; }

/* The library's own reason of a refusal, which names what is wrong. */
static int refused(winattn_status status, const char *word)
{
    const char *reason = winattn_last_reason();
    if (status == WINATTN_INVALID_ARGUMENT && strstr(reason, word))
        return 1;
    fprintf(stderr, "%s, \"%s\": no word of %s\n", winattn_status_name(status),
            reason, word);
    return 0;
}

int main(void)
{
    winattn_linear_desc desc = {0};
    winattn_plan *plan = NULL;
    winattn_linear_plan *linear = NULL;
    const int good =
        refused(winattn_plan_create(NULL, NULL, NULL, &plan), "NULL") +
        refused(winattn_linear_plan_create(NULL, NULL, &desc, &linear),
                "struct_size");
    if (calls)
        fprintf(stderr, "winattn called the program's functions\n");
    return good == 2 && calls == 0 ? 0 : 1;
}
