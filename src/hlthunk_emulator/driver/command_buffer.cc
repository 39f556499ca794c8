/* SPDX-License-Identifier: BSD-3-Clause */
/* Command buffers of the driver: hl_cb_ioctl of command_buffer.c. */
#include "hlthunk_emulator/driver/ioctl.h"

#include "hlthunk_emulator/asic.h"
#include "util/addresses.h"

#include <algorithm>

#include <sys/mman.h>

namespace gaudi::emu::driver {

namespace {

using context = software_card::context;

int create(context &card, uint32_t size, bool mapped, uint64_t &handle_p)
{
    if (size > max_command_buffer) {
        return broken("command-buffer-size", EINVAL,
                      "%s: a command buffer of %u bytes", card.name, size);
    }
    const uint64_t bytes = std::max(host_page, util::round_up(size, host_page));
    const uint64_t offset = card.next_buffer;
    software_card::command_buffer buffer;
    if (!card.node.resize(offset + bytes) ||
        !buffer.data.map(card.node.find(), offset, bytes)) {
        return -ENOMEM;
    }
    /* The application has its own. */
    madvise(buffer.data.start(), bytes, MADV_DONTFORK);
    if (mapped) {
        buffer.va = card.table.map_command_buffer(buffer.data.start(), bytes);
        if (buffer.va == 0) {
            return -ENOMEM;
        }
    }
    card.next_buffer += bytes;
    card.buffers.emplace(offset, std::move(buffer));
    handle_p = offset;
    return 0;
}

int destroy(context &card, card_lock &lock, uint64_t handle)
{
    card.queues.quiesce(lock);
    const auto found = card.buffers.find(handle);
    if (found == card.buffers.end()) {
        return broken("command-buffer-handle", EINVAL,
                      "%s: there is no command buffer %lu", card.name, handle);
    }
    if (found->second.va != 0) {
        card.table.unmap(found->second.va);
    }
    card.buffers.erase(found);
    return 0;
}

int tell_address(context &card, uint64_t handle, uint64_t &address_p)
{
    const auto found = card.buffers.find(handle);
    if ((found == card.buffers.end()) || (found->second.va == 0)) {
        return broken("command-buffer-address", EINVAL,
                      "%s: command buffer %lu is not there, or not mapped",
                      card.name, handle);
    }
    address_p = found->second.va;
    return 0;
}

} // namespace

int answer(device_file file, command_buffer_args &arguments)
{
    const command_buffer_in in = arguments.in;
    uint64_t value             = 0;
    const auto work            = [&](context &card, card_lock &lock) {
        switch (in.op) {
        case command_buffer_create:
            return create(card, in.size,
                                     (in.flags & command_buffer_flag_map) != 0, value);
        case command_buffer_destroy:
            return destroy(card, lock, in.handle);
        case command_buffer_info:
            if ((in.flags & command_buffer_flag_address) != 0) {
                return tell_address(card, in.handle, value);
            }
            [[fallthrough]]; /* nobody asks for the use count */
        default:
            return broken("command-buffer-op", EINVAL,
                                     "%s: operation %u on command buffers", card.name,
                                     in.op);
        }
    };
    const int ret = software_card::at(file.card).with_open({}, work);
    arguments     = {};
    arguments.out = {value};
    return ret;
}

} // namespace gaudi::emu::driver
