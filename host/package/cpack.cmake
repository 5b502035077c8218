# SPDX-License-Identifier: Apache-2.0
# Packages: `cpack -G DEB`, TGZ or ZIP in the build folder; `cpack --config
# CPackSourceConfig.cmake` packs the source. An archive has everything in one
# folder, which can lie anywhere. Debian's are several packages, as its policy
# wants them; libraries lie where Debian has them if the build was configured
# with -DCMAKE_INSTALL_PREFIX=/usr.
set(CPACK_PACKAGE_NAME winattn)
set(CPACK_PACKAGE_VENDOR winattn)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_FILE_NAME "winattn-${PROJECT_VERSION}-\
${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE
    OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(CPACK_COMPONENTS_ALL winattn_dev)
if(WINATTN_SHARED)
    list(APPEND CPACK_COMPONENTS_ALL winattn_runtime)
endif()
if(WINATTN_SHARED AND WINATTN_MODELS)
    list(APPEND CPACK_COMPONENTS_ALL winattn_models)
endif()
if(TARGET winattn-info)
    list(APPEND CPACK_COMPONENTS_ALL winattn_tools)
endif()

set(CPACK_GENERATOR TGZ ZIP)
find_program(DPKG_SHLIBDEPS dpkg-shlibdeps)
find_program(FILE_TYPE file) # tells cpack what is a program or library
mark_as_advanced(DPKG_SHLIBDEPS FILE_TYPE)
if(DPKG_SHLIBDEPS AND FILE_TYPE)
    list(APPEND CPACK_GENERATOR DEB)
elseif(DPKG_SHLIBDEPS)
    message(STATUS "winattn: no program `file`, so no packages of Debian")
endif()

# ---- Who answers for them ----
# Who builds packages for others, says so here or, as for Debian's own tools,
# in DEBFULLNAME and DEBEMAIL; else it is an address that reaches nobody, and
# debian.cmake says that.
set(maintainer "winattn maintainers <maintainers@winattn.invalid>")
set(maintainer_form "^[^<>]*[^<> ] <[^<>@ ]+@[^<>@ ]+>$")
if("$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>" MATCHES "${maintainer_form}")
    set(maintainer "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
endif()
set(WINATTN_MAINTAINER "${maintainer}" CACHE STRING
    "Who answers for the packages: NAME <ADDRESS>")
if(NOT WINATTN_MAINTAINER MATCHES "${maintainer_form}")
    message(FATAL_ERROR "WINATTN_MAINTAINER is not NAME <ADDRESS>, but \
${WINATTN_MAINTAINER}")
endif()
set(CPACK_PACKAGE_CONTACT "${WINATTN_MAINTAINER}")

# ---- Source ----
set(CPACK_SOURCE_GENERATOR TGZ)
set(CPACK_SOURCE_PACKAGE_FILE_NAME winattn-${PROJECT_VERSION})
# what git does not have; the folder's own path may have any characters
string(REGEX REPLACE "([][+.*()^$?|\\\\])" "\\\\\\1" source_regex
    "${PROJECT_SOURCE_DIR}")
set(CPACK_SOURCE_IGNORE_FILES "^${source_regex}/\\.git(/|$)"
    "^${source_regex}/build(-[^/]*)?/")

# ---- Debian ----
# A library's package is called by what programs are linked with.
set(deb_library libwinattn${abi_version})
set(deb_opencl "ocl-icd-opencl-dev | opencl-dev")
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS OFF)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SOURCE winattn)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_WINATTN_CHANGELOG ${PROJECT_SOURCE_DIR}/.github/CHANGELOG.md)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/host/package/debian.cmake)

# CPACK_DEBIAN_<COMPONENT>_...; text: below the summary
function(describe_deb component package section text)
    string(TOUPPER ${component} upper)
    set(prefix CPACK_DEBIAN_${upper})
    set(${prefix}_PACKAGE_NAME ${package} PARENT_SCOPE)
    set(${prefix}_PACKAGE_SECTION ${section} PARENT_SCOPE)
    set(${prefix}_DESCRIPTION "${text}" PARENT_SCOPE)
endfunction()
describe_deb(winattn_runtime ${deb_library} libs
    "The shared library. It computes windowed attention of vision and video\n\
transformers, forward and backward, with OpenCL kernels of its own.")
describe_deb(winattn_models libwinattn-models${abi_version} libs
    "The shared library of models: linear layers, blocks and whole Swin\n\
Transformers, with OpenCL kernels of its own.")
# shlibdeps knows no package that is being built
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
set(CPACK_DEBIAN_WINATTN_MODELS_PACKAGE_DEPENDS
    "${deb_library} (= ${PROJECT_VERSION})")
describe_deb(winattn_dev libwinattn-dev libdevel
    "Headers, static libraries, CMake package and pkg-config files.")
describe_deb(winattn_tools winattn-tools utils
    "winattn-info says what each OpenCL device can do, winattn-bench measures\n\
it, winattn-tune finds faster shapes of kernels for a problem, winattn-swin\n\
classifies pictures.")
set(CPACK_DEBIAN_WINATTN_RUNTIME_PACKAGE_RECOMMENDS
    "pocl-opencl-icd | opencl-icd")
set(CPACK_DEBIAN_WINATTN_TOOLS_PACKAGE_RECOMMENDS
    "pocl-opencl-icd | opencl-icd")
# nothing is loaded from it
set(CPACK_DEBIAN_WINATTN_DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_WINATTN_DEV_PACKAGE_DEPENDS "${deb_opencl}")
if(WINATTN_SHARED)
    set(CPACK_DEBIAN_WINATTN_DEV_PACKAGE_DEPENDS
        "${deb_library} (= ${PROJECT_VERSION}), ${deb_opencl}")
endif()
if(WINATTN_SHARED AND WINATTN_MODELS)
    string(PREPEND CPACK_DEBIAN_WINATTN_DEV_PACKAGE_DEPENDS
        "libwinattn-models${abi_version} (= ${PROJECT_VERSION}), ")
endif()
# which the static library of models is linked with
if(needs_cjson)
    set(CPACK_DEBIAN_WINATTN_DEV_PACKAGE_RECOMMENDS libcjson-dev)
endif()

include(CPack)
