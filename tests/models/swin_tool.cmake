# SPDX-License-Identifier: Apache-2.0
# winattn-swin, as people call it.
#   cmake -DTOOL=winattn-swin -DGOLDEN=tests/golden -DFOLDER=scratch
#         [-DFAILING=library to be loaded first] -P swin_tool.cmake
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
# number becomes what the pattern has in brackets.
function(expect_number text pattern)
    if(NOT text MATCHES "${pattern}")
        message(FATAL_ERROR "nothing is \"${pattern}\" here:\n${text}")
    endif()
    set(number ${CMAKE_MATCH_1} PARENT_SCOPE)
endfunction()

# Its output, put into a device that is always full, is not lost unnoticed.
function(lose_output)
    if(EXISTS /dev/full)
        execute_process(COMMAND ${TOOL} ${ARGN} WORKING_DIRECTORY ${FOLDER}
            OUTPUT_FILE /dev/full RESULT_VARIABLE result
            ERROR_VARIABLE errors)
        if(NOT result EQUAL 1)
            message(FATAL_ERROR "winattn-swin ${ARGN} > /dev/full ends with "
                "${result}:\n${errors}")
        endif()
        expect("${errors}" "cannot be written")
    endif()
endfunction()

run(0 --help)
expect("${out}" "usage: winattn-swin")
lose_output(--help)
lose_output(--list)
if(FAILING)
    set(ENV{LD_PRELOAD} ${FAILING})
    set(ENV{FAILING_PLATFORMS} -6)
    run(1 --list)
    expect("${out}" "clGetPlatformIDs failed: CL_OUT_OF_HOST_MEMORY (-6)")
    expect("${out}" "\n  swin_v2_t\n")
    run(1 --random 1 --model swin_t x)
    expect("${err}" "no OpenCL device; clGetPlatformIDs failed: ")
    set(ENV{FAILING_PLATFORMS} -1001)
    run(0 --list)
    expect("${out}" "none: no OpenCL platform has one")
    unset(ENV{FAILING_PLATFORMS})
    set(ENV{FAILING_DEVICES} -6)
    execute_process(COMMAND ${TOOL} --list OUTPUT_VARIABLE out)
    if(NOT out MATCHES "none: ") # there is a platform
        expect("${out}" ": clGetDeviceIDs failed: CL_OUT_OF_HOST_MEMORY (-6)")
    endif()
    unset(ENV{FAILING_DEVICES})
    unset(ENV{LD_PRELOAD})
endif()
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
string(ASCII 194 155 control) # U+009B, which terminals may obey
foreach(class RANGE 63)
    string(APPEND names "the ${class}th${control}\n")
endforeach()
file(WRITE ${FOLDER}/names "${names}")
set(call --weights ${weights} ${device} --crop 38x51 --resize 50)
run(0 ${call} --classes names --top 64 --stages . --batch 2 ${picture}
    ${GOLDEN}/pictures/grey.ppm ${picture})
expect("${out}" "%  the 34th?\n")
expect("${out}" "%  the 0th?\n")
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
run(0 --weights saved ${device} --crop 38x51 --resize 50 --window 4x5,4x5
    --rules timm --image 38x51 --no-config ${picture})
expect("${out}" "computed as timm does: windows of 4x5, 4x5, shifted each axis")
expect("${out}" "in pictures of 38x51, rolled, then padded")

# ---- Pictures that are stored turned ----
if(picture MATCHES "png$")
    run(0 ${call} --resize 52x52 --logits upright.npy
        ${GOLDEN}/pictures/turned_5.png)
    run(0 ${call} --resize 52x52 --logits stored.npy --no-orientation
        ${GOLDEN}/pictures/turned_5.png)
    file(SHA256 ${FOLDER}/upright.npy upright)
    file(SHA256 ${FOLDER}/stored.npy stored)
    if(upright STREQUAL stored)
        message(FATAL_ERROR "--no-orientation changes nothing")
    endif()
endif()

