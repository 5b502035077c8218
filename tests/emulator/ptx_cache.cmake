# SPDX-License-Identifier: Apache-2.0
# Does a second process take the PTX that the first one kept? Then there is no
# more of it, and it has the remark that was added. And do others compile, with
# another folder or none?
#   cmake -DCHECK=.. -DFOLDER=.. -P ptx_cache.cmake
set(case "windows=1 queries=5 dim=8 tier=local")
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})

function(run_check folder)
    execute_process(COMMAND ${CMAKE_COMMAND} -E env
        EMULATOR_CACHE_DIR=${folder} ${CHECK} ${case}
        RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
    if(said MATCHES "no OpenCL device ")
        message(FATAL_ERROR "${said}") # skipped
    endif()
    set(status ${status} PARENT_SCOPE)
    set(said "${said}" PARENT_SCOPE)
endfunction()

run_check(${FOLDER}/kept)
file(GLOB kept ${FOLDER}/kept/*)
if(NOT status EQUAL 0 OR NOT kept)
    message(FATAL_ERROR "at first: ${status}, ${said}")
endif()
foreach(file ${kept})
    if(NOT file MATCHES "/[0-9a-f]+\\.ptx$")
        message(FATAL_ERROR "${file} was left")
    endif()
    file(APPEND ${file} "// kept\n")
endforeach()
run_check(${FOLDER}/kept)
file(GLOB now ${FOLDER}/kept/*)
if(NOT status EQUAL 0 OR NOT now STREQUAL kept)
    message(FATAL_ERROR "then: ${status}, ${said}, ${now}")
endif()
foreach(file ${kept})
    file(READ ${file} text)
    if(NOT text MATCHES "// kept\n$")
        message(FATAL_ERROR "${file} was compiled again")
    endif()
endforeach()
foreach(other "${FOLDER}/other" "")
    run_check("${other}")
    if(NOT status EQUAL 0)
        message(FATAL_ERROR "in \"${other}\": ${status}, ${said}")
    endif()
endforeach()
