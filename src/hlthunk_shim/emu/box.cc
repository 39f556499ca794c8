#include "hlthunk_shim/emu/box.h"

#include "hlthunk_shim/emu/settings.h"
#include "util/unique_fd.h"

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace gaudi::emu {

namespace {

/* Buses of the cards of an eight-card box; further cards repeat them in
 * another PCI domain. */
constexpr unsigned buses[] = {0x19, 0x1a, 0x33, 0x34, 0xb3, 0xb4, 0xcc, 0xcd};
constexpr unsigned cards_per_domain = sizeof(buses) / sizeof(buses[0]);

struct socket_name {
    sockaddr_un address;
    socklen_t length;
};

/* How long a turn is waited for: it takes as long as reading /proc. */
constexpr std::chrono::seconds longest_turn{10};

/* The abstract name that is bound while somebody has a thing of the box. */
socket_name name_of_holder(const std::string &what)
{
    socket_name result{};
    result.address.sun_family = AF_UNIX;
    /* The leading zero byte makes the name abstract. */
    const int length = std::snprintf(result.address.sun_path + 1,
                                     sizeof(result.address.sun_path) - 1,
                                     "hlthunk-emu/%u/%s/%s", geteuid(),
                                     get_settings().node.c_str(), what.c_str());
    result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                           static_cast<size_t>(length));
    return result;
}

socket_name name_of_holder(unsigned index)
{
    return name_of_holder("accel" + std::to_string(index));
}

/* Take a thing of the box. */
int take(const socket_name &name)
{
    util::unique_fd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!fd ||
        (bind(fd.get(), reinterpret_cast<const sockaddr *>(&name.address),
              name.length) != 0)) {
        return (errno == EADDRINUSE) ? -EBUSY : -errno;
    }
    return fd.release();
}

} // namespace

std::string bus_id_of(unsigned index)
{
    char text[32];
    std::snprintf(text, sizeof(text), "%04x:%02x:00.0",
                  index / cards_per_domain, buses[index % cards_per_domain]);
    return text;
}

unsigned module_id_of(unsigned index)
{
    return index;
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
    return take(name_of_holder(index));
}

int take_turn()
{
    using clock            = std::chrono::steady_clock;
    const socket_name name = name_of_holder("turn");
    const auto deadline    = clock::now() + longest_turn;
    for (;;) {
        const int ret = take(name);
        if ((ret != -EBUSY) || (clock::now() >= deadline)) {
            return ret;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

bool card_is_taken(unsigned index)
{
    const util::unique_fd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const socket_name name = name_of_holder(index);
    /* Of datagram sockets: the holder does not notice. */
    return fd &&
           (connect(fd.get(), reinterpret_cast<const sockaddr *>(&name.address),
                    name.length) == 0);
}

} // namespace gaudi::emu
