/* Where memory domain and transport become known to UCX. */
#include "uct/gaudi/base/ucx/config.h"
#include "uct/gaudi/ipc/ipc_md.h"

/* Of ipc_iface.cc, whose header is for those who deal with interfaces. */
extern "C" {
extern uct_tl_t uct_gaudi_ipc_tl;
}

void gaudi::ipc::register_component()
{
    base::mark_variables_used(uct_gaudi_ipc_component.md_config);
    base::mark_variables_used(uct_gaudi_ipc_tl.config);
    uct_component_register(&uct_gaudi_ipc_component);
    uct_tl_register(&uct_gaudi_ipc_component, &uct_gaudi_ipc_tl);
}
