/*
 * Remote keys in processes that fare badly: nothing may crash, and what cannot
 * be done is an error of the operation.
 *
 * usage: ucp_hardships client|server damage|stale|import|export
 *
 *   damage  the client unpacks keys that somebody has written into
 *   stale   it uses keys of memory that was freed
 *   import  it unpacks and uses keys without room for a file descriptor
 *   export  the server packs one so
 *
 * File descriptor 3 is a socket to the other side. The server has the memory.
 */
#include "gtest/tools/peer/check.h"
#include "gtest/tools/peer/memory.h"
#include "gtest/tools/peer/side.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

using namespace peer;

namespace {

constexpr int peer_fd           = 3;
constexpr unsigned life_s       = 80;
constexpr unsigned damaged_keys = 20'000;
constexpr size_t bytes          = 256ul << 10;
/* Each a block of the driver's, which has a dma-buf of its own. */
constexpr size_t block_size = 49ul << 20;
/* Of gaudi_ipc in a key of UCP: behind a byte with its length. */
constexpr size_t part_size = 200;
/* In that part, of the release that made it: others are out of reach. */
constexpr size_t version_offset = 20;

/* While there is one, this process gets no new descriptor. */
class no_new_descriptors {
public:
    no_new_descriptors()
    {
        getrlimit(RLIMIT_NOFILE, &before_);
        const rlimit none{3, before_.rlim_max};
        setrlimit(RLIMIT_NOFILE, &none);
    }
    ~no_new_descriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
    no_new_descriptors(const no_new_descriptors &)            = delete;
    no_new_descriptors &operator=(const no_new_descriptors &) = delete;

private:
    rlimit before_{};
};

class remote_key {
public:
    remote_key(side &end, const std::vector<char> &packed)
    {
        status = ucp_ep_rkey_unpack(end.ep(), packed.data(), &key_);
    }
    ~remote_key()
    {
        if (status == UCS_OK) {
            ucp_rkey_destroy(key_);
        }
    }
    remote_key(const remote_key &)            = delete;
    remote_key &operator=(const remote_key &) = delete;

    [[nodiscard]] ucp_rkey_h get() const { return key_; }

    ucs_status_t status;

private:
    ucp_rkey_h key_ = nullptr;
};

/* What the server has told of its memory. */
struct offer {
    uint64_t address = 0;
    std::vector<char> key;

    void send(const channel &socket) const
    {
        socket.send(&address, sizeof(address));
        socket.send_block(key.data(), key.size());
    }

    void receive(const channel &socket)
    {
        socket.receive(&address, sizeof(address));
        key = socket.receive_block();
    }
};

ucs_status_t get(side &end, const offer &from, const remote_key &key,
                 std::vector<char> &to)
{
    const ucp_request_param_t defaults{};
    to.assign(bytes, 0);
    ucs_status_ptr_t request = ucp_get_nbx(end.ep(), to.data(), bytes,
                                           from.address, key.get(), &defaults);
    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }
    ucs_status_t status;
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
        (void)end.of().progress();
    }
    ucp_request_free(request);
    return status;
}

void expect_bytes(side &end, const offer &from, const remote_key &key)
{
    std::vector<char> there;
    std::vector<char> right(bytes);
    fill(right.data(), bytes, 1);
    require(get(end, from, key, there), "ucp_get_nbx");
    if (there != right) {
        die("contents", "differ");
    }
}

/* The new protocols do it in another way. */
void expect_error(side &end, const offer &from, const remote_key &key)
{
    if (std::string(std::getenv("UCX_PROTO_ENABLE")) == "y") {
        expect_bytes(end, from, key);
        return;
    }
    std::vector<char> there;
    const ucs_status_t status = get(end, from, key, there);
    if (status != UCS_ERR_IO_ERROR) {
        die("a get without room", ucs_status_string(status));
    }
}

/* Where gaudi_ipc's part of a key is. */
size_t find_part(const std::vector<char> &key)
{
    const auto found =
        std::find(key.begin(), key.end(), static_cast<char>(part_size));
    if (key.end() - found <= static_cast<ptrdiff_t>(part_size)) {
        die("a key", "has no part of gaudi_ipc");
    }
    return static_cast<size_t>(found - key.begin()) + 1;
}

void use_damaged(side &end, const offer &from)
{
    std::mt19937 random(11);
    const size_t part              = find_part(from.key);
    std::vector<char> of_elsewhere = from.key;
    char &version                  = of_elsewhere[part + version_offset];
    version                        = static_cast<char>(version ^ 1);
    std::optional<remote_key> good;
    for (unsigned i = 0; i < damaged_keys; ++i) {
        std::vector<char> damaged = from.key;
        for (unsigned count = 1 + random() % 4; count > 0; --count) {
            char &byte = damaged[part + random() % part_size];
            byte       = static_cast<char>(byte ^ (1 + random() % 255));
        }
        /* One that is not unpacked leaves in UCP's memory what was there
         * before. With this one between them, that may be what the next good
         * key is now. */
        good.reset();
        {
            const remote_key unreachable(end, of_elsewhere);
            require(unreachable.status, "ucp_ep_rkey_unpack");
            good.emplace(end, from.key);
            require(good->status, "ucp_ep_rkey_unpack");
        }
        {
            const remote_key bad(end, damaged);
        }
        if (i % 16 == 0) {
            expect_bytes(end, from, *good);
        }
    }
}

