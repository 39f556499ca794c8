/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies that go over the cards' ports. */
#include "uct/gaudi/base/cards/routes.h"
#include "uct/gaudi/base/transfer/planner.h"

namespace gaudi::base {

namespace {

/* Writes, and what the other process is asked to write. */
work_queue &queue_of(channel &ports, bool put, size_t length)
{
    return ports.queue_for(put ? shim::dma_direction::device_to_host
                               : shim::dma_direction::host_to_device,
                           length);
}

} // namespace

/* Have ports of our card to the one that has the memory. */
int planner::find_ports(const side &there, channel &by, bool waits,
                        channel *&ports, planned_copy &copy)
{
    const int error =
        channels_.get_ports(by.owner(), *there.remote, waits, ports);
    if (error == 0) {
        ++ports->users;
        copy.by_owner.reset(ports);
        copy.staged_by = &by;
    }
    return error;
}

/* From one card of ours to another one. @return Whether it is planned so. */
bool planner::plan_over_own_ports(card &from, uint64_t src, card &to,
                                  uint64_t dst, planned_copy &copy)
{
    const route_list &ways =
        find_routes(&from, to.address(), to.device().module_id()).all;
    channel *ports;
    if ((ways.begin() == ways.end()) ||
        (ways.begin()->over != shim::wire::ports) ||
        (channels_.get_ports(from, to, ports) != 0)) {
        return false;
    }
    ++ports->users;
    copy.by_owner.reset(ports);
    copy.go_directly(queue_of(*ports, true, copy.left), dst, src);
    copy.is_imported = true;
    return true;
}

/* Between device memory here and host memory of another process that its card
 * has mapped, over ports. Until it has, and where it cannot, the kernel copies.
 * @return Whether it is planned so. */
bool planner::plan_to_mapped(bool put, const side &there, const side &here,
                             channel &by, planned_copy &copy)
{
    channel *ports = nullptr;
    uint64_t added;
    if ((there.remote->mapped() == nullptr) ||
        !there.remote->routes(&by.owner()).has(shim::wire::ports) ||
        (find_ports(there, by, false, ports, copy) != 0)) {
        return false;
    }
    if (channels_.find_mapping(by.owner(), *there.remote, added) != 0) {
        copy.by_owner.reset();
        copy.staged_by = nullptr;
        return false;
    }
    copy.go_directly(queue_of(*ports, put, copy.left),
                     put ? there.address + added : here.address,
                     put ? here.address : there.address);
    copy.is_imported = true;
    return true;
}

/* Over ports of our card, which writes; what it is to have, the other process's
 * card writes. */
int planner::plan_over_ports(bool put, const side &there, const side &here,
                             host_side host, channel &by, bool waits,
                             planned_copy &copy)
{
    channel *ports;
    const int error = find_ports(there, by, waits, ports, copy);
    if (error != 0) {
        return error;
    }
    if (!here.is_device) {
        plan_host_side(put, here, host, by, there.address, copy);
        copy.queue = &queue_of(*ports, put, copy.left);
        return 0;
    }
    copy.go_directly(queue_of(*ports, put, copy.left),
                     put ? there.address : here.address,
                     put ? here.address : there.address);
    copy.is_imported = true;
    return 0;
}

} // namespace gaudi::base
