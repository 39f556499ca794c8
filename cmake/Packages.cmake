# SPDX-License-Identifier: BSD-3-Clause
# The Debian packages that `cpack` makes (scripts/package).
#
#   GAUDI_PACKAGES             the components that are packages
#   GAUDI_PACKAGE_<component>  what its package is called
#   GAUDI_DEBIAN_CHANGES       the changes of the packages, as Debian has them
#
# A revision is below those that a distribution would give its own packages.
set(GAUDI_PACKAGE_REVISION 0.1 CACHE STRING
    "Counts packages that are made of one version")
set(GAUDI_PACKAGE_MAINTAINER
    "ucx-gaudi maintainers <maintainers@ucx-gaudi.example>"
    CACHE STRING "Name and address of who makes the packages")
set(GAUDI_PACKAGES transports dev emulator python)
set(GAUDI_PACKAGE_transports ucx-gaudi-transports)
set(GAUDI_PACKAGE_dev ucx-gaudi-transports-dev)
set(GAUDI_PACKAGE_emulator hl-thunk-emulator)
set(GAUDI_PACKAGE_python python3-ucx-gaudi)
set(_version "${PROJECT_VERSION}-${GAUDI_PACKAGE_REVISION}")

# What is in the packages is of the time of the last change, so that the same
# source gives the same files.
if(DEFINED ENV{SOURCE_DATE_EPOCH})
  set(_changed "$ENV{SOURCE_DATE_EPOCH}")
else()
  execute_process(COMMAND git -C "${CMAKE_SOURCE_DIR}" log -1 --format=%ct -- .
    OUTPUT_VARIABLE _changed OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT _changed) # not from a repository, where files have times of their own
    file(TIMESTAMP "${CMAKE_SOURCE_DIR}/CHANGELOG.md" _changed "%s" UTC)
  endif()
endif()
file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/source-date.cmake" @ONLY CONTENT
  "set(ENV{SOURCE_DATE_EPOCH} @_changed@)\n")
set(CPACK_PROJECT_CONFIG_FILE "${CMAKE_BINARY_DIR}/source-date.cmake")
set(ENV{SOURCE_DATE_EPOCH} "${_changed}")
string(TIMESTAMP _changed "%a, %d %b %Y %H:%M:%S +0000" UTC)
set(GAUDI_DEBIAN_CHANGES "${CMAKE_BINARY_DIR}/changelog.Debian")
configure_file("${CMAKE_CURRENT_LIST_DIR}/changelog.Debian.in"
  "${GAUDI_DEBIAN_CHANGES}" @ONLY)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ucx-gaudi)
set(CPACK_PACKAGE_CONTACT "${GAUDI_PACKAGE_MAINTAINER}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DIRECTORY "${CMAKE_BINARY_DIR}/packages")
set(CPACK_COMPONENTS_ALL ${GAUDI_PACKAGES})
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${GAUDI_PACKAGE_REVISION})
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# Where what modules need instead of UCX's libraries is to be found.
cmake_path(GET UCX_OF_PROCESS_${UCX_RELEASE} PARENT_PATH
  CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_POST_BUILD_SCRIPTS "${CMAKE_CURRENT_LIST_DIR}/SymbolPackages.cmake")

set(CPACK_DEBIAN_TRANSPORTS_PACKAGE_NAME ${GAUDI_PACKAGE_transports})
set(CPACK_DEBIAN_TRANSPORTS_PACKAGE_SECTION libs)
# For programs that are linked with the loader. As Debian does, by a trigger and
# not by a script: naming scripts that are not there keeps CPack from making some.
set(_control "${CMAKE_BINARY_DIR}/control")
file(CONFIGURE OUTPUT "${_control}/shlibs" @ONLY CONTENT
  "libuct_hlthunk 0 @GAUDI_PACKAGE_transports@ (>= @PROJECT_VERSION@)\n")
file(CONFIGURE OUTPUT "${_control}/triggers" @ONLY CONTENT
  "activate-noawait ldconfig\n")
set(_no_scripts "${_control}/none/postinst" "${_control}/none/postrm")
set(CPACK_DEBIAN_TRANSPORTS_PACKAGE_CONTROL_EXTRA
  "${_control}/shlibs" "${_control}/triggers" ${_no_scripts})
set(CPACK_DEBIAN_TRANSPORTS_DEBUGINFO_PACKAGE ON)
set(CPACK_DEBIAN_TRANSPORTS_PACKAGE_SUGGESTS
  "${GAUDI_PACKAGE_emulator}, ucx-utils")
set(_releases ${UCX_RELEASES})
list(SORT _releases COMPARE NATURAL)
list(GET _releases 0 _oldest)
# `ucx` is UCX's own package, and vendors', which the distribution's exclude.
set(CPACK_DEBIAN_TRANSPORTS_PACKAGE_DEPENDS
  "libucx0 (>= ${_oldest}) | ucx (>= ${_oldest})")
list(JOIN _releases ", " _releases)
set(CPACK_COMPONENT_TRANSPORTS_DESCRIPTION
  "Gaudi transports for the installed UCX
Modules that an unmodified UCX loads. With them it detects, allocates, copies
and exports device memory of Gaudi cards, and moves it between cards and
processes of a machine. The launcher ucx-gaudi runs programs with them.
For UCX ${_releases}.")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME ${GAUDI_PACKAGE_dev})
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS
  "${GAUDI_PACKAGE_transports} (= ${_version}), libucx-dev | ucx")
set(CPACK_DEBIAN_DEV_PACKAGE_SUGGESTS ${GAUDI_PACKAGE_emulator})
set(CPACK_COMPONENT_DEV_DESCRIPTION
  "Gaudi transports for UCX, development files
The header ucx_gaudi.h, its pkg-config file and examples. Programs need it to
allocate, copy, fill and export device memory, not to send it. The header
hlthunk_emu.h is for programs that count what the package ${GAUDI_PACKAGE_emulator}
does.")

set(CPACK_DEBIAN_PYTHON_PACKAGE_NAME ${GAUDI_PACKAGE_python})
set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
set(CPACK_DEBIAN_PYTHON_PACKAGE_ARCHITECTURE all)
foreach(_script postinst prerm)
  configure_file("${CMAKE_CURRENT_LIST_DIR}/python-${_script}.in"
    "${_control}/python/${_script}" @ONLY)
  list(APPEND CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA
    "${_control}/python/${_script}")
endforeach()
list(APPEND CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA
  "${_control}/none/postrm")
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS
  "${GAUDI_PACKAGE_transports} (= ${_version}), python3")
set(CPACK_DEBIAN_PYTHON_PACKAGE_SUGGESTS "python3-mpi4py")
set(CPACK_COMPONENT_PYTHON_DESCRIPTION
  "Device memory of Gaudi cards in Python 3
The package ucx_gaudi: buffers on a card, to allocate, fill, copy and send, by
mpi4py for instance.")

set(CPACK_DEBIAN_EMULATOR_PACKAGE_NAME ${GAUDI_PACKAGE_emulator})
set(CPACK_DEBIAN_EMULATOR_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_EMULATOR_DEBUGINFO_PACKAGE ON)
# Its folder is not one of the linker's.
set(CPACK_DEBIAN_EMULATOR_PACKAGE_CONTROL_EXTRA ${_no_scripts})
set(CPACK_COMPONENT_EMULATOR_DESCRIPTION
  "Gaudi cards in software, behind the driver's library
A libhl-thunk.so that behaves as Habana's does on a machine with Gaudi cards,
for those who have none. It is found by those who ask for it, as ucx-gaudi run
--emulate does.")
include(CPack)
