/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/tools/peer/unknown.h"

#include "gtest/tools/peer/check.h"

#include <cstring>
#include <string>

#include <unistd.h>

namespace peer {

namespace {

std::vector<std::vector<description>>
damaged(const std::vector<description> &keys, size_t cuts)
{
    std::vector<std::vector<description>> result;
    const auto with = [&](auto &&change) {
        result.push_back(keys);
        for (description &piece : result.back()) {
            change(piece.key.data() + find_gaudi_part(piece.key));
        }
    };
    if (find_gaudi_part(keys.front().key) == keys.front().key.size()) {
        return result;
    }
    for (size_t i = 0; i < cuts; ++i) {
        const size_t kept = i * gaudi_part_size / cuts;
        with([&](char *part) {
            std::memset(part + kept, 0, gaudi_part_size - kept);
        });
        const size_t bit = i * (8 * gaudi_part_size) / cuts + i % 8;
        with([&](char *part) {
            part[bit / 8] = static_cast<char>(part[bit / 8] ^ (1 << (bit % 8)));
        });
    }
    return result;
}

} // namespace

void expect_refused(connection &to, const cache &mine,
                    const remote_cache &theirs)
{
    transfer going(to, 0);
    if (going.run(direction::put, list_of(mine, theirs)) == UCS_OK) {
        die("a list", "is not refused");
    }
}

void try_damaged(const connection &to, const std::vector<description> &keys,
                 size_t cuts)
{
    size_t refused = 0;
    const auto bad = damaged(keys, cuts);
    for (const std::vector<description> &some : bad) {
        set_case("damage " + std::to_string(&some - bad.data()));
        refused += (remote_cache(to, some).status() != UCS_OK) ? 1 : 0;
    }
    if (refused == 0) {
        die("keys", "are damaged, and believed");
    }
}

void try_stranger(connection &to, const cache &mine)
{
    set_case("memory of a stranger");
    another_process other({"stranger", name_of(mine.kind()),
                           std::to_string(mine.how().blocks),
                           std::to_string(mine.how().size)});
    const auto described = receive_descriptions(other.socket());
    const remote_cache before(to, described);
    require(before.status(), "ucp_ep_rkey_unpack");
    set_case("memory of a process that has ended");
    other.end();
    const remote_cache after(to, described);
    require(after.status(), "ucp_ep_rkey_unpack");
    expect_refused(to, mine, before);
    expect_refused(to, mine, after);
}

void be_stranger(char **words)
{
    const channel socket(peer_fd);
    const context framework;
    const agent of{agent_options{}};
    const auto gaudi = kind_of_memory::gaudi;
    cache mine(of, framework,
               (std::string(words[1]) == name_of(gaudi)) ? gaudi
                                                         : kind_of_memory::heap,
               {std::stoul(words[2]), std::stoul(words[3])});
    mine.add();
    mine.prepare(true);
    mine.describe(socket);
    (void)socket.hear(); /* until it is killed */
    _exit(0);
}

} // namespace peer
