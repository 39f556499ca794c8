/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * How the ports of each kind of box are wired. Facts of HabanaAI/HCL, commit
 * 54fed3a1f0e294203bb2491a918714ada610849b (1.21.0), folder hcl/src/platform:
 * the files that are named below, and for server types hcl_device_config.cpp.
 */
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

namespace gaudi::shim {

/** Ports that a card has, whether it uses them or not. */
inline constexpr unsigned ports_of_card = 24;

/** Ports of cards are numbered as the card does, from 0 on, and cards by their
 *  module ids. */
struct port_end {
    bool is_card       = false; /**< else no card of the box is there */
    unsigned module_id = 0;     /**< of the card */
    unsigned port      = 0;     /**< of that card */

    bool operator==(const port_end &) const = default;
};

struct box_map {
    const char *name;
    std::array<unsigned, 2> server_types; /**< enum hl_server_type of
                                               habanalabs_accel.h */
    const char *source;                   /**< of HCL */
    /** A row for each card: for each port the card at the other end and its
     *  port, counted from a; "--" leads out of the box, ".." nowhere. Cards
     *  that follow are wired among themselves as these are. */
    std::span<const char *const> rows;
    unsigned cards; /**< that HCL has in a box */

    [[nodiscard]] constexpr port_end end_of(unsigned card, unsigned port) const
    {
        const auto group = static_cast<unsigned>(rows.size());
        const char *at   = rows[card % group] + size_t{2} * port;
        if ((*at == '-') || (*at == '.')) {
            return {};
        }
        return {true, card / group * group + static_cast<unsigned>(*at - '0'),
                static_cast<unsigned>(at[1] - 'a')};
    }

    /** Whether a port leads anywhere. */
    [[nodiscard]] constexpr bool is_wired(unsigned card, unsigned port) const
    {
        return rows[card % rows.size()][size_t{2} * port] != '.';
    }
};

namespace detail {
/* A rack's are wired as these, too. */
inline constexpr const char *hls2[] = {
    "3a3b7c3d7e7f4g4h--4j2q2r2s1n1o1p6q6r6s5t5u5v----",
    "2a2b6c2d6e6f5g5h--5j7k7l7m0n0o0p3q3r3s4t4u4v----",
    "1a1b5c1d5e5f6g6h--6j3k3l3m4n4o4p0k0l0m7t7u7v----",
    "0a0b4c0d4e4f7g7h--7j2k2l2m5n5o5p1q1r1s6t6u6v----",
    "7a7b3c7d3e3f0g0h--0j5k5l5m2n2o2p6k6l6m1t1u1v----",
    "6a6b2c6d2e2f1g1h--1j4k4l4m3n3o3p7q7r7s0t0u0v----",
    "5a5b1c5d1e1f2g2h--2j4q4r4s7n7o7p0q0r0s3t3u3v----",
    "4a4b0c4d0e0f3g3h--3j1k1l1m6n6o6p5q5r5s2t2u2v----",
};
inline constexpr const char *hls3[] = {
    "1m1n3e3f2m2n5m5n4a4b7a7b6m6n6e7r4s--5i2h----1l3w",
    "5k5l7q6f5g--4u3t----2l0w0a0b2q2r3a3b4w4x6o6p7w7x",
    "6k6l4q5f6g--7u0t----3x1k0e0f3c3d1o1p5q5r4c4d7c7d",
    "1q1r2o2p0c0d5o5p7e7f4e4f6q6r5e4r7s--6i1h----0x2k",
    "0i0j2u2v3k3l5u5v7i7j6s6t6b5a----2c3p0q--1g7v1s1t",
    "4n7m----3o2d1e--0s6j1a1b0g0h3g3h2s2t6u6v4g4h7g7h",
    "7n4m----0o1d2e--3s5j2a2b0m0n1u1v3m3n4k4l5s5t7k7l",
    "0k0l2w2x3i3j5w5x4i4j6w6x5b6a----1c0p3q--2g4v1w1x",
};
inline constexpr const char *hl288[] = {
    "1a1b1c1d1e1f--------3k3l3m3n3o3p2q2r2s2t2u2v....",
    "0a0b0c0d0e0f--------2k2l2m2n2o2p3q3r3s3t3u3v....",
    "3a3b3c3d3e3f--------1k1l1m1n1o1p0q0r0s0t0u0v....",
    "2a2b2c2d2e2f--------0k0l0m0n0o0p1q1r1s1t1u1v....",
};
inline constexpr const char *hl338[] = {
    "....1c1d1e1f1g1h--------3m3n3o3p2q2r3s3t2u2v2w2x",
    "....0c0d0e0f0g0h--------2m2n2o2p3q3r2s2t3u3v3w3x",
    "....3c3d3e3f3g3h--------1m1n1o1p0q0r1s1t0u0v0w0x",
    "....2c2d2e2f2g2h--------0m0n0o0p1q1r0s0t1u1v1w1x",
};
} // namespace detail

inline constexpr box_map box_maps[] = {
    {"HLS-2", {5, 7}, "gaudi2/connectivity_autogen_HLS2.cpp", detail::hls2, 8},
    {"HLS-3", {10}, "gaudi3/connectivity_autogen_HLS3.cpp", detail::hls3, 8},
    {"HL-288",
     {14},
     "gaudi2/connectivity_autogen_HLS2PCIE.cpp",
     detail::hl288,
     8},
    {"HL-338",
     {13},
     "gaudi3/connectivity_autogen_HLS3PCIE.cpp",
     detail::hl338,
     8},
    {"Gaudi3 rack",
     {15, 16},
     "gaudi3/connectivity_autogen_HLS3Rack.cpp",
     detail::hls2,
     16},
};

/** @return nullptr: it is not known. */
inline const box_map *find_box_map(unsigned server_type)
{
    const auto *found =
        std::ranges::find_if(box_maps, [=](const box_map &each) {
            return (server_type != 0) &&
                   ((each.server_types[0] == server_type) ||
                    (each.server_types[1] == server_type));
        });
    return (found != std::end(box_maps)) ? found : nullptr;
}

} // namespace gaudi::shim
