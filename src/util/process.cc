/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/process.h"

#include "util/fork_handlers.h"
#include "util/warning.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <new>
#include <string_view>

#include <dlfcn.h>
#include <sys/random.h>
#include <unistd.h>

namespace gaudi::util {

std::atomic<bool> detail::cut_off{false};

namespace {

std::atomic<unsigned> uses{0};
std::atomic<uint64_t> identity{0};
std::atomic<process_context *> parents_context{nullptr};
std::atomic<unsigned> indices{0}; /* that parts of a context have got */

} // namespace

constinit std::atomic<process_context *> process_context::current_{nullptr};

void process_context::leave_to_parent()
{
    if (uses.load() > 0) {
        detail::cut_off.store(true);
    }
    identity.store(0);
    process_context *left = current_.exchange(nullptr);
    if (left == nullptr) {
        return;
    }
    parents_context.store(left);
    for (const part &each : left->parts_) {
        void *object = each.object.load();
        auto *call   = each.in_child.load();
        if ((object != nullptr) && (call != nullptr)) {
            call(object);
        }
    }
}

process_context &process_context::make()
{
    if (!run_in_children_once<leave_to_parent>()) {
        warn("forked children will not be noticed (do not fork)");
    }
    auto fresh      = std::make_unique<process_context>();
    fresh->parents_ = parents_context.load();

    process_context *known = nullptr;
    return current_.compare_exchange_strong(known, fresh.get())
               ? *fresh.release()
               : *known;
}

unsigned process_context::take_index(std::atomic<unsigned> &place)
{
    const unsigned fresh = ++indices;
    if (fresh >= max_parts) {
        throw std::bad_alloc();
    }
    unsigned known = 0;
    return place.compare_exchange_strong(known, fresh) ? fresh : known;
}

in_use::in_use()
{
    (void)process_context::current(); /* has forks noticed */
    ++uses;
}

in_use::~in_use()
{
    --uses;
}

uint64_t process_identity()
{
    uint64_t known = identity.load();
    if (known == 0) {
        uint64_t fresh = 0;
        if (getrandom(&fresh, sizeof(fresh), 0) != sizeof(fresh)) {
            /* A sandbox forbids it. */
            const auto now =
                std::chrono::steady_clock::now().time_since_epoch().count();
            fresh = static_cast<uint64_t>(now) ^
                    (static_cast<uint64_t>(getpid()) << 40);
        }
        fresh |= 1;
        known = identity.compare_exchange_strong(known, fresh) ? fresh : known;
    }
    return known;
}

void *open_loaded(const char *name, int flags)
{
    using function      = void *(const char *, int);
    void *const address = dlsym(RTLD_DEFAULT, "dlopen");
    return reinterpret_cast<function *>(address)(name, RTLD_LAZY | RTLD_NOLOAD |
                                                           flags);
}

std::vector<std::string> loaded_files()
{
    /* Of a file that was removed meanwhile. */
    constexpr std::string_view removed = " (deleted)";
    std::vector<std::string> result;
    std::ifstream maps("/proc/thread-self/maps");
    for (std::string line; std::getline(maps, line);) {
        const size_t access = line.find(' ') + 1;
        const size_t path   = line.find('/');
        if ((path == std::string::npos) || (line[access + 2] != 'x')) {
            continue;
        }
        std::string name = line.substr(path);
        if (name.ends_with(removed)) {
            name.resize(name.size() - removed.size());
        }
        if (std::find(result.begin(), result.end(), name) == result.end()) {
            result.push_back(std::move(name));
        }
    }
    return result;
}

} // namespace gaudi::util
