/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/box.h"

#include "hlthunk_emulator/file_lock.h"
#include "hlthunk_emulator/ports/wire.h"
#include "hlthunk_emulator/settings.h"
#include "util/process.h"
#include "util/text.h"

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <new>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace gaudi::emu {

namespace {

/* Buses of the cards of an eight-card box; further cards repeat them in
 * another PCI domain. */
constexpr unsigned buses[] = {0x19, 0x1a, 0x33, 0x34, 0xb3, 0xb4, 0xcc, 0xcd};
constexpr unsigned cards_per_domain = sizeof(buses) / sizeof(buses[0]);

/* Another layout has another number. */
constexpr uint64_t magic =
    0x31786f6275616700 + sizeof(box_state) * 4096 + sizeof(wire_end);

/* The wires are on pages of their own. */
constexpr size_t state_bytes = (sizeof(box_state) + 4095) / 4096 * 4096;
constexpr size_t box_bytes   = state_bytes + bytes_of_wires;

/* Bytes of the file that are locked; it need not be that long. */
constexpr off_t turn_byte        = 0;
constexpr off_t traffic_byte     = 1;
constexpr off_t first_taken      = max_cards;
constexpr off_t first_use        = off_t{2} * max_cards;
constexpr off_t first_member     = 4096;
constexpr unsigned most_members  = 4096;
constexpr unsigned uses_of_cards = 2;
static_assert(first_use + off_t{uses_of_cards} * max_cards <= first_member);

/* Joining takes as long as reading /proc, unless its process is stopped, or a
 * child of a fork that does nothing has its turn. */
constexpr std::chrono::seconds longest_turn{20};

/* A socket with an abstract name of the box. @return -EBUSY while another one
 * has the name, or -errno. */
int take_name(const std::string &what)
{
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    /* The leading zero byte makes the name abstract. */
    const int bytes =
        std::snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1,
                      "hlthunk-emu/%s/%s", box_name().c_str(), what.c_str());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) +
                                               1 + static_cast<size_t>(bytes));
    util::unique_fd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!fd || (bind(fd.get(), reinterpret_cast<const sockaddr *>(&name),
                     length) != 0)) {
        return (errno == EADDRINUSE) ? -EBUSY : -errno;
    }
    return fd.release();
}

/* A child that was forked in the middle of its parent's turn may have its
 * socket, and would wait for itself. One thread at a time. */
void close_inherited_turn()
{
    const std::string name =
        std::string(1, '\0') + "hlthunk-emu/" + box_name() + "/turn";
    for (const auto &entry : util::list_folder("/proc/self/fd")) {
        const int fd = std::atoi(entry.filename().c_str());
        sockaddr_un bound{};
        socklen_t length = sizeof(bound);
        if ((getsockname(fd, reinterpret_cast<sockaddr *>(&bound), &length) ==
             0) &&
            (bound.sun_family == AF_UNIX) &&
            (length == offsetof(sockaddr_un, sun_path) + name.size()) &&
            (std::memcmp(bound.sun_path, name.data(), name.size()) == 0)) {
            close(fd);
        }
    }
}

bool is_own_file(int ret, const struct stat &info)
{
    return (ret == 0) && S_ISREG(info.st_mode) && (info.st_uid == geteuid());
}

/* Whoever may choose paths, in a mount namespace say, can have anything under
 * the name: a FIFO is not waited for. */
