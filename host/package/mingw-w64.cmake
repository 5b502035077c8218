# SPDX-License-Identifier: Apache-2.0
# Toolchain file: 64-bit Windows programs on another system.
#   cmake --toolchain host/package/mingw-w64.cmake -DOpenCL_INCLUDE_DIR=...
#       -DOpenCL_LIBRARY=...
# tests/windows/sdk makes both from the headers of a package and opencl.def.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(triple x86_64-w64-mingw32)
set(CMAKE_C_COMPILER ${triple}-gcc)
set(CMAKE_CXX_COMPILER ${triple}-g++)
set(CMAKE_RC_COMPILER ${triple}-windres)
set(CMAKE_FIND_ROOT_PATH /usr/${triple})
# programs of this system, nothing else of it
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
