/* SPDX-License-Identifier: Apache-2.0
 * What every program starts with: arguments, switches, and what OpenCL C has
 * no words for. */
#include "common/args.h"
#include "common/switches.h"

/* A switch that the file reads, if no other of its program requires it: what
 * is not legal, or is missing, is an error. */
#define REQUIRE(name)                                                         \
    typedef char name##_is_legal                                              \
        [(name) >= LEAST_##name && (name) <= MOST_##name ? 1 : -1];

/* Switches that are 0 where the host does not say them: here, in front of all
 * that reads them. */
#ifndef GRID
#define GRID 0
#endif
#ifndef PADDING
#define PADDING 0
#endif
#ifndef TABLE
#define TABLE 0
#endif
#ifndef KEEPS_TABLE
#define KEEPS_TABLE 0
#endif
#ifndef KEEPS_TOKENS
#define KEEPS_TOKENS 0
#endif
#ifndef HALVES_FROM_BITS
#define HALVES_FROM_BITS 0
#endif
#ifndef SUB_GROUP
#define SUB_GROUP 0
#endif
#ifndef LIMITS_REGISTERS
#define LIMITS_REGISTERS 0
#endif
#ifndef COMPUTE_CAPABILITY
#define COMPUTE_CAPABILITY 0
#endif

/* Of a kernel: Intel's compiler must know the size of sub-groups for as many
 * registers as there are. */
#if SUB_GROUP
#define SUB_GROUP_SIZE __attribute__((intel_reqd_sub_group_size(SUB_GROUP)))
#else
#define SUB_GROUP_SIZE
#endif

/* To some versions of clang, `a && SWITCH` looks like a slip of the pen, as
 * OpenCL C has a bool; and runtimes tell the application's user of warnings.
 */
#ifdef __clang__
#pragma clang diagnostic ignored "-Wconstant-logical-operand"
#endif

/* Kernels must not call: an argument whose address is passed to a function
 * that is not inlined lands in slow private memory. */
#ifndef INLINE /* simulators want calls (tests/runtimes/oclgrind) */
#if defined(__SPIR__) && defined(cl_intel_required_subgroup_size)
/* Not static: clang then writes a function before those that call it. Of one
 * that is the first to call another, Intel's compiler (IGC 1.0.12504, as it
 * reads SPIR-V) forgets which loops are to be unrolled, and arrays that these
 * index stay in memory. PoCL has the extension, too, but not by SPIR-V. */
#define INLINE __attribute__((always_inline))
#else
#define INLINE static inline __attribute__((always_inline))
#endif
#endif

#define UNROLL_FOR _Pragma("unroll") for
#define NO_UNROLL_FOR _Pragma("nounroll") for
/* An array that a program has no use for has one element. */
#define ROOM(is_used, count) ((is_used) ? (count) : 1)
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
