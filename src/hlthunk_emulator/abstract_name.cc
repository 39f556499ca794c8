#include "hlthunk_emulator/abstract_name.h"

#include "hlthunk_emulator/settings.h"
#include "util/unique_fd.h"

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string_view>

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <unistd.h>

namespace gaudi::emu {

namespace {

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

} // namespace

abstract_name::abstract_name(const std::string &what)
{
    address_.sun_family = AF_UNIX;
    /* The leading zero byte makes the name abstract. */
    const int length =
        std::snprintf(address_.sun_path + 1, sizeof(address_.sun_path) - 1,
                      "hlthunk-emu/%u/%s/%s", geteuid(),
                      get_settings().node.c_str(), what.c_str());
    length_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                     static_cast<size_t>(length));
}

std::optional<uid_t> find_binder(const abstract_name &name)
{
    const util::unique_fd fd(
        socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
    if (!fd || !ask_for_sockets(fd.get())) {
        return std::nullopt;
    }
    /* With the zero byte. */
    const std::string_view wanted(name.text() - 1,
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

} // namespace gaudi::emu
