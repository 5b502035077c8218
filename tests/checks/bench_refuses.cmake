# SPDX-License-Identifier: Apache-2.0
# The bench's programs refuse numbers that make no sense, and do not pass a
# case without a result, or output that is lost, for a success; what the tuner
# says can be understood.
#   cmake -DBENCH=winattn-bench -DTUNE=winattn-tune -DINFO=winattn-info
#       -DFOLDER=scratch -P bench_refuses.cmake

# Runs a program, which must exit with `code` and say what matches `says`.
function(expect code says)
    execute_process(COMMAND ${ARGN} RESULT_VARIABLE result
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

# ---- Output that is lost ----
function(expect_loss code)
    execute_process(COMMAND ${ARGN} OUTPUT_FILE /dev/full
        RESULT_VARIABLE result ERROR_VARIABLE error)
    if(NOT result EQUAL code OR NOT error MATCHES "cannot be written")
        string(REPLACE ";" " " command "${ARGN}")
        message(SEND_ERROR "${command} > /dev/full\nends with ${result}, not "
            "${code}, or does not say why:\n${error}")
    endif()
endfunction()
if(EXISTS /dev/full)
    foreach(option --help --list)
        expect_loss(1 ${BENCH} ${option})
    endforeach()
    expect_loss(1 ${TUNE} --help)
endif()

# ---- Cases without a result ----
execute_process(COMMAND ${BENCH} --list --device Portable
    OUTPUT_VARIABLE devices)
if(NOT devices MATCHES "^Portable")
    message(STATUS "no PoCL: cases are not tried")
    return()
endif()
set(quick --device Portable --seconds 3 --no-unfused)
# that another case has one does not make up for it
expect(1 "head_dim is 300, above 256\n.*\nno result for 1 of"
    ${BENCH} ${quick} --dtype fp32 --case "queries=4 dim=300" --case "${case}")
expect(1 "head_dim is 300, above 256\n"
    ${TUNE} --device Portable --seconds 1 "queries=4 dim=300")

# ---- A search ----
set(tuned "tier=local windows=8 queries=9 dim=8 bias=same")
set(tune ${TUNE} --device Portable --seconds 1)
expect(0 "part of [0-9.]+ GB/s.* error [-0-9.e]+\n.*: no row, which takes 99900% "
    ${tune} --gain 99900 9:9:32:1:9:8:2:4:1:2 ${tuned})
if(EXISTS /dev/full)
    expect(1 "/dev/full cannot be written; the row is\nlocal-forward " ${tune}
        --gain -100 --output /dev/full ${tuned})
    expect_loss(1 ${tune} --gain -100 ${tuned})
    expect_loss(1 ${INFO} Portable)
endif()
