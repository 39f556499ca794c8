# SPDX-License-Identifier: BSD-3-Clause
# Finds the installed UCX, and source trees of the releases to build modules
# for. A release is a minor one: MAJOR.MINOR.
#
#   UCX_RELEASES            the releases that are built, UCX_RELEASE first. A
#                           second tree of one, whose tables are others, is
#                           1.21-8f3a2b
#   UCX_VERSION             MAJOR.MINOR.PATCH of the source of UCX_RELEASE, and
#   UCX_VERSION_<release>   of each release
#   UCX_IS_INSTALLED        whether the installed UCX is of UCX_RELEASE
#   UCX_INSTALLED_VERSION   MAJOR.MINOR.PATCH of the installed UCX
#   UCX_PRIVATE_SOURCE      the source tree of UCX_RELEASE
#   UCX_INCLUDE_DIRS        the public headers of UCX_RELEASE
#   UCX_COMPILER_FLAGS      what compiles and links a program to UCP and UCS of
#                           UCX_RELEASE where no target can be used
#
# and for each release, with the suffix that ucx_suffix() tells:
#
#   UCX::ucp UCX::uct UCX::ucs UCX::ucm   the libraries, with public headers
#   UCX::private                          the private headers and config.h
#
# The tree of the installed version is fetched when it is not at hand. For other
# releases no tree is needed, and what has none is left out. Where the cache has
# several of a release, the newest is taken.

set(UCX_SOURCE_DIRS "" CACHE STRING
    "UCX source trees, one for a release; empty: those that UCX_SOURCE_CACHE has")
set(UCX_RELEASE "" CACHE STRING
    "Release of UCX, as 1.18, that tests and examples are built for; empty: the installed one")
# As in scripts/fetch-ucx-source.
if(NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
  set(_ucx_cache "$ENV{XDG_CACHE_HOME}/ucx-gaudi")
elseif(NOT "$ENV{HOME}" STREQUAL "")
  set(_ucx_cache "$ENV{HOME}/.cache/ucx-gaudi")
elseif(NOT DEFINED UCX_SOURCE_CACHE)
  message(FATAL_ERROR "Neither HOME nor XDG_CACHE_HOME is set, so it is not "
    "known where UCX source trees are kept: pass -DUCX_SOURCE_CACHE=.")
endif()
set(UCX_SOURCE_CACHE "${_ucx_cache}" CACHE PATH
    "Where UCX source trees are kept, as ucx-VERSION")
set(_ucx_fetch "${CMAKE_CURRENT_LIST_DIR}/../scripts/fetch-ucx-source")

include(UcxInstalled)
include(UcxTarget)

set(_ucx_oldest 1.13)
set(_ucx_newest 1.23)

# ucx_suffix(RELEASE VARIABLE): what names of targets that are built for a
# release end with. Those of UCX_RELEASE have the plain names.
function(ucx_suffix release variable)
  if(release STREQUAL UCX_RELEASE)
    set(${variable} "" PARENT_SCOPE)
  else()
    set(${variable} "-${release}" PARENT_SCOPE)
  endif()
endfunction()

# --- which releases ----------------------------------------------------------

function(_ucx_release_of version variable)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" release "${version}")
  set(${variable} "${release}" PARENT_SCOPE)
endfunction()

_ucx_release_of("${UCX_INSTALLED_VERSION}" _ucx_installed_release)
if(UCX_RELEASE STREQUAL "")
  set(UCX_RELEASE "${_ucx_installed_release}")
elseif(NOT UCX_RELEASE MATCHES "^[0-9]+\\.[0-9]+$")
  message(FATAL_ERROR "UCX_RELEASE=${UCX_RELEASE} is no release of UCX, such "
    "as 1.18.")
endif()
if(UCX_RELEASE VERSION_LESS _ucx_oldest OR
   UCX_RELEASE VERSION_GREATER _ucx_newest)
  message(FATAL_ERROR "UCX ${UCX_RELEASE} is not supported: this project is "
    "for UCX ${_ucx_oldest} to ${_ucx_newest}. Choose one of these by "
    "-DUCX_RELEASE=.")
endif()

# Which of the functions in layout.def a tree has.
file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/../src/uct/gaudi/base/ucx/layout.def"
     _ucx_slots REGEX "^UCX_SLOT\\(")
