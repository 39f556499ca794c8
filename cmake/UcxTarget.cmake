# SPDX-License-Identifier: BSD-3-Clause
# ucx_add_release(RELEASE VERSION TREE): the targets of a release, whose private
# headers come from the tree.
#
# Its config.h is the one in the tree's top folder, which `configure` leaves
# there, or what `ucx_info -b | grep '^#define'` prints on the system that the
# module is for.
# Without one it is made from what the installed UCX says of itself.
#
# What is built for another release than the installed one links to libraries
# without content that have every name in the tree's headers: so a misspelt one
# is found, and the real libraries come at run time. So do modules of all
# releases: UCX_OF_PROCESS_<release> is the one that they need, which the loader
# has another one for (src/loader/bridge.c), made for the files of the process.

function(ucx_add_release release version tree)
  ucx_suffix(${release} suffix)
  set(folder "${CMAKE_BINARY_DIR}/ucx/${release}")
  _ucx_make_config_h(${release} ${version} "${tree}" "${folder}" config_from)
  _ucx_make_version_headers(${version} "${tree}" "${folder}/include")

  set(headers "${folder}/include" "${tree}/src")
  add_library(UCX::private${suffix} INTERFACE IMPORTED)
  # Where the tree is must not be in what is built. Of a link the compiler takes
  # either name.
  file(REAL_PATH "${tree}" real)
  set(maps "-ffile-prefix-map=${tree}=ucx-${version}")
  if(NOT real STREQUAL tree)
    list(APPEND maps "-ffile-prefix-map=${real}=ucx-${version}")
  endif()
  set_target_properties(UCX::private${suffix} PROPERTIES
    INTERFACE_COMPILE_OPTIONS "${maps}"
    INTERFACE_INCLUDE_DIRECTORIES "${headers}"
    INTERFACE_COMPILE_DEFINITIONS "HAVE_CONFIG_H=1")

  if(release STREQUAL _ucx_installed_release)
    set(headers "${UCX_INCLUDE_DIR}")
  endif()
  foreach(lib ucp uct ucs ucm)
    if(release STREQUAL _ucx_installed_release)
      add_library(UCX::${lib}${suffix} INTERFACE IMPORTED)
      set_target_properties(UCX::${lib}${suffix} PROPERTIES
        INTERFACE_LINK_LIBRARIES "${UCX_${lib}_LIBRARY}")
    else()
      _ucx_make_stand_in(lib${lib}.so.0 ${lib} ${version} "${tree}"
        "${folder}/lib")
      # The option: sizes of data are those of the running UCX.
      add_library(UCX::${lib}${suffix} SHARED IMPORTED)
      set_target_properties(UCX::${lib}${suffix} PROPERTIES
        IMPORTED_LOCATION "${folder}/lib/lib${lib}.so.0"
        INTERFACE_COMPILE_OPTIONS -fPIC)
    endif()
    set_target_properties(UCX::${lib}${suffix} PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES "${headers}")
  endforeach()
  _ucx_make_stand_in(libucx-of-process.so "uc[tsm]" ${version} "${tree}"
    "${folder}/lib")
  set(UCX_OF_PROCESS_${release} "${folder}/lib/libucx-of-process.so"
    PARENT_SCOPE)
  if(NOT release STREQUAL _ucx_installed_release)
    # Run paths leave these folders out, so the stand-ins are never loaded.
    set(CMAKE_PLATFORM_IMPLICIT_LINK_DIRECTORIES
      ${CMAKE_PLATFORM_IMPLICIT_LINK_DIRECTORIES} "${folder}/lib" PARENT_SCOPE)
  endif()
  if(release STREQUAL UCX_RELEASE)
    set(UCX_INCLUDE_DIRS "${headers}" PARENT_SCOPE)
    if(release STREQUAL _ucx_installed_release)
      set(flags -lucp -lucs)
    else()
      list(TRANSFORM headers PREPEND -isystem OUTPUT_VARIABLE flags)
      list(APPEND flags -fPIC "${folder}/lib/libucp.so.0"
        "${folder}/lib/libucs.so.0")
    endif()
    set(UCX_COMPILER_FLAGS ${flags} PARENT_SCOPE)
  endif()
  message(STATUS "UCX ${release}: headers of ${version} in ${tree}, config.h "
    "${config_from}")
