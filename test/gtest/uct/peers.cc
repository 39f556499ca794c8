/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/uct/peers.h"

#include "gtest/uct/invalidate.h"

#include "common/descriptor.h"
#include "common/process_state.h"

#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

/* Data as a word. */
std::string to_hex(const std::vector<char> &data)
{
    std::string text = "x";
    for (const char byte : data) {
        char digits[3];
        std::snprintf(digits, sizeof(digits), "%02hhx", byte);
        text += digits;
    }
    return text;
}

std::vector<char> from_hex(const std::string &text)
{
    std::vector<char> data;
    for (size_t i = 1; i + 1 < text.size(); i += 2) {
        data.push_back(
            static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16)));
    }
    return data;
}

std::string to_words(const interface_address &address)
{
    return to_hex(address.device) + " " + to_hex(address.iface);
}

interface_address read_address(std::istream &words)
{
    std::string device;
    std::string iface;
    words >> device >> iface;
    return {from_hex(device), from_hex(iface)};
}

template <typename Read>
auto from_line(const std::string &line, Read read)
{
    std::istringstream words(line);
    return read(words);
}

std::string to_words(const ipc_peer::memory &memory)
{
    return to_hex(memory.key) + " " + std::to_string(memory.address);
}

ipc_peer::memory read_memory(std::istream &words)
{
    std::string key;
    uint64_t address = 0;
    words >> key >> address;
    return {from_hex(key), address};
}

