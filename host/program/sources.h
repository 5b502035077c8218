/* SPDX-License-Identifier: Apache-2.0
 * The files of cl/, embedded when the library is built. */
#ifndef WINATTN_SOURCES_H
#define WINATTN_SOURCES_H

/* The text of cl/<folder>/<name>, or NULL. */
const char *wa_source(const char *name);

#endif
