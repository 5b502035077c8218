# SPDX-License-Identifier: Apache-2.0
# README.md fits a few screens, its C is a part of a tested example, and the
# documents link to what is there.
#   cmake -DSOURCE=.. -P readme.cmake
set(most_lines 160)
set(examples example.c example_grid.c example_sliding.c)

if(NOT EXISTS ${SOURCE}/README.md)
    message(FATAL_ERROR "there is no README.md")
endif()
file(READ ${SOURCE}/README.md readme)
string(REGEX MATCHALL "\n" line_ends "${readme}")
list(LENGTH line_ends line_count)
if(line_count GREATER most_lines)
    message(SEND_ERROR "README.md has ${line_count} lines, more than "
        "${most_lines}: what is looked for elsewhere belongs there")
endif()

# ---- C ----
# Blocks are functions' lines, without their first four columns.
set(rest "${readme}")
set(block_count 0)
while(1)
    string(FIND "${rest}" "\n```c\n" at)
    if(at EQUAL -1)
        break()
    endif()
    math(EXPR start "${at} + 6")
    string(SUBSTRING "${rest}" ${start} -1 rest)
    string(FIND "${rest}" "```\n" end)
    string(SUBSTRING "${rest}" 0 ${end} block)
    string(REPLACE "\n" "\n    " block "    ${block}")
    string(REGEX REPLACE "\n +(\n|$)" "\n\\1" block "${block}")
    math(EXPR block_count "${block_count} + 1")
    set(is_tested FALSE)
    foreach(example ${examples})
        file(READ ${SOURCE}/tests/consumer/${example} text)
        string(FIND "${text}" "${block}" at)
        if(NOT at EQUAL -1)
            set(is_tested TRUE)
        endif()
    endforeach()
    if(NOT is_tested)
        message(SEND_ERROR "README.md's block ```c number ${block_count} is no "
            "part of an example in tests/consumer")
    endif()
endwhile()
if(block_count EQUAL 0)
    message(SEND_ERROR "README.md has no block ```c")
endif()

# ---- Links and pictures ----
string(REPLACE "[" "[[]" pattern "${SOURCE}") # its own brackets
file(GLOB documents ${pattern}/README.md ${pattern}/*/README.md
    ${pattern}/*/*/README.md ${pattern}/bench/decisions/*.md
    ${pattern}/.github/*.md)
foreach(document ${documents})
    file(READ ${document} text)
    get_filename_component(folder ${document} DIRECTORY)
    # a square bracket would keep items of a list together
    string(REPLACE "](" "@" text "${text}")
    string(REGEX MATCHALL "@[^):]+\\)" links "${text}")
    if(links STREQUAL "" AND folder STREQUAL SOURCE)
        message(SEND_ERROR "README.md has no link to a file")
    endif()
    foreach(link ${links})
        string(REGEX REPLACE "^@([^#]*).*\\)$" "\\1" path "${link}")
        string(REGEX REPLACE "\\)$" "" path "${path}")
        if(NOT EXISTS ${folder}/${path})
            message(SEND_ERROR "${document} links to ${path}, which is not "
                "there")
        endif()
    endforeach()
endforeach()
