/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/transfer/counts.h"

namespace gaudi::base {

namespace {

constexpr auto kinds = static_cast<size_t>(copy_kind::count);

/* By copy_kind. */
constexpr const char *directions[kinds] = {"host_to_device", "device_to_host",
                                           "on_card", "card_to_card_out",
                                           "card_to_card_in"};

/* Bytes and jobs of each copy_kind, in turn. */
statistics_class<2 *kinds> class_of_card = {
    .name  = "gaudi_card",
    .names = {"host_to_device_bytes", "host_to_device_jobs",
              "device_to_host_bytes", "device_to_host_jobs", "on_card_bytes",
              "on_card_jobs", "card_to_card_out_bytes", "card_to_card_out_jobs",
              "card_to_card_in_bytes", "card_to_card_in_jobs"}};

} // namespace

void card_counts::show_in(uct_iface_h iface)
{
    statistics_.create(iface, class_of_card, card_);
    add_files(iface);
}

void card_counts::add_files(uct_iface_h iface) const
{
    for (size_t kind = 0; kind < kinds; ++kind) {
        const std::string folder = card_ + '/' + directions[kind] + '/';
        add_vfs_number(iface, counts_[kind].bytes, folder + "bytes");
        add_vfs_number(iface, counts_[kind].jobs, folder + "jobs");
    }
}

card_counts &copy_counts::of(const std::string &card)
{
    for (card_counts *each = first_.get(); each != nullptr;
         each              = each->next_.get()) {
        if (each->card_ == card) {
            return *each; /* opened anew, or not at the first try */
        }
    }
    auto added       = std::make_unique<card_counts>(card);
    card_counts &own = *added;
    own.next_        = std::move(first_);
    first_           = std::move(added);
    head_.store(first_.get(), std::memory_order_release);
    if (uct_iface_h iface = iface_.load(std::memory_order_relaxed)) {
        own.show_in(iface);
    }
    return own;
}

void copy_counts::show_in(uct_iface_h iface)
{
    iface_.store(iface, std::memory_order_release);
    for (card_counts *each = first_.get(); each != nullptr;
         each              = each->next_.get()) {
        each->show_in(iface);
    }
}

void copy_counts::add_files() const
{
    uct_iface_h iface = iface_.load(std::memory_order_acquire);
    for (const card_counts *each = head_.load(std::memory_order_acquire);
         (iface != nullptr) && (each != nullptr); each = each->next_.get()) {
        each->add_files(iface);
    }
}

} // namespace gaudi::base
