/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/box.h"

#include "hlthunk_emulator/abstract_name.h"
#include "hlthunk_emulator/file_lock.h"
#include "hlthunk_emulator/settings.h"
#include "util/file_mapping.h"
#include "util/text.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>

#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <sys/socket.h>
#include <sys/stat.h>
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

/* Of a socket that is bound while somebody has a thing of the box. */
abstract_name name_of(const std::string &what)
{
    return abstract_name(get_settings().node + '/' + what);
}

/* All datagram sockets, with their names and users. */
bool ask_for_sockets(int fd)
{
    struct {
        nlmsghdr head;
        unix_diag_req body;
    } request{};
    request.head.nlmsg_len    = sizeof(request);
    request.head.nlmsg_type   = SOCK_DIAG_BY_FAMILY;
    request.head.nlmsg_flags  = NLM_F_REQUEST | NLM_F_DUMP;
    request.body.sdiag_family = AF_UNIX;
    request.body.udiag_states = UINT32_MAX;
    request.body.udiag_show   = UDIAG_SHOW_NAME | UDIAG_SHOW_UID;
    return send(fd, &request, sizeof(request), 0) == sizeof(request);
}

/* The user of a socket, if it has the name and is one for datagrams. */
std::optional<uid_t> user_if_named(const nlmsghdr &message,
                                   std::string_view wanted)
{
    const auto *body = reinterpret_cast<const unix_diag_msg *>(&message + 1);
    bool is_named    = false;
    std::optional<uid_t> user;
    auto left = static_cast<int>(message.nlmsg_len -
                                 NLMSG_LENGTH(sizeof(unix_diag_msg)));
    for (const auto *each         = reinterpret_cast<const rtattr *>(body + 1);
         RTA_OK(each, left); each = RTA_NEXT(each, left)) {
        if (each->rta_type == UNIX_DIAG_NAME) {
            is_named =
                (std::string_view(static_cast<const char *>(RTA_DATA(each)),
                                  RTA_PAYLOAD(each)) == wanted);
        } else if (each->rta_type == UNIX_DIAG_UID) {
            user = *static_cast<const uint32_t *>(RTA_DATA(each));
        }
    }
    return (is_named && (body->udiag_type == SOCK_DGRAM)) ? user : std::nullopt;
}

/* Who has bound a name, as the kernel says (sock_diag(7)): any user of the
 * network namespace can. None: nobody, or it does not say. */
std::optional<uid_t> find_binder(const abstract_name &name)
{
    const util::unique_fd fd(
        socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
    if (!fd || !ask_for_sockets(fd.get())) {
        return std::nullopt;
    }
    /* With the zero byte. */
    const std::string_view wanted(name.address.sun_path,
                                  std::strlen(name.text()) + 1);
    alignas(nlmsghdr) std::array<char, 32768> part;
    for (;;) {
        const ssize_t got = recv(fd.get(), part.data(), part.size(), 0);
        auto left         = static_cast<unsigned>(got);
        const auto *each  = reinterpret_cast<const nlmsghdr *>(part.data());
        if (got <= 0) {
            return std::nullopt;
        }
        for (; NLMSG_OK(each, left); each = NLMSG_NEXT(each, left)) {
            if (each->nlmsg_type != SOCK_DIAG_BY_FAMILY) {
                return std::nullopt; /* the end, or an error */
            }
            const auto user = user_if_named(*each, wanted);
            if (user.has_value()) {
                return user;
            }
        }
    }
}

/* Say who has a thing of the box who cannot be of this box. */
void complain_of_stranger(const std::string &what)
{
    static std::atomic<bool> said{false};
    if (said || !get_settings().folder.empty()) {
        return;
    }
    const abstract_name name = name_of(what);
    const auto user          = find_binder(name);
    if (user.has_value() && (*user != geteuid()) && !said.exchange(true)) {
        std::fprintf(stderr,
                     "hlthunk-emu: user %u has taken the name @%s, which this "
                     "user's box needs; HLTHUNK_EMU_NODE=FOLDER, a folder that "
                     "only you may write to, is a box that nobody else can "
                     "take from\n",
                     *user, name.text());
    }
}

/* Take a thing of the box. */
int take(const std::string &what)
{
    if (!get_settings().folder.empty()) {
        return take_lock(what);
    }
    const abstract_name name = name_of(what);
    util::unique_fd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!fd || (bind(fd.get(), name.get(), name.length) != 0)) {
        return (errno == EADDRINUSE) ? -EBUSY : -errno;
    }
    return fd.release();
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
    const int ret = take(card_name(index));
    if (ret == -EBUSY) {
        complain_of_stranger(card_name(index));
    }
    return ret;
}

int take_turn()
{
    const int ret = wait_while_busy(longest_turn, [] { return take("turn"); });
    if (ret == -EBUSY) {
        complain_of_stranger("turn");
    }
    return ret;
}

bool card_is_taken(unsigned index)
{
    if (!get_settings().folder.empty()) {
        const util::unique_fd file = open_lock(card_name(index));
        return file && is_locked(file.get(), 0, 0);
    }
    const util::unique_fd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const abstract_name name = name_of(card_name(index));
    /* Of datagram sockets: the holder does not notice. */
    return fd && (connect(fd.get(), name.get(), name.length) == 0);
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
