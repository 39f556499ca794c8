/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Remote keys in processes that fare badly: nothing may crash, and what cannot
 * be done is an error of the operation.
 *
 * usage: ucp_hardships client|server damage|stale|room
 *
 *   damage  the client unpacks keys that somebody has written into
 *   stale   it uses keys of memory that was freed
 *   room    it unpacks and uses keys without room for a file descriptor
 *
 * File descriptor 3 is a socket to the other side. The server has the memory.
 */
#include "gtest/tools/peer/check.h"
#include "gtest/tools/peer/kinds.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <sys/resource.h>

using namespace peer;

namespace {

constexpr unsigned life_s       = 80;
constexpr unsigned damaged_keys = 20'000;
constexpr size_t bytes          = 256ul << 10;
/* Each a block of the driver's of its own. */
constexpr size_t block_size = 49ul << 20;
/* In gaudi_ipc's part of a key, of the release that made it: others are out of
 * reach. */
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

ucs_status_t get(side &end, const remote_memory &from, std::vector<char> &to)
{
    const ucp_request_param_t defaults{};
    to.assign(bytes, 0);
    return end_of(ucp_get_nbx(end.ep(), to.data(), bytes, from.address(),
                              from.key(), &defaults),
                  end.of());
}

void expect_bytes(side &end, const remote_memory &from)
{
    std::vector<char> there;
    require(get(end, from, there), "ucp_get_nbx");
    peer::expect_bytes(there, 1);
}

/* The new protocols do it in another way. */
void expect_error(side &end, const remote_memory &from)
{
    if (std::string(std::getenv("UCX_PROTO_ENABLE")) == "y") {
        expect_bytes(end, from);
        return;
    }
    std::vector<char> there;
    const ucs_status_t status = get(end, from, there);
    if (status != UCS_ERR_IO_ERROR) {
        die("a get without room", ucs_status_string(status));
    }
}

void use_damaged(side &end, const description &from)
{
    std::mt19937 random(11);
    const size_t part = find_gaudi_part(from.key);
    if (part == from.key.size()) {
        die("a key", "has no part of gaudi_ipc");
    }
    description of_elsewhere = from;
    char &version            = of_elsewhere.key[part + version_offset];
    version                  = static_cast<char>(version ^ 1);
    std::optional<remote_memory> good;
    for (unsigned i = 0; i < damaged_keys; ++i) {
        description damaged = from;
        for (unsigned count = 1 + random() % 4; count > 0; --count) {
            char &byte = damaged.key[part + random() % gaudi_part_size];
            byte       = static_cast<char>(byte ^ (1 + random() % 255));
        }
        /* One that is not unpacked leaves in UCP's memory what was there
         * before. With this one between them, that may be what the next good
         * key is now. */
        good.reset();
        {
            const remote_memory unreachable(end.ep(), of_elsewhere);
            require(unreachable.status(), "ucp_ep_rkey_unpack");
            good.emplace(end.ep(), from);
            require(good->status(), "ucp_ep_rkey_unpack");
        }
        {
            const remote_memory bad(end.ep(), damaged);
        }
        if (i % 16 == 0) {
            expect_bytes(end, *good);
        }
    }
}

void expect_stale(side &end, const remote_memory &from)
{
    std::vector<char> there;
    const ucs_status_t status = get(end, from, there);
    if (status != UCS_ERR_REJECTED) {
        die("a get from freed memory", ucs_status_string(status));
    }
}

/* Unpacked before the memory is freed, and after. */
void use_stale(side &end, const channel &socket)
{
    const description freed = description::receive(socket);
    const remote_memory good(end.ep(), description::receive(socket));
    expect_bytes(end, good);
    const remote_memory before(end.ep(), freed);
    require(before.status(), "ucp_ep_rkey_unpack");
    socket.say('f');
    (void)socket.hear();
    expect_stale(end, before);
    expect_stale(end, remote_memory(end.ep(), freed));
    expect_bytes(end, good);
}

/* The process that the key is of is not known yet. */
void use_without_room(side &end, const channel &socket)
{
    const description from = description::receive(socket);
    {
        const no_new_descriptors limit;
        expect_error(end, remote_memory(end.ep(), from));
    }
    expect_bytes(end, remote_memory(end.ep(), from));

    /* It is known: its next key needs no descriptor. */
    const description other = description::receive(socket);
    const no_new_descriptors limit;
    expect_bytes(end, remote_memory(end.ep(), other));
}

void be_client(const std::string &what, side &end, const channel &socket)
{
    if (what == "stale") {
        use_stale(end, socket);
    } else if (what == "damage") {
        use_damaged(end, description::receive(socket));
    } else {
        use_without_room(end, socket);
    }
    socket.say('q');
}

void be_server(const std::string &what, const context &common, worker &mine,
               const channel &socket)
{
    const std::vector<char> right = bytes_of(1, bytes);
    std::array<std::optional<memory>, 2> owned;
    for (auto &one : owned) {
        one.emplace(common, kind_of_memory::gaudi, block_size);
        one->store(0, right.data(), bytes);
    }
    owned[0]->describe().send(socket);
    if (what != "damage") {
        owned[1]->describe().send(socket);
    }
    while (await_letter(mine, socket) == 'f') {
        owned[0].reset();
        socket.say('f');
    }
}

} // namespace

int main(int argc, char **argv)
{
    start_program(life_s);
    if (argc != 3) {
        die("usage", "ucp_hardships client|server damage|stale|room");
    }
    const bool is_client = (std::string(argv[1]) == "client");
    meeting here;
    if (is_client) {
        be_client(argv[2], here.end, here.socket);
    } else {
        be_server(argv[2], here.common, here.mine, here.socket);
    }
    here.part();
    std::puts(is_client ? "all borne" : "all given");
    return 0;
}
