/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The cards of the box and where they sit, without taking one.
 *
 * The kernel's sysfs answers first: it costs some file reads, no driver call.
 * What it does not say comes from the control nodes. Any thread may call these.
 */
#pragma once

#include "hlthunk_shim/discovery/driver.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gaudi::shim {

struct card_info {
    unsigned index  = 0; /**< in the box: the order of the device files */
    unsigned number = 0; /**< N of /dev/accel/accelN, hl-smi's index */
    std::string bus_id;  /**< "dddd:bb:dd.f" */
    std::optional<unsigned> module_id;
    std::optional<unsigned> numa_node;
    std::string local_cpus;         /**< as "0-3,8"; empty: unknown */
    std::string device_type;        /**< as "GAUDI2"; empty: unknown */
    std::optional<uint64_t> memory; /**< HBM, bytes; only from control nodes */
};

/** Where the kernel shows devices. Tests have other places. */
struct system_places {
    std::string sys = "/sys";
    std::string dev = "/dev";
};

/** PCI vendor of Gaudi cards, as sysfs writes it. */
inline constexpr char gaudi_vendor[] = "0x1da3";

/**
 * Visit every card through its control node, in the order that gives cards
 * their indices.
 *
 * @param of     With a usable library.
 * @param visit  Called with the number of the device file, the descriptor of
 * the control node, which is closed afterwards, and the bus id.
 * @return 0, or the -errno of a control node that is there and cannot be
 *         opened, or of a card behind one that tells nothing.
 */
int visit_cards(const driver &of,
                const std::function<void(unsigned number, int fd,
                                         const std::string &bus_id)> &visit);

/**
 * All cards of the box, in the order of their device files.
 *
 * @param of  With a usable library. Some show a sysfs of their own, or none.
 */
std::vector<card_info> list_cards(const driver &of,
                                  const system_places &places = {});

/**
 * Tell about one card whose control node is open.
 *
 * @param number  N of /dev/accel/accelN.
 * @param fd      Control node.
 * @param bus_id  Of the card.
 * @return All but the index.
 */
card_info describe_card(const driver &of, unsigned number, int fd,
                        const std::string &bus_id,
                        const system_places &places = {});

/** What the driver says of a card, hl_device_status of its uapi header. */
enum class device_condition {
    unknown, /**< the library is too old to tell */
    working,
    in_reset, /**< or being made: it is back soon */
    disabled  /**< until its driver is loaded anew */
};

/** Whether the transports can use a card. */
struct card_check {
    int error            = 0;     /**< -errno: it does not answer */
    bool supported       = false; /**< a kind that they know */
    bool takes_framework = false; /**< through SynapseAI alone */
    bool known           = false; /**< some kind of card */
    /** As "no Gaudi2, but PCI device 0x1000 GAUDI": neither of the two; empty:
     *  one of them. */
    std::string foreign;
    device_condition condition = device_condition::unknown;
    std::optional<uint64_t> free_memory; /**< bytes; none: it does not tell */
};

/** Ask a card.
 *  @param fd  Of its control node. */
card_check check_card(const driver &of, int fd);

/** What to do about a card of an unknown kind. */
inline constexpr char try_unknown[] =
    "UCX_GAUDI_CARD_KIND=gaudi2 or gaudi3 tries it as one of these";

/** Why a card could not be opened, with -ENOTSUP, and what to do. */
std::string why_refused(const driver &of, const std::string &bus_id);

/**
 * Whether somebody has the compute node open, or a dma-buf of the card.
 *
 * @param fd  Of the control node of the card.
 * @return None when the library is too old to tell.
 */
std::optional<bool> is_taken(const driver &of, int fd);

/**
 * The cards that a sysfs shows.
 *
 * @param sys  Its root.
 * @param dev  Where device files are: cards without one are left out, as a
 *             container sees all of the machine's in sysfs. Empty: all.
 * @return Without cards' memory; empty when one of them does not tell its bus
 *         id.
 */
std::vector<card_info> list_sysfs_cards(const std::string &sys,
                                        const std::string &dev);

/** Module id, NUMA node and CPUs, as far as a sysfs knows the card. */
void add_from_sysfs(const std::string &sys, card_info &card);

/**
 * Read a list of CPUs as sysfs writes it.
 *
 * @param text    As "0-3,8".
 * @param cpus_p  Filled on success, ascending.
 * @return false when the text is no such list, or names a CPU from 4096 on.
 */
bool parse_cpu_list(const std::string &text, std::vector<unsigned> &cpus_p);

} // namespace gaudi::shim
