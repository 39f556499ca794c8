#include "gtest/uct/ipc_peer.h"

#include "common/host_memory.h"

#include <cstring>
#include <optional>
#include <sstream>

#include <poll.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

std::string to_hex(const void *data, size_t size)
{
    static constexpr char digits[] = "0123456789abcdef";
    std::string text;
    for (size_t i = 0; i < size; ++i) {
        const auto byte = static_cast<const unsigned char *>(data)[i];
        text += {digits[byte >> 4], digits[byte & 15]};
    }
    return text.empty() ? "-" : text;
}

std::vector<char> from_hex(const std::string &text)
{
    std::vector<char> data;
    for (size_t i = 0; (text != "-") && (i + 1 < text.size()); i += 2) {
        data.push_back(
            static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16)));
    }
    return data;
}

std::string to_hex(const std::vector<char> &data)
{
    return to_hex(data.data(), data.size());
}

/* What the child has. Without a card it has no device memory. */
struct peer_state {
    uct_md_h copy_md = nullptr;
    uct_md_h ipc_md  = nullptr;
    std::unique_ptr<transport> copy;
    std::unique_ptr<transport> ipc;
    std::unique_ptr<device_buffer> device;
    std::unique_ptr<registration> device_memh;
    std::vector<char> host = std::vector<char>(ipc_peer_bytes);
    std::unique_ptr<registration> host_memh;
    uct_ep_h back = nullptr;
    std::unique_ptr<unpacked_key> held;    /* that a transfer uses */
    std::vector<std::vector<char>> echoes; /* that wait for room */
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
    if (!state.echoes.empty() || !send_echo(state, message)) {
        state.echoes.push_back(std::move(message));
    }
    return UCS_OK;
}

void progress(peer_state &state)
{
    state.ipc->progress();
    while (!state.echoes.empty() && send_echo(state, state.echoes.front())) {
        state.echoes.erase(state.echoes.begin());
    }
}

