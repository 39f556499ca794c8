/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Sizes of a transfer engine, and the variables of a transport that has one.
 */
#pragma once

#include "uct/gaudi/base/cards/card.h"
#include "uct/gaudi/base/ucx/ucx.h"

#include <cstddef>
#include <optional>

namespace gaudi::base {

/** Sizes of an engine. What users cannot set was chosen on software cards:
 *  bandwidth does not rise with longer pieces. */
struct transfer_options {
    size_t chunk_bytes = 65536;   /**< of staging memory, and longest bcopy */
    unsigned chunks    = 16;      /**< per card */
    unsigned max_ops   = 65536;   /**< operations outstanding */
    size_t piece_bytes = 1 << 20; /**< longest job */
    unsigned long_jobs = 16;      /**< of long copies at a time, per card and
                                       direction; a power of two: short ones need
                                       room on the card, too */
    size_t short_bytes   = 65536; /**< longest that waits for no longer ones */
    bool looks_for_cards = true;  /**< that a framework has acquired, where an
                                       address is not known: that may end keys,
                                       which an engine that serves them must
                                       not wait for */
    bool remember_host = false; /**< put host memory that nobody registered into
                                     the registration cache, if there is one,
                                     when device memory of another process is
                                     copied to or from it */
    bool logs_paths = false; /**< at info level, of each copy between processes
                              */
};

/** What users set of the engine of an interface. */
struct transfer_config {
    size_t chunk_bytes; /**< as transfer_options */
    unsigned chunks;
    double bandwidth; /**< of a card's link, bytes/second, or auto */

    [[nodiscard]] transfer_options options() const
    {
        transfer_options made;
        made.chunk_bytes = chunk_bytes;
        made.chunks      = chunks;
        return made;
    }

    /** @param by_default  What auto means, bytes/second. */
    [[nodiscard]] double bandwidth_or(double by_default) const;
};

/** To be included in the table of an interface. */
extern ucs_config_field_t transfer_config_table[];

/** A card's PCIe link each way, bytes/second: a x16 slot, Gen5 for Gaudi3, else
 *  Gen4. @param of  nullptr: a Gen4 one. */
double link_bandwidth(const card *of);

/** The part of its bandwidth that an operation gets; all of it without one. */
double link_efficiency(std::optional<uct_ep_operation_t> operation);

/** Submission and completion of one job on a card, seconds. An estimate: the
 *  figure was not measured on hardware. */
inline constexpr double job_latency = 4e-6;

} // namespace gaudi::base
