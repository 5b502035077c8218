# SPDX-License-Identifier: Apache-2.0
# Run by cpack before it packs. Documents of a package of Debian stand in a
# folder of its name, the licence's name and the changes among them; the text
# of the licence is part of every Debian system.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
    return()
endif()
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
    string(TOUPPER ${component} upper)
    set(all_documents "${CPACK_TEMPORARY_DIRECTORY}/${component}\
${CPACK_PACKAGING_INSTALL_PREFIX}/share/doc")
    set(documents
        ${all_documents}/${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
    if(EXISTS ${all_documents}/winattn)
        file(RENAME ${all_documents}/winattn ${documents})
        file(REMOVE ${documents}/LICENSE)
    endif()
    file(WRITE ${documents}/copyright
        "Format: https://www.debian.org/doc/packaging-manuals/\
copyright-format/1.0/
Upstream-Name: winattn

Files: *
Copyright: (c) the authors of winattn
License: Apache-2.0

License: Apache-2.0
 The full text is in /usr/share/common-licenses/Apache-2.0.
")
    if(EXISTS ${CPACK_WINATTN_CHANGELOG})
        execute_process(COMMAND gzip -9nc ${CPACK_WINATTN_CHANGELOG}
            OUTPUT_FILE ${documents}/changelog.gz RESULT_VARIABLE status)
        if(NOT status EQUAL 0)
            message(FATAL_ERROR "gzip ${CPACK_WINATTN_CHANGELOG}: ${status}")
        endif()
    endif()
endforeach()
