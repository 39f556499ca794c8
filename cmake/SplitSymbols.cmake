# SPDX-License-Identifier: BSD-3-Clause
# Part of the install script: has the symbols for debuggers of each program and
# library that was installed in .debug/NAME.debug beside it, where they look for
# them. With --strip there are none, and CPack makes packages of them by itself.
if(CMAKE_INSTALL_DO_STRIP OR
   "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}" MATCHES "/_CPack_Packages/")
  return()
endif()
foreach(file IN LISTS CMAKE_INSTALL_MANIFEST_FILES)
  get_filename_component(folder "${file}" DIRECTORY)
  get_filename_component(name "${file}" NAME)
  set(symbols "${folder}/.debug/${name}.debug")
  set(file "$ENV{DESTDIR}${file}")
  if(IS_SYMLINK "${file}" OR NOT EXISTS "${file}")
    continue()
  endif()
  file(READ "${file}" magic LIMIT 4 HEX)
  if(NOT magic STREQUAL "7f454c46")
    continue()
  endif()
  list(APPEND CMAKE_INSTALL_MANIFEST_FILES "${symbols}")
  set(symbols "$ENV{DESTDIR}${symbols}")
  file(MAKE_DIRECTORY "$ENV{DESTDIR}${folder}/.debug")
  execute_process(
    COMMAND "${objcopy}" --only-keep-debug "${file}" "${symbols}"
    COMMAND_ERROR_IS_FATAL ANY)
  execute_process(
    COMMAND "${objcopy}" --strip-unneeded "--add-gnu-debuglink=${symbols}"
      "${file}"
    COMMAND_ERROR_IS_FATAL ANY)
  file(CHMOD "${symbols}" PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ
    WORLD_READ)
endforeach()
