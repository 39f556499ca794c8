#include "hlthunk_shim/emu/box.h"

#include "hlthunk_shim/emu/settings.h"

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace gaudi::emu {

namespace {

/* Buses of the cards of an eight-card box; further cards repeat them in
 * another PCI domain. */
constexpr unsigned buses[] = {0x19, 0x1a, 0x33, 0x34, 0xb3, 0xb4, 0xcc, 0xcd};
constexpr unsigned cards_per_domain = sizeof(buses) / sizeof(buses[0]);

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
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    /* The leading zero byte makes the name abstract. */
    int length =
        std::snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1,
                      "hlthunk-emu/%u/%s/accel%u", geteuid(),
                      get_settings().node.c_str(), index);

    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -errno;
    }
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) +
                                             1 + static_cast<size_t>(length));
    if (bind(fd, reinterpret_cast<sockaddr *>(&address), size) != 0) {
        int ret = (errno == EADDRINUSE) ? -EBUSY : -errno;
        close(fd);
        return ret;
    }
    return fd;
}

} // namespace gaudi::emu
