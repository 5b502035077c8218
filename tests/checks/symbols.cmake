# SPDX-License-Identifier: Apache-2.0
# What the libraries show to the linker, and what they ask of it.
#   cmake -DNM=nm -DSHARED=libwinattn.so -DSTATIC=libwinattn.a
#         -DHOST=host -DMODELS_SHARED=libwinattn_models.so
#         -DMODELS_STATIC=libwinattn_models.a -DPYTHON=libwinattn.so
#         -P symbols.cmake
# Each library may be left out.
function(read_symbols result)
    execute_process(COMMAND ${NM} ${ARGN} OUTPUT_VARIABLE text
        RESULT_VARIABLE status)
    if(NOT status EQUAL 0 OR text STREQUAL "")
        message(FATAL_ERROR "${NM} ${ARGN} says nothing")
    endif()
    string(REPLACE "\n" ";" lines "${text}")
    set(${result} "${lines}" PARENT_SCOPE)
endfunction()

# Defined names that do not start as they should.
function(check_names library allowed required)
    set(strangers "")
    set(found OFF)
    foreach(line IN LISTS ARGN)
        if(line MATCHES "^[0-9a-f]+ [A-Z] (.*)$")
            set(name ${CMAKE_MATCH_1})
            if(name STREQUAL required)
                set(found ON)
            endif()
            if(NOT name MATCHES "^(${allowed})")
                list(APPEND strangers ${name})
            endif()
        endif()
    endforeach()
    if(strangers OR NOT found)
        message(SEND_ERROR "${library} exports ${strangers}, and "
            "${required}: ${found}")
    endif()
endfunction()

# What winattn shows to its sister: functions that stand behind WA_SISTER, no
# more and no less, under names that no program has (base/sister.h).
string(REPLACE "[" "[[]" pattern "${HOST}") # its own brackets
file(GLOB headers ${pattern}/*/*.h)
set(sisters "")
foreach(header IN LISTS headers)
    file(READ ${header} text)
    string(REGEX MATCHALL "WA_SISTER [^;(]*[(]" declared "${text}")
    foreach(declaration IN LISTS declared)
        string(REGEX MATCH "wa_[a-z0-9_]+[(]$" name "${declaration}")
        string(REGEX REPLACE "wa_(.*)[(]" "wa_winattn_\\1" name "${name}")
        list(APPEND sisters ${name})
    endforeach()
endforeach()
list(SORT sisters)

if(SHARED)
    read_symbols(lines -D --defined-only ${SHARED})
    check_names(${SHARED} "winattn_|wa_winattn_" winattn_plan_create ${lines})
    set(shown ${lines})
    list(FILTER shown INCLUDE REGEX "^[0-9a-f]+ [A-Z] wa_")
    list(TRANSFORM shown REPLACE "^[0-9a-f]+ [A-Z] " "")
    list(SORT shown)
    if(NOT shown STREQUAL sisters)
        message(SEND_ERROR "${SHARED} shows ${shown} to its sister, but "
            "WA_SISTER stands before ${sisters}")
    endif()
endif()
if(PYTHON)
    read_symbols(lines -D --defined-only ${PYTHON})
    check_names(${PYTHON} "winattn_" winattn_plan_create ${lines})
endif()
if(MODELS_SHARED)
    read_symbols(lines -D --defined-only ${MODELS_SHARED})
    check_names(${MODELS_SHARED} "winattn_" winattn_models_version ${lines})
endif()
if(MODELS_STATIC)
    read_symbols(lines -g --defined-only ${MODELS_STATIC})
    check_names(${MODELS_STATIC} "winattn_|wa_" winattn_models_version
        ${lines})
endif()

if(STATIC)
    read_symbols(lines -g --defined-only ${STATIC})
    check_names(${STATIC} "winattn_|wa_" winattn_plan_create ${lines})

    # The host code is C11: next to OpenCL it calls these, whatever name a C
    # library or compiler gives them. Only os_*.c ask more.
    set(c11 calloc exp fclose ferror fflush floor fopen fread free fseek ftell
        fwrite getenv log malloc memchr memcmp memcpy memmove memset qsort
        realloc remove rename snprintf sqrt sscanf strchr strcmp strlen
        strcspn strncmp strrchr strspn strstr strtol strtoul strtoull vsnprintf)
    string(REPLACE ";" "|" c11 "${c11}")
    set(compilers "_GLOBAL_OFFSET_TABLE_|__tls_get_addr|__stack_chk_fail")
    read_symbols(lines -u ${STATIC})
    set(strangers "")
    set(os_calls 0)
    foreach(line IN LISTS lines)
        if(line MATCHES "([^/ ]+)\\.(o|obj):$")
            set(object ${CMAKE_MATCH_1})
        elseif(line MATCHES "^ +U (.+)$")
            set(name ${CMAKE_MATCH_1})
            if(object MATCHES "^os_[a-z]+(\\.c)?$")
                math(EXPR os_calls "${os_calls} + 1")
            elseif(NOT name MATCHES "^(cl[A-Z]|winattn_|wa_)" AND NOT
                    name MATCHES "^(__(isoc99_|isoc23_)?)?(${c11})(_chk)?$"
                    AND NOT name MATCHES "^(${compilers})$")
                list(APPEND strangers "${object}: ${name}")
            endif()
        endif()
    endforeach()
    if(strangers OR os_calls EQUAL 0)
        message(SEND_ERROR "no C11 functions: ${strangers}; os_*.c ask for "
            "${os_calls} symbols")
    endif()
endif()
