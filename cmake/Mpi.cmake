# Programs for the MPI libraries that are installed, each by its own compiler
# wrapper: FindMPI finds one library only, and Debian can have two.
foreach(mpi mpich openmpi)
  find_program(GAUDI_MPICC_${mpi} mpicc.${mpi})
  if(NOT GAUDI_MPICC_${mpi})
    message(STATUS "No mpicc.${mpi}: its programs are not built")
  endif()
endforeach()

# gaudi_mpi_program(NAME FOLDER SOURCES...): FOLDER/NAME.mpich and
# FOLDER/NAME.openmpi, linked with UCP.
function(gaudi_mpi_program name folder)
  foreach(mpi mpich openmpi)
    if(NOT GAUDI_MPICC_${mpi})
      continue()
    endif()
    set(program "${folder}/${name}.${mpi}")
    add_custom_command(OUTPUT "${program}"
      COMMAND ${CMAKE_COMMAND} -E make_directory "${folder}"
      COMMAND "${GAUDI_MPICC_${mpi}}" -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra
        "-I${CMAKE_SOURCE_DIR}/examples" ${ARGN} -o "${program}" -lucp -lucs
      DEPENDS ${ARGN} "${CMAKE_SOURCE_DIR}/examples/gaudi_memory.h"
      VERBATIM)
    add_custom_target(${name}.${mpi} ALL DEPENDS "${program}")
  endforeach()
endfunction()
