/* SPDX-License-Identifier: Apache-2.0
 * What C11 leaves to the operating system: locks. os.c is the only file that
 * calls it. */
#ifndef WINATTN_OS_H
#define WINATTN_OS_H

#if defined(_MSC_VER)
#define WA_THREAD_LOCAL __declspec(thread)
#else
#define WA_THREAD_LOCAL _Thread_local
#endif

typedef struct wa_lock wa_lock;

wa_lock *wa_lock_create(void); /* NULL: out of memory */
void wa_lock_destroy(wa_lock *lock);
void wa_lock_take(wa_lock *lock);
void wa_lock_release(wa_lock *lock);

/* The one lock that exists from the start of the program. */
void wa_global_lock_take(void);
void wa_global_lock_release(void);

#endif
