#include "launcher/tried_card.h"

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

/* What is being done, for failures. */
std::string &now_doing()
{
    static std::string what;
    return what;
}

char byte_at(size_t position, unsigned seed)
{
    return static_cast<char>(position * 131 + (position >> 8) * 7 +
                             size_t{seed} * 89 + 1);
}

[[noreturn]] void end_failed(const std::string &why)
{
    end_step(verdict::failed, now_doing() + ": " + why);
}

} // namespace

const shim::driver &driver_of(const subject &with)
{
    static std::unique_ptr<shim::driver> loaded;
    if (loaded == nullptr) {
        report all;
        loaded = load_driver(*with.files, *with.where, all);
        if (loaded == nullptr) {
            end_all_steps(all.missing.front().what);
        }
    }
    return *loaded;
}

void doing(const std::string &what)
{
    now_doing() = what;
    say_doing(what);
}

void must_succeed(int result)
{
    if (result == -ENODEV) {
        end_failed("the card was reset, or is gone");
    }
    if (result != 0) {
        end_failed(std::strerror(-result));
    }
}

void must_hold(bool holds, const std::string &otherwise)
{
    if (!holds) {
        end_failed(otherwise);
    }
}

void fill(char *data, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; ++i) {
        data[i] = byte_at(i, seed);
    }
}

bool is_filled(const char *data, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; ++i) {
        if (data[i] != byte_at(i, seed)) {
            return false;
        }
    }
    return true;
}

void require_filled(const char *data, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; ++i) {
        if (data[i] != byte_at(i, seed)) {
            char why[100];
            std::snprintf(why, sizeof(why),
                          "byte %zu of %zu is %#04x, and should be %#04x", i,
                          size, data[i] & 0xffu, byte_at(i, seed) & 0xffu);
            end_failed(why);
        }
    }
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
        ret = driver.open(bus_id, card_);
        char text[60];
        std::snprintf(
            text, sizeof(text), ", after %.1f s in reset",
            std::chrono::duration<double>(clock::now() - start).count());
        wait_ = text;
    }
    if (ret != 0) {
        const char *why = (ret == -EAGAIN)  ? "its reset does not end"
                          : (ret == -EBUSY) ? "it is in use"
                                            : std::strerror(-ret);
        if (bus_id == with.bus_id) {
            end_all_steps(now_doing() + ": " + why);
        }
        end_failed(why);
    }
}

uint64_t tried_card::allocate(uint64_t size)
{
    shim::allocation made;
    must_succeed(card_->allocate(size, 0, made));
    memory_.push_back(std::move(made));
    return memory_.back().address();
}

shim::pinned_buffer &tried_card::pin(uint64_t size)
{
    auto made = std::make_unique<shim::pinned_buffer>();
    must_succeed(shim::pinned_buffer::create(*card_, size, *made));
    pinned_.push_back(std::move(made));
    return *pinned_.back();
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

void tried_card::write(uint64_t dst, const char *data, uint64_t size)
{
    std::memcpy(bounce(size).data(), data, size);
    copy(shim::dma_direction::host_to_device, dst, bounce_.address(), size);
}

void tried_card::read(char *data, uint64_t src, uint64_t size)
{
    std::memset(bounce(size).data(), 0, size);
    copy(shim::dma_direction::device_to_host, bounce_.address(), src, size);
    std::memcpy(data, bounce_.data(), size);
}

void tried_card::exchange(uint64_t there)
{
    char bytes[8];
    fill(bytes, sizeof(bytes), 1);
    doing("copying 8 bytes to the card");
    write(there, bytes, sizeof(bytes));
    std::memset(bytes, 0, sizeof(bytes));
    doing("copying 8 bytes from the card");
    read(bytes, there, sizeof(bytes));
    require_filled(bytes, sizeof(bytes), 1);
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
