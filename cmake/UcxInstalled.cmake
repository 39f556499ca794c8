# SPDX-License-Identifier: BSD-3-Clause
# The installed UCX: UCX_INSTALLED_VERSION, UCX_INCLUDE_DIR, UCX_RUNTIME_DIR,
# UCX_<lib>_LIBRARY, and what its ucx_info says of how it was built
# (_ucx_installed_config).

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
  endif()
endforeach()
if(_ucx_missing)
  list(JOIN _ucx_missing "\n  " _ucx_missing)
  message(FATAL_ERROR "No complete UCX is installed. Missing:\n  ${_ucx_missing}")
endif()
get_filename_component(_ucx_directory "${UCX_ucs_LIBRARY}" DIRECTORY)
set(UCX_RUNTIME_DIR "${_ucx_directory}" CACHE PATH
    "Where UCX's libraries are on the system that the build is for")

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
set(UCX_INSTALLED_VERSION "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3}")

execute_process(COMMAND ${_ucx_run_info} -b
  OUTPUT_VARIABLE _ucx_installed_config RESULT_VARIABLE _ucx_rc)
if(NOT _ucx_rc EQUAL 0 OR NOT _ucx_installed_config MATCHES "#define ENABLE_MT")
  message(FATAL_ERROR "'${UCX_INFO_EXECUTABLE} -b' does not print the build "
    "configuration, so config.h cannot be generated.")
endif()
# Without what UCX may have to say beside.
string(REGEX MATCHALL "#define[^\n]*\n" _ucx_installed_config
       "${_ucx_installed_config}")
string(JOIN "" _ucx_installed_config ${_ucx_installed_config})
