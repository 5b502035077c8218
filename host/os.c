/* SPDX-License-Identifier: Apache-2.0
 * The one file that calls the operating system. */
#include "os.h"

#include <stdlib.h>

#ifdef _WIN32
#include <windows.h>

struct wa_lock {
    SRWLOCK os;
};
static SRWLOCK global_lock = SRWLOCK_INIT;

wa_lock *wa_lock_create(void)
{
    wa_lock *lock = malloc(sizeof *lock);
    if (lock)
        InitializeSRWLock(&lock->os);
    return lock;
}

void wa_lock_destroy(wa_lock *lock) { free(lock); }
void wa_lock_take(wa_lock *lock) { AcquireSRWLockExclusive(&lock->os); }
void wa_lock_release(wa_lock *lock) { ReleaseSRWLockExclusive(&lock->os); }
void wa_global_lock_take(void) { AcquireSRWLockExclusive(&global_lock); }
void wa_global_lock_release(void) { ReleaseSRWLockExclusive(&global_lock); }

#else
#include <pthread.h>

struct wa_lock {
    pthread_mutex_t os;
};
static pthread_mutex_t global_lock = PTHREAD_MUTEX_INITIALIZER;

wa_lock *wa_lock_create(void)
{
    wa_lock *lock = malloc(sizeof *lock);
    if (lock && pthread_mutex_init(&lock->os, NULL) != 0) {
        free(lock);
        lock = NULL;
    }
    return lock;
}

void wa_lock_destroy(wa_lock *lock)
{
    if (lock)
        pthread_mutex_destroy(&lock->os);
    free(lock);
}

void wa_lock_take(wa_lock *lock) { pthread_mutex_lock(&lock->os); }
void wa_lock_release(wa_lock *lock) { pthread_mutex_unlock(&lock->os); }
void wa_global_lock_take(void) { pthread_mutex_lock(&global_lock); }
void wa_global_lock_release(void) { pthread_mutex_unlock(&global_lock); }
#endif
