# SPDX-License-Identifier: Apache-2.0
# winattn-swin, as people call it.
#   cmake -DTOOL=winattn-swin -DGOLDEN=tests/golden -DFOLDER=scratch
#         -P swin_tool.cmake
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})
set(device "")
if(DEFINED ENV{WINATTN_TEST_DEVICE})
    set(device --device $ENV{WINATTN_TEST_DEVICE})
endif()

# Runs the tool; its exit code must be CODE. out and err become what it printed.
function(run code)
    execute_process(COMMAND ${TOOL} ${ARGN} WORKING_DIRECTORY ${FOLDER}
        RESULT_VARIABLE result OUTPUT_VARIABLE text ERROR_VARIABLE errors)
    if(NOT result EQUAL code)
        message(FATAL_ERROR "winattn-swin ${ARGN} ends with ${result}, not "
            "${code}:\n${text}${errors}")
    endif()
    set(out "${text}" PARENT_SCOPE)
    set(err "${errors}" PARENT_SCOPE)
endfunction()
function(expect text part)
    string(FIND "${text}" "${part}" at)
    if(at EQUAL -1)
        message(FATAL_ERROR "this does not say \"${part}\":\n${text}")
    endif()
endfunction()

run(0 --help)
expect("${out}" "usage: winattn-swin")
run(0 --list)
if(out MATCHES "devices:\n  none")
    message(STATUS "no OpenCL device ")
    return()
endif()
expect("${out}" "\n  swin_v2_t\n")

# ---- What PyTorch says, too ----
set(weights ${GOLDEN}/models/torchvision_v1.safetensors)
set(picture ${GOLDEN}/pictures/colour.png)
execute_process(COMMAND ${TOOL} --weights ${weights} ${device} --crop 38x51
        --resize 50 ${picture}
    ERROR_VARIABLE err OUTPUT_QUIET)
if(err MATCHES "built without cJSON")
    message(STATUS "no cJSON")
    return()
endif()
if(err MATCHES "was built without")
    set(picture ${GOLDEN}/pictures/wide.ppm)
else()
    run(0 --weights ${weights} ${device} --crop 38x51 --resize 50 ${picture})
    file(READ ${GOLDEN}/models/torchvision_v1_picture.txt classes)
    expect("${out}" "${picture}\n${classes}")
    expect("${out}" "names of torchvision in F32")
endif()

# ---- Names, maps, several pictures ----
set(names "")
foreach(class RANGE 63)
    string(APPEND names "the ${class}th\n")
endforeach()
file(WRITE ${FOLDER}/names "${names}")
set(call --weights ${weights} ${device} --crop 38x51 --resize 50)
run(0 ${call} --classes names --top 64 --stages . --batch 2 ${picture}
    ${GOLDEN}/pictures/grey.ppm ${picture})
expect("${out}" "%  the 34th\n")
expect("${out}" "%  the 0th\n")
foreach(file 0_stage0 0_stage1 1_stage1 2_stage0)
    if(NOT EXISTS ${FOLDER}/${file}.npy)
        message(FATAL_ERROR "${file}.npy was not written")
    endif()
endforeach()
foreach(stage 0 1) # the same picture, in batches of two and of one
    file(SHA256 ${FOLDER}/0_stage${stage}.npy first)
    file(SHA256 ${FOLDER}/2_stage${stage}.npy last)
    if(NOT first STREQUAL last)
        message(FATAL_ERROR "maps of stage ${stage} differ")
    endif()
endforeach()

# ---- A folder, as transformers leaves it ----
file(COPY ${weights} DESTINATION ${FOLDER}/saved)
file(RENAME ${FOLDER}/saved/torchvision_v1.safetensors
    ${FOLDER}/saved/model.safetensors)
run(0 --weights saved ${device} --crop 38x51 --resize 50 ${picture})
expect("${out}" "names of torchvision in F32")

# ---- Measurements ----
run(0 ${call} --bench --seconds 0.05 --batch 3)
expect("${out}" "\nbatch 3: ")
expect("${out}" "\nbatch 1: ")
expect("${out}" "pictures/s\n  memory: ")
expect("${out}" "by themselves: linear layers")
expect("${out}" "  unfused: ")
expect("${out}" " times as long; memory: ")
expect("${out}" "; the same logits within ")
run(0 ${call} --bench --seconds 0.01 --batch 1 --dtype fp16)
expect("${out}" "; the same logits within ")
run(0 ${call} --bench --seconds 0.01 --batch 1 --no-unfused)
expect("${out}" "by themselves: linear layers")
if(out MATCHES "  unfused: ")
    message(FATAL_ERROR "--no-unfused measures what is unfused:\n${out}")
endif()

# ---- Refusals ----
run(1 ${call} no_such_picture ${picture})
expect("${err}" "no_such_picture: ")
expect("${out}" "${picture}\n") # the others are classified all the same
run(1 ${call} ${weights})
expect("${err}" "it is no PPM (P6, P5), PNG or JPEG")
run(1 --weights ${picture} ${picture})
expect("${err}" "safetensors file")
run(1 --weights saved/model-00001-of-00002.safetensors ${picture})
expect("${err}" "by their index, model.safetensors.index.json")
run(1 --weights ${GOLDEN}/models/timm_v2.safetensors ${picture})
expect("${err}" "does not say how large the windows")
run(1 --weights ${weights} --model swin_t ${picture})
expect("${err}" "this model needs")
run(1 ${call} --classes ${GOLDEN}/versions.txt ${picture})
expect("${err}" "names, but the model 64 classes")
# more than any device has
run(1 --weights ${weights} ${device} --crop 400x400 --resize 400 --bench
    --no-unfused --batch 65536)
expect("${err}" "workspace: no buffer of ")
expect("${err}" "; the device's have at most ")
expect("${err}" ": try a smaller --batch\n")
run(1 ${call} --device "no such device" ${picture})
expect("${err}" "no OpenCL device has this in its name: no such device")
foreach(bad "x" "--weights;x" "--random;1;x" "--random;x;--model;swin_t;x"
        "--random;1;--weights;x;x" "--top;0" "--crop;3x" "--dtype;fp64"
        "--mean;1,2" "--seconds;nan" "--unknown;1" "--deviation;0,1,1"
        "--weights")
    run(2 ${bad})
endforeach()
