/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Moving bytes of a card's memory for its ports.
 */
#pragma once

#include "hlthunk_emulator/ports/port_context.h"
#include "hlthunk_emulator/settings.h"

namespace gaudi::emu {

/* Have pieces of a card's memory moved by move(address, offset, bytes), which
 * says whether it could. What is not mapped the driver takes for a fault of the
 * card, as of any engine of its: a page fault of the ports has no syndrome. */
template <typename Move>
port_context::touched port_context::for_each_piece(software_card::context &of,
                                                   uint64_t va, uint64_t size,
                                                   Move &&move)
{
    for (uint64_t done = 0; done < size;) {
        translation found;
        if (!of.table.translate(mmu::port::source, va + done, size - done,
                                found)) {
            log("accel%u: a port finds nothing mapped at %#lx", card_,
                va + done);
            fault_effect met = faults::meet(faulty_call::packet, card_);
            if (met.kind != fault_kind::abort) {
                met.kind = (met.kind == fault_kind::none) ? fault_kind::reset
                                                          : met.kind;
                of.queues.break_down(met);
            }
            return touched::unmapped;
        }
        if (!move(found.address, done, found.size)) {
            log("accel%u: a port finds host memory at %#lx that the program "
                "has unmapped",
                card_, va + done);
            return touched::unmapped;
        }
        done += found.size;
    }
    return touched::yes;
}

/* The same, of this card. */
template <typename Work>
port_context::touched port_context::touch(uint64_t va, uint64_t size,
                                          Work &&work)
{
    auto result   = touched::gone;
    const int ret = software_card::at(card_).with_open(
        {}, [&](software_card::context &of, card_lock &) {
            if (of.node.inode() != node_.inode) {
                return -ENODEV;
            }
            result = for_each_piece(of, va, size, work);
            return 0;
        });
    is_gone_ = is_gone_ || (ret != 0);
    return result;
}

} // namespace gaudi::emu
