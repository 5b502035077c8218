/* SPDX-License-Identifier: Apache-2.0
 * A child of fork. */
#ifndef KIT_CHILD_H
#define KIT_CHILD_H

#define CHILD_HAS_NO_FORK (-2)

/* Runs in a child, which has a minute; what it returned, -1 if a signal ended
 * it. Nothing in it may assert: its test goes on in the parent. */
int child_run(int (*run)(const void *data), const void *data);

#endif
