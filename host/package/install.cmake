# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` installs: CMake package and pkg-config files.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/winattn)
install(TARGETS winattn ${library_targets} EXPORT winattn-targets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES include/winattn.h
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT winattn-targets NAMESPACE winattn::
    DESTINATION ${package_dir})
file(WRITE ${PROJECT_BINARY_DIR}/winattn-config.cmake
    "include(CMakeFindDependencyMacro)\n"
    "find_dependency(OpenCL)\n"
    "find_dependency(Threads)\n"
    "include(\"\${CMAKE_CURRENT_LIST_DIR}/winattn-targets.cmake\")\n")
write_basic_package_version_file(
    ${PROJECT_BINARY_DIR}/winattn-config-version.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/winattn-config.cmake
    ${PROJECT_BINARY_DIR}/winattn-config-version.cmake
    DESTINATION ${package_dir})
# so that an installed copy can be moved
file(RELATIVE_PATH pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
# Module `name` of pkg-config, for the kind of library that is named.
# -lwinattn is the shared library wherever there is one, with pkg-config
# --static too, so that the archive goes by its path.
function(install_pc name kind)
    set(pc_name ${name})
    set(system_libs "-lm -pthread") # what the archive needs
    if(kind STREQUAL "shared")
        set(pc_libs "-L\${libdir} -lwinattn")
        set(pc_private_libs "${system_libs}") # for cc -static
        set(pc_definitions "")
    else()
        get_target_property(archive winattn_static OUTPUT_NAME)
        string(CONCAT archive ${CMAKE_STATIC_LIBRARY_PREFIX} ${archive}
            ${CMAKE_STATIC_LIBRARY_SUFFIX})
        set(pc_libs "\${libdir}/${archive} ${system_libs}")
        set(pc_private_libs "")
        set(pc_definitions " -DWINATTN_STATIC")
    endif()
    configure_file(host/package/winattn.pc.in
        ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/${name}.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
if(WINATTN_STATIC)
    install_pc(winattn-static static)
endif()
if(WINATTN_SHARED)
    install_pc(winattn shared)
else()
    install_pc(winattn static)
endif()