util::unique_fd open_own(const std::filesystem::path &entry)
{
    struct stat info;
    if (!is_own_file(stat(entry.c_str(), &info), info)) {
        return {};
    }
    util::unique_fd fd(open(entry.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
    return is_own_file(fstat(fd.get(), &info), info) ? std::move(fd)
                                                     : util::unique_fd();
}

bool has_members(const util::unique_fd &file)
{
    return is_locked(file.get(), first_member, most_members);
}

/* The box file, as a member has it: names of sockets say "PID.FD" of each. */
util::unique_fd find_file(const std::string &memfd)
{
    const std::string prefix = "@hlthunk-emu/" + box_name() + '/';
    std::ifstream names("/proc/net/unix");
    for (std::string line; std::getline(names, line);) {
        const size_t at = line.find(prefix);
        if (at == std::string::npos) {
            continue;
        }
        unsigned pid = 0;
        unsigned fd  = 0;
        if (std::sscanf(line.c_str() + at + prefix.size(), "%u.%u", &pid,
                        &fd) != 2) {
            continue;
        }
        const std::filesystem::path file =
            "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
        std::error_code gone;
        if (std::filesystem::read_symlink(file, gone).native() ==
            "/memfd:" + memfd + " (deleted)") {
            util::unique_fd found = open_own(file);
            if (found && has_members(found)) {
                return found;
            }
        }
    }
    return {};
}

ino_t namespace_of_this_process(const char *kind)
{
    struct stat info {};
    (void)stat((std::string("/proc/self/ns/") + kind).c_str(), &info);
    return info.st_ino;
}

off_t byte_of(box::use what, unsigned card)
{
    return first_use + static_cast<off_t>(what) * max_cards + card;
}

/* The first line, which is cut off. */
std::string_view next_line(std::string_view &text)
{
    const size_t end            = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return line;
}

} // namespace

std::string bus_id_of(unsigned index)
{
    char text[32];
    std::snprintf(text, sizeof(text), "%04x:%02x:00.0",
                  index / cards_per_domain, buses[index % cards_per_domain]);
    return text;
}

int index_of_bus_id(const char *bus_id)
{
    std::string full(bus_id);
    if (full.size() == 7) {
        full.insert(0, "0000:");
    }
    for (unsigned i = 0; i < get_settings().devices; ++i) {
        if (full == bus_id_of(i)) {
            return static_cast<int>(i);
        }
    }
    return -1;
}

std::string box_name()
{
    if (!get_settings().folder.empty()) {
        return get_settings().node;
    }
    std::string reach = std::to_string(geteuid());
    for (const char *kind : {"net", "pid", "user"}) {
        reach += ' ' + std::to_string(namespace_of_this_process(kind));
    }
    char text[16];
    std::snprintf(text, sizeof(text), "/%08zx",
                  std::hash<std::string>()(reach) & UINT32_MAX);
    return get_settings().node + text;
}

/* --- joining -------------------------------------------------------------- */

box &box::instance()
{
    return util::of_this_process<box>();
}

box::box() : error_(join())
{
    if (error_ != 0) {
        log("box '%s' cannot be joined: %s", get_settings().node.c_str(),
            std::strerror(-error_));
    }
}

/* One process at a time finds out whether there is a box. */
int box::join()
{
    if (box_bytes > util::longest_file()) {
        log("ulimit -f leaves no room for a box: it is a file of %zu bytes",
            box_bytes);
        return -EFBIG;
    }
    if (!get_settings().folder.empty()) {
        const std::string path = get_settings().folder + "/box";
        fd_.reset(open(path.c_str(),
                       O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                       0600));
        if (!fd_) {
            return -errno;
        }
        closed_in_children_ = util::closed_in_children(fd_.get());
        int ret             = wait_while_busy(longest_turn, [this] {
            return set_lock(fd_.get(), F_WRLCK, turn_byte);
        });
        if (ret == 0) {
            ret = has_members(fd_) ? open_found() : begin_new();
            (void)set_lock(fd_.get(), F_UNLCK, turn_byte);
        }
        return ret;
    }
    static constinit util::child_mutex joining;
    const std::lock_guard<util::child_mutex> guard(joining);
    close_inherited_turn();
    const util::unique_fd mine(
        wait_while_busy(longest_turn, [] { return take_name("turn"); }));
    const util::closed_in_children not_the_childs(mine.get());
    const std::string name = "hlthunk-emu/" + box_name() + "/box";
    fd_                    = find_file(name);
    const bool is_found    = static_cast<bool>(fd_);
    if (!is_found && !mine) {
        log("box '%s': somebody has been joining it for %ld s (a folder as "
            "HLTHUNK_EMU_NODE is a box of its own)",
            get_settings().node.c_str(), long{longest_turn.count()});
        return mine.get();
    }
    if (!is_found) {
        fd_ = util::make_lasting_file(name.c_str(), box_bytes);
    }
    if (!fd_) {
        return -errno;
    }
    closed_in_children_ = util::closed_in_children(fd_.get());
    const int ret       = is_found ? open_found() : begin_new();
    if (ret != 0) {
        return ret;
    }
    name_.reset(
        take_name(std::to_string(getpid()) + '.' + std::to_string(fd_.get())));
    name_closed_in_children_ = util::closed_in_children(name_.get());
    return name_ ? 0 : name_.get();
}

int box::begin_new()
{
    if (!get_settings().folder.empty() &&
        ((ftruncate(fd_.get(), 0) != 0) ||
         (ftruncate(fd_.get(), box_bytes) != 0))) {
        return -errno;
    }
    if (!shared_.map(fd_.get(), 0, state_bytes)) {
        return -errno;
    }
    auto *made             = new (shared_.start()) box_state;
    const std::string text = settings_of_box();
    std::snprintf(made->settings, sizeof(made->settings), "%s", text.c_str());
    made->magic = magic;
    return take_member_number();
}

int box::open_found()
{
    struct stat info {};
    const bool is_file = get_settings().folder.empty()
                             ? (util::lasting_length(fd_.get()) >= box_bytes)
                             : ((fstat(fd_.get(), &info) == 0) &&
                                (info.st_size >= off_t{box_bytes}));
    if (!is_file || !shared_.map(fd_.get(), 0, state_bytes) ||
        (state().magic != magic)) {
        std::fprintf(stderr,
                     "hlthunk-emu: the processes of box '%s' have another "
                     "build of the emulator: no card can be opened (set "
                     "HLTHUNK_EMU_NODE to another name)\n",
                     get_settings().node.c_str());
        return -EINVAL;
    }
    const int ret = compare_settings();
    return (ret != 0) ? ret : take_member_number();
}

/* Lines are in the same order: a table's. */
int box::compare_settings() const
{
    const std::string here = settings_of_box();
    const std::string there(
        state().settings, strnlen(state().settings, sizeof(state().settings)));
    std::string differences;
    std::string_view own    = here;
    std::string_view theirs = there;
    while (!own.empty()) {
        const std::string_view line  = next_line(own);
        const std::string_view other = next_line(theirs);
        if (line != other) {
            differences += (differences.empty() ? "" : ", ") +
                           std::string(line) + " here and " +
                           std::string(other.substr(other.find('=') + 1)) +
                           " there";
        }
    }
    if (differences.empty()) {
        differences = theirs;
    }
    if (differences.empty()) {
        return 0;
    }
    std::fprintf(stderr,
                 "hlthunk-emu: the processes of box '%s' have other settings: "
                 "%s; no card can be opened (set the same, or "
                 "HLTHUNK_EMU_NODE to another name)\n",
                 get_settings().node.c_str(), differences.c_str());
    return -EINVAL;
}

int box::take_member_number()
{
    madvise(shared_.start(), shared_.length(), MADV_DONTFORK);
    for (unsigned i = 0; i < most_members; ++i) {
        if (set_lock(fd_.get(), F_WRLCK, first_member + off_t{i}) == 0) {
            member_ = static_cast<uint16_t>(i);
            /* What has this number is of a process that was killed. */
            const turn mine(*this);
            mine->all.erase_if(
                [i](const flow &left) { return left.owner == i; });
            return 0;
        }
    }
    return -EMFILE;
}

/* A lock of the file, by which processes of all namespaces know each other: a
 * robust mutex knows its owner by the number that it has in its own. */
constinit util::child_mutex box::turn::threads_;

box::turn::turn(const box &of) : box_(of)
{
    const int error = wait_for_lock(of.fd_.get(), traffic_byte);
    if (error != 0) {
        log("no turn at the timing of the box: %s", std::strerror(-error));
    } else if (of.state().is_changing.exchange(true)) {
        /* Killed in here: the flows may be half changed. Jobs whose flows are
         * unknown have ended. */
        of.state().all.erase_if([](const flow &) { return true; });
    }
}

box::turn::~turn()
{
    box_.state().is_changing = false;
    (void)set_lock(box_.fd_.get(), F_UNLCK, traffic_byte);
}

/* --- what there is of it -------------------------------------------------- */

int box::map_wires(size_t bytes, util::file_mapping &mapping_p) const
{
    return mapping_p.map(fd_.get(), state_bytes, bytes) ? 0 : -errno;
}

/* By a file description of its own, to which the lock belongs. */
int box::take_card(unsigned card) const
{
    char path[64];
    std::snprintf(path, sizeof(path), "/proc/self/fd/%d", fd_.get());
    util::unique_fd holder(open(path, O_RDWR | O_CLOEXEC));
    if (!holder) {
        return -errno;
    }
    const int ret = set_lock(holder.get(), F_WRLCK, first_taken + off_t{card});
    return (ret != 0) ? ret : holder.release();
}

bool box::card_is_taken(unsigned card) const
{
    return is_locked(fd_.get(), first_taken + off_t{card});
}

void box::begin(use what, unsigned card) const
{
    (void)set_lock(fd_.get(), F_WRLCK, byte_of(what, card));
}

void box::end(use what, unsigned card) const
{
    (void)set_lock(fd_.get(), F_UNLCK, byte_of(what, card));
}

bool box::is_elsewhere(use what, unsigned card) const
{
    return is_locked(fd_.get(), byte_of(what, card));
}

bool box::is_there(uint16_t member) const
{
    return is_locked(fd_.get(), first_member + off_t{member});
}

} // namespace gaudi::emu
