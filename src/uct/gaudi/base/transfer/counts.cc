/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/transfer/counts.h"

#include <string>

namespace gaudi::base {

statistics_class<copy_counts::numbers> copy_counts::class_ = {
    .name  = "gaudi_copies",
    .names = {"card_bytes", "card_operations", "ports_bytes",
              "ports_operations", "host_bytes", "host_operations", "cpu_bytes",
              "cpu_operations"}};

void copy_counts::show_in(uct_iface_h iface)
{
    statistics_.create(iface, class_, "all");
    iface_.store(iface, std::memory_order_release);
    add_files();
}

void copy_counts::add_files() const
{
    uct_iface_h iface = iface_.load(std::memory_order_acquire);
    for (size_t i = 0; (iface != nullptr) && (i < numbers); ++i) {
        add_vfs_number(iface, numbers_[i],
                       std::string("copies/") + class_.names[i]);
    }
}

} // namespace gaudi::base