/* What the child has, */
struct peer_memory {
    opened_domain copy_md;
    transport copy{copy_md};
    /* Until the process ends, or is told to unmap it. */
    char *const host = static_cast<char *>(
        mmap(nullptr, ipc_peer_bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    device_buffer device{copy_md, ipc_peer_bytes};
};

/* and by what others use it. */
struct shared_memory {
    explicit shared_memory(peer_memory &of) : memory(of) {}

    [[nodiscard]] ipc_peer::memory key_of_device() const
    {
        return {pack_key(ipc_md, device_memh->memh), memory.device.remote()};
    }

    peer_memory &memory;
    opened_domain ipc_md{"gaudi_ipc"};
    transport ipc{ipc_md};
    const registration host_memh{ipc_md, memory.host, ipc_peer_bytes};
    std::optional<registration> device_memh{
        std::in_place, ipc_md, memory.device.address, ipc_peer_bytes};
};

struct peer_state : peer_memory {
    std::optional<shared_memory> shared{*this};
    uct_ep_h back = nullptr;
    std::unique_ptr<unpacked_key> held;    /* that a transfer uses */
    std::vector<std::vector<char>> echoes; /* that wait for room */
    size_t received = 0;                   /* messages */
};

bool send_echo(peer_state &state, const std::vector<char> &data)
{
    packed_bytes echo{data.data(), data.size()};
    return uct_ep_am_bcopy(state.back, ipc_echo_id, packed_bytes::pack, &echo,
                           0) >= 0;
}

ucs_status_t receive(void *arg, void *data, size_t length, unsigned)
{
    auto &state      = *static_cast<peer_state *>(arg);
    const char *from = static_cast<char *>(data);
    std::vector<char> message(from, from + length);
    ++state.received;
    if (!state.echoes.empty() || !send_echo(state, message)) {
        state.echoes.push_back(std::move(message));
    }
    return UCS_OK;
}

void disconnect(peer_state &state)
{
    if (state.back != nullptr) {
        uct_ep_destroy(std::exchange(state.back, nullptr));
    }
}

void progress(peer_state &state)
{
    state.shared->ipc.progress();
    while (!state.echoes.empty() && send_echo(state, state.echoes.front())) {
        state.echoes.erase(state.echoes.begin());
    }
}

/* Until there is input: with progress, asleep when there is none to make, or
 * with none at all. */
void wait_for_input(peer_state &state)
{
    static const std::string_view how =
        (std::getenv(peer_habit) != nullptr) ? std::getenv(peer_habit) : "";
    pollfd wanted[] = {{STDIN_FILENO, POLLIN, 0}, {-1, POLLIN, 0}};
    int timeout     = (how == "rests") ? -1 : 0;
    if (how == "sleeps") {
        (void)uct_iface_event_fd_get(state.shared->ipc.iface, &wanted[1].fd);
    }
    while ((poll(wanted, 2, timeout) == 0) || (wanted[0].revents == 0)) {
        progress(state);
        const bool sleeps = (how == "sleeps") && state.echoes.empty() &&
                            (state.shared->ipc.arm() == UCS_OK);
        timeout = sleeps ? -1 : 0;
    }
}

/* The next line. */
std::optional<std::string> next_line(peer_state &state)
{
    std::string line;
    for (;;) {
        wait_for_input(state);
        char c;
        if (read(STDIN_FILENO, &c, 1) != 1) {
            return std::nullopt;
        }
        if (c == '\n') {
            return (line == "quit") ? std::nullopt : std::make_optional(line);
        }
        line += c;
    }
}

std::string answer(peer_state &state, std::istringstream words)
{
    std::string what;
    words >> what;
    if (what == "fill") {
        uint64_t seed = 0;
        words >> seed;
        fill_pattern(state.host, ipc_peer_bytes, seed);
        (void)state.copy.put_short(state.host, ipc_peer_bytes,
                                   state.device.remote());
        return "filled";
    }
    if (what == "has") {
        bool of_device = false;
        size_t size    = 0;
        uint64_t seed  = 0;
        words >> of_device >> size >> seed;
        return (of_device ? state.copy.holds(state.device.remote(), size, seed)
                          : has_pattern(state.host, size, seed))
                   ? "yes"
                   : "no";
    }
    if (what == "sum") {
        bool of_device = false;
        size_t offset  = 0;
        size_t size    = 0;
        words >> of_device >> offset >> size;
        std::vector<char> seen;
        if (of_device) {
            seen.resize(size);
            state.copy.read_device(seen.data(), state.device.remote(offset),
                                   size);
        }
        return std::to_string(
            sum_of(of_device ? seen.data() : state.host + offset, size));
    }
    if (what == "connect") {
        state.back = state.shared->ipc.make_ep(read_address(words));
        return (state.back != nullptr) ? "connected" : "not connected";
    }
    if (what == "flush_echoes") {
        size_t count = 0;
        words >> count;
        while ((state.received < count) || !state.echoes.empty() ||
               (uct_ep_flush(state.back, 0, nullptr) != UCS_OK)) {
            progress(state);
        }
        return "flushed";
    }
    if (what == "moved") {
        return std::to_string(moved_bytes());
    }
    if (what == "card") {
        return std::to_string(engine_hooks::place().module_id);
    }
    if (what == "written") {
        unsigned port = 0;
        words >> port;
        return std::to_string(engine_hooks::counters().port_bytes[port]);
    }
    if (what == "hold") {
        const ipc_peer::memory there = read_memory(words);
        size_t bytes                 = 0;
        words >> bytes;
        state.held = std::make_unique<unpacked_key>(there.key);
        engine_hooks::pause(true);
        const endpoint to{state.back, state.held->rkey()};
        return ucs_status_string(
            to.get_zcopy(state.device.address, bytes, there.address, nullptr));
    }
    if (what == "let_go") {
        engine_hooks::pause(false);
        state.shared->ipc.flush();
        state.held.reset();
        return "free";
    }
    if (what == "unmap_host") {
        return (munmap(state.host, ipc_peer_bytes) == 0) ? "unmapped"
                                                         : "refused";
    }
    if (what == "end_key") {
        state.shared->device_memh.reset();
        return "ended";
    }
    if (what == "invalidate") {
        counted_completion over;
        uct_mem_h memh =
            std::exchange(state.shared->device_memh->memh, nullptr);
        if (invalidate(state.shared->ipc_md, memh, over) != UCS_OK) {
            return "refused";
        }
        while (over.calls == 0) {
            progress(state);
        }
        return ucs_status_string(over.status);
    }
    if (what == "execute") {
        (void)execlp("cat", "cat", nullptr);
        return "not executed";
    }
    if (what == "reopen") {
        disconnect(state);
        state.shared.reset();
        state.shared.emplace(state);
        return to_words(state.shared->ipc.address()) + " " +
               to_words(state.shared->key_of_device());
    }
    if (what == "break") {
        std::string wish;
        words >> wish;
        if (wish.empty()) {
            (void)take_logs();
        }
        return (emulator::instance().hlthunk_emu_fault(wish.c_str()) == 0)
                   ? "broken"
                   : "not broken";
    }
    return "what?";
}

} // namespace

GAUDI_CHILD(ipc_peer_main)
{
    const checked_log log;
    peer_state state;
    const shared_memory &shared = *state.shared;
    GAUDI_CHILD_REQUIRE(uct_iface_set_am_handler(shared.ipc.iface, ipc_echo_id,
                                                 receive, &state, 0) == UCS_OK);
    tell_parent(to_words(shared.ipc.address()));
    tell_parent(to_words({pack_key(shared.ipc_md, shared.host_memh.memh),
                          reinterpret_cast<uintptr_t>(state.host)}));
    tell_parent(to_words(shared.key_of_device()));
    while (const auto line = next_line(state)) {
        tell_parent(answer(state, std::istringstream(*line)));
    }
    disconnect(state);
    return 0;
}

ipc_peer::ipc_peer(const child_options &options)
    : child_("ipc_peer_main", options),
      address(from_line(child_.read_line(), read_address)),
      host(from_line(child_.read_line(), read_memory)),
      device(from_line(child_.read_line(), read_memory))
{}

std::string ipc_peer::ask(const std::string &line)
{
    child_.write_line(line);
    return child_.read_line();
}

void ipc_peer::fill(uint64_t seed)
{
    EXPECT_EQ("filled", ask("fill " + std::to_string(seed)));
}

bool ipc_peer::has(bool of_device, size_t size, uint64_t seed)
{
    std::ostringstream line;
    line << "has " << of_device << " " << size << " " << seed;
    return ask(line.str()) == "yes";
}

uint64_t ipc_peer::sum(bool of_device, size_t offset, size_t size)
{
    std::ostringstream line;
    line << "sum " << of_device << " " << offset << " " << size;
    return std::stoull(ask(line.str()));
}

void ipc_peer::hold(const memory &what, size_t bytes)
{
    EXPECT_EQ(ucs_status_string(UCS_INPROGRESS),
              ask("hold " + to_words(what) + " " + std::to_string(bytes)));
}

void ipc_peer::let_go()
{
    EXPECT_EQ("free", ask("let_go"));
}

void ipc_peer::connect(const interface_address &to)
{
    EXPECT_EQ("connected", ask("connect " + to_words(to)));
}

void ipc_peer::unmap_host()
{
    EXPECT_EQ("unmapped", ask("unmap_host"));
}

void ipc_peer::end_key()
{
    EXPECT_EQ("ended", ask("end_key"));
}

void ipc_peer::invalidate()
{
    EXPECT_EQ(ucs_status_string(UCS_OK), ask("invalidate"));
}

void ipc_peer::execute()
{
    child_.write_line("execute");
    EXPECT_EQ("cat", ask("cat"));
}

std::pair<interface_address, ipc_peer::memory> ipc_peer::reopen()
{
    std::istringstream words(ask("reopen"));
    const interface_address fresh = read_address(words);
    return {fresh, read_memory(words)};
}

void ipc_peer::break_card(const std::string &wish)
{
    EXPECT_EQ("broken", ask("break " + wish));
}

child_result ipc_peer::quit()
{
    child_.write_line("quit");
    return child_.wait();
}

unsigned ipc_peer::card()
{
    return static_cast<unsigned>(std::stoul(ask("card")));
}

uint64_t ipc_peer::written_by(unsigned port)
{
    return std::stoull(ask("written " + std::to_string(port)));
}

void ipc_peer::flush_echoes(size_t count)
{
    EXPECT_EQ("flushed", ask("flush_echoes " + std::to_string(count)));
}

uint64_t ipc_peer::moved_bytes()
{
    return std::stoull(ask("moved"));
}

uint64_t sum_of(const char *bytes, size_t size)
{
    uint64_t sum = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < size; ++i) {
        sum = (sum ^ static_cast<unsigned char>(bytes[i])) * 1099511628211u;
    }
    return sum;
}

