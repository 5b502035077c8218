# SPDX-License-Identifier: Apache-2.0
# Runs the steps of a vcpkg port without vcpkg, whose functions are written
# here as its documentation has them, as far as the port uses them, and links
# a program with what it installed.
#   cmake -DREGISTRY=folder -DLINKAGE=static|dynamic -DFEATURE=core|models
#       -DWORK=folder -P vcpkg.cmake
cmake_minimum_required(VERSION 3.19)
set(PORT winattn)
set(ports ${REGISTRY}/ports/${PORT})
set(CURRENT_PACKAGES_DIR ${WORK}/packages)
set(FEATURES core ${FEATURE})
# for file(GLOB), which takes brackets for its own
string(REPLACE "[" "[[]" work_pattern "${WORK}")
set(packages_pattern ${work_pattern}/packages)
file(REMOVE_RECURSE ${WORK})

function(run)
    execute_process(COMMAND ${ARGN} RESULT_VARIABLE status
        OUTPUT_VARIABLE text ERROR_VARIABLE text)
    if(NOT status EQUAL 0)
        message(FATAL_ERROR "${ARGN}: ${status}\n${text}")
    endif()
endfunction()

# ---- The manifest and the registry's versions ----
file(READ ${ports}/vcpkg.json manifest)
foreach(member name version description license)
    string(JSON value GET "${manifest}" ${member})
    if(value STREQUAL "")
        message(FATAL_ERROR "vcpkg.json has no ${member}")
    endif()
endforeach()
string(JSON VERSION GET "${manifest}" version)
file(READ ${REGISTRY}/versions/w-/${PORT}.json versions)
string(JSON tree GET "${versions}" versions 0 git-tree)
string(JSON listed GET "${versions}" versions 0 version)
file(READ ${REGISTRY}/versions/baseline.json baseline)
string(JSON base GET "${baseline}" default ${PORT} baseline)
if(NOT "${listed} ${base}" STREQUAL "${VERSION} ${VERSION}" OR
        NOT tree MATCHES "^[0-9a-f]+$")
    message(FATAL_ERROR "versions: ${listed}, ${base}, ${tree}")
endif()

# ---- vcpkg's functions ----
function(vcpkg_download_distfile result)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "FILENAME;SHA512" "URLS")
    file(DOWNLOAD ${arg_URLS} ${WORK}/${arg_FILENAME}
        EXPECTED_HASH SHA512=${arg_SHA512})
    set(${result} ${WORK}/${arg_FILENAME} PARENT_SCOPE)
endfunction()

