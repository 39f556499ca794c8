/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What the HLTHUNK_EMU_* variables say. Read once per process, at first use.
 */
#pragma once

#include "hlthunk_emulator/asic.h"
#include "hlthunk_emulator/faults.h"
#include "hlthunk_emulator/timing_figures.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gaudi::emu {

struct settings {
    std::shared_ptr<const asic> kind; /**< of all cards */
    unsigned devices   = 8;           /**< cards of the box */
    uint64_t hbm       = 0;   /**< device memory per card, bytes: pages */
    uint64_t dram_page = 0;   /**< what device memory is allocated in */
    uint32_t edma_mask = 0;   /**< EDMA engines that programs may use */
    std::string node   = "0"; /**< name of the box */
    std::string folder;       /**< of its file; empty: that is in memory */
    unsigned engines = 1;     /**< engine threads of this process */
    bool import      = true;  /**< the driver imports dma-bufs */
    bool ports       = false; /**< there is a driver of the cards' ports */
    /** NUMA node of all cards, -1 for an unknown one; none: those of this
     *  machine. */
    std::optional<int> numa;
    /** How many opens find each card in reset. */
    std::array<uint32_t, max_cards> resets{};
    /** How fast the box is modelled to be; none: as fast as this machine. */
    std::optional<timing_figures> timing;
    std::vector<fault> faults; /**< that the cards are to meet with */
    std::vector<fault> wires;  /**< of the ports, from the beginning */
    /** So often a message is sent again before its queue pair gives up: with
     *  the driver's usual timeout 8 s (gaudi2_cn.c). */
    unsigned port_retries = 254;
    bool send_completes   = false; /**< the send entry asks for its sender's
                                        completion, the receive entry for the
                                        peer's */
    /** Milliseconds for which a queue pair that has sent still receives after
     *  it is destroyed; the driver's are 5000 (HBL_CN_QP_DRAIN_TIME). */
    unsigned port_drain = 20;
    std::string sysfs; /**< absolute path of the emulated sysfs; empty: none */
    std::string job_log; /**< file with a line per job; empty: none */
    bool log   = false;  /**< explain errors on stderr */
    bool valid = true;   /**< false: bad values, no cards */

    /** Device memory that programs can have of a card: the driver keeps the
     *  first page. */
    [[nodiscard]] uint64_t user_hbm() const { return hbm - dram_page; }
};

/** The settings of this process. Bad values are reported on stderr, once. */
const settings &get_settings();

/** What all processes of a box have to have in common, NAME=VALUE in lines. */
std::string settings_of_box();

/** Explain something on stderr, when HLTHUNK_EMU_LOG is set. */
[[gnu::format(printf, 1, 2)]] void log(const char *format, ...);

} // namespace gaudi::emu
