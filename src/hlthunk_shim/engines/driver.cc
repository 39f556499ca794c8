#include "hlthunk_shim/driver.h"

#include "hlthunk_shim/hlthunk/device.h"
#include "hlthunk_shim/synapse/functions.h"
#include "hlthunk_shim/synapse/runtime.h"
#include "hlthunk_shim/synapse/synapse_card.h"
#include "util/process.h"

#include <cerrno>

#include <dlfcn.h>
#include <sys/stat.h>

namespace gaudi::shim {

namespace {

/* What an extension of the library says; empty when it has none. */
std::string ask(const char *(*extension)())
{
    const char *text = (extension != nullptr) ? extension() : nullptr;
    return (text != nullptr) ? text : "";
}

bool is_same_file(int one, int other)
{
    struct stat first;
    struct stat second;
    return (fstat(one, &first) == 0) && (fstat(other, &second) == 0) &&
           (first.st_dev == second.st_dev) && (first.st_ino == second.st_ino) &&
           (first.st_rdev == second.st_rdev);
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
    const int ret   = lib.hlthunk_get_hw_ip_info(control, &info);
    const auto name = lib.hlthunk_get_device_name_from_fd(control);
    lib.hlthunk_close(control);
    return (ret != 0) || is_supported(find_kind(info.device_id, name));
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

driver::driver(const std::string &path, const driver_options &options)
    : options_(options), lib_(std::make_unique<library>(path))
{}

driver::~driver() = default;

const std::string &driver::reason() const
{
    return lib_->reason();
}

const std::string &driver::path() const
{
    return lib_->path();
}

void *driver::handle() const
{
    return lib_->handle();
}

bool driver::was_loaded() const
{
    return lib_->was_loaded();
}

void driver::redirect(const char *function, void *to)
{
    lib_->redirect(function, to);
}

std::string driver::file() const
{
    Dl_info info;
    return (dladdr(reinterpret_cast<void *>(lib_->hlthunk_open), &info) != 0)
               ? info.dli_fname
               : lib_->path();
}

int driver::open(const std::string &bus_id, std::unique_ptr<card> &card_p) const
{
    if (options_.used == engine::synapse) {
        return open_by_synapse(bus_id, card_p);
    }
    if (!takes_submissions(*lib_, bus_id)) {
        return -ENOTSUP;
    }
    std::unique_ptr<device> opened;
    const int ret = device::open(*lib_, bus_id, opened);
    if (ret == 0) {
        card_p = std::move(opened);
    }
    return ret;
}

/* As a framework would: the process has none. */
int driver::open_by_synapse(const std::string &bus_id,
                            std::unique_ptr<card> &card_p) const
{
    /* SynapseAI does not tell it apart from a card that somebody has. Where it
     * has a device already, no end of a reset gives it another one. */
    const bool in_reset =
        (synapse().known().session == nullptr) && is_in_reset(*lib_, bus_id);
    int ret = synapse().acquire(bus_id);
    if (ret != 0) {
        return (in_reset && (ret != -ENOTSUP)) ? -EAGAIN : ret;
    }
    const auto session = synapse().known().session;
    std::unique_ptr<device> adopted;
    ret = device::adopt(*lib_, session->fd(), adopted);
    if (ret == 0) {
        card_p = std::make_unique<synapse_card>(session, std::move(adopted),
                                                options_.map_application_memory,
                                                [] { synapse().release(); });
    } else {
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
    const bool is_acquired = (known.fd >= 0) && is_same_file(known.fd, fd);
    std::unique_ptr<device> adopted;
    const int ret = device::adopt(*lib_, is_acquired ? known.fd : fd, adopted);
    if (ret != 0) {
        return ret;
    }
    if (is_acquired) {
        if (known.session == nullptr) {
            return -EIO;
        }
        card_p = std::make_unique<synapse_card>(
            known.session, std::move(adopted), options_.map_application_memory);
        return 0;
    }
    if (!adopted->takes_submissions()) {
        return -ENOTSUP;
    }
    card_p = std::move(adopted);
    return 0;
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
    const auto found = synapse_functions::load(why);
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

std::string driver::box_name() const
{
    return ask(lib_->hlthunk_sys_box);
}

std::string driver::sysfs(const std::string &sys) const
{
    return (lib_->hlthunk_sys_sysfs != nullptr) ? ask(lib_->hlthunk_sys_sysfs)
                                                : sys;
}

std::string driver::supported_kinds()
{
    return shim::supported_kinds();
}

std::string driver::own_dev() const
{
    return ask(lib_->hlthunk_sys_dev);
}

} // namespace gaudi::shim
