/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/cards/ports.h"

#include "util/made_once.h"

#include <algorithm>
#include <cstring>

#include <sys/mman.h>

namespace gaudi::base {

shim::port_device *card_ports::get(const shim::driver &driver,
                                   const shim::card &of, unsigned number,
                                   std::string &why_p)
{
    const std::lock_guard<std::mutex> guard(lock_);
    if (!tried_) {
        tried_ = true;
        why_   = open(driver, of, number);
    }
    why_p = why_;
    return device_.get();
}

std::unique_ptr<port_memory> card_ports::take(const shim::card &of,
                                              size_t bytes)
{
    const std::lock_guard<std::mutex> guard(lock_);
    const auto known = std::ranges::find_if(kept_, [&](const auto &each) {
        return (each.memory->mapped.length() == bytes) &&
               (each.free_from <= clock::now());
    });
    if (known != kept_.end()) {
        auto found = std::move(known->memory);
        kept_.erase(known);
        std::memset(found->mapped.start(), 0, bytes);
        return found;
    }
    void *const start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) {
        return nullptr;
    }
    auto made    = std::make_unique<port_memory>();
    made->mapped = util::file_mapping(static_cast<char *>(start), bytes);
    madvise(start, bytes, MADV_DONTFORK);
    return (of.register_staging(start, bytes, made->on_card) == 0)
               ? std::move(made)
               : nullptr;
}

void card_ports::give_back(std::unique_ptr<port_memory> memory)
{
    const std::lock_guard<std::mutex> guard(lock_);
    kept_.push_back({std::move(memory), clock::now() + drain_time()});
}

std::string card_ports::open(const shim::driver &driver, const shim::card &of,
                             unsigned number)
{
    static util::made_once<shim::verbs_library> library;
    const std::string sys = driver.sysfs("/sys");
    if (!sys.empty() && !shim::has_verbs_device(sys, number)) {
        return "there is no verbs device " + shim::verbs_device(number);
    }
    return shim::port_device::open(driver.lib(), library.get([&] {
        return shim::verbs_library(driver.lib());
    }),
                                   of, number, device_);
}

} // namespace gaudi::base
