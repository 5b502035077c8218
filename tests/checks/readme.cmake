# SPDX-License-Identifier: Apache-2.0
# The README shows the example as it is tested.
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
