/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of another process by handles of ucx_gaudi.h, over each route. In
 * children: routes are read once per process. */
#include "common/ability.h"
#include "common/namespaces.h"
#include "gtest/uct/fixture.h"

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <thread>

#include <signal.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using handle = ucx_gaudi_ipc_handle_t;

constexpr size_t large = (3 << 20) + 5;

/* Bytes around what is exported. */
constexpr size_t margin = 100;

std::string to_text(const handle &of)
{
    std::ostringstream text;
    for (const unsigned byte : of.bytes) {
        text << byte << ' ';
    }
    return text.str();
}

handle from_text(const std::string &text)
{
    std::istringstream bytes(text);
    handle of{};
    for (unsigned char &each : of.bytes) {
        unsigned byte = 256;
        bytes >> byte;
        EXPECT_LT(byte, 256u) << text;
        each = static_cast<unsigned char>(byte);
    }
    return of;
}

char *allocate(bool is_device, size_t length)
{
    void *address = nullptr;
    if (!is_device) {
        return new char[length];
    }
    EXPECT_EQ(UCS_OK,
              GAUDI_CALL(ucx_gaudi_mem_alloc)(length, nullptr, &address));
    return static_cast<char *>(address);
}

void release(bool is_device, char *address)
{
    if (is_device) {
        EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_mem_free)(address));
    } else {
        delete[] address;
    }
}

ucs_status_t copy(void *dst, const void *src, size_t length)
{
    return GAUDI_CALL(ucx_gaudi_mem_copy)(dst, src, length);
}

/* Memory whose first bytes have a pattern. */
void write_pattern(char *address, size_t length, unsigned seed)
{
    std::vector<char> bytes(length);
    fill_pattern(bytes.data(), length, seed);
    EXPECT_EQ(UCS_OK, copy(address, bytes.data(), length));
}

bool has_bytes(const char *address, size_t length, unsigned seed)
{
    std::vector<char> bytes(length);
    EXPECT_EQ(UCS_OK, copy(bytes.data(), address, length));
    return has_pattern(bytes.data(), length, seed);
}

bool is_zero(const char *address, size_t length)
{
    std::vector<char> bytes(length, 'x');
    EXPECT_EQ(UCS_OK, copy(bytes.data(), address, length));
    return all_bytes_are(bytes.data(), length, '\0');
}

} // namespace

/* Has one range of memory at a time, and does what it is told. */
GAUDI_CHILD(has_memory_for_handles)
{
    load_module();
    bool is_device = false;
    size_t length  = 0;
    char *all      = nullptr;
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string what;
        unsigned seed = 0;
        words >> what;
        char *const exported = all + margin;
        if (what == "export") {
            words >> is_device >> length >> seed;
            all = allocate(is_device, length + 2 * margin);
            const std::vector<char> zeros(length + 2 * margin);
            EXPECT_EQ(UCS_OK, copy(all, zeros.data(), zeros.size()));
            write_pattern(all + margin, length, seed);
            handle of;
            EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_ipc_export)(all + margin,
                                                               length, &of));
            tell_parent(to_text(of));
        } else if (what == "has") {
            words >> seed;
            tell_parent((has_bytes(exported, length, seed) &&
                         is_zero(all, margin) &&
                         is_zero(exported + length, margin))
                            ? "yes"
                            : "no");
        } else if (what == "withdraw") {
            tell_parent(std::to_string(
                GAUDI_CALL(ucx_gaudi_ipc_withdraw)(exported, length)));
        } else if (what == "free") {
            release(is_device, all);
            tell_parent("freed");
        } else if (what == "close") {
            tell_parent(std::to_string(GAUDI_CALL(ucx_gaudi_close)()));
        }
    }
    return 0;
}

namespace {

/* Such a process. */
class owner {
public:
    explicit owner(const child_options &options = {})
        : process("has_memory_for_handles", options)
    {}
    ~owner()
    {
        if (lives) {
            process.kill(SIGKILL);
        }
    }
    owner(const owner &)            = delete;
    owner &operator=(const owner &) = delete;

