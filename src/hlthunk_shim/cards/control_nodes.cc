#include "hlthunk_shim/cards/control_nodes.h"

#include <cerrno>

namespace gaudi::shim {

namespace {

/* HLTHUNK_MAX_MINOR: more device nodes than that do not exist. */
constexpr int max_nodes = 256;

bool is_absent(int error)
{
    return (error == -ENOENT) || (error == -ENODEV) || (error == -ENXIO);
}

} // namespace

int visit_cards(const library &lib,
                const std::function<void(int node, int fd,
                                         const std::string &bus_id)> &visit)
{
    int failure = 0;
    for (int node = 0; node < max_nodes; ++node) {
        const int fd = lib.hlthunk_open_control(node, nullptr);
        if (fd < 0) {
            if ((failure == 0) && !is_absent(fd)) {
                failure = fd;
            }
            continue;
        }
        char bus_id[bus_id_size] = {};
        if (lib.hlthunk_get_pci_bus_id_from_fd(fd, bus_id, sizeof(bus_id)) ==
            0) {
            visit(node, fd, bus_id);
        }
        lib.hlthunk_close(fd);
    }
    return failure;
}

} // namespace gaudi::shim
