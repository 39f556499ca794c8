/* SPDX-License-Identifier: BSD-3-Clause */
/* Every fault under every operation: what the caller sees, that he sees it
 * once, that the bytes are right, and that all else goes on. fault_rules.h has
 * what is expected. */
#include "gtest/uct/fault_rules.h"
#include "gtest/uct/peers.h"

#include "common/process_state.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <optional>
#include <string_view>
#include <tuple>

namespace gaudi::test {

namespace {

constexpr size_t size         = 1 << 20;
constexpr size_t short_size   = 4096;
constexpr uint8_t own_message = 6;

/* --- what they happen to -------------------------------------------------- */

struct card_memory {
    card_memory(uct_md_h md, unsigned card, size_t bytes)
    {
        status = allocate_memory(md, bytes, memory, 0, window_of_card(card));
    }
    ~card_memory() { (void)free(); }
    card_memory(const card_memory &)            = delete;
    card_memory &operator=(const card_memory &) = delete;

    ucs_status_t free()
    {
        const ucs_status_t had = std::exchange(status, UCS_ERR_NO_MEMORY);
        return (had == UCS_OK) ? uct_mem_free(&memory) : UCS_OK;
    }

    [[nodiscard]] uint64_t remote() const
    {
        return reinterpret_cast<uintptr_t>(memory.address);
    }

    ucs_status_t status;
    uct_allocated_memory_t memory{};
};

/* A process that runs a framework has one Gaudi3. */
bool has_other_card()
{
    const char *kind = std::getenv("HLTHUNK_EMU_ASIC");
    return (kind == nullptr) || (std::strcmp(kind, "gaudi3") != 0);
}

/* Memory that an operation reads or writes. Each place has a pattern of its
 * own. */
enum class place { nowhere, host, near, near_half, other, peer };

uint64_t seed_of(place where)
{
    return 10 + static_cast<uint64_t>(where);
}

/* Two cards with memory, or one, and a process that has the next one. */
struct scene {
    uct_md_h md     = nullptr;
    uct_md_h ipc_md = nullptr;
    std::unique_ptr<transport> copy;
    std::unique_ptr<transport> ipc;
    std::unique_ptr<card_memory> near; /* of gaudi0, which goes wrong */
    std::unique_ptr<card_memory> other;
    std::unique_ptr<ipc_peer> peer;
    uct_ep_h ep = nullptr; /* to it */
    std::optional<unpacked_key> key;
    std::vector<char> host = std::vector<char>(size, 'h');
    unsigned messages      = 0;

    bool open()
    {
        if ((open_md(md) != UCS_OK) ||
            (open_md(ipc_md, {}, "gaudi_ipc") != UCS_OK)) {
            return false;
        }
        copy = std::make_unique<transport>(md);
        ipc  = std::make_unique<transport>(ipc_md);
        near = std::make_unique<card_memory>(md, 0, size);
        if (has_other_card()) {
            other = std::make_unique<card_memory>(md, 1, size);
        }
        const auto count = [](void *arg, void *, size_t, unsigned) {
            ++static_cast<scene *>(arg)->messages;
            return UCS_OK;
        };
        return (uct_iface_set_am_handler(ipc->iface, own_message, count, this,
                                         0) == UCS_OK) &&
               (uct_iface_set_am_handler(ipc->iface, ipc_echo_id, count, this,
                                         0) == UCS_OK) &&
               works(*near) && other_works();
    }

    bool other_works() { return (other == nullptr) || works(*other); }

    void fill()
    {
        fill(near.get(), place::near);
        fill(other.get(), place::other);
        fill_pattern(host.data(), size, seed_of(place::host));
        if (peer != nullptr) {
            peer->fill(seed_of(place::peer));
        }
    }

    /* Whether bytes of a place are at another one. */
    bool have_moved(place from, place to, size_t bytes)
    {
        std::vector<char> seen(bytes);
        if (to == place::peer) {
            return peer->has(true, bytes, seed_of(from));
        }
        if (to == place::host) {
            seen.assign(host.data(), host.data() + bytes);
        } else {
            const card_memory &memory = (to == place::other) ? *other : *near;
            const size_t offset       = (to == place::near_half) ? size / 2 : 0;
            transport(md).read_device(seen.data(), memory.remote() + offset,
                                      bytes);
        }
        return has_pattern(seen.data(), bytes, seed_of(from));
    }

