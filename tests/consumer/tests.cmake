# SPDX-License-Identifier: Apache-2.0
# The library as others find it.

# What programs that were compiled with version 0.1.0 rely on: it is built.
add_library(layout_0_1 OBJECT ${PROJECT_SOURCE_DIR}/tests/consumer/layout_0_1.c)
target_link_libraries(layout_0_1 PRIVATE winattn::static)
target_compile_definitions(layout_0_1 PRIVATE CL_TARGET_OPENCL_VERSION=120)

# A program's own functions that are called as inner ones are.
foreach(kind shared static)
    if(NOT TARGET winattn_models_${kind})
        continue()
    endif()
    add_executable(own_names_${kind}
        ${PROJECT_SOURCE_DIR}/tests/consumer/own_names.c)
    target_link_libraries(own_names_${kind} PRIVATE winattn_models_${kind})
    target_compile_definitions(own_names_${kind} PRIVATE
        CL_TARGET_OPENCL_VERSION=120)
    target_compile_options(own_names_${kind} PRIVATE ${test_warnings})
    add_labelled_test(own_names_${kind} "quick;host" own_names_${kind})
endforeach()

# Test consumer_HOW_KIND with LABEL: a user's project, see consumer/try.
function(add_consumer_test label how kind)
    add_labelled_test(consumer_${how}_${kind} ${label}
        ${PROJECT_SOURCE_DIR}/tests/consumer/try ${PROJECT_SOURCE_DIR}
        ${PROJECT_BINARY_DIR} ${how} ${kind})
    set_test_environment(consumer_${how}_${kind}
        CC=${CMAKE_C_COMPILER} CXX=${CMAKE_CXX_COMPILER})
    set_tests_properties(consumer_${how}_${kind} PROPERTIES
        FIXTURES_REQUIRED "${ARGN}")
endfunction()

if(WINATTN_INSTALL)
    # this build, installed once: consumers, the tutorial
    add_labelled_test(installed quick
        ${PROJECT_SOURCE_DIR}/tests/consumer/install ${PROJECT_BINARY_DIR})
    set_tests_properties(installed PROPERTIES FIXTURES_SETUP installed)
endif()
if(UNIX AND CMAKE_CXX_COMPILER AND WINATTN_INSTALL AND WINATTN_SHARED
        AND WINATTN_STATIC)
    add_consumer_test(ci find_package winattn installed)
    add_consumer_test(ci find_package static installed)
    add_consumer_test(full find_package shared installed)
    add_consumer_test(ci pkg_config shared installed)
    add_consumer_test(full pkg_config static installed)
    # these build the library
    add_consumer_test(full pkg_config alone)
    add_consumer_test(ci subdirectory shared)
    add_consumer_test(full subdirectory static)
    # of what package_build has packed
    add_consumer_test(ci fetch_content winattn packages)
    add_consumer_test(ci deb winattn packages)
    add_consumer_test(full deb static packages)
endif()
