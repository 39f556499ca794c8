/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/box.h"

#include "hlthunk_emulator/file_lock.h"
#include "hlthunk_emulator/settings.h"
#include "util/file_mapping.h"
#include "util/text.h"

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>

#include <fcntl.h>
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

/* How long a turn is waited for: it takes as long as reading /proc. */
constexpr std::chrono::seconds longest_turn{10};

/* In a folder of the user's: the file that is locked while somebody has a thing
 * of the box. */
util::unique_fd open_lock(const std::string &what)
{
    const std::string path = get_settings().folder + '/' + what;
    return util::unique_fd(
        open(path.c_str(),
             O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
}

int take_lock(const std::string &what)
{
    util::unique_fd fd = open_lock(what);
    if (!fd) {
        return -errno;
    }
    const int ret = set_lock(fd.get(), F_WRLCK, 0, 0);
    return (ret != 0) ? ret : fd.release();
}

/* A socket, and the name that one is bound to while somebody has a thing of the
 * box. */
struct named_socket {
    explicit named_socket(const std::string &what)
    {
        name.sun_family = AF_UNIX;
        /* The leading zero byte makes the name abstract. */
        const int bytes =
            std::snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1,
                          "hlthunk-emu/%u/%s/%s", geteuid(),
                          get_settings().node.c_str(), what.c_str());
        length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                        static_cast<size_t>(bytes));
    }
    [[nodiscard]] const sockaddr *address() const
    {
        return reinterpret_cast<const sockaddr *>(&name);
    }

    util::unique_fd fd{socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    sockaddr_un name{};
    socklen_t length = 0;
};

/* Take a thing of the box. */
int take(const std::string &what)
{
    if (!get_settings().folder.empty()) {
        return take_lock(what);
    }
    named_socket held(what);
    if (!held.fd || (bind(held.fd.get(), held.address(), held.length) != 0)) {
        return (errno == EADDRINUSE) ? -EBUSY : -errno;
    }
    return held.fd.release();
}

bool is_own_file(int ret, const struct stat &info)
{
    return (ret == 0) && S_ISREG(info.st_mode) && (info.st_uid == geteuid());
}

/* Whoever may choose paths, in a mount namespace say, can have anything under
 * the name: a FIFO is not waited for. */
util::unique_fd open_own(const std::filesystem::path &entry, int access)
{
    struct stat info;
    if (!is_own_file(stat(entry.c_str(), &info), info)) {
        return {};
    }
    util::unique_fd fd(open(entry.c_str(), access | O_CLOEXEC | O_NONBLOCK));
    return is_own_file(fstat(fd.get(), &info), info) ? std::move(fd)
                                                     : util::unique_fd();
}

std::string card_name(unsigned index)
{
    return "accel" + std::to_string(index);
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

int take_card(unsigned index)
{
    return take(card_name(index));
}

int take_turn()
{
    return wait_while_busy(longest_turn, [] { return take("turn"); });
}

bool card_is_taken(unsigned index)
{
    if (!get_settings().folder.empty()) {
        const util::unique_fd file = open_lock(card_name(index));
        return file && is_locked(file.get(), 0, 0);
    }
    const named_socket asks(card_name(index));
    /* Of datagram sockets: the holder does not notice. */
    return asks.fd &&
           (connect(asks.fd.get(), asks.address(), asks.length) == 0);
}

void visit_memory_files(const std::string &name, int access,
                        const std::function<bool(util::unique_fd)> &visit)
{
    namespace fs             = std::filesystem;
    const std::string target = "/memfd:" + name + " (deleted)";
    for (const fs::path &process : util::list_folder("/proc")) {
        /* Empty for another user's, and when it is gone. */
        for (const fs::path &entry : util::list_folder(process / "fd")) {
            std::error_code gone;
            if (fs::read_symlink(entry, gone).native() != target) {
                continue;
            }
            util::unique_fd fd = open_own(entry, access);
            if (fd && !visit(std::move(fd))) {
                return;
            }
        }
    }
}

int share_memory_file(const std::string &name, size_t length,
                      util::unique_fd &file_p,
                      const std::function<int(int fd)> &begin)
{
    const util::unique_fd turn(take_turn());
    if (!turn) {
        return turn.get();
    }
    visit_memory_files(name, O_RDWR, [&](util::unique_fd file) {
        file_p = std::move(file);
        return false;
    });
    if (file_p) {
        return (util::lasting_length(file_p.get()) >= length) ? 0 : -EINVAL;
    }
    file_p = util::make_lasting_file(name.c_str(), length);
    return file_p ? begin(file_p.get()) : -errno;
}

} // namespace gaudi::emu
