# SPDX-License-Identifier: BSD-3-Clause
# gaudi_room(TARGET ARCHIVE SOURCES files... ABOVE targets...): the files of a
# room as a target of its own, which becomes part of a static library. ABOVE are
# the rooms and libraries that it builds on.
#
# Rooms below src/uct/gaudi are there once for each release of UCX, with
# UCX_SUFFIX behind their names; so is what they are built on of these and of UCX.
function(gaudi_room target archive)
  cmake_parse_arguments(arg "" "" "SOURCES;ABOVE" ${ARGN})
  list(TRANSFORM arg_ABOVE APPEND "${UCX_SUFFIX}"
    REGEX "^(UCX::|gaudi_(base|copy|ipc)(_|$))")
  set(target "${target}${UCX_SUFFIX}")
  add_library(${target} OBJECT ${arg_SOURCES})
  target_link_libraries(${target} PUBLIC ${arg_ABOVE})
  target_sources(${archive}${UCX_SUFFIX} PRIVATE $<TARGET_OBJECTS:${target}>)
endfunction()