    [[nodiscard]] bool add_peer()
    {
        child_options options;
        options.environment = {
            {"UCX_GAUDI_DEVICES", has_other_card() ? "2" : "1"}};
        peer = std::make_unique<ipc_peer>(options);
        ep   = ipc->make_ep(peer->address);
        peer->connect(ipc->address());
        return ep != nullptr;
    }

    ucs_status_t need_key()
    {
        if (!key.has_value()) {
            key.emplace(peer->device.key);
        }
        return key->status();
    }

    /* With the key. */
    [[nodiscard]] endpoint to_peer() const { return {ep, key->rkey()}; }

    void close()
    {
        key.reset();
        if (ep != nullptr) {
            uct_ep_destroy(std::exchange(ep, nullptr));
        }
        ipc.reset();
        copy.reset();
        near.reset();
        other.reset();
        if (ipc_md != nullptr) {
            uct_md_close(std::exchange(ipc_md, nullptr));
        }
        if (md != nullptr) {
            drop_idle_registrations(md);
            uct_md_close(std::exchange(md, nullptr));
        }
        if (peer != nullptr) {
            (void)peer->quit();
            peer.reset();
        }
    }

    /* Whether bytes get to a card and back. */
    bool works(const card_memory &memory)
    {
        std::vector<char> seen(short_size);
        fill_pattern(host.data(), short_size, 7);
        return (copy->put_short(host.data(), short_size, memory.remote()) ==
                UCS_OK) &&
               (copy->get_short(seen.data(), short_size, memory.remote()) ==
                UCS_OK) &&
               has_pattern(seen.data(), short_size, 7);
    }

private:
    void fill(const card_memory *memory, place where)
    {
        if (memory != nullptr) {
            fill_pattern(host.data(), size, seed_of(where));
            (void)copy->put_short(host.data(), size, memory->remote());
        }
    }
};

using clock_type = std::chrono::steady_clock;

/* Make progress until something is so, for a time. */
bool reaches(scene &s, const std::function<bool()> &condition)
{
    const auto deadline = clock_type::now() + std::chrono::seconds(20);
    while (!condition()) {
        if (s.copy != nullptr) {
            s.copy->progress();
        }
        s.ipc->progress();
        if (clock_type::now() > deadline) {
            return false;
        }
    }
    return true;
}

bool is_flushed(uct_iface_h iface)
{
    return uct_iface_flush(iface, 0, nullptr) != UCS_INPROGRESS;
}

/* What an operation has come to, and what it has moved if it tells of no
 * error. */
struct outcome : observation {
    size_t moved = 0;
};

outcome at_once(ucs_status_t status, size_t bytes = 0)
{
    outcome seen;
    seen.call  = status;
    seen.moved = (status == UCS_OK) ? bytes : 0;
    return seen;
}

outcome hung()
{
    outcome seen;
    seen.hangs = true;
    return seen;
}

/* Wait for the end of an operation whose call has returned. */
outcome ended(scene &s, transport &by, ucs_status_t status, size_t bytes,
              const counted_completion *done = nullptr)
{
    const bool has_begun = (status == UCS_INPROGRESS);
    outcome seen;
    seen.call  = has_begun ? UCS_OK : status;
    seen.hangs = (has_begun && !reaches(s, [&] { return done->calls > 0; })) ||
                 !reaches(s, [&] { return is_flushed(by.iface); });
    by.progress();
    if (has_begun) {
        seen.completion = done->status;
    }
    if (!by.failures.empty()) {
        seen.endpoint = by.failures[0].second;
    }
    seen.is_told_twice =
        (by.failures.size() > 1) ||
        ((done != nullptr) && (done->calls > (has_begun ? 1u : 0u)));
    seen.moved = seen.is_good() ? bytes : 0;
    return seen;
}

/* The same of one that returns how many bytes it has packed. */
outcome ended(scene &s, transport &by, ssize_t packed)
{
    const auto status = static_cast<ucs_status_t>(std::min<ssize_t>(packed, 0));
    return ended(s, by, status,
                 static_cast<size_t>(std::max<ssize_t>(packed, 0)));
}

enum class party { alone, with_peer };

struct operation : operation_rules {
    place from;
    place to;
    party whose;
    outcome (*run)(scene &);

