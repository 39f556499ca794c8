# SPDX-License-Identifier: BSD-3-Clause
# Part of the install script: the links of the folder `slot` below the prefix, to
# UCX's libraries in `ucx`.
get_filename_component(slot "${slot}" ABSOLUTE
  BASE_DIR "${CMAKE_INSTALL_PREFIX}")
string(FIND "${ucx}/" "${CMAKE_INSTALL_PREFIX}/" _at)
foreach(_lib libucm.so.0 libucs.so.0 libuct.so.0 libucp.so.0)
  set(_target "${ucx}/${_lib}")
  if(_at EQUAL 0)
    file(RELATIVE_PATH _target "${slot}" "${_target}")
  endif()
  file(CREATE_LINK "${_target}" "$ENV{DESTDIR}${slot}/${_lib}" SYMBOLIC)
  list(APPEND CMAKE_INSTALL_MANIFEST_FILES "${slot}/${_lib}")
endforeach()
