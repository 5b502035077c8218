# SPDX-License-Identifier: Apache-2.0
# What makes a fault in memory end the program, rather than serve whoever
# caused it, and what distributions expect of packages, on systems with ELF. The
# headers of the C library want optimized programs for it, so that builds without
# (-O0, no build type) switch it off, or live with a warning in each file.
option(WINATTN_HARDENING "Canaries, checked calls, read-only tables of calls"
    ${top_level})
if(NOT WINATTN_HARDENING OR NOT UNIX OR APPLE OR WINATTN_SANITIZE OR
        CMAKE_C_FLAGS MATCHES "-fsanitize")
    return()
endif()
include(CheckCCompilerFlag)
check_c_compiler_flag(-fstack-protector-strong WINATTN_HAS_CANARIES)
if(WINATTN_HAS_CANARIES)
    add_compile_options(-fstack-protector-strong)
endif()
if(NOT CMAKE_C_FLAGS MATCHES "_FORTIFY_SOURCE")
    add_compile_options(
        $<$<NOT:$<OR:$<CONFIG:>,$<CONFIG:Debug>>>:-D_FORTIFY_SOURCE=2>)
endif()
set(CMAKE_REQUIRED_LINK_OPTIONS -Wl,-z,relro,-z,now)
check_c_source_compiles("int main(void) { return 0; }" WINATTN_BINDS_NOW)
unset(CMAKE_REQUIRED_LINK_OPTIONS)
if(WINATTN_BINDS_NOW)
    add_link_options(-Wl,-z,relro,-z,now)
endif()
