# SPDX-License-Identifier: Apache-2.0
# A public header alone, in C11 or C++11, without a warning.
#   cmake -DHEADER=winattn.h -DLANGUAGE=c -DCOMPILER=cc -DOPENCL=/usr/include
#         -P header.cmake
file(STRINGS ${HEADER} includes REGEX "^ *# *include")
if(NOT includes STREQUAL "#include <OpenCL/cl.h>;#include <CL/cl.h>" AND
        NOT includes STREQUAL "#include \"winattn.h\"")
    message(SEND_ERROR "the header needs ${includes}")
endif()
foreach(opencl 120 300)
    execute_process(COMMAND ${COMPILER} -x ${LANGUAGE} -std=${LANGUAGE}11
        -fsyntax-only -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror
        -DCL_TARGET_OPENCL_VERSION=${opencl} -I${OPENCL} ${HEADER}
        RESULT_VARIABLE status)
    if(NOT status EQUAL 0)
        message(SEND_ERROR "${LANGUAGE}11 refuses the header")
    endif()
endforeach()
