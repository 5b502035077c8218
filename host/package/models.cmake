# SPDX-License-Identifier: Apache-2.0
# Is there a library of models? WINATTN_MODELS is ON, OFF, or AUTO: where what
# it needs is found. The answer hides the cached word, so that an AUTO asks
# again when something was installed meanwhile.
if(NOT DEFINED WINATTN_MODELS)
    set(WINATTN_MODELS AUTO CACHE STRING
        "Build winattn_models: ON, OFF, or AUTO, where its needs are found")
    set_property(CACHE WINATTN_MODELS PROPERTY STRINGS AUTO ON OFF)
endif()
set(models_lack "") # what is needed and was not found
if(WINATTN_MODELS STREQUAL "AUTO" AND models_lack)
    message(STATUS "winattn: no ${models_lack}, so no winattn_models")
    set(WINATTN_MODELS OFF)
elseif(WINATTN_MODELS STREQUAL "AUTO")
    set(WINATTN_MODELS ON)
elseif(WINATTN_MODELS AND models_lack)
    message(FATAL_ERROR "WINATTN_MODELS=ON needs ${models_lack}")
endif()
