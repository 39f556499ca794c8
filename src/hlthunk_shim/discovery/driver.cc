/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/discovery/driver.h"

#include "hlthunk_shim/discovery/open_nodes.h"
#include "hlthunk_shim/engine/cs_engine.h"
#include "hlthunk_shim/engine/synapse_engine.h"
#include "hlthunk_shim/hlthunk/card_kinds.h"
#include "hlthunk_shim/synapse/functions.h"
#include "hlthunk_shim/synapse/runtime.h"
#include "util/process.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include <glob.h>

namespace gaudi::shim {

namespace {

constexpr char vendor_library[] = "libhl-thunk.so";
constexpr char emulator[]       = "hlthunk-emu/libhl-thunk.so";

/* The compute nodes of new and old kernels. Others than habanalabs make accel
 * nodes too, but then hl-thunk finds no card, which is all the same here. */
bool machine_has_card(const std::string &dev)
{
    return std::ranges::any_of(std::array{"/accel/accel[0-9]*", "/hl[0-9]*"},
                               [&](const char *pattern) {
                                   glob_t found{};
                                   const int ret =
                                       glob((dev + pattern).c_str(),
                                            GLOB_NOSORT, nullptr, &found);
                                   globfree(&found);
                                   return ret == 0;
                               });
}

bool is_same_file(int one, int other)
{
    node_identity node;
    return identify(one, node) && is_node(other, node);
}

/* Whether a card takes command submissions, by its control node: opening the
 * other one, and closing it again, would reset the card for nothing. */
bool takes_submissions(const library &lib, const std::string &bus_id)
{
    const int control = lib.hlthunk_open_control(-1, bus_id.c_str());
    if (control < 0) {
        return true;
    }
    hlthunk_hw_ip_info info{};
    const bool takes = (lib.hlthunk_get_hw_ip_info(control, &info) != 0) ||
                       (is_supported(lib.kind_of(control, info.device_id)) &&
                        may_be_device_memory(info.dram_base_address));
    lib.hlthunk_close(control);
    return takes;
}

bool is_in_reset(const library &lib, const std::string &bus_id)
{
    const int control = (lib.hlthunk_get_device_status_info != nullptr)
                            ? lib.hlthunk_open_control(-1, bus_id.c_str())
                            : -1;
    if (control < 0) {
        return false;
    }
    const int status = lib.hlthunk_get_device_status_info(control);
    lib.hlthunk_close(control);
    return (status == device_in_reset) ||
           (status == device_resets_after_release);
}

/* One per process, as SynapseAI is: a child has locks of its own, and no part
 * in its parent's session. */
synapse_runtime &synapse()
{
    return util::of_this_process<synapse_runtime>();
}

} // namespace

driver_choice choose_driver(const std::string &text,
                            const std::string &directory,
                            const std::string &dev)
{
    using enum driver_choice::outcome;
    if (text == "auto") {
        return machine_has_card(dev) ? driver_choice{library, vendor_library}
                                     : driver_choice{no_card, ""};
    }
    if (text == "hlthunk") {
        return {library, vendor_library};
    }
    if (text == "emulator") {
        return {library, directory + "/" + emulator};
    }
    return (text.find('/') == text.npos) ? driver_choice{invalid, ""}
                                         : driver_choice{library, text};
}

std::string driver::file() const
{
    std::string found = file_of(reinterpret_cast<void *>(hlthunk_open));
    return found.empty() ? path() : found;
}

int driver::open(const std::string &bus_id, std::unique_ptr<card> &card_p) const
{
    if (options_.used == engine::synapse) {
        return open_by_synapse(bus_id, card_p);
    }
    return takes_submissions(*this, bus_id) ? open_card(*this, bus_id, card_p)
                                            : -ENOTSUP;
}

/* As a framework would: the process has none. */
int driver::open_by_synapse(const std::string &bus_id,
                            std::unique_ptr<card> &card_p) const
{
    /* SynapseAI does not tell it apart from a card that somebody has. Where it
     * has a device already, no end of a reset gives it another one. */
    const bool in_reset =
        (synapse().known().session == nullptr) && is_in_reset(*this, bus_id);
    int ret = synapse().acquire(bus_id);
    if (ret != 0) {
        return (in_reset && (ret != -ENOTSUP)) ? -EAGAIN : ret;
    }
    ret = adopt_card(
        *this, synapse().known().session, options_.map_application_memory,
        [] { synapse().release(); }, card_p);
    if (ret != 0) {
        synapse().release();
    }
    return ret;
}

int driver::adopt(int fd, std::unique_ptr<card> &card_p) const
{
    const auto known =
        drives_frameworks() ? synapse().known() : synapse_runtime::knowledge{};
    if ((known.opened >= 0) && is_same_file(known.opened, fd)) {
        return -EINPROGRESS;
    }
    if ((known.fd >= 0) && is_same_file(known.fd, fd)) {
        return (known.session == nullptr)
                   ? -EIO
                   : adopt_card(*this, known.session,
                                options_.map_application_memory, {}, card_p);
    }
    return adopt_card(*this, fd, card_p);
}

const char *driver::how_to_use_synapse(engine used)
{
    switch (used) {
    case engine::cs:
        return "set UCX_GAUDI_ENGINE=synapse, or unset it where the framework "
               "of the process has acquired the card";
    case engine::synapse:
        return "leave it to SynapseAI, or to the transports, to open it";
    default:
        return "have the framework of the process acquire the card, or set "
               "UCX_GAUDI_ENGINE=synapse";
    }
}

std::string driver::why_no_synapse()
{
    std::string why;
    const auto found = synapse_functions::find(true, why);
    if ((found != nullptr) && !found->can_acquire()) {
        why = synapse_functions::no_acquisition;
    }
    return why;
}

std::string driver::why_not_supported() const
{
    const std::string why = synapse().known().why_not;
    return why.empty()
               ? std::string("it takes work through SynapseAI alone: ") +
                     how_to_use_synapse(options_.used)
               : "SynapseAI cannot be used: " + why;
}

bool driver::is_framework(const void *code)
{
    return synapse_functions::has_code(code);
}

bool driver::is_in_own_call()
{
    return own_synapse_call::is_running();
}

void driver::framework_opened(int fd) const
{
    synapse().opened(fd);
}

void driver::application_closing(int fd) const
{
    synapse().closed(fd);
}

void driver::look_for_frameworks() const
{
    if (drives_frameworks()) {
        synapse().look();
    }
}

} // namespace gaudi::shim
