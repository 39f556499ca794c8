/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts of device memory, a fence, and a put of a flag in host memory, round by
 * round: whoever sees the flag has to see the bytes.
 *
 * usage: ucp_peer client|server order ROUNDS SIZE PIECES
 *
 * File descriptor 3 is a socket to the other side. The server has the memory,
 * and polls the flag with the CPU. SIZE bytes are put in so many operations.
 */
#include "gtest/tools/peer/check.h"
#include "gtest/tools/peer/kinds.h"
#include "gtest/tools/peer/programs.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <string>

using namespace peer;

namespace {

constexpr unsigned life_s   = 60;
constexpr size_t looked_at  = 512; /* bytes at the end of the data */
constexpr size_t flag_bytes = sizeof(uint64_t);

struct order {
    unsigned rounds;
    size_t size;
    size_t pieces;
};

void watch(const order &how, meeting &here)
{
    memory data(here.common, kind_of_memory::gaudi, how.size);
    memory flag(here.common, kind_of_memory::host, flag_bytes);
    auto &word = *reinterpret_cast<uint64_t *>(flag.data());
    std::atomic_ref(word).store(0);
    data.describe().send(here.socket);
    flag.describe().send(here.socket);
    const size_t part = std::min(how.size, looked_at);
    unsigned early    = 0;
    for (unsigned round = 1; round <= how.rounds; ++round) {
        set_case("round " + std::to_string(round));
        while (std::atomic_ref(word).load() != round) {
            here.mine.step();
        }
        std::vector<char> there(part);
        data.load(how.size - part, there.data(), part);
        early += (there != bytes_of(round, part)) ? 1 : 0;
        here.socket.say('n');
    }
    await_letter(here.mine, here.socket);
    std::printf("the flag came before the data in %u of %u rounds\n", early,
                how.rounds);
}

void put(const order &how, meeting &here)
{
    const ucp_request_param_t defaults{};
    const ucp_ep_h ep = here.end.ep();
    const remote_memory data(ep, description::receive(here.socket));
    const remote_memory flag(ep, description::receive(here.socket));
    memory from(here.common, kind_of_memory::gaudi, how.size);
    const size_t piece = how.size / how.pieces;
    const size_t part  = std::min(how.size, looked_at);
    for (uint64_t round = 1; round <= how.rounds; ++round) {
        set_case("round " + std::to_string(round));
        from.store(how.size - part,
                   bytes_of(static_cast<unsigned>(round), part).data(), part);
        std::vector<operation> all;
        for (size_t i = 0; i < how.pieces; ++i) {
            all.emplace_back(ucp_put_nbx(ep, from.data() + i * piece, piece,
                                         data.address() + i * piece, data.key(),
                                         &defaults),
                             "ucp_put_nbx of data");
        }
        require(ucp_worker_fence(here.mine.get()), "ucp_worker_fence");
        all.emplace_back(ucp_put_nbx(ep, &round, flag_bytes, flag.address(),
                                     flag.key(), &defaults),
                         "ucp_put_nbx of a flag");
        for (operation &each : all) {
            finish(each, {&here.mine});
        }
        await_letter(here.mine, here.socket);
        finish(ucp_ep_flush_nbx(ep, &defaults), "ucp_ep_flush_nbx",
               {&here.mine});
    }
    here.socket.say('q');
    std::puts("all put");
}

} // namespace

int peer::run_order(int argc, char **argv)
{
    start_program(life_s);
    if (argc != 5) {
        die("order", "has other arguments");
    }
    const order how{.rounds = static_cast<unsigned>(std::stoul(argv[2])),
                    .size   = std::stoul(argv[3]),
                    .pieces = std::stoul(argv[4])};
    meeting here;
    (argv[0] == std::string("client") ? put : watch)(how, here);
    here.part();
    return 0;
}
