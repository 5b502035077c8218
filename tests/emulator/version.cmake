# SPDX-License-Identifier: Apache-2.0
# Writes OUTPUT, a header with the driver's version, which is another whenever
# one of the FILES is: what a cache has of another emulator must not be used.
set(all "")
foreach(file IN LISTS FILES)
    file(SHA256 ${file} hash)
    string(APPEND all ${hash})
endforeach()
string(SHA256 hash "${all}")
string(SUBSTRING ${hash} 0 16 hash)
file(WRITE ${OUTPUT} "#define DRIVER_VERSION \"580.00 ${hash}\"\n")
