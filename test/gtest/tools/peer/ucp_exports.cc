/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buffers that one process allocates, exports and frees, one after another, and
 * that another one writes and reads meanwhile. Both look at the bytes, and at
 * what they have open, mapped and resident.
 *
 * usage: ucp_peer client|server exports COUNT
 *        ucp_peer alone exports COUNT SIZE
 *
 * File descriptor 3 is a socket to the other side. The server allocates. The
 * last one sends each buffer's end to itself, and frees a buffer before it
 * allocates the next one.
 */
#include "gtest/tools/peer/check.h"
#include "gtest/tools/peer/counts.h"
#include "gtest/tools/peer/kinds.h"
#include "gtest/tools/peer/programs.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <iterator>
#include <string>

using namespace peer;

namespace {

constexpr unsigned life_s = 550;
/* Most are parts of one block of the driver; some are a block of their own. */
constexpr size_t sizes[]         = {4096, 64, 70000, 8192, 300000, 512, 20480};
constexpr size_t block_size      = 49ul << 20;
constexpr unsigned block_every   = 50;
constexpr size_t kept            = 5;    /* alive at a time, at the exporter */
constexpr size_t looked_at       = 2048; /* bytes of a buffer, at most */
constexpr size_t message_size    = 1ul << 20;
constexpr unsigned seeds         = 1000;
constexpr ptrdiff_t more_files   = 4;
constexpr ptrdiff_t more_maps    = 40;
constexpr size_t more_memory_kib = 24 * 1024;

/* Looks after the first quarter, and at the end. */
class watcher {
public:
    explicit watcher(unsigned total) : total_(total) {}

    void look(unsigned done)
    {
        if (done == total_ / 4) {
            before_ = count();
        } else if (done == total_) {
            const counts now = count();
            std::printf("files %td then %td, mappings %td then %td, memory %zu "
                        "then %zu KiB\n",
                        before_.files, now.files, before_.mappings,
                        now.mappings, before_.resident_kib, now.resident_kib);
            if ((now.files > before_.files + more_files) ||
                (now.mappings > before_.mappings + more_maps) ||
                (now.resident_kib > before_.resident_kib + more_memory_kib)) {
                std::fflush(stdout);
                die("files, mappings or memory", "are more and more");
            }
        }
    }

private:
    unsigned total_;
    counts before_{};
};

/* What of a buffer is looked at: its last bytes. */
size_t part_of(size_t size)
{
    return std::min(size, looked_at);
}

/* The one to be looked at after so many rounds, on both sides. */
size_t size_of(unsigned round)
{
    return ((round % block_every) == block_every - 1)
               ? block_size
               : sizes[round % std::size(sizes)];
}

unsigned seed_of(unsigned round)
{
    return 1 + round % seeds;
}

void export_buffers(unsigned total, meeting &here)
{
    watcher watch(total);
    std::deque<memory> alive;
    for (unsigned i = 0; i < total; ++i) {
        set_case("buffer " + std::to_string(i));
        const size_t size = size_of(i);
        const size_t part = part_of(size);
        if (alive.size() == kept) {
            alive.pop_front();
        }
        memory &now =
            alive.emplace_back(here.common, kind_of_memory::gaudi, size);
        now.store(size - part, bytes_of(seed_of(i), part).data(), part);
        now.describe().send(here.socket);
        await_letter(here.mine, here.socket);
        std::vector<char> there(part);
        now.load(size - part, there.data(), part);
        expect_bytes(there, seed_of(i) + 1);
        watch.look(i + 1);
    }
    here.socket.say('q');
}

void use_buffers(unsigned total, meeting &here)
{
    watcher watch(total);
    const ucp_request_param_t defaults{};
    const ucp_ep_h ep = here.end.ep();
    for (unsigned i = 0; i < total; ++i) {
        set_case("buffer " + std::to_string(i));
        {
            const remote_memory buffer(ep, description::receive(here.socket));
            const size_t part    = part_of(size_of(i));
            const uint64_t place = buffer.address() + size_of(i) - part;
            std::vector<char> there(part);
            finish(ucp_get_nbx(ep, there.data(), part, place, buffer.key(),
                               &defaults),
                   "ucp_get_nbx", {&here.mine});
            expect_bytes(there, seed_of(i));
            there = bytes_of(seed_of(i) + 1, part);
            finish(ucp_put_nbx(ep, there.data(), part, place, buffer.key(),
                               &defaults),
                   "ucp_put_nbx", {&here.mine});
            finish(ucp_ep_flush_nbx(ep, &defaults), "ucp_ep_flush_nbx",
                   {&here.mine});
        }
        here.socket.say('n');
        watch.look(i + 1);
    }
    await_letter(here.mine, here.socket);
}

/* UCP registers what it sends, makes a key of it, and keeps both. */
void send_to_oneself(unsigned total, size_t size)
{
    context common;
    worker mine(common, UCS_THREAD_MODE_SINGLE);
    side end(mine, 0, mine.address());
    const ucp_request_param_t defaults{};
    constexpr ucp_tag_t tag = 5;
    for (unsigned i = 0; i < total; ++i) {
        set_case("buffer " + std::to_string(i));
        memory buffer(common, kind_of_memory::gaudi, size);
        const std::vector<char> sent = bytes_of(seed_of(i), message_size);
        buffer.store(size - message_size, sent.data(), message_size);
        std::vector<char> came(message_size);
        operation coming(ucp_tag_recv_nbx(mine.get(), came.data(), came.size(),
                                          tag, ~ucp_tag_t{0}, &defaults),
                         "ucp_tag_recv_nbx");
        finish(ucp_tag_send_nbx(end.ep(), buffer.data() + size - message_size,
                                message_size, tag, &defaults),
               "ucp_tag_send_nbx", {&mine});
        finish(coming, {&mine});
        expect_bytes(came, seed_of(i));
    }
    finish(end.close(), {&mine});
    std::puts("all sent");
}

} // namespace

int peer::run_exports(int argc, char **argv)
{
    start_program(life_s);
    const std::string role = argv[0];
    if (argc != ((role == "alone") ? 4 : 3)) {
        die("exports", "has other arguments");
    }
    const auto total = static_cast<unsigned>(std::stoul(argv[2]));
    if (role == "alone") {
        send_to_oneself(total, std::stoul(argv[3]));
        return 0;
    }
    meeting here;
    (role == "client" ? use_buffers : export_buffers)(total, here);
    here.part();
    std::puts(role == "client" ? "all used" : "all exported");
    return 0;
}
