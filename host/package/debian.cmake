# SPDX-License-Identifier: Apache-2.0
# Run by cpack before it packs. Documents of a package of Debian stand in a
# folder of its name, the licence's name and the changes among them; the text
# of the licence is part of every Debian system. Man pages are compressed.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
    return()
endif()
if(CPACK_PACKAGE_CONTACT MATCHES "\\.invalid>$")
    message(NOTICE "Nobody answers for these packages: -DWINATTN_MAINTAINER=\
'NAME <ADDRESS>' names who does.")
endif()

# gzip ARGUMENTS...: without names and times
function(gzip)
    execute_process(COMMAND gzip -9n ${ARGN} RESULT_VARIABLE status)
    if(NOT status EQUAL 0)
        message(FATAL_ERROR "gzip ${ARGN}: ${status}")
    endif()
endfunction()

# A page that only leads to another one (.so) becomes a link.
function(compress_pages folder)
    string(REPLACE "[" "[[]" pattern "${folder}") # its own brackets
    file(GLOB pages ${pattern}/*.3)
    foreach(page IN LISTS pages)
        file(STRINGS ${page} first LIMIT_COUNT 1)
        if(first MATCHES "^\\.so man3/(.*)$")
            file(CREATE_LINK ${CMAKE_MATCH_1}.gz ${page}.gz SYMBOLIC)
            file(REMOVE ${page})
        else()
            gzip(${page})
        endif()
    endforeach()
endfunction()

foreach(component IN LISTS CPACK_COMPONENTS_ALL)
    string(TOUPPER ${component} upper)
    set(share "${CPACK_TEMPORARY_DIRECTORY}/${component}\
${CPACK_PACKAGING_INSTALL_PREFIX}/share")
    set(all_documents ${share}/doc)
    set(documents
        ${all_documents}/${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
    compress_pages(${share}/man/man3)
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
        gzip(-c ${CPACK_WINATTN_CHANGELOG}
            OUTPUT_FILE ${documents}/changelog.gz)
    endif()
endforeach()
