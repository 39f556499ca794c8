# SPDX-License-Identifier: BSD-3-Clause
# What `cmake --install` leaves, beside what the rooms install themselves. The
# components transports, dev, emulator and python are packages of their own
# (debian/, packaging/).
#
# Target `installable`: all that is installed, without tests and examples.
set(_doc "${CMAKE_INSTALL_DATADIR}/doc/ucx-gaudi-transports")
install(FILES src/launcher/ucx-gaudi.bash RENAME ucx-gaudi
  DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
install(FILES README.md LICENSE DESTINATION "${_doc}")
install(DIRECTORY docs DESTINATION "${_doc}"
  FILES_MATCHING PATTERN "*.md" PATTERN man EXCLUDE)
install(DIRECTORY examples/ DESTINATION "${_doc}-dev/examples" COMPONENT dev
  FILES_MATCHING PATTERN "*.c" PATTERN "*.h" PATTERN "*.py" PATTERN "Makefile")
install(FILES docs/man/ucx-gaudi.1 DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")

set(_parts ucx_gaudi_loader ucx-gaudi hlthunk_emu hlthunk_emu_hbl)
foreach(_release IN LISTS UCX_RELEASES)
  ucx_suffix(${_release} _suffix)
  list(APPEND _parts uct_hlthunk${_suffix})
endforeach()
add_custom_target(installable DEPENDS ${_parts})
