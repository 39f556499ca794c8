/**
 * Lets people write `gaudi_copy` in UCX_TLS.
 *
 * UCX cuts transport names to nine characters, so the transport is `gaudi_cpy`.
 */
#pragma once

#include <string>

namespace gaudi::base {

/** Replace our component names in a UCX_TLS list by transport names. */
std::string rewrite_tls(const std::string &tls);

/** Rewrite UCX_TLS of this process. Called once, at load, before UCX reads it.
 */
void init_tls_alias();

} // namespace gaudi::base
