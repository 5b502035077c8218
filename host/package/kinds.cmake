# SPDX-License-Identifier: Apache-2.0
# Which libraries there are, and which of them winattn::winattn is.
#
#   BUILD_SHARED_LIBS  WINATTN_SHARED, WINATTN_STATIC  winattn::winattn
#                      where they are AUTO
#   not set            both                            shared; as a part of
#                                                      another project static
#   ON                 shared                          shared
#   OFF                static                          static
#
# ON or OFF for WINATTN_SHARED and WINATTN_STATIC is obeyed whatever
# BUILD_SHARED_LIBS says, which then chooses where both are there.
# A part of another project is static by default as libraries of
# add_library() are: a program then starts without a DLL beside it.
foreach(kind SHARED STATIC)
    if(NOT DEFINED WINATTN_${kind})
        string(TOLOWER ${kind} word)
        set(WINATTN_${kind} AUTO CACHE STRING
            "The ${word} library: ON, OFF, or AUTO, as BUILD_SHARED_LIBS says")
        set_property(CACHE WINATTN_${kind} PROPERTY STRINGS AUTO ON OFF)
    endif()
endforeach()

set(prefers_shared ${top_level})
if(DEFINED BUILD_SHARED_LIBS)
    set(prefers_shared ${BUILD_SHARED_LIBS})
endif()
# AUTO: unless BUILD_SHARED_LIBS wants the other one alone, which must be there
# then. The answers hide the cached words, so that another BUILD_SHARED_LIBS
# has other answers.
set(auto_shared ON)
set(auto_static ON)
if(DEFINED BUILD_SHARED_LIBS AND BUILD_SHARED_LIBS AND WINATTN_SHARED)
    set(auto_static OFF)
elseif(DEFINED BUILD_SHARED_LIBS AND NOT BUILD_SHARED_LIBS AND WINATTN_STATIC)
    set(auto_shared OFF)
endif()
foreach(kind shared static)
    string(TOUPPER ${kind} upper)
    if(WINATTN_${upper} STREQUAL "AUTO")
        set(WINATTN_${upper} ${auto_${kind}})
    endif()
endforeach()
if(NOT WINATTN_SHARED AND NOT WINATTN_STATIC)
    message(FATAL_ERROR "WINATTN_SHARED and WINATTN_STATIC are both off")
endif()

set(default_library winattn_static)
if(WINATTN_SHARED AND (prefers_shared OR NOT WINATTN_STATIC))
    set(default_library winattn_shared)
endif()
