# SPDX-License-Identifier: Apache-2.0
# The library as others find it.

# Programs that were compiled with version 0.1.0.
set(version_0_1 ${PROJECT_SOURCE_DIR}/tests/consumer/version_0_1)
foreach(version 0_1 today)
    add_library(layout_${version} OBJECT ${version_0_1}/layout.c)
    target_compile_definitions(layout_${version} PRIVATE
        LAYOUT=layout_${version} CL_TARGET_OPENCL_VERSION=120)
    target_include_directories(layout_${version} PRIVATE
        ${OpenCL_INCLUDE_DIR})
    target_compile_options(layout_${version} PRIVATE ${test_warnings})
endforeach()
target_include_directories(layout_0_1 BEFORE PRIVATE ${version_0_1})
target_include_directories(layout_today BEFORE PRIVATE
    ${PROJECT_SOURCE_DIR}/include)
add_executable(compare_0_1 ${version_0_1}/compare.c
    $<TARGET_OBJECTS:layout_0_1> $<TARGET_OBJECTS:layout_today>)
target_compile_options(compare_0_1 PRIVATE ${test_warnings})
add_labelled_test(layout_of_0_1 "quick;host" compare_0_1)
foreach(example example_grid example_sliding)
    add_executable(${example}_0_1
        ${PROJECT_SOURCE_DIR}/tests/consumer/${example}.c)
    target_include_directories(${example}_0_1 BEFORE PRIVATE ${version_0_1})
    target_link_libraries(${example}_0_1 PRIVATE winattn)
    if(UNIX)
        target_link_libraries(${example}_0_1 PRIVATE m)
    endif()
    target_compile_definitions(${example}_0_1 PRIVATE
        CL_TARGET_OPENCL_VERSION=120)
    add_labelled_test(${example}_0_1 ci ${example}_0_1)
    set_test_environment(${example}_0_1)
endforeach()

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
    add_consumer_test(quick find_package winattn installed)
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
