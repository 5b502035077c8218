/* SPDX-License-Identifier: Apache-2.0
 * include/winattn.h of version 0.1.0 without its comments. Never changed:
 * programs that were compiled with it must run with later libraries. */
#ifndef WINATTN_H
#define WINATTN_H
#ifdef __APPLE__
#include <OpenCL/cl.h>
#else
#include <CL/cl.h>
#endif
#ifdef __cplusplus
extern "C" {
#endif
#define WINATTN_VERSION_MAJOR 0
#define WINATTN_VERSION_MINOR 1
#define WINATTN_VERSION_PATCH 0
#define WINATTN_VERSION                                                       \
    (WINATTN_VERSION_MAJOR * 10000 + WINATTN_VERSION_MINOR * 100 +            \
     WINATTN_VERSION_PATCH)
#if defined(WINATTN_STATIC)
#define WINATTN_API
#elif defined(_WIN32) && defined(WINATTN_BUILDING)
#define WINATTN_API __declspec(dllexport)
#elif defined(_WIN32)
#define WINATTN_API __declspec(dllimport)
#elif defined(__GNUC__)
#define WINATTN_API __attribute__((visibility("default")))
#else
#define WINATTN_API
#endif
WINATTN_API int winattn_version(void);
typedef cl_int winattn_status;
#define WINATTN_STATUS_LIST(X)                                                \
    X(WINATTN_INVALID_ARGUMENT, -3000,                                        \
      "an argument is NULL, out of range or contradicts another")             \
    X(WINATTN_INVALID_LAYOUT, -3001,                                          \
      "strides overlap or overflow, or an offset splits an element")          \
    X(WINATTN_INVALID_BUFFER, -3002,                                          \
      "a memory object is no buffer, of another context, or not accessible")  \
    X(WINATTN_BUFFER_TOO_SMALL, -3003, "a tensor runs past its buffer")       \
    X(WINATTN_INVALID_QUEUE, -3004,                                           \
      "a queue belongs to another context or device than the plan")           \
    X(WINATTN_UNSUPPORTED_PROBLEM, -3010,                                     \
      "the library does not compute this combination")                        \
    X(WINATTN_UNSUPPORTED_DEVICE, -3020,                                      \
      "the device lacks what every kernel needs")                             \
    X(WINATTN_WORKSPACE_TOO_SMALL, -3030,                                     \
      "the workspace is smaller than winattn_plan_workspace_size says")       \
    X(WINATTN_INVALID_BLOB, -3040,                                            \
      "compiled kernels are damaged, or of another version or device")
enum {
    WINATTN_SUCCESS = 0,
#define WINATTN_STATUS_ENTRY_(name, number, cause) name = number,
    WINATTN_STATUS_LIST(WINATTN_STATUS_ENTRY_)
#undef WINATTN_STATUS_ENTRY_
};
WINATTN_API const char *winattn_status_name(winattn_status status);
WINATTN_API const char *winattn_status_message(winattn_status status);
WINATTN_API const char *winattn_last_reason(void);
WINATTN_API const char *winattn_last_build_log(void);
typedef enum winattn_variant {
    WINATTN_DOT = 0,
    WINATTN_COSINE = 1,
    WINATTN_SLIDING = 2
} winattn_variant;
typedef enum winattn_dtype {
    WINATTN_FP32 = 0,
    WINATTN_FP16 = 1,
    WINATTN_BF16 = 2
} winattn_dtype;
typedef enum winattn_term_dtype {
    WINATTN_TERM_SAME = 0,
    WINATTN_TERM_FP32 = 1
} winattn_term_dtype;
typedef enum winattn_bias {
    WINATTN_BIAS_NONE = 0,
    WINATTN_BIAS_FULL = 1,
    WINATTN_BIAS_TABLE = 2
} winattn_bias;
typedef enum winattn_mask {
    WINATTN_MASK_NONE = 0,
    WINATTN_MASK_ADDITIVE = 1,
    WINATTN_MASK_REGIONS = 2,
    WINATTN_MASK_SHIFT = 3
} winattn_mask;
typedef enum winattn_tier {
    WINATTN_TIER_AUTO = 0,
    WINATTN_TIER_CPU = 1,
    WINATTN_TIER_LOCAL = 2,
    WINATTN_TIER_MATRIX = 3
} winattn_tier;
#define WINATTN_PASS_FORWARD 1u
#define WINATTN_PASS_BACKWARD 2u
#define WINATTN_AXES 3
typedef struct winattn_strides {
    cl_ulong window;
    cl_ulong head;
    cl_ulong row;
    cl_ulong column;
    cl_ulong axis[WINATTN_AXES];
} winattn_strides;
typedef enum winattn_padding {
    WINATTN_PADDING_VALUES = 0,
    WINATTN_PADDING_HIDDEN = 1
} winattn_padding;
typedef struct winattn_grid {
    cl_uint axes;
    cl_uint size[WINATTN_AXES];
    cl_uint window[WINATTN_AXES];
    cl_uint shift[WINATTN_AXES];
    cl_bool periodic[WINATTN_AXES];
    winattn_padding padding;
    cl_ulong batch;
} winattn_grid;
typedef struct winattn_table {
    cl_uint axes;
    cl_uint window[WINATTN_AXES];
    cl_bool sliced;
    const cl_int *index;
    cl_uint entries;
} winattn_table;
typedef struct winattn_desc {
    size_t struct_size;
    winattn_variant variant;
    winattn_dtype dtype;
    winattn_tier tier;
    cl_bool allow_tf32;
    cl_ulong windows;
    cl_uint heads;
    cl_uint kv_heads;
    cl_uint queries;
    cl_uint keys;
    cl_uint head_dim;
    cl_float scale;
    winattn_strides q, k, v, o, lse;
    winattn_grid grid;
    winattn_bias bias;
    winattn_term_dtype bias_dtype;
    winattn_strides bias_strides;
    winattn_table table;
    winattn_mask mask;
    winattn_term_dtype mask_dtype;
    cl_ulong mask_windows;
    winattn_strides mask_strides;
    winattn_strides query_region_strides;
    winattn_strides key_region_strides;
    cl_bool has_region_value;
    cl_float region_value;
    cl_uint block;
    cl_uint first_block;
    cl_uint window_blocks;
    cl_uint sink;
    cl_bool sink_in_window;
    cl_uint query_offset;
    cl_bitfield passes;
    winattn_strides d_o, d_lse, dq, dk, dv, dbias_strides;
    winattn_strides pad_k, pad_v, d_pad_k, d_pad_v;
    const char *build_options;
} winattn_desc;
typedef struct winattn_plan winattn_plan;
WINATTN_API winattn_status winattn_plan_create(cl_context context,
                                               cl_device_id device,
                                               const winattn_desc *desc,
                                               winattn_plan **plan);
WINATTN_API void winattn_plan_destroy(winattn_plan *plan);
WINATTN_API winattn_status
winattn_plan_workspace_size(const winattn_plan *plan, size_t *size);
WINATTN_API winattn_status winattn_plan_describe(const winattn_plan *plan,
                                                 size_t size, char *text,
                                                 size_t *needed);
WINATTN_API winattn_status winattn_load_tuning(const char *text);
WINATTN_API winattn_status winattn_set_cache_dir(const char *folder);
typedef struct winattn_programs winattn_programs;
WINATTN_API winattn_status winattn_programs_create(
    cl_context context, cl_device_id device, winattn_programs **programs);
WINATTN_API void winattn_programs_destroy(winattn_programs *programs);
WINATTN_API winattn_status winattn_programs_import(winattn_programs *programs,
                                                   size_t size,
                                                   const void *blob);
WINATTN_API winattn_status winattn_programs_export(
    const winattn_programs *programs, size_t size, void *blob, size_t *needed);
typedef struct winattn_tensor {
    cl_mem buffer;
    cl_ulong offset;
} winattn_tensor;
typedef struct winattn_forward {
    size_t struct_size;
    winattn_tensor q, k, v;
    winattn_tensor bias;
    winattn_tensor mask;
    winattn_tensor query_regions;
    winattn_tensor key_regions;
    winattn_tensor logit_scale;
    winattn_tensor pad_k, pad_v;
    winattn_tensor o;
    winattn_tensor lse;
    winattn_tensor workspace;
} winattn_forward;
WINATTN_API winattn_status
winattn_enqueue_forward(const winattn_plan *plan, cl_command_queue queue,
                        const winattn_forward *forward, cl_uint wait_count,
                        const cl_event *wait_list, cl_event *event);
#define WINATTN_DQ 1u
#define WINATTN_DK 2u
#define WINATTN_DV 4u
#define WINATTN_DBIAS 8u
#define WINATTN_D_LOGIT_SCALE 16u
#define WINATTN_D_PAD_K 32u
#define WINATTN_D_PAD_V 64u
typedef struct winattn_backward {
    size_t struct_size;
    winattn_tensor q, k, v, bias, mask, query_regions, key_regions;
    winattn_tensor logit_scale, pad_k, pad_v;
    winattn_tensor o, lse;
    winattn_tensor d_o;
    winattn_tensor d_lse;
    winattn_tensor dq, dk, dv;
    winattn_tensor dbias;
    winattn_tensor d_logit_scale;
    winattn_tensor d_pad_k, d_pad_v;
    cl_bitfield accumulate;
    winattn_tensor workspace;
} winattn_backward;
WINATTN_API winattn_status
winattn_enqueue_backward(const winattn_plan *plan, cl_command_queue queue,
                         const winattn_backward *backward, cl_uint wait_count,
                         const cl_event *wait_list, cl_event *event);
#ifdef __cplusplus
}
#endif
#endif