    handle export_bytes(bool is_device, size_t length, unsigned seed)
    {
        return from_text(ask("export " + std::to_string(is_device) + " " +
                             std::to_string(length) + " " +
                             std::to_string(seed)));
    }
    bool has(unsigned seed)
    {
        return ask("has " + std::to_string(seed)) == "yes";
    }
    std::string ask(const std::string &what)
    {
        process.write_line(what);
        return process.read_line();
    }
    void end()
    {
        process.kill(SIGKILL);
        EXPECT_EQ(SIGKILL, process.wait().signal);
        lives = false;
    }

    child_process process;
    bool lives = true;
};

/* What a handle stands for, until the end of the scope. */
struct opened {
    explicit opened(const handle &of)
    {
        void *address = nullptr;
        EXPECT_EQ(UCS_OK,
                  GAUDI_CALL(ucx_gaudi_ipc_open)(&of, &address, &length));
        start = static_cast<char *>(address);
    }
    ~opened() { EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_ipc_close)(start)); }
    opened(const opened &)            = delete;
    opened &operator=(const opened &) = delete;

    char *start   = nullptr;
    size_t length = 0;
};

/* Memory of this process. */
struct local {
    local(bool in_card, size_t length)
        : is_device(in_card), start(allocate(in_card, length))
    {}
    ~local() { release(is_device, start); }
    local(const local &)            = delete;
    local &operator=(const local &) = delete;

    const bool is_device;
    char *const start;
};

ucs_status_t open_status(const handle &of)
{
    void *address = nullptr;
    return GAUDI_CALL(ucx_gaudi_ipc_open)(&of, &address, nullptr);
}

void expect_log(const std::string &text, int line = __builtin_LINE())
{
    SCOPED_TRACE("line " + std::to_string(line));
    EXPECT_THAT(take_logs(), ElementsAre(HasSubstr(text)));
}

const child_options over_host{{{"UCX_GAUDI_IPC_ROUTES", "host"}}};
const child_options over_ports{
    {{"UCX_GAUDI_IPC_ROUTES", "ports,host"}, {"HLTHUNK_EMU_PORTS", "y"}}};

/* Over ports, or over host memory, also as two pods. */
class program_ipc_between : public ::testing::TestWithParam<const char *> {
protected:
    void SetUp() override
    {
        if (are_pods()) {
            GAUDI_SKIP_IF(why_no_namespaces(pod_namespaces));
        }
    }

    static bool are_pods() { return GetParam() == std::string("pods"); }
    static child_options options()
    {
        return are_pods()                             ? as_pods(over_host)
               : (GetParam() == std::string("ports")) ? over_ports
                                                      : over_host;
    }
};

} // namespace

INSTANTIATE_TEST_SUITE_P(over, program_ipc_between,
                         ::testing::Values("ports", "host", "pods"),
                         [](const auto &of) { return std::string(of.param); });

TEST_P_IN_CHILD(program_ipc_between,
                pushes_and_pulls_between_all_kinds_of_memory, options())
{
    const checked_log log;
    owner other;
    unsigned seed = 1;
    for (const bool there : {false, true}) {
        for (const bool here : {false, true}) {
            for (const size_t length : {size_t{1}, size_t{4097}, large}) {
                SCOPED_TRACE(::testing::Message()
                             << there << here << " " << length);
                const handle of = other.export_bytes(there, length, ++seed);
                {
                    const opened remote(of);
                    const local own(here, length);
                    EXPECT_EQ(length, remote.length);
                    EXPECT_EQ(UCS_OK, copy(own.start, remote.start, length));
                    EXPECT_TRUE(has_bytes(own.start, length, seed));
                    write_pattern(own.start, length, ++seed);
                    EXPECT_EQ(UCS_OK, copy(remote.start, own.start, length));
                    EXPECT_TRUE(other.has(seed));
                }
                EXPECT_EQ("0", other.ask("withdraw"));
                other.ask("free");
            }
        }
    }
    EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_close)());
}

