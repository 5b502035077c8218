# SPDX-License-Identifier: Apache-2.0
# What differs between operating systems in building, linking and packaging.
# In C that is host/base/os_*.c, and in include/winattn.h the name of OpenCL's
# header and of what a DLL exports.
#
#   system              what the name of a C file ends in, posix or windows
#   system_targets      CMake's names of what the host code calls
#   pc_system_libs      the same for pkg-config
#   pc_opencl_requires  the OpenCL that pkg-config knows, or
#   pc_opencl_libs      how a linker finds it where pkg-config knows none
#   static_name         not the shared library's where both files end in .lib
#   own_calls           a linker's option: a library calls its own functions,
#                       whatever a program has of the same names
set(pc_opencl_requires "")
set(pc_opencl_libs "")
set(static_name winattn)
set(system posix)
if(WIN32)
    set(system windows)
    set(CMAKE_SHARED_LIBRARY_PREFIX "") # winattn.dll from any compiler
    # locks and files are of kernel32, which every program is linked with
    set(system_targets "")
    set(pc_system_libs "")
    set(pc_opencl_libs "-lOpenCL")
    set(static_name winattn_static)
else()
    set(system_targets Threads::Threads m)
    set(pc_system_libs "-lm -pthread")
    if(APPLE)
        # a framework; libraries end in .dylib, which CMake knows
        set(pc_opencl_libs "-framework OpenCL")
    else()
        set(pc_opencl_requires "OpenCL")
    endif()
endif()

include(CheckCSourceCompiles)
set(CMAKE_REQUIRED_LINK_OPTIONS -Wl,-Bsymbolic-functions)
check_c_source_compiles("int main(void) { return 0; }"
    WINATTN_LINKS_OWN_CALLS)
unset(CMAKE_REQUIRED_LINK_OPTIONS)
set(own_calls "")
if(WINATTN_LINKS_OWN_CALLS)
    set(own_calls -Wl,-Bsymbolic-functions)
endif()
