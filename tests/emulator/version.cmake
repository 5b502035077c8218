# SPDX-License-Identifier: Apache-2.0
# Writes OUTPUT, a header with the versions of the DRIVER and of its COMPILER,
# which are others whenever one of their files is: what a cache has of another
# emulator must not be used.
function(hash result)
    set(all "")
    foreach(file IN LISTS ARGN)
        file(SHA256 ${file} hash)
        string(APPEND all ${hash})
    endforeach()
    string(SHA256 hash "${all}")
    string(SUBSTRING ${hash} 0 16 hash)
    set(${result} ${hash} PARENT_SCOPE)
endfunction()
hash(compiler ${COMPILER})
hash(driver ${DRIVER} ${COMPILER})
file(WRITE ${OUTPUT} "#define DRIVER_VERSION \"580.00 ${driver}\"
#define COMPILER_VERSION \"${compiler}\"\n")
