/**
 * UCP's two sets of protocols, of which UCX_PROTO_ENABLE chooses one.
 */
#pragma once

namespace gaudi::base {

/** Whether UCP uses its new protocols. */
bool has_new_protocols();

/** Whether UCP's protocols can handle Gaudi memory: the old ones cannot from
 *  1.16 on, where the new ones are the default. If not, one error is logged,
 *  once. */
bool has_usable_protocols();

} // namespace gaudi::base
