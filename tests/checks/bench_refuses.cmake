# SPDX-License-Identifier: Apache-2.0
# The bench's programs refuse numbers that make no sense, and do not pass a
# case without a result for a success.
#   cmake -DBENCH=winattn-bench -DTUNE=winattn-tune -P bench_refuses.cmake

# Runs a program, which must exit with `code` and say what matches `says`.
function(expect code says)
    execute_process(COMMAND ${ARGN} TIMEOUT 60 RESULT_VARIABLE result
        OUTPUT_VARIABLE output ERROR_VARIABLE error)
    if(NOT result STREQUAL code OR NOT "${output}${error}" MATCHES "${says}")
        string(REPLACE ";" " " command "${ARGN}")
        message(SEND_ERROR "${command}\nends with ${result}, not ${code}, "
            "or does not say \"${says}\":\n${output}${error}")
    endif()
endfunction()

# ---- Numbers ----
set(case "queries=4 dim=4")
foreach(number nan -1 0 1e999 inf 1e30 1e-300 0x10 5s "5 ")
    expect(2 "--seconds wants [^\n]*, not \"${number}\"\n"
        ${BENCH} --list --seconds "${number}")
    expect(2 "--seconds wants [^\n]*, not \"${number}\"\n"
        ${TUNE} --device nobody --seconds "${number}" ${case})
endforeach()
foreach(number nan 1e999 -101 1e30 0x3 3%)
    expect(2 "--gain wants [^\n]*, not \"${number}\"\n"
        ${TUNE} --device nobody --gain "${number}" ${case})
endforeach()
expect(2 "unknown: heads=99999999999\n"
    ${BENCH} --list --case heads=99999999999)
expect(2 "^a mask needs mask_windows=N: [^\n]*: ${case} mask=regions\n$"
    ${BENCH} --list --case "${case} mask=regions")
expect(2 "^--gain wants a value\n$" ${TUNE} ${case} --gain)

# ---- Cases without a result ----
execute_process(COMMAND ${BENCH} --list --device Portable
    OUTPUT_VARIABLE devices)
if(NOT devices MATCHES "^Portable")
    message(STATUS "no PoCL: cases are not tried")
    return()
endif()
set(quick --device Portable --seconds 3 --no-unfused --startup none)
# that another case has one does not make up for it
expect(1 "head_dim is 300, above 256\n.*\nno result for 1 of"
    ${BENCH} ${quick} --dtype fp32 --case "queries=4 dim=300" --case "${case}")
expect(1 "head_dim is 300, above 256\n"
    ${TUNE} --device Portable --seconds 1 "queries=4 dim=300")
