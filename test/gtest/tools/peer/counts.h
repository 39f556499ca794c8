/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What this process has.
 */
#pragma once

#include "gtest/tools/peer/check.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace peer {

struct counts {
    ptrdiff_t files;
    ptrdiff_t mappings;
    size_t resident_kib; /**< without shared memory, which a card's is */
};

inline size_t resident_kib()
{
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
        if (word == "RssAnon:") {
            size_t amount = 0;
            status >> amount;
            return amount;
        }
    }
    die("/proc/self/status", "has no RssAnon");
}

inline counts count()
{
    const std::filesystem::directory_iterator files("/proc/self/fd");
    std::ifstream maps("/proc/self/maps");
    return {std::distance(begin(files), end(files)),
            std::count(std::istreambuf_iterator<char>(maps), {}, '\n'),
            resident_kib()};
}

} // namespace peer