list(TRANSFORM _ucx_slots REPLACE "UCX_SLOT\\((.*)" "\\1")
list(TRANSFORM _ucx_slots REPLACE ",.*" "")
function(_ucx_find_functions tree variable)
  file(GLOB headers "${tree}/src/uct/api/*.h" "${tree}/src/uct/api/v2/*.h"
    "${tree}/src/uct/base/*.h")
  set(content "")
  foreach(header IN LISTS headers)
    file(READ "${header}" one)
    string(APPEND content "${one}")
  endforeach()
  set(functions "")
  foreach(function IN LISTS _ucx_slots)
    if(content MATCHES "[^a-z_]${function}\\(")
      list(APPEND functions ${function})
    else()
      list(APPEND functions -${function})
    endif()
  endforeach()
  set(${variable} "${functions}" PARENT_SCOPE)
endfunction()

# Takes a tree, whose tables may not be those of a tree that there is already.
function(_ucx_add_tree tree)
  get_filename_component(tree "${tree}" ABSOLUTE BASE_DIR "${CMAKE_BINARY_DIR}")
  if(NOT EXISTS "${tree}/src/uct/base/uct_md.h" OR
     NOT EXISTS "${tree}/configure.ac")
    message(FATAL_ERROR "${tree} is no source tree of UCX: "
      "src/uct/base/uct_md.h and configure.ac must be there.")
  endif()
  file(STRINGS "${tree}/configure.ac" lines
       REGEX "define\\(\\[ucx_ver_(major|minor|patch)\\]")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
    "${tree}/configure.ac")
  string(REGEX MATCHALL "[0-9]+" version "${lines}")
  list(JOIN version "." version)
  if(NOT version MATCHES "^[0-9]+\\.[0-9]+\\.[0-9]+$")
    message(FATAL_ERROR "${tree}/configure.ac does not tell which version of "
      "UCX it is.")
  endif()
  if(version VERSION_LESS _ucx_oldest)
    message(FATAL_ERROR "${tree} is UCX ${version}: this project is for UCX "
      "${_ucx_oldest} to ${_ucx_newest}.")
  endif()
  if(version VERSION_GREATER_EQUAL "${_ucx_newest}.999")
    message(WARNING "${tree} is UCX ${version}, newer than what this project "
      "is for, UCX ${_ucx_oldest} to ${_ucx_newest}: what is built of it may "
      "not work.")
  endif()
  _ucx_release_of("${version}" release)
  _ucx_find_functions("${tree}" functions)
  if(DEFINED _ucx_tree_${release})
    string(SHA256 tables "${functions}")
    string(SUBSTRING "${tables}" 0 6 tables)
    set(first "${release}")
    set(release "${release}-${tables}")
    if("${_ucx_functions_${first}}" STREQUAL "${functions}" OR
       DEFINED _ucx_tree_${release})
      message(FATAL_ERROR "${_ucx_tree_${first}} and ${tree} are both UCX "
        "${first}, with the same tables: one module fits both, so leave one of "
        "them out.")
    endif()
  endif()
  set(_ucx_functions_${release} "${functions}" PARENT_SCOPE)
  set(_ucx_tree_${release} "${tree}" PARENT_SCOPE)
  set(UCX_VERSION_${release} "${version}" PARENT_SCOPE)
  set(_ucx_at_hand ${_ucx_at_hand} ${release} PARENT_SCOPE)
endfunction()

# The sources that are known: VERSION, TAG and checksum in each line.
file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/ucx-sources" _ucx_sources
     REGEX "^[0-9]")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  "${CMAKE_CURRENT_LIST_DIR}/ucx-sources")
set(_ucx_known "")
foreach(_ucx_line IN LISTS _ucx_sources)
  string(REGEX REPLACE "[ \t]+" ";" _ucx_line "${_ucx_line}")
  list(GET _ucx_line 0 _ucx_known_version)
  list(GET _ucx_line 2 _ucx_known_checksum_${_ucx_known_version})
  if(_ucx_known_version MATCHES "-") # a second one of its release
    continue()
  endif()
  _ucx_release_of("${_ucx_known_version}" _ucx_known_release)
  list(APPEND _ucx_known ${_ucx_known_release})
  set(_ucx_known_version_${_ucx_known_release} ${_ucx_known_version})
