# SPDX-License-Identifier: Apache-2.0
# The README shows the example as it is tested, and links to what is there.
#   cmake -DSOURCE=.. -P readme.cmake
if(NOT EXISTS ${SOURCE}/README.md)
    message(FATAL_ERROR "there is no README.md")
endif()
file(READ ${SOURCE}/README.md readme)
file(READ ${SOURCE}/tests/consumer/example.c example)
string(FIND "${readme}" "\n```c\n${example}```\n" at)
if(at EQUAL -1)
    message(FATAL_ERROR
        "README.md has no block ```c that equals tests/consumer/example.c")
endif()

# a square bracket would keep items of a list together
string(REPLACE "](" "@" links "${readme}")
string(REGEX MATCHALL "@[^):]+\\)" links "${links}")
if(links STREQUAL "")
    message(SEND_ERROR "README.md has no link to a file")
endif()
foreach(link ${links})
    string(REGEX REPLACE "^@(.*)\\)$" "\\1" path "${link}")
    if(NOT EXISTS ${SOURCE}/${path})
        message(SEND_ERROR "README.md links to ${path}, which is not there")
    endif()
endforeach()
