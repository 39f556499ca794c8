/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/uct/fixture.h"

#include "common/process_state.h"
#include "common/uct_config.h"
#include "common/vfs.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <dlfcn.h>
#include <poll.h>

extern "C" {
#include <config.h>
#include <ucm/event/event.h>
#include <ucs/debug/log.h>
#include <ucs/memory/memory_type.h>
}

namespace gaudi::test {

namespace {

void require(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        std::fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
        std::abort();
    }
}

} // namespace

void load_module()
{
    setenv("UCX_GAUDI_DRIVER", emulator_path().c_str(), 0);
    static void *module = dlopen(GAUDI_BUILD_DIR "/lib/libuct_hlthunk.so.0",
                                 RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) {
        std::fprintf(stderr, "%s\n", dlerror());
        std::abort();
    }
    start_framework();
}

void *public_function(const char *name)
{
    static void *module = dlopen(GAUDI_BUILD_DIR "/lib/libuct_hlthunk.so.0",
                                 RTLD_NOW | RTLD_NOLOAD);
    void *found         = dlsym(module, name);
    EXPECT_NE(nullptr, found) << name;
    return found;
}

child_options logging(child_environment settings)
{
    settings.emplace_back("UCX_LOG_FILE", "stderr");
    settings.emplace_back("UCX_HANDLE_ERRORS", "none");
    return {with_cards_of_ucx(std::move(settings)), -1};
}

uct_component_h find_component(const std::string &name)
{
    uct_component_h *components;
    unsigned count;
    uct_component_h found = nullptr;

    require(uct_query_components(&components, &count), "query_components");
    for (unsigned i = 0; i < count; ++i) {
        uct_component_attr_t attr;
        attr.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME |
                          UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
        require(uct_component_query(components[i], &attr), "component_query");
        if ((attr.name == name) && (attr.md_resource_count == 1)) {
            found = components[i];
        }
    }
    uct_release_component_list(components);
    return found;
}

ucs_status_t query(uct_component_h component)
{
    uct_component_attr_t attr{};
    attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
    return uct_component_query(component, &attr);
}

ucs_status_t open_md(uct_md_h &md, const variables &changes,
                     const std::string &name)
{
    uct_component_h component = find_component(name);
    if (component == nullptr) {
        return UCS_ERR_NO_DEVICE;
    }
    uct_md_config_t *config;
    require(uct_md_config_read(component, nullptr, nullptr, &config),
            "md_config_read");
    for (const auto &[variable, value] : changes) {
        require(modify_config(config, variable, value), "config_modify");
    }
    ucs_status_t status = uct_md_open(component, name.c_str(), config, &md);
    uct_config_release(config);
    return status;
}

opened_domain::opened_domain(const std::string &name, const variables &changes)
{
    load_module();
    require(open_md(md_, changes, name), name.c_str());
}

void opened_domain::close()
{
    if (md_ != nullptr) {
        uct_md_close(std::exchange(md_, nullptr));
    }
}

bool has_card(uct_md_h md)
{
    uct_tl_resource_desc_t *devices;
    unsigned count = 0;
    require(uct_md_query_tl_resources(md, &devices, &count),
            "query_tl_resources");
    const bool has =
        (count > 0) && (std::string(devices[0].dev_name) != "gaudi");
    uct_release_tl_resource_list(devices);
    return has;
}

void watch_no_memory()
{
    const auto ignore    = [](ucm_event_type_t, ucm_event_t *, void *) {};
    constexpr int events = UCM_EVENT_VM_UNMAPPED | UCM_EVENT_MEM_TYPE_FREE;
    require(ucm_set_event_handler(events, 0, ignore, nullptr),
            "ucm_set_event_handler");
    ucm_unset_event_handler(events, ignore, nullptr);
}

void drop_idle_registrations(uct_md_h md)
{
    ucm_event_t event{};
    event.vm_unmapped.address = nullptr;
    event.vm_unmapped.size    = size_t{1} << 56;
    ucm_event_enter();
    ucm_event_dispatch(UCM_EVENT_VM_UNMAPPED, &event);
    ucm_event_leave();
    /* A miss: it has UCX and the module do what they have put off. */
    char any;
    registration collect(md, &any, 1);
}

uint64_t cache_statistic(const std::string &name)
{
    const std::string path =
        "/uct/component/gaudi_copy/memory_domain/gaudi_copy/registrations/" +
        name;
    const auto value = vfs_number(path);
    require(value.has_value() ? UCS_OK : UCS_ERR_NO_ELEM, path.c_str());
    return *value;
}

