# Finds the installed UCX and everything needed to build a module for it:
#
#   UCX::ucp UCX::uct UCX::ucs UCX::ucm   the installed libraries
#   UCX::private                          its private headers and config.h
#   UCX_VERSION                           MAJOR.MINOR.PATCH of the installed UCX
#   UCX_RELEASE                           its MAJOR.MINOR
#
# The private headers are those of exactly the installed version: from
# UCX_SOURCE_DIR when that is set, else from Debian's source package, which is
# kept in UCX_SOURCE_CACHE between builds.

set(UCX_SOURCE_DIR "" CACHE PATH
    "Source tree of the installed UCX version; empty: Debian's source package")
if(DEFINED ENV{XDG_CACHE_HOME})
  set(_ucx_cache "$ENV{XDG_CACHE_HOME}/ucx-gaudi")
elseif(DEFINED ENV{HOME})
  set(_ucx_cache "$ENV{HOME}/.cache/ucx-gaudi")
else()
  set(_ucx_cache "${CMAKE_BINARY_DIR}/ucx-source")
endif()
set(UCX_SOURCE_CACHE "${_ucx_cache}" CACHE PATH
    "Where fetched UCX sources are kept")

# --- the installed UCX -------------------------------------------------------

find_path(UCX_INCLUDE_DIR ucp/api/ucp.h)
find_program(UCX_INFO_EXECUTABLE ucx_info)
set(_ucx_missing "")
if(NOT UCX_INCLUDE_DIR)
  list(APPEND _ucx_missing "ucp/api/ucp.h (apt-get install libucx-dev)")
endif()
if(NOT UCX_INFO_EXECUTABLE)
  list(APPEND _ucx_missing "ucx_info (apt-get install ucx-utils)")
endif()
foreach(lib ucp uct ucs ucm)
  find_library(UCX_${lib}_LIBRARY ${lib})
  if(NOT UCX_${lib}_LIBRARY)
    list(APPEND _ucx_missing "lib${lib}.so (apt-get install libucx-dev)")
  else()
    add_library(UCX::${lib} SHARED IMPORTED)
    set_target_properties(UCX::${lib} PROPERTIES
      IMPORTED_LOCATION "${UCX_${lib}_LIBRARY}"
      INTERFACE_INCLUDE_DIRECTORIES "${UCX_INCLUDE_DIR}")
  endif()
endforeach()
if(_ucx_missing)
  list(JOIN _ucx_missing "\n  " _ucx_missing)
  message(FATAL_ERROR "No complete UCX is installed. Missing:\n  ${_ucx_missing}")
endif()

# Without the caller's settings of UCX: some of them print lines of their own.
set(_ucx_run_info sh -c
  "unset $(env | sed -n 's/^\\(UCX_[A-Za-z0-9_]*\\)=.*/\\1/p') && exec \"$0\" \"$@\""
  "${UCX_INFO_EXECUTABLE}")
execute_process(COMMAND ${_ucx_run_info} -v
  OUTPUT_VARIABLE _ucx_info ERROR_VARIABLE _ucx_error RESULT_VARIABLE _ucx_rc)
if(NOT _ucx_rc EQUAL 0 OR NOT _ucx_info MATCHES
   "[Vv]ersion[: ]+([0-9]+)\\.([0-9]+)\\.([0-9]+)")
  message(FATAL_ERROR "'${UCX_INFO_EXECUTABLE} -v' does not tell a version: "
    "${_ucx_info}${_ucx_error}")
endif()
set(UCX_VERSION "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3}")
set(UCX_RELEASE "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}")

# --- its private headers -----------------------------------------------------

if(UCX_SOURCE_DIR)
  set(_ucx_source "${UCX_SOURCE_DIR}")
else()
  execute_process(COMMAND dpkg-query -W -f "\${source:Version}" libucx0
    OUTPUT_VARIABLE _ucx_package RESULT_VARIABLE _ucx_rc ERROR_QUIET)
  if(NOT _ucx_rc EQUAL 0)
    message(FATAL_ERROR "UCX ${UCX_VERSION} does not come from Debian's "
      "package libucx0, so its source cannot be fetched. Unpack the source of "
      "UCX ${UCX_VERSION} and pass -DUCX_SOURCE_DIR=<that folder>.")
  endif()
  set(_ucx_source "${UCX_SOURCE_CACHE}/ucx-${_ucx_package}")
  if(NOT EXISTS "${_ucx_source}/src/uct/base/uct_md.h")
    message(STATUS "Fetching Debian's source package of UCX ${_ucx_package}")
    execute_process(
      COMMAND "${CMAKE_CURRENT_LIST_DIR}/../scripts/fetch-ucx-source"
              "${_ucx_source}"
      RESULT_VARIABLE _ucx_rc ERROR_VARIABLE _ucx_error)
    # A second configure run may have put it there meanwhile.
    if(NOT EXISTS "${_ucx_source}/src/uct/base/uct_md.h")
      message(FATAL_ERROR "${_ucx_error}UCX's private headers are missing. "
        "Pass -DUCX_SOURCE_DIR=<source tree of UCX ${UCX_VERSION}>, or mend "
        "what the message above names and configure again.")
    endif()
  endif()
endif()

if(NOT EXISTS "${_ucx_source}/src/uct/base/uct_md.h" OR
   NOT EXISTS "${_ucx_source}/configure.ac")
  message(FATAL_ERROR "UCX_SOURCE_DIR=${_ucx_source} is not a source tree of "
    "UCX: src/uct/base/uct_md.h and configure.ac must be there.")
endif()
file(STRINGS "${_ucx_source}/configure.ac" _ucx_ac
     REGEX "define\\(\\[ucx_ver_(major|minor|patch)\\]")
string(REGEX MATCHALL "[0-9]+" _ucx_ac "${_ucx_ac}")
list(JOIN _ucx_ac "." _ucx_source_version)
if(NOT _ucx_source_version STREQUAL UCX_VERSION)
  message(FATAL_ERROR "The installed UCX is ${UCX_VERSION}, but ${_ucx_source} "
    "is ${_ucx_source_version}. Pass the source of UCX ${UCX_VERSION}.")
endif()
set(UCX_PRIVATE_SOURCE "${_ucx_source}")

# --- config.h of the installed build -----------------------------------------

execute_process(COMMAND ${_ucx_run_info} -b
  OUTPUT_VARIABLE _ucx_config RESULT_VARIABLE _ucx_rc)
if(NOT _ucx_rc EQUAL 0 OR NOT _ucx_config MATCHES "#define ENABLE_MT")
  message(FATAL_ERROR "'${UCX_INFO_EXECUTABLE} -b' does not print the build "
    "configuration, so config.h cannot be generated.")
endif()
string(REGEX REPLACE "#define UCX_CONFIG_H[^\n]*\n" "" _ucx_config
       "${_ucx_config}")
file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/ucx/config.h" @ONLY CONTENT
"/* Generated from 'ucx_info -b' of UCX @UCX_VERSION@. */
#ifndef UCX_CONFIG_H
#define UCX_CONFIG_H
@_ucx_config@
#endif
")

add_library(UCX::private INTERFACE IMPORTED)
set_target_properties(UCX::private PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_BINARY_DIR}/ucx;${_ucx_source}/src"
  INTERFACE_COMPILE_DEFINITIONS "HAVE_CONFIG_H=1")

message(STATUS "UCX ${UCX_VERSION}: ${UCX_uct_LIBRARY}, "
               "private headers in ${_ucx_source}")
