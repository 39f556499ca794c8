# SPDX-License-Identifier: BSD-3-Clause
# Programs for the MPI libraries that are installed, each by its own compiler
# wrapper: FindMPI finds one library only, and Debian can have two.
foreach(mpi mpich openmpi)
  find_program(GAUDI_MPICC_${mpi} mpicc.${mpi})
  if(NOT GAUDI_MPICC_${mpi})
    message(STATUS "No mpicc.${mpi}: its programs are not built")
  endif()
endforeach()

# gaudi_mpi_program(NAME FOLDER SOURCES... [HEADERS ...]): FOLDER/NAME.mpich and
# FOLDER/NAME.openmpi, each with a target of that name, of the sources, linked
# with UCP and what has the functions of ucx_gaudi.h. Headers are those that they
# include, from src/.
function(gaudi_mpi_program name folder)
  cmake_parse_arguments(arg "" "" "SOURCES;HEADERS" SOURCES ${ARGN})
  set(sources ${arg_SOURCES})
  set(library "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/libuct_hlthunk.so")
  set(includes "-I${CMAKE_BINARY_DIR}/include")
  if(arg_HEADERS)
    list(APPEND includes "-I${CMAKE_SOURCE_DIR}/src")
    list(TRANSFORM arg_HEADERS PREPEND "${CMAKE_SOURCE_DIR}/src/")
  endif()
  foreach(mpi mpich openmpi)
    if(NOT GAUDI_MPICC_${mpi})
      continue()
    endif()
    set(program "${folder}/${name}.${mpi}")
    add_custom_command(OUTPUT "${program}"
      COMMAND ${CMAKE_COMMAND} -E make_directory "${folder}"
      COMMAND "${GAUDI_MPICC_${mpi}}" -std=c11 -D_GNU_SOURCE -O2 -g -Wall
        -Wextra ${includes} ${sources} -o "${program}" "${library}" -rdynamic
        "-Wl,-rpath,${CMAKE_LIBRARY_OUTPUT_DIRECTORY}" ${UCX_COMPILER_FLAGS}
      DEPENDS ${sources} "${CMAKE_BINARY_DIR}/include/ucx_gaudi.h"
        ${arg_HEADERS} ucx_gaudi_loader
      VERBATIM)
    add_custom_target(${name}.${mpi} ALL DEPENDS "${program}")
  endforeach()
endfunction()
