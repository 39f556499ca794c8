/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/ucx/version.h"

#include "uct/gaudi/base/ucx/ucx.h"
#include "util/process.h"

#include <cstring>
#include <optional>
#include <string>

#include <dlfcn.h>
#include <link.h>

extern "C" {
#include <ucs/async/async.h>
#include <ucs/config/global_opts.h>
#include <ucs/memory/rcache_int.h>
}

namespace gaudi::base {

namespace {

/* Size of an object, by the symbol table. */
std::optional<size_t> size_of_symbol(void *library, const char *name)
{
    const void *object = dlsym(library, name);
    void *symbol       = nullptr;
    Dl_info info;
    if ((object == nullptr) ||
        (dladdr1(object, &info, &symbol, RTLD_DL_SYMENT) == 0) ||
        (symbol == nullptr)) {
        return std::nullopt;
    }
    return static_cast<const ElfW(Sym) *>(symbol)->st_size;
}

/* Size of a UCX class, as the class says. */
std::optional<size_t> size_of_class(void *library, const char *name)
{
    const auto *object = static_cast<const ucs_class_t *>(dlsym(library, name));
    return (object != nullptr) ? std::optional(object->size) : std::nullopt;
}

/* Whether UCX fills a structure that is longer where it is built with
 * assertions, as its headers here say. No symbol tells its size. */
bool is_async_context_alike()
{
    struct {
        ucs_async_context_t own;
        char room[256]; /* for what it has more there */
    } context;
    constexpr auto mode = UCS_ASYNC_MODE_POLL;
    std::memset(&context, 0xff, sizeof(context));
    if (ucs_async_context_init(&context.own, mode) != UCS_OK) {
        return true; /* there is no memory; nothing was compared */
    }
    const bool alike = (context.own.mode == mode);
    ucs_async_context_cleanup(&context.own);
    return alike;
}

template <typename Table>
struct table {};

/* Whether a table has a slot, by the headers. */
#define HAS_SLOT(_table, _slot)                                                \
    []<typename Table>(table<Table>) {                                         \
        return requires(Table one)                                             \
        {                                                                      \
            one._slot;                                                         \
        };                                                                     \
    }(table<_table>{})

/* The first table of slots that the running libuct has in another way; empty:
 * none. */
std::string find_other_table(void *library)
{
    constexpr struct {
        const char *function;
        bool is_known;
    } slots[] = {
#define UCX_SLOT(_function, _table, _slot)                                     \
    {#_function, HAS_SLOT(_table, _slot)},
#include "uct/gaudi/base/ucx/slots.def"
#undef UCX_SLOT
    };

    for (const auto &slot : slots) {
        if ((dlsym(library, slot.function) != nullptr) != slot.is_known) {
            return std::string(slot.function) +
                   (slot.is_known ? " is missing" : " is new");
        }
    }
    return "";
}

/* What of libuct, its libucs, or a structure that libucs fills is laid out in
 * another way than by the headers that this module was built with; empty:
 * nothing. */
std::string find_other_layout(void *library)
{
    const struct {
        const char *name;
        std::optional<size_t> (*size_of)(void *, const char *);
        size_t size; /* by the headers; what is not there is not compared */
    } objects[] = {
        {"uct_base_iface_t_class", size_of_class, sizeof(uct_base_iface_t)},
        {"uct_base_ep_t_class", size_of_class, sizeof(uct_base_ep_t)},
        {"uct_tcp_component", size_of_symbol, sizeof(uct_component_t)},
        {"uct_self_tl", size_of_symbol, sizeof(uct_tl_t)},
        {"uct_md_config_table", size_of_symbol, sizeof(ucs_config_field_t)},
        {"ucs_rcache_t_class", size_of_class, sizeof(ucs_rcache_t)},
        {"ucs_global_opts", size_of_symbol, sizeof(ucs_global_opts_t)},
    };

    for (const auto &object : objects) {
        const auto size = object.size_of(library, object.name);
        if (size.has_value() && (*size != object.size)) {
            return std::string(object.name) + ": " + std::to_string(*size) +
                   " bytes instead of " + std::to_string(object.size);
        }
    }
    if (std::string other = find_other_table(library); !other.empty()) {
        return other;
    }
    if (!is_async_context_alike()) {
        return "ucs_async_context_t is another one, as in another release or "
               "with another ENABLE_ASSERT";
    }
    return "";
}

} // namespace

const char *ucx_headers_version()
{
    return GAUDI_UCX_VERSION;
}

bool ucx_matches()
{
    /* Its own dependency. */
    void *library =
        util::open_library_at(reinterpret_cast<void *>(&uct_component_query));
    const std::string other = find_other_layout(library);
    if (library != nullptr) {
        dlclose(library);
    }
    if (!other.empty()) {
        ucs_warn("the Gaudi transports were built for another build of UCX "
                 "than this one, namely UCX " GAUDI_UCX_VERSION
                 " (%s): they are not available; build them for this one",
                 other.c_str());
        return false;
    }
    return true;
}

} // namespace gaudi::base
