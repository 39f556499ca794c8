/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernel_double/kernel.h"

#include "hlthunk_emulator/box.h"
#include "hlthunk_emulator/settings.h"
#include "hlthunk_emulator/sysfs_view.h"
#include "kernel_double/rules.h"
#include "util/made_once.h"
#include "util/text.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace gaudi::kernel_double {

namespace {

namespace fs = std::filesystem;
using emu::driver::hw_ip_info;
using emu::driver::old_hw_ip_bytes;

constexpr kernel kernels[] = {
    {"6.1",
     {false, false, false, old_hw_ip_bytes},
     "/dev/",
     "hl",
     "hl_controlD",
     "habanalabs"},
    {"6.6",
     {false, true, false, sizeof(hw_ip_info)},
     "/dev/accel/",
     "accel",
     "accel_controlD",
     "accel"},
    {"6.12",
     {true, true, false, sizeof(hw_ip_info)},
     "/dev/accel/",
     "accel",
     "accel_controlD",
     "accel"},
};
constexpr const kernel &default_kernel = kernels[1];

/* ACCEL_MAJOR; the others are what a kernel happens to give. */
constexpr unsigned drm_major     = 261;
constexpr unsigned control_major = 238;
constexpr unsigned old_major     = 236;

struct box {
    std::string folder; /* empty: cannot be made */
    unsigned cards = 0;
};

std::string hex(uint32_t value)
{
    char text[16];
    std::snprintf(text, sizeof(text), "0x%04x\n", value);
    return text;
}

std::string number_text(dev_t number)
{
    return std::to_string(major(number)) + ":" + std::to_string(minor(number));
}

/* -1: unknown. */
int numa_of(unsigned card)
{
    const auto node = emu::numa_node_of(card);
    return node.has_value() ? static_cast<int>(*node) : -1;
}

std::string cpus_of(int numa, const char *file)
{
    const std::string path = (numa < 0) ? "/sys/devices/system/cpu/online"
                                        : "/sys/devices/system/node/node" +
                                              std::to_string(numa) + "/" + file;
    return util::first_line(path) + "\n";
}

void write(const fs::path &path, const std::string &text)
{
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
}

void link(const fs::path &path, const std::string &target)
{
    fs::create_directories(path.parent_path());
    fs::create_symlink(target, path);
}

void add_card(const fs::path &root, unsigned index)
{
    const kernel &is          = the_kernel();
    const emu::asic &kind     = *emu::get_settings().kind;
    const std::string bus_id  = emu::bus_id_of(index);
    const std::string bus     = "pci" + bus_id.substr(0, 7);
    const int numa            = numa_of(index);
    const std::string number  = std::to_string(index);
    const fs::path function   = root / "sys/devices" / bus / bus_id;
    const std::string names[] = {is.primary + number, is.control + number};
    const fs::path folder     = root / "sys/class" / is.sysfs_class;

    write(function / "vendor", "0x1da3\n");
    write(function / "device", hex(kind.pci_id));
    write(function / "class", "0x120000\n");
    write(function / "numa_node", std::to_string(numa) + "\n");
    write(function / "local_cpulist", cpus_of(numa, "cpulist"));
    write(function / "local_cpus", cpus_of(numa, "cpumap"));
    link(root / "sys/bus/pci/devices" / bus_id,
         "../../../devices/" + bus + "/" + bus_id);

    const fs::path attributes = is.driver.is_drm ? function : folder / names[0];
    write(attributes / "pci_addr", bus_id + "\n");
    write(attributes / "device_type", kind.device_type + "\n");
    write(attributes / "status", "Operational\n");
    if (is.driver.is_drm) {
        write(attributes / "module_id", number + "\n");
        link(folder / names[0] / "device",
             "../../../devices/" + bus + "/" + bus_id);
    }

    for (const file_of what : {file_of::compute, file_of::control}) {
        const std::string &name  = names[(what == file_of::compute) ? 0 : 1];
        const std::string device = number_text(device_number({what, index}));
        write(folder / name / "dev", device + "\n");
        link(root / "sys/dev/char" / device,
             std::string("../../class/") + is.sysfs_class + "/" + name);
        write(root / (is.dev + 1) / name, "");
    }
}

box make_box()
{
    const own_call own;
    const emu::settings &is = emu::get_settings();
    box result{"", is.devices};

    std::string what = the_kernel().release;
    for (unsigned i = 0; i < is.devices; ++i) {
        what += " " + emu::bus_id_of(i) + " " + is.kind->device_type + " " +
                std::to_string(numa_of(i));
    }
    const std::string base = GAUDI_BUILD_DIR "/kernel-double/";
    const std::string name =
        base + std::to_string(std::hash<std::string>()(what));
    try {
        if (!fs::exists(name)) {
            const std::string made = name + "." + std::to_string(getpid());
            fs::create_directories(made + "/sys");
            for (unsigned i = 0; i < is.devices; ++i) {
                add_card(made, i);
            }
            std::error_code others; /* were faster */
            fs::rename(made, name, others);
            if (others) {
                fs::remove_all(made);
            }
        }
        result.folder = name;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "kernel-double: %s\n", error.what());
    }
    return result;
}

