/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/ucx/callers.h"

#include "uct/gaudi/base/ucx/ucp_request.h"
#include "uct/gaudi/base/ucx/ucp_settings.h"
#include "util/process.h"

#include <memory>
#include <string_view>

#include <dlfcn.h>
#include <execinfo.h>

namespace gaudi::base {

namespace {

struct caller {
    std::string_view name; /* empty: not exported */
    const void *library = nullptr;
    const char *file    = nullptr;
};

caller at(const void *return_address)
{
    Dl_info info{};
    const char *call = static_cast<const char *>(return_address) - 1;
    if (dladdr(call, &info) == 0) {
        return {};
    }
    return {(info.dli_sname != nullptr) ? info.dli_sname : "", info.dli_fbase,
            info.dli_fname};
}

/* Whether a function is one of UCP that is not exported: what its requests of
 * the new protocols end with. UCP's file may have any name. */
bool is_inside_ucp(const caller &function)
{
    if (!function.name.empty() || (function.file == nullptr)) {
        return false;
    }
    const auto close = [](void *opened) { (void)dlclose(opened); };
    const std::unique_ptr<void, decltype(close)> library(
        util::open_loaded(function.file));
    const void *known = (library != nullptr)
                            ? dlsym(library.get(), "ucp_get_version")
                            : nullptr;
    return (known != nullptr) &&
           (at(static_cast<const char *>(known) + 1).library ==
            function.library);
}

} // namespace

bool is_packing(const void *return_address)
{
    const std::string_view name = at(return_address).name;
    return (name == "ucp_mem_type_pack") || (name == "ucp_mem_type_unpack");
}

bool is_fragment(const uct_completion_t &completion)
{
    const auto *function = reinterpret_cast<const char *>(completion.func);
    const caller known   = at(function + 1);
    return (known.name == "ucp_rndv_recv_frag_put_completion") ||
           (known.name == "ucp_rndv_put_pipeline_frag_get_completion") ||
           (known.name == "ucp_rndv_rkey_ptr_frag_completion") ||
           (has_new_protocols() && is_inside_ucp(known) &&
            (gaudi_request_is_staged(&completion) != 0));
}

key_user find_key_user()
{
    constexpr int most = 24;
    void *frames[most];
    const int count = backtrace(frames, most);
    for (int i = 0; i + 1 < count; ++i) {
        const caller known = at(frames[i]);
        if (known.name == "ucp_ep_rkey_unpack") {
            return (at(frames[i + 1]).library == known.library)
                       ? key_user::message
                       : key_user::program;
        }
    }
    return key_user::unknown;
}

} // namespace gaudi::base
