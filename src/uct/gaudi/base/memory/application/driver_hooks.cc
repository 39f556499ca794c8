/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sees what the application asks of the driver library.
 *
 * The functions of libhl-thunk.so that open and close cards, and give out and
 * take back device memory, lead to hooks wherever they are called from a
 * library, and for who looks them up with dlsym from then on. No code is
 * changed, and nothing of the library's names is exported. The table of the one
 * that this module uses is made to lead to the original functions, so that what
 * we do ourselves is never seen. What is called through pointers from before is
 * not seen, nor is a second library of that name; memory that is mapped so is
 * found by asking the driver how much of it there is.
 *
 * UCX's own module for Gaudi memory is not the application: a card that it
 * opens for itself is left to it, and it is lent none.
 */
#include "uct/gaudi/base/cards/card_events.h"
#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/cards/driver.h"
#include "uct/gaudi/base/memory/application/application_memory.h"
#include "uct/gaudi/base/memory/application/rebinding.h"
#include "uct/gaudi/base/ucx/status.h"
#include "util/fork_handlers.h"
#include "util/process.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <string_view>

#include <dlfcn.h>

namespace gaudi::base {

namespace {

constexpr char library_name[] = "libhl-thunk.so";

/* The functions, in the order of the arrays below. */
enum function {
    open_card,
    open_module,
    close_card,
    allocate,
    release,
    map,
    unmap,
    functions
};

constexpr std::array<const char *, functions> function_names = {
    "hlthunk_open",
    "hlthunk_open_by_module_id",
    "hlthunk_close",
    "hlthunk_device_memory_alloc",
    "hlthunk_device_memory_free",
    "hlthunk_device_memory_map",
    "hlthunk_memory_unmap"};

using function_table = std::array<void *, functions>;

function_table originals; /* as the library exported them */
bool sees_all = false;    /* else some callers have the functions themselves */
std::atomic<bool> is_installed{false};
constinit util::child_mutex install_lock; /* held across dlopen */

/* Whether the application has called this hook: not the library itself, nor
 * SynapseAI when we have it acquire a card, nor a process that is cut off. */
bool is_of_application()
{
    return (hook_scope::depth() == 1) && !shim::driver::is_in_own_call() &&
           !util::is_cut_off();
}

/* Whether code is that of UCX's own module for Gaudi memory (gaudi_gdr, from
 * 1.21 on), which opens a card when SynapseAI has none in the process. */
bool is_of_ucx(const void *code)
{
    constexpr std::string_view module = "libuct_gaudi";
    Dl_info info;
    if (dladdr(code, &info) == 0) {
        return false;
    }
    std::string_view file(info.dli_fname);
    file.remove_prefix(file.rfind('/') + 1);
    /* Packagers put a hash behind it. */
    return file.starts_with(module) &&
           (file.find_first_of(".-") == module.size());
}

class kept_errno {
public:
    ~kept_errno() { errno = value_; }

private:
    const int value_ = errno;
};

card_table &cards()
{
    return card_table::instance();
}

/* Report to those who keep what the application does; no exception goes into
 * it. */
template <typename Call>
void report(Call &&call)
{
    const kept_errno kept;
    (void)guarded([&] {
        call();
        return UCS_OK;
    });
}

template <typename Result, typename... Arguments>
Result original(function which, Arguments... arguments)
{
    return reinterpret_cast<Result (*)(Arguments...)>(originals[which])(
        arguments...);
}

/* What is called in their place. */
struct hooks {
    /* What an open call of the application gave. When the process has the card
     * open already, a second time is not possible: share ours with it. */
    static int opened(int fd, const card_wish &wish, const void *caller)
    {
        if (!is_of_application()) {
            return fd;
        }
        if (is_of_ucx(caller)) {
            if (fd >= 0) {
                report([&] { cards().ucx_opened(fd); });
            }
        } else if (fd >= 0) {
            report([&] { cards().application_opened(fd, wish.of_framework); });
        } else if ((wish.bus_id == nullptr) || (fd == -EBUSY)) {
            int lent = -1;
            report([&] { lent = cards().lend(wish); });
            return (lent >= 0) ? lent : fd;
        }
        return fd;
    }

    static int open_card(int kind, const char *bus_id)
    {
        const hook_scope inside;
        return opened(original<int>(function::open_card, kind, bus_id),
                      {.bus_id       = bus_id,
                       .kind         = kind,
                       .of_framework = shim::driver::is_framework(
                           __builtin_return_address(0))},
                      __builtin_return_address(0));
    }

    static int open_module(uint32_t module_id)
    {
        const hook_scope inside;
        return opened(original<int>(function::open_module, module_id),
                      {.module_id    = static_cast<int64_t>(module_id),
                       .of_framework = shim::driver::is_framework(
                           __builtin_return_address(0))},
                      __builtin_return_address(0));
    }

