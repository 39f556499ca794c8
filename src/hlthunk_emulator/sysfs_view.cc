/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/sysfs_view.h"

#include "hlthunk_emulator/asic.h"
#include "hlthunk_emulator/box.h"
#include "hlthunk_emulator/ports/wiring.h"
#include "hlthunk_emulator/settings.h"
#include "util/made_once.h"
#include "util/placement.h"
#include "util/text.h"
#include "util/unique_fd.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::emu {

namespace {

namespace fs = std::filesystem;

/* Tells which box a folder shows, from before the first file is made. */
constexpr char box_mark[] = ".hlthunk-emu-box";
/* There when all files are. */
constexpr char end_mark[] = ".hlthunk-emu-complete";

std::string read_file(const fs::path &path)
{
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

/* Makes files and links, each under a name of this process first, so that
 * nobody ever sees half of one. Remembers the first error. */
class builder {
public:
    explicit builder(std::string root) : root_(std::move(root)) {}

    void folder(const std::string &path)
    {
        std::error_code error;
        fs::create_directories(root_ + "/" + path, error);
        error_ = (error_ != 0) ? error_ : error.value();
    }

    void file(const std::string &path, const std::string &text)
    {
        publish(path, [&](const char *name) {
            const util::unique_fd fd(
                ::open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0444));
            if (!fd) {
                return false;
            }
            errno = ENOSPC;
            return ::write(fd.get(), text.data(), text.size()) ==
                   static_cast<ssize_t>(text.size());
        });
    }

    /* The content of a file that is there from now on: this, or what somebody
     * else wrote before. */
    std::string claim(const std::string &path, const std::string &text)
    {
        const std::string name = root_ + "/" + path;
        const std::string own  = path + "-of-" + std::to_string(getpid());
        const std::string made = root_ + "/" + own;
        file(own, text);
        if ((error_ == 0) && (::link(made.c_str(), name.c_str()) != 0) &&
            (errno != EEXIST)) {
            error_ = errno;
        }
        unlink(made.c_str());
        return read_file(name);
    }

    void link(const std::string &path, const std::string &target)
    {
        publish(path, [&](const char *name) {
            return symlink(target.c_str(), name) == 0;
        });
    }

    [[nodiscard]] int error() const { return error_; }

private:
    template <typename Make>
    void publish(const std::string &path, Make &&make)
    {
        if (error_ != 0) {
            return;
        }
        const std::string name = root_ + "/" + path;
        const std::string own  = name + "." + std::to_string(getpid());
        unlink(own.c_str()); /* of a process that had the same pid */
        if (!make(own.c_str()) || (rename(own.c_str(), name.c_str()) != 0)) {
            error_ = errno;
            unlink(own.c_str());
        }
    }

    const std::string root_;
    int error_ = 0;
};

/* What the kernel writes of a node's CPUs; empty when it has no such node. */
std::string cpus_of(std::optional<unsigned> node, const std::string &file)
{
    return node.has_value() ? read_file("/sys/devices/system/node/node" +
                                        std::to_string(*node) + "/" + file)
                            : "";
}

std::string to_text(std::optional<unsigned> node)
{
    return node.has_value() ? std::to_string(*node) : "-1";
}

/* What the box is, in one text. */
std::string describe_box()
{
    const settings &is = get_settings();
    std::string text =
        is.kind->name + " cards " + std::to_string(is.devices) + ", nodes";
    for (unsigned i = 0; i < is.devices; ++i) {
        text += " " + to_text(numa_node_of(i));
    }
    return text + "\n";
}

/* Of a card. */
std::string function_folder(unsigned index)
{
    return "devices/" + bus_id_of(index);
}

void add_card(builder &files, unsigned index)
{
    const auto numa            = numa_node_of(index);
    const std::string list     = cpus_of(numa, "cpulist");
    const std::string bus_id   = bus_id_of(index);
    const std::string function = function_folder(index);
    const std::string name     = "accel" + std::to_string(index);
    const auto attribute = [&](const char *file, const std::string &text) {
        files.file(function + "/" + file, text);
    };
    char device[16];
    std::snprintf(device, sizeof(device), "0x%04x\n",
                  get_settings().kind->pci_id);
    files.folder(function);
    attribute("vendor", "0x1da3\n");
    attribute("device", device);
    attribute("class", "0x120000\n");
    attribute("numa_node", to_text(numa) + "\n");
    files.link("bus/pci/devices/" + bus_id, "../../../" + function);
    /* As for a device whose node the kernel does not know. */
    attribute("local_cpulist", list.empty()
                                   ? read_file("/sys/devices/system/cpu/online")
                                   : list);
    if (!list.empty()) {
        attribute("local_cpus", cpus_of(numa, "cpumap"));
    }
    attribute("pci_addr", bus_id + "\n");
    attribute("module_id", std::to_string(index) + "\n");
    attribute("device_type", get_settings().kind->device_type + "\n");
    attribute("status", "Operational\n");

    files.folder(function + "/accel/" + name);
    files.link(function + "/accel/" + name + "/device", "../../../" + bus_id);
    files.link("class/accel/" + name, "../../" + function + "/accel/" + name);
}

/* Below class/infiniband. */
std::string folder_of(port_end port)
{
    return "hbl_" + std::to_string(port.card) + "/ports/" +
           std::to_string(verbs_number(port));
}

/* As Linux' drivers/infiniband/core/sysfs.c has them. */
const char *state_of_link(bool is_up)
{
    return is_up ? "5: LinkUp\n" : "3: Disabled\n";
}

void add_ports(builder &files, unsigned card)
{
    const std::string device = "class/infiniband/hbl_" + std::to_string(card);
    const port_masks masks   = ports_of(card);
    files.folder(device);
    files.file(device + "/node_type", "1: CA\n");
    files.link(device + "/device", "../../../" + function_folder(card));
    for (unsigned i = 0; i < ports_of_card; ++i) {
        const port_end port{card, i};
        if (((masks.enabled >> i) & 1) == 0) {
            continue;
        }
        const std::string folder = "class/infiniband/" + folder_of(port);
        const bool is_external   = ((masks.external >> i) & 1) != 0;
        files.folder(folder + "/gids");
        files.file(folder + "/state",
                   is_external ? "1: DOWN\n" : "4: ACTIVE\n");
        files.file(folder + "/phys_state",
                   state_of_link(peer_of(port).has_value()));
        files.file(folder + "/link_layer", "Ethernet\n");
        files.file(folder + "/gids/0",
                   is_external ? "0000:0000:0000:0000:0000:0000:0000:0000\n"
                               : "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff\n");
    }
}

void add_cards(builder &files)
{
    files.folder("bus/pci/devices");
    files.folder("class/accel");
    files.folder("class/infiniband");
    for (unsigned i = 0; i < get_settings().devices; ++i) {
        add_card(files, i);
        if (get_settings().ports) {
            add_ports(files, i);
        }
    }
    files.file(end_mark, "");
}

std::string fill(const std::string &wished)
{
    if (wished.empty() || !get_settings().valid) {
        return "";
    }
    std::error_code failure;
    fs::create_directories(wished, failure);
    std::string absolute = failure ? "" : util::real_path(wished).string();
    int error            = failure.value();
    if (absolute.empty() && (error == 0)) {
        error = errno;
    }
    if (error == 0) {
        const std::string box = describe_box();
        builder files(absolute);
        const std::string found = files.claim(box_mark, box);
        error                   = files.error();
        if ((error == 0) && (found != box)) {
            std::fprintf(stderr,
                         "hlthunk-emu: HLTHUNK_EMU_SYSFS='%s' shows another "
                         "box already; give this one a folder of its own\n",
                         wished.c_str());
            return "";
        }
        const std::string end = absolute + "/" + end_mark;
        if ((error == 0) && (access(end.c_str(), F_OK) != 0)) {
            add_cards(files);
            error = files.error();
        }
    }
    if (error != 0) {
        std::fprintf(stderr,
                     "hlthunk-emu: HLTHUNK_EMU_SYSFS='%s' cannot be filled: "
                     "%s\n",
                     wished.c_str(), std::strerror(error));
        return "";
    }
    return absolute;
}

util::made_once<std::string> known_root;

} // namespace

std::optional<unsigned> numa_node_of(unsigned index)
{
    const settings &is = get_settings();
    if (is.numa.has_value()) {
        return (*is.numa < 0) ? std::nullopt
                              : std::optional(static_cast<unsigned>(*is.numa));
    }
    const auto &nodes = gaudi::util::memory_nodes();
    if (nodes.empty() || (index >= is.devices)) {
        return std::nullopt;
    }
    return nodes[index * nodes.size() / is.devices];
}

const char *sysfs_root()
{
    const std::string &root =
        known_root.get([] { return fill(get_settings().sysfs); });
    return root.empty() ? nullptr : root.c_str();
}

void show_link(port_end port, bool is_up)
{
    const char *const root = sysfs_root();
    if ((root != nullptr) && get_settings().ports) {
        builder files(root);
        files.file("class/infiniband/" + folder_of(port) + "/phys_state",
                   state_of_link(is_up));
        if (files.error() != 0) {
            log("%s: the state of a link is not shown: %s", root,
                std::strerror(files.error()));
        }
    }
}

} // namespace gaudi::emu
