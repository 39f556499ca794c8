/* SPDX-License-Identifier: BSD-3-Clause */
/* How `ucx-gaudi check` writes what it found. */
#include "launcher/check.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <sys/utsname.h>
#include <unistd.h>

namespace launcher {

namespace {

namespace fs = std::filesystem;
using gaudi::util::first_line;

const char *name_of(verdict how)
{
    constexpr const char *names[] = {"ok",   "absent", "FAILED",
                                     "DIED", "HUNG",   "left out"};
    return names[static_cast<size_t>(how)];
}

std::string to_line(const finding &one)
{
    char start[80];
    std::snprintf(start, sizeof(start), "%-10s  %-8s  %6.2f s  ",
                  one.step.c_str(), name_of(one.how), one.seconds);
    return start + one.detail + "\n";
}

/* --- what is attached ------------------------------------------------------*/

/* Attributes of a card, of its class device or its PCI function, depending on
 * the kernel (Documentation/ABI/testing/sysfs-driver-habanalabs). Never the
 * EEPROM, which has serial numbers. */
constexpr char card_attributes[] =
    "armcp_ver cpld_ver cpucp_kernel_ver cpucp_ver current_link_speed "
    "current_link_width device device_type driver_ver fuse_ver fw_os_ver "
    "hard_reset_cnt infineon_ver iommu_group/type local_cpulist max_link_speed "
    "max_link_width module_id numa_node pci_addr preboot_btl_ver revision "
    "security_enabled soft_reset_cnt status thermal_ver uboot_ver vendor "
    "vrm_ver";

/* Of the driver's module. */
constexpr char driver_attributes[] =
    "version srcversion parameters/timeout_locked parameters/reset_on_lockup "
    "parameters/memory_scrub";

/* Variables that are ours, or that choose cards for us. */
constexpr const char *own_variables[] = {
    "UCX_GAUDI_",    "HLTHUNK_EMU_", "HABANA_VISIBLE_",  "GAUDI_MAPPING_TABLE",
    "HLS_MODULE_ID", "UCX_TLS=",     "UCX_PROTO_ENABLE="};

std::string section(const std::string &name, const std::string &text)
{
    return "\n== " + name + "\n" + (text.empty() ? "none\n" : text);
}

std::string list_attributes(const fs::path &folder, const char *names)
{
    std::string text;
    for (const std::string &name : split(names, " ")) {
        const std::string value = first_line(folder / name);
        text += value.empty() ? "" : name + ": " + to_printable(value) + "\n";
    }
    return text;
}

std::string list_cards(const report &found)
{
    std::string text;
    for (const card &one : found.cards) {
        const std::string number = std::to_string(one.number);
        text += one.bus_id + "\n";
        for (const std::string &place :
             {"/bus/pci/devices/" + one.bus_id, "/class/accel/accel" + number,
              "/class/habanalabs/hl" + number}) {
            text += list_attributes(found.sys + place, card_attributes);
        }
    }
    return text;
}

std::string list_versions(const report &found, const std::string &version)
{
    utsname system{};
    uname(&system);
    std::error_code error;
    const fs::path library = fs::canonical(found.driver_file, error);
    return "ucx-gaudi " + version + "\nkernel " + system.release + " " +
           system.machine + "\nlibrary " + library.string() + "\nucx " +
           found.ucx.version + " " + found.ucx.libucp + "\nmodule " +
           found.module + "\n" +
           list_attributes(fs::path(found.sys) / "module/habanalabs",
                           driver_attributes);
}

std::string list_variables()
{
    std::string text;
    for (char **each = environ; *each != nullptr; ++each) {
        if (std::ranges::any_of(own_variables, [&](const char *prefix) {
                return std::strncmp(*each, prefix, std::strlen(prefix)) == 0;
            })) {
            text += to_printable(*each) + "\n";
        }
    }
    return text;
}

/* @return EXIT_FAILURE, for the last error. */
int complain_of(const std::string &report)
{
    std::fprintf(stderr, "ucx-gaudi: cannot write '%s': %s\n",
                 to_printable(report).c_str(), std::strerror(errno));
    return EXIT_FAILURE;
}

/* Where everybody may write, also in a container whose folders are not. */
std::string make_name()
{
    char name[64];
    const time_t now = std::time(nullptr);
    std::strftime(name, sizeof(name), "/ucx-gaudi-check-%Y%m%d-%H%M%S.txt",
                  std::localtime(&now));
    const std::string folder = get_variable("TMPDIR");
    return (folder.empty() ? "/tmp" : folder) + name;
}

} // namespace

std::string to_archive(const check_result &result, const std::string &version)
{
    std::string table;
    std::string logs;
    for (const finding &one : result.findings) {
        table += to_line(one);
        if (one.is_wrong()) {
            table += "            means     " + one.means + "\n";
            logs += "-- " + one.step + "\n" + one.log;
        }
    }
    const report &found = result.found;
    return "ucx-gaudi check, for a report of a bug\n" +
           section("steps", table) +
           section("versions", list_versions(found, version)) +
           section("variables", list_variables()) +
           section("cards", list_cards(found)) +
           section("what failed steps printed", logs) +
           section("info", to_json(found, false));
}

int show_check(const installation &files, const request &emulation,
               const check_request &wanted, const std::string &version)
{
    if (emulation.emulate) {
        set_variables(make_emulator_variables(emulation));
    }
    const std::string name =
        wanted.output.empty() ? make_name() : wanted.output;
    /* Before minutes of work. */
    std::FILE *file = std::fopen(name.c_str(), "wxe");
    if (file == nullptr) {
        return complain_of(name);
    }
    const machine where;
    const check_result result =
        run_check(files, where, wanted,
                  [](const finding &one) { print(to_line(one), 0); });
    if (!result.nothing.empty()) {
        std::fclose(file);
        std::remove(name.c_str());
        std::fprintf(stderr, "ucx-gaudi: nothing to check: %s\n",
                     result.nothing.c_str());
        return EXIT_FAILURE;
    }
    std::string text;
    for (const finding &one : result.findings) {
        if (one.is_wrong()) {
            text += "\nfailed    " + one.step + ": " + one.detail +
                    "\nmeans     " + one.means + "\n";
        }
    }
    int code = result.is_good() ? EXIT_SUCCESS : EXIT_FAILURE;
    const bool written =
        (std::fputs(to_archive(result, version).c_str(), file) >= 0);
    if ((std::fclose(file) == 0) && written) {
        text += "\nreport    " + to_printable(name) +
                ": attach it to a report of a bug\n";
    } else {
        code = complain_of(name);
    }
    return print(text, code);
}

} // namespace launcher