counted_completion::counted_completion() : uct_completion_t()
{
    count  = 1;
    status = UCS_OK;
    func   = [](uct_completion_t *self) {
        ++static_cast<counted_completion *>(self)->calls;
    };
}

::testing::Matcher<child_result>
ended(int exit_code, const ::testing::Matcher<std::string> &error)
{
    return ::testing::AllOf(
        ::testing::Field("exit code", &child_result::exit_code, exit_code),
        ::testing::Field("stderr", &child_result::error, error));
}

::testing::AssertionResult ended_once(const counted_completion &completion,
                                      ucs_status_t with)
{
    if ((completion.calls == 1) && (completion.status == with)) {
        return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure()
           << "called " << completion.calls
           << " times: " << ucs_status_string(completion.status);
}

::testing::AssertionResult passes_forked(const std::function<void()> &body)
{
    let_threads_sleep();
    forked_process child([&] {
        body();
        return ::testing::Test::HasFailure() ? 1 : 0;
    });
    const int exit_code = child.wait().exit_code;
    return (exit_code == 0)
               ? ::testing::AssertionSuccess()
               : ::testing::AssertionFailure() << "exit code " << exit_code;
}

size_t packed_bytes::pack(void *to, void *packed)
{
    const auto *bytes = static_cast<packed_bytes *>(packed);
    std::memcpy(to, bytes->data, bytes->size);
    return bytes->size;
}

uct_unpack_callback_t unpack_by_memcpy()
{
    return reinterpret_cast<uct_unpack_callback_t>(
        reinterpret_cast<void *>(&std::memcpy));
}

ucs_status_t register_memory(uct_md_h md, const void *address, size_t size,
                             uct_mem_h &memh, unsigned flags)
{
    return uct_md_mem_reg(md, const_cast<void *>(address), size,
                          UCT_MD_MEM_ACCESS_ALL | flags, &memh);
}

pending_request::pending_request(std::function<ucs_status_t()> what)
    : uct_pending_req_t(), operation(std::move(what))
{
    func = [](uct_pending_req_t *self) {
        auto *request             = static_cast<pending_request *>(self);
        const ucs_status_t status = request->operation();
        request->done             = (status == UCS_OK);
        return status;
    };
}

std::vector<uct_pending_req_t *> purge_pending(uct_ep_h ep)
{
    std::vector<uct_pending_req_t *> purged;
    uct_ep_pending_purge(
        ep,
        [](uct_pending_req_t *self, void *all) {
            static_cast<std::vector<uct_pending_req_t *> *>(all)->push_back(
                self);
        },
        &purged);
    return purged;
}

ucs_memory_type_t allocated_type(uct_md_h md)
{
    uct_md_attr_t attr;
    require(uct_md_query(md, &attr), "md_query");
    return static_cast<ucs_memory_type_t>(
        __builtin_ctzl(attr.cap.alloc_mem_types));
}

uct_md_mem_attr_t query_memory(uct_md_h md, const void *address, size_t length)
{
    uct_md_mem_attr_t attr{};
    attr.field_mask =
        UCT_MD_MEM_ATTR_FIELD_MEM_TYPE | UCT_MD_MEM_ATTR_FIELD_SYS_DEV |
        UCT_MD_MEM_ATTR_FIELD_BASE_ADDRESS | UCT_MD_MEM_ATTR_FIELD_ALLOC_LENGTH;
    EXPECT_EQ(UCS_OK, uct_md_mem_query(md, address, length, &attr));
    return attr;
}

ucs_status_t allocate_memory(uct_md_h md, size_t size,
                             uct_allocated_memory_t &memory, unsigned flags,
                             void *wished)
{
    const uct_alloc_method_t method = UCT_ALLOC_METHOD_MD;
    uct_mem_alloc_params_t params{};
    params.field_mask =
        UCT_MEM_ALLOC_PARAM_FIELD_FLAGS | UCT_MEM_ALLOC_PARAM_FIELD_ADDRESS |
        UCT_MEM_ALLOC_PARAM_FIELD_MEM_TYPE | UCT_MEM_ALLOC_PARAM_FIELD_MDS;
    params.flags    = UCT_MD_MEM_ACCESS_ALL | flags;
    params.address  = wished;
    params.mem_type = allocated_type(md);
    params.mds      = {&md, 1};
    return uct_mem_alloc(size, &method, 1, &params, &memory);
}

device_buffer::device_buffer(uct_md_h md, size_t size, void *wished) : owner(md)
{
    uct_allocated_memory_t memory;
    require(allocate_memory(md, size, memory, 0, wished), "mem_alloc");
    address = memory.address;
    memh    = memory.memh;
}

device_buffer::~device_buffer()
{
    uct_allocated_memory_t memory{};
    memory.address = address;
    memory.method  = UCT_ALLOC_METHOD_MD;
    memory.md      = owner;
    memory.memh    = memh;
    require(uct_mem_free(&memory), "mem_free");
}

registration::registration(uct_md_h md, void *address, size_t size) : owner(md)
{
    require(register_memory(md, address, size, memh), "mem_reg");
}

registration::~registration()
{
    if (memh != nullptr) { /* else it was invalidated */
        require(uct_md_mem_dereg(owner, memh), "mem_dereg");
    }
}

ucs_status_t transport::open_interface(uct_md_h md, const settings &changes)
{
    uct_tl_resource_desc_t *tls;
    unsigned count;
    require(uct_md_query_tl_resources(md, &tls, &count), "tl_resources");

    uct_iface_config_t *config;
    require(
        uct_md_iface_config_read(md, tls[0].tl_name, nullptr, nullptr, &config),
        "iface_config_read");
    for (const auto &[name, value] : changes) {
        require(modify_config(config, name, value), "config_modify");
    }

    require(ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &async_),
            "async_context");
    require(uct_worker_create(async_, UCS_THREAD_MODE_SINGLE, &worker),
            "worker");
    uct_iface_params_t params{};
    params.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE |
                        UCT_IFACE_PARAM_FIELD_DEVICE |
                        UCT_IFACE_PARAM_FIELD_ERR_HANDLER |
                        UCT_IFACE_PARAM_FIELD_ERR_HANDLER_ARG;
    params.err_handler = [](void *arg, uct_ep_h failed, ucs_status_t status) {
        static_cast<transport *>(arg)->failures.emplace_back(failed, status);
        return UCS_OK;
    };
    params.err_handler_arg      = this;
    params.open_mode            = UCT_IFACE_OPEN_MODE_DEVICE;
    params.mode.device.tl_name  = tls[0].tl_name;
    params.mode.device.dev_name = tls[0].dev_name;
    ucs_status_t status = uct_iface_open(md, worker, &params, config, &iface);
    uct_config_release(config);
    uct_release_tl_resource_list(tls);
    return status;
}

