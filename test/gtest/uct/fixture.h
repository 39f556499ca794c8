/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The module, loaded into the test process as LD_PRELOAD does it, and a
 * transport opened on it.
 *
 * Every test fails on a warning or error of UCX that it did not announce.
 */
#pragma once

#include "common/child.h"
#include "common/emulator.h"
#include "common/framework.h"
#include "common/host_memory.h"
#include "common/needs.h"
#include "common/ucx_logs.h"
#include "hlthunk_shim/ports/links.h"
#include "program/ucx_gaudi.h"

#include <gmock/gmock.h>

#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

extern "C" {
#include <uct/api/uct.h>
#include <uct/api/v2/uct_v2.h>
}

namespace gaudi::test {

/** Load the module into this process, once. */
void load_module();

/** A function of ucx_gaudi.h as GAUDI_CALL has it, of the loader as
 * load_module() has opened it. */
void *public_function(const char *name);

/** One of the components; nullptr when it has no memory domain. */
uct_component_h find_component(const std::string &name = "gaudi_copy");

/** Names without UCX_GAUDI_COPY_, and values. */
using variables = std::vector<std::pair<std::string, std::string>>;

/** What a component says of its memory domains. */
ucs_status_t query(uct_component_h component);

/** Open the memory domain of a component. */
ucs_status_t open_md(uct_md_h &md, const variables &changes = {},
                     const std::string &name = "gaudi_copy");

/** Loads the module and collects what it logs: what a test leaves of that at
 * the end of the scope fails it. */
struct checked_log {
    /** @param settings  Of this process, before the module is loaded. */
    explicit checked_log(const child_environment &settings = {});
    ~checked_log();
    checked_log(const checked_log &)            = delete;
    checked_log &operator=(const checked_log &) = delete;
};

/** An open memory domain, closed with its scope; loads the module. */
class opened_domain {
public:
    explicit opened_domain(const std::string &name  = "gaudi_copy",
                           const variables &changes = {});
    ~opened_domain() { close(); }
    opened_domain(const opened_domain &)            = delete;
    opened_domain &operator=(const opened_domain &) = delete;

    operator uct_md_h() const { return md_; }
    void close();

private:
    uct_md_h md_ = nullptr;
};

/** A child in which UCX itself opens cards, and logs to stderr. */
child_options logging(child_environment settings);

/** Whether gaudi_copy's memory domain has a card: it is there without, too. */
bool has_card(uct_md_h md);

/** Have UCX load and patch what it does before it first watches memory. */
void watch_no_memory();

/** Tell UCX that all host memory has been unmapped, so that no registration
 *  stays mapped that is not in use. */
void drop_idle_registrations(uct_md_h md);

/** A number of the registration cache, from UCX's VFS: "host/hits". */
uint64_t cache_statistic(const std::string &name);

/** The memory type that a domain allocates. */
ucs_memory_type_t allocated_type(uct_md_h md);

/** What a memory domain knows about memory: its type, its device, and the
 *  allocation that it is in. */
uct_md_mem_attr_t query_memory(uct_md_h md, const void *address, size_t length);

/** A completion that counts its calls. */
struct counted_completion : uct_completion_t {
    counted_completion();
    unsigned calls = 0;
};

/** A child that has ended so, and what it wrote to stderr. */
::testing::Matcher<child_result>
ended(int exit_code, const ::testing::Matcher<std::string> &error);

/** Whether a completion has been called once, with a status. */
::testing::AssertionResult ended_once(const counted_completion &completion,
                                      ucs_status_t with = UCS_OK);

/** Whether a forked child ends well, in which a body found nothing. */
::testing::AssertionResult passes_forked(const std::function<void()> &body);

/** Bytes to be packed: the argument of @ref pack. */
struct packed_bytes {
    const void *data;
    size_t size;

    static size_t pack(void *to, void *packed_bytes);
};

/** What UCP has a get unpack with: it must be known for what it is. */
uct_unpack_callback_t unpack_by_memcpy();

/** What uct_md_mem_reg says, with access of all kinds. */
ucs_status_t register_memory(uct_md_h md, const void *address, size_t size,
                             uct_mem_h &memh, unsigned flags = 0);

/** A request that waits at an endpoint for its turn. */
struct pending_request : uct_pending_req_t {
    /** @param what  Done when it is its turn, again and again until it returns
     *  something else than UCS_ERR_NO_RESOURCE. */
    explicit pending_request(std::function<ucs_status_t()> what);

