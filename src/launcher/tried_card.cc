/* SPDX-License-Identifier: BSD-3-Clause */
#include "launcher/tried_card.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

namespace launcher {

namespace {

namespace shim = gaudi::shim;
using clock    = std::chrono::steady_clock;

/* Between two tries to open a card in reset. */
constexpr std::chrono::milliseconds pause_of_reset{20};

} // namespace

void must_succeed(int result)
{
    if (result != 0) {
        fail_step((result == -ENODEV) ? "the card was reset, or is gone"
                                      : std::strerror(-result));
    }
}

void must_be_there(int result, const char *otherwise)
{
    if (result == -EOPNOTSUPP) {
        end_step(verdict::absent, otherwise);
    }
    must_succeed(result);
}

void must_hold(bool holds, const std::string &otherwise)
{
    if (!holds) {
        fail_step(otherwise);
    }
}

bool is_by_synapse(const subject &with)
{
    return driver_of(with).used() == shim::engine::synapse;
}

void must_not_be_by_synapse(const subject &with, const char *otherwise)
{
    if (is_by_synapse(with)) {
        end_step(verdict::absent, otherwise);
    }
}

std::vector<char> pattern(size_t size, unsigned seed)
{
    std::vector<char> text(size);
    for (size_t i = 0; i < size; ++i) {
        text[i] = static_cast<char>(i * 131 + (i >> 8) * 7 + seed * 89ul + 1);
    }
    return text;
}

void require_same(const char *data, const std::vector<char> &text)
{
    const auto [expected, seen] = std::mismatch(text.begin(), text.end(), data);
    if (expected != text.end()) {
        char why[100];
        std::snprintf(
            why, sizeof(why), "byte %td of %zu is %#04x, and should be %#04x",
            seen - data, text.size(), *seen & 0xffu, *expected & 0xffu);
        fail_step(why);
    }
}

std::string to_decimal(double value)
{
    char text[32];
    std::snprintf(text, sizeof(text), "%.1f", value);
    return text;
}

const shim::driver &driver_of(const subject &with)
{
    static const shim::driver loaded(with.found->driver_file,
                                     with.found->driver_options);
    if (!loaded.reason().empty()) {
        end_step(verdict::failed, loaded.reason(), true);
    }
    return loaded;
}

tried_card::tried_card(const subject &with, const std::string &bus_id,
                       const shim::driver &driver)
    : with_(with)
{
    doing("opening card " + bus_id);
    const auto start = clock::now();
    int ret          = driver.open(bus_id, card_);
    while ((ret == -EAGAIN) && (clock::now() - start < with.patience)) {
        std::this_thread::sleep_for(pause_of_reset);
        ret                                        = driver.open(bus_id, card_);
        const std::chrono::duration<double> waited = clock::now() - start;
        wait_ = ", after " + to_decimal(waited.count()) + " s in reset";
    }
    if (ret != 0) {
        const char *why = (ret == -EAGAIN)  ? "its reset does not end"
                          : (ret == -EBUSY) ? "it is in use"
                                            : std::strerror(-ret);
        fail_step(why, bus_id == with.bus_id);
    }
}

uint64_t tried_card::allocate(uint64_t size)
{
    must_succeed(card_->allocate(size, 0, memory_.emplace_back()));
    return memory_.back().address();
}

shim::pinned_buffer &tried_card::pin(uint64_t size)
{
    auto &made = pinned_.emplace_back();
    must_succeed(shim::pinned_buffer::create(*card_, size, made));
    return made;
}

int tried_card::try_copy(shim::dma_direction direction, uint64_t dst,
                         uint64_t src, uint64_t length, unsigned times)
{
    auto &queue = queues_[static_cast<size_t>(direction)];
    int ret = (queue != nullptr) ? 0 : card_->make_queue(direction, {}, queue);
    uint64_t id = 0;
    for (unsigned i = 0; (i < times) && (ret == 0); ++i) {
        ret = queue->submit(dst, src, length, nullptr, id);
    }
    if (ret == 0) {
        using std::chrono::microseconds;
        ret = queue->wait(
            id, static_cast<uint64_t>(microseconds(with_.patience).count()));
        must_hold(ret != -EAGAIN, "it does not end");
    }
    for (shim::dma_completion done{}; queue->poll(&done, 1) != 0;) {
        ret = (ret == 0) ? done.status : ret;
    }
    return ret;
}

void tried_card::copy(shim::dma_direction direction, uint64_t dst, uint64_t src,
                      uint64_t length, unsigned times)
{
    must_succeed(try_copy(direction, dst, src, length, times));
}

shim::pinned_buffer &tried_card::bounce(uint64_t size)
{
    if (bounce_.size() < size) {
        must_succeed(shim::pinned_buffer::create(*card_, size, bounce_));
    }
    return bounce_;
}

void tried_card::write(uint64_t dst, const std::vector<char> &text)
{
    std::ranges::copy(text, bounce(text.size()).data());
    copy(shim::dma_direction::host_to_device, dst, bounce_.address(),
         text.size());
}

std::vector<char> tried_card::read(uint64_t src, uint64_t size)
{
    std::memset(bounce(size).data(), 0, size);
    copy(shim::dma_direction::device_to_host, bounce_.address(), src, size);
    return {bounce_.data(), bounce_.data() + size};
}

std::string tried_card::exchange(uint64_t there)
{
    const std::vector<char> bytes = pattern(8, 1);
    doing("copying 8 bytes to the card");
    write(there, bytes);
    doing("copying 8 bytes from the card");
    require_same(read(there, bytes.size()).data(), bytes);
    return "8 bytes there and back";
}

void tried_card::close()
{
    for (auto &queue : queues_) {
        queue.reset();
    }
    doing("giving device memory back");
    for (shim::allocation &each : memory_) {
        must_succeed(each.close());
    }
}

} // namespace launcher
