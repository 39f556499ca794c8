#include "launcher/info.h"

#include "hlthunk_shim/driver_choice.h"
#include "launcher/cards.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include <dlfcn.h>
#include <link.h>

namespace launcher {

namespace {

namespace fs   = std::filesystem;
namespace shim = gaudi::shim;

constexpr char built_for[] = GAUDI_UCX_VERSION;

constexpr char try_emulator[] =
    "use the software Gaudi: ucx-gaudi info --emulate, ucx-gaudi run --emulate";

/* What the parts of the report add to. */
struct findings {
    std::string text;
    problems missing;
    bool usable = true;

    void fail(const std::string &what, const std::string &mend)
    {
        missing.push_back({what, mend});
        usable = false;
    }
};

void add_line(findings &all, const char *label, const std::string &value)
{
    char padded[16];
    std::snprintf(padded, sizeof(padded), "%-9s ", label);
    all.text += padded + gaudi::util::to_printable(value) + "\n";
}

/* --- the driver library and its cards --------------------------------------*/

std::string driver_setting()
{
    const char *value = std::getenv("UCX_GAUDI_DRIVER");
    return (value != nullptr) ? value : "auto";
}

std::string how_to_mend_driver(const std::string &setting)
{
    if (setting == "emulator") {
        return "build the project (scripts/quickstart)";
    }
    if (setting.find('/') != std::string::npos) {
        return "set UCX_GAUDI_DRIVER to the path of a libhl-thunk.so";
    }
    return "install the vendor's libhl-thunk.so, put its directory (usually "
           "/usr/lib/habanalabs) into LD_LIBRARY_PATH, or set "
           "UCX_GAUDI_DRIVER to its path";
}

void explain_no_card(const machine &where, findings &all)
{
    const unsigned count = count_pci_cards(where);
    if (count > 0) {
        all.fail("the machine has " + std::to_string(count) +
                     " Gaudi cards and no device node for them",
                 "load the kernel driver (modprobe habanalabs), see dmesg");
    } else {
        all.fail("no Gaudi in this machine", try_emulator);
    }
}

/* The library as the module would load it; none when it would not. */
std::unique_ptr<shim::driver> load_driver(const installation &files,
                                          const machine &where, findings &all)
{
    using outcome             = shim::driver_choice::outcome;
    const std::string setting = driver_setting();
    const auto choice =
        shim::choose_driver(setting, files.directory.string(), where.dev);
    const std::string chosen = " (UCX_GAUDI_DRIVER=" + setting + ")";

    if (choice.result == outcome::invalid) {
        add_line(all, "driver", "none" + chosen);
        all.fail("UCX_GAUDI_DRIVER='" + gaudi::util::to_printable(setting) +
                     "' is not " + shim::driver_syntax,
                 "set it to one of these, or unset it");
        return nullptr;
    }
    if (choice.result == outcome::no_card) {
        add_line(all, "driver", "none" + chosen);
        explain_no_card(where, all);
        return nullptr;
    }
    auto driver = std::make_unique<shim::driver>(choice.path);
    if (!driver->reason().empty()) {
        add_line(all, "driver", "none" + chosen);
        all.fail("the driver library cannot be used: " +
                     gaudi::util::to_printable(driver->reason()),
                 how_to_mend_driver(setting));
        return nullptr;
    }
    add_line(all, "driver", driver->file() + chosen);
    return driver;
}

std::string to_size(const std::optional<uint64_t> &bytes)
{
    if (!bytes.has_value()) {
        return "-";
    }
    constexpr double mebibyte = 1ul << 20;
    constexpr double gibibyte = 1ul << 30;
    const auto value          = static_cast<double>(*bytes);
    const bool large          = (value >= gibibyte);
    char text[32];
    std::snprintf(text, sizeof(text), "%.1f%s",
                  value / (large ? gibibyte : mebibyte), large ? "GiB" : "MiB");
    return text;
}

std::string to_text(const std::optional<unsigned> &number)
{
    return number.has_value() ? std::to_string(*number) : "-";
}

void add_table(const std::vector<card> &cards, findings &all)
{
    using row = std::array<std::string, 9>;

    std::vector<row> rows = {{"index", "module", "bus id", "numa", "HBM",
                              "free", "state", "kind", "held by"}};
    for (const card &one : cards) {
        rows.push_back({to_text(one.index), to_text(one.module_id), one.bus_id,
                        to_text(one.numa_node), to_size(one.memory),
                        to_size(one.free_memory), to_string(one.state),
                        one.software ? "emulator" : "hardware",
                        one.held_by.empty() ? "-" : describe(one.held_by)});
    }
    std::array<size_t, 9> widths{};
    for (const row &cells : rows) {
        for (size_t i = 0; i < cells.size(); ++i) {
            widths[i] = std::max(widths[i], cells[i].size());
        }
    }
    all.text += "\n";
    for (const row &cells : rows) {
        std::string line;
        for (size_t i = 0; i < cells.size(); ++i) {
            line += cells[i];
            if (i + 1 < cells.size()) {
                line.append(widths[i] - cells[i].size() + 2, ' ');
            }
        }
        all.text += gaudi::util::to_printable(line) + "\n";
    }
    all.text += "\n";
}

/* Cards of which none is left. */
void explain_taken(const std::vector<card> &cards, findings &all)
{
    std::string who;
    size_t count = 0;
    for (const card &one : cards) {
        if (!one.index.has_value()) {
            continue;
        }
        ++count;
        who += who.empty() ? "" : "; ";
        who += std::to_string(*one.index) + " by " + describe(one.held_by);
    }
    all.fail("all " + std::to_string(count) + " cards are taken: " + who,
             cards.front().software
                 ? "wait for these programs, or set HLTHUNK_EMU_NODE for "
                   "another box of software cards"
                 : "wait for these programs or end them");
}

void report_cards(const shim::driver &driver, const machine &where,
                  findings &all)
{
    const card_list list = list_cards(driver, where);
    all.missing.insert(all.missing.end(), list.complaints.begin(),
                       list.complaints.end());
    if (list.cards.empty()) {
        all.fail("the driver library shows no card",
                 (driver_setting() == "emulator")
                     ? "see to the HLTHUNK_EMU_* variables"
                     : std::string("see dmesg, and who may open the nodes in "
                                   "/dev/accel; or ") +
                           try_emulator);
        return;
    }
    add_table(list.cards, all);

    const auto can_serve = [](const card &one) {
        return one.usable && ((one.state == card_state::free) ||
                              (one.state == card_state::unknown));
    };
    const auto is_usable = [](const card &one) { return one.usable; };
    if (std::any_of(list.cards.begin(), list.cards.end(), can_serve)) {
        return;
    }
    if (std::any_of(list.cards.begin(), list.cards.end(), is_usable)) {
        explain_taken(list.cards, all);
    }
    all.usable = false;
}

/* --- UCX and the ways into it ----------------------------------------------*/

/* The UCX that a program gets in this environment. */
struct found_ucx {
    std::string version;                    /* empty: it cannot be loaded */
    std::string error;                      /* why */
    std::string ucp;                        /* the file of libucp */
    std::filesystem::path libucs_directory; /* as the loader found it */
};

fs::path file_of(void *handle)
{
    link_map *map = nullptr;
    if ((handle == nullptr) || (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0)) {
        return {};
    }
    return map->l_name;
}

/* Load libucp into this process, and ask it. */
found_ucx find_ucx()
{
    using get_version = void (*)(unsigned *, unsigned *, unsigned *);

    found_ucx found;
    void *handle = dlopen("libucp.so.0", RTLD_LAZY | RTLD_LOCAL);
    if (handle == nullptr) {
        found.error = dlerror();
        return found;
    }
    std::error_code error;
    const fs::path file = file_of(handle);
    found.ucp           = fs::canonical(file, error).string();
    found.libucs_directory =
        file_of(dlopen("libucs.so.0", RTLD_LAZY | RTLD_NOLOAD)).parent_path();

    auto ask = reinterpret_cast<get_version>(dlsym(handle, "ucp_get_version"));
    if (ask == nullptr) {
        found.error = file.string() + " has no ucp_get_version";
        return found;
    }
    unsigned major = 0;
    unsigned minor = 0;
    unsigned patch = 0;
    ask(&major, &minor, &patch);
    found.version = std::to_string(major) + '.' + std::to_string(minor) + '.' +
                    std::to_string(patch);
    return found;
}

bool is_loaded(const fs::path &file)
{
    return dlopen(file.c_str(), RTLD_LAZY | RTLD_NOLOAD) != nullptr;
}

found_ucx report_ucx(findings &all)
{
    found_ucx ucx = find_ucx();
    const std::string build =
        std::string(" (the module is built for ") + built_for + ")";
    if (ucx.version.empty()) {
        add_line(all, "ucx", "none" + build);
        all.fail("no UCX can be loaded: " +
                     gaudi::util::to_printable(ucx.error),
                 std::string("install UCX ") + built_for +
                     " (apt-get install libucx0), or see to LD_LIBRARY_PATH");
        return ucx;
    }
    add_line(all, "ucx", ucx.version + " at " + ucx.ucp + build);
    if (ucx.version != built_for) {
        all.fail("the UCX found is " + ucx.version +
                     ", and the module is built for " + built_for,
                 "build the project again with that UCX, or take it out of "
                 "LD_LIBRARY_PATH");
    }
    return ucx;
}

/* Problems that two ways share are told once. */
void add_new(const problems &found, problems &all)
{
    for (const problem &one : found) {
        if (std::none_of(all.begin(), all.end(), [&](const problem &other) {
                return other.what == one.what;
            })) {
            all.push_back(one);
        }
    }
}

void report_loading(const installation &files, const found_ucx &ucx,
                    findings &all)
{
    std::error_code error;
    const problems preload = find_obstacles(files, loading::preload);
    const problems slot    = find_obstacles(files, loading::slot);
    const bool has_stub    = is_loaded(files.stub);
    const bool has_slot =
        !ucx.libucs_directory.empty() &&
        fs::equivalent(ucx.libucs_directory, files.slot, error);

    const auto state = [](bool active, const problems &obstacles) {
        if (!obstacles.empty()) {
            return "broken     ";
        }
        return active ? "active     " : "not active ";
    };
    add_line(all, "module", files.module.string());
    add_line(all, "preload", state(has_stub, preload) + files.stub.string());
    add_line(all, "slot", state(has_slot, slot) + files.slot.string());

    add_new(preload, all.missing);
    add_new(slot, all.missing);
    if (!preload.empty() && !slot.empty()) {
        all.usable = false;
    }
}

} // namespace

report make_report(const installation &files, const machine &where)
{
    findings all;
    const auto driver = load_driver(files, where, all);
    if (driver != nullptr) {
        report_cards(*driver, where, all);
    }
    if (driver_setting() != "emulator") {
        const problems closed = find_closed_nodes(where);
        all.missing.insert(all.missing.end(), closed.begin(), closed.end());
    }
    report_loading(files, report_ucx(all), all);

    std::string text = all.text;
    for (const problem &one : all.missing) {
        text += "\nmissing   " + one.what + "\nto mend   " + one.mend + "\n";
    }
    return {text, all.usable};
}

} // namespace launcher
