/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What the cards have copied for an engine: bytes and jobs by card and
 * direction, and what their ports have written, which UCX shows of the engine's
 * interface.
 *
 * Counted on the engine's thread, with plain loads and stores: nobody else
 * writes. Read by any thread.
 */
#pragma once

#include "hlthunk_shim/ports/connection.h"
#include "uct/gaudi/base/ucx/statistics.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace gaudi::base {

/** Where bytes went, as the card sees it that copied them. */
enum class copy_kind : uint8_t {
    host_to_device,
    device_to_host,
    on_card,
    card_to_card_out, /**< it wrote to another card, */
    card_to_card_in,  /**< or read from there */
    count
};

/** Numbers that are shown together. */
class count_row {
public:
    virtual ~count_row()                    = default;
    count_row(const count_row &)            = delete;
    count_row &operator=(const count_row &) = delete;

protected:
    static constexpr size_t most = 2 * static_cast<size_t>(copy_kind::count);

    explicit count_row(std::string name) : name_(std::move(name)) {}

    void add(size_t number, uint64_t more)
    {
        std::atomic<uint64_t> &counted = numbers_[number];
        counted.store(counted.load(std::memory_order_relaxed) + more,
                      std::memory_order_relaxed);
        statistics_.add(number, more);
    }
    void add_file(uct_iface_h iface, size_t number,
                  const std::string &path) const
    {
        add_vfs_number(iface, numbers_[number], name_ + '/' + path);
    }

    const std::string name_;
    statistics_node statistics_;

private:
    friend class copy_counts;

    virtual void show_in(uct_iface_h iface)         = 0;
    virtual void add_files(uct_iface_h iface) const = 0;

    std::array<std::atomic<uint64_t>, most> numbers_{};
    std::unique_ptr<count_row> next_; /* of the engine */
};

/** Of one card. */
class card_counts final : public count_row {
public:
    explicit card_counts(std::string card) : count_row(std::move(card)) {}

    /** A job has ended well. */
    void add(copy_kind kind, uint64_t bytes)
    {
        const size_t first = 2 * static_cast<size_t>(kind);
        count_row::add(first, bytes);
        count_row::add(first + 1, 1);
    }

private:
    void show_in(uct_iface_h iface) override;
    void add_files(uct_iface_h iface) const override;
};

/** Of one of its ports: bytes and messages that have arrived, and errors. */
class port_counts final : public count_row {
public:
    explicit port_counts(std::string port) : count_row(std::move(port)) {}

    void add(uint32_t bytes, int status)
    {
        if (status != 0) {
            count_row::add(errors, 1);
            return;
        }
        count_row::add(0, bytes);
        count_row::add(messages, 1);
    }

private:
    static constexpr size_t messages = 1;
    static constexpr size_t errors   = 2;

    void show_in(uct_iface_h iface) override;
    void add_files(uct_iface_h iface) const override;
};

/** Of all of its ports that are in use. */
class counted_ports final : public shim::port_watcher {
public:
    void note_end(unsigned port, uint32_t bytes, int status) override
    {
        rows_[port]->add(bytes, status);
    }

private:
    friend class copy_counts;

    std::array<port_counts *, shim::ports_of_card> rows_{};
};

/** Of all cards of an engine. */
class copy_counts {
public:
    /** Of a card; lives as long as this. @throws bad_alloc. */
    card_counts &of(const std::string &card) { return find<card_counts>(card); }

    /** Of its ports, and of those that an offer has, too: @ref add. */
    counted_ports &ports_of(const std::string &card) { return ports_[card]; }
    void add(const std::string &card, const shim::port_offer &offer);

    /** Have UCX show all, also what comes later. Once. */
    void show_in(uct_iface_h iface);

    /** Add the files of all to what UCX's virtual file system shows of the
     *  interface. Any thread. */
    void add_files() const;

private:
    template <typename Row>
    Row &find(const std::string &name);

    /* Only ever grows at its head: who reads needs no lock, which a forked
     * child might find taken. */
    std::unique_ptr<count_row> first_;
    std::atomic<const count_row *> head_{nullptr};
    std::atomic<uct_iface_h> iface_{nullptr};
    std::map<std::string, counted_ports> ports_; /* by card */
};

} // namespace gaudi::base