transport::transport(uct_md_h md, const settings &changes)
{
    require(open_interface(md, changes), "iface_open");
    require(uct_iface_query(iface, &attr), "iface_query");
    uct_iface_progress_enable(iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    ep = make_ep();
    require((ep != nullptr) ? UCS_OK : UCS_ERR_UNREACHABLE, "ep_create");
}

ucs_status_t transport::try_open(uct_md_h md, const settings &changes)
{
    transport attempt;
    return attempt.open_interface(md, changes);
}

transport::~transport()
{
    if (ep != nullptr) {
        uct_ep_destroy(ep);
    }
    if (iface != nullptr) {
        uct_iface_close(iface);
    }
    uct_worker_destroy(worker);
    ucs_async_context_destroy(async_);
}

interface_address transport::address() const
{
    interface_address own;
    own.device.resize(attr.device_addr_len);
    own.iface.resize(attr.iface_addr_len);
    require(
        uct_iface_get_device_address(
            iface, reinterpret_cast<uct_device_addr_t *>(own.device.data())),
        "device_address");
    require(uct_iface_get_address(
                iface, reinterpret_cast<uct_iface_addr_t *>(own.iface.data())),
            "iface_address");
    return own;
}

uct_ep_h transport::make_ep(const interface_address &to) const
{
    uct_ep_params_t params{};
    params.field_mask = UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR |
                        UCT_EP_PARAM_FIELD_IFACE_ADDR;
    params.iface = iface;
    params.dev_addr =
        reinterpret_cast<const uct_device_addr_t *>(to.device.data());
    params.iface_addr =
        reinterpret_cast<const uct_iface_addr_t *>(to.iface.data());
    uct_ep_h made;
    return (uct_ep_create(&params, &made) == UCS_OK) ? made : nullptr;
}

void transport::flush()
{
    while (uct_iface_flush(iface, 0, nullptr) == UCS_INPROGRESS) {
        progress();
    }
}

void transport::progress_much()
{
    for (unsigned i = 0; i < 1000; ++i) {
        progress();
    }
}

bool transport::progress_or_sleep()
{
    if (progress() > 0) {
        return true;
    }
    if (const ucs_status_t status = arm(); status != UCS_OK) {
        EXPECT_EQ(UCS_ERR_BUSY, status);
        return true;
    }
    pollfd wanted{-1, POLLIN, 0};
    require(uct_iface_event_fd_get(iface, &wanted.fd), "event_fd");
    return poll(&wanted, 1, 10000) == 1;
}

bool transport::sleep_until(const std::function<bool()> &condition)
{
    bool is_awake = true;
    while (is_awake && !condition()) {
        is_awake = progress_or_sleep();
    }
    return is_awake;
}

bool transport::progress_until(const std::function<bool()> &condition)
{
    return eventually([&] {
        progress();
        return condition();
    });
}

/* There are no resources while ports connect, where there is no other way, nor
 * for short operations while the peer is busy. */
template <typename Call>
static ucs_status_t retry(uct_ep_h ep, Call &&call)
{
    ucs_status_t status = UCS_ERR_NO_RESOURCE;
    (void)eventually([&] {
        status = call();
        if (status == UCS_ERR_NO_RESOURCE) {
            uct_iface_progress(ep->iface);
        }
        return status != UCS_ERR_NO_RESOURCE;
    });
    return status;
}

ucs_status_t endpoint::put_short(const void *local, size_t size,
                                 uint64_t remote) const
{
    return retry(ep, [&] {
        return uct_ep_put_short(ep, local, static_cast<unsigned>(size), remote,
                                rkey);
    });
}

ucs_status_t endpoint::get_short(void *local, size_t size,
                                 uint64_t remote) const
{
    return retry(ep, [&] {
        return uct_ep_get_short(ep, local, static_cast<unsigned>(size), remote,
                                rkey);
    });
}

ssize_t endpoint::put_bcopy(const void *local, size_t size,
                            uint64_t remote) const
{
    packed_bytes bytes{local, size};
    return uct_ep_put_bcopy(ep, packed_bytes::pack, &bytes, remote, rkey);
}

ucs_status_t endpoint::try_put_zcopy(void *local, size_t size, uint64_t remote,
                                     uct_completion_t *completion,
                                     uct_mem_h memh) const
{
    const uct_iov_t iov{local, size, memh, 0, 1};
    return uct_ep_put_zcopy(ep, &iov, 1, remote, rkey, completion);
}

ucs_status_t endpoint::put_zcopy(void *local, size_t size, uint64_t remote,
                                 uct_completion_t *completion,
                                 uct_mem_h memh) const
{
    return retry(ep, [&] {
        return try_put_zcopy(local, size, remote, completion, memh);
    });
}

ucs_status_t endpoint::get_zcopy(void *local, size_t size, uint64_t remote,
                                 uct_completion_t *completion) const
{
    const uct_iov_t iov{local, size, UCT_MEM_HANDLE_NULL, 0, 1};
    return retry(ep, [&] {
        return uct_ep_get_zcopy(ep, &iov, 1, remote, rkey, completion);
    });
}

namespace {

/* A test that could not go on would wait for what does not come. */
void require_begun(ucs_status_t status, const std::source_location &test)
{
    if (status != UCS_INPROGRESS) {
        std::fprintf(stderr, "%s:%u: zcopy: %s\n", test.file_name(),
                     test.line(), ucs_status_string(status));
        std::abort();
    }
}

} // namespace

void endpoint::start_put(void *local, size_t size, uint64_t remote,
                         uct_completion_t *completion, const caller &test) const
{
    require_begun(put_zcopy(local, size, remote, completion), test);
}

void endpoint::start_get(void *local, size_t size, uint64_t remote,
                         uct_completion_t *completion, const caller &test) const
{
    require_begun(get_zcopy(local, size, remote, completion), test);
}

void transport::put(void *local, size_t size, uint64_t remote,
                    const caller &test)
{
    counted_completion done;
    start_put(local, size, remote, &done, test);
    finish(done, test);
}

void transport::get(void *local, size_t size, uint64_t remote,
                    const caller &test)
{
    counted_completion done;
    start_get(local, size, remote, &done, test);
    finish(done, test);
}

void transport::finish(const counted_completion &done, const caller &test)
{
    flush();
    const auto good = ended_once(done);
    if (!good) {
        ADD_FAILURE_AT(test.file_name(), static_cast<int>(test.line()))
            << good.message();
    }
}

void transport::read_device(void *local, uint64_t remote, size_t size)
{
    auto *to = static_cast<char *>(local);
    for (size_t done = 0; done < size;) {
        const size_t bytes = std::min<size_t>(size - done, 1u << 30);
        require(uct_ep_get_short(ep, to + done, static_cast<unsigned>(bytes),
                                 remote + done, UCT_INVALID_RKEY),
                "get_short");
        done += bytes;
    }
}

::testing::AssertionResult transport::holds(uint64_t remote, size_t size,
                                            uint64_t seed, uint64_t position)
{
    std::vector<char> seen(size);
    read_device(seen.data(), remote, size);
    return has_pattern(seen.data(), size, seed, position);
}

namespace {

/* The compute node of a card that the module opened, of any or of one.
 * @return -1: it is not open. */
int look_for_compute_fd(const char *card = nullptr)
{
    hlthunk_emu_counters counters;
    for (int fd = 0; fd < 1024; ++fd) {
        char id[13] = {};
        if ((emulator::instance().hlthunk_emu_get_counters(fd, &counters) ==
             0) &&
            ((card == nullptr) ||
             ((hl().hlthunk_get_pci_bus_id_from_fd(fd, id, sizeof(id)) == 0) &&
              (std::strcmp(id, card) == 0)))) {
            return fd;
        }
    }
    return -1;
}

int find_compute_fd()
{
    const int fd = look_for_compute_fd();
    if (fd < 0) {
        std::fprintf(stderr, "no card is open\n");
        std::abort();
    }
    return fd;
}

} // namespace

hlthunk_emu_counters engine_hooks::counters()
{
    hlthunk_emu_counters counters;
    emulator::instance().hlthunk_emu_get_counters(find_compute_fd(), &counters);
    if (has_framework()) { /* all memory of its card */
        --counters.allocations;
        --counters.mappings;
    }
    return counters;
}

hlthunk_emu_counters engine_hooks::counters_of(unsigned card)
{
    hlthunk_emu_counters counters{};
    emulator::instance().hlthunk_emu_get_counters(
        look_for_compute_fd(bus_id(card).c_str()), &counters);
    return counters;
}

shim::card_ports engine_hooks::place()
{
    hlthunk_hw_ip_info info{};
    EXPECT_EQ(0, hl().hlthunk_get_hw_ip_info(find_compute_fd(), &info));
    return shim::find_ports(info);
}

void engine_hooks::pause(bool paused)
{
    emulator::instance().hlthunk_emu_pause(find_compute_fd(), paused);
}

bool engine_hooks::any_card()
{
    return look_for_compute_fd() >= 0;
}

checked_log::checked_log(const child_environment &settings)
{
    for (const auto &[name, value] : settings) {
        setenv(name.c_str(), value.c_str(), 1);
    }
    load_module();
    collect_logs();
    (void)take_logs();
}

checked_log::~checked_log()
{
    EXPECT_THAT(take_logs(), ::testing::IsEmpty());
}

uct::uct()
{
    require(open_md(md), "md_open");
    tl = std::make_unique<transport>(md);
}

uct::~uct()
{
    tl.reset();
    if (md != nullptr) {
        drop_idle_registrations(md);
        /* The module's own thread may be unmapping. */
        EXPECT_TRUE(eventually([] {
            return engine_hooks::counters().mappings == 0;
        })) << "mappings leaked";
        EXPECT_EQ(0u, engine_hooks::counters().allocations)
            << "device memory leaked";
        uct_md_close(md);
    }
}

void uct::expect_log(const std::string &text)
{
    EXPECT_THAT(take_logs(),
                ::testing::ElementsAre(::testing::HasSubstr(text)));
}

void uct::reopen_md(const variables &changes)
{
    tl.reset();
    uct_md_close(md);
    md = nullptr;
    ASSERT_EQ(UCS_OK, open_md(md, changes));
    tl = std::make_unique<transport>(md);
}

void uct::reopen(const transport::settings &changes)
{
    tl.reset();
    tl = std::make_unique<transport>(md, changes);
}

} // namespace gaudi::test
