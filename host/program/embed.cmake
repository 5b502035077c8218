# SPDX-License-Identifier: Apache-2.0
# Writes a C file that holds kernel sources:
#   cmake -DOUTPUT=sources.c -DFILES="a.cl;b.cl" -P embed.cmake
set(arrays "")
set(table "")
set(number 0)
foreach(file IN LISTS FILES)
    get_filename_component(name "${file}" NAME)
    list(FIND names "${name}" earlier)
    if(NOT earlier EQUAL -1)
        message(FATAL_ERROR "two files of kernels have the name ${name}")
    endif()
    list(APPEND names "${name}")
    file(READ "${file}" bytes HEX)
    string(REGEX REPLACE "(................................)" "\\1\n" bytes
        "${bytes}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
    string(APPEND arrays
        "static const char file_${number}[] = {\n${bytes}0};\n")
    string(APPEND table "    {\"${name}\", file_${number}},\n")
    math(EXPR number "${number} + 1")
endforeach()
file(WRITE "${OUTPUT}" "/* Made by host/program/embed.cmake from cl/. */
#include \"program/sources.h\"

#include <stddef.h>
#include <string.h>

${arrays}
static const struct {
    const char *name, *text;
} files[] = {
${table}};

const char *wa_source(const char *name)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strcmp(files[i].name, name) == 0)
            return files[i].text;
    return NULL;
}
")
