/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One operation between two processes, in one of which something goes wrong:
 * it ends with the right bytes or with an error, and soon.
 *
 * usage: ucp_faults client|server tag|put|get BYTES HERE THERE
 *                   MOMENT FAULTS
 *
 *   HERE, THERE  memory of the client and of the server: gaudi, heap, or plain,
 *                which UCP is told nothing of
 *   MOMENT       when FAULTS are wished for: before keys are made, or before
 *                the operation
 *   FAULTS       of this side, as HLTHUNK_EMU_FAULTS has them; or
 *                deny=CALL, a system call that is forbidden; or "-"
 *
 * File descriptor 3 is a socket to the other side. The client puts, gets or
 * sends. Whoever has lost the other side, or hears that it failed, waits no
 * longer: UCP tells the peer of a rendezvous nothing.
 */
#include "common/denial.h"
#include "hlthunk_emulator/hlthunk_emu.h"
#include "gtest/tools/peer/check.h"
#include "gtest/tools/peer/memory.h"
#include "gtest/tools/peer/side.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <sys/syscall.h>
#include <unistd.h>

using namespace peer;
using namespace std::chrono_literals;

namespace {

using time_point = std::chrono::steady_clock::time_point;

constexpr unsigned life_s = 60;
/* Nothing here takes as long as that, unless it hangs. */
constexpr auto patience = 25s;
/* For what is on its way when the other side fails. */
constexpr auto grace = 500ms;
/* Messages that UCP does not stage, bytes. */
constexpr size_t longest_eager   = 20'000;
constexpr unsigned sent_seed     = 1;
constexpr unsigned received_seed = 2;

time_point now()
{
    return std::chrono::steady_clock::now();
}

struct settings {
    bool is_client;
    std::string what;
    size_t bytes;
    std::string own;
    bool before_keys;
    std::string faults;
};

/* Have a system call of this process answered with EPERM. */
void deny(const std::string &name)
{
    static const std::map<std::string, uint32_t> numbers = {
        {"process_vm_readv", SYS_process_vm_readv},
        {"process_vm_writev", SYS_process_vm_writev},
        {"sendmsg", SYS_sendmsg},
        {"recvmsg", SYS_recvmsg}};
    if (gaudi::test::deny_system_call(numbers.at(name)) != 0) {
        die("seccomp", std::strerror(errno));
    }
}

kind_of_memory kind_of(const std::string &name)
{
    return (name == "gaudi") ? kind_of_memory::gaudi : kind_of_memory::heap;
}

class player {
public:
    player(const settings &of, context &common, worker &mine,
           const channel &socket)
        : of_(of), common_(common), mine_(mine), socket_(socket),
          owned_(common, kind_of(of.own), of.bytes + 2 * guard, 0,
                 of.own == "plain"),
          place_{owned_, guard, of.bytes, true}
    {
        prepare(place_, is_source() ? sent_seed : received_seed);
    }

    void connect(const std::vector<char> &address)
    {
        /* UCX's shared memory has none. */
        const std::string list = std::getenv("UCX_TLS");
        const bool notices     = (list.find("ipc") != std::string::npos) ||
                             (list.find("tcp") != std::string::npos);
        /* With a handler UCP ends no process. */
        const auto ignore = [](void *, ucp_ep_h, ucs_status_t) {};
        require(peer::connect(mine_, address, notices, {ignore, nullptr}, ep_),
                "ucp_ep_create");
        char letter = 'w';
        const ucp_request_param_t defaults{};
        ucs_status_ptr_t requests[] = {
            ucp_tag_recv_nbx(mine_.get(), &letter, 1, 7, UINT64_MAX, &defaults),
            ucp_tag_send_nbx(ep_, &letter, 1, 7, &defaults)};
        for (ucs_status_ptr_t request : requests) {
            finish(request, "warming up", {&mine_});
        }
    }

    /* @return How it went here; UCS_INPROGRESS when it was given up. */
    ucs_status_t play()
    {
        wish(of_.before_keys);
        if (of_.what == "tag") {
            if (!meet()) {
                return UCS_ERR_CANCELED;
            }
            wish(!of_.before_keys);
            return wait(of_.is_client
                            ? ucp_tag_send_nbx(ep_, place_.data(), of_.bytes, 1,
                                               &parameters_)
                            : ucp_tag_recv_nbx(mine_.get(), place_.data(),
                                               of_.bytes, 1, UINT64_MAX,
                                               &parameters_));
        }
        if (!of_.is_client) {
            offer();
            if (!meet()) {
                return UCS_ERR_CANCELED;
            }
            wish(!of_.before_keys);
            return (await() == 'y') ? UCS_OK : UCS_ERR_CANCELED;
        }
        if (await() != 'k') {
            return UCS_ERR_CANCELED;
        }
        heard_.reset();
        const description there = description::receive(socket_);
        ucp_rkey_h unpacked     = nullptr;
        const ucs_status_t status =
            there.key.empty()
                ? UCS_ERR_UNREACHABLE
                : ucp_ep_rkey_unpack(ep_, there.key.data(), &unpacked);
        if (!meet()) {
            return UCS_ERR_CANCELED;
        }
        wish(!of_.before_keys);
        return (status == UCS_OK) ? use(unpacked, there.address) : status;
    }

    /* Say how it went, and hear it from the other side. */
    char agree(ucs_status_t status)
    {
        socket_.whisper((status != UCS_OK)       ? 'n'
                        : has_unnoticed_faults() ? 'f'
                                                 : 'y');
        return await();
    }

