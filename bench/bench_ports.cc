/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Short writes over the ports of two cards, in time of the CPU that posts them:
 * beside put_short of gaudi_copy, which is over when it returns.
 */
#include "hlthunk_shim/cards/driver.h"
#include "hlthunk_shim/memory.h"
#include "hlthunk_shim/ports/connection.h"

#include <benchmark/benchmark.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <utility>

namespace {

namespace shim = gaudi::shim;

double cpu_seconds()
{
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) +
           static_cast<double>(now.tv_nsec) * 1e-9;
}

/* Two cards, one of which writes to the other. */
class linked_cards {
public:
    static linked_cards &instance()
    {
        static auto *opened = new linked_cards;
        return *opened;
    }

    void post()
    {
        require(from_.connection->post(to_.host.address(), from_.host.address(),
                                       8, nullptr) == 0,
                "posting");
    }

    void collect()
    {
        std::array<shim::dma_completion, 64> ended;
        while (from_.connection->outstanding() > 0) {
            (void)from_.connection->poll(ended.data(), ended.size());
        }
    }

private:
    struct side {
        std::unique_ptr<shim::card> card;
        shim::pinned_buffer host;
        std::unique_ptr<shim::port_device> ports;
        std::unique_ptr<shim::connection> connection;
    };

    linked_cards()
        : driver_(GAUDI_BUILD_DIR "/lib/hlthunk-emu/libhl-thunk.so"),
          verbs_(driver_.lib())
    {
        require(verbs_.reason().empty(), verbs_.reason());
        open(2, from_);
        open(3, to_);
        for (auto [own, peer] :
             {std::pair(&from_, &to_), std::pair(&to_, &from_)}) {
            require_none(shim::connection::open(
                *own->ports, peer->card->module_id(), {}, own->connection));
        }
        require_none(to_.connection->connect(from_.connection->offer()));
        require_none(from_.connection->connect(to_.connection->offer()));
    }

    static void require(bool holds, const std::string &what)
    {
        if (!holds) {
            std::fprintf(stderr, "ports: %s\n", what.c_str());
            std::exit(EXIT_FAILURE);
        }
    }
    static void require_none(const std::string &fault)
    {
        require(fault.empty(), fault);
    }

    void open(unsigned number, side &made)
    {
        char bus_id[shim::bus_id_size] = {};
        const shim::library &lib       = driver_.lib();
        const int control =
            lib.hlthunk_open_control(static_cast<int>(number), nullptr);
        require((control >= 0) && (lib.hlthunk_get_pci_bus_id_from_fd(
                                       control, bus_id, sizeof(bus_id)) == 0),
                "identifying a card");
        lib.hlthunk_close(control);
        require(driver_.open(bus_id, made.card) == 0, "opening a card");
        require(shim::pinned_buffer::create(*made.card, 4096, made.host) == 0,
                "pinning");
        require_none(shim::port_device::open(lib, verbs_, *made.card, number,
                                             made.ports));
    }

    shim::driver driver_;
    shim::verbs_library verbs_;
    side from_;
    side to_;
};

constexpr unsigned batch = 64;

/* collected  Count that, too. */
template <bool collected>
void post_over_ports(benchmark::State &state)
{
    linked_cards &cards = linked_cards::instance();
    for (auto _ : state) {
        const double start = cpu_seconds();
        for (unsigned i = 0; i < batch; ++i) {
            cards.post();
        }
        double end = cpu_seconds();
        cards.collect();
        end = collected ? cpu_seconds() : end;
        state.SetIterationTime((end - start) / batch);
    }
}

} // namespace

BENCHMARK(post_over_ports<false>)
    ->Name("post_over_ports")
    ->UseManualTime()
    ->Iterations(500);
BENCHMARK(post_over_ports<true>)
    ->Name("post_and_collect_over_ports")
    ->UseManualTime()
    ->Iterations(500);
