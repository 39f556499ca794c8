/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What programs find different in one release of UCX and another.
 */
#pragma once

#include <string_view>
#include <vector>

namespace gaudi::test {

/** Whether the UCX that runs is of an earlier release, such as 1, 16. */
consteval bool ucx_is_before(unsigned major_number, unsigned minor_number)
{
    unsigned numbers[2] = {};
    unsigned *number    = numbers;
    for (const char c : std::string_view(GAUDI_UCX_RELEASE)) {
        if (c == '.') {
            ++number;
        } else {
            *number = *number * 10 + static_cast<unsigned>(c - '0');
        }
    }
    return (numbers[0] < major_number) ||
           ((numbers[0] == major_number) && (numbers[1] < minor_number));
}

/** Whether device memory works with the protocols that UCX_PROTO_ENABLE=n asks
 *  for: where they are UCX's default. */
inline constexpr bool has_old_protocols = ucx_is_before(1, 16);

/** Whether UCX itself has a type for Gaudi memory. */
inline constexpr bool has_gaudi_type = !ucx_is_before(1, 21);

/** UCX's own default of UCX_PROTO_ENABLE. */
inline constexpr const char *default_protocols = has_old_protocols ? "n" : "y";

/** Values of UCX_PROTO_ENABLE with which there is Gaudi memory. */
inline std::vector<const char *> protocols()
{
    if (has_old_protocols) {
        return {"n", "y"};
    }
    return {"y"};
}

} // namespace gaudi::test
