# SPDX-License-Identifier: Apache-2.0
# Makes html/, man/man3/ and xml/ in OUTPUT of the comments in winattn.h and of
# the pages beside this file.
#   cmake -DDOXYGEN=doxygen -DSOURCE=.. -DVERSION=0.1.0 -DOUTPUT=docs
#         [-DHEADER=winattn.h] -P make.cmake
if(NOT HEADER)
    set(HEADER ${SOURCE}/include/winattn.h)
endif()

# Doxygen cannot tell what a list of macros makes of an enumeration, so that
# the codes are written out, on one line, which keeps the numbers of lines.
file(READ ${HEADER} header)
string(REGEX MATCH "#define WINATTN_STATUS_LIST[^#/]*" codes "${header}")
string(REGEX REPLACE "[ \\\n]+" " " codes "${codes}")
string(REPLACE "#define WINATTN_STATUS_LIST(X) " "" codes "${codes}")
string(REGEX REPLACE "X\\((WINATTN_[A-Z_]+), (-[0-9]+), \"([^\"]*)\"\\)"
    "\\1 = \\2, /**< \\3 */" codes "${codes}")
set(entries "    WINATTN_STATUS_LIST(WINATTN_STATUS_ENTRY_)\n")
string(FIND "${header}" "${entries}" at)
if(at EQUAL -1 OR NOT codes MATCHES "WINATTN_INVALID_ARGUMENT = ")
    message(FATAL_ERROR "${HEADER} has no list of statuses")
endif()
string(REPLACE "${entries}" "${codes}\n" header "${header}")
string(REGEX REPLACE "#(define|undef) WINATTN_STATUS_ENTRY_[^\n]*" ""
    header "${header}")

file(REMOVE_RECURSE ${OUTPUT}/html ${OUTPUT}/man ${OUTPUT}/xml)
file(WRITE ${OUTPUT}/include/winattn.h "${header}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/Doxyfile.in ${OUTPUT}/Doxyfile @ONLY)
execute_process(COMMAND ${DOXYGEN} ${OUTPUT}/Doxyfile RESULT_VARIABLE status)
if(NOT status EQUAL 0)
    message(FATAL_ERROR "${DOXYGEN} does not accept the documentation")
endif()

# Fields have pages, too, some with names of the C library's functions.
set(pages ${OUTPUT}/man/man3)
string(REPLACE "[" "[[]" pattern "${pages}") # its own brackets
file(GLOB all ${pattern}/*)
foreach(page IN LISTS all)
    if(NOT page MATCHES "/(winattn|WINATTN)[^/]*$")
        file(REMOVE "${page}")
    endif()
endforeach()
file(WRITE ${pages}/winattn.3 ".so man3/winattn.h.3\n")
