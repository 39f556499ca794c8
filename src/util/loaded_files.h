/**
 * The files that this process has loaded as programs and libraries.
 */
#pragma once

#include <string>
#include <vector>

namespace gaudi::util {

/**
 * Paths of what is mapped to be executed, each once, the program's too. Read
 * from the calling thread's /proc, not by dl_iterate_phdr: a child that was
 * forked while another thread was in that function, or in the middle of dlopen,
 * never gets into it, for glibc renews but one of the loader's two locks
 * (__libc_fork in glibc's posix/fork.c). Empty without /proc.
 */
std::vector<std::string> loaded_files();

} // namespace gaudi::util