uint64_t moved_bytes()
{
    const hlthunk_emu_counters counted = engine_hooks::counters();
    return counted.host_to_device_bytes + counted.device_to_host_bytes +
           counted.device_to_device_bytes + counted.host_to_host_bytes;
}

uint64_t written_by_ports()
{
    uint64_t sum = 0;
    for (const uint64_t bytes : engine_hooks::counters().port_bytes) {
        sum += bytes;
    }
    return sum;
}

std::vector<std::string> wires_to(unsigned card)
{
    const shim::card_ports own = engine_hooks::place();
    std::vector<std::string> all;
    for (const shim::port_pair &each : own.map.between(own.module_id, card)) {
        all.push_back(std::to_string(own.module_id) + "." +
                      std::to_string(each.own));
    }
    return all;
}

size_t fill_queue(uct_ep_h ep)
{
    size_t sent = 0;
    while (uct_ep_am_short(ep, ipc_echo_id, sent, nullptr, 0) == UCS_OK) {
        ++sent;
    }
    return sent;
}

unpacked_key::unpacked_key(const std::vector<char> &packed)
    : status_(
          uct_rkey_unpack(find_component("gaudi_ipc"), packed.data(), &bundle_))
{}

unpacked_key::~unpacked_key()
{
    if (status_ == UCS_OK) {
        EXPECT_EQ(UCS_OK,
                  uct_rkey_release(find_component("gaudi_ipc"), &bundle_));
    }
}

