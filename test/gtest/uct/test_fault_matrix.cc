/* Every fault under every operation: what the caller sees, that he sees it
 * once, and that all else goes on. docs/faults.md has what is seen; it is
 * written by scripts/faults-page, and each case compares its line. */
#include "gtest/uct/ipc_peer.h"

#include "common/framework.h"
#include "common/process_state.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string_view>
#include <tuple>

namespace gaudi::test {

namespace {

constexpr size_t size         = 1 << 20;
constexpr size_t short_size   = 4096;
constexpr uint8_t own_message = 6;
/* Device addresses that the cards of a process allocate from. */
constexpr uintptr_t first_window = 0x1001001800000000;
constexpr uintptr_t window_bytes = uintptr_t{1} << 41;

/* --- faults --------------------------------------------------------------- */

enum class after { works, comes_back, is_gone };

struct fault {
    const char *name; /* of the test */
    const char *title;
    const char *wish;         /* for gaudi0, as hlthunk_emu_fault takes it */
    after card;               /* if an operation has met with it */
    bool at_new_keys = false; /* keys of others are unpacked under it, too */
};

const fault faults[] = {
    {"reset", "The card has been reset", "now=reset@0", after::comes_back},
    {"removal", "The card has been removed", "now=remove@0", after::is_gone},
    {"job_reset", "The card is reset while it copies", "job=reset@0",
     after::comes_back},
    {"job_removal", "The card is removed while it copies", "job=remove@0",
     after::is_gone},
    {"lost_job", "A copy never ends, and the driver resets the card",
     "job=lose:50ms@0", after::comes_back},
    {"aborted_job", "A copy is aborted", "job=abort@0", after::works},
    {"late_job", "Copies take 20 ms longer", "job=delay:20ms@0", after::works},
    {"submission", "Submissions fail (ENOMEM)", "submit=ENOMEM@0",
     after::works},
    {"allocation", "Device memory cannot be had (ENOMEM)", "alloc=ENOMEM@0",
     after::works},
    {"mapping", "Memory cannot be mapped (ENOMEM)", "map=ENOMEM@0",
     after::works},
    {"export", "Exports fail (EMFILE)", "export=EMFILE@0", after::works},
    {"import", "Imports fail (EPERM)", "import=EPERM@0", after::works, true},
    {"wait", "The driver does not tell once how a copy is (EFAULT)",
     "wait#1=EFAULT@0", after::works},
    {"free", "Device memory cannot be given back (EBUSY)", "free=EBUSY@0",
     after::works},
    {"unmapping", "Memory cannot be unmapped, once (EINVAL)",
     "unmap#1=EINVAL@0", after::works},
    {"open", "The card cannot be opened (EIO)", "open=EIO@0", after::works},
    {"close", "The card is reset when it is closed", "close=reset@0",
     after::works},
};

/* --- what they happen to -------------------------------------------------- */

struct card_memory {
    card_memory(uct_md_h md, unsigned card, size_t bytes)
    {
        const uct_alloc_method_t method = UCT_ALLOC_METHOD_MD;
        uct_md_attr_t attr;
        uct_md_query(md, &attr);
        uct_mem_alloc_params_t params{};
        params.field_mask = UCT_MEM_ALLOC_PARAM_FIELD_FLAGS |
                            UCT_MEM_ALLOC_PARAM_FIELD_MEM_TYPE |
                            UCT_MEM_ALLOC_PARAM_FIELD_ADDRESS |
                            UCT_MEM_ALLOC_PARAM_FIELD_MDS;
        params.flags    = UCT_MD_MEM_ACCESS_ALL;
        params.mem_type = static_cast<ucs_memory_type_t>(
            __builtin_ctzl(attr.cap.alloc_mem_types));
        params.address =
            reinterpret_cast<void *>(first_window + card * window_bytes);
        params.mds = {&md, 1};
        status     = uct_mem_alloc(bytes, &method, 1, &params, &memory);
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
    std::unique_ptr<unpacked_key> key;
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

    void add_peer()
    {
        child_options options;
        options.environment = {
            {"UCX_GAUDI_DEVICES", has_other_card() ? "2" : "1"}};
        peer = std::make_unique<ipc_peer>(options);
        ep   = ipc->make_ep(peer->address());
        peer->connect(ipc->address());
    }

    ucs_status_t need_key()
    {
        if (key == nullptr) {
            key = std::make_unique<unpacked_key>(peer->device().key);
        }
        return key->status();
    }

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
        return (uct_ep_put_short(copy->ep, host.data(), short_size,
                                 memory.remote(),
                                 UCT_INVALID_RKEY) == UCS_OK) &&
               (uct_ep_get_short(copy->ep, seen.data(), short_size,
                                 memory.remote(),
                                 UCT_INVALID_RKEY) == UCS_OK) &&
               has_pattern(seen.data(), short_size, 7);
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

std::string seen(const char *where, ucs_status_t status)
{
    return (status == UCS_OK)
               ? "done"
               : std::string(where) + ": " + ucs_status_string(status);
}

std::string at_once(ucs_status_t status)
{
    return seen("call", status);
}

std::string told(const transport &by)
{
    std::string text;
    for (const auto &[ep, status] : by.failures) {
        text += std::string("; endpoint: ") + ucs_status_string(status);
    }
    return text;
}

/* What an operation with a completion has come to. */
std::string outcome(scene &s, transport &by, ucs_status_t status,
                    counted_completion &done)
{
    if (status != UCS_INPROGRESS) {
        return at_once(status) + ((done.calls > 0) ? " AND COMPLETION" : "");
    }
    if (!reaches(s, [&] { return done.calls > 0; }) ||
        !reaches(s, [&] { return is_flushed(by.iface); })) {
        return "HANGS";
    }
    return ((done.calls == 1) ? "" : "TWICE ") +
           seen("completion", done.status) + told(by);
}

/* The same of one without. */
std::string outcome(scene &s, transport &by, ssize_t result)
{
    if (result < 0) {
        return at_once(static_cast<ucs_status_t>(result));
    }
    const bool ended = reaches(s, [&] { return is_flushed(by.iface); });
    by.progress();
    return (ended ? "done" : "HANGS") + told(by);
}

uct_iov_t vector_of(void *address, size_t length)
{
    uct_iov_t iov{};
    iov.buffer = address;
    iov.length = length;
    iov.count  = 1;
    return iov;
}

size_t pack(void *to, void *from)
{
    std::memcpy(to, from, short_size);
    return short_size;
}

void unpack(void *to, const void *from, size_t length)
{
    std::memcpy(to, from, length);
}

enum class imports { nothing, of_other_card, of_peer };

struct operation {
    const char *name;
    const char *title;
    imports to_card; /* gaudi0 */
    std::string (*run)(scene &);

    [[nodiscard]] bool with_peer() const { return to_card == imports::of_peer; }
};

std::string put(scene &s, void *from, const card_memory &to)
{
    counted_completion done;
    const uct_iov_t iov = vector_of(from, size);
    return outcome(s, *s.copy,
                   uct_ep_put_zcopy(s.copy->ep, &iov, 1, to.remote(),
                                    UCT_INVALID_RKEY, &done),
                   done);
}

/* Between memory here and device memory of the peer. */
std::string exchange(scene &s, bool is_put, void *local)
{
    counted_completion done;
    if (s.need_key() != UCS_OK) {
        return seen("key", s.key->status());
    }
    const uct_iov_t iov   = vector_of(local, size);
    auto *const operation = is_put ? uct_ep_put_zcopy : uct_ep_get_zcopy;
    return outcome(s, *s.ipc,
                   operation(s.ep, &iov, 1, s.peer->device().address,
                             s.key->rkey(), &done),
                   done);
}

/* Operations of both kinds are under way when something is closed. */
void start_some(scene &s, counted_completion *done)
{
    for (int i = 0; i < 4; ++i) {
        (void)s.copy->put_zcopy(s.host.data(), size, s.near->remote(),
                                &done[i]);
    }
}

std::string completions(const counted_completion *done)
{
    for (int i = 0; i < 4; ++i) {
        if (done[i].calls > 1) {
            return "TWICE";
        }
    }
    return "done";
}

const operation operations[] = {
    {"alloc", "allocate", imports::nothing,
     [](scene &s) {
         const card_memory memory(s.md, 0, 2 * device_page());
         return at_once(memory.status);
     }},
    {"free", "free", imports::nothing,
     [](scene &s) { return at_once(s.near->free()); }},
    {"mem_reg", "register host memory", imports::nothing,
     [](scene &s) {
         uct_mem_h memh            = nullptr;
         const ucs_status_t status = uct_md_mem_reg(
             s.md, s.host.data(), size, UCT_MD_MEM_ACCESS_ALL, &memh);
         if (status == UCS_OK) {
             (void)uct_md_mem_dereg(s.md, memh);
         }
         return at_once(status);
     }},
    {"put_short", "put_short", imports::nothing,
     [](scene &s) {
         return at_once(uct_ep_put_short(s.copy->ep, s.host.data(), short_size,
                                         s.near->remote(), UCT_INVALID_RKEY));
     }},
    {"get_short", "get_short", imports::nothing,
     [](scene &s) {
         return at_once(uct_ep_get_short(s.copy->ep, s.host.data(), short_size,
                                         s.near->remote(), UCT_INVALID_RKEY));
     }},
    {"put_bcopy", "put_bcopy", imports::nothing,
     [](scene &s) {
         return outcome(s, *s.copy,
                        uct_ep_put_bcopy(s.copy->ep, pack, s.host.data(),
                                         s.near->remote(), UCT_INVALID_RKEY));
     }},
    {"get_bcopy", "get_bcopy", imports::nothing,
     [](scene &s) {
         counted_completion done;
         return outcome(s, *s.copy,
                        uct_ep_get_bcopy(s.copy->ep, unpack, s.host.data(),
                                         short_size, s.near->remote(),
                                         UCT_INVALID_RKEY, &done),
                        done);
     }},
    {"put_zcopy", "put_zcopy", imports::nothing,
     [](scene &s) { return put(s, s.host.data(), *s.near); }},
    {"put_zcopy_registered", "put_zcopy of registered memory", imports::nothing,
     [](scene &s) {
         const registration known(s.md, s.host.data(), size);
         return put(s, s.host.data(), *s.near);
     }},
    {"get_zcopy", "get_zcopy", imports::nothing,
     [](scene &s) {
         counted_completion done;
         return outcome(
             s, *s.copy,
             s.copy->get_zcopy(s.host.data(), size, s.near->remote(), &done),
             done);
     }},
    {"on_card", "put_zcopy within the card", imports::nothing,
     [](scene &s) {
         counted_completion done;
         auto *from          = reinterpret_cast<char *>(s.near->remote());
         const uct_iov_t iov = vector_of(from, size / 2);
         return outcome(s, *s.copy,
                        uct_ep_put_zcopy(s.copy->ep, &iov, 1,
                                         s.near->remote() + size / 2,
                                         UCT_INVALID_RKEY, &done),
                        done);
     }},
    {"to_other_card", "put_zcopy to the other card", imports::of_other_card,
     [](scene &s) { return put(s, s.near->memory.address, *s.other); }},
    {"from_other_card", "put_zcopy from the other card", imports::nothing,
     [](scene &s) { return put(s, s.other->memory.address, *s.near); }},
    {"flush", "flush of a put_zcopy without completion", imports::nothing,
     [](scene &s) {
         counted_completion flushed;
         const ucs_status_t status =
             s.copy->put_zcopy(s.host.data(), size, s.near->remote(), nullptr);
         if (UCS_STATUS_IS_ERR(status)) {
             return at_once(status);
         }
         return outcome(s, *s.copy, uct_ep_flush(s.copy->ep, 0, &flushed),
                        flushed);
     }},
    {"ep_close", "destroy an endpoint with copies under way", imports::nothing,
     [](scene &s) {
         counted_completion done[4];
         start_some(s, done);
         uct_ep_destroy(std::exchange(s.copy->ep, s.copy->make_ep()));
         return reaches(s, [&] { return is_flushed(s.copy->iface); })
                    ? completions(done)
                    : "HANGS";
     }},
    {"iface_close", "close an interface with copies under way",
     imports::nothing,
     [](scene &s) {
         counted_completion done[4];
         start_some(s, done);
         const auto begin = clock_type::now();
         s.copy.reset();
         const bool late =
             (clock_type::now() - begin > std::chrono::seconds(20));
         return late ? "HANGS" : completions(done);
     }},
    {"reopen", "close all, and open it again", imports::nothing,
     [](scene &s) {
         uct_md_h md = nullptr;
         s.close();
         const ucs_status_t status = open_md(md);
         if (status == UCS_OK) {
             uct_md_close(md);
         }
         return at_once(status);
     }},
    {"mkey_pack", "pack a key of its memory", imports::nothing,
     [](scene &s) {
         uct_md_attr_t attr;
         uct_mem_h memh = nullptr;
         (void)uct_md_query(s.ipc_md, &attr);
         std::vector<char> packed(attr.rkey_packed_size);
         ucs_status_t status =
             uct_md_mem_reg(s.ipc_md, s.near->memory.address, size,
                            UCT_MD_MEM_ACCESS_ALL, &memh);
         if (status == UCS_OK) {
             status = uct_md_mkey_pack(s.ipc_md, memh, packed.data());
             (void)uct_md_mem_dereg(s.ipc_md, memh);
         }
         return at_once(status);
     }},
    {"rkey_unpack", "unpack a key of another process's memory",
     imports::of_peer,
     [](scene &s) {
         s.key.reset();
         return at_once(s.need_key());
     }},
    {"ipc_put_host", "put_zcopy from host memory to another process's card",
     imports::of_peer,
     [](scene &s) { return exchange(s, true, s.host.data()); }},
    {"ipc_get_host", "get_zcopy to host memory from another process's card",
     imports::of_peer,
     [](scene &s) { return exchange(s, false, s.host.data()); }},
    {"ipc_put_device", "put_zcopy from the card to another process's",
     imports::of_peer,
     [](scene &s) { return exchange(s, true, s.near->memory.address); }},
    {"ipc_get_device", "get_zcopy to the card from another process's",
     imports::of_peer,
     [](scene &s) { return exchange(s, false, s.near->memory.address); }},
    {"ipc_put_short", "put_short to another process's card", imports::of_peer,
     [](scene &s) {
         if (s.need_key() != UCS_OK) {
             return seen("key", s.key->status());
         }
         return at_once(uct_ep_put_short(s.ep, s.host.data(), short_size,
                                         s.peer->device().address,
                                         s.key->rkey()));
     }},
    {"ipc_put_bcopy", "put_bcopy to another process's card", imports::of_peer,
     [](scene &s) {
         if (s.need_key() != UCS_OK) {
             return seen("key", s.key->status());
         }
         return outcome(s, *s.ipc,
                        uct_ep_put_bcopy(s.ep, pack, s.host.data(),
                                         s.peer->device().address,
                                         s.key->rkey()));
     }},
    {"ipc_am", "an active message to another process, and back",
     imports::of_peer,
     [](scene &s) {
         s.messages = 0;
         const ucs_status_t status =
             uct_ep_am_short(s.ep, ipc_echo_id, 0, "12345678", 8);
         if (status != UCS_OK) {
             return at_once(status);
         }
         return reaches(s, [&] { return s.messages > 0; }) ? std::string("done")
                                                           : "HANGS";
     }},
};

/* --- one case, in a process of its own ------------------------------------ */

template <typename Row, size_t count>
const Row &row_named(const Row (&rows)[count], const char *variable)
{
    const std::string name = std::getenv(variable);
    for (const Row &row : rows) {
        if (name == row.name) {
            return row;
        }
    }
    std::abort();
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
int ends_well_when_closed(const fault &what, const std::string &result,
                          unsigned files)
{
    GAUDI_CHILD_REQUIRE(emulator::instance().hlthunk_emu_fault(nullptr) == 0);
    tell_parent(result);
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
        s.add_peer();
        GAUDI_CHILD_REQUIRE(s.need_key() == UCS_OK);
    }
    GAUDI_CHILD_REQUIRE(op.run(s) == "done");
    s.close(); /* what is made once per process is made */
    const unsigned files = count_open_fds();
    GAUDI_CHILD_REQUIRE(s.open());
    if (op.with_peer()) {
        s.add_peer();
    }
    for (const std::string &line : take_logs()) {
        std::fprintf(stderr, "%s\n", line.c_str());
    }

    const emulator &box = emulator::instance();
    if (op.with_peer() && !what.at_new_keys) {
        GAUDI_CHILD_REQUIRE(s.need_key() == UCS_OK);
    }
    GAUDI_CHILD_REQUIRE(box.hlthunk_emu_fault(what.wish) == 0);
    const uint64_t before = box.hlthunk_emu_faults_met();
    std::string result    = op.run(s);
    const bool is_met     = std::string_view(what.wish).starts_with("now=") ||
                        (box.hlthunk_emu_faults_met() > before);
    if (!is_met) {
        GAUDI_CHILD_REQUIRE(result == "done");
        result = "not met";
    }
    if (s.md == nullptr) {
        return ends_well_when_closed(what, result, files);
    }
    /* What an operation has not met with, this does. Its endpoint may have
     * failed, which is the end of that alone. */
    const bool met = (s.copy != nullptr) && (s.near->status == UCS_OK);
    if (met) {
        uct_ep_destroy(std::exchange(s.copy->ep, s.copy->make_ep()));
        (void)put(s, s.host.data(), *s.near);
    }
    GAUDI_CHILD_REQUIRE(box.hlthunk_emu_fault(nullptr) == 0);
    tell_parent(result);
    const bool lost = (what.card != after::works);
    s.copy.reset();
    if (!lost || has_other_card()) { /* else there is no such transport */
        s.copy = std::make_unique<transport>(s.md);
    }

    GAUDI_CHILD_REQUIRE(s.other_works());
    s.messages = 0;
    GAUDI_CHILD_REQUIRE(
        uct_ep_am_short(s.ipc->ep, own_message, 0, "12345678", 8) == UCS_OK);
    GAUDI_CHILD_REQUIRE(reaches(s, [&] { return s.messages > 0; }));

    if (!lost && (s.near->status == UCS_OK)) {
        GAUDI_CHILD_REQUIRE(s.works(*s.near));
    }
    /* The emulator keeps what was imported to a lost card until that is closed,
     * which a framework does not do. */
    const bool stays_open = lost && runs_beside_framework();
    const unsigned allowed =
        files + ((stays_open && (op.to_card != imports::nothing)) ? 1 : 0);
    const auto begin = clock_type::now();
    s.close();
    GAUDI_CHILD_REQUIRE(clock_type::now() - begin < std::chrono::seconds(20));
    GAUDI_CHILD_REQUIRE(
        eventually([&] { return count_open_fds() <= allowed; }));
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

/* --- the page ------------------------------------------------------------- */

std::string engine()
{
    return runs_beside_framework() ? "synapse" : "cs";
}

/* How a case reads there. */
std::string line_of(const operation &op, const std::string &result)
{
    return "| " + std::string(op.title) + " | " + result + " |";
}

std::string heading_of(const fault &what)
{
    return "### " + std::string(what.title) + " (`" + what.wish + "`)";
}

/* The line of a case, of the tables of this engine; empty without one. */
std::string documented(const fault &what, const operation &op)
{
    std::ifstream page(GAUDI_SOURCE_DIR "/docs/faults.md");
    std::string engine_now;
    std::string fault_now;
    for (std::string line; std::getline(page, line);) {
        if (line.starts_with("## ")) {
            engine_now = line;
        } else if (line.starts_with("### ")) {
            fault_now = line;
        } else if ((engine_now == "## Engine " + engine()) &&
                   (fault_now == heading_of(what)) &&
                   line.starts_with("| " + std::string(op.title) + " |")) {
            return line;
        }
    }
    return {};
}

/* For scripts/faults-page: the tables of this run, behind what is there. */
class page_writer : public ::testing::Environment {
public:
    static page_writer &instance() { return *registered; }

    static const char *path() { return std::getenv("GAUDI_FAULTS_PAGE"); }

    void TearDown() override
    {
        if (path() == nullptr) {
            return;
        }
        std::ofstream page(path(), std::ios::app);
        page << "## Engine " << engine() << "\n";
        for (const fault &what : faults) {
            if (!lines.contains({&what, &operations[0]})) {
                continue; /* not with this engine */
            }
            page << "\n"
                 << heading_of(what) << "\n\n| operation | seen |\n"
                 << "|---|---|\n";
            for (const operation &op : operations) {
                page << lines[{&what, &op}] << "\n";
            }
        }
    }

    std::map<std::pair<const fault *, const operation *>, std::string> lines;

private:
    static page_writer *const registered;
};

page_writer *const page_writer::registered = static_cast<page_writer *>(
    ::testing::AddGlobalTestEnvironment(new page_writer));

/* Under ThreadSanitizer UCX has no memory events, so registrations are not
 * cached, and others of the operations that are done meet a mapping or an
 * unmapping that fails. Everywhere else a row is as the page has it. */
std::string as_comparable([[maybe_unused]] const fault &what, std::string line)
{
#ifdef __SANITIZE_THREAD__
    const std::string name(what.name);
    const size_t not_met = line.find("| not met |");
    if (((name == "mapping") || (name == "unmapping")) &&
        (not_met != std::string::npos)) {
        line.replace(not_met, line.npos, "| done |");
    }
#endif
    return line;
}

class fault_matrix : public ::testing::TestWithParam<
                         std::tuple<const fault *, const operation *>> {};

TEST_P(fault_matrix, is_seen_once_and_all_else_goes_on)
{
    const auto &[what, op] = GetParam();
    child_options options;
    options.environment = {
        {"GAUDI_FAULT", what->name},
        {"GAUDI_OPERATION", op->name},
        {"HLTHUNK_EMU_DEVICES", "3"},
        {"UCX_GAUDI_DEVICES", has_other_card() ? "0,1" : "0"}};
    child_process child("meets_a_fault", options);
    const std::string line    = line_of(*op, child.read_line());
    const child_result result = child.wait();
    EXPECT_EQ(0, result.exit_code) << result.error;
    if (page_writer::path() != nullptr) {
        page_writer::instance().lines[{what, op}] = line;
    } else {
        EXPECT_EQ(as_comparable(*what, documented(*what, *op)),
                  as_comparable(*what, line))
            << "scripts/faults-page writes docs/faults.md anew";
    }
}

template <typename Row, size_t count>
std::vector<const Row *> all_of(const Row (&rows)[count])
{
    std::vector<const Row *> all;
    for (const Row &row : rows) {
        all.push_back(&row);
    }
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
