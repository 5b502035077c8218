# SPDX-License-Identifier: Apache-2.0
# Writes what report.h says of this program: its version, and the commit by its
# hash, as tags may be private. Outside git, or where winattn is a folder of another
# repository, WINATTN_COMMIT of the environment may say it; else it is empty.
#   cmake -DSOURCE=winattn -DVERSION=1.2.3 -DOUTPUT=commit.c -P commit.cmake
set(commit "$ENV{WINATTN_COMMIT}")
find_program(git git)
if(commit STREQUAL "" AND git)
    execute_process(COMMAND ${git} -C ${SOURCE} rev-parse --show-prefix
        RESULT_VARIABLE result OUTPUT_VARIABLE prefix ERROR_QUIET)
    if(result EQUAL 0 AND prefix STREQUAL "\n")
        execute_process(COMMAND ${git} -C ${SOURCE} describe --always --dirty
            --exclude * --abbrev=10 OUTPUT_VARIABLE commit
            OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    endif()
endif()
# it stands in a text of C
string(REGEX REPLACE "[^A-Za-z0-9._-]" "" commit "${commit}")
string(SUBSTRING "${commit}" 0 63 commit)
set(text "#include \"report/report.h\"\n
const char *const report_version = \"${VERSION}\";
const char *const report_commit = \"${commit}\";\n")
# an unchanged file compiles nothing
set(before "")
if(EXISTS ${OUTPUT})
    file(READ ${OUTPUT} before)
endif()
if(NOT before STREQUAL text)
    file(WRITE ${OUTPUT} "${text}")
endif()
