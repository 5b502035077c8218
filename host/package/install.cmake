# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` installs, in components:
#   winattn_runtime  the shared library and the licence
#   winattn_models   the shared library of models
#   winattn_dev      headers, static libraries, CMake package, pkg-config files
#   winattn_tools    winattn-bench, winattn-info, winattn-swin, winattn-tune
# No file says where it was installed, so that a copy can be moved.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/winattn)

function(install_libraries component)
    install(TARGETS ${ARGN} EXPORT winattn-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component}
            NAMELINK_COMPONENT winattn_dev
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT winattn_dev
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ${component})
endfunction()
install_libraries(winattn_runtime winattn ${library_targets})
if(WINATTN_MODELS)
    install_libraries(winattn_models ${models_targets})
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR}
    COMPONENT winattn_runtime)
set(public_headers include/winattn.h)
if(WINATTN_MODELS)
    list(APPEND public_headers include/winattn_models.h)
endif()
install(FILES ${public_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    COMPONENT winattn_dev)
if(TARGET winattn-info)
    set(tools winattn-bench winattn-info winattn-tune)
    if(TARGET winattn-swin)
        list(APPEND tools winattn-swin)
    endif()
    install(TARGETS ${tools}
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT winattn_tools)
endif()

# ---- CMake package ----
install(EXPORT winattn-targets NAMESPACE winattn::
    DESTINATION ${package_dir} COMPONENT winattn_dev)
set(needs_threads OFF)
if(WINATTN_STATIC AND "Threads::Threads" IN_LIST system_targets)
    set(needs_threads ON)
endif()
set(needs_cjson OFF)
if(WINATTN_STATIC AND WINATTN_MODELS AND CJSON_INCLUDE_DIR AND CJSON_LIBRARY)
    set(needs_cjson ON)
endif()
configure_package_config_file(host/package/winattn-config.cmake.in
    ${PROJECT_BINARY_DIR}/winattn-config.cmake
    INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(
    ${PROJECT_BINARY_DIR}/winattn-config-version.cmake
    COMPATIBILITY ${compatibility})
install(FILES ${PROJECT_BINARY_DIR}/winattn-config.cmake
    ${PROJECT_BINARY_DIR}/winattn-config-version.cmake
    DESTINATION ${package_dir} COMPONENT winattn_dev)

# ---- pkg-config ----
file(RELATIVE_PATH pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
# Module `name`, for the kind of library that is named. -lwinattn is the shared
# library wherever there is one, with pkg-config --static too, so that the
# archive goes by its path.
function(install_pc name kind)
    set(pc_name ${name})
    if(kind STREQUAL "shared")
        set(pc_libs "-L\${libdir} -lwinattn")
        set(pc_private_libs "${pc_system_libs}") # for cc -static
        set(pc_definitions "")
    else()
        string(CONCAT archive ${CMAKE_STATIC_LIBRARY_PREFIX} ${static_name}
            ${CMAKE_STATIC_LIBRARY_SUFFIX})
        set(pc_libs "\${libdir}/${archive} ${pc_system_libs}")
        set(pc_private_libs "")
        set(pc_definitions " -DWINATTN_STATIC")
    endif()
    string(APPEND pc_libs " ${pc_opencl_libs}")
    string(STRIP "${pc_libs}" pc_libs)
    set(pc_requires "${pc_opencl_requires}")
    write_pc(${name})
endfunction()
function(write_pc name)
    configure_file(host/package/winattn.pc.in
        ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/${name}.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT winattn_dev)
endfunction()
# The same of winattn_models, which brings winattn's module SISTER.
function(install_models_pc name sister kind)
    set(pc_name ${name})
    set(pc_libs "-L\${libdir} -lwinattn_models")
    set(pc_private_libs "-lm") # for cc -static
    if(CJSON_INCLUDE_DIR AND CJSON_LIBRARY)
        string(PREPEND pc_private_libs "-lcjson ")
    endif()
    if(kind STREQUAL "static")
        get_target_property(output winattn_models_static OUTPUT_NAME)
        string(CONCAT archive ${CMAKE_STATIC_LIBRARY_PREFIX} ${output}
            ${CMAKE_STATIC_LIBRARY_SUFFIX})
        set(pc_libs "\${libdir}/${archive} ${pc_private_libs}")
        set(pc_private_libs "")
    endif()
    set(pc_definitions "")
    set(pc_requires "${sister} = ${PROJECT_VERSION}")
    write_pc(${name})
endfunction()
if(WINATTN_STATIC)
    install_pc(winattn-static static)
endif()
# as winattn::winattn
if(default_library STREQUAL "winattn_shared")
    install_pc(winattn shared)
else()
    install_pc(winattn static)
endif()
if(WINATTN_MODELS)
    if(WINATTN_STATIC)
        install_models_pc(winattn-models-static winattn-static static)
    endif()
    string(REPLACE winattn_ "" default_kind ${default_library})
    install_models_pc(winattn-models winattn ${default_kind})
endif()
