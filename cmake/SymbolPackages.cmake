# SPDX-License-Identifier: BSD-3-Clause
# Run by CPack when it has made the packages: those of symbols get checksums by
# names that the installed files have, where CPack writes names of the build tree,
# and the documents of the package that they are for.
foreach(package IN LISTS CPACK_PACKAGE_FILES)
  if(NOT package MATCHES "[.]ddeb$")
    continue()
  endif()
  set(folder "${package}.files")
  execute_process(COMMAND dpkg-deb --raw-extract "${package}" "${folder}"
    COMMAND_ERROR_IS_FATAL ANY)
  file(STRINGS "${folder}/DEBIAN/control" name REGEX "^Package: .*-dbgsym$")
  string(REGEX REPLACE "^Package: (.*)-dbgsym$" "\\1" name "${name}")
  file(MAKE_DIRECTORY "${folder}/usr/share/doc")
  file(CREATE_LINK "${name}" "${folder}/usr/share/doc/${name}-dbgsym" SYMBOLIC)
  file(GLOB_RECURSE files RELATIVE "${folder}" "${folder}/usr/lib/*")
  set(sums "")
  foreach(file IN LISTS files)
    file(MD5 "${folder}/${file}" sum)
    string(APPEND sums "${sum}  ${file}\n")
  endforeach()
  file(WRITE "${folder}/DEBIAN/md5sums" "${sums}")
  execute_process(
    COMMAND dpkg-deb -Zgzip --root-owner-group --build "${folder}" "${package}"
    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  file(REMOVE_RECURSE "${folder}")
endforeach()
