# SPDX-License-Identifier: BSD-3-Clause
# The pages that are installed, in the order of folders that the source has.
#
# gaudi_install_pages(FOLDER): below this one. Links to what is not installed
# become plain text.
function(gaudi_install_pages folder)
  file(GLOB pages CONFIGURE_DEPENDS RELATIVE "${CMAKE_SOURCE_DIR}"
    "${CMAKE_SOURCE_DIR}/docs/*.md" "${CMAKE_SOURCE_DIR}/docs/adr/*.md")
  list(APPEND pages README.md CONTRIBUTING.md SECURITY.md)
  foreach(page IN LISTS pages)
    set(output "${CMAKE_CURRENT_BINARY_DIR}/pages/${page}")
    get_filename_component(parent "${page}" DIRECTORY)
    _gaudi_write_page("${page}" "${output}" "${pages};docs;docs/adr")
    install(FILES "${output}" DESTINATION "${folder}/${parent}")
  endforeach()
endfunction()

function(_gaudi_write_page page output installed)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
    "${CMAKE_SOURCE_DIR}/${page}")
  get_filename_component(parent "${page}" DIRECTORY)
  file(READ "${CMAKE_SOURCE_DIR}/${page}" text)
  # Brackets and semicolons mean something in a list.
  string(REPLACE "](" " LINK(" links "${text}")
  string(REGEX REPLACE "[][;]" " " links "${links}")
  string(REGEX MATCHALL " LINK\\([^() \n]+\\)" links "${links}")
  list(REMOVE_DUPLICATES links)
  foreach(link IN LISTS links)
    string(REGEX REPLACE "^ LINK\\((.*)\\)$" "\\1" target "${link}")
    string(REGEX REPLACE "#.*" "" file "${target}")
    if(target MATCHES "^#|^[a-z]+:")
      continue()
    endif()
    cmake_path(SET file NORMALIZE "${parent}/${file}")
    string(REGEX REPLACE "^/|/$" "" file "${file}")
    if(NOT file IN_LIST installed)
      string(REGEX REPLACE "([.+*?$^])" "\\\\\\1" target "${target}")
      string(REGEX REPLACE "\\[([^]]*)\\]\\(${target}\\)" "\\1" text "${text}")
    endif()
  endforeach()
  file(WRITE "${output}" "${text}")
endfunction()
