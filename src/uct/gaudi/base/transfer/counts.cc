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

statistics_class<3> class_of_port = {.name  = "gaudi_port",
                                     .names = {"bytes", "messages", "errors"}};

} // namespace

void card_counts::show_in(uct_iface_h iface)
{
    statistics_.create(iface, class_of_card, name_);
    add_files(iface);
}

void card_counts::add_files(uct_iface_h iface) const
{
    for (size_t kind = 0; kind < kinds; ++kind) {
        const std::string folder = std::string(directions[kind]) + '/';
        add_file(iface, 2 * kind, folder + "bytes");
        add_file(iface, 2 * kind + 1, folder + "jobs");
    }
}

void port_counts::show_in(uct_iface_h iface)
{
    statistics_.create(iface, class_of_port, name_);
    add_files(iface);
}

void port_counts::add_files(uct_iface_h iface) const
{
    for (size_t i = 0; i < class_of_port.names.size(); ++i) {
        add_file(iface, i, class_of_port.names[i]);
    }
}

template <typename Row>
Row &copy_counts::find(const std::string &name)
{
    for (count_row *each = first_.get(); each != nullptr;
         each            = each->next_.get()) {
        if (each->name_ == name) {
            /* Opened anew, or not at the first try. */
            return static_cast<Row &>(*each);
        }
    }
    auto added = std::make_unique<Row>(name);
    Row &own   = *added;
    own.next_  = std::move(first_);
    first_     = std::move(added);
    head_.store(first_.get(), std::memory_order_release);
    if (uct_iface_h iface = iface_.load(std::memory_order_relaxed)) {
        first_->show_in(iface);
    }
    return own;
}

template card_counts &copy_counts::find(const std::string &);

void copy_counts::add(const std::string &card, const shim::port_offer &offer)
{
    for (uint32_t i = 0; i < offer.count; ++i) {
        const uint32_t port = offer.ends.at(i).port;
        ports_of(card).rows_.at(port) =
            &find<port_counts>(card + "/port" + std::to_string(port));
    }
}

void copy_counts::show_in(uct_iface_h iface)
{
    iface_.store(iface, std::memory_order_release);
    for (count_row *each = first_.get(); each != nullptr;
         each            = each->next_.get()) {
        each->show_in(iface);
    }
}

void copy_counts::add_files() const
{
    uct_iface_h iface = iface_.load(std::memory_order_acquire);
    for (const count_row *each = head_.load(std::memory_order_acquire);
         (iface != nullptr) && (each != nullptr); each = each->next_.get()) {
        each->add_files(iface);
    }
}

} // namespace gaudi::base
