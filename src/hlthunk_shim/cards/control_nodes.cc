#include "hlthunk_shim/cards/control_nodes.h"
#include "hlthunk_shim/hlthunk/library.h"

#include <cerrno>

namespace gaudi::shim {

namespace {

/* HLTHUNK_MAX_MINOR: more device files than that do not exist. */
constexpr int max_cards = 256;

bool is_absent(int error)
{
    return (error == -ENOENT) || (error == -ENODEV) || (error == -ENXIO);
}

} // namespace

int visit_cards(const driver &of,
                const std::function<void(unsigned number, int fd,
                                         const std::string &bus_id)> &visit)
{
    const library &lib = of.lib();
    int failure        = 0;
    for (int number = 0; number < max_cards; ++number) {
        const int fd = lib.hlthunk_open_control(number, nullptr);
        if (fd < 0) {
            if ((failure == 0) && !is_absent(fd)) {
                failure = fd;
            }
            continue;
        }
        char bus_id[bus_id_size] = {};
        if (lib.hlthunk_get_pci_bus_id_from_fd(fd, bus_id, sizeof(bus_id)) ==
            0) {
            visit(static_cast<unsigned>(number), fd, bus_id);
        }
        lib.hlthunk_close(fd);
    }
    return failure;
}

} // namespace gaudi::shim