TEST_P_IN_CHILD(program_ipc_between, copies_parts_in_streams, options())
{
    constexpr size_t part = 70001;
    const checked_log log;
    owner other;
    const handle of = other.export_bytes(true, 3 * part, 5);
    std::vector<char> host(3 * part);
    ucx_gaudi_stream_h stream = nullptr;
    ASSERT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_stream_create)(&stream));
    for (const unsigned seed : {6u, 7u}) {
        const opened remote(of);
        fill_pattern(host.data(), host.size(), seed);
        for (const size_t at : {2 * part, size_t{0}, part}) {
            EXPECT_EQ(UCS_OK,
                      GAUDI_CALL(ucx_gaudi_mem_copy_async)(
                          remote.start + at, host.data() + at, part, stream));
        }
        EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_stream_synchronize)(stream));
        EXPECT_TRUE(other.has(seed));
        if (seed == 6) { /* by the card, the second time */
            EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_host_register)(host.data(),
                                                                  host.size()));
        }
    }
    EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_stream_destroy)(stream));
    EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_host_unregister)(host.data()));
}

TEST_P_IN_CHILD(program_ipc_between,
                fails_when_the_memory_or_its_process_has_gone, options())
{
    const checked_log log;
    owner other;
    char byte = 0;
    for (const bool is_device : {false, true}) {
        const handle of = other.export_bytes(is_device, large, 1);
        const opened before(of);
        EXPECT_EQ(UCS_OK, copy(&byte, before.start, 1));
        EXPECT_EQ("0", other.ask("withdraw"));
        EXPECT_EQ(UCS_ERR_CONNECTION_RESET, copy(&byte, before.start, 1));
        (void)take_logs();
        EXPECT_EQ(UCS_ERR_CONNECTION_RESET, open_status(of));
        expect_log("does not share the memory any more");
        other.ask("free");
    }
    const handle freed = other.export_bytes(true, large, 1);
    const opened before(freed);
    EXPECT_EQ(UCS_OK, copy(&byte, before.start, 1));
    other.ask("free");
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, copy(&byte, before.start, 1));
    (void)take_logs();
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, open_status(freed));
    expect_log("cannot be opened");

    const handle left = other.export_bytes(true, large, 1);
    const opened until_its_end(left);
    other.end();
    ucs_status_t status = UCS_OK;
    while (status == UCS_OK) { /* until the end of the process is seen */
        status = copy(&byte, until_its_end.start, 1);
    }
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, status);
    (void)take_logs();
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, open_status(left));
    expect_log("has ended");

    /* And others are as good as before. */
    owner next;
    const opened fresh(next.export_bytes(true, large, 8));
    std::vector<char> seen(large);
    EXPECT_EQ(UCS_OK, copy(seen.data(), fresh.start, large));
    EXPECT_TRUE(has_pattern(seen.data(), large, 8));
}

/* Each process may have the same card alone, and the other one was first. */
TEST_IN_CHILD(program_ipc, needs_no_card_here,
              {{{"UCX_GAUDI_DEVICES", "gaudi0"}}})
{
    GAUDI_NEEDS(no_card);
    const checked_log log;
    owner other;
    const handle of = other.export_bytes(true, large, 3);
    const opened remote(of);
    std::vector<char> seen(large);
    EXPECT_EQ(UCS_OK, copy(seen.data(), remote.start, large));
    EXPECT_TRUE(has_pattern(seen.data(), large, 3));
    fill_pattern(seen.data(), large, 4);
    EXPECT_EQ(UCS_OK, copy(remote.start, seen.data(), large));
    EXPECT_TRUE(other.has(4));
    EXPECT_FALSE(engine_hooks::any_card());
    expect_log("0 of 1 cards are free");
}