    /* UCP ignores how copies go by which it unpacks messages, and those by
     * which it stages long ones. */
    [[nodiscard]] bool has_unnoticed_faults() const
    {
        return (of_.what == "tag") && (hlthunk_emu_faults_met() > 0) &&
               (!is_source() || (of_.bytes > longest_eager));
    }

    void check(bool may_be_lost) const
    {
        (void)hlthunk_emu_fault(nullptr);
        if (may_be_lost && (owned_.kind() == kind_of_memory::gaudi) &&
            (hlthunk_emu_faults_met() > 0)) {
            return; /* with the card */
        }
        expect(place_, sent_seed, received_seed);
    }

    [[nodiscard]] bool is_source() const
    {
        return (of_.what == "get") ? !of_.is_client : of_.is_client;
    }

    /* @return Whether nothing is left that would keep UCP from closing. */
    bool close()
    {
        return end_of(disconnect(ep_, true), mine_, grace * 4) !=
               UCS_INPROGRESS;
    }

private:
    void wish(bool is_time) const
    {
        const std::string denial = "deny=";
        if (!is_time || (of_.faults == "-")) {
            return;
        }
        if (of_.faults.starts_with(denial)) {
            deny(of_.faults.substr(denial.size()));
        } else if (hlthunk_emu_fault(of_.faults.c_str()) != 0) {
            die("faults", of_.faults);
        }
    }

    void offer()
    {
        description here{reinterpret_cast<uint64_t>(place_.data()), {}};
        void *key   = nullptr;
        size_t size = 0;
        if (ucp_rkey_pack(common_.get(), owned_.handle(), &key, &size) ==
            UCS_OK) {
            const char *bytes = static_cast<char *>(key);
            here.key.assign(bytes, bytes + size);
            ucp_rkey_buffer_release(key);
        }
        socket_.whisper('k');
        here.send(socket_);
    }

    /* Both are there, or one is gone. */
    bool meet()
    {
        socket_.whisper('m');
        const bool met = (await() != 0);
        if (met) {
            heard_.reset();
        }
        return met;
    }

    /* What the other side says next. */
    char await()
    {
        const time_point start = now();
        while (!heard_.has_value()) {
            mine_.step();
            heard_ = socket_.listen();
            if (now() - start > patience) {
                die("the other side", "says nothing");
            }
        }
        return *heard_;
    }

    ucs_status_t use(ucp_rkey_h key, uint64_t address)
    {
        const ucs_status_t status = wait(
            (of_.what == "put") ? ucp_put_nbx(ep_, place_.data(), of_.bytes,
                                              address, key, &parameters_)
                                : ucp_get_nbx(ep_, place_.data(), of_.bytes,
                                              address, key, &parameters_));
        const ucp_request_param_t defaults{};
        const ucs_status_t flushed =
            (status == UCS_OK) ? wait(ucp_ep_flush_nbx(ep_, &defaults))
                               : status;
        ucp_rkey_destroy(key);
        return flushed;
    }

    ucs_status_t wait(ucs_status_ptr_t request)
    {
        if (!UCS_PTR_IS_PTR(request)) {
            return UCS_PTR_STATUS(request);
        }
        const time_point start = now();
        ucs_status_t status    = UCS_INPROGRESS;
        while ((status == UCS_INPROGRESS) && !heard_.has_value()) {
            status = end_of(request, mine_, 5ms);
            if (status == UCS_INPROGRESS) {
                heard_ = socket_.listen();
            }
            if (now() - start > patience) {
                die("the operation", "hangs");
            }
        }
        return (status == UCS_INPROGRESS) ? end_of(request, mine_, grace)
                                          : status;
    }

    const settings &of_;
    const context &common_;
    worker &mine_;
    const channel &socket_;
    memory owned_;
    slot place_;
    ucp_request_param_t parameters_ = parameters_for(place_);
    ucp_ep_h ep_                    = nullptr;
    std::optional<char> heard_;
};

} // namespace

int main(int argc, char **argv)
{
    start_program(life_s);
    if (argc != 8) {
        die("usage", "ucp_faults client|server tag|put|get BYTES HERE THERE "
                     "keys|operation FAULTS");
    }
    const bool is_client = (std::string(argv[1]) == "client");
    const settings of{is_client,
                      argv[2],
                      std::strtoul(argv[3], nullptr, 0),
                      is_client ? argv[4] : argv[5],
                      std::string(argv[6]) == "keys",
                      argv[7]};
    set_case(of.what + " " + argv[3]);
    const char *const losses[] = {"reset", "kill", "lose", "remove"};
    const bool may_be_lost     = std::any_of(
            std::begin(losses), std::end(losses), [&](const char *loss) {
            return of.faults.find(loss) != std::string::npos;
        });
    context common;
    worker mine(common, UCS_THREAD_MODE_SINGLE);
    const channel socket(peer_fd);
    const std::vector<char> others = socket.exchange(mine.address());
    player here(of, common, mine, socket);
    here.connect(others);
    const ucs_status_t status = here.play();
    const char heard          = here.agree(status);
    const bool good           = (of.what == "tag") ? (status == UCS_OK)
                                                   : ((status == UCS_OK) &&
                                            (is_client || (heard == 'y')));
    if (good && !here.is_source() && !here.has_unnoticed_faults() &&
        (heard != 'f')) {
        here.check(may_be_lost);
    }
    std::printf("%s: %s\n", good ? "done" : "failed",
                ucs_status_string(status));
    std::fflush(stdout);
    if (!here.close() || (status == UCS_INPROGRESS)) {
        _exit(0);
    }
    return 0;
}
