# SPDX-License-Identifier: Apache-2.0
# Writes the vcpkg port and the conan recipe of a release as their registries
# want them: what is in vcpkg/ and conan/, with version, address and checksums
# of the release's source archive filled in.
#   cmake -DVERSION=0.1.0 -DURL=https://... -DARCHIVE=winattn-0.1.0.tar.gz
#       -DOUTPUT=folder -P recipes.cmake
# OUTPUT/vcpkg is then a registry of its own (ports/ and versions/), OUTPUT/conan
# has recipes/.
foreach(name VERSION URL ARCHIVE OUTPUT)
    if(NOT DEFINED ${name})
        message(FATAL_ERROR "-D${name}= is missing")
    endif()
endforeach()
file(SHA256 ${ARCHIVE} SHA256)
file(SHA512 ${ARCHIVE} SHA512)
string(REPLACE "[" "[[]" pattern "${CMAKE_CURRENT_LIST_DIR}") # its brackets
file(GLOB_RECURSE files RELATIVE ${CMAKE_CURRENT_LIST_DIR}
    ${pattern}/vcpkg/* ${pattern}/conan/*)
foreach(file IN LISTS files)
    configure_file(${CMAKE_CURRENT_LIST_DIR}/${file} ${OUTPUT}/${file} @ONLY)
endforeach()

# A version of vcpkg names the port by the hash that git gives to its folder.
set(git git --git-dir=${OUTPUT}/hash.git --work-tree=${OUTPUT}/vcpkg)
foreach(command "init;-q" "add;ports" "write-tree;--prefix=ports/winattn/")
    execute_process(COMMAND ${git} ${command} OUTPUT_VARIABLE tree
        RESULT_VARIABLE status OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT status EQUAL 0)
        message(FATAL_ERROR "git ${command}: ${status}")
    endif()
endforeach()
file(REMOVE_RECURSE ${OUTPUT}/hash.git)
file(WRITE ${OUTPUT}/vcpkg/versions/w-/winattn.json "{
  \"versions\": [
    {
      \"git-tree\": \"${tree}\",
      \"version\": \"${VERSION}\",
      \"port-version\": 0
    }
  ]
}
")
file(WRITE ${OUTPUT}/vcpkg/versions/baseline.json "{
  \"default\": {
    \"winattn\": {
      \"baseline\": \"${VERSION}\",
      \"port-version\": 0
    }
  }
}
")
