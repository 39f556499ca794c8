#include "uct/gaudi/base/cards/card_hold.h"

#include "uct/gaudi/base/cards/card_table.h"
#include "util/process.h"

namespace gaudi::base {

unsigned card_hold::own_mark()
{
    return util::process_generation() + 1;
}

ucs_status_t card_hold::open()
{
    ucs_status_t status = card_table::instance().open();
    if (status == UCS_OK) {
        holder_.store(own_mark());
    }
    return status;
}

bool card_hold::join()
{
    if (is_held()) {
        return true;
    }
    card_table &table = card_table::instance();
    if (!table.join()) {
        return false;
    }
    if (holder_.exchange(own_mark()) == own_mark()) {
        table.close(); /* another thread was faster */
    }
    return true;
}

bool card_hold::is_held() const
{
    return holder_.load(std::memory_order_acquire) == own_mark();
}

void card_hold::release()
{
    if (holder_.exchange(nothing) == own_mark()) {
        card_table::instance().close();
    }
}

void card_hold::take(card_hold &other)
{
    release();
    holder_.store(other.holder_.exchange(nothing));
}

void card_hold::abandon()
{
    holder_.store(nothing);
}

} // namespace gaudi::base
