/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * How fast a box is: the figures of the timing model.
 *
 * The only place that has them. Those marked with an E are estimates: nothing
 * was measured on hardware, and the vendor publishes none.
 */
#pragma once

#include <string>

namespace gaudi::emu {

/** Bandwidths are gigabytes (10^9) per second, which is bytes per nanosecond;
 *  times are microseconds; cards are counted. */
struct timing_figures {
    double doorbell;     /**< from a submission to its first byte */
    double completion;   /**< from its last byte to the end of the job: the
                              interrupt, and what the driver does in it */
    double wakeup;       /**< from there until a thread runs that slept */
    double import_page;  /**< mapping, and unmapping, 4 KiB of a dma-buf: they
                              are mapped one by one, under the lock of the
                              card's MMU */
    double import_table; /**< passing a page table on the way to theirs: so
                              many that the time grows with the square of what
                              is mapped */
    double to_card;      /**< the card's link, each way */
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
 * Imports: a replica of the driver's loop took 0.6 s for 8 GB, 26 s for 48 GB
 * and 131 s for 96 GB of pages in memory that is not a card's; these figures
 * give 0.74, 26 and 104 s.
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
    .import_page      = 0.01,
    .import_table     = 0.0215,
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
    .import_page      = 0.01,
    .import_table     = 0.0215,
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
 * Read the figures of a file: an object of JSON whose keys are the names above,
 * each with a number. Those that it leaves out are HLS-2's.
 *
 * @param why  What is wrong with it, filled on failure.
 * @return false when it cannot be read, is something else, has another key, or
 *         a bandwidth below 1e-6, a time below 0, or no card or part of one.
 */
[[nodiscard]] bool read_figures(const std::string &path,
                                timing_figures &figures, std::string &why);

} // namespace gaudi::emu
