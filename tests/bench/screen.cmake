# SPDX-License-Identifier: Apache-2.0
# What a run of the bench shows and leaves: each kind of attention and each
# pass has a number even in a run that is much too short, no line is wider than
# 100 columns, nothing that a driver prints stands between the rows, files of
# several runs make one table and one picture, and a failed call is a failure.
#   cmake -DBENCH=winattn-bench -DMERGE=bench/merge -DFAILING=failing_calls.so
#       -DFOLDER=scratch -P screen.cmake
file(MAKE_DIRECTORY ${FOLDER})

# Runs the bench, which must exit with `code`; leaves `output` and `error`.
macro(run_bench code)
    execute_process(COMMAND ${BENCH} ${ARGN} RESULT_VARIABLE result
        OUTPUT_VARIABLE output ERROR_VARIABLE error)
    if(NOT result STREQUAL "${code}")
        message(SEND_ERROR "${ARGN}\nends with ${result}, not ${code}:\n"
            "${output}${error}")
    endif()
endmacro()

function(expect text says)
    if(NOT text MATCHES "${says}")
        message(SEND_ERROR "does not say \"${says}\":\n${text}")
    endif()
endfunction()

# No line of the last run is too wide.
function(expect_narrow)
    string(REGEX REPLACE "[][;]" "." lines "${output}")
    string(REPLACE "\n" ";" lines "${lines}")
    foreach(line IN LISTS lines)
        string(LENGTH "${line}" width)
        if(width GREATER 100)
            message(SEND_ERROR "wider than 100 columns: ${line}")
        endif()
    endforeach()
endfunction()

execute_process(COMMAND ${BENCH} --list --device Portable
    OUTPUT_VARIABLE devices)
if(NOT devices MATCHES "^Portable")
    message("no OpenCL device of PoCL")
    return()
endif()

# ---- A run that has no time ----
set(window "windows=4096 heads=3 queries=49 dim=32 bias=same")
set(map "grid=2 size=56x56 window=7x7 shift=3x3 mask=shift bias=table_same \
batch=64 heads=3 dim=32 layout=packed")
set(sliding "variant=sliding windows=4 heads=12 queries=4096 dim=64 block=256 \
window_blocks=4")
set(common --device Portable --dtype fp32)
run_bench(0 ${common} --seconds 3 --pass forward,backward
    --case "${window}" --case "${map}" --case "${sliding}"
    --log ${FOLDER}/log --json ${FOLDER}/a.json)
expect("${output}" "^winattn-bench [^\n]* 1 device, 3 cases, 6 rows on each")
expect("${output}" "\n  \\[1\\] Portable")
foreach(name own1 own2 own3)
    foreach(pass forward backward)
        expect("${output}" "\n  ${name}[:a-z0-9]* +${pass} +fp32 +[a-z]+ +\
[0-9.]+ [mu]?s +[0-9.]+% (copy|fma ) +[0-9.]+e-")
    endforeach()
endforeach()
expect("${output}" "own1:w[0-9]+ ") # shrunk, and it says so
if(output MATCHES "no time was left")
    message(SEND_ERROR "a row was left out:\n${output}")
endif()
expect("${output}" "\nSummary .*\n  of ceiling +\\[1\\]( +[0-9.]+%)+\n\
  over unfused +\\[1\\]")
expect("${output}" "\nResults: [^\n]*a.json\n")
expect_narrow()

# ---- What drivers print, and failed calls ----
if(FAILING)
    set(ENV{LD_PRELOAD} ${FAILING})
    set(small "windows=2 heads=1 queries=9 dim=8")
    # PoCL says on its own what it compiles
    set(ENV{POCL_DEBUG} llvm)
    set(ENV{FAILING_CALLS} -5)
    run_bench(1 ${common} --seconds 1 --no-unfused --case "${small}"
        --log ${FOLDER}/log)
    expect("${output}" "own1 +forward +fp32[ \n]+a call failed: [a-zA-Z]+ failed with CL_")
    expect("${output}" "\nFAILED: 1 row, see the table\n")
    expect("${error}" "^no result for 1 of [^\n]*\n1 rows? failed, see above\n$")
    if(output MATCHES "POCL")
        message(SEND_ERROR "a driver prints between the rows:\n${output}")
    endif()
    file(READ ${FOLDER}/log log)
    expect("${log}" "POCL")
    expect("${output}" "\nWhat drivers printed \\([0-9]+ lines\\): ")
    unset(ENV{POCL_DEBUG})
    # no room is no failure
    set(ENV{FAILING_CALLS} -4)
    run_bench(1 ${common} --seconds 1 --no-unfused --case "${small}")
    expect("${output}" "\nLeft out: 1 row \\(memory\\)\n")
    expect("${error}" "^no result for 1 of [^\n]*\n$")
    unset(ENV{FAILING_CALLS})
    # nor is a machine that is slow: cases that are named have their numbers
    set(ENV{SLOW_MACHINE} 100)
    run_bench(0 ${common} --seconds 1 --no-unfused --case "${small}"
        --case "${small} heads=2" --case "${small} heads=3")
    expect("${output}" "own3[:a-z0-9]* +forward +fp32 +[a-z]+ +[0-9.]+ [mu]?s ")
    unset(ENV{SLOW_MACHINE})
    unset(ENV{LD_PRELOAD})
endif()

# ---- Several files ----
find_program(python python3)
if(NOT python)
    return()
endif()
file(READ ${FOLDER}/a.json text)
string(REGEX REPLACE "\"name\": \"[^\"]*\"" "\"name\": \"Another\"" text
    "${text}")
# as older files are
string(REGEX REPLACE "\"(commit|winattn)\": \"[^\"]*\"," "" text "${text}")
string(REGEX REPLACE "\"own2[:a-z0-9]*\"" "\"swin-t-map-b64\"" text "${text}")
file(WRITE ${FOLDER}/b.json "${text}")
file(REMOVE ${FOLDER}/both.svg)
set(BENCH ${python} ${MERGE})
run_bench(0 ${FOLDER}/a.json ${FOLDER}/b.json --plot ${FOLDER}/both.svg)
expect("${output}" "\\[1\\] Portable.* a.json, winattn [0-9.]+.*\
\\[2\\] Portable Computing Language / Another")
expect("${output}" "\n  own3 +backward fp32 +[0-9.]+ +[0-9]+% +[-0-9.x]+ \
+[0-9.]+ +[0-9]+% ")
file(READ ${FOLDER}/both.svg picture)
expect("${picture}" "Another") # which has a case of the picture
expect("${picture}" "Swin-T map")
file(WRITE ${FOLDER}/damaged.json "{\"format\": 2}")
run_bench(1 ${FOLDER}/damaged.json)
expect("${error}" "damaged.json is no report of winattn-bench: another format")