endforeach()
# What else is there, such as other versions.
file(GLOB _ucx_kept RELATIVE "${UCX_SOURCE_CACHE}" "${UCX_SOURCE_CACHE}/ucx-*")
list(FILTER _ucx_kept INCLUDE REGEX "^ucx-[0-9]+\\.[0-9]+\\.[0-9]+$")
list(SORT _ucx_kept COMPARE NATURAL)
foreach(_ucx_tree IN LISTS _ucx_kept)
  string(SUBSTRING "${_ucx_tree}" 4 -1 _ucx_kept_version)
  _ucx_release_of("${_ucx_kept_version}" _ucx_kept_release)
  if(_ucx_kept_release VERSION_GREATER_EQUAL _ucx_oldest AND
     _ucx_kept_release VERSION_LESS_EQUAL _ucx_newest)
    list(APPEND _ucx_known ${_ucx_kept_release})
    set(_ucx_known_version_${_ucx_kept_release} ${_ucx_kept_version})
  endif()
endforeach()
list(REMOVE_DUPLICATES _ucx_known)
# Of the installed release it is the installed version that is looked for.
if(_ucx_installed_release VERSION_GREATER_EQUAL _ucx_oldest AND
   _ucx_installed_release VERSION_LESS_EQUAL _ucx_newest)
  list(APPEND _ucx_known ${_ucx_installed_release})
  list(REMOVE_DUPLICATES _ucx_known)
  set(_ucx_known_version_${_ucx_installed_release} ${UCX_INSTALLED_VERSION})
endif()

set(_ucx_at_hand "")
foreach(_ucx_tree IN LISTS UCX_SOURCE_DIRS)
  _ucx_add_tree("${_ucx_tree}")
endforeach()
# A build with a sanitizer is for looking at one release.
if(UCX_SOURCE_DIRS STREQUAL "" AND NOT GAUDI_SANITIZE)
  set(_ucx_candidates ${_ucx_known})
else()
  set(_ucx_candidates "")
endif()
list(REMOVE_ITEM _ucx_candidates ${UCX_RELEASE})
foreach(_ucx_candidate IN LISTS _ucx_candidates)
  set(_ucx_tree "${UCX_SOURCE_CACHE}/ucx-${_ucx_known_version_${_ucx_candidate}}")
  if(EXISTS "${_ucx_tree}")
    _ucx_add_tree("${_ucx_tree}")
  endif()
endforeach()
# Commits that call themselves as a release does, and are others.
if(_ucx_candidates)
  file(GLOB _ucx_seconds "${UCX_SOURCE_CACHE}/ucx-*.*.*-*")
  foreach(_ucx_tree IN LISTS _ucx_seconds)
    _ucx_add_tree("${_ucx_tree}")
  endforeach()
endif()

# UCX_RELEASE is always built.
if(NOT UCX_RELEASE STREQUAL _ucx_installed_release AND
   NOT DEFINED _ucx_tree_${UCX_RELEASE})
  set(_ucx_tree
    "${UCX_SOURCE_CACHE}/ucx-${_ucx_known_version_${UCX_RELEASE}}")
  if(NOT EXISTS "${_ucx_tree}")
    message(FATAL_ERROR "UCX_RELEASE=${UCX_RELEASE}: no source of it is at "
      "hand. 'scripts/fetch-ucx-source ${_ucx_known_version_${UCX_RELEASE}}' "
      "tells how to get it, or name a tree in UCX_SOURCE_DIRS.")
  endif()
  _ucx_add_tree("${_ucx_tree}")
