/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs that fork while another of their threads opens the first card, one
 * after the other. The children open one by the driver itself, and end; in UCX
 * they would meet locks of UCX that the other thread has.
 *
 * usage: opening_cards SECONDS
 *        opening_cards once
 *
 * Ends with a signal when a child does not end.
 */
#include "hlthunk_shim/abi/hlthunk.h"
#include "gtest/tools/peer/check.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <sys/wait.h>
#include <ucx_gaudi.h>
#include <unistd.h>

using namespace peer;

namespace {

constexpr unsigned patience_s = 30;
/* Of a program. Each gets a card of its own. */
constexpr unsigned most_forks = 6;

void open_card()
{
    void *memory = nullptr;
    require(ucx_gaudi_mem_alloc(4096, nullptr, &memory), "ucx_gaudi_mem_alloc");
    require(ucx_gaudi_mem_free(memory), "ucx_gaudi_mem_free");
    require(ucx_gaudi_close(), "ucx_gaudi_close");
}

/* What a name leads to by now. */
template <typename Function>
Function *look_up(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (found == nullptr) {
        die("dlsym", dlerror());
    }
    return reinterpret_cast<Function *>(found);
}

/* Types of the functions, by their names. */
using namespace gaudi::shim;
#define HLTHUNK_SYMBOL(_need, _result, _name, _parameters)                     \
    using _name [[maybe_unused]] = _result _parameters;
#include "hlthunk_shim/hlthunk/symbols.def"
#undef HLTHUNK_SYMBOL
#define DRIVER(_name) look_up<_name>(driver, #_name)

void use_driver(void *driver)
{
    const int fd = DRIVER(hlthunk_open)(HLTHUNK_DEVICE_DONT_CARE, nullptr);
    const uint64_t handle =
        DRIVER(hlthunk_device_memory_alloc)(fd, 4096, 0, false, true);
    const uint64_t va = DRIVER(hlthunk_device_memory_map)(fd, handle, 0);
    if ((fd < 0) || (handle == 0) || (va == 0) ||
        (DRIVER(hlthunk_memory_unmap)(fd, va) != 0) ||
        (DRIVER(hlthunk_device_memory_free)(fd, handle) != 0) ||
        (DRIVER(hlthunk_close)(fd) != 0)) {
        die("the driver", "refuses what is right");
    }
}

void wait_for(pid_t child, const char *what)
{
    int status = 0;
    if ((child < 0) || (waitpid(child, &status, 0) != child) || (status != 0)) {
        die(what, "ended with status " + std::to_string(status));
    }
}

void open_once()
{
    alarm(patience_s);
    /* The program has the driver itself, after the module came. */
    const char *other = std::getenv("GAUDI_TEST_HLTHUNK");
    void *driver      = dlopen((other != nullptr) ? other
                                                  : GAUDI_BUILD_DIR
                                   "/lib/hlthunk-emu/libhl-thunk.so",
                          RTLD_NOW | RTLD_LOCAL);
    if (driver == nullptr) {
        die("dlopen", dlerror());
    }
    std::atomic<bool> opened{false};
    std::thread opening([&] {
        open_card();
        opened = true;
    });
    std::vector<pid_t> children;
    while (!opened && (children.size() < most_forks)) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(patience_s);
            use_driver(driver);
            _exit(0);
        }
        children.push_back(child);
    }
    for (const pid_t child : children) {
        wait_for(child, "a child");
    }
    opening.join();
}

/* Each process opens its first card once. */
unsigned long open_for(std::chrono::seconds duration, char *program)
{
    const auto end         = std::chrono::steady_clock::now() + duration;
    unsigned long openings = 0;
    do {
        const pid_t child = fork();
        if (child == 0) {
            char once[]   = "once";
            char *again[] = {program, once, nullptr};
            execv(program, again);
            _exit(127);
        }
        wait_for(child, "a program");
        ++openings;
    } while (std::chrono::steady_clock::now() < end);
    return openings;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 2) {
        die("usage", "opening_cards SECONDS|once");
    }
    if (std::string_view(argv[1]) == "once") {
        open_once();
        return 0;
    }
    std::printf("forks at %lu openings\n",
                open_for(std::chrono::seconds(atoi(argv[1])), argv[0]));
    return 0;
}
