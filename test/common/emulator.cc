/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/emulator.h"

#include <cstdio>
#include <cstdlib>

#include <dlfcn.h>

namespace gaudi::test {

std::string emulator_path()
{
    const char *other = std::getenv("GAUDI_TEST_HLTHUNK");
    return (other != nullptr) ? other
                              : GAUDI_BUILD_DIR
               "/lib/hlthunk-emu/libhl-thunk.so";
}

namespace {

/* A function of the library, or a hook of the kernel's double below it; nullptr
 * where a library has not what only the emulator's own tests call. */
void *find(const shim::library &lib, const char *name)
{
    void *function = lib.find(name);
    return (function != nullptr) ? function : dlsym(RTLD_DEFAULT, name);
}

} // namespace

emulator::emulator() : driver(emulator_path())
{
    if (!driver.lib().usable()) {
        std::fprintf(stderr, "%s\n", driver.lib().reason().c_str());
        std::abort();
    }
#define EMULATOR_SYMBOL(_result, _name, _parameters)                           \
    _name = reinterpret_cast<decltype(_name)>(find(driver.lib(), #_name));
#include "common/emulator_symbols.def"
#undef EMULATOR_SYMBOL
}

const emulator &emulator::instance()
{
    static const auto *loaded = new emulator;
    return *loaded;
}

wished_faults::wished_faults(const std::string &faults)
{
    if (emulator::instance().hlthunk_emu_fault(faults.c_str()) != 0) {
        std::fprintf(stderr, "no faults: %s\n", faults.c_str());
        std::abort();
    }
}

wished_faults::~wished_faults()
{
    (void)emulator::instance().hlthunk_emu_fault(nullptr);
}

const shim::library &hl()
{
    return emulator::instance().driver.lib();
}

namespace {

const hlthunk_hw_ip_info &first_card()
{
    static const auto *known = [] {
        auto *info     = new hlthunk_hw_ip_info{};
        const int node = hl().hlthunk_open_control(0, nullptr);
        if (hl().hlthunk_get_hw_ip_info(node, info) != 0) {
            std::fprintf(stderr, "no card says what memory it has\n");
            std::abort();
        }
        hl().hlthunk_close(node);
        return info;
    }();
    return *known;
}

} // namespace

uint64_t device_page()
{
    return first_card().dram_page_size;
}

uint64_t device_bytes()
{
    return first_card().dram_size;
}

std::string bus_id(unsigned index)
{
    /* Those of an eight-card box, then the same in the next PCI domain. */
    constexpr unsigned buses[] = {0x19, 0x1a, 0x33, 0x34,
                                  0xb3, 0xb4, 0xcc, 0xcd};
    char text[32];
    std::snprintf(text, sizeof(text), "%04x:%02x:00.0", index / 8,
                  buses[index % 8]);
    return text;
}

} // namespace gaudi::test