endif()
if(UCX_RELEASE STREQUAL _ucx_installed_release AND
   NOT DEFINED _ucx_tree_${UCX_RELEASE})
  set(_ucx_tree "${UCX_SOURCE_CACHE}/ucx-${UCX_INSTALLED_VERSION}")
  if(NOT EXISTS "${_ucx_tree}")
    message(STATUS "Fetching the source of UCX ${UCX_INSTALLED_VERSION}")
    execute_process(
      COMMAND "${_ucx_fetch}" --cache "${UCX_SOURCE_CACHE}"
              "${UCX_INSTALLED_VERSION}"
      ERROR_VARIABLE _ucx_error OUTPUT_QUIET)
    # A second configure run may have put it there meanwhile.
    if(NOT EXISTS "${_ucx_tree}")
      # Another XDG_CACHE_HOME is to count when configured again.
      if(UCX_SOURCE_CACHE STREQUAL "${_ucx_cache}")
        unset(UCX_SOURCE_CACHE CACHE)
      endif()
      message(FATAL_ERROR "${_ucx_error}UCX's private headers are missing. "
        "Pass -DUCX_SOURCE_DIRS=<source tree of UCX "
        "${UCX_INSTALLED_VERSION}>, or mend what the message above names and "
        "configure again.")
    endif()
  endif()
  _ucx_add_tree("${_ucx_tree}")
endif()

list(REMOVE_ITEM _ucx_at_hand ${UCX_RELEASE})
list(SORT _ucx_at_hand COMPARE NATURAL)
set(UCX_RELEASES ${UCX_RELEASE} ${_ucx_at_hand})
set(UCX_VERSION "${UCX_VERSION_${UCX_RELEASE}}")
set(UCX_PRIVATE_SOURCE "${_ucx_tree_${UCX_RELEASE}}")
if(UCX_RELEASE STREQUAL _ucx_installed_release)
  set(UCX_IS_INSTALLED TRUE)
else()
  set(UCX_IS_INSTALLED FALSE)
endif()

# --- what targets link to ----------------------------------------------------

foreach(_ucx_release IN LISTS UCX_RELEASES)
  set(_ucx_version "${UCX_VERSION_${_ucx_release}}")
  set(_ucx_tree "${_ucx_tree_${_ucx_release}}")
  if(_ucx_tree MATCHES "/ucx-([^/]+-[0-9a-f]+)$")
    set(_ucx_version "${CMAKE_MATCH_1}")
  endif()
  if(DEFINED _ucx_known_checksum_${_ucx_version})
    execute_process(
      COMMAND "${_ucx_fetch}" --print-checksum "${_ucx_tree}"
      OUTPUT_VARIABLE _ucx_checksum RESULT_VARIABLE _ucx_rc)
    if(_ucx_rc EQUAL 0 AND NOT _ucx_checksum MATCHES
       "${_ucx_known_checksum_${_ucx_version}}")
      message(WARNING "The headers in ${_ucx_tree} are not those of UCX "
        "${_ucx_version} (cmake/ucx-sources): the module may not fit a UCX of "
        "that version. It checks that when it is loaded.")
    endif()
  endif()
  ucx_add_release(${_ucx_release} "${UCX_VERSION_${_ucx_release}}"
    "${_ucx_tree}")
endforeach()
# Said last, where it is seen.
function(_ucx_warn_of_unconfigured trees)
  list(JOIN trees "\n  " trees)
  message(WARNING "No config.h is in\n  ${trees}\n"
    "so that of the installed UCX ${UCX_INSTALLED_VERSION} is used. Modules "
    "refuse a UCX that was configured in another way, such as without "
    "assertions. Run \"ucx_info -b | grep '^#define'\" where that UCX is, and "
    "put what it prints into config.h in the tree.")
endfunction()
get_property(_ucx_unconfigured GLOBAL PROPERTY GAUDI_UCX_UNCONFIGURED)
if(_ucx_unconfigured)
  cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}"
    CALL _ucx_warn_of_unconfigured "${_ucx_unconfigured}")
endif()

set(_ucx_left_out "")
foreach(_ucx_release IN LISTS _ucx_known)
  if(NOT _ucx_release IN_LIST UCX_RELEASES)
    list(APPEND _ucx_left_out ${_ucx_known_version_${_ucx_release}})
  endif()
endforeach()
if(_ucx_left_out AND NOT GAUDI_SANITIZE)
  list(JOIN _ucx_left_out " " _ucx_left_out)
  if(UCX_SOURCE_DIRS STREQUAL "")
    message(STATUS "Left out, no source at hand: UCX ${_ucx_left_out} "
      "('scripts/fetch-ucx-source VERSION' gets one, or tells what to type)")
  else()
    message(STATUS "Left out, not in UCX_SOURCE_DIRS: UCX ${_ucx_left_out}")
  endif()
endif()