    static int close_card(int fd)
    {
        const hook_scope inside;
        if (!is_of_application()) {
            return original<int>(function::close_card, fd);
        }
        report([&] { cards().application_closing(fd); });
        const int ret = original<int>(function::close_card, fd);
        report([&] { cards().application_closed(fd); });
        return ret;
    }

    static uint64_t allocate(int fd, uint64_t size, uint64_t page_size,
                             bool contiguous, bool shared)
    {
        const hook_scope inside;
        const auto handle = original<uint64_t>(function::allocate, fd, size,
                                               page_size, contiguous, shared);
        if ((handle != 0) && is_of_application()) {
            report([&] { application::allocated(fd, handle, size); });
        }
        return handle;
    }

    static int release(int fd, uint64_t handle)
    {
        const hook_scope inside;
        if (!is_of_application()) {
            return original<int>(function::release, fd, handle);
        }
        uint64_t size = 0;
        report([&] { size = application::freeing(fd, handle); });
        const int ret = original<int>(function::release, fd, handle);
        if ((ret != 0) && (size != 0)) {
            report([&] { application::allocated(fd, handle, size); });
        }
        return ret;
    }

    static uint64_t map(int fd, uint64_t handle, uint64_t hint)
    {
        const hook_scope inside;
        const auto va = original<uint64_t>(function::map, fd, handle, hint);
        if ((va != 0) && is_of_application()) {
            report([&] { application::mapped(fd, handle, va); });
        }
        return va;
    }

    static int unmap(int fd, uint64_t va)
    {
        const hook_scope inside;
        if (!is_of_application()) {
            return original<int>(function::unmap, fd, va);
        }
        application_memory *memory = nullptr;
        report([&] { memory = application::unmapping(fd, va); });
        const int ret = original<int>(function::unmap, fd, va);
        if (memory != nullptr) {
            report([&] { application::unmapped(*memory, ret == 0); });
        }
        return ret;
    }

    static function_table all()
    {
        return {reinterpret_cast<void *>(open_card),
                reinterpret_cast<void *>(open_module),
                reinterpret_cast<void *>(close_card),
                reinterpret_cast<void *>(allocate),
                reinterpret_cast<void *>(release),
                reinterpret_cast<void *>(map),
                reinterpret_cast<void *>(unmap)};
    }
};

/* Hook a loaded library, once. A child may have been forked anywhere in here,
 * and does again what it lacks. Where it has a hook it has the original, too:
 * the system copies the memory of a process before or after it makes a page
 * writable, not meanwhile.
 * @param was_loaded  Others may have looked its functions up.
 * @return Whether it is the one that is hooked. */
bool install(void *handle, bool was_loaded)
{
    const function_table hooked = hooks::all();
    std::array<rebinding, functions> all;
    unsigned known = 0;
    for (size_t i = 0; i < functions; ++i) {
        void *found = dlsym(handle, function_names[i]);
        if (found == nullptr) {
            ucs_debug("gaudi: the driver library has no %s: what the "
                      "application does with it is not seen",
                      function_names[i]);
            return false;
        }
        const bool is_hook = (found == hooked[i]);
        all[i] = {function_names[i], is_hook ? originals[i] : found, hooked[i]};
        known += (is_hook || (found == originals[i])) ? 1 : 0;
    }
    if (is_installed && !install_lock.was_abandoned()) {
        return known == functions;
    }
    if ((known == 0) && (originals[0] != nullptr)) {
        return false; /* another library */
    }
    for (size_t i = 0; i < functions; ++i) {
        originals[i] = const_cast<void *>(all[i].original);
    }
    if (!rebind_symbols(handle, all)) {
        ucs_diag("gaudi: what the application does with the driver library is "
                 "not seen: its symbols cannot be changed");
        return false;
    }
    sees_all     = !was_loaded || rebind_slots(library_name, all);
    is_installed = true;
    ucs_debug("gaudi: hooked the driver library");
    return true;
}

} // namespace

/* Hook the library that this module uses. */
void card_events::driver_loaded(shim::driver &driver)
{
    const std::lock_guard<util::child_mutex> guard(install_lock);
    if (!install(driver.handle(), driver.was_loaded())) {
        return;
    }
    for (size_t i = 0; i < functions; ++i) {
        driver.redirect(function_names[i], originals[i]);
    }
    application::expect_all(sees_all);
}

void card_events::look_for_driver()
{
    const std::lock_guard<util::child_mutex> guard(install_lock);
    if (is_installed && !install_lock.was_abandoned()) {
        return;
    }
    /* Stays in memory from now on, as its symbols are changed. */
    void *handle = util::open_loaded(library_name, RTLD_NODELETE);
    if (handle != nullptr) {
        (void)install(handle, true);
        dlclose(handle);
    }
}

} // namespace gaudi::base
