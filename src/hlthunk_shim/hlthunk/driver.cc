#include "hlthunk_shim/driver.h"

#include "hlthunk_shim/hlthunk/device.h"

#include <dlfcn.h>

namespace gaudi::shim {

namespace {

/* What an extension of the library says; empty when it has none. */
std::string ask(const char *(*extension)())
{
    const char *text = (extension != nullptr) ? extension() : nullptr;
    return (text != nullptr) ? text : "";
}

} // namespace

driver::driver(const std::string &path) : lib_(std::make_unique<library>(path))
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

std::string driver::file() const
{
    Dl_info info;
    return (dladdr(reinterpret_cast<void *>(lib_->hlthunk_open), &info) != 0)
               ? info.dli_fname
               : lib_->path();
}

int driver::open(const std::string &bus_id, std::unique_ptr<card> &card_p) const
{
    std::unique_ptr<device> opened;
    const int ret = device::open(*lib_, bus_id, opened);
    if (ret == 0) {
        card_p = std::move(opened);
    }
    return ret;
}

int driver::adopt(int fd, std::unique_ptr<card> &card_p) const
{
    std::unique_ptr<device> adopted;
    const int ret = device::adopt(*lib_, fd, adopted);
    if (ret == 0) {
        card_p = std::move(adopted);
    }
    return ret;
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
