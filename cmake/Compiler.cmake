# SPDX-License-Identifier: BSD-3-Clause
# Warnings, sanitizers and hardening that every target of this project gets.

set(GAUDI_SANITIZE "" CACHE STRING "Sanitizers, as in -fsanitize=")
option(GAUDI_WERROR "Make warnings errors" OFF)
add_library(gaudi_options INTERFACE)
target_compile_features(gaudi_options INTERFACE cxx_std_20)
target_compile_options(gaudi_options INTERFACE
  -Wall -Wextra $<$<CXX_COMPILER_ID:GNU>:-Wshadow> # clang: a unity build's, too
  -Wundef -fvisibility=hidden
  $<$<COMPILE_LANGUAGE:CXX>:-fno-rtti -Wnon-virtual-dtor -Woverloaded-virtual
                            -Wold-style-cast -fvisibility-inlines-hidden>
  $<$<BOOL:${GAUDI_WERROR}>:-Werror>)
if(GAUDI_SANITIZE)
  target_compile_options(gaudi_options INTERFACE
    -fsanitize=${GAUDI_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  if(GAUDI_SANITIZE MATCHES "thread")
    # Fences order what one process writes for another, which ThreadSanitizer
    # does not look at.
    target_compile_options(gaudi_options INTERFACE -Wno-tsan)
  endif()
  target_link_options(gaudi_options INTERFACE -fsanitize=${GAUDI_SANITIZE})
  # For programs of others that load what is built here.
  if(GAUDI_SANITIZE MATCHES "address")
    execute_process(
      COMMAND "${CMAKE_CXX_COMPILER}" -print-file-name=libasan.so
      OUTPUT_VARIABLE GAUDI_ASAN_RUNTIME OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT IS_ABSOLUTE "${GAUDI_ASAN_RUNTIME}")
      message(FATAL_ERROR "${CMAKE_CXX_COMPILER} has no libasan.so. Build with "
        "GAUDI_SANITIZE=address by a GCC that has one.")
    endif()
  endif()
endif()

# What is installed has libstdc++ in it: that of the system where it runs may be
# older than the compiler's. Unused sections go, as some of them need a newer C
# library. So does a static libgcc (_dl_find_object, glibc 2.35), which therefore
# stays shared. Sanitizers need both shared.
add_library(gaudi_static_runtime INTERFACE)
if(NOT GAUDI_SANITIZE)
  target_link_options(gaudi_static_runtime INTERFACE
    -static-libstdc++ -Wl,--gc-sections)
endif()
