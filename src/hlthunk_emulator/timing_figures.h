/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * How fast a box is: the figures of the timing model.
 *
 * The only place that has them. Those marked with an E are estimates: nothing
 * was measured on hardware, and the vendor publishes none.
 */
#pragma once

#include <string>
#include <string_view>

namespace gaudi::emu {

/** Bandwidths are gigabytes (10^9) per second, which is bytes per nanosecond;
 *  times are microseconds; cards are counted. */
struct timing_figures {
    double doorbell;   /**< from a submission to its first byte */
    double completion; /**< from its last byte to the end of the job: the
                            interrupt, and what the driver does in it */
    double wakeup;     /**< from there until a thread runs that slept */
    double to_card;    /**< the card's link, each way */
    double from_card;
    double pdma_engine; /**< one engine that reaches host memory */
    double pdma_all;    /**< all of a card */
    double edma_engine; /**< one engine that copies on the card */
    double edma_all;
    double hbm; /**< reads and writes together: a copy needs twice its bytes */
    double peer_read;        /**< of other cards' memory, by one card */
    double cards_per_uplink; /**< so many share the link of their switch to the
                                  host, from card 0 on; 1: none do */
    double uplink;           /**< that link, each way */
    double port         = 12.5; /**< one of the card's own, each way */
    double port_latency = 1; /**< from a doorbell to the first byte at the other
                                  end of the wire */
};

/*
 * Ports: 100 (Gaudi2) and 200 Gbit/s (Gaudi3) Ethernet each, as product briefs
 * have it; E: port_latency, and that nothing of it is lost to headers.
 * PCIe: x16 at 16 GT/s (Gaudi2) and 32 GT/s (Gaudi3) with 128b/130b coding is
 * 31.5 and 63 GB/s; headers of packets of 256 bytes, acknowledgements and flow
 * control leave about four fifths. UCX_GAUDI_COPY_BW and the capabilities of
 * cards assume the same.
 * HBM: product briefs of Gaudi2 (2.45 TB/s) and Gaudi3 (3.7 TB/s).
 * E: engines (one of PDMA fills a direction of the link, all of EDMA three
 * quarters of the HBM), and all times. doorbell and completion add up to the
 * latency of a job that the transports report to UCX. Reads of a peer: four
 * fifths of the link, since a read waits for its answer and a card has only so
 * many under way, while writes are posted. Switches: two cards to each, with a
 * link to the host as wide as a card's; servers for eight OAM cards with four
 * switches are built so, and the vendor has published no other plan of a box.
 */
inline constexpr timing_figures hls2_figures = {
    .doorbell         = 1.5,
    .completion       = 2.5,
    .wakeup           = 5,
    .to_card          = 25,
    .from_card        = 25,
    .pdma_engine      = 25,
    .pdma_all         = 50,
    .edma_engine      = 115,
    .edma_all         = 920,
    .hbm              = 2450,
    .peer_read        = 20,
    .cards_per_uplink = 2,
    .uplink           = 25,
    .port             = 12.5,
    .port_latency     = 1,
};

inline constexpr timing_figures hls3_figures = {
    .doorbell         = 1.5,
    .completion       = 2.5,
    .wakeup           = 5,
    .to_card          = 50,
    .from_card        = 50,
    .pdma_engine      = 50,
    .pdma_all         = 100,
    .edma_engine      = 175,
    .edma_all         = 1390,
    .hbm              = 3700,
    .peer_read        = 40,
    .cards_per_uplink = 2,
    .uplink           = 50,
    .port             = 25,
    .port_latency     = 1,
};

/**
 * Read a list of figures, NAME=NUMBER by the names above, separated by commas.
 *
 * @param figures  Those that the list has are changed.
 * @return Empty, or what is wrong with it: another name, or no number, a
 *         bandwidth below 1e-6, a time below 0, or no card or part of one.
 */
std::string read_figures(std::string_view list, timing_figures &figures);

/** The same list; `hls2` and `hls3` for theirs. */
std::string to_text(const timing_figures &figures);

} // namespace gaudi::emu
