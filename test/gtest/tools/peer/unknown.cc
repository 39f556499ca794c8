#include "gtest/tools/peer/unknown.h"

#include "gtest/tools/peer/check.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace peer {

namespace {

constexpr int peer_fd = 3;
/* sizeof(gaudi::ipc::wire_key), by which its part of a key is known. */
constexpr size_t of_gaudi = 152;

/* Where gaudi_ipc's part of a packed key begins; its end where it has none. UCP
 * writes which memory domains there are, the type, and for each the length of
 * its part before it. */
size_t find_part(const std::vector<char> &key)
{
    uint64_t domains = 0;
    std::memcpy(&domains, key.data(), sizeof(domains));
    size_t at = sizeof(domains) + 1;
    for (; domains != 0; domains &= domains - 1) {
        const auto length = static_cast<unsigned char>(key[at]);
        if (length == of_gaudi) {
            return at + 1;
        }
        at += 1 + length;
    }
    return key.size();
}

std::vector<std::vector<description>>
damaged(const std::vector<description> &keys, size_t cuts)
{
    std::vector<std::vector<description>> result;
    const auto with = [&](auto &&change) {
        result.push_back(keys);
        for (description &piece : result.back()) {
            change(piece.key.data() + find_part(piece.key));
        }
    };
    if (find_part(keys.front().key) == keys.front().key.size()) {
        return result;
    }
    for (size_t i = 0; i < cuts; ++i) {
        const size_t kept = i * of_gaudi / cuts;
        with([&](char *part) { std::memset(part + kept, 0, of_gaudi - kept); });
        const size_t bit = i * (8 * of_gaudi) / cuts + i % 8;
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
    stranger other(mine.kind(), mine.how());
    const remote_cache before(to, other.described());
    require(before.status(), "ucp_ep_rkey_unpack");
    set_case("memory of a process that has ended");
    other.end();
    const remote_cache after(to, other.described());
    require(after.status(), "ucp_ep_rkey_unpack");
    expect_refused(to, mine, before);
    expect_refused(to, mine, after);
}

stranger::stranger(kind_of_memory kind, const shape &how)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        die("socketpair", std::strerror(errno));
    }
    socket_ = std::make_unique<channel>(ends[0]);
    const channel theirs(ends[1]);

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], peer_fd);
    std::string words[] = {"/proc/self/exe", "stranger", name_of(kind),
                           std::to_string(how.blocks),
                           std::to_string(how.size)};
    std::vector<char *> argv;
    for (std::string &word : words) {
        argv.push_back(word.data());
    }
    argv.push_back(nullptr);
    const int error =
        posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
        die("posix_spawn", std::strerror(error));
    }
    described_ = receive_descriptions(*socket_);
}

void stranger::end()
{
    if (pid_ > 0) {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    pid_ = 0;
}

stranger::~stranger()
{
    end();
}

void stranger::be(int fd, char **words)
{
    const channel socket(fd);
    const context framework;
    const agent of{agent_options{}};
    const auto gaudi = kind_of_memory::gaudi;
    cache mine(of, framework,
               (std::string(words[0]) == name_of(gaudi)) ? gaudi
                                                         : kind_of_memory::heap,
               {std::stoul(words[1]), std::stoul(words[2])});
    mine.add();
    mine.prepare(true);
    mine.describe(socket);
    char letter = 0;
    socket.receive(&letter, 1); /* until it is killed */
    _exit(0);
}

} // namespace peer
