/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The ports of an open card: one for each card of a process, since the kernel's
 * driver lets one verbs device be open at a time. Ports are taken into use when
 * a connection wants them first.
 *
 * Any thread. Not in a forked child: queues are not mapped there.
 */
#pragma once

#include "hlthunk_shim/card.h"
#include "hlthunk_shim/ports/links.h"
#include "hlthunk_shim/ports/port.h"
#include "util/fork_handlers.h"
#include "util/process.h"

#include <array>
#include <memory>
#include <mutex>
#include <string>

namespace gaudi::shim {

class port_device {
public:
    /**
     * Open the verbs device of a card, on the descriptor that the card has.
     *
     * @param driver,lib  Must outlive it, and so must the card.
     * @param number      N of /dev/accel/accelN.
     * @param device_p    Filled on success only.
     * @return Why it cannot be used, in one line; empty: it can.
     */
    static std::string open(const library &driver, const verbs_library &lib,
                            const card &of, unsigned number,
                            std::unique_ptr<port_device> &device_p);
    ~port_device();
    port_device(const port_device &)            = delete;
    port_device &operator=(const port_device &) = delete;

    [[nodiscard]] const card &of() const { return card_; }
    [[nodiscard]] const card_ports &place() const { return place_; }
    [[nodiscard]] generation kind() const { return context_.kind; }

    /** A port whose link is up, by the card's number. Makes system calls the
     *  first time. @return nullptr, and why. */
    port *find(unsigned number, std::string &why_p);

    /** See what has happened to ports and connections: a system call. Another
     *  thread that is at it does it for both. */
    void look_for_events();

    /** Grows after a port or a queue pair has come to work or to fail. */
    [[nodiscard]] uint32_t changes() const
    {
        return context_.changes.load(std::memory_order_acquire);
    }

private:
    port_device(const verbs_library &lib, const card &of, generation kind,
                card_ports place);

    std::string open(const std::string &name);
    void handle(const ibv_async_event &event);

    const card &card_;
    const card_ports place_;
    port_context context_;
    std::array<util::closed_in_children, 2> closed_in_children_;

    std::mutex setting_up_; /* one port at a time; held across driver calls */
    util::brief_lock looking_;
    /* By the card's numbers. They stay once they are there. */
    std::array<std::atomic<port *>, ports_of_card> ports_{};
};

} // namespace gaudi::shim
