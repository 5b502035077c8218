# SPDX-License-Identifier: Apache-2.0
# Is there a library of models? WINATTN_MODELS is ON, OFF, or AUTO, which is ON:
# it needs nothing that winattn does not, and takes more where that is found
# (host/models/CMakeLists.txt).
if(NOT DEFINED WINATTN_MODELS)
    set(WINATTN_MODELS AUTO CACHE STRING
        "Build the library of models: ON, OFF, or AUTO, which is ON")
    set_property(CACHE WINATTN_MODELS PROPERTY STRINGS AUTO ON OFF)
endif()
if(WINATTN_MODELS STREQUAL "AUTO")
    set(WINATTN_MODELS ON)
endif()