    [[nodiscard]] bool with_peer() const { return whose == party::with_peer; }
};

outcome put(scene &s, void *from, uint64_t to, size_t bytes = size)
{
    counted_completion done;
    return ended(s, *s.copy, s.copy->put_zcopy(from, bytes, to, &done), bytes,
                 &done);
}

outcome get(scene &s, void *to, uint64_t from)
{
    counted_completion done;
    return ended(s, *s.copy, s.copy->get_zcopy(to, size, from, &done), size,
                 &done);
}

/* What needs a key of the peer's memory. */
template <typename Body>
outcome with_key(scene &s, Body &&body)
{
    const ucs_status_t status = s.need_key();
    return (status == UCS_OK) ? body(s.to_peer(), s.peer->device.address)
                              : at_once(status);
}

/* Between memory here and device memory of the peer. */
outcome put_to_peer(scene &s, void *from)
{
    return with_key(s, [&](const endpoint &over, uint64_t remote) {
        counted_completion done;
        return ended(s, *s.ipc, over.put_zcopy(from, size, remote, &done), size,
                     &done);
    });
}

outcome get_from_peer(scene &s, void *to)
{
    return with_key(s, [&](const endpoint &over, uint64_t remote) {
        counted_completion done;
        return ended(s, *s.ipc, over.get_zcopy(to, size, remote, &done), size,
                     &done);
    });
}

/* Copies that are under way when something is closed. They may fail then. */
struct some_copies {
    explicit some_copies(scene &s)
    {
        for (counted_completion &one : done) {
            begun += (s.copy->put_zcopy(s.host.data(), size, s.near->remote(),
                                        &one) == UCS_INPROGRESS);
        }
    }

    /* What has come of them. */
    [[nodiscard]] outcome closed(bool in_time) const
    {
        outcome seen;
        unsigned ended = 0;
        seen.moved     = size;
        for (const counted_completion &one : done) {
            ended += one.calls;
            seen.is_told_twice |= (one.calls > 1);
            if ((one.calls == 0) || (one.status != UCS_OK)) {
                seen.moved = 0;
            }
        }
        seen.hangs = !in_time || (ended < begun);
        return seen;
    }