/* The next line, with progress until it comes. */
std::optional<std::string> next_line(peer_state &state)
{
    std::string line;
    for (;;) {
        pollfd input{STDIN_FILENO, POLLIN, 0};
        while (poll(&input, 1, 0) == 0) {
            progress(state);
        }
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

std::string answer(peer_state &state, const std::string &line)
{
    std::istringstream words(line);
    std::string what;
    words >> what;
    if (what == "fill") {
        uint64_t seed = 0;
        words >> seed;
        fill_pattern(state.host.data(), ipc_peer_bytes, seed);
        if (state.device != nullptr) {
            (void)state.copy->put_short(state.host.data(), ipc_peer_bytes,
                                        state.device->remote());
        }
        return "filled";
    }
    if (what == "has") {
        bool device   = false;
        size_t offset = 0;
        size_t size   = 0;
        uint64_t seed = 0;
        words >> device >> offset >> size >> seed;
        std::vector<char> seen(state.host.begin() + static_cast<long>(offset),
                               state.host.begin() +
                                   static_cast<long>(offset + size));
        if (device) {
            state.copy->read_back(seen.data(), state.device->remote(offset),
                                  size);
        }
        return has_pattern(seen.data(), size, seed) ? "yes" : "no";
    }
    if (what == "connect") {
        std::string device;
        std::string iface;
        words >> device >> iface;
        state.back = state.ipc->make_ep({from_hex(device), from_hex(iface)});
        return (state.back != nullptr) ? "connected" : "not connected";
    }
    if (what == "moved") {
        const hlthunk_emu_counters counted = engine_hooks::counters();
        return std::to_string(
            counted.host_to_device_bytes + counted.device_to_host_bytes +
            counted.device_to_device_bytes + counted.host_to_host_bytes);
    }
    if (what == "hold") {
        std::string packed;
        uint64_t address = 0;
        words >> packed >> address;
        state.held = std::make_unique<unpacked_key>(from_hex(packed));
        const uct_iov_t iov{state.device->address, ipc_peer_bytes,
                            UCT_MEM_HANDLE_NULL, 0, 1};
        engine_hooks::pause(true);
        return ucs_status_string(uct_ep_get_zcopy(state.back, &iov, 1, address,
                                                  state.held->rkey(), nullptr));
    }
    if (what == "let_go") {
        engine_hooks::pause(false);
        state.ipc->flush();
        state.held.reset();
        return "free";
    }
    if (what == "deregister") {
        state.host_memh.reset();
        state.device_memh.reset();
        return "deregistered";
    }
    return "what?";
}

} // namespace

GAUDI_CHILD(ipc_peer_main)
{
    load_module();
    collect_logs();
    peer_state state;
    const bool has_card = (open_md(state.copy_md) == UCS_OK);
    GAUDI_CHILD_REQUIRE(open_md(state.ipc_md, {}, "gaudi_ipc") == UCS_OK);
    state.ipc = std::make_unique<transport>(state.ipc_md);
    GAUDI_CHILD_REQUIRE(uct_iface_set_am_handler(state.ipc->iface, ipc_echo_id,
                                                 receive, &state, 0) == UCS_OK);
    const interface_address own = state.ipc->address();
    tell_parent(to_hex(own.device) + " " + to_hex(own.iface));

    state.host_memh = std::make_unique<registration>(
        state.ipc_md, state.host.data(), ipc_peer_bytes);
    tell_parent(to_hex(pack_key(state.ipc_md, state.host_memh->memh)) + " " +
                std::to_string(reinterpret_cast<uintptr_t>(state.host.data())));
    if (has_card) {
        state.copy = std::make_unique<transport>(state.copy_md);
        state.device =
            std::make_unique<device_buffer>(state.copy_md, ipc_peer_bytes);
        state.device_memh = std::make_unique<registration>(
            state.ipc_md, state.device->address, ipc_peer_bytes);
        tell_parent(to_hex(pack_key(state.ipc_md, state.device_memh->memh)) +
                    " " + std::to_string(state.device->remote()));
    } else {
        tell_parent("- 0");
    }

    while (const auto line = next_line(state)) {
        tell_parent(answer(state, *line));
    }

    if (state.back != nullptr) {
        uct_ep_destroy(state.back);
    }
    state.device_memh.reset();
    state.host_memh.reset();
    state.device.reset();
    state.copy.reset();
    state.ipc.reset();
    uct_md_close(state.ipc_md);
    if (has_card) {
        uct_md_close(state.copy_md);
    }
    for (const std::string &line : take_logs()) {
        std::fprintf(stderr, "%s\n", line.c_str());
    }
    return 0;
}

ipc_peer::ipc_peer(const child_options &options)
    : child_("ipc_peer_main", options)
{
    std::istringstream own(child_.read_line());
    std::string device;
    std::string iface;
    own >> device >> iface;
    address_ = {from_hex(device), from_hex(iface)};
    host_    = read_memory();
    device_  = read_memory();
}

ipc_peer::memory ipc_peer::read_memory()
{
    std::istringstream line(child_.read_line());
    memory read;
    std::string key;
    line >> key >> read.address;
    read.key = from_hex(key);
    return read;
}

std::string ipc_peer::ask(const std::string &line)
{
    child_.write_line(line);
    return child_.read_line();
}

void ipc_peer::fill(uint64_t seed)
{
    EXPECT_EQ("filled", ask("fill " + std::to_string(seed)));
}

bool ipc_peer::has(bool device, size_t offset, size_t size, uint64_t seed)
{
    std::ostringstream line;
    line << "has " << device << " " << offset << " " << size << " " << seed;
    return ask(line.str()) == "yes";
}

void ipc_peer::hold(const memory &what)
{
    EXPECT_EQ(
        ucs_status_string(UCS_INPROGRESS),
        ask("hold " + to_hex(what.key) + " " + std::to_string(what.address)));
}

void ipc_peer::let_go()
{
    EXPECT_EQ("free", ask("let_go"));
}

void ipc_peer::connect(const interface_address &to)
{
    EXPECT_EQ("connected",
              ask("connect " + to_hex(to.device) + " " + to_hex(to.iface)));
}

child_result ipc_peer::quit()
{
    child_.write_line("quit");
    return child_.wait();
}

uint64_t ipc_peer::moved_bytes()
{
    return std::stoull(ask("moved"));
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

void beside_a_peer::SetUp()
{
    load_module();
    collect_logs();
    take_logs();
    ASSERT_EQ(UCS_OK, open_md(copy_md));
    ASSERT_EQ(UCS_OK, open_md(ipc_md, {}, "gaudi_ipc"));
    copy = std::make_unique<transport>(copy_md);
    tl   = std::make_unique<transport>(ipc_md);
    peer = std::make_unique<ipc_peer>();
    ep   = tl->make_ep(peer->address());
    ASSERT_NE(nullptr, ep);
}

beside_a_peer::~beside_a_peer()
{
    if (ep != nullptr) {
        uct_ep_destroy(ep);
    }
    if (peer != nullptr) {
        const child_result result = peer->quit();
        EXPECT_EQ(0, result.exit_code) << result.error;
        EXPECT_EQ("", result.error);
    }
    tl.reset();
    copy.reset();
    for (uct_md_h md : {ipc_md, copy_md}) {
        if (md != nullptr) {
            uct_md_close(md);
        }
    }
    EXPECT_THAT(take_logs(), ::testing::IsEmpty());
}

void beside_a_peer::reopen()
{
    uct_ep_destroy(std::exchange(ep, nullptr));
    tl.reset();
    tl = std::make_unique<transport>(ipc_md);
}

void beside_a_peer::start(decltype(uct_ep_put_zcopy) operation, void *local,
                          size_t size, uint64_t remote, const unpacked_key &key,
                          uct_completion_t *done)
{
    const uct_iov_t iov{local, size, UCT_MEM_HANDLE_NULL, 0, 1};
    ASSERT_EQ(UCS_OK, key.status());
    ASSERT_EQ(UCS_INPROGRESS, operation(ep, &iov, 1, remote, key.rkey(), done));
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

} // namespace gaudi::test
