/* SPDX-License-Identifier: Apache-2.0
 * Guarded memory, by mmap and mprotect. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE */
#include "guarded.h"

#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define AREAS 64 /* at once */

/* What the signal's handler may look through. */
static const guarded_area *volatile areas[AREAS];
static const char *doing_what = "";
static volatile int reported;

static size_t page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

bool guarded_make(guarded_area *area, const char *name, size_t size,
                  bool at_end)
{
    const size_t page = page_size();
    const size_t inner = (size + page - 1) / page * page;
    memset(area, 0, sizeof *area);
    void *map = mmap(NULL, inner + 2 * page, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return false;
    area->map = map;
    area->mapped = inner + 2 * page;
    area->at = area->map + page + (at_end ? inner - size : 0);
    area->size = size;
    area->name = name;
    if (mprotect(area->map + page, inner, PROT_READ | PROT_WRITE) != 0) {
        guarded_free(area);
        return false;
    }
    for (int i = 0; i < AREAS; i++)
        if (!areas[i]) {
            areas[i] = area;
            break;
        }
    return true;
}

void guarded_free(guarded_area *area)
{
    for (int i = 0; i < AREAS; i++)
        if (areas[i] == area)
            areas[i] = NULL;
    if (area->map)
        munmap(area->map, area->mapped);
    memset(area, 0, sizeof *area);
}

static void say(const char *text)
{
    const ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written; /* nothing could be done about it */
}

static void report(int signal_number, siginfo_t *info, void *context)
{
    const unsigned char *address = info->si_addr;
    (void)signal_number;
    (void)context;
    if (__sync_fetch_and_add(&reported, 1) != 0)
        pause(); /* another thread is about to end the program */
    say("forbidden access");
    for (int i = 0; i < AREAS; i++) {
        const guarded_area *a = areas[i];
        if (!a || address < a->map || address >= a->map + a->mapped)
            continue;
        say(address < a->at ? " before " : " behind ");
        say(a->name);
    }
    say(": ");
    say(doing_what);
    say("\n");
    _exit(1);
}

void guarded_watch(const char *doing)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = report;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    doing_what = doing;
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}