TEST_IN_CHILD(program_ipc, gives_addresses_for_copies_alone)
{
    const checked_log log;
    owner other;
    char bytes[100] = "";
    char *closed    = nullptr;
    {
        const opened remote(other.export_bytes(true, 100, 3));
        const opened again(other.export_bytes(true, 100, 3));
        closed = remote.start;
        ucx_gaudi_mem_attr_t attr{};
        attr.field_mask = UINT64_MAX;
        EXPECT_EQ(UCS_OK,
                  GAUDI_CALL(ucx_gaudi_mem_query)(remote.start + 9, 91, &attr));
        EXPECT_EQ(remote.start, attr.base);
        EXPECT_EQ(100u, attr.length);
        EXPECT_STREQ("", attr.card);
        EXPECT_EQ(1, attr.imported);
        EXPECT_EQ(UCS_ERR_INVALID_ADDR,
                  GAUDI_CALL(ucx_gaudi_mem_query)(remote.start, 101, &attr));
        EXPECT_EQ(UCS_ERR_INVALID_ADDR, copy(bytes, remote.start + 1, 100));
        expect_log("100 bytes at");
        EXPECT_EQ(UCS_ERR_INVALID_ADDR, copy(remote.start - 1, bytes, 2));
        expect_log("2 bytes at");
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, copy(remote.start, again.start, 100));
        expect_log("cannot copy between two other processes");
        EXPECT_EQ(UCS_ERR_INVALID_ADDR,
                  GAUDI_CALL(ucx_gaudi_mem_fill)(remote.start, 100, "", 1));
        expect_log("100 bytes at");
        EXPECT_TRUE(other.has(3));
        EXPECT_EQ(UCS_ERR_BUSY, GAUDI_CALL(ucx_gaudi_close)());
        expect_log("2 imports");
        EXPECT_TRUE(passes_forked([&] {
            EXPECT_EQ(UCS_ERR_UNSUPPORTED, copy(bytes, remote.start, 1));
            EXPECT_EQ(UCS_ERR_UNSUPPORTED,
                      GAUDI_CALL(ucx_gaudi_ipc_close)(remote.start));
            expect_log("forked from");
        }));
    }
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, copy(bytes, closed, 1));
    expect_log("1 bytes at");
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, GAUDI_CALL(ucx_gaudi_ipc_close)(closed));
    expect_log("cannot be closed");
    EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_ipc_close)(nullptr));
    EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_close)());
}

TEST_IN_CHILD(program_ipc, refuses_to_export_what_is_no_memory)
{
    const checked_log log;
    const local device(true, 100);
    handle of;
    char host[100];
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              GAUDI_CALL(ucx_gaudi_ipc_export)(nullptr, 1, &of));
    expect_log("ucx_gaudi_ipc_export: a pointer is NULL");
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              GAUDI_CALL(ucx_gaudi_ipc_export)(host, 1, nullptr));
    expect_log("ucx_gaudi_ipc_export: a pointer is NULL");
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              GAUDI_CALL(ucx_gaudi_ipc_export)(host, 0, &of));
    expect_log("cannot export 0 bytes");
    EXPECT_EQ(UCS_ERR_INVALID_ADDR,
              GAUDI_CALL(ucx_gaudi_ipc_export)(host, SIZE_MAX, &of));
    expect_log("they are not in one address space");
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, GAUDI_CALL(ucx_gaudi_ipc_export)(
                                        device.start + (1l << 40), 100, &of));
    expect_log("cannot register 100 bytes");
    EXPECT_EQ(UCS_ERR_INVALID_ADDR,
              GAUDI_CALL(ucx_gaudi_ipc_withdraw)(host, 100));
    expect_log("are not exported");
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              GAUDI_CALL(ucx_gaudi_ipc_open)(nullptr, nullptr, nullptr));
    expect_log("ucx_gaudi_ipc_open: a pointer is NULL");
}