endfunction()

function(_ucx_make_config_h release version tree folder from)
  # One that comes or goes is noticed, too.
  file(GLOB found CONFIGURE_DEPENDS "${tree}/config.h")
  if(found)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
      "${tree}/config.h")
    file(READ "${tree}/config.h" content)
    set(${from} "from there" PARENT_SCOPE)
    if(NOT content MATCHES "#define ENABLE_MT")
      message(FATAL_ERROR "${tree}/config.h does not say how UCX was "
        "configured. Make it by \"ucx_info -b | grep '^#define' >config.h\" "
        "on the system that the module is for, or remove it.")
    endif()
  else()
    set(content "${_ucx_installed_config}")
    set(${from} "of the installed UCX" PARENT_SCOPE)
    if(NOT release STREQUAL _ucx_installed_release)
      set_property(GLOBAL APPEND PROPERTY GAUDI_UCX_UNCONFIGURED "${tree}")
    endif()
  endif()
  file(CONFIGURE OUTPUT "${folder}/include/config.h" @ONLY CONTENT
"/* How UCX @version@ was configured. What `configure` makes has a guard. */
#pragma once
@content@
")
endfunction()

# What UCX's configure makes of headers that end in .in.
function(_ucx_make_version_headers VERSION tree folder)
  string(REPLACE "." ";" parts ${VERSION})
  list(GET parts 0 MAJOR_VERSION)
  list(GET parts 1 MINOR_VERSION)
  list(GET parts 2 PATCH_VERSION)
  foreach(header ucp/api/ucp_version.h uct/api/version.h)
    if(NOT EXISTS "${tree}/src/${header}.in")
      message(FATAL_ERROR "${tree}/src/${header}.in is missing")
    endif()
    configure_file("${tree}/src/${header}.in" "${folder}/${header}" @ONLY)
  endforeach()
endfunction()

# A library with every name in the headers that begins with <lib>_, and with
# those that UCX's macros make for classes. As functions, which they mostly are:
# to what is compiled with -fPIC it is all the same.
function(_ucx_make_stand_in name lib version tree folder)
  set(library "${folder}/${name}")
  set(source "${library}.s")
  execute_process(
    COMMAND grep -rhoEw --include=*.h --include=*.inl "(__)?${lib}_[A-Za-z0-9_]+"
            "${tree}/src"
    COMMAND sed -E "s/.*_t$/&\\n&_class\\n&_init\\n&_cleanup/"
    COMMAND sort -u
    OUTPUT_VARIABLE names)
  string(STRIP "${names}" names)
  string(REPLACE "\n" ";" names "${names}")
  if("ucs" MATCHES "${lib}")
    list(APPEND names void_class)
  endif()
  list(TRANSFORM names REPLACE "(.+)"
    ".globl \\1\n.type \\1, %function\n\\1: .skip 1\n.size \\1, 1")
  list(JOIN names "\n" names)
  file(CONFIGURE OUTPUT "${source}" @ONLY CONTENT
".section .note.GNU-stack, \"\"
.text
@names@
")
  if("${library}" IS_NEWER_THAN "${source}" AND EXISTS "${library}")
    return()
  endif()
  execute_process(
    COMMAND "${CMAKE_C_COMPILER}" -shared -nostdlib "-Wl,-soname,${name}"
            -o "${library}" "${source}"
    RESULT_VARIABLE result ERROR_VARIABLE error)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "The names in the headers of UCX ${version} cannot be "
      "made a library: ${error}")
  endif()
endfunction()