    std::function<ucs_status_t()> operation;
    bool done = false; /**< with UCS_OK */
};

/** Take back what waits at an endpoint. */
std::vector<uct_pending_req_t *> purge_pending(uct_ep_h ep);

/** Device addresses that the cards of a process allocate from. */
inline constexpr size_t window_bytes = size_t{1} << 41;
inline void *window_of_card(unsigned card)
{
    return reinterpret_cast<void *>(0x1001001800000000 + card * window_bytes);
}

/** Ask a memory domain for memory of a card.
 *  @param wished  Where; nullptr: anywhere. */
ucs_status_t allocate_memory(uct_md_h md, size_t size,
                             uct_allocated_memory_t &memory, unsigned flags = 0,
                             void *wished = nullptr);

/** Memory of the card. */
struct device_buffer {
    /** @param wished  Where; nullptr: anywhere. */
    device_buffer(uct_md_h md, size_t size, void *wished = nullptr);
    ~device_buffer();
    device_buffer(const device_buffer &)            = delete;
    device_buffer &operator=(const device_buffer &) = delete;

    [[nodiscard]] char *data() const { return static_cast<char *>(address); }
    [[nodiscard]] uint64_t remote(size_t offset = 0) const
    {
        return reinterpret_cast<uintptr_t>(address) + offset;
    }

    uct_md_h owner;
    void *address  = nullptr;
    uct_mem_h memh = nullptr;
};

/** A registration that ends with its scope. */
struct registration {
    registration(uct_md_h md, void *address, size_t size);
    ~registration();
    registration(const registration &)            = delete;
    registration &operator=(const registration &) = delete;

    uct_md_h owner;
    uct_mem_h memh = nullptr;
};

/** An endpoint, and the key of the memory behind it if that needs one. */
struct endpoint {
    /** Done when they return. These and zero copies are repeated while ports,
     *  where there is no other way, connect. */
    ucs_status_t put_short(const void *local, size_t size,
                           uint64_t remote) const;
    ucs_status_t get_short(void *local, size_t size, uint64_t remote) const;

    /** The call's answer. */
    ssize_t put_bcopy(const void *local, size_t size, uint64_t remote) const;

    /** Put or get with zero copy; the status of the call. */
    ucs_status_t put_zcopy(void *local, size_t size, uint64_t remote,
                           uct_completion_t *completion,
                           uct_mem_h memh = nullptr) const;
    ucs_status_t get_zcopy(void *local, size_t size, uint64_t remote,
                           uct_completion_t *completion) const;

    /** The call's answer, also where there are no resources. */
    ucs_status_t try_put_zcopy(void *local, size_t size, uint64_t remote,
                               uct_completion_t *completion,
                               uct_mem_h memh = nullptr) const;

    /** Put or get, which has to be under way when the call returns. */
    using caller = std::source_location;
    void start_put(void *local, size_t size, uint64_t remote,
                   uct_completion_t *completion = nullptr,
                   const caller &test           = caller::current()) const;
    void start_get(void *local, size_t size, uint64_t remote,
                   uct_completion_t *completion = nullptr,
                   const caller &test           = caller::current()) const;

    uct_ep_h ep     = nullptr;
    uct_rkey_t rkey = UCT_INVALID_RKEY;
};

/** Where an interface is. */
struct interface_address {
    std::vector<char> device;
    std::vector<char> iface;
};

/** An open interface with an endpoint to itself. */
class transport : public endpoint {
public:
    using settings = variables;

    /** @param changes  Values of its variables, named without UCX_GAUDI_COPY_
     * or UCX_GAUDI_IPC_. */
    explicit transport(uct_md_h md, const settings &changes = {});

    /** Open an interface with settings, and close it again. */
    static ucs_status_t try_open(uct_md_h md, const settings &changes);
    ~transport();
    transport(const transport &)            = delete;
    transport &operator=(const transport &) = delete;

    [[nodiscard]] interface_address address() const;

    /** Connect. @return nullptr when that fails. */
    [[nodiscard]] uct_ep_h make_ep(const interface_address &to) const;
    [[nodiscard]] uct_ep_h make_ep() const { return make_ep(address()); }

    unsigned progress() { return uct_worker_progress(worker); }

    /** Give the library every chance to complete something. */
    void progress_much();

    /** Progress until something is so. @return false when it does not come. */
    bool progress_until(const std::function<bool()> &condition);

    /** Progress until a flush of the interface is done. */
    void flush();

