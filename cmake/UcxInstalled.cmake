# SPDX-License-Identifier: BSD-3-Clause
# The UCX that is built for: UCX_INSTALLED_VERSION, UCX_INCLUDE_DIR,
# UCX_RUNTIME_DIR, UCX_<lib>_LIBRARY, and what its ucx_info says of how it was
# built (_ucx_installed_config). All are of one UCX: that of UCX_ROOT, else of
# CMAKE_PREFIX_PATH, PKG_CONFIG_PATH, or PATH.

set(UCX_ROOT "" CACHE PATH "Folder of the UCX to build for; empty: the first one \
in CMAKE_PREFIX_PATH, PKG_CONFIG_PATH and PATH")

function(_ucx_find_root variable)
  set(${variable} "${UCX_ROOT}" PARENT_SCOPE)
  if(UCX_ROOT)
    return()
  endif()
  unset(program)
  find_program(program ucx_info NO_SYSTEM_ENVIRONMENT_PATH NO_CMAKE_SYSTEM_PATH
    NO_CACHE)
  if(NOT program AND NOT "$ENV{PKG_CONFIG_PATH}" STREQUAL "")
    execute_process(COMMAND pkg-config --variable=prefix ucx
      OUTPUT_VARIABLE prefix OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(EXISTS "${prefix}/bin/ucx_info")
      set(program "${prefix}/bin/ucx_info")
    endif()
  endif()
  if(NOT program)
    find_program(program ucx_info NO_CACHE)
  endif()
  if(program)
    get_filename_component(prefix "${program}" DIRECTORY)
    get_filename_component(prefix "${prefix}" DIRECTORY)
    set(${variable} "${prefix}" PARENT_SCOPE)
  endif()
endfunction()
_ucx_find_root(_ucx_root)

# What an earlier run found may be of another UCX.
function(_ucx_forget)
  get_filename_component(folder "${UCX_ucs_LIBRARY}" DIRECTORY)
  if(UCX_RUNTIME_DIR STREQUAL folder)
    unset(UCX_RUNTIME_DIR CACHE)
  endif()
  foreach(name INCLUDE_DIR INFO_EXECUTABLE ucp_LIBRARY uct_LIBRARY ucs_LIBRARY
          ucm_LIBRARY)
    unset(UCX_${name} CACHE)
  endforeach()
endfunction()
if(UCX_INFO_EXECUTABLE AND
   NOT UCX_INFO_EXECUTABLE STREQUAL "${_ucx_root}/bin/ucx_info")
  _ucx_forget()
endif()

find_path(UCX_INCLUDE_DIR ucp/api/ucp.h HINTS "${_ucx_root}/include")
find_program(UCX_INFO_EXECUTABLE ucx_info HINTS "${_ucx_root}/bin")
set(_ucx_missing "")
if(NOT UCX_INCLUDE_DIR)
  list(APPEND _ucx_missing "ucp/api/ucp.h")
endif()
if(NOT UCX_INFO_EXECUTABLE)
  list(APPEND _ucx_missing "ucx_info")
endif()
foreach(lib ucp uct ucs ucm)
  find_library(UCX_${lib}_LIBRARY ${lib} HINTS "${_ucx_root}/lib")
  if(NOT UCX_${lib}_LIBRARY)
    list(APPEND _ucx_missing "lib${lib}.so")
  endif()
endforeach()
if(_ucx_missing)
  list(JOIN _ucx_missing ", " _ucx_missing)
  message(FATAL_ERROR "No complete UCX is found, missing: ${_ucx_missing} "
    "(name the folder of one by -DUCX_ROOT=FOLDER, or install libucx-dev and "
    "ucx-utils, on RHEL ucx and ucx-devel)")
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
set(UCX_INSTALLED_VERSION "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3}")

# With a second UCX in PATH, ucx_info may be of that one, and the rest not.
function(_ucx_check_that_it_is_one)
  set(CMAKE_CROSSCOMPILING_EMULATOR "") # the libraries are those found here
  set(folder "${CMAKE_BINARY_DIR}/CMakeFiles/ucx_versions")
  file(WRITE "${folder}/ucx_versions.c" "
#include <stdio.h>
#include <ucp/api/ucp.h>
int main(void)
{
    printf(\"%d.%d;%s\", UCP_API_MAJOR, UCP_API_MINOR, ucp_get_version_string());
    return 0;
}")
  unset(status CACHE)
  unset(compiles CACHE)
  try_run(status compiles "${folder}" "${folder}/ucx_versions.c"
    CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${UCX_INCLUDE_DIR}"
    LINK_LIBRARIES "${UCX_ucp_LIBRARY}" "${UCX_uct_LIBRARY}"
      "${UCX_ucs_LIBRARY}" "${UCX_ucm_LIBRARY}"
    COMPILE_OUTPUT_VARIABLE error RUN_OUTPUT_VARIABLE versions)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" release "${UCX_INSTALLED_VERSION}")
  if(versions STREQUAL "${release};${UCX_INSTALLED_VERSION}")
    return()
  endif()
  set(headers "the headers in ${UCX_INCLUDE_DIR}")
  set(library "${UCX_ucp_LIBRARY}")
  set(program "${UCX_INFO_EXECUTABLE}")
  _ucx_forget()
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "No program can be made of ${headers} and ${library}: "
      "${error}")
  endif()
  list(POP_FRONT versions of_headers of_library)
  message(FATAL_ERROR "${program} is UCX ${UCX_INSTALLED_VERSION}, ${headers} "
    "are UCX ${of_headers}, and ${library} is UCX ${of_library} (name "
    "the folder of one UCX by -DUCX_ROOT=FOLDER)")
endfunction()
_ucx_check_that_it_is_one()
find_program(_ucx_in_path ucx_info NO_CMAKE_PATH NO_CMAKE_ENVIRONMENT_PATH
  NO_CACHE)
if(_ucx_in_path)
  file(REAL_PATH "${_ucx_in_path}" _ucx_in_path)
  file(REAL_PATH "${UCX_INFO_EXECUTABLE}" _ucx_program)
  if(NOT _ucx_in_path STREQUAL _ucx_program)
    message(WARNING "This build is for the UCX of ${UCX_INFO_EXECUTABLE}. Tests "
      "run ${_ucx_in_path}, which comes first in PATH: put the former there.")
  endif()
endif()
get_filename_component(_ucx_directory "${UCX_ucs_LIBRARY}" DIRECTORY)
set(UCX_RUNTIME_DIR "${_ucx_directory}" CACHE PATH
    "Where UCX's libraries are on the system that the build is for")

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
