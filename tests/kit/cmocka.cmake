# SPDX-License-Identifier: Apache-2.0
# Are there tests? WINATTN_TESTS is ON, OFF, or AUTO: where CMocka is found,
# but not as a part of another project. The answer hides the cached word, so
# that an AUTO asks again when CMocka was installed meanwhile.
if(NOT DEFINED WINATTN_TESTS)
    set(WINATTN_TESTS AUTO CACHE STRING
        "Build the tests: ON, OFF, or AUTO, where CMocka is found")
    set_property(CACHE WINATTN_TESTS PROPERTY STRINGS AUTO ON OFF)
endif()
set(needs_cmocka ${WINATTN_TESTS})
if(WINATTN_TESTS STREQUAL "AUTO")
    set(WINATTN_TESTS ${top_level})
    set(needs_cmocka OFF)
endif()
if(NOT WINATTN_TESTS)
    return()
endif()

find_path(CMOCKA_INCLUDE_DIR cmocka.h)
find_library(CMOCKA_LIBRARY cmocka)
mark_as_advanced(CMOCKA_INCLUDE_DIR CMOCKA_LIBRARY)
if(NOT CMOCKA_INCLUDE_DIR OR NOT CMOCKA_LIBRARY)
    if(needs_cmocka)
        message(FATAL_ERROR
            "WINATTN_TESTS=ON needs CMocka; Debian's package is libcmocka-dev")
    endif()
    message(STATUS "winattn: no CMocka, so no tests")
    set(WINATTN_TESTS OFF)
endif()