    [[nodiscard]] ucs_status_t arm(unsigned events = UCT_EVENT_SEND_COMP |
                                                     UCT_EVENT_RECV) const
    {
        return uct_iface_event_arm(iface, events);
    }

    /** What a program does that has nothing else to do. @return false when it
     *  would sleep for good. */
    bool progress_or_sleep();

    /** The same until something is so. */
    bool sleep_until(const std::function<bool()> &condition);

    /** Put or get to its end, which has to be a good one. */
    void put(void *local, size_t size, uint64_t remote,
             const caller &test = caller::current());
    void get(void *local, size_t size, uint64_t remote,
             const caller &test = caller::current());

    /** Read device memory for a check, by another path than the test's. */
    void read_device(void *local, uint64_t remote, size_t size);

    /** Whether device memory holds a pattern, see has_pattern. */
    ::testing::AssertionResult holds(uint64_t remote, size_t size,
                                     uint64_t seed, uint64_t position = 0);

    uct_iface_attr_t attr{};
    uct_worker_h worker = nullptr;
    uct_iface_h iface   = nullptr;

    /** Endpoints that UCX would have been told of, and why they failed. */
    std::vector<std::pair<uct_ep_h, ucs_status_t>> failures;

private:
    transport() = default;
    ucs_status_t open_interface(uct_md_h md, const settings &changes);
    void finish(const counted_completion &done, const caller &test);

    ucs_async_context_t *async_ = nullptr;
};

/** The engine of the card that this process has open. */
class engine_hooks {
public:
    /** Totals since the card was opened. */
    static hlthunk_emu_counters counters();
    /** The same of one of several cards. */
    static hlthunk_emu_counters counters_of(unsigned card);
    static void pause(bool paused);
    /** Where the card is in its box. */
    static shim::card_ports place();
    /** Whether this process has a card open. */
    static bool any_card();
};

/** Tests of an opened memory domain and transport. What a derived class has of
 *  them as members goes before they are closed. */
class uct : public ::testing::Test {
protected:
    uct();
    ~uct() override;

    /** Open the memory domain anew. */
    void reopen_md(const variables &changes);

    /** The memory type that gaudi_copy allocates. */
    [[nodiscard]] ucs_memory_type_t gaudi_type() const
    {
        return allocated_type(md);
    }

    /** Demand that exactly one line was logged, with this in it, and forget it.
     */
    void expect_log(const std::string &text);

    /** Open the transport with other settings. */
    void reopen(const transport::settings &changes);

    checked_log log;
    uct_md_h md = nullptr;
    std::unique_ptr<transport> tl;
};

} // namespace gaudi::test

/** A function of ucx_gaudi.h: GAUDI_CALL(ucx_gaudi_close)(). */
#define GAUDI_CALL(_name)                                                      \
    reinterpret_cast<decltype(_name) *>(gaudi::test::public_function(#_name))

/* The options of the process stand behind the names, if there are any. */
#define GAUDI_TEST_IN_CHILD(_test, _suite, _name, _error, ...)                 \
    static void _suite##_##_name##_body();                                     \
    GAUDI_CHILD(_suite##_##_name)                                              \
    {                                                                          \
        _suite##_##_name##_body();                                             \
        return 0;                                                              \
    }                                                                          \
    _test(_suite, _name)                                                       \
    {                                                                          \
        const gaudi::test::child_result child = gaudi::test::run_child(        \
            #_suite "_" #_name __VA_OPT__(, ) __VA_ARGS__);                    \
        if (!gaudi::test::skips_like(child)) {                                 \
            EXPECT_THAT(child, gaudi::test::ended(0, _error));                 \
        }                                                                      \
    }                                                                          \
    static void _suite##_##_name##_body()

/** A test whose body is run by a process of its own. */
#define TEST_IN_CHILD(_suite, _name, ...)                                      \
    GAUDI_TEST_IN_CHILD(TEST, _suite, _name,                                   \
                        ::testing::_ __VA_OPT__(, ) __VA_ARGS__)

/** The same of a suite with parameters. */
#define TEST_P_IN_CHILD(_suite, _name, ...)                                    \
    GAUDI_TEST_IN_CHILD(TEST_P, _suite, _name,                                 \
                        ::testing::_ __VA_OPT__(, ) __VA_ARGS__)

/** The same with what the process shall write to stderr, a matcher. */
#define TEST_IN_CHILD_SAYING(_suite, _name, _error, ...)                       \
    GAUDI_TEST_IN_CHILD(TEST, _suite, _name, _error __VA_OPT__(, ) __VA_ARGS__)