# ---- Measurements ----
run(0 ${call} --bench --seconds 0.05 --batch 3)
expect("${out}" "\nbatch 3: ")
expect("${out}" "\nbatch 1: ")
expect("${out}" "pictures/s\n  memory: ")
expect("${out}" "  unfused: ")
expect("${out}" " times as long; memory: ")
expect("${out}" "; the same logits within ")
run(0 ${call} --bench --seconds 0.01 --batch 1 --dtype fp16)
expect("${out}" "; the same logits within ")
run(0 ${call} --bench --seconds 0.01 --batch 1 --no-unfused)
expect("${out}" "\nbatch 1: ")
if(out MATCHES "  unfused: ")
    message(FATAL_ERROR "--no-unfused measures what is unfused:\n${out}")
endif()

# ---- Parts ----
# of that single picture, in two stages of two blocks
string(REGEX MATCHALL "\n  [a-z0-9]+ +[0-9]+ [^\n]*%" rows "${out}")
set(names "")
set(left 0)
foreach(row IN LISTS rows)
    string(REGEX MATCH "([a-z0-9]+) +([0-9]+)" row "${row}")
    list(APPEND names ${CMAKE_MATCH_1})
    if(CMAKE_MATCH_1 STREQUAL "all")
        math(EXPR left "${left} - ${CMAKE_MATCH_2}")
    else()
        math(EXPR left "${left} + ${CMAKE_MATCH_2}")
    endif()
endforeach()
set(wanted "embedding;norms;qkv;attention;proj;fc1;fc2;merge;head;all")
if(NOT names STREQUAL wanted OR NOT left EQUAL 0)
    message(FATAL_ERROR "not the parts of a call, or not all:\n${out}")
endif()
foreach(part qkv proj fc1 fc2)
    expect_number("${out}" "\n  ${part} +(4) ")
endforeach()
run(0 ${call} --describe ${picture})
set(left 0)
foreach(part norm norm qkv attention proj fc1 fc2)
    expect_number("${out}" "\nstage0 ${part} bytes: ([0-9]+)\n")
    math(EXPR left "${left} + ${number}")
endforeach()
expect("${out}" "\nstage0 bytes: ${left}\n")

# ---- Losses ----
lose_output(${call} ${picture})
lose_output(${call} --describe ${picture})
lose_output(${call} --bench --seconds 0.01 --batch 1 --no-unfused)
if(EXISTS /dev/full)
    run(1 ${call} --logits /dev/full ${picture})
    expect("${err}" "cannot write /dev/full")
endif()
# a range too small: pixels become 1e6
set(large ${call} --deviation 1e-6,1e-6,1e-6)
run(1 ${large} --dtype fp16 --logits nan.npy ${picture})
expect("${err}" "${picture}: results are no finite numbers")
expect("${err}" "fp16, which ends at 65504; --dtype bf16 and --dtype fp32")
if(out MATCHES "%")
    message(FATAL_ERROR "classes of NaNs are printed:\n${out}")
endif()
run(1 ${large} --dtype fp16 --bench --seconds 0.01 --batch 1)
expect("${err}" "results are no finite numbers")
run(0 ${large} --dtype bf16 ${picture})

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
run(1 --weights ${GOLDEN}/sources/timm_v2/model.safetensors --no-config
    ${picture})
expect("${err}" "does not say how large the windows")
run(1 --weights ${weights} --model swin_t ${picture})
expect("${err}" "this model needs")
run(1 ${call} --classes ${GOLDEN}/versions.txt ${picture})
expect("${err}" "names, but the model 64 classes")
# more than any device has
run(1 --weights ${weights} ${device} --crop 400x400 --resize 400 --bench
    --no-unfused --batch 65536)
expect("${err}" ": no buffer of ")
expect("${err}" "; the device's have at most ")
expect("${err}" ": try a smaller --batch\n")
run(1 ${call} --device "no such device" ${picture})
expect("${err}" "no OpenCL device has this in its name: no such device")
foreach(bad "--weights;x;--window;8x;x" "--weights;x;--window;8,0;x"
        "--weights;x;--window;8,8,8,8,8;x" "--weights;x;--rules;nobody;x"
        "x" "--weights;x" "--random;1;x" "--random;x;--model;swin_t;x"
        "--random;1;--weights;x;x" "--top;0" "--crop;3x" "--dtype;fp64"
        "--mean;1,2" "--seconds;nan" "--unknown;1" "--deviation;0,1,1"
        "--weights")
    run(2 ${bad})
endforeach()