    counted_completion done[4];
    unsigned begun = 0;
};

/* Copies with engines of the card. Host memory that is not mapped goes through
 * buffers that are; both stay mapped for the next operation. */
constexpr unsigned copying         = copies | accesses;
constexpr unsigned mapping_of_host = maps | unmaps;

/* Between device memory of the peer, whose card copies, and that of this one,
 * through chunks that both have mapped before the first of them. Between host
 * memory here and the peer's device memory no card of this process is needed.
 */
constexpr unsigned copying_to_peer = copying | maps;

using enum place;
using enum party;

const operation operations[] = {
    /* Memory is of no use unless it is mapped. The test frees it. */
    {"alloc", allocates | maps, frees | unmaps, by_call, no_step, nowhere,
     nowhere, alone,
     [](scene &s) {
         const card_memory memory(s.md, 0, 2 * device_page());
         return at_once(memory.status);
     }},
    {"free", no_step, frees | unmaps, by_call, no_step, nowhere, nowhere, alone,
     [](scene &s) { return at_once(s.near->free()); }},
    {"mem_reg", no_step, no_step, by_call, mapping_of_host, nowhere, nowhere,
     alone,
     [](scene &s) {
         uct_mem_h memh = nullptr;
         const ucs_status_t status =
             register_memory(s.md, s.host.data(), size, memh);
         if (status == UCS_OK) {
             (void)uct_md_mem_dereg(s.md, memh);
         }
         return at_once(status);
     }},
    {"put_short", copying, no_step, by_call, mapping_of_host, host, near, alone,
     [](scene &s) {
         return at_once(
             s.copy->put_short(s.host.data(), short_size, s.near->remote()),
             short_size);
     }},
    {"get_short", copying, no_step, by_call, mapping_of_host, near, host, alone,
     [](scene &s) {
         return at_once(
             s.copy->get_short(s.host.data(), short_size, s.near->remote()),
             short_size);
     }},
    {"put_bcopy", copying, no_step, by_endpoint, mapping_of_host, host, near,
     alone,
     [](scene &s) {
         return ended(
             s, *s.copy,
             s.copy->put_bcopy(s.host.data(), short_size, s.near->remote()));
     }},
    {"get_bcopy", copying, no_step, by_completion, mapping_of_host, near, host,
     alone,
     [](scene &s) {
         counted_completion done;
         return ended(s, *s.copy,
                      s.copy->get_bcopy(s.host.data(), short_size,
                                        s.near->remote(), &done),
                      short_size, &done);
     }},
    {"put_zcopy", copying, no_step, by_completion, mapping_of_host, host, near,
     alone, [](scene &s) { return put(s, s.host.data(), s.near->remote()); }},
    {"put_zcopy_registered", copying, maps, by_completion, unmaps, host, near,
     alone,
     [](scene &s) {
         const registration known(s.md, s.host.data(), size);
         return put(s, s.host.data(), s.near->remote());
     }},
    {"get_zcopy", copying, no_step, by_completion, mapping_of_host, near, host,
     alone, [](scene &s) { return get(s, s.host.data(), s.near->remote()); }},
    {"on_card", copying, no_step, by_completion, no_step, near, near_half,
     alone,
     [](scene &s) {
         return put(s, s.near->memory.address, s.near->remote() + size / 2,
                    size / 2);
     }},
    /* Through chunks of the host's memory that both cards have mapped. */
    {"to_other_card", copying, no_step, by_completion, mapping_of_host, near,
     other, alone,
     [](scene &s) {
         return put(s, s.near->memory.address, s.other->remote());
     }},
    {"from_other_card", copying | maps, no_step, by_completion, mapping_of_host,
     other, near, alone,
     [](scene &s) {
         return put(s, s.other->memory.address, s.near->remote());
     }},
    {"flush", copying, no_step, by_endpoint, mapping_of_host, host, near, alone,
     [](scene &s) {
         counted_completion flushed;
         const ucs_status_t status =
             s.copy->put_zcopy(s.host.data(), size, s.near->remote(), nullptr);
         if (UCS_STATUS_IS_ERR(status)) {
             return at_once(status);
         }
         return ended(s, *s.copy, uct_ep_flush(s.copy->ep, 0, &flushed), size,
                      &flushed);
     }},
    /* Operations under way may fail, but closing does not. */
    {"ep_close", no_step, copies, by_call, mapping_of_host, host, near, alone,
     [](scene &s) {
         const some_copies under_way(s);
         uct_ep_destroy(std::exchange(s.copy->ep, s.copy->make_ep()));
         return under_way.closed(
             reaches(s, [&] { return is_flushed(s.copy->iface); }));
     }},
    {"iface_close", no_step, copies | unmaps, by_call, maps, host, near, alone,
     [](scene &s) {
         const some_copies under_way(s);
         const auto begin = clock_type::now();
         s.copy.reset();
         return under_way.closed(clock_type::now() - begin <
                                 std::chrono::seconds(20));
     }},
    {"reopen", no_step, opens | closes | frees | unmaps, by_call, no_step,
     nowhere, nowhere, alone,
     [](scene &s) {
         uct_md_h md = nullptr;
         s.close();
         const ucs_status_t status = open_md(md);
         if (status == UCS_OK) {
             uct_md_close(md);
         }
         return at_once(status);
     }},
    {"mkey_pack", no_step, no_step, by_call, no_step, nowhere, nowhere, alone,
     [](scene &s) {
         uct_md_attr_t attr;
         uct_mem_h memh = nullptr;
         (void)uct_md_query(s.ipc_md, &attr);
         std::vector<char> packed(attr.rkey_packed_size);
         ucs_status_t status =
             register_memory(s.ipc_md, s.near->memory.address, size, memh);
         if (status == UCS_OK) {
             status = uct_md_mkey_pack(s.ipc_md, memh, packed.data());
             (void)uct_md_mem_dereg(s.ipc_md, memh);
         }
         return at_once(status);
     }},
    {"rkey_unpack", no_step, no_step, by_call, no_step, nowhere, nowhere,
     with_peer,
     [](scene &s) {
         s.key.reset();
         return at_once(s.need_key());
     }},
    {"ipc_put_host", no_step, no_step, by_completion, unmaps, host, peer,
     with_peer, [](scene &s) { return put_to_peer(s, s.host.data()); }},
    {"ipc_get_host", no_step, no_step, by_completion, unmaps, peer, host,
     with_peer, [](scene &s) { return get_from_peer(s, s.host.data()); }},
    {"ipc_put_device", copying_to_peer, no_step, by_completion, mapping_of_host,
     near, peer, with_peer,
     [](scene &s) { return put_to_peer(s, s.near->memory.address); }},
    {"ipc_get_device", copying_to_peer, no_step, by_completion, mapping_of_host,
     peer, near, with_peer,
     [](scene &s) { return get_from_peer(s, s.near->memory.address); }},
    {"ipc_put_short", no_step, no_step, by_call, mapping_of_host, host, peer,
     with_peer,
     [](scene &s) {
         return with_key(s, [&](const endpoint &over, uint64_t remote) {
             return at_once(over.put_short(s.host.data(), short_size, remote),
                            short_size);
         });
     }},
    {"ipc_put_bcopy", no_step, no_step, by_endpoint, mapping_of_host, host,
     peer, with_peer,
     [](scene &s) {
         return with_key(s, [&](const endpoint &over, uint64_t remote) {
             return ended(s, *s.ipc,
                          over.put_bcopy(s.host.data(), short_size, remote));
         });
     }},
    /* The card has no part in messages. */
    {"ipc_am", no_step, no_step, by_call, no_step, nowhere, nowhere, with_peer,
     [](scene &s) {
         s.messages = 0;
         const ucs_status_t status =
             uct_ep_am_short(s.ep, ipc_echo_id, 0, "12345678", 8);
         if (status != UCS_OK) {
             return at_once(status);
         }
         return reaches(s, [&] { return s.messages > 0; }) ? outcome() : hung();
     }},
};

/* --- one case, in a process of its own ------------------------------------ */

template <typename Rows>
const auto &row_named(const Rows &rows, const char *variable)
{
    const std::string_view name = std::getenv(variable);
    return *std::ranges::find_if(
        rows, [&](const auto &row) { return name == row.name; });
}

bool contains(const std::string &line, const char *text)
{
    return line.find(text) != std::string::npos;
}

/* A card that is lost has been told of once. */
unsigned count_losses(const std::vector<std::string> &lines)
{
    unsigned count = 0;
    for (const std::string &line : lines) {
        count +=
            contains(line, " was reset: ") || contains(line, " was removed: ");
    }
    return count;
}

/* A fault that was met by closing, or by opening. */
int ends_well_when_closed(const fault &what, const observation &result,
                          unsigned files)
{
    GAUDI_CHILD_REQUIRE(emulator::instance().hlthunk_emu_fault(nullptr) == 0);
    tell_parent(to_line(result));
    GAUDI_CHILD_REQUIRE(eventually([&] { return count_open_fds() <= files; }));
    if ((what.card != after::is_gone) && !runs_beside_framework()) {
        scene s;
        GAUDI_CHILD_REQUIRE(s.open());
        s.close();
    }
    return 0;
}

GAUDI_CHILD(meets_a_fault)
{
    const fault &what   = row_named(faults, "GAUDI_FAULT");
    const operation &op = row_named(operations, "GAUDI_OPERATION");
    load_module();
    collect_logs();
    scene s;
    GAUDI_CHILD_REQUIRE(s.open());
    if (op.with_peer()) {
        GAUDI_CHILD_REQUIRE(s.add_peer());
        EXPECT_EQ(UCS_OK, s.need_key());
    }
    GAUDI_CHILD_REQUIRE(op.run(s).is_good());
    s.close(); /* what is made once per process is made */
    const unsigned files = count_open_fds();
    GAUDI_CHILD_REQUIRE(s.open());
    if (op.with_peer()) {
        GAUDI_CHILD_REQUIRE(s.add_peer());
    }
    s.fill();
    for (const std::string &line : take_logs()) {
        std::fprintf(stderr, "%s\n", line.c_str());
    }

    const emulator &box = emulator::instance();
    if (op.with_peer()) {
        EXPECT_EQ(UCS_OK, s.need_key());
    }
    GAUDI_CHILD_REQUIRE(box.hlthunk_emu_fault(what.wish) == 0);
    const uint64_t before = box.hlthunk_emu_faults_met();
    outcome result        = op.run(s);
    result.has_met =
        what.is_at_once() || (box.hlthunk_emu_faults_met() > before);
    if (s.md == nullptr) {
        return ends_well_when_closed(what, result, files);
    }
    GAUDI_CHILD_REQUIRE(box.hlthunk_emu_fault(nullptr) == 0);
    if (result.moved > 0) {
        result.is_wrong = !s.have_moved(op.from, op.to, result.moved);
    }
    /* What an operation has not met with, this does. Its endpoint may have
     * failed, which is the end of that alone. */
    if (!what.is_at_once()) {
        GAUDI_CHILD_REQUIRE(box.hlthunk_emu_fault(what.wish) == 0);
    }
    const bool met = (s.copy != nullptr) && (s.near->status == UCS_OK);
    if (met) {
        uct_ep_destroy(std::exchange(s.copy->ep, s.copy->make_ep()));
        (void)put(s, s.host.data(), s.near->remote());
    }
    GAUDI_CHILD_REQUIRE(box.hlthunk_emu_fault(nullptr) == 0);
    tell_parent(to_line(result));
    const bool lost = (what.card != after::works);
    s.copy.reset();
    if (!lost || has_other_card()) { /* else there is no such transport */
        s.copy = std::make_unique<transport>(s.md);
    }

    GAUDI_CHILD_REQUIRE(s.other_works());
    s.messages = 0;
    EXPECT_EQ(UCS_OK,
              uct_ep_am_short(s.ipc->ep, own_message, 0, "12345678", 8));
    GAUDI_CHILD_REQUIRE(reaches(s, [&] { return s.messages > 0; }));

    if (!lost && (s.near->status == UCS_OK)) {
        GAUDI_CHILD_REQUIRE(s.works(*s.near));
    }
    const bool stays_open = lost && runs_beside_framework();
    const auto begin      = clock_type::now();
    s.close();
    GAUDI_CHILD_REQUIRE(clock_type::now() - begin < std::chrono::seconds(20));
    GAUDI_CHILD_REQUIRE(eventually([&] { return count_open_fds() <= files; }));
    const auto lines      = take_logs();
    const unsigned losses = count_losses(lines);
    /* Who frees memory need not find out. */
    GAUDI_CHILD_REQUIRE((losses == (lost ? 1u : 0u)) ||
                        (!met && (losses == 0)));

    /* All have closed it: it serves again. */
    if ((what.card != after::is_gone) && !stays_open) {
        GAUDI_CHILD_REQUIRE(s.open());
        s.close();
        GAUDI_CHILD_REQUIRE(take_logs().empty());
    }
    return 0;
}

/* --- what is expected ----------------------------------------------------- */

using fault_case = std::tuple<const fault *, const operation *>;

class fault_matrix : public ::testing::TestWithParam<fault_case> {};

TEST_P(fault_matrix, is_seen_once_and_all_else_goes_on)
{
    const auto &[what, rules] = GetParam();
    child_options options;
    options.environment = {
        {"GAUDI_FAULT", what->name},
        {"GAUDI_OPERATION", rules->name},
        {"UCX_PROTO_ENABLE", "y"}, /* keys of no use are not unpacked */
        {"HLTHUNK_EMU_DEVICES", "3"},
        {"UCX_GAUDI_DEVICES", has_other_card() ? "0,1" : "0"}};
    child_process child("meets_a_fault", options);
    const std::string line    = child.read_line();
    const child_result result = child.wait();
    EXPECT_EQ(0, result.exit_code)
        << "signal " << result.signal << ' ' << result.error;

    observation seen;
    ASSERT_TRUE(from_line(line, seen)) << line << result.error;
    const expectation wanted = expected(*what, *rules, runs_beside_framework());
    EXPECT_STREQ(ucs_status_string(wanted.call), ucs_status_string(seen.call));
    EXPECT_STREQ(ucs_status_string(wanted.completion),
                 ucs_status_string(seen.completion));
    EXPECT_STREQ(ucs_status_string(wanted.endpoint),
                 ucs_status_string(seen.endpoint));
    EXPECT_FALSE(seen.hangs);
    EXPECT_FALSE(seen.is_told_twice);
    EXPECT_FALSE(seen.is_wrong);
    if (wanted.with_fault != meeting::may) {
        EXPECT_EQ(wanted.with_fault == meeting::must, seen.has_met);
    }
}

template <typename Row, size_t count>
std::vector<const Row *> all_of(const Row (&rows)[count])
{
    std::vector<const Row *> all;
    std::ranges::transform(rows, std::back_inserter(all),
                           [](const Row &row) { return &row; });
    return all;
}

INSTANTIATE_TEST_SUITE_P(
    all, fault_matrix,
    ::testing::Combine(::testing::ValuesIn(all_of(faults)),
                       ::testing::ValuesIn(all_of(operations))),
    [](const auto &tested) {
        return std::string(std::get<0>(tested.param)->name) + "_under_" +
               std::get<1>(tested.param)->name;
    });

} // namespace

} // namespace gaudi::test
