/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernel_double/kernel.h"

#include "hlthunk_emulator/settings.h"
#include "hlthunk_emulator/sysfs_view.h"
#include "kernel_double/kernel_abi.h"
#include "util/made_once.h"
#include "util/text.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace gaudi::kernel_double {

namespace {

namespace fs = std::filesystem;

constexpr kernel kernels[] = {
    {"6.1", false, "/dev/", "hl", "hl_controlD", "habanalabs", false,
     old_hw_ip_bytes},
    {"6.6", false, "/dev/accel/", "accel", "accel_controlD", "accel", true,
     sizeof(hw_ip_info)},
    {"6.12", true, "/dev/accel/", "accel", "accel_controlD", "accel", true,
     sizeof(hw_ip_info)},
};
constexpr const kernel &default_kernel = kernels[1];

/* ACCEL_MAJOR; the others are what a kernel happens to give. */
constexpr unsigned drm_major     = 261;
constexpr unsigned control_major = 238;
constexpr unsigned old_major     = 236;

struct shown_card {
    std::string bus_id;
    hlthunk_hw_ip_info info{};
    int numa = -1;
};

struct box {
    std::string folder; /* empty: cannot be made */
    unsigned cards = 0;
};

std::vector<shown_card> look_at_cards()
{
    std::vector<shown_card> cards;
    for (int number = 0;; ++number) {
        const int fd = hlthunk_open_control(number, nullptr);
        if (fd < 0) {
            return cards;
        }
        char bus_id[shim::bus_id_size] = {};
        shown_card card;
        (void)hlthunk_get_pci_bus_id_from_fd(fd, bus_id, sizeof(bus_id));
        (void)hlthunk_get_hw_ip_info(fd, &card.info);
        hlthunk_close(fd);
        const auto node = emu::numa_node_of(static_cast<unsigned>(number));
        card.bus_id     = bus_id;
        card.numa       = node.has_value() ? static_cast<int>(*node) : -1;
        cards.push_back(card);
    }
}

std::string hex(uint32_t value)
{
    char text[16];
    std::snprintf(text, sizeof(text), "0x%04x\n", value);
    return text;
}

/* sysfs.c: device_type, by device and revision. */
std::string type_of(const hlthunk_hw_ip_info &info)
{
    const bool is_addin =
        (info.device_id == 0x1021) || (info.device_id == 0x1063);
    const bool is_gaudi2 = (info.device_id / 16 == shim::pci_id_gaudi2 / 16);
    if (!is_gaudi2 && (info.device_id / 16 != 0x106)) {
        return "GAUDI\n";
    }
    const char *const letters[] = {"", "", "B", "C", "D", "E"};
    std::string text            = is_gaudi2 ? "GAUDI2" : "GAUDI3";
    text +=
        letters[(info.revision_id < std::size(letters)) ? info.revision_id : 0];
    return text + (!is_addin ? "" : is_gaudi2 ? " HL-288" : " HL-338") + "\n";
}

std::string number_text(dev_t number)
{
    return std::to_string(major(number)) + ":" + std::to_string(minor(number));
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

void add_card(const fs::path &root, unsigned index, const shown_card &card)
{
    const kernel &is         = the_kernel();
    const std::string number = std::to_string(index);
    const fs::path function =
        root / "sys/devices" / ("pci" + card.bus_id.substr(0, 7)) / card.bus_id;
    const std::string names[] = {is.primary + number, is.control + number};
    const fs::path folder     = root / "sys/class" / is.sysfs_class;

    write(function / "vendor", "0x1da3\n");
    write(function / "device", hex(card.info.device_id));
    write(function / "class", "0x120000\n");
    write(function / "numa_node", std::to_string(card.numa) + "\n");
    write(function / "local_cpulist", cpus_of(card.numa, "cpulist"));
    write(function / "local_cpus", cpus_of(card.numa, "cpumap"));
    link(root / "sys/bus/pci/devices" / card.bus_id,
         "../../../devices/pci" + card.bus_id.substr(0, 7) + "/" + card.bus_id);

    const fs::path attributes = is.is_drm ? function : folder / names[0];
    write(attributes / "pci_addr", card.bus_id + "\n");
    write(attributes / "device_type", type_of(card.info));
    write(attributes / "status", "Operational\n");
    if (is.is_drm) {
        write(attributes / "module_id",
              std::to_string(card.info.module_id) + "\n");
        link(folder / names[0] / "device", "../../../devices/pci" +
                                               card.bus_id.substr(0, 7) + "/" +
                                               card.bus_id);
    }

    for (const node kind : {node::compute, node::control}) {
        const std::string &name  = names[(kind == node::compute) ? 0 : 1];
        const std::string device = number_text(device_number({kind, index}));
        write(folder / name / "dev", device + "\n");
        link(root / "sys/dev/char" / device,
             std::string("../../class/") + is.sysfs_class + "/" + name);
        write(root / (is.dev + 1) / name, "");
    }
}

box make_box()
{
    const own_call own;
    const std::vector<shown_card> cards = look_at_cards();
    box result{"", static_cast<unsigned>(cards.size())};

    std::string what = the_kernel().release;
    for (const shown_card &card : cards) {
        what += " " + card.bus_id + " " + std::to_string(card.info.module_id) +
                " " + std::to_string(card.info.device_id) + " " +
                std::to_string(card.info.revision_id) + " " +
                std::to_string(card.numa);
    }
    const std::string base = GAUDI_BUILD_DIR "/kernel-double/";
    const std::string name =
        base + std::to_string(std::hash<std::string>()(what));
    try {
        if (!fs::exists(name)) {
            const std::string made = name + "." + std::to_string(getpid());
            fs::create_directories(made + "/sys");
            for (unsigned i = 0; i < cards.size(); ++i) {
                add_card(made, i, cards[i]);
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

dev_t device_number(node_of_card of)
{
    const bool control = (of.kind == node::control);
    return the_kernel().is_drm
               ? makedev(control ? control_major : drm_major, of.card)
               : makedev(old_major, 2 * of.card + (control ? 1 : 0));
}

node_of_card find_device_file(const std::string &path)
{
    const kernel &is      = the_kernel();
    const std::string dev = is.dev;
    if (!path.starts_with(dev)) {
        return {};
    }
    const std::string name = path.substr(dev.size());
    for (const node kind : {node::control, node::compute}) {
        const auto number = util::number_behind(
            (kind == node::control) ? is.control : is.primary, name);
        if (number.has_value()) {
            return (*number < the_box().cards) ? node_of_card{kind, *number}
                                               : node_of_card{};
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

node_of_card find_linked(const std::string &target)
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
        return {node::compute, *compute};
    }
    return control.has_value() ? node_of_card{node::control, *control}
                               : node_of_card{};
}

std::string shown_link(const std::string &target)
{
    const node_of_card found = find_linked(target);
    if (found.kind == node::none) {
        return without_folder(target);
    }
    const kernel &is = the_kernel();
    return is.dev +
           std::string((found.kind == node::control) ? is.control
                                                     : is.primary) +
           std::to_string(found.card);
}

} // namespace gaudi::kernel_double