TEST_IN_CHILD(program_ipc, exports_a_range_once_until_it_is_withdrawn_or_freed)
{
    const checked_log log;
    const auto export_range = [](void *address) {
        handle of;
        EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_ipc_export)(address, 100, &of));
        return to_text(of);
    };
    char host[100];
    const std::string first = export_range(host);
    EXPECT_EQ(first, export_range(host));
    EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_ipc_withdraw)(host, 100));
    EXPECT_EQ(first, export_range(host));
    EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_ipc_withdraw)(host, 100));
    EXPECT_EQ(UCS_ERR_BUSY, GAUDI_CALL(ucx_gaudi_close)());
    expect_log("1 exports");
    EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_ipc_withdraw)(host, 100));
    EXPECT_NE(first, export_range(host));
    EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_ipc_withdraw)(host, 100));

    char *const beside        = allocate(true, 100); /* keeps the block */
    char *const device        = allocate(true, 100);
    const std::string of_card = export_range(device);
    release(true, device);
    char *const same = allocate(true, 100);
    ASSERT_EQ(device, same);
    EXPECT_NE(of_card, export_range(same));
    release(true, same);
    release(true, beside);
    EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_close)());
}

/* In a pod of its own where it is told so. */
GAUDI_CHILD(opens_a_handle_as_another_user)
{
    constexpr unsigned other = 12345;
    const checked_log log;      /* now: it may lie where only root can look, */
    (void)emulator::instance(); /* and so may the driver */
    GAUDI_CHILD_REQUIRE(setresgid(other, other, other) == 0);
    GAUDI_CHILD_REQUIRE(setresuid(other, other, other) == 0);
    std::string of;
    std::string why;
    std::getline(std::cin, of);
    std::getline(std::cin, why);
    GAUDI_CHILD_REQUIRE((std::getenv("UCX_GAUDI_IPC_DIR") == nullptr) ||
                        enter_pod());
    EXPECT_EQ(UCS_ERR_UNREACHABLE, open_status(from_text(of)));
    expect_log(why);
    return 0;
}

/* Beside the owner, or in a pod of the same node and folder. */
class program_ipc_of_users : public ::testing::TestWithParam<bool> {
protected:
    void SetUp() override
    {
        GAUDI_SKIP_IF(why_no_other_user());
        if (GetParam()) {
            GAUDI_SKIP_IF(why_no_namespaces(pod_namespaces));
        }
    }
};

TEST_P(program_ipc_of_users, is_refused_to_another_one)
{
    child_options options = GetParam() ? as_pods() : child_options();
    owner other(options);
    const handle of = other.export_bytes(true, large, 3);
    std::erase_if(options.environment, [](const auto &each) {
        return each.first != "UCX_GAUDI_IPC_DIR";
    });
    child_process stranger("opens_a_handle_as_another_user", options);
    stranger.write_line(to_text(of));
    stranger.write_line("is of another machine, box, namespace or user");
    EXPECT_THAT(stranger.wait(), ended(0, IsEmpty()));
    EXPECT_TRUE(other.has(3));
}

INSTANTIATE_TEST_SUITE_P(in, program_ipc_of_users, ::testing::Bool(),
                         [](const auto &tested) {
                             return std::string(tested.param ? "pods"
                                                             : "one_node");
                         });

TEST_IN_CHILD(program_ipc, refuses_handles_that_nobody_made)
{
    const checked_log log;
    const bool had_card = engine_hooks::any_card(); /* a framework's */
    owner other;
    const handle good = other.export_bytes(true, 100, 3);
    for (size_t at = 0; at < sizeof(good.bytes); ++at) {
        for (const unsigned bit : {1u, 128u}) {
            handle bad = good;
            bad.bytes[at] ^= bit;
            EXPECT_EQ(UCS_ERR_INVALID_PARAM, open_status(bad)) << at;
            expect_log("it is none, or was changed on its way");
        }
    }
    const handle zeros{};
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, open_status(zeros));
    expect_log("it is none");
    EXPECT_EQ(had_card, engine_hooks::any_card());
    const opened right(good);
    char bytes[100];
    EXPECT_EQ(UCS_OK, copy(bytes, right.start, 100));
    EXPECT_TRUE(has_pattern(bytes, 100, 3));
    handle own;
    EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_ipc_export)(bytes, 100, &own));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, open_status(own));
    expect_log("this process has the memory itself");
}

} // namespace gaudi::test
