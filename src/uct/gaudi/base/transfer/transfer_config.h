/**
 * The variables of a transport that has a transfer engine.
 */
#pragma once

#include "uct/gaudi/base/cards/card.h"
#include "uct/gaudi/base/transfer/options.h"
#include "uct/gaudi/base/ucx/ucx.h"

#include <optional>

namespace gaudi::base {

/** Fills the part of an interface's configuration with this type. */
struct transfer_config {
    size_t staging_chunk;   /**< bytes */
    unsigned staging_count; /**< per card */
    unsigned max_ops;
    size_t piece_size;    /**< bytes */
    unsigned piece_count; /**< per card and direction */
    size_t short_size;    /**< bytes */
    double bandwidth;     /**< of a card's link, bytes/second, or auto */

    [[nodiscard]] transfer_options options() const;

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
