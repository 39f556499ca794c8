/* Where memory domain and transport become known to UCX. */
#include "uct/gaudi/ipc/ipc_iface.h"
#include "uct/gaudi/ipc/ipc_md.h"

uct_component_t &gaudi::ipc::component()
{
    return base::component<memory_domain>;
}

void gaudi::ipc::register_component()
{
    base::register_component<memory_domain, transport>();
}