const box &the_box()
{
    static util::made_once<box> made;
    return made.get(make_box);
}

/* Folders that others have entries in, too. */
bool is_shared_folder(std::string_view path)
{
    while (path.ends_with('/')) {
        path.remove_suffix(1);
    }
    for (const std::string_view shared :
         {"/dev", "/sys", "/sys/class", "/sys/dev", "/sys/dev/char", "/sys/bus",
          "/sys/bus/pci", "/sys/bus/pci/devices", "/sys/devices"}) {
        if (path == shared) {
            return true;
        }
    }
    return false;
}

bool may_be_ours(const char *path)
{
    for (const char *prefix :
         {"/dev/accel", "/dev/hl", "/sys/class/accel", "/sys/class/habanalabs",
          "/sys/dev/char/", "/sys/bus/pci/devices/", "/sys/devices/pci"}) {
        if (std::strncmp(path, prefix, std::strlen(prefix)) == 0) {
            return true;
        }
    }
    return false;
}

} // namespace

const kernel &the_kernel()
{
    static const kernel &chosen = []() -> const kernel & {
        const char *wished = std::getenv("KERNEL_DOUBLE_KERNEL");
        if (wished == nullptr) {
            return default_kernel;
        }
        for (const kernel &known : kernels) {
            if (std::strcmp(known.release, wished) == 0) {
                return known;
            }
        }
        std::fprintf(stderr,
                     "KERNEL_DOUBLE_KERNEL=%s is not 6.1, 6.6 or 6.12\n",
                     wished);
        std::abort();
    }();
    return chosen;
}

namespace {

/* Before the program makes its first call. */
[[gnu::constructor]] void be_that_kernel()
{
    emu::driver::emulated = the_kernel().driver;
    emu::driver::watcher  = report;
}

} // namespace

dev_t device_number(device_file of)
{
    const bool control = (of.kind == file_of::control);
    return the_kernel().driver.is_drm
               ? makedev(control ? control_major : drm_major, of.card)
               : makedev(old_major, 2 * of.card + (control ? 1 : 0));
}

device_file find_device_file(const std::string &path)
{
    const kernel &is      = the_kernel();
    const std::string dev = is.dev;
    if (!path.starts_with(dev)) {
        return {};
    }
    const std::string name = path.substr(dev.size());
    for (const file_of kind : {file_of::control, file_of::compute}) {
        const auto number = util::number_behind(
            (kind == file_of::control) ? is.control : is.primary, name);
        if (number.has_value()) {
            return (*number < the_box().cards) ? device_file{kind, *number}
                                               : device_file{};
        }
    }
    return {};
}

const char *redirect(const char *path)
{
    static thread_local std::string result;
    if ((path == nullptr) || (path[0] != '/') || own_call::is_active() ||
        !may_be_ours(path) || is_shared_folder(path) ||
        the_box().folder.empty()) {
        return path;
    }
    result = the_box().folder + path;
    const own_call own;
    return (faccessat(AT_FDCWD, result.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0)
               ? result.c_str()
               : path;
}

std::string redirect_pattern(const char *pattern)
{
    return (own_call::is_active() || !may_be_ours(pattern))
               ? pattern
               : the_box().folder + pattern;
}

std::string without_folder(std::string path)
{
    const std::string base = GAUDI_BUILD_DIR "/kernel-double/";
    if (path.starts_with(base)) {
        const size_t end = path.find('/', base.size());
        path             = (end == std::string::npos) ? "/" : path.substr(end);
    }
    return path;
}

device_file find_linked(const std::string &target)
{
    const std::string_view begin = "/memfd:hlthunk-emu/";
    std::string_view name        = target;
    if (!name.starts_with(begin)) {
        return {};
    }
    const std::string own = std::string(begin) + emu::get_settings().node + "/";
    const size_t end      = name.rfind(" (deleted)");
    if (!name.starts_with(own) || (end == name.npos)) {
        return {};
    }
    name               = name.substr(own.size(), end - own.size());
    const auto compute = util::number_behind("accel", name);
    const auto control = util::number_behind("accel_controlD", name);
    if (compute.has_value()) {
        return {file_of::compute, *compute};
    }
    return control.has_value() ? device_file{file_of::control, *control}
                               : device_file{};
}

std::string shown_link(const std::string &target)
{
    const device_file found = find_linked(target);
    if (found.kind == file_of::nothing) {
        return without_folder(target);
    }
    const kernel &is = the_kernel();
    return is.dev +
           std::string((found.kind == file_of::control) ? is.control
                                                        : is.primary) +
           std::to_string(found.card);
}

} // namespace gaudi::kernel_double