function(vcpkg_extract_source_archive result)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "ARCHIVE" "")
    file(ARCHIVE_EXTRACT INPUT ${arg_ARCHIVE} DESTINATION ${WORK}/source)
    file(GLOB root ${work_pattern}/source/*)
    set(${result} ${root} PARENT_SCOPE)
endfunction()

function(vcpkg_check_features)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "OUT_FEATURE_OPTIONS" "FEATURES")
    list(LENGTH arg_FEATURES count)
    set(options "")
    while(arg_FEATURES)
        list(POP_FRONT arg_FEATURES feature option)
        set(value OFF)
        if(feature IN_LIST FEATURES)
            set(value ON)
        endif()
        list(APPEND options -D${option}=${value})
    endwhile()
    set(${arg_OUT_FEATURE_OPTIONS} ${options} PARENT_SCOPE)
endfunction()

function(vcpkg_cmake_configure)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "SOURCE_PATH" "OPTIONS")
    set(shared OFF)
    if(LINKAGE STREQUAL "dynamic")
        set(shared ON)
    endif()
    # not optimized, which takes half of the time
    run(${CMAKE_COMMAND} -S ${arg_SOURCE_PATH} -B ${WORK}/build
        -DCMAKE_BUILD_TYPE=Release "-DCMAKE_C_FLAGS_RELEASE=-O0 -DNDEBUG"
        -DWINATTN_HARDENING=OFF
        -DBUILD_SHARED_LIBS=${shared}
        -DCMAKE_INSTALL_PREFIX=${CURRENT_PACKAGES_DIR}
        -DCMAKE_INSTALL_LIBDIR=lib ${arg_OPTIONS})
endfunction()

function(vcpkg_cmake_install)
    run(${CMAKE_COMMAND} --build ${WORK}/build --parallel 2 --target install)
endfunction()

function(vcpkg_cmake_config_fixup)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "CONFIG_PATH" "")
    file(RENAME ${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH}
        ${CURRENT_PACKAGES_DIR}/share/${PORT})
    file(REMOVE_RECURSE ${CURRENT_PACKAGES_DIR}/lib/cmake)
    # files of CMake find the prefix one folder nearer now
    file(GLOB files ${packages_pattern}/share/${PORT}/*.cmake)
    foreach(file IN LISTS files)
        file(READ ${file} text)
        string(REPLACE "\${CMAKE_CURRENT_LIST_DIR}/../../../"
            "\${CMAKE_CURRENT_LIST_DIR}/../../" text "${text}")
        string(REGEX REPLACE "(get_filename_component\\(_IMPORT_PREFIX \
\"\\\${_IMPORT_PREFIX}\" PATH\\)\n)(get_filename_component\\(_IMPORT_PREFIX \
\"\\\${_IMPORT_PREFIX}\" PATH\\)\n)" "\\1" text "${text}")
        file(WRITE ${file} "${text}")
    endforeach()
endfunction()

function(vcpkg_copy_pdbs)
endfunction()

function(vcpkg_fixup_pkgconfig)
    file(STRINGS ${CURRENT_PACKAGES_DIR}/lib/pkgconfig/winattn.pc found
        REGEX "^prefix=\\\${pcfiledir}")
    if(NOT found)
        message(FATAL_ERROR "winattn.pc is not to be moved")
    endif()
endfunction()

function(vcpkg_install_copyright)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "FILE_LIST")
    configure_file(${arg_FILE_LIST}
        ${CURRENT_PACKAGES_DIR}/share/${PORT}/copyright COPYONLY)
endfunction()

include(${ports}/portfile.cmake)

# ---- What vcpkg checks after a build, and a program ----
file(GLOB_RECURSE archives ${packages_pattern}/*.a)
file(GLOB_RECURSE objects ${packages_pattern}/*.so)
if((LINKAGE STREQUAL "static" AND (objects OR NOT archives)) OR
        (LINKAGE STREQUAL "dynamic" AND (archives OR NOT objects)))
    message(FATAL_ERROR "${LINKAGE}: ${archives} ${objects}")
endif()
foreach(file include/winattn.h share/winattn/copyright share/winattn/usage
        share/winattn/winattn-config.cmake)
    if(NOT EXISTS ${CURRENT_PACKAGES_DIR}/${file})
        message(FATAL_ERROR "no ${file}")
    endif()
endforeach()
set(test ${REGISTRY}/../conan/recipes/winattn/all/test_package)
run(${CMAKE_COMMAND} -S ${test} -B ${WORK}/test
    -Dwinattn_DIR=${CURRENT_PACKAGES_DIR}/share/winattn)
run(${CMAKE_COMMAND} --build ${WORK}/test)
run(${WORK}/test/test_package)

# ---- The library of models, where it was asked for ----
set(header ${CURRENT_PACKAGES_DIR}/include/winattn_models.h)
find_path(CJSON_INCLUDE_DIR cjson/cJSON.h)
if(NOT "models" IN_LIST FEATURES)
    if(EXISTS ${header} OR EXISTS ${WORK}/test/test_models)
        message(FATAL_ERROR "there are models, but nobody asked for them")
    endif()
elseif(CJSON_INCLUDE_DIR) # the port's dependency is this system's
    run(${WORK}/test/test_models)
elseif(NOT EXISTS ${header})
    message(FATAL_ERROR "no models")
endif()
