/* Where memory domain and transport become known to UCX. */
#include "uct/gaudi/base/ucx/transport.h"
#include "uct/gaudi/copy/copy_iface.h"
#include "uct/gaudi/copy/copy_md.h"

void gaudi::copy::register_component()
{
    base::register_component<memory_domain, transport>();
}