void expect_stale(side &end, const offer &from, const remote_key &key)
{
    require(key.status, "ucp_ep_rkey_unpack");
    std::vector<char> there;
    const ucs_status_t status = get(end, from, key, there);
    if (status != UCS_ERR_REJECTED) {
        die("a get from freed memory", ucs_status_string(status));
    }
}

/* Unpacked before the memory is freed, and after. */
void use_stale(side &end, const channel &socket)
{
    offer freed;
    offer kept;
    freed.receive(socket);
    kept.receive(socket);
    const remote_key good(end, kept.key);
    expect_bytes(end, kept, good);
    const remote_key before(end, freed.key);
    char letter = 'f';
    socket.send(&letter, 1);
    socket.receive(&letter, 1);
    expect_stale(end, freed, before);
    expect_stale(end, freed, remote_key(end, freed.key));
    expect_bytes(end, kept, good);
}

/* The process that the key is of is not known yet, its buffer neither. */
void import_without_room(side &end, const offer &from)
{
    {
        const no_new_descriptors limit;
        const remote_key poor(end, from.key);
        require(poor.status, "ucp_ep_rkey_unpack");
        expect_error(end, from, poor);
    }
    const remote_key key(end, from.key);
    require(key.status, "ucp_ep_rkey_unpack");
    expect_bytes(end, from, key);
}

void be_client(const std::string &what, side &end, const channel &socket)
{
    offer from;
    if (what != "stale") {
        from.receive(socket);
    }
    if (what == "stale") {
        use_stale(end, socket);
    } else if (what == "damage") {
        use_damaged(end, from);
    } else if (what == "import") {
        import_without_room(end, from);
        /* The process is known, but not this buffer: the same key works when
         * there is room again. */
        from.receive(socket);
        std::optional<no_new_descriptors> limit(std::in_place);
        const remote_key key(end, from.key);
        require(key.status, "ucp_ep_rkey_unpack");
        expect_error(end, from, key);
        limit.reset();
        expect_bytes(end, from, key);
    } else {
        const remote_key poor(end, from.key);
        require(poor.status, "ucp_ep_rkey_unpack");
        expect_error(end, from, poor);
        from.receive(socket);
        const remote_key key(end, from.key);
        require(key.status, "ucp_ep_rkey_unpack");
        expect_bytes(end, from, key);
    }
    const char letter = 'q';
    socket.send(&letter, 1);
}

void be_server(const std::string &what, const context &common, worker &mine,
               const channel &socket)
{
    std::vector<char> right(bytes);
    fill(right.data(), bytes, 1);
    std::array<std::optional<memory>, 2> owned;
    for (auto &one : owned) {
        one.emplace(common, kind_of_memory::gaudi, block_size);
        one->store(0, right.data(), bytes);
    }
    const auto offer_of = [](const std::optional<memory> &one) {
        return offer{reinterpret_cast<uint64_t>(one->data()), one->pack_key()};
    };
    if (what == "export") {
        offer poor;
        {
            const no_new_descriptors limit;
            poor = offer_of(owned[0]);
        }
        poor.send(socket);
        offer_of(owned[0]).send(socket);
    } else {
        offer_of(owned[0]).send(socket);
        if (what != "damage") {
            offer_of(owned[1]).send(socket);
        }
    }
    char letter = 0;
    do {
        while (!socket.try_receive(letter)) {
            if (!mine.progress()) {
                std::this_thread::yield();
            }
        }
        if (letter == 'f') {
            owned[0].reset();
            socket.send(&letter, 1);
        }
    } while (letter == 'f');
}

} // namespace

int main(int argc, char **argv)
{
    alarm(life_s);
    set_case("the start");
    if (argc != 3) {
        die("usage", "ucp_hardships client|server damage|stale|import|export");
    }
    const bool is_client   = (std::string(argv[1]) == "client");
    const std::string what = argv[2];
    context common;
    worker mine(common, UCS_THREAD_MODE_SINGLE);
    const channel socket(peer_fd);
    const std::vector<char> address = mine.address();
    socket.send_block(address.data(), address.size());
    side end(mine, 0, socket.receive_block());
    if (is_client) {
        be_client(what, end, socket);
    } else {
        be_server(what, common, mine, socket);
    }
    operation closing = end.close();
    finish(closing, {&mine});
    std::puts(is_client ? "all borne" : "all given");
    return 0;
}
