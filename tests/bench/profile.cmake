# SPDX-License-Identifier: Apache-2.0
# Does bench/profile write down a launch, and make PTX of it that another driver
# would take? On the emulated H200:
#
#   cmake -DCHECK=check -DRECORD=librecord.so -DTOOLS=bench/profile
#       -DPYTHON=python3 -DFOLDER=folder -P profile.cmake

set(kernel window_forward_wgmma)
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})

# Runs ARGN, which must print what matches `expected`.
function(expect expected)
    execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE output
        ERROR_VARIABLE output RESULT_VARIABLE result)
    if(output MATCHES "no OpenCL device ")
        message("${output}")
        return()
    endif()
    if(NOT result EQUAL 0 OR NOT output MATCHES "${expected}")
        message(FATAL_ERROR "${ARGN}: ${result}\n${output}")
    endif()
endfunction()

# two calls of the kernel, the second of which has larger buffers
expect("local bytes: 221384.*ok .*ok " ${CMAKE_COMMAND} -E env
    WINATTN_RECORD=${FOLDER} WINATTN_RECORD_KERNELS=none\ ${kernel}
    LD_PRELOAD=${RECORD} ${CHECK}
    "windows=1 heads=1 queries=256 dim=32 dtype=fp16 bias=same layout=packed"
    "windows=2 heads=1 queries=256 dim=32 dtype=fp16 bias=same layout=packed")
if(NOT EXISTS ${FOLDER}/${kernel}.args)
    return() # there was no device
endif()
file(STRINGS ${FOLDER}/${kernel}.args lines)
list(POP_FRONT lines size arguments)
list(JOIN lines " " rest)
if(NOT size MATCHES "^[1-9][0-9]* 640$" OR
   NOT arguments MATCHES "^bytes [0-9a-f]+$" OR
   NOT rest MATCHES "^(buffer [0-9]+ ?)+$")
    message(FATAL_ERROR "recorded: ${size}, ${arguments}, ${rest}")
endif()
foreach(n RANGE 1 3)
    file(SIZE ${FOLDER}/${kernel}.${n}.bin bytes)
    if(bytes LESS 32768) # those of two windows
        message(FATAL_ERROR "buffer ${n} has ${bytes} bytes")
    endif()
endforeach()

expect("^221384\n$" ${PYTHON} ${TOOLS}/replayable.py ${FOLDER}/${kernel}.ptx
    ${FOLDER}/${kernel}.replay.ptx)
file(READ ${FOLDER}/${kernel}.replay.ptx text)
if(text MATCHES "%envreg|texmode_independent|\\.shared [^\n]*\\[[0-9]" OR
   NOT text MATCHES "\\.extern \\.shared [^\n]*all_local_memory\\[\\]" OR
   NOT text MATCHES "mov\\.u64 [^\n]*, all_local_memory;")
    message(FATAL_ERROR "${FOLDER}/${kernel}.replay.ptx is not as it should be")
endif()