std::vector<char> pack_key(uct_md_h md, uct_mem_h memh)
{
    uct_md_attr_t attr;
    EXPECT_EQ(UCS_OK, uct_md_query(md, &attr));
    std::vector<char> key(attr.rkey_packed_size);
    EXPECT_EQ(UCS_OK, uct_md_mkey_pack(md, memh, key.data()));
    return key;
}

beside_a_peer::beside_a_peer() : ep(tl->make_ep(peer.address))
{
    EXPECT_NE(nullptr, ep);
}

beside_a_peer::~beside_a_peer()
{
    if (ep != nullptr) {
        uct_ep_destroy(ep);
    }
    EXPECT_THAT(peer.quit(), ended(0, ::testing::IsEmpty()));
}

void beside_a_peer::reopen()
{
    uct_ep_destroy(std::exchange(ep, nullptr));
    tl.reset();
    tl = std::make_unique<transport>(ipc_md);
}

void beside_a_peer::flush()
{
    ucs_status_t status;
    do {
        tl->progress();
        status = uct_ep_flush(ep, 0, nullptr);
    } while ((status == UCS_INPROGRESS) || (status == UCS_ERR_NO_RESOURCE));
    EXPECT_EQ(UCS_OK, status);
}

exporting_process::exporting_process(child_options options)
{
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    options.inherited_fd = ends[1];
    process = std::make_unique<child_process>("exports_to_others", options);
    close(ends[1]);
    EXPECT_EQ("sent", process->read_line());
    fd = receive_descriptor(ends[0]);
    EXPECT_GE(fd, 0);
    close(ends[0]);
}

exporting_process::~exporting_process()
{
    close(fd);
}

GAUDI_CHILD(exports_to_others)
{
    constexpr size_t size = exporting_process::size;
    const opened_domain md;
    transport tl(md);
    device_buffer device(md, exporting_process::offset + size);
    std::vector<char> text(size);
    fill_pattern(text.data(), size, 9);
    tl.put(text.data(), size, device.remote(exporting_process::offset));
    int fd        = -1;
    size_t offset = 0;
    GAUDI_CHILD_REQUIRE(GAUDI_CALL(ucx_gaudi_dmabuf_export)(
                            device.data() + exporting_process::offset, size,
                            &fd, &offset) == UCS_OK);
    GAUDI_CHILD_REQUIRE(offset == exporting_process::offset);
    GAUDI_CHILD_REQUIRE(send_descriptor(child_fd, fd));
    close(fd);
    tell_parent("sent");
    wait_for_parent();
    return 0;
}

} // namespace gaudi::test
