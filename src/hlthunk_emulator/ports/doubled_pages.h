/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Memory that a program reads and writes as a card's queues and registers, and
 * that the engine of the ports sees at addresses of its own. Forked children
 * have neither (hbl_ib_mmap of the driver: VM_DONTCOPY).
 */
#pragma once

#include "util/file_mapping.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

#include <sys/mman.h>

namespace gaudi::emu {

/** A word of it, which the other side reads or writes at any time. */
template <typename T>
std::atomic_ref<T> shared_word(char *at)
{
    return std::atomic_ref<T>(*reinterpret_cast<T *>(at));
}

class doubled_pages {
public:
    /** Make it, all zeros, in whole pages. @return 0 or -errno. */
    int create(size_t length)
    {
        constexpr size_t page = 4096;
        length                = (length + page - 1) / page * page;
        const util::unique_fd fd =
            util::make_lasting_file("hlthunk-emu-port", length);
        if (!fd || !program_.map(fd.get(), 0, length) ||
            !engine_.map(fd.get(), 0, length)) {
            return -errno;
        }
        madvise(program_.start(), length, MADV_DONTFORK);
        madvise(engine_.start(), length, MADV_DONTFORK);
        return 0;
    }

    /** Where the program has it; nullptr: there is none. */
    [[nodiscard]] char *program() const { return program_.start(); }
    [[nodiscard]] char *engine() const { return engine_.start(); }
    /** bytes */
    [[nodiscard]] size_t length() const { return program_.length(); }

private:
    util::file_mapping program_;
    util::file_mapping engine_;
};

} // namespace gaudi::emu
