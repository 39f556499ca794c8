# gaudi_room(TARGET ARCHIVE SOURCES files... ABOVE targets...): the files of a
# room as a target of its own, which becomes part of a static library. ABOVE are
# the rooms and libraries that it builds on.
function(gaudi_room target archive)
  cmake_parse_arguments(arg "" "" "SOURCES;ABOVE" ${ARGN})
  add_library(${target} OBJECT ${arg_SOURCES})
  target_link_libraries(${target} PUBLIC ${arg_ABOVE})
  target_sources(${archive} PRIVATE $<TARGET_OBJECTS:${target}>)
endfunction()
