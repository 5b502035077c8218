# SPDX-License-Identifier: Apache-2.0
# Oclgrind watches every access: a cross-check of what tests/emulator says, in
# label full alone.

function(add_oclgrind_test name check program)
    add_labelled_test(oclgrind_${name} full
        ${CMAKE_CURRENT_SOURCE_DIR}/runtimes/oclgrind
        ${CMAKE_CURRENT_BINARY_DIR}/oclgrind_${name}.log --${check}
        $<TARGET_FILE:${program}> ${ARGN})
endfunction()

add_oclgrind_test(races_forward data-races
    test_programs forward local windows quick 0 12)
if(WINATTN_MODELS)
    add_oclgrind_test(races_linear_local data-races test_linear local small)
    add_oclgrind_test(races_linear_mma data-races test_linear mma small)
    add_oclgrind_test(uninitialized_rows uninitialized test_rows local)
    foreach(tier cpu local)
        add_oclgrind_test(races_rows_${tier} data-races test_rows ${tier} all)
    endforeach()
    if(CJSON_INCLUDE_DIR AND CJSON_LIBRARY)
        add_oclgrind_test(races_swin_unfused data-races test_unfused local tiny)
    endif()
endif()
# of shapes that are planned, for a GPU that nobody knows
add_oclgrind_test(races_random data-races
    test_programs forward local random all 1 24)
add_oclgrind_test(races_cpu data-races check
    "tier=cpu dtype=fp16 queries=20 dim=12 bias=fp32 mask=regions \
mask_windows=2"
    "tier=cpu variant=cosine logit_scale=1 queries=20 keys=13 dim=10 \
bias=same layout=padded"
    "tier=cpu dtype=bf16 variant=sliding windows=1 queries=40 block=7 \
sink=2 window_blocks=2 dim=8")
add_oclgrind_test(uninitialized_cpu uninitialized check
    "tier=cpu windows=1 heads=1 queries=17 keys=13 dim=10 bias=fp32 \
mask=regions mask_windows=1"
    "tier=cpu dtype=fp16 variant=cosine logit_scale=1 windows=1 heads=1 \
queries=16 dim=8"
    "tier=cpu dtype=bf16 variant=sliding windows=1 heads=1 queries=32 \
block=7 sink=2 window_blocks=2 dim=8")
add_oclgrind_test(races_backward data-races
    test_programs backward local windows quick 0 26)
add_oclgrind_test(backward_uninitialized_cpu uninitialized check
    "pass=backward tier=cpu windows=1 heads=1 queries=17 keys=13 dim=10 \
bias=fp32 mask=regions mask_windows=1 d_lse=1"
    "pass=backward tier=cpu dtype=fp16 variant=cosine \
logit_scale=1 windows=1 heads=2 kv_heads=1 queries=16 dim=8 bias=same"
    "pass=backward tier=cpu dtype=bf16 variant=sliding windows=1 \
heads=1 queries=32 block=7 sink=2 window_blocks=2 dim=8 d_lse=1"
    "pass=backward tier=cpu given=1 windows=1 heads=1 queries=20 \
keys=17 dim=8 d_lse=1 accumulate=31 bias=same")
add_oclgrind_test(races_backward_random data-races
    test_programs backward local random all 1001 100)
add_oclgrind_test(races_forward_all data-races
    test_programs forward local all all)
add_oclgrind_test(races_random_more data-races
    test_programs forward local random all 1001 500)
