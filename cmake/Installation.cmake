# SPDX-License-Identifier: BSD-3-Clause
# What `cmake --install` leaves, beside what the rooms install themselves.
#
# A component is a Debian package (cmake/Packages.cmake): transports, dev,
# emulator and python. Who installs without packages gets all of them.
#
# Target `installable`: all that is installed, without tests and examples.
include(Packages)

set(_doc "${CMAKE_INSTALL_DATADIR}/doc")
set(_source "${CMAKE_CURRENT_SOURCE_DIR}")
install(FILES src/launcher/ucx-gaudi.bash RENAME ucx-gaudi
  DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
include(InstallPages)
gaudi_install_pages("${_doc}/${GAUDI_PACKAGE_transports}")
# In packages alone: what checks these looks for it.
install(CODE "
  if(\"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\" MATCHES \"/_CPack_Packages/\")
    file(INSTALL \"${_source}/cmake/lintian-overrides\" TYPE FILE
      RENAME \"${GAUDI_PACKAGE_transports}\" DESTINATION
      \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/lintian/overrides\")
  endif()")
install(DIRECTORY examples/ COMPONENT dev
  DESTINATION "${_doc}/${GAUDI_PACKAGE_dev}/examples"
  FILES_MATCHING PATTERN "*.c" PATTERN "*.h" PATTERN "*.py" PATTERN "Makefile")

# gaudi_install_compressed(FILE FOLDER NAME COMPONENT): as Debian wants man pages
# and changes, and `man` reads them everywhere.
find_program(GAUDI_GZIP gzip REQUIRED)
set(_compressed "")
function(gaudi_install_compressed file folder name component)
  set(output "${CMAKE_CURRENT_BINARY_DIR}/compressed/${component}/${name}.gz")
  get_filename_component(parent "${output}" DIRECTORY)
  file(MAKE_DIRECTORY "${parent}")
  add_custom_command(OUTPUT "${output}" DEPENDS "${file}" VERBATIM
    COMMAND sh -c "exec \"$0\" -9nc \"$1\" >\"$2\""
      "${GAUDI_GZIP}" "${file}" "${output}")
  install(FILES "${output}" DESTINATION "${folder}" COMPONENT ${component})
  set(_compressed ${_compressed} "${output}" PARENT_SCOPE)
endfunction()

gaudi_install_compressed("${_source}/docs/man/ucx-gaudi.1"
  "${CMAKE_INSTALL_MANDIR}/man1" ucx-gaudi.1 transports)
gaudi_install_compressed("${_source}/docs/man/ucx_gaudi.3"
  "${CMAKE_INSTALL_MANDIR}/man3" ucx_gaudi.3 dev)
foreach(_component IN LISTS GAUDI_PACKAGES)
  set(_folder "${_doc}/${GAUDI_PACKAGE_${_component}}")
  install(FILES LICENSE DESTINATION "${_folder}" RENAME copyright
    COMPONENT ${_component})
  gaudi_install_compressed("${GAUDI_DEBIAN_CHANGES}" "${_folder}"
    changelog.Debian ${_component})
  gaudi_install_compressed("${_source}/CHANGELOG.md" "${_folder}" changelog
    ${_component})
endforeach()

set(_parts ucx_gaudi_loader ucx-gaudi hlthunk_emu hlthunk_emu_hbl)
foreach(_release IN LISTS UCX_RELEASES)
  ucx_suffix(${_release} _suffix)
  list(APPEND _parts uct_hlthunk${_suffix})
endforeach()
add_custom_target(installed_documents ALL DEPENDS ${_compressed})
add_custom_target(installable DEPENDS ${_parts} installed_documents)

# Debugging symbols go to files of their own.
find_program(GAUDI_OBJCOPY objcopy REQUIRED)
install(CODE "
  set(objcopy \"${GAUDI_OBJCOPY}\")
  include(\"${CMAKE_CURRENT_LIST_DIR}/SplitSymbols.cmake\")" ALL_COMPONENTS)
